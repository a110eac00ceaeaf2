/* test_http_client_tls.c - HTTPS against a small TLS server in this process, with a CA made on the
 * spot: what is trusted, what is refused and with which words, SNI, reuse, and that a cut
 * connection is never taken for the end of a reply. */
#define _GNU_SOURCE
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "tests/unit/base/client_rig.h"

#define OK_REPLY "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

/* --- certificates */

struct pair {
    EVP_PKEY *key;
    X509 *cert;
};

static void extend(X509 *cert, int nid, const char *value)
{
    X509V3_CTX v3;
    X509V3_set_ctx_nodb(&v3);
    X509V3_set_ctx(&v3, cert, cert, NULL, NULL, 0);
    X509_EXTENSION *x = X509V3_EXT_conf_nid(NULL, &v3, nid, value);
    ASSERT(x);
    X509_add_ext(cert, x, -1);
    X509_EXTENSION_free(x);
}

/* alt: subjectAltName of a leaf signed by ca, or NULL for a CA of its own. */
static struct pair make_pair(const char *name, const char *alt, const struct pair *ca,
                             long not_after_s)
{
    struct pair p = {EVP_EC_gen("P-256"), X509_new()};
    ASSERT(p.key && p.cert);
    X509_set_version(p.cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(p.cert), alt ? 2 : 1);
    X509_gmtime_adj(X509_getm_notBefore(p.cert), -86400 * 2);
    X509_gmtime_adj(X509_getm_notAfter(p.cert), not_after_s);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(p.cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(p.cert, X509_get_subject_name(ca ? ca->cert : p.cert));
    X509_set_pubkey(p.cert, p.key);
    if (alt)
        extend(p.cert, NID_subject_alt_name, alt);
    else
        extend(p.cert, NID_basic_constraints, "critical,CA:TRUE");
    ASSERT(X509_sign(p.cert, ca ? ca->key : p.key, EVP_sha256()));
    return p;
}

static void free_pair(struct pair *p)
{
    EVP_PKEY_free(p->key);
    X509_free(p->cert);
}

static void write_ca(const struct pair *ca, char path[64])
{
    memcpy(path, "/tmp/deja_test_ca_XXXXXX", 25);
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    ASSERT(f && PEM_write_X509(f, ca->cert));
    fclose(f);
}

/* --- a TLS server that plays one reply a request, blocking, on its own thread */

struct tls_server {
    int fd, port, n_connections;
    SSL_CTX *ssl_ctx;
    pthread_t thread;
    const char *reply;
    bool cut;  /* ends without close_notify */
    bool keep; /* serves until the client leaves */
    char sni[64];
};

static void serve_tls(struct tls_server *s, int fd)
{
    char in[8192];
    SSL *ssl = SSL_new(s->ssl_ctx);
    SSL_set_fd(ssl, fd);
    if (SSL_accept(ssl) == 1) {
        const char *sni = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
        if (sni && strlen(sni) < sizeof s->sni) memcpy(s->sni, sni, strlen(sni) + 1);
        do {
            if (SSL_read(ssl, in, sizeof in) <= 0) break;
            SSL_write(ssl, s->reply, (int)strlen(s->reply));
        } while (s->keep);
        if (!s->cut) SSL_shutdown(ssl);
    }
    SSL_free(ssl);
    close(fd);
}

static void *tls_thread(void *arg)
{
    struct tls_server *s = arg;
    for (int i = 0; i < s->n_connections; i++) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        if (poll(&p, 1, 5000) != 1) break;
        serve_tls(s, accept(s->fd, NULL, NULL));
    }
    return NULL;
}

static void tls_open(struct tls_server *s, const struct pair *leaf)
{
    s->fd = listen_local(8, &s->port);
    s->ssl_ctx = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(s->ssl_ctx, leaf->cert);
    SSL_CTX_use_PrivateKey(s->ssl_ctx, leaf->key);
    pthread_create(&s->thread, NULL, tls_thread, s);
}

static void tls_close(struct tls_server *s)
{
    pthread_join(s->thread, NULL);
    SSL_CTX_free(s->ssl_ctx);
    close(s->fd);
}

struct outside {
    struct loop *loop;
    struct http_client *client;
    struct outcome o;
};

static void outside_open(struct outside *x, const char *ca_file)
{
    struct errmsg e = {0};
    struct http_client_options options = {.ca_file = ca_file};
    ASSERT(loop_new(&x->loop, &e) == OK);
    x->client = http_client_new(x->loop, &options);
    outcome_init(&x->o, x->loop);
}

static void outside_close(struct outside *x)
{
    http_client_free(x->client);
    loop_free(x->loop);
    outcome_fini(&x->o);
}

struct tls_case {
    const char *title, *url, *alt, *reply;
    bool other_ca, expired, cut;
    enum err code;
    const char *says;
};

