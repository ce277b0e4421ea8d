/* What the machine gives: blocking sockets in C, with the frames and the works of competitors/sockets.py.

   reference serve KIND SIZE COUNT WARMUP WINDOW CPU
   reference drive KIND SIZE COUNT WARMUP WINDOW CPU PORT

   CPU is where the process stays (-1: anywhere). With SPIN in the environment it looks again in place of
   sleeping; with ULNET_BENCH_TOUCH it touches so many KiB of other memory before each frame that it sends, as
   a program does that has more to do. Results are the JSON lines that peer.py prints. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { HEADER = 72, LENGTH_AT = 64, SHARED = 256 * 1024, SMALL = 4096, LINE = 64, STRIDE = 37 };
enum kind { STREAM, ACK, GET, ROUNDTRIP };

static enum kind kind;
static size_t size;
static long window;
static char *payload, *shared;
static volatile char *other; /* memory of a program that has more to do */
static size_t touched;
static char header[HEADER];
static int sock;
static int flags; /* of recv */

static void fail(const char *what)
{
    fprintf(stderr, "reference: %s: %s\n", what, errno ? strerror(errno) : "the other side closed");
    exit(1);
}

static void read_all(void *into, size_t left)
{
    for (char *at = into; left > 0;) {
        errno = 0;
        ssize_t got = recv(sock, at, left, flags);
        if (got < 0 && errno == EAGAIN)
            continue;
        if (got <= 0)
            fail("recv");
        at += got;
        left -= (size_t)got;
    }
}

static void write_frame(size_t bytes)
{
    for (size_t at = 0; at < touched; at += LINE)
        (void)other[at * STRIDE % touched];
    uint32_t length = (uint32_t)bytes;
    memcpy(header + LENGTH_AT, &length, sizeof length);
    struct iovec pieces[2] = {{header, HEADER}, {payload, bytes}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = bytes ? 2 : 1};
    size_t left = HEADER + bytes;
    while (left > 0) {
        ssize_t sent = sendmsg(sock, &message, 0);
        if (sent < 0)
            fail("sendmsg");
        left -= (size_t)sent;
        while (message.msg_iovlen > 0 && (size_t)sent >= message.msg_iov->iov_len) {
            sent -= (ssize_t)message.msg_iov->iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen > 0) {
            message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
            message.msg_iov->iov_len -= (size_t)sent;
        }
    }
}

/* Frames with payload: one call reads the rest of a payload and the next header. */
static void take(long count, int ack, long requests)
{
    char next[HEADER];
    read_all(next, HEADER);
    for (long number = 0; number < count; number++) {
        uint32_t bytes;
        memcpy(&bytes, next + LENGTH_AT, sizeof bytes);
        if (bytes > size)
            fail("a frame that is too long");
        int last = number == count - 1;
        size_t done = 0, want = bytes + (last ? 0 : HEADER);
        while (done < bytes) {
            struct iovec pieces[2] = {{payload + done, bytes - done}, {next, HEADER}};
            struct msghdr message = {.msg_iov = pieces, .msg_iovlen = last ? 1 : 2};
            errno = 0;
            ssize_t got = recvmsg(sock, &message, 0);
            if (got <= 0)
                fail("recvmsg");
            done += (size_t)got;
        }
        if (ack)
            write_frame(0);
        if (number < requests)
            write_frame(0);
        if (done < want)
            read_all(next + (done - bytes), want - done);
    }
}

/* Small frames that nobody answers: many of them from one read. */
static void drain(long count)
{
    size_t kept = 0;
    for (long seen = 0; seen < count;) {
        errno = 0;
        ssize_t got = recv(sock, shared + kept, SHARED - kept, 0);
        if (got <= 0)
            fail("recv");
        size_t end = kept + (size_t)got, at = 0;
        while (end - at >= HEADER + size) {
            uint32_t bytes;
            memcpy(&bytes, shared + at + LENGTH_AT, sizeof bytes);
            at += HEADER + bytes;
            seen++;
        }
        kept = end - at;
        memmove(shared, shared + at, kept);
    }
}

static void serve(long count)
{
    if (kind == STREAM && size < SMALL)
        drain(count);
    else if (kind == STREAM || kind == ACK)
        take(count, kind == ACK, 0);
    else
        for (long number = 0; number < count; number++) {
            read_all(shared, HEADER + (kind == ROUNDTRIP ? size : 0));
            write_frame(size);
        }
}

