/* Counts a process's calls to the kernel for sockets, and how much each moved (benchmarks/ends.py --calls).

   LD_PRELOAD it: at exit a line for each kind of call goes to the file $ULNET_BENCH_CALLS.PID:
   name, calls, of them in vain, bytes, seconds inside; and calls by size, each from 2^n bytes on. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RECV, RECVMSG, SEND, SENDMSG, EPOLL_WAIT, EPOLL_CTL, SETSOCKOPT, KINDS, SIZES = 24 };

static const char *const names[] = {"recv", "recvmsg", "send", "sendmsg", "epoll_wait", "epoll_ctl", "setsockopt"};
static long calls[KINDS], vain[KINDS], sizes[KINDS][SIZES];
static double bytes[KINDS], seconds[KINDS];

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static long note(int kind, long result, double began)
{
    seconds[kind] += now() - began;
    calls[kind]++;
    if (result < 0)
        vain[kind]++;
    else if (kind <= SENDMSG) {
        int bit = 0;
        while (bit < SIZES - 1 && result >> (bit + 1))
            bit++;
        sizes[kind][bit]++;
        bytes[kind] += (double)result;
    }
    return result;
}

#define COUNTED(kind, type, name, given, passed)                \
    type name given                                             \
    {                                                           \
        static __typeof__(name) *real;                          \
        if (!real)                                              \
            real = (__typeof__(real))dlsym(RTLD_NEXT, #name);   \
        double began = now();                                   \
        return (type)note(kind, (long)real passed, began);      \
    }

COUNTED(RECV, ssize_t, recv, (int fd, void *to, size_t most, int flags), (fd, to, most, flags))
COUNTED(RECVMSG, ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), (fd, message, flags))
COUNTED(SEND, ssize_t, send, (int fd, const void *from, size_t size, int flags), (fd, from, size, flags))
COUNTED(SENDMSG, ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))
COUNTED(EPOLL_WAIT, int, epoll_wait, (int fd, struct epoll_event *to, int most, int wait), (fd, to, most, wait))
COUNTED(EPOLL_CTL, int, epoll_ctl, (int fd, int what, int of, struct epoll_event *event), (fd, what, of, event))
COUNTED(SETSOCKOPT, int, setsockopt, (int fd, int level, int name, const void *value, socklen_t size),
        (fd, level, name, value, size))

__attribute__((destructor)) static void tell(void)
{
    char path[4096];
    const char *prefix = getenv("ULNET_BENCH_CALLS");
    if (!prefix)
        return;
    snprintf(path, sizeof path, "%s.%d", prefix, (int)getpid());
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    for (int kind = 0; kind < KINDS; kind++) {
        fprintf(file, "%s %ld %ld %.0f %.6f", names[kind], calls[kind], vain[kind], bytes[kind], seconds[kind]);
        for (int bit = 0; bit < SIZES; bit++)
            fprintf(file, " %ld", sizes[kind][bit]);
        fputc('\n', file);
    }
    fclose(file);
}
