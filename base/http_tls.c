/* http_tls.c - see http_tls.h. Names are checked by OpenSSL itself (SSL_set1_host, RFC 9525 rules); a host that is an
 * address is compared with the certificate's addresses, and gets no SNI (RFC 6066 3). */
#include "base/http_tls.h"

#include <arpa/inet.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdbool.h>

#include "base/mem.h"

struct http_tls {
    SSL_CTX *ssl_ctx;
};

enum err http_tls_new(struct http_tls **out, const char *ca_file, struct errmsg *e)
{
    static const unsigned char alpn[] = "\x08http/1.1";
    struct http_tls *t = xcalloc(1, sizeof *t);
    t->ssl_ctx = SSL_CTX_new(TLS_client_method());
    ASSERT(t->ssl_ctx);
    SSL_CTX_set_min_proto_version(t->ssl_ctx, TLS1_2_VERSION);
    SSL_CTX_set_verify(t->ssl_ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(t->ssl_ctx, SSL_MODE_RELEASE_BUFFERS); /* idle connections are many */
    SSL_CTX_set_alpn_protos(t->ssl_ctx, alpn, sizeof alpn - 1);
    int loaded = ca_file ? SSL_CTX_load_verify_locations(t->ssl_ctx, ca_file, NULL)
                         : SSL_CTX_set_default_verify_paths(t->ssl_ctx);
    ERR_clear_error();
    if (loaded == 1) {
        *out = t;
        return OK;
    }
    http_tls_free(t);
    return err_set(e, ERR_INVALID, "%s: no CA certificates could be read",
                   ca_file ? ca_file : "system certificate store");
}

void http_tls_free(struct http_tls *t)
{
    if (!t) return;
    SSL_CTX_free(t->ssl_ctx);
    mem_free(t);
}

static bool is_address(const char *host)
{
    unsigned char bytes[16];
    return inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
}

struct bufferevent *http_tls_connect(struct http_tls *t, struct event_base *base, int fd,
                                     const char *host)
{
    SSL *ssl = SSL_new(t->ssl_ctx);
    if (!ssl) return NULL;
    int named = is_address(host) ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host)
                                 : SSL_set1_host(ssl, host) && SSL_set_tlsext_host_name(ssl, host);
    struct bufferevent *bev = NULL;
    if (named)
        bev = bufferevent_openssl_socket_new(base, fd, ssl, BUFFEREVENT_SSL_CONNECTING,
                                             BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS);
    if (!bev) {
        SSL_free(ssl);
        return NULL;
    }
    /* a missing close_notify is an error: an attacker could cut a reply that ends with its connection */
    bufferevent_openssl_set_allow_dirty_shutdown(bev, 0);
    return bev;
}

void http_tls_explain(struct bufferevent *bev, const char *host, struct errmsg *e)
{
    SSL *ssl = bufferevent_openssl_get_ssl(bev);
    long verified = SSL_get_verify_result(ssl);
    unsigned long code = bufferevent_get_openssl_error(bev);
    if (verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH) {
        err_set(e, ERR_UNAVAILABLE, "TLS: the certificate is not for %s", host);
    } else if (verified != X509_V_OK) {
        err_set(e, ERR_UNAVAILABLE,
                "TLS: the certificate of %s is not trusted (%s); a private CA goes into ca_file",
                host, X509_verify_cert_error_string(verified));
    } else if (code) {
        const char *reason = ERR_reason_error_string(code);
        err_set(e, ERR_UNAVAILABLE, "TLS with %s failed: %s", host,
                reason ? reason : "unknown reason");
    } else {
        err_set(e, ERR_UNAVAILABLE, "TLS with %s failed: the connection was closed", host);
    }
    ERR_clear_error();
}