TEST(only_a_certificate_of_the_ca_for_that_name_is_trusted)
{
    static const struct tls_case cases[] = {
        {"trusted name", "https://localhost", "DNS:localhost", OK_REPLY, false, false, false, OK,
         ""},
        {"trusted address", "https://127.0.0.1", "IP:127.0.0.1", OK_REPLY, false, false, false, OK,
         ""},
        {"another name", "https://localhost", "DNS:other.example", OK_REPLY, false, false, false,
         ERR_UNAVAILABLE, "not for localhost"},
        {"an address that is not listed", "https://127.0.0.1", "DNS:localhost", OK_REPLY, false,
         false, false, ERR_UNAVAILABLE, "not for 127.0.0.1"},
        {"another CA", "https://localhost", "DNS:localhost", OK_REPLY, true, false, false,
         ERR_UNAVAILABLE, "not trusted"},
        {"expired", "https://localhost", "DNS:localhost", OK_REPLY, false, true, false,
         ERR_UNAVAILABLE, "expired"},
        {"ended by close_notify", "https://localhost", "DNS:localhost", "HTTP/1.1 200 OK\r\n\r\nhi",
         false, false, false, OK, ""},
        {"cut without it", "https://localhost", "DNS:localhost", "HTTP/1.1 200 OK\r\n\r\nhi", false,
         false, true, ERR_CLOSED, ""},
        {"counted body, then cut", "https://localhost", "DNS:localhost", OK_REPLY, false, false,
         true, OK, ""},
    };
    struct pair ca = make_pair("Test CA", NULL, NULL, 86400),
                other = make_pair("Other CA", NULL, NULL, 86400);
    char ca_path[64];
    write_ca(&ca, ca_path);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct tls_case *c = &cases[i];
        struct pair leaf =
            make_pair("leaf", c->alt, c->other_ca ? &other : &ca, c->expired ? -86400 : 86400);
        struct tls_server s = {.n_connections = 1, .reply = c->reply, .cut = c->cut};
        struct outside x;
        tls_open(&s, &leaf);
        outside_open(&x, ca_path);
        struct http_origin origin = origin_at(c->url, s.port);
        struct http_call_options opt = get_from(&origin);
        run_call(x.client, &opt, &x.o);
        CHECK_AT(x.o.code == c->code, "%s: %s: %s", c->title, err_name(x.o.code), x.o.e.text);
        CHECK_AT(strstr(x.o.e.text, c->says), "%s: \"%s\"", c->title, x.o.e.text);
        if (c->code == OK) CHECK_STR(buf_view(&x.o.body), "hi");
        outside_close(&x);
        tls_close(&s);
        if (c->code == OK) CHECK_Z(s.sni, strstr(c->url, "localhost") ? "localhost" : "");
        free_pair(&leaf);
    }
    unlink(ca_path);
    free_pair(&ca);
    free_pair(&other);
}

TEST(a_tls_connection_is_used_again)
{
    struct pair ca = make_pair("Test CA", NULL, NULL, 86400),
                leaf = make_pair("leaf", "DNS:localhost", &ca, 86400);
    char ca_path[64];
    write_ca(&ca, ca_path);
    struct tls_server s = {.n_connections = 1, .reply = OK_REPLY, .keep = true};
    struct outside x;
    tls_open(&s, &leaf);
    outside_open(&x, ca_path);
    struct http_origin origin = origin_at("https://localhost", s.port);
    struct http_call_options opt = get_from(&origin);
    for (int i = 0; i < 5; i++)
        run_call(x.client, &opt, &x.o);
    CHECK_INT(x.o.code, OK);
    CHECK_INT(x.o.body.n, 10);
    CHECK_INT(http_client_stats(x.client).connections, 1);
    outside_close(&x);
    tls_close(&s);
    unlink(ca_path);
    free_pair(&ca);
    free_pair(&leaf);
}

TEST(an_old_protocol_a_plain_server_and_a_silent_one_are_unavailable)
{
    static const struct script plain[] = {{.replies = {NULL}},
                                          {.replies = {NULL}, .ending = ENDS_BY_STALL}};
    struct pair ca = make_pair("Test CA", NULL, NULL, 86400),
                leaf = make_pair("leaf", "DNS:localhost", &ca, 86400);
    char ca_path[64];
    write_ca(&ca, ca_path);
    struct tls_server s = {.n_connections = 1, .reply = OK_REPLY};
    struct outside x;
    tls_open(&s, &leaf);
    SSL_CTX_set_security_level(s.ssl_ctx, 0);
    SSL_CTX_set_max_proto_version(s.ssl_ctx, TLS1_1_VERSION);
    outside_open(&x, ca_path);
    struct http_origin origin = origin_at("https://localhost", s.port);
    struct http_call_options opt = get_from(&origin);
    run_call(x.client, &opt, &x.o);
    CHECK_AT(x.o.code == ERR_UNAVAILABLE && strstr(x.o.e.text, "TLS"), "%s", x.o.e.text);
    tls_close(&s);
    struct upstream u;
    upstream_open(&u, plain, 2);
    origin = origin_at("https://localhost", u.port);
    run_call(x.client, &opt, &x.o); /* hangs up at once */
    CHECK_AT(x.o.code == ERR_UNAVAILABLE && strstr(x.o.e.text, "TLS"), "%s", x.o.e.text);
    opt.connect_timeout_ms = 60;
    run_call(x.client, &opt, &x.o); /* never shakes hands */
    CHECK_AT(x.o.code == ERR_UNAVAILABLE && strstr(x.o.e.text, "within 60 ms"), "%s", x.o.e.text);
    upstream_close(&u);
    outside_close(&x);
    unlink(ca_path);
    free_pair(&ca);
    free_pair(&leaf);
}

TEST(an_absent_ca_file_fails_the_call_with_its_path)
{
    struct outside x;
    outside_open(&x, "/nonexistent/ca.pem");
    struct http_origin origin = origin_at("https://localhost", 1);
    struct http_call_options opt = get_from(&origin);
    run_call(x.client, &opt, &x.o);
    CHECK_INT(x.o.code, ERR_INVALID);
    CHECK(strstr(x.o.e.text, "/nonexistent/ca.pem"));
    outside_close(&x);
}

TEST_MAIN()
