/* Measuring loop shared by every AllReduce peer (C and C++), so that all peers
 * are timed, verified and printed the same way.
 *
 * Per size: the buffer is a page-aligned malloc'd block, refilled and verified
 * outside the timed part. One sample is a batch of back-to-back in-place calls
 * (as nccl-tests does) divided by the batch length, the slowest rank's time.
 * Batches lie between barriers. Median and min are over the samples.
 *
 * The number of samples fits BENCH_BUDGET_S seconds a size (default 1.5),
 * 7 at least and 200 at most. BENCH_MAX_BYTES leaves larger tensors out,
 * BENCH_MIN_BYTES smaller ones.
 *
 * host/examples/all_reduce_loop.rs is the same loop for unisono: change both. */
#ifndef BENCH_H
#define BENCH_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct bench_peer {
    const char *name;
    int rank, ranks;
    /* In-place float32 sum over all ranks. */
    void (*allreduce)(float *buf, size_t count);
    /* In-place element-wise max over all ranks, for times and error counts. */
    void (*max_doubles)(double *buf, size_t count);
    void (*barrier)(void);
    /* Optional: where the tensor lies, for a library that allocates tensors
     * itself. NULL: a page-aligned malloc'd block. It is never given back. */
    void *(*tensor)(size_t bytes);
} bench_peer;

static const size_t bench_sizes[] = {
    8, 1u << 10, 32u << 10, 256u << 10, 1u << 20, 8u << 20, 64u << 20,
};
enum { BENCH_MAX_SAMPLES = 200 };

static inline double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int bench_cmp(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts v; the mean of the middle two if n is even. */
static inline double bench_median(double *v, size_t n) {
    qsort(v, n, sizeof *v, bench_cmp);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

/* Small integers that differ by rank and by place: the first sum is exact. */
static inline void bench_fill(float *buf, size_t count, int rank) {
    for (size_t i = 0; i < count; i++)
        buf[i] = (float)((i + 3u * (unsigned)rank) % 7u) + 1.0f;
}

/* After k in-place calls every element is (sum over ranks) * ranks^(k-1). */
static inline size_t bench_errors(const float *buf, size_t count, int ranks, int k) {
    float want[7];
    size_t bad = 0;
    for (unsigned j = 0; j < 7; j++) {
        double s = 0;
        for (int r = 0; r < ranks; r++) s += (double)((j + 3u * (unsigned)r) % 7u) + 1.0;
        want[j] = (float)(s * pow(ranks, k - 1));
    }
    for (size_t i = 0; i < count; i++)
        bad += !(fabsf(buf[i] - want[i % 7]) <= 1e-5f * want[i % 7]);
    return bad;
}

static inline double bench_sample(const bench_peer *p, float *buf, size_t count, int batch,
                                  size_t *bad) {
    bench_fill(buf, count, p->rank);
    p->barrier();
    double t0 = bench_now();
    for (int i = 0; i < batch; i++) p->allreduce(buf, count);
    double t = (bench_now() - t0) / batch;
    /* On shared cores a rank that checks would take time from one that is not through. */
    p->barrier();
    *bad += bench_errors(buf, count, p->ranks, batch);
    return t;
}

static inline void bench_print(const char *name, int ranks, size_t bytes, double med, double min) {
    double alg = (double)bytes / med / 1e9;
    printf("%s,%d,%zu,%.2f,%.2f,%.3f,%.3f\n", name, ranks, bytes, med * 1e6, min * 1e6, alg,
           alg * 2 * (ranks - 1) / ranks);
    fflush(stdout);
}

/* Returns the number of wrong elements seen over all sizes (max over ranks). */
static inline size_t bench_run(const bench_peer *p) {
    const char *b = getenv("BENCH_BUDGET_S"), *m = getenv("BENCH_MAX_BYTES");
    const char *l = getenv("BENCH_MIN_BYTES");
    double budget = b ? atof(b) : 1.5;
    size_t largest = m ? strtoull(m, NULL, 10) : SIZE_MAX;
    size_t least = l ? strtoull(l, NULL, 10) : 0;
    size_t all_bad = 0;
    for (size_t s = 0; s < sizeof bench_sizes / sizeof *bench_sizes; s++) {
        size_t bytes = bench_sizes[s], count = bytes / sizeof(float);
        if (bytes > largest) break;
        if (bytes < least) continue;
        int batch = bytes <= 1024 ? 50 : bytes <= (256u << 10) ? 20 : bytes <= (1u << 20) ? 5 : 1;
        void *mem = NULL;
        if (p->tensor)
            mem = p->tensor(bytes);
        else if (posix_memalign(&mem, 4096, bytes < 4096 ? 4096 : bytes))
            abort();
        float *buf = (float *)mem;
        size_t bad = 0;
        double t[BENCH_MAX_SAMPLES], pilot = 0;

        /* Warm up, then let the slowest rank's time of the last batch set how
         * many samples fit. Every rank computes the same number. */
        for (int i = 0; i < 3; i++) pilot = bench_sample(p, buf, count, batch, &bad);
        p->max_doubles(&pilot, 1);
        double fit = budget / (pilot * batch);
        int n = fit < 7 ? 7 : fit > BENCH_MAX_SAMPLES ? BENCH_MAX_SAMPLES : (int)fit;

        for (int i = 0; i < n; i++) t[i] = bench_sample(p, buf, count, batch, &bad);
        p->max_doubles(t, (size_t)n);
        double err = (double)bad;
        p->max_doubles(&err, 1);
        double med = bench_median(t, (size_t)n);
        if (p->rank == 0) {
            if (err != 0) fprintf(stderr, "%s: %zu bytes: %.0f wrong elements\n", p->name, bytes, err);
            bench_print(p->name, p->ranks, bytes, med, t[0]);
        }
        all_bad += (size_t)err;
        if (!p->tensor) free(mem);
    }
    return all_bad;
}

#endif
