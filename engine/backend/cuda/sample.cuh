/* sample.cuh - picks tokens from logits that stay on the GPU: allowed mask, bias, penalties, temperature, min-p, top-k, top-p, one draw, and the
 * log-probabilities asked for, in the order and with the meaning of engine/model/sampler.c. The draw comes from the host's stream of
 * that request, so the token is the host's, but where rounding of a sum decides.
 *
 * sample_rows: grid = rows, block = SAMPLE_THREADS. Nothing is sorted: the element at which a running sum in order of falling weight passes a
 *   target is found digit by digit (four passes over the row with a histogram of 256 bins in shared memory), then by id among equals. Sums
 *   of weights are integers (2^40 = the likeliest), so they do not depend on the order of atomics: the same input gives the same token. Shared:
 *   2.6 KiB. Bytes a row: greedy 8 a token; each of top-k, top-p and their draw up to 24 more, mostly from L2.
 * Sources: radix select as in Alabi et al. 2012, "Fast k-selection algorithms for graphics processing units"; nucleus: Holtzman et al. 2020.
 * Never measured on hardware. */
#ifndef DEJA_ENGINE_BACKEND_CUDA_SAMPLE_CUH
#define DEJA_ENGINE_BACKEND_CUDA_SAMPLE_CUH
#include "engine/backend/cuda/launch.h"
#include "engine/backend/cuda/reduce.cuh"

typedef unsigned long long wide;

enum { SAMPLE_THREADS = 512, SAMPLE_WARPS = SAMPLE_THREADS / LANES, SAMPLE_BINS = 256 };

struct sample_shared { /* pointers into shared memory */
    wide *bins;        /* [SAMPLE_BINS] */
    wide *warp;        /* [SAMPLE_WARPS] */
    wide *found;       /* [2] */
};

DEVICE float minus_infinity()
{
    return __uint_as_float(0xff800000u);
}
DEVICE bool sample_finite(float x)
{
    return fabsf(x) <= 3.402823466e38f;
}

/* Larger for what comes before: the larger value, then the lower id. 0: not finite. */
DEVICE wide sample_key(float value, int id)
{
    if (!sample_finite(value)) return 0;
    unsigned u = value == 0 ? 0 : __float_as_uint(value); /* -0 is 0 */
    u ^= u >> 31 ? 0xffffffffu : 0x80000000u;
    return (wide)u << 32 | (unsigned)~id;
}
DEVICE int key_id(wide key)
{
    return (int)~(unsigned)key;
}

DEVICE wide block_most(wide v, const struct sample_shared &sh)
{
    for (int by = LANES / 2; by; by /= 2) {
        wide other = __shfl_xor_sync(0xffffffffu, v, by);
        if (other > v) v = other;
    }
    __syncthreads();
    if (threadIdx.x % LANES == 0) sh.warp[threadIdx.x / LANES] = v;
    __syncthreads();
    for (int w = 0; w < SAMPLE_WARPS; w++)
        if (sh.warp[w] > v) v = sh.warp[w];
    return v;
}

/* *before: the sum over the threads before this one; returned: over all. */
DEVICE wide block_scan(wide v, wide *before, const struct sample_shared &sh)
{
    int lane = (int)threadIdx.x % LANES;
    wide sum = v, all = 0;
    for (int by = 1; by < LANES; by *= 2) {
        wide other = __shfl_up_sync(0xffffffffu, sum, by);
        if (lane >= by) sum += other;
    }
    __syncthreads();
    if (lane == LANES - 1) sh.warp[threadIdx.x / LANES] = sum;
    __syncthreads();
    *before = sum - v;
    for (unsigned w = 0; w < SAMPLE_WARPS; w++) {
        if (w < threadIdx.x / LANES) *before += sh.warp[w];
        all += sh.warp[w];
    }
    return all;
}

/* A weight in 0..1 as an integer. */
DEVICE wide fixed(float weight)
{
    return (wide)(weight * 1099511627776.0f);
}

