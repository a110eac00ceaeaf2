/* up_plan.c - options, folders, ports and the children's argument lists of `deja up`. */
#define _GNU_SOURCE
#include "up/up_plan.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/http_client.h"
#include "base/mem.h"
#include "up/up_key.h"

enum { DISK_FREE_MIN_MB = 256, LOCK_STEP_MS = 100, LOCK_WAIT_MS = 20000 };

static const struct conf_row rows[] = {
    {"data", CONF_STR, "", 0, 380, "", 0, "folder of Redis' files, logs and the pid file", "d"},
    {"host", CONF_STR, "127.0.0.1", 0, 63, "", 0, "numeric address the gateway listens on", NULL},
    {"port", CONF_INT, "8080", 1, 65535, "", 0, "port the gateway listens on", "p"},
    {"model", CONF_STR, "", 0, 4000, "", 0,
     "GGUF file of the chat model (needed unless upstream is given)", "m"},
    {"embed_model", CONF_STR, "none", 0, 4000, "", 0,
     "GGUF file of the embedding model, or http://host:port/v1#MODEL of a server with "
     "/v1/embeddings; none = exact cache only",
     NULL},
    {"upstream", CONF_STR, "", 0, 2000, "", 0,
     "base URL of an OpenAI-compatible server to use instead of an own engine", NULL},
    {"redis", CONF_STR, "", 0, 2000, "", 0, "URL of a Redis to use instead of a private one", NULL},
    {"threads", CONF_INT, "0", 0, 64, "", 0,
     "compute threads of each engine; 0 = all cores, shared among them", "t"},
    {"engines", CONF_INT, "1", 1, UP_ENGINES_MAX, "", 0,
     "engines of the model; prompts go where most of their KV is held (docs/routing.md)", NULL},
    {"prefill_engines", CONF_INT, "0", 0, UP_ENGINES_MAX - 1, "", 0,
     "of the engines, how many compute long prompts for the others (docs/disaggregation.md)", NULL},
    {"gateway_config", CONF_STR, "", 0, 4000, "", 0, "configuration file passed to the gateway",
     NULL},
    {"engine_config", CONF_STR, "", 0, 4000, "", 0, "configuration file passed to the engine",
     NULL},
    {"api_key", CONF_STR, "", 0, UP_KEY_BYTES - 1, "", CONF_SECRET,
     "key of the first question, where the gateway's configuration names a table of keys; without "
     "it the first one of that table",
     NULL},
    {"ready_s", CONF_INT, "180", 5, 86400, "s", 0,
     "time until the first answer; then all is ended again. More for a model that takes long to "
     "read",
     NULL},
    {"detach", CONF_BOOL, "no", 0, 0, "", 0,
     "return once everything answers; end it with `./dev down`", NULL},
};

enum err up_plan_read(struct up_plan *p, int argc, char **argv, struct buf *help, struct errmsg *e)
{
    *p = (struct up_plan){.lock_fd = -1};
    p->conf = conf_new(rows, sizeof rows / sizeof *rows);
    enum err rc = conf_read_env(p->conf, e);
    if (!rc) rc = conf_read_args(p->conf, argc, argv, e);
    if (rc == ERR_CANCELLED) conf_help(p->conf, help);
    if (rc) return rc;
    p->detach = conf_bool(p->conf, "detach");
    p->port = (int)conf_int(p->conf, "port");
    p->own_redis = !*conf_str(p->conf, "redis");
    snprintf(p->host, sizeof p->host, "%s", conf_str(p->conf, "host"));
    if (!*conf_str(p->conf, "data")) return err_set(e, ERR_INVALID, "--data FOLDER is missing");
    if (!*conf_str(p->conf, "upstream") && !*conf_str(p->conf, "model"))
        return err_set(
            e, ERR_INVALID,
            "give a model to serve (--model FILE.gguf) or a server to ask (--upstream URL)");
    if (conf_int(p->conf, "prefill_engines") >= conf_int(p->conf, "engines"))
        return err_set(
            e, ERR_RANGE, "prefill_engines: %d of %d engines leave none to answer; raise --engines",
            (int)conf_int(p->conf, "prefill_engines"), (int)conf_int(p->conf, "engines"));
    return OK;
}

