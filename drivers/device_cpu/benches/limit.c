/* The speed that the kernels are compared with: the loops that anybody would write for two and for
 * four tensors of f32, summed in place into all of them, as fast as a C compiler makes them. Blocks
 * keep the compiler's test for overlap out of the inner loop's way, as a real program would.
 *
 *     gcc -O3 -march=native -shared -fPIC -o liblimit.so limit.c
 */
#include <stddef.h>

enum { BLOCK = 1024 };

static void sum2(float *a, float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = a[i] + b[i];
        a[i] = sum;
        b[i] = sum;
    }
}

static void sum4(float *a, float *b, float *c, float *d, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = (a[i] + b[i]) + (c[i] + d[i]);
        a[i] = sum;
        b[i] = sum;
        c[i] = sum;
        d[i] = sum;
    }
}

void limit2(float *const *t, size_t count)
{
    for (size_t lo = 0; lo < count; lo += BLOCK) {
        size_t n = count - lo < BLOCK ? count - lo : BLOCK;
        sum2(t[0] + lo, t[1] + lo, n);
    }
}

void limit4(float *const *t, size_t count)
{
    for (size_t lo = 0; lo < count; lo += BLOCK) {
        size_t n = count - lo < BLOCK ? count - lo : BLOCK;
        sum4(t[0] + lo, t[1] + lo, t[2] + lo, t[3] + lo, n);
    }
}