/* What an element counts: its mass, or one; nothing when its weight is 0. only: bits of the one weight that counts, or 0 = any. */
DEVICE wide sample_measure(float weight, bool by_mass, unsigned only)
{
    if (!(weight > 0) || (only && __float_as_uint(weight) != only)) return 0;
    return by_mass ? fixed(weight) : 1;
}

/* The lowest id at which the running sum in order of ids passes target; -1: it never does. */
DEVICE int sample_find(const float *weight, int n, wide target, bool by_mass, unsigned only,
                       const struct sample_shared &sh)
{
    int each = (n + SAMPLE_THREADS - 1) / SAMPLE_THREADS, from = (int)threadIdx.x * each,
        to = min(n, from + each);
    wide mine = 0, before;
    for (int i = from; i < to; i++)
        mine += sample_measure(weight[i], by_mass, only);
    block_scan(mine, &before, sh);
    if (threadIdx.x == 0) sh.found[0] = (wide)-1;
    __syncthreads();
    if (before <= target && target < before + mine) {
        for (int i = from; i < to; i++) {
            before += sample_measure(weight[i], by_mass, only);
            if (before > target) {
                sh.found[0] = (wide)i;
                break;
            }
        }
    }
    __syncthreads();
    return (int)sh.found[0];
}

/* By one warp: the bin, from the top, at which the sum beyond `before` passes target; and the sum before that bin. */
DEVICE void sample_bin(const wide *bins, wide before, wide target, wide *found)
{
    int lane = (int)threadIdx.x % LANES, first = SAMPLE_BINS - 1 - lane * (SAMPLE_BINS / LANES);
    wide mine = 0, sum;
    for (int i = 0; i < SAMPLE_BINS / LANES; i++)
        mine += bins[first - i];
    sum = mine;
    for (int by = 1; by < LANES; by *= 2) {
        wide other = __shfl_up_sync(0xffffffffu, sum, by);
        if (lane >= by) sum += other;
    }
    sum += before - mine; /* before this lane's bins */
    if (sum > target || target >= sum + mine) return;
    for (int i = 0; i < SAMPLE_BINS / LANES; i++) {
        if (target < sum + bins[first - i]) {
            found[0] = (wide)(first - i);
            found[1] = sum;
            return;
        }
        sum += bins[first - i];
    }
}

/* In order of falling weight, equals by rising id: the element at which the running sum passes target, which is below the whole sum. */
DEVICE int sample_descend(const float *weight, int n, wide target, bool by_mass,
                          const struct sample_shared &sh)
{
    unsigned prefix = 0, mask = 0;
    wide before = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int i = (int)threadIdx.x; i < SAMPLE_BINS; i += SAMPLE_THREADS)
            sh.bins[i] = 0;
        __syncthreads();
        for (int i = (int)threadIdx.x; i < n; i += SAMPLE_THREADS) {
            unsigned bits = __float_as_uint(weight[i]);
            wide v = sample_measure(weight[i], by_mass, 0);
            if (v && (bits & mask) == prefix) atomicAdd(&sh.bins[bits >> shift & 255], v);
        }
        __syncthreads();
        if (threadIdx.x < LANES) sample_bin(sh.bins, before, target, sh.found);
        __syncthreads();
        prefix |= (unsigned)sh.found[0] << shift;
        before = sh.found[1];
        mask |= 255u << shift;
        __syncthreads();
    }
    wide left = target - before;
    if (by_mass) left /= fixed(__uint_as_float(prefix));
    return sample_find(weight, n, left, false, prefix, sh);
}

/* Elements behind `last` in that order become 0; the sum of the others. */
DEVICE wide sample_cut(float *weight, int n, int last, const struct sample_shared &sh)
{
    wide worst = sample_key(weight[last], last), mine = 0, before;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < n; i += SAMPLE_THREADS) {
        if (sample_key(weight[i], i) < worst) weight[i] = 0;
        mine += sample_measure(weight[i], true, 0);
    }
    wide all = block_scan(mine, &before, sh);
    __syncthreads();
    return all;
}

