// The numbers of element types and operators: those of the wire (no_std_core/src/dtype.rs).

#define T_F64 0u
#define T_F32 1u
#define T_F16 2u
#define T_BF16 3u
#define T_F8E4M3 4u
#define T_F8E5M2 5u
#define T_I8 6u
#define T_I16 7u
#define T_I32 8u
#define T_I64 9u
#define T_U8 10u
#define T_U16 11u
#define T_U32 12u
#define T_U64 13u

#define OP_SUM 0u
#define OP_PROD 1u
#define OP_MIN 2u
#define OP_MAX 3u
#define OP_AVG 4u
#define OP_PREMULSUM 5u
#define OP_AND 6u
#define OP_OR 7u
#define OP_XOR 8u

// What a variant is made of, all known to the compiler: the element type, the operator, PARTIAL
// (the result is stored in the accumulation type), SOURCES, DESTS, PARTIALS (bit i: source i is in
// the accumulation type), MERGES_0 to MERGES_3 (see fold.h), NATIVE (what the device's own
// arithmetic is used for).

// binary32: bit 0, always; bit 3, as long as no subnormal number is involved.
#define NATIVE_F32 ((NATIVE & 1u) != 0u)
#define NORMAL_F32 ((NATIVE & 9u) != 0u)

// Bytes of an element.
CONSTANT(SIZE, DTYPE == T_F64 || DTYPE == T_I64 || DTYPE == T_U64 ? 8u
    : DTYPE == T_F32 || DTYPE == T_I32 || DTYPE == T_U32 ? 4u
    : DTYPE == T_F16 || DTYPE == T_BF16 || DTYPE == T_I16 || DTYPE == T_U16 ? 2u : 1u)
