// What C says in other words than GLSL and OpenCL C, so that the kernels' arithmetic can be tested
// on a machine that has only a C compiler. Built with -ffp-contract=off.

#include <stdbool.h>
#include <string.h>

#define uint unsigned
#define uchar unsigned char
#define ushort unsigned short
#define ulong unsigned long long
#define max(a, b) ((a) > (b) ? (a) : (b))
#define min(a, b) ((a) < (b) ? (a) : (b))

typedef struct {
    uint x, y;
} pair;

#define FN static inline
#define CONSTANT(name, expression) enum { name = expression };
#define PAIR(low, high) ((pair){low, high})
#define UINT(x) ((uint)(x))
#define INT(x) ((int)(x))
#define FLOAT(x) ((float)(x))
#define EXACT
#define LEADING_ZEROS(x) ((x) == 0 ? 32u : (uint)__builtin_clz(x))

#define SAME_BITS(name, from, to) \
    FN to name(from a) { \
        to b; \
        memcpy(&b, &a, sizeof b); \
        return b; \
    }
SAME_BITS(AS_F32, uint, float)
SAME_BITS(AS_U32, float, uint)
SAME_BITS(AS_F64, pair, double)
SAME_BITS(FROM_F64, double, pair)
SAME_BITS(AS_U64, pair, ulong)
SAME_BITS(FROM_U64, ulong, pair)

FN pair multiply_wide(uint a, uint b) {
    return FROM_U64((ulong)a * b);
}

// A kernel is a function, called for one work item after another.
#define __kernel static
#define __global
#define __attribute__(x)
static uint work_item;
#define get_global_id(dimension) ((dimension) == 0 ? work_item : 0u)
#define get_global_size(dimension) 0u
