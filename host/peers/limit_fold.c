/* The limit for tensors in shared memory: N processes that can see each other's
 * tensors, no protocol, no checks. Each folds its share of all of them in one
 * pass, ((0+1)+(2+3)) as for any N, and writes the sum to all. Two barriers of
 * one flag line a process. usage: limit_fold NAME N */
#define _GNU_SOURCE
#include "bench.h"

#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { MAX_RANKS = 16, TENSOR = 64 << 20 };
typedef struct { _Alignas(128) _Atomic unsigned long at; } flag_line;

static int ranks, rank, yielding;
static flag_line *flags;
static float *tensors[MAX_RANKS];
static double (*scratch)[BENCH_MAX_SAMPLES];
static unsigned long epoch;

/* What a spinning core does between two looks. */
static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void barrier(void) {
    epoch++;
    atomic_store_explicit(&flags[rank].at, epoch, memory_order_release);
    for (int p = 0; p < ranks; p++)
        for (int k = 0; atomic_load_explicit(&flags[p].at, memory_order_acquire) < epoch; k++) {
            if (yielding && k > 50) sched_yield();
            else relax();
        }
}

static void max_doubles(double *buf, size_t count) {
    memcpy(scratch[rank], buf, count * sizeof *buf);
    barrier();
    for (size_t i = 0; i < count; i++)
        for (int p = 0; p < ranks; p++) buf[i] = fmax(buf[i], scratch[p][i]);
    barrier();
}

/* A block at a time, so that every inner loop vectorises and stays in L1. */
static void fold(size_t lo, size_t hi) {
    enum { BLOCK = 1024 };
    float part[MAX_RANKS][BLOCK];
    for (; lo < hi; lo += BLOCK) {
        size_t n = hi - lo < BLOCK ? hi - lo : BLOCK;
        if (ranks == 2) {
            float *a = tensors[0] + lo, *b = tensors[1] + lo;
            for (size_t i = 0; i < n; i++) { float v = a[i] + b[i]; a[i] = v; b[i] = v; }
            continue;
        }
        if (ranks == 4) {
            float *a = tensors[0] + lo, *b = tensors[1] + lo, *c = tensors[2] + lo, *d = tensors[3] + lo;
            for (size_t i = 0; i < n; i++) {
                float v = (a[i] + b[i]) + (c[i] + d[i]);
                a[i] = v; b[i] = v; c[i] = v; d[i] = v;
            }
            continue;
        }
        for (int p = 0; p < ranks; p++) memcpy(part[p], tensors[p] + lo, n * sizeof(float));
        for (int step = 1; step < ranks; step *= 2)
            for (int p = 0; p + step < ranks; p += 2 * step)
                for (size_t i = 0; i < n; i++) part[p][i] += part[p + step][i];
        for (int p = 0; p < ranks; p++) memcpy(tensors[p] + lo, part[0], n * sizeof(float));
    }
}

static void allreduce(float *buf, size_t count) {
    (void)buf;
    barrier();
    size_t share = ((count + (size_t)ranks - 1) / (size_t)ranks + 15) & ~(size_t)15;
    size_t lo = share * (size_t)rank, hi = lo + share;
    fold(lo < count ? lo : count, hi < count ? hi : count);
    barrier();
}

static void *tensor(size_t bytes) { (void)bytes; return tensors[rank]; }

static void *shared(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    return p;
}

int main(int argc, char **argv) {
    if (argc != 3 || (ranks = atoi(argv[2])) < 1 || ranks > MAX_RANKS) return 2;
    yielding = ranks > sysconf(_SC_NPROCESSORS_ONLN);
    flags = shared(sizeof(flag_line) * MAX_RANKS);
    scratch = shared(sizeof *scratch * MAX_RANKS);
    for (int p = 0; p < ranks; p++) tensors[p] = shared(TENSOR);
    for (int p = 1; p < ranks; p++)
        if (fork() == 0) { rank = p; break; }
    bench_peer self = { argv[1], rank, ranks, allreduce, max_doubles, barrier, tensor };
    size_t bad = bench_run(&self);
    if (rank) _exit(bad != 0);
    int status, worst = bad != 0;
    while (wait(&status) > 0) worst |= status;
    return worst != 0;
}
