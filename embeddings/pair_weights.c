/* pair_weights.c - the file is taken in by the assembler: no copy of it as C text, nothing to install beside the executable.
 * PAIR_WEIGHTS_FILE is defined by the build. */
#include "embeddings/pair_weights.h"

__asm__(".section .rodata\n"
        ".balign 64\n"
        ".global deja_pair_weights_begin\n"
        "deja_pair_weights_begin:\n"
        ".incbin \"" PAIR_WEIGHTS_FILE "\"\n"
        ".global deja_pair_weights_end\n"
        "deja_pair_weights_end:\n"
        ".byte 0\n"
        ".previous\n");
extern const char deja_pair_weights_begin[], deja_pair_weights_end[];

struct str pair_weights(void)
{
    return (struct str){deja_pair_weights_begin,
                        (size_t)(deja_pair_weights_end - deja_pair_weights_begin)};
}
