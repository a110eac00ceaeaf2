/* Goal: what one engine sends is what the other one gets, in pieces of any size, and nothing that is damaged, cut, of another prompt,
 * model, KV type or tenant is ever shown. Method: whole asks and answers, every byte of them flipped, every cut. */
#include <string.h>

#include "base/mem.h"
#include "engine/kv_wire.h"
#include "tests/check.h"

enum { BT = 4, BYTES = 200, BLOCKS = 5, FROM = 2, ANSWER_MAX = KV_HEAD_BYTES + BLOCKS * 400 };

static const struct prefix_origin origin = {.seed = 7, .root = {1, 2}, .salt = {5, 5}};
static int32_t tokens[BT * BLOCKS];
static struct hash128 chain[BLOCKS + 1];
static uint8_t blocks[BLOCKS][BYTES], answer[ANSWER_MAX];
static size_t n_answer;
static int shown[BLOCKS], n_shown;

static struct kv_head head(void)
{
    struct kv_head h = {.block_tokens = BT, .block_bytes = BYTES, .root = origin.root, .seed = 99};
    memcpy(h.format, "lanes f16", 9);
    return h;
}

static void write_answer(const struct kv_head *h)
{
    n_answer = KV_HEAD_BYTES;
    kv_head_write(h, answer);
    for (int i = FROM; i < BLOCKS; i++) {
        struct block_name name = {chain[i + 1], chain[i], tokens + (size_t)i * BT};
        kv_record_write(h, i, &name, blocks[i], answer + n_answer);
        n_answer += kv_entry_bytes(BT);
        memcpy(answer + n_answer, blocks[i], BYTES);
        n_answer += BYTES;
    }
    REQUIRE(n_answer <= sizeof answer);
}

static void begin(void)
{
    for (int i = 0; i < BT * BLOCKS; i++)
        tokens[i] = i * 77 % 1000;
    for (int i = 0; i < BLOCKS; i++)
        for (int k = 0; k < BYTES; k++)
            blocks[i][k] = (uint8_t)(i * 50 + k);
    chain[0] = prefix_hash_start(&origin);
    CHECK_INT(prefix_hash_chain(&origin, BT, tokens, (size_t)BT * BLOCKS, chain + 1, BLOCKS),
              BLOCKS);
    struct kv_head h = head();
    write_answer(&h);
}

static void on_block(void *arg, int index, void *bytes)
{
    (void)arg;
    CHECK(index >= FROM && index < BLOCKS && !memcmp(bytes, blocks[index], BYTES));
    shown[n_shown++] = index;
    mem_free(bytes);
}

static struct kv_stream *open_stream(void)
{
    struct kv_stream_options o = {.head = head(),
                                  .from = FROM,
                                  .n_blocks = BLOCKS,
                                  .chain = chain,
                                  .tokens = tokens,
                                  .on_block = on_block};
    n_shown = 0;
    return kv_stream_new(&o);
}

/* Feeds bytes[n] in two pieces; how it ended in *whole. */
static enum err read_answer(const uint8_t *bytes, size_t n, size_t cut, bool *whole,
                            struct errmsg *e)
{
    struct kv_stream *s = open_stream();
    enum err code = kv_stream_feed(s, (struct str){(const char *)bytes, cut}, e);
    if (!code) code = kv_stream_feed(s, (struct str){(const char *)bytes + cut, n - cut}, e);
    *whole = !code && kv_stream_whole(s);
    CHECK_INT(kv_stream_count(s), n_shown);
    kv_stream_free(s);
    return code;
}

static struct kv_ask an_ask(void)
{
    return (struct kv_ask){.head = head(),
                           .scope = {.adapter = {8, 9}, .salt = origin.salt},
                           .start = chain[0],
                           .from = FROM,
                           .n_tokens = BT * BLOCKS,
                           .batch = true,
                           .tokens = (const uint8_t *)tokens};
}

TEST(an_ask_is_read_as_it_was_written_and_does_not_tell_the_seed)
{
    struct buf b;
    struct kv_ask ask = an_ask(), back;
    struct errmsg e = {0};
    begin();
    ask.start = chain[0];
    buf_init(&b, 1 << 20);
    kv_ask_write(&ask, &b);
    REQUIRE(kv_ask_read(buf_view(&b), &back, &e) == OK);
    CHECK(kv_head_same(&ask.head, &back.head) && back.head.seed == 0);
    CHECK(hash_eq(back.scope.adapter, ask.scope.adapter) &&
          hash_eq(back.scope.salt, ask.scope.salt) && hash_eq(back.start, ask.start));
    CHECK(back.from == FROM && back.n_tokens == BT * BLOCKS && back.batch &&
          !memcmp(back.tokens, tokens, sizeof tokens));
    buf_fini(&b);
}

TEST(no_ask_with_a_flipped_byte_or_a_cut_is_read)
{
    struct buf b;
    struct kv_ask ask, back;
    begin();
    ask = an_ask();
    buf_init(&b, 1 << 20);
    kv_ask_write(&ask, &b);
    for (size_t i = 0; i < b.n; i++) {
        CHECK_AT(kv_ask_read((struct str){b.p, i}, &back, NULL) != OK, "cut at %zu", i);
        b.p[i] = (char)(b.p[i] ^ 0x21);
        enum err code = kv_ask_read(buf_view(&b), &back, NULL);
        /* past the head's own fields it is padding */
        CHECK_AT(code != OK || (i >= 120 && i < KV_HEAD_BYTES), "byte %zu", i);
        b.p[i] = (char)(b.p[i] ^ 0x21);
    }
    buf_char(&b, 'x');
    CHECK(kv_ask_read(buf_view(&b), &back, NULL) != OK);
    buf_fini(&b);
}

