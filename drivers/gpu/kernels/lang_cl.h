// What OpenCL C says in other words than GLSL.

#pragma OPENCL FP_CONTRACT OFF

#define FN static inline
#define CONSTANT(name, expression) enum { name = expression };
#define UINT2(low, high) ((uint2)(low, high))
#define UINT(x) ((uint)(x))
#define INT(x) ((int)(x))
#define FLOAT(x) ((float)(x))

// The same bits as another type.
#define AS_F32(bits) as_float((uint)(bits))
#define AS_U32(number) as_uint((float)(number))
#define AS_F64(bits) as_double(bits)
#define FROM_F64(number) as_uint2((double)(number))
#define AS_U64(bits) as_ulong(bits)
#define FROM_U64(number) as_uint2((ulong)(number))

// A number that is not contracted with others: what the pragma says for all.
#define EXACT

#define UNROLL _Pragma("unroll")

// Zero bits above the highest bit that is set; 32 for 0.
#define LEADING_ZEROS(x) clz((uint)(x))

// The 64-bit product.
FN uint2 multiply_wide(uint a, uint b) {
    return UINT2(a * b, mul_hi(a, b));
}