/* mkdir -p */
static enum err make_folder(const char *path, struct errmsg *e)
{
    char part[512];
    for (size_t i = 1; path[i - 1]; i++) {
        if (path[i] != '/' && path[i]) continue;
        snprintf(part, sizeof part, "%.*s", (int)i, path);
        if (mkdir(part, 0700) && errno != EEXIST)
            return err_set(e, ERR_IO, "cannot make the folder %s: %s", part, strerror(errno));
    }
    struct stat st;
    if (stat(path, &st) || !S_ISDIR(st.st_mode))
        return err_set(e, ERR_IO, "%s is not a folder", path);
    if (access(path, W_OK)) return err_set(e, ERR_IO, "the folder %s cannot be written to", path);
    return OK;
}

static enum err check_disk(const char *path, struct errmsg *e)
{
    struct statvfs fs;
    char there
        [512]; /* the folder may not be there yet: ask its nearest parent, so that a full disk is left as it was */
    snprintf(there, sizeof there, "%s", path);
    for (char *slash; statvfs(there, &fs); *slash = 0)
        if (!(slash = strrchr(there, '/')) || slash == there) return OK;
    if (!fs.f_blocks) return OK; /* no disk, or one without a limit: it does not say */
    unsigned long long free_mb = (unsigned long long)fs.f_bavail * fs.f_frsize >> 20;
    if (free_mb >= DISK_FREE_MIN_MB) return OK;
    return err_set(e, ERR_FULL, "the disk of %s has %llu MB free, at least %d are needed", path,
                   free_mb, DISK_FREE_MIN_MB);
}

static int bind_to(const char *host, int port, int *fd)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1;
    if (inet_pton(AF_INET, host, &a.sin_addr) != 1) return EINVAL;
    *fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (*fd >= 0 && !bind(*fd, (struct sockaddr *)&a, sizeof a) && !listen(*fd, 1)) return 0;
    int why = errno;
    if (*fd >= 0) close(*fd);
    return why;
}

static enum err check_port(const struct up_plan *p, struct errmsg *e)
{
    int fd, why = bind_to(p->host, p->port, &fd);
    if (!why) return close(fd), OK;
    if (why == EADDRINUSE)
        return err_set(e, ERR_UNAVAILABLE,
                       "port %d is in use; end what listens there or pick another with --port",
                       p->port);
    if (why == EINVAL)
        return err_set(e, ERR_INVALID, "host %s is not a numeric IPv4 address", p->host);
    return err_set(e, ERR_UNAVAILABLE, "cannot listen on %s:%d: %s", p->host, p->port,
                   strerror(why));
}

static int free_port(void)
{
    int fd;
    struct sockaddr_in a;
    socklen_t n = sizeof a;
    if (bind_to("127.0.0.1", 0, &fd)) return 0;
    int port = getsockname(fd, (struct sockaddr *)&a, &n) ? 0 : ntohs(a.sin_port);
    close(fd);
    return port;
}

/* Who runs here, as the pid file says; "" = it says nothing. */
static void read_pid(const struct up_plan *p, char pid[16])
{
    int fd = open(p->pid_path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, pid, 15) : 0;
    pid[n > 0 ? n : 0] = 0;
    pid[strcspn(pid, "\n")] = 0;
    if (fd >= 0) close(fd);
}

/* It died at once and its Redis, which was told to end by that, is still writing. */
static bool is_dead(const char *pid)
{
    int64_t n;
    return str_to_i64(str_of(pid), 1, INT32_MAX, &n) == OK && kill((pid_t)n, 0) && errno == ESRCH;
}

static enum err err_running(const struct up_plan *p, const char *pid, struct errmsg *e)
{
    return err_set(
        e, ERR_UNAVAILABLE,
        "deja is already running with the data folder %s (process %s); `./dev down` with "
        "the same --data ends it",
        p->data, pid[0] ? pid : "unknown");
}

