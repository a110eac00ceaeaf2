/* Goal: both encodings of engines' KV events mean the same, and damaged ones are refused. Method: batches written here by hand;
 * each cut at every byte. */
#include "base/buf.h"
#include "base/mem.h"
#include "cache/kv_batch.h"
#include "tests/check.h"

#define S(text)                                                                                    \
    (struct str)                                                                                   \
    {                                                                                              \
        text, sizeof text - 1                                                                      \
    }

static char seen[2048];

static void note(void *arg, const struct kv_event *ev)
{
    size_t at = strlen(seen);
    (void)arg;
    at += (size_t)snprintf(seen + at, sizeof seen - at, "%d", ev->kind);
    for (size_t i = 0; i < ev->n_hashes; i++)
        at += (size_t)snprintf(seen + at, sizeof seen - at, " %llx",
                               (unsigned long long)ev->hashes[i]);
    if (ev->has_parent)
        at +=
            (size_t)snprintf(seen + at, sizeof seen - at, " <%llx", (unsigned long long)ev->parent);
    for (size_t i = 0; i < ev->n_tokens; i++)
        at += (size_t)snprintf(seen + at, sizeof seen - at, " t%d", ev->tokens[i]);
    snprintf(seen + at, sizeof seen - at, " b%d p%d tier%d g%d r%d;", ev->block_tokens, ev->plain,
             ev->tier, ev->group, ev->rank);
}

static enum err read_all(struct str payload)
{
    seen[0] = 0;
    char *exact = xmalloc(payload.n + 1);
    memcpy(exact, payload.p, payload.n);
    enum err code = kv_batch_read((struct str){exact, payload.n}, note, NULL);
    mem_free(exact);
    return code;
}

/* [1.0, [["BlockStored", [7, 8], 5, [1, 2, 3, 4], 2, nil, "GPU"], ["BlockRemoved", [7]], ["AllBlocksCleared"]], 3] */
static const char arrays[] = "\x93\xcb\x3f\xf0\0\0\0\0\0\0\x93"
                             "\x97\xab"
                             "BlockStored\x92\x07\x08\x05\x94\x01\x02\x03\x04\x02\xc0\xa3GPU"
                             "\x92\xac"
                             "BlockRemoved\x91\x07"
                             "\x91\xb0"
                             "AllBlocksCleared\x03";
/* {"ts": 1, "events": [{"type": "BlockStored", "block_hashes": [bin 7, bin 8], "parent_block_hash": bin 5, "token_ids": [1, 2, 3,
 * 4], "block_size": 2}, {"block_hashes": [bin 7], "type": "BlockRemoved"}, {"type": "AllBlocksCleared"}], "data_parallel_rank":
 * 3} */
static const char maps[] = "\x83\xa2ts\x01\xa6"
                           "events\x93"
                           "\x85\xa4type\xab"
                           "BlockStored\xac"
                           "block_hashes\x92\xc4\x09xxxxxxxx\x07\xc4\x01\x08\xb1"
                           "parent_block_hash\xc4\x01\x05\xa9token_ids\x94\x01\x02\x03\x04\xaa"
                           "block_size\x02"
                           "\x82\xac"
                           "block_hashes\x91\x07\xa4type\xac"
                           "BlockRemoved"
                           "\x81\xa4type\xb0"
                           "AllBlocksCleared\xb2"
                           "data_parallel_rank\x03";

TEST(arrays_and_maps_mean_the_same)
{
    CHECK(read_all(S(arrays)) == OK);
    CHECK_AT(
        !strcmp(
            seen,
            "0 7 8 <5 t1 t2 t3 t4 b2 p1 tier0 g0 r3;1 7 b0 p1 tier0 g0 r3;2 b0 p1 tier0 g0 r3;"),
        "%s", seen);
    CHECK(read_all(S(maps)) == OK);
    CHECK_AT(!strcmp(seen, "0 7878787878787807 8 <5 t1 t2 t3 t4 b2 p1 tier0 g0 r3;1 7 b0 p1 tier0 "
                           "g0 r3;2 b0 p1 tier0 g0 r3;"),
             "%s", seen);
}

TEST(no_batch_is_read_when_it_is_cut)
{
    for (size_t n = 0; n < sizeof arrays - 1; n++)
        CHECK_AT(read_all((struct str){arrays, n}) == ERR_CORRUPT, "arrays cut at %zu", n);
    for (size_t n = 0; n < sizeof maps - 1; n++)
        CHECK_AT(read_all((struct str){maps, n}) == ERR_CORRUPT, "maps cut at %zu", n);
}

TEST(lora_and_further_keys_are_marked_and_media_are_tiers)
{
    /* ["BlockStored", [7], nil, [1, 2], 2, 4, "CPU"], then extra_keys [nil] and [["image"]] */
    CHECK(read_all(S("\x92\x01\x91\x97\xab"
                     "BlockStored\x91\x07\xc0\x92\x01\x02\x02\x04\xa3"
                     "CPU")) == OK);
    CHECK_AT(!strcmp(seen, "0 7 t1 t2 b2 p0 tier1 g0 r0;"), "%s", seen);
    CHECK(read_all(S("\x92\x01\x91\x99\xab"
                     "BlockStored\x91\x07\xc0\x92\x01\x02\x02\xc0\xa4"
                     "disk\xc0\x91\xc0")) == OK);
    CHECK_AT(!strcmp(seen, "0 7 t1 t2 b2 p1 tier2 g0 r0;"), "%s", seen);
    CHECK(read_all(S("\x92\x01\x91\x99\xab"
                     "BlockStored\x91\x07\xc0\x92\x01\x02\x02\xc0\xc0\xc0\x91\x91\xa5image")) ==
          OK);
    CHECK_AT(!strcmp(seen, "0 7 t1 t2 b2 p0 tier0 g0 r0;"), "%s", seen);
}

TEST(unknown_events_and_fields_are_passed_over)
{
    CHECK(read_all(S("\x92\x01\x92\x93\xa3New\x01\x91\x02\x82\xa4type\xb0"
                     "AllBlocksCleared\xa3new\x92\x01\x02")) == OK);
    CHECK_AT(!strcmp(seen, "2 b0 p1 tier0 g0 r0;"), "%s", seen);
    CHECK(read_all(S("\x01")) == ERR_CORRUPT);
    CHECK(read_all(S("\x92\x01\x02")) == ERR_CORRUPT);
    CHECK(read_all(S("\x92\x01\x91\x02")) == ERR_CORRUPT);
}

TEST_MAIN()