DEVICE float sample_raw(const struct sample_args &a, const float *logits, int t)
{
    float x = logits[t];
    return a.softcap > 0 ? a.softcap * tanhf(x / a.softcap) : x;
}

/* n: how often the token was generated. */
DEVICE float sample_penalised(const struct sample_params &p, float x, int n)
{
    x = x > 0 ? x / p.repetition : x * p.repetition;
    return n > 0 ? x - (p.presence + p.frequency * (float)n) : x;
}

/* Mask, bias and penalties, from logits to work; -inf where no token may come from. */
DEVICE void sample_adjust(const struct sample_args &a, const struct sample_params &p,
                          const float *logits, float *work, const struct sample_shared &sh)
{
    int unheard = p.unheard > 0 ? a.before[p.unheard - 1].token : -1;
    const unsigned *allowed = (const unsigned *)a.words + p.allowed_at;
    for (int t = (int)threadIdx.x; t < a.n_vocab; t += SAMPLE_THREADS) {
        float x = sample_raw(a, logits, t);
        bool may = p.allowed_at < 0 || (allowed[t / 32] >> t % 32 & 1);
        work[t] = may && sample_finite(x) ? x : minus_infinity();
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < p.n_bias; i += SAMPLE_THREADS)
        atomicAdd(&work[a.words[p.bias_at + 2 * i]],
                  __uint_as_float((unsigned)a.words[p.bias_at + 2 * i + 1]));
    if (threadIdx.x == 0) sh.found[0] = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < p.n_seen; i += SAMPLE_THREADS) {
        int token = a.words[p.seen_at + 2 * i], n = a.words[p.seen_at + 2 * i + 1];
        if (token < 0) continue;
        if (token == unheard) sh.found[0] = 1;
        work[token] = sample_penalised(p, work[token], n + (token == unheard));
    }
    __syncthreads();
    if (threadIdx.x == 0 && unheard >= 0 && !sh.found[0])
        work[unheard] = sample_penalised(p, work[unheard], 1);
    __syncthreads();
}

/* work becomes weights: exp((x - most) / temperature), 0 below min-p. Their number and sum. */
DEVICE wide sample_weigh(const struct sample_params &p, float *work, int n, float most,
                         wide *n_left, const struct sample_shared &sh)
{
    wide mass = 0, count = 0, before;
    for (int t = (int)threadIdx.x; t < n; t += SAMPLE_THREADS) {
        float w = sample_finite(work[t]) ? expf((work[t] - most) / p.temperature) : 0.0f;
        if (w < p.min_p) w = 0;
        work[t] = w;
        mass += sample_measure(w, true, 0);
        count += w > 0;
    }
    *n_left = block_scan(count, &before, sh);
    mass = block_scan(mass, &before, sh);
    __syncthreads();
    return mass;
}

DEVICE wide part_of(double share, wide all)
{
    wide at = (wide)(share * (double)all);
    return at < all ? at : all - 1;
}

DEVICE int sample_draw(const struct sample_params &p, float *work, int n, float most,
                       const struct sample_shared &sh)
{
    wide n_left, all = sample_weigh(p, work, n, most, &n_left, sh);
    bool ordered = p.top_p < 1.0f;
    if (p.top_k > 0 && (wide)p.top_k < n_left) {
        all = sample_cut(work, n, sample_descend(work, n, (wide)(p.top_k - 1), false, sh), sh);
        ordered = true;
    }
    if (p.top_p < 1.0f) { /* the first at which the sum reaches the share, so: passes one less */
        double reach = ceil((double)p.top_p * (double)all);
        wide target = reach < 1 ? 0 : (wide)reach - 1;
        if (target >= all) target = all - 1;
        all = sample_cut(work, n, sample_descend(work, n, target, true, sh), sh);
    }
    wide target = part_of(p.draw, all);
    return ordered ? sample_descend(work, n, target, true, sh)
                   : sample_find(work, n, target, true, 0, sh);
}

