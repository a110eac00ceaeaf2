/* upstreams_internal.h - private to upstreams*.c. */
#ifndef DEJA_GATEWAY_UPSTREAMS_INTERNAL_H
#define DEJA_GATEWAY_UPSTREAMS_INTERNAL_H
#include "gateway/upstreams.h"

struct upstreams {
    struct loop *loop;
    struct http_client *client;
    const struct gateway_options *o;
    struct loop_timer *timer;
    struct retry_budget budget;
    int n;
    double passed; /* see pick.h */
    struct upstream items[UPSTREAMS_MAX];
};

/* A timer's callback: asks every target that is due. arg: struct upstreams. */
void upstreams_probe(void *arg);

#endif
