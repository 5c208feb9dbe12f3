// What GLSL says in other words than OpenCL C.

#ifdef HAS_8
#extension GL_EXT_shader_8bit_storage : require
#endif
#ifdef HAS_I64
#extension GL_ARB_gpu_shader_int64 : require
#endif

#define FN
#define CONSTANT(name, expression) const uint name = expression;
#define pair uvec2
#define PAIR(low, high) uvec2(low, high)
#define UINT(x) uint(x)
#define INT(x) int(x)
#define FLOAT(x) float(x)

// The same bits as another type.
#define AS_F32(bits) uintBitsToFloat(bits)
#define AS_U32(number) floatBitsToUint(number)
#define AS_F64(bits) packDouble2x32(bits)
#define FROM_F64(number) unpackDouble2x32(number)
#define AS_U64(bits) packUint2x32(bits)
#define FROM_U64(number) unpackUint2x32(number)

// A number that is not contracted with others (to a fused multiply-add).
#define EXACT precise

// Zero bits above the highest bit that is set; 32 for 0.
#define LEADING_ZEROS(x) uint(31 - findMSB(x))

// The 64-bit product.
pair multiply_wide(uint a, uint b) {
    uint low, high;
    umulExtended(a, b, high, low);
    return pair(low, high);
}