DEVICE float floor_logprob(float v)
{
    return v >= SAMPLER_LOGPROB_FLOOR ? v : SAMPLER_LOGPROB_FLOOR;
}

/* The raw logits' log-probabilities: of the best n_top, one round each, and of token. */
DEVICE void sample_report(const struct sample_args &a, const struct sample_params &p,
                          const float *logits, int token, const struct sample_shared &sh)
{
    wide sum = 0, before, last = (wide)-1;
    wide best = 0;
    for (int t = (int)threadIdx.x; t < a.n_vocab; t += SAMPLE_THREADS) {
        wide key = sample_key(sample_raw(a, logits, t), t);
        if (key > best) best = key;
    }
    best = block_most(best, sh);
    struct sample_top *top = &a.top[blockIdx.x];
    if (threadIdx.x == 0) top->n = 0;
    if (!best) return;
    float most = sample_raw(a, logits, key_id(best));
    for (int t = (int)threadIdx.x; t < a.n_vocab; t += SAMPLE_THREADS) {
        float x = sample_raw(a, logits, t);
        if (sample_finite(x)) sum += fixed(expf(x - most));
    }
    sum = block_scan(sum, &before, sh);
    float log_sum = most + (float)log((double)sum / 1099511627776.0);
    for (int i = 0; i < p.n_top; i++) {
        best = 0;
        for (int t = (int)threadIdx.x; t < a.n_vocab; t += SAMPLE_THREADS) {
            wide key = sample_key(sample_raw(a, logits, t), t);
            if (key < last && key > best) best = key;
        }
        best = last = block_most(best, sh);
        if (!best) break;
        if (threadIdx.x == 0) {
            int t = key_id(best);
            top->top[i].token = t;
            top->top[i].logprob = floor_logprob(sample_raw(a, logits, t) - log_sum);
            top->n = i + 1;
        }
    }
    if (threadIdx.x == 0 && token >= 0)
        a.head[blockIdx.x].logprob = floor_logprob(sample_raw(a, logits, token) - log_sum);
}

KERNEL __launch_bounds__(SAMPLE_THREADS) sample_rows(struct sample_args a)
{
    SHARED(wide, bins, SAMPLE_BINS);
    SHARED(wide, warp, SAMPLE_WARPS);
    SHARED(wide, found, 2);
    struct sample_shared sh = {bins, warp, found};
    const struct sample_params p = a.params[blockIdx.x];
    const float *logits = a.logits + (size_t)p.logits * (size_t)a.n_vocab;
    float *work = a.work + (size_t)blockIdx.x * (size_t)a.n_vocab;
    sample_adjust(a, p, logits, work, sh);
    wide best = 0;
    for (int t = (int)threadIdx.x; t < a.n_vocab; t += SAMPLE_THREADS) {
        wide key = sample_key(work[t], t);
        if (key > best) best = key;
    }
    best = block_most(best, sh);
    int token = best ? key_id(best) : -1;
    if (best && p.temperature > 0) {
        float most = work[token];
        __syncthreads();
        token = sample_draw(p, work, a.n_vocab, most, sh);
    }
    if (threadIdx.x == 0) {
        a.head[blockIdx.x].token = token;
        a.head[blockIdx.x].logprob = 0;
    }
    if (p.n_top >= 0) sample_report(a, p, logits, token, sh);
}

/* id[i] < 0: pick -1 - id[i] of the step before; one block. A pick that found nothing is heard by nobody: any id will do. */
KERNEL take_picks(int32_t *id, int n, const struct sample_head *head)
{
    for (int i = (int)threadIdx.x; i < n; i += SAMPLE_THREADS) {
        if (id[i] >= 0) continue;
        int token = head[-1 - id[i]].token;
        id[i] = token < 0 ? 0 : token;
    }
}

#endif
