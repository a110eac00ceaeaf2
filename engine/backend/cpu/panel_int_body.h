/* panel_int_body.h - a panel of whole-number weights against a tile of rounded columns: int_width of the file that includes it, compiled
 * once a type. */
#include "engine/backend/room.h"

#define ONE(k)                                                                                     \
    static __attribute__((noinline)) void int_##k(const struct panel *p, const struct act_tile *t, \
                                                  const struct panel_out *o)                       \
    {                                                                                              \
        int_width(PACK_##k, p, t, o);                                                              \
    }
EACH_QUANT(ONE)

static void panel_int(enum packing packing, const struct panel *p, const struct act_tile *t,
                      const struct panel_out *o)
{
    switch (packing) {
#define CASE_PANEL(k)                                                                              \
    case PACK_##k:                                                                                 \
        int_##k(p, t, o);                                                                          \
        return;
        EACH_QUANT(CASE_PANEL)
    default:
        ASSERT(!"not an integer packing");
    }
}
