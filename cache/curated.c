/* curated.c - the first step of a look-up: what people wrote for this very question (`deja seed`) comes before what a model once said.
 * Only texts that are equal to the byte are looked for here; other wordings of a curated question are a matter of the semantic step. */
#include "cache/lookup.h"

static void go_on(struct cache_lookup *l)
{
    for (int i = 0; i < l->around.n_places; i++) {
        struct partition_walk walk = {0};
        const struct question *q;
        while ((q = partition_same_text(l->around.places[i], l->k->user_text, 0, &walk)))
            if (!q->judged || l->o.threshold_min <= 0) lookup_note_text(l, i, q);
    }
    if (!lookup_serve_texts(l)) lookup_curated_over(l);
}

void lookup_curated_over(struct cache_lookup *l)
{
    l->curated_first = false;
    l->around.n_vetoed = 0;
    lookup_exact(l);
}

void lookup_curated(struct cache_lookup *l)
{
    if (!l->o.skip_exact && l->knobs.exact) lookup_take_curated(l);
    l->curated_first = l->around.n_places > 0;
    if (l->curated_first)
        lookup_await_places(l, go_on, lookup_curated_over);
    else
        lookup_exact(l);
}
