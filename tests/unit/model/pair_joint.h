/* pair_joint.h - for tests of the pair net: its second look at two texts alone. */
#ifndef DEJA_TESTS_PAIR_JOINT_H
#define DEJA_TESTS_PAIR_JOINT_H
#include "engine/model/pair_net.h"

static inline float pair_joint(const struct pair_net *net, const struct pair_tokens *a,
                               const struct pair_tokens *b, double cosine)
{
    float alone, joint;
    pair_net_compare(net, a, &b, &cosine, 1, &alone, &joint);
    return joint;
}

#endif
