/* Goal: halves are read exactly and written to the nearest, ties to even. Method: every half, and the places around each middle. */
#include "base/half.h"
#include "tests/check.h"

#include <math.h>

TEST(float16_conversion_is_exact_both_ways_and_rounds_to_even)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = f16_to_f32((uint16_t)h);
        bool nan = (h & 0x7c00) == 0x7c00 && (h & 0x3ff);
        CHECK(nan ? isnan(f) : f32_to_f16(f) == h);
        int exp = h >> 10 & 31;
        if (exp == 31) continue;
        double want = ldexp((h & 0x3ff) + (exp ? 1024 : 0), (exp ? exp : 1) - 25);
        CHECK((double)f == (h & 0x8000 ? -want : want));
        uint16_t up = (uint16_t)(h + 1);
        if (h & 0x8000 || (up & 0x7c00) == 0x7c00) continue;
        float middle = (f + f16_to_f32(up)) / 2;
        CHECK_INT(f32_to_f16(middle), h & 1 ? up : h);
        CHECK_INT(f32_to_f16(nextafterf(middle, INFINITY)), up);
        CHECK_INT(f32_to_f16(nextafterf(middle, 0)), h);
    }
    CHECK_INT(f32_to_f16(65519.0f), 0x7bff);
    CHECK_INT(f32_to_f16(65520.0f), 0x7c00);
    CHECK_INT(f32_to_f16(1e30f), 0x7c00);
}

TEST(bfloat16_keeps_one_and_nan)
{
    CHECK(bf16_to_f32(f32_to_bf16(1.0f)) == 1.0f && isnan(bf16_to_f32(f32_to_bf16(NAN))));
}

TEST_MAIN()
