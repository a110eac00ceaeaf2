/* fuzz_calibration.c - any bytes as a calibration file: refused or read inside their bounds; what is read is written back as it was, and
 * gives spreads that can be divided by. A wrong check is mended, so that what lies behind it is reached. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "engine/model/calibration.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void use(struct calibration *c)
{
    for (int p = 0; p <= calibration_head(&c->shape); p++) {
        int width = calibration_width(&c->shape, p);
        float *s = xmalloc(((size_t)width + 1) * sizeof *s);
        if (calibration_spread(c, p, *calibration_a(c, p), s))
            for (int j = 0; j < width; j++)
                ASSERT(s[j] > 0 && isfinite(s[j]));
        mem_free(s);
    }
}

static bool read_one(const uint8_t *bytes, size_t n)
{
    struct calibration *c;
    struct errmsg e = {0};
    if (calibration_read(&c, bytes, n, &e)) {
        ASSERT(!c && e.text[0]);
        return false;
    }
    uint8_t *out = xmalloc(n);
    ASSERT(calibration_bytes(&c->shape) == n);
    calibration_write(c, out);
    ASSERT(!memcmp(out + 64, bytes + 64,
                   n - 72)); /* all floats: unused bytes of the head may differ */
    use(c);
    mem_free(out);
    calibration_free(c);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    uint8_t *copy = xmalloc(n ? n : 1); /* exact, so that the sanitizer watches its end */
    memcpy(copy, bytes, n);
    if (!read_one(copy, n) && n >= 80) {
        uint64_t check = hash_bytes(0x6361, (struct str){(const char *)copy, n - 8}).lo;
        memcpy(copy + n - 8, &check, 8);
        (void)read_one(copy, n);
    }
    mem_free(copy);
    return 0;
}