static enum err take_lock(struct up_plan *p, struct errmsg *e)
{
    char path[440], pid[16];
    snprintf(path, sizeof path, "%s/deja.lock", p->data);
    p->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (p->lock_fd < 0) return err_set(e, ERR_IO, "cannot write %s: %s", path, strerror(errno));
    for (int ms = 0;; ms += LOCK_STEP_MS) {
        if (!flock(p->lock_fd, LOCK_EX | LOCK_NB)) return OK;
        read_pid(p, pid);
        if (!is_dead(pid)) break;
        if (ms >= LOCK_WAIT_MS)
            return err_set(e, ERR_UNAVAILABLE,
                           "the Redis of a deja that has died (process %s) still writes to the "
                           "data folder %s; start again once it has ended",
                           pid, p->data);
        usleep(LOCK_STEP_MS * 1000);
    }
    return err_running(p, pid, e);
}

/* Before the port is looked at: that one is in use then, and this is why. Makes nothing. */
static enum err check_alone(const struct up_plan *p, struct errmsg *e)
{
    char path[440], pid[16];
    snprintf(path, sizeof path, "%s/deja.lock", p->data);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return OK; /* nobody was here yet */
    bool is_free = !flock(fd, LOCK_EX | LOCK_NB);
    close(fd);
    if (is_free) return OK;
    read_pid(p, pid);
    return is_dead(pid) ? OK : err_running(p, pid, e);
}

static enum err check_file(const char *what, const char *path, struct errmsg *e)
{
    struct stat st;
    if (!*path || !strcmp(path, "none") || http_is_url(path)) return OK;
    if (stat(path, &st)) return err_set(e, ERR_NOT_FOUND, "%s %s: %s", what, path, strerror(errno));
    return S_ISREG(st.st_mode) ? OK : err_set(e, ERR_INVALID, "%s %s is not a file", what, path);
}

