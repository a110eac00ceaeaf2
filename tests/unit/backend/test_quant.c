/* test_quant.c - what the bits of every tensor type mean. tests/data/quant_blocks.jsonl holds random blocks and the values an
 * independent reader (the gguf Python package) gives them; 16-bit floats are compared with arithmetic over all 65,536. */
#include <math.h>

#include "tests/unit/backend/helpers.h"

static int hex_digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* Value of "name": "<hex>" in a line, decoded; returns bytes written. */
static size_t hex_field(const char *line, const char *name, uint8_t *out, size_t max)
{
    const char *p = strstr(line, name);
    if (!p || !(p = strstr(p, ": \""))) return 0;
    size_t n = 0;
    for (p += 3; *p != '"' && n < max; p += 2)
        out[n++] = (uint8_t)(hex_digit(p[0]) << 4 | hex_digit(p[1]));
    return n;
}

TEST(every_type_reads_as_an_independent_reader_does)
{
    FILE *f = fopen(TEST_DATA "/quant_blocks.jsonl", "r");
    REQUIRE(f);
    static char line[16384];
    int seen = 0;
    while (fgets(line, sizeof line, f)) {
        uint8_t bytes[512], values[2048];
        enum tensor_type t = (enum tensor_type)atoi(strstr(line, "\"type\": ") + 8);
        REQUIRE(tensor_type_known((uint32_t)t));
        size_t n_bytes = hex_field(line, "\"bytes\"", bytes, sizeof bytes),
               n_values = hex_field(line, "\"values\"", values, sizeof values) / 4;
        int64_t n = (int64_t)(n_bytes / tensor_type_bytes(t)) * tensor_type_block(t);
        REQUIRE(n > 0 && (size_t)n == n_values);
        float got[512];
        dequantise_row(t, bytes, got, n);
        for (int64_t i = 0; i < n; i++) {
            float want;
            memcpy(&want, values + 4 * i, 4);
            CHECK_AT(fabsf(got[i] - want) <= fabsf(want) * 2e-7f, "%s element %d is %.9g, not %.9g",
                     tensor_type_name((uint32_t)t), (int)i, got[i], want);
        }
        seen++;
    }
    fclose(f);
    CHECK_INT(seen, N_TYPES - 1); /* all but F32 */
}

TEST(quantising_keeps_values_within_half_a_step)
{
    /* steps over the range of a block: generous, as scales are rounded too */
    static const struct {
        enum tensor_type t;
        double part_of_range;
    } rows[] = {{TENSOR_F32, 0},     {TENSOR_F16, 0.0005}, {TENSOR_BF16, 0.004},
                {TENSOR_Q4_0, 0.07}, {TENSOR_Q4_1, 0.04},  {TENSOR_Q5_0, 0.04},
                {TENSOR_Q5_1, 0.02}, {TENSOR_Q8_0, 0.004}, {TENSOR_Q4_K, 0.06},
                {TENSOR_Q5_K, 0.04}, {TENSOR_Q6_K, 0.03}};
    struct rng r;
    rng_seed(&r, 2);
    float *x = random_values(&r, 1024, 1.0f), got[1024];
    uint8_t bytes[4096];
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        quantise_row(rows[k].t, x, bytes, 1024);
        dequantise_row(rows[k].t, bytes, got, 1024);
        for (int i = 0; i < 1024; i++)
            CHECK_AT(fabs(got[i] - x[i]) <= rows[k].part_of_range * 6,
                     "%s element %d: %g became %g", tensor_type_name(rows[k].t), i, x[i], got[i]);
    }
    mem_free(x);
}

TEST(rows_of_equal_values_and_of_zeros_survive)
{
    float x[256], got[256];
    uint8_t bytes[2048];
    for (int t = 0; t < N_TYPES; t++)
        for (int k = 0; k < 3; k++) {
            for (int i = 0; i < 256; i++)
                x[i] = k == 0 ? 0.0f : k == 1 ? 0.5f : -0.5f;
            quantise_row(all_types[t], x, bytes, 256);
            dequantise_row(all_types[t], bytes, got, 256);
            for (int i = 0; i < 256; i++)
                CHECK_AT(fabsf(got[i] - x[i]) <= 0.02f, "%s: %g became %g",
                         tensor_type_name(all_types[t]), x[i], got[i]);
        }
}

TEST(types_that_cannot_be_read_are_still_named)
{
    CHECK(!tensor_type_known(20) && !tensor_type_known(4) && !tensor_type_known(12345) &&
          tensor_type_known(30));
    CHECK_Z(tensor_type_name(20), "IQ4_NL");
    CHECK_Z(tensor_type_name(12345), "unknown");
    CHECK_INT(tensor_row_bytes(TENSOR_Q6_K, 512), 420);
}

TEST_MAIN()