TEST(an_ask_for_no_block_or_a_part_of_one_is_refused)
{
    static const struct {
        int from, n;
    } bad[] = {{0, 0}, {0, 3}, {0, BT + 1}, {1, BT}, {BLOCKS, BT * BLOCKS}};
    struct errmsg e = {0};
    begin();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct buf b;
        struct kv_ask ask = an_ask(), back;
        ask.from = bad[i].from;
        ask.n_tokens = bad[i].n;
        buf_init(&b, 1 << 20);
        kv_ask_write(&ask, &b);
        CHECK_INT(kv_ask_read(buf_view(&b), &back, &e), ERR_RANGE);
        buf_fini(&b);
    }
}

TEST(an_answer_is_read_in_pieces_of_any_size)
{
    bool whole;
    begin();
    for (size_t cut = 0; cut <= n_answer; cut++) {
        CHECK_INT(read_answer(answer, n_answer, cut, &whole, NULL), OK);
        CHECK_AT(whole && n_shown == BLOCKS - FROM, "cut at %zu", cut);
    }
}

TEST(an_answer_that_ends_early_shows_the_blocks_that_came_whole)
{
    bool whole;
    size_t record = kv_entry_bytes(BT) + BYTES;
    begin();
    for (size_t n = 0; n < n_answer; n++) {
        CHECK_INT(read_answer(answer, n, n / 2, &whole, NULL), OK);
        CHECK(!whole);
        CHECK_INT(n_shown, n < KV_HEAD_BYTES ? 0 : (n - KV_HEAD_BYTES) / record);
    }
}

TEST(of_an_answer_with_a_flipped_byte_only_what_came_before_is_shown)
{
    bool whole;
    size_t record = kv_entry_bytes(BT) + BYTES;
    begin();
    for (size_t i = KV_HEAD_BYTES; i < n_answer; i++) {
        struct errmsg e = {0};
        answer[i] ^= 0x40;
        CHECK_INT(read_answer(answer, n_answer, i, &whole, &e), ERR_CORRUPT);
        CHECK_INT(n_shown, (i - KV_HEAD_BYTES) / record);
        CHECK(e.text[0]);
        answer[i] ^= 0x40;
    }
}

TEST(blocks_nobody_asked_for_are_not_taken)
{
    uint8_t longer[ANSWER_MAX + 1];
    bool whole;
    struct errmsg e = {0};
    begin();
    memcpy(longer, answer, n_answer);
    longer[n_answer] = 1;
    CHECK_INT(read_answer(longer, n_answer + 1, n_answer, &whole, &e), ERR_TOO_LARGE);
    CHECK(!whole);
}

TEST(blocks_of_another_tenant_prompt_or_place_are_refused)
{
    struct prefix_origin other = origin;
    struct errmsg e = {0};
    bool whole;
    begin();
    other.salt = (struct hash128){6, 6};
    struct hash128 mine[BLOCKS + 1];
    memcpy(mine, chain, sizeof chain);
    chain[0] = prefix_hash_start(&other);
    (void)prefix_hash_chain(&other, BT, tokens, (size_t)BT * BLOCKS, chain + 1, BLOCKS);
    struct kv_head h = head();
    write_answer(&h); /* the very same tokens and bytes, computed for somebody else */
    memcpy(chain, mine, sizeof chain);
    CHECK_INT(read_answer(answer, n_answer, 0, &whole, &e), ERR_CORRUPT);
    CHECK_INT(n_shown, 0);
    write_answer(&h);
    tokens[FROM * BT + 1]++;
    CHECK_INT(read_answer(answer, n_answer, 0, &whole, &e), ERR_CORRUPT);
    CHECK_INT(n_shown, 0);
    begin();
    size_t record = kv_entry_bytes(BT) + BYTES;
    memmove(answer + KV_HEAD_BYTES, answer + KV_HEAD_BYTES + record, record); /* the second first */
    CHECK_INT(read_answer(answer, n_answer, 0, &whole, &e), ERR_CORRUPT);
    CHECK_INT(n_shown, 0);
}

TEST(an_answer_computed_with_something_else_is_refused_with_the_reason)
{
    static const struct {
        int what;
        const char *word;
    } cases[] = {{0, "model file"}, {1, "block_size"}, {2, "kv_cache_dtype"}, {3, "bytes here"}};
    bool whole;
    begin();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kv_head h = head();
        struct errmsg e = {0};
        if (cases[i].what == 0) h.root.lo++;
        if (cases[i].what == 1) h.block_tokens = 8;
        if (cases[i].what == 2) memcpy(h.format, "lanes int8", 10);
        if (cases[i].what == 3) h.block_bytes++;
        kv_head_write(&h, answer);
        CHECK_INT(read_answer(answer, n_answer, 100, &whole, &e), ERR_UNSUPPORTED);
        CHECK_AT(strstr(e.text, cases[i].word) != NULL, "%s", e.text);
        CHECK_INT(n_shown, 0);
    }
}

TEST_MAIN()
