// What OpenCL C says in other words than GLSL.

#pragma OPENCL FP_CONTRACT OFF

#define FN static inline
#define CONSTANT(name, expression) enum { name = expression };
// Two words. A struct, because compilers make vectors of structs' members, not of short vectors.
typedef struct {
    uint x, y;
} pair;
#define PAIR(low, high) ((pair){low, high})
#define UINT(x) ((uint)(x))
#define INT(x) ((int)(x))
#define FLOAT(x) ((float)(x))

FN ulong as_u64(pair bits) {
    return (ulong)bits.y << 32 | bits.x;
}

FN pair from_u64(ulong number) {
    return PAIR((uint)number, (uint)(number >> 32));
}

// The same bits as another type.
#define AS_F32(bits) as_float((uint)(bits))
#define AS_U32(number) as_uint((float)(number))
#define AS_F64(bits) as_double(AS_U64(bits))
#define FROM_F64(number) from_u64(as_ulong((double)(number)))
#define AS_U64(bits) as_u64(bits)
#define FROM_U64(number) from_u64(number)

// A number that is not contracted with others: what the pragma says for all.
#define EXACT

// Zero bits above the highest bit that is set; 32 for 0.
#define LEADING_ZEROS(x) clz((uint)(x))

// The 64-bit product.
FN pair multiply_wide(uint a, uint b) {
    return PAIR(a * b, mul_hi(a, b));
}
