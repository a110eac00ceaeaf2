/* fault_preload.c - preloaded into a gateway by test_faults.py: moves the wall clock (and only that) by as many seconds as the file
 * DEJA_CLOCK_FILE holds. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long offset(void)
{
    long s = 0;
    const char *path = getenv("DEJA_CLOCK_FILE");
    FILE *f = path ? fopen(path, "r") : NULL;
    if (f && fscanf(f, "%ld", &s) != 1) s = 0;
    if (f) fclose(f);
    return s;
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (rc == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += offset();
    return rc;
}

time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