enum err up_plan_prepare(struct up_plan *p, struct errmsg *e)
{
    ssize_t n = readlink("/proc/self/exe", p->self, sizeof p->self - 1);
    if (n <= 0)
        return err_set(e, ERR_IO, "cannot find this program's own file: %s", strerror(errno));
    p->self[n] = 0;
    char cwd[200] = "";
    const char *data = conf_str(p->conf, "data");
    if (data[0] != '/' && !getcwd(cwd, sizeof cwd))
        return err_set(e, ERR_IO, "cannot read the working folder");
    int len = snprintf(p->data, sizeof p->data, "%s%s%s", cwd, cwd[0] ? "/" : "", data);
    snprintf(p->logs, sizeof p->logs, "%s/logs", p->data);
    snprintf(p->redis_socket, sizeof p->redis_socket, "%s/redis.sock", p->data);
    snprintf(p->pid_path, sizeof p->pid_path, "%s/deja.pid", p->data);
    if (len >= (int)sizeof p->data ||
        strlen(p->redis_socket) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return err_set(
            e, ERR_RANGE,
            "the path of the data folder is too long for a socket in it (%s); pick a shorter one",
            p->data);
    enum err rc = check_file("model", conf_str(p->conf, "model"), e);
    if (!rc) rc = check_file("embedding model", conf_str(p->conf, "embed_model"), e);
    if (!rc) rc = check_alone(p, e);
    if (!rc) rc = check_port(p, e);
    if (!rc) rc = check_disk(p->data, e);
    if (!rc) rc = make_folder(p->logs, e);
    if (!rc) rc = take_lock(p, e);
    if (rc) return rc;
    if (*conf_str(p->conf, "upstream")) return OK;
    p->n_engines = (int)conf_int(p->conf, "engines");
    for (int i = 0; i < p->n_engines; i++)
        if (!(p->engine_ports[i] = free_port()))
            return err_set(e, ERR_UNAVAILABLE, "no free port on 127.0.0.1 for the engine");
    return OK;
}

void up_plan_fini(struct up_plan *p)
{
    conf_free(p->conf);
    if (p->lock_fd >= 0) close(p->lock_fd);
}

/* --- argument lists */
struct args {
    struct child_options *out;
    struct arena *text;
    int n;
};

static void arg(struct args *a, const char *value)
{
    ASSERT(a->n < CHILD_ARGS_MAX - 1);
    a->out->argv[a->n++] = arena_strndup(a->text, value, strlen(value));
}

static void option(struct args *a, const char *name, const char *value)
{
    if (!*value) return;
    arg(a, name);
    arg(a, value);
}

static void number(struct args *a, const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    option(a, name, text);
}

static void redis_args(const struct up_plan *p, struct args *a)
{
    arg(a, "redis-server");
    option(a, "--port", "0");
    option(a, "--unixsocket", p->redis_socket);
    option(a, "--unixsocketperm", "700");
    option(a, "--dir", p->data);
    option(a, "--appendonly", "yes");
    option(a, "--appendfsync", "everysec");
    arg(a, "--save");
    arg(a, "");
    option(a, "--daemonize", "no");
}

/* Several engines on all cores each would only be in each other's way. */
static int threads_each(const struct up_plan *p)
{
    int given = (int)conf_int(p->conf, "threads");
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (given || p->n_engines < 2 || cores < 1) return given;
    return cores > p->n_engines ? (int)(cores / p->n_engines) : 1;
}

static void engine_args(const struct up_plan *p, int i, struct args *a)
{
    arg(a, p->self);
    arg(a, "engine");
    option(a, "--host", "127.0.0.1"); /* also when the environment says otherwise for the gateway */
    number(a, "--port", p->engine_ports[i]);
    option(a, "--model", conf_str(p->conf, "model"));
    if (strcmp(conf_str(p->conf, "embed_model"), "none") &&
        !http_is_url(conf_str(p->conf, "embed_model")))
        option(a, "--embed-model", conf_str(p->conf, "embed_model"));
    number(a, "--threads", threads_each(p));
    int n_prefill = (int)conf_int(p->conf, "prefill_engines");
    if (n_prefill) option(a, "--role", i < n_prefill ? "prefill" : "decode");
    option(a, "--config", conf_str(p->conf, "engine_config"));
}

static void gateway_args(const struct up_plan *p, struct args *a)
{
    char url[440];
    arg(a, p->self);
    arg(a, "gateway");
    option(a, "--host", p->host);
    number(a, "--port", p->port);
    for (int i = 0; i < p->n_engines; i++) {
        snprintf(url, sizeof url, "http://127.0.0.1:%d", p->engine_ports[i]);
        option(a, "--engine-url", url);
    }
    option(a, "--upstream", conf_str(p->conf, "upstream"));
    snprintf(url, sizeof url, "unix:%s", p->redis_socket);
    option(a, "--redis", p->own_redis ? url : conf_str(p->conf, "redis"));
    option(a, "--embed-model", conf_str(p->conf, "embed_model"));
    option(a, "--config", conf_str(p->conf, "gateway_config"));
}

bool up_plan_child(const struct up_plan *p, int which, struct child_options *out,
                   struct arena *text)
{
    int engine = which - UP_ENGINE;
    bool is_engine = which >= UP_ENGINE && which < UP_GATEWAY;
    if ((which == UP_REDIS && !p->own_redis) || (is_engine && engine >= p->n_engines)) return false;
    char name[24], log[460];
    if (is_engine && engine)
        snprintf(name, sizeof name, "engine%d", engine + 1);
    else
        snprintf(name, sizeof name, "%s", is_engine ? "engine" : which ? "gateway" : "redis");
    snprintf(log, sizeof log, "%s/%s.log", p->logs, name);
    *out = (struct child_options){.name = arena_strndup(text, name, strlen(name)),
                                  .log_path = arena_strndup(text, log, strlen(log))};
    struct args a = {out, text, 0};
    if (which == UP_REDIS) redis_args(p, &a);
    /* should this process die at once, the next one must not start a second Redis on the same files */
    if (which == UP_REDIS) out->held_fd = p->lock_fd;
    if (is_engine) engine_args(p, engine, &a);
    if (which == UP_GATEWAY) gateway_args(p, &a);
    return true;
}
