/* What a line of memory costs that was not used for a while: ns, by the memory in use, in pages of 4 KiB and of 2 MiB.
 * Each line holds the address of the next, at random, so the CPU can fetch none of them early. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { LINE = 64, HUGE = 2 << 20, SMALL_PAGES = MADV_NOHUGEPAGE, HUGE_PAGES = MADV_HUGEPAGE, ROUNDS = 3 };

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static double chase(size_t bytes, int pages) {
    char *room = mmap(NULL, bytes + 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *base = (char *)(((uintptr_t)room + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    size_t count = bytes / LINE, steps = count > 1000000 ? count : 1000000;
    uint32_t *order = malloc(count * sizeof *order);
    if (room == MAP_FAILED || order == NULL)
        exit(1);
    madvise(base, bytes < HUGE ? HUGE : bytes, pages);
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count - 1; i > 0; i--) {
        size_t j = ((size_t)rand() << 15 ^ rand()) % (i + 1);
        uint32_t other = order[i];
        order[i] = order[j];
        order[j] = other;
    }
    for (size_t i = 0; i < count; i++)
        *(void **)(base + (size_t)order[i] * LINE) = base + (size_t)order[(i + 1) % count] * LINE;
    free(order);
    void *volatile at = base;
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        void *next = at;
        double began = cpu_seconds();
        for (size_t i = 0; i < steps; i++)
            next = *(void **)next;
        double each = (cpu_seconds() - began) / steps * 1e9;
        at = next;
        if (each < best)
            best = each;
    }
    munmap(room, bytes + 2 * HUGE);
    return best;
}

int main(void) {
    for (int mib = 1; mib <= 256; mib *= 4)
        printf("%d %.0f %.0f\n", mib, chase((size_t)mib << 20, SMALL_PAGES), chase((size_t)mib << 20, HUGE_PAGES));
    return 0;
}
