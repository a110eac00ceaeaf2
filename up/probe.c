/* probe.c - see probe.h. */
#include "up/probe.h"

#include "base/http_client.h"
#include "base/log.h"

struct probe {
    struct loop *loop;
    int status;
    enum err code;
    struct errmsg e;
};

static void on_head(void *arg, const struct http_reply_head *head)
{
    ((struct probe *)arg)->status = head->status;
}

static void on_done(void *arg, enum err code, const struct errmsg *e)
{
    struct probe *p = arg;
    p->code = code;
    if (e) p->e = *e;
    loop_stop(p->loop);
}

static enum err ask(struct probe *p, struct str url, int timeout_ms)
{
    struct http_origin origin;
    enum err rc = http_origin_parse(url, &origin, &p->e);
    if (!rc) rc = loop_new(&p->loop, &p->e);
    if (rc) return rc;
    struct http_client *client = http_client_new(p->loop, &(struct http_client_options){0});
    struct http_call_options o = {.origin = &origin,
                                  .method = "GET",
                                  .path = "",
                                  .first_byte_timeout_ms = timeout_ms,
                                  .idle_timeout_ms = timeout_ms};
    http_call(client, &o, &(struct http_call_handler){on_head, NULL, on_done, p});
    loop_run(p->loop);
    http_client_free(client);
    loop_free(p->loop);
    return p->code;
}

int probe_main(int argc, char **argv)
{
    struct probe p = {0};
    int64_t seconds = 5;
    if (argc < 2 || argc > 3 || (argc == 3 && str_to_i64(str_of(argv[2]), 1, 600, &seconds))) {
        log_error("probe", "usage: deja probe URL [SECONDS, 1 to 600]");
        return 1;
    }
    enum err rc = ask(&p, str_of(argv[1]), (int)seconds * 1000);
    if (rc)
        log_error("probe", "%s: %s", argv[1], p.e.text[0] ? p.e.text : err_text(rc));
    else if (p.status / 100 != 2)
        log_error("probe", "%s answered %d", argv[1], p.status);
    return rc || p.status / 100 != 2;
}