static double now(clockid_t which)
{
    struct timespec time;
    clock_gettime(which, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void drive(long count, double *latencies)
{
    if (kind == GET) {
        for (long number = 0; number < window && number < count; number++)
            write_frame(0);
        take(count, 0, count - window);
        return;
    }
    long unanswered = 0;
    size_t part = 0;
    for (long number = 0; number < count; number++) {
        double began = latencies ? now(CLOCK_MONOTONIC) : 0;
        write_frame(size);
        if (kind == ROUNDTRIP) {
            read_all(shared, HEADER + size);
            if (latencies)
                latencies[number] = (now(CLOCK_MONOTONIC) - began) * 1e6;
        } else if (kind == ACK) {
            unanswered++;
            while (unanswered >= window || (number == count - 1 && unanswered)) {
                errno = 0;
                ssize_t got = recv(sock, shared, (size_t)unanswered * HEADER - part, 0);
                if (got <= 0)
                    fail("recv");
                part += (size_t)got;
                unanswered -= (long)(part / HEADER);
                part %= HEADER;
            }
        }
    }
}

static int by_size(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void tune(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

static void connect_both(int serving, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sock = socket(AF_INET, SOCK_STREAM, 0);
    tune(sock);
    if (!serving) {
        if (connect(sock, (struct sockaddr *)&address, length))
            fail("connect");
        return;
    }
    if (bind(sock, (struct sockaddr *)&address, length) || listen(sock, 1))
        fail("listen");
    getsockname(sock, (struct sockaddr *)&address, &length);
    printf("{\"address\": \"%d\"}\n", ntohs(address.sin_port));
    fflush(stdout);
    int listener = sock;
    sock = accept(listener, NULL, NULL);
    if (sock < 0)
        fail("accept");
    close(listener);
    tune(sock);
}

int main(int argc, char **argv)
{
    if (argc < 8)
        return 2;
    int serving = !strcmp(argv[1], "serve"), cpu = atoi(argv[7]);
    const char *kinds[] = {"stream", "ack", "get", "roundtrip"};
    while (strcmp(argv[2], kinds[kind]))
        if (++kind > ROUNDTRIP)
            return 2;
    size = (size_t)atol(argv[3]);
    long count = atol(argv[4]), warmup = atol(argv[5]);
    window = atol(argv[6]);
    payload = malloc(size + 1);
    memset(payload, 1, size + 1); /* pages that were never written are all one page of zeros */
    touched = getenv("ULNET_BENCH_TOUCH") ? (size_t)atol(getenv("ULNET_BENCH_TOUCH")) * 1024 : 0;
    other = calloc(1, touched + 1);
    memset((char *)other, 1, touched + 1);
    shared = calloc(1, SHARED + HEADER + size);
    double *latencies = kind == ROUNDTRIP && !serving ? calloc((size_t)count, sizeof *latencies) : NULL;
    if (cpu >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        sched_setaffinity(0, sizeof set, &set);
    }
    flags = getenv("SPIN") ? MSG_DONTWAIT : 0;
    connect_both(serving, serving ? 0 : atoi(argv[8]));

    char token[HEADER];
    serving ? serve(warmup) : drive(warmup, NULL);
    double wall = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);
    if (serving) {
        write_frame(0);
        serve(count);
        write_frame(0);
    } else {
        read_all(token, HEADER);
        wall = now(CLOCK_MONOTONIC), used = now(CLOCK_PROCESS_CPUTIME_ID);
        drive(count, latencies);
        read_all(token, HEADER);
    }
    wall = now(CLOCK_MONOTONIC) - wall;
    used = now(CLOCK_PROCESS_CPUTIME_ID) - used;
    double p50 = 0, p99 = 0;
    if (latencies) {
        qsort(latencies, (size_t)count, sizeof *latencies, by_size);
        p50 = latencies[count / 2];
        p99 = latencies[count * 99 / 100];
    }
    printf("{\"%s\": {\"wall\": %.9f, \"cpu\": %.9f, \"p50_us\": %.3f, \"p99_us\": %.3f}}\n", argv[1], wall,
           used, p50, p99);
    return 0;
}
