/* test_log.c - a reader of stderr that stops costs lines, which are counted, and never holds up who logs. */
#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include "tests/check.h"

/* What a pipe held until now, at most cap - 1 bytes of it. */
static size_t drain(int fd, char *out, size_t cap)
{
    size_t n = 0;
    ssize_t got;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (n < cap - 1 && (got = read(fd, out + n, cap - 1 - n)) > 0)
        n += (size_t)got;
    out[n] = 0;
    return n;
}

TEST(a_full_stderr_drops_lines_counts_them_and_says_so_when_it_can)
{
    enum { LINES = 4000, CAP = 1 << 18 };
    static char text[CAP];
    char expected[80];
    int ends[2], kept = dup(STDERR_FILENO);
    REQUIRE(kept >= 0 && !pipe(ends));
    dup2(ends[1], STDERR_FILENO);
    alarm(20); /* a log that waits ends this program */
    for (int i = 0; i < LINES; i++)
        log_info("test", "line %d of what nobody reads, %s", i,
                 "long enough that a few thousand fill a pipe");
    unsigned long long dropped = log_lines_dropped();
    CHECK(dropped > 0 && dropped < LINES);
    size_t n = drain(ends[0], text, sizeof text);
    unsigned long long lines = 0;
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    CHECK_INT(lines + dropped, LINES);
    CHECK(strstr(text, "line 0 of what nobody reads") && !strstr(text, "line 3999 of"));
    log_info("test", "read again");
    drain(ends[0], text, sizeof text);
    snprintf(expected, sizeof expected, "%llu lines were dropped", dropped);
    CHECK(strstr(text, expected) && strstr(text, "read again"));
    log_info("test", "and again");
    drain(ends[0], text, sizeof text);
    CHECK(!strstr(text, "dropped") && strstr(text, "and again"));
    CHECK_INT(log_lines_dropped(), dropped);
    alarm(0);
    dup2(kept, STDERR_FILENO);
    close(kept), close(ends[0]), close(ends[1]);
}

TEST_MAIN()
