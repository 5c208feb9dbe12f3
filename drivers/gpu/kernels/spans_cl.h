// How an OpenCL kernel reaches its memory: see the top of src/kernel/mod.rs.

// The names that GLSL's modules are built for.
#if DTYPE == 0u
#define DOUBLE
#if (NATIVE & 2u) != 0u
#define HAS_F64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#elif DTYPE <= 5u
#define SINGLE
#elif DTYPE == 9u || DTYPE == 13u
#define LONG
#if (NATIVE & 4u) != 0u
#define HAS_I64
#endif
#else
#define INTEGER
#endif

// Elements of 1 and 2 bytes, each loaded and stored alone; at any address, hence packed.
#if (NATIVE & 16u) != 0u
#if DTYPE == 4u || DTYPE == 5u || DTYPE == 6u || DTYPE == 10u
#define NARROW uchar
#elif DTYPE == 2u || DTYPE == 3u || DTYPE == 7u || DTYPE == 11u
#define NARROW ushort
#endif
#endif
#ifdef NARROW
typedef struct __attribute__((packed)) {
    NARROW code;
} Element;
#define SOURCE_ELEMENT(i, start, at) \
    ((uint)((__global const Element *)((__global const uchar *)source_##i + (start)))[at].code)
#define STORE_ELEMENT(i, start, at, bits) \
    ((__global Element *)((__global uchar *)dest_##i + (start)))[at].code = (NARROW)(bits);
#endif

typedef struct {
    uint words[64];
} Params;

#define PARAM(i) params.words[i]
#define SOURCE_WORD(i, at) source_##i[at]
#define DEST_WORD(i, at) dest_##i[at]

// Stores the bytes of a word that `mask` covers: others may be writing its other bytes.
FN void store_masked(__global uchar *dest, int at, uint bits, uint mask) {
    for (int byte = 0; byte < 4; byte++) {
        if (((mask >> (8 * byte)) & 1u) != 0u) {
            dest[4 * at + byte] = (uchar)(bits >> (8 * byte));
        }
    }
}
#define STORE_MASKED(i, at, bits, mask) store_masked((__global uchar *)dest_##i, at, bits, mask);

#define SOURCE_ARGUMENT(i) , __global const uchar *source_at_##i, ulong source_offset_##i
#define DEST_ARGUMENT(i) , __global uchar *dest_at_##i, ulong dest_offset_##i
#define FOLD_KERNEL __kernel __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) \
    void fold(const Params params EACH_SOURCE(SOURCE_ARGUMENT) EACH_DEST(DEST_ARGUMENT))

#define OPEN_SOURCE(i) \
    __global const uint *source_##i = (__global const uint *)(source_at_##i + source_offset_##i);
#define OPEN_DEST(i) __global uint *dest_##i = (__global uint *)(dest_at_##i + dest_offset_##i);
#define OPEN_SPANS EACH_SOURCE(OPEN_SOURCE) EACH_DEST(OPEN_DEST)

#define WORK_ITEM ((uint)(get_global_id(1) * get_global_size(0) + get_global_id(0)))

#if SOURCES > 1u
#define SOURCE_1(X) X(1)
#else
#define SOURCE_1(X)
#endif
#if SOURCES > 2u
#define SOURCE_2(X) X(2)
#else
#define SOURCE_2(X)
#endif
#if SOURCES > 3u
#define SOURCE_3(X) X(3)
#else
#define SOURCE_3(X)
#endif
#if SOURCES > 4u
#define SOURCE_4(X) X(4)
#else
#define SOURCE_4(X)
#endif
#if SOURCES > 5u
#define SOURCE_5(X) X(5)
#else
#define SOURCE_5(X)
#endif
#if SOURCES > 6u
#define SOURCE_6(X) X(6)
#else
#define SOURCE_6(X)
#endif
#if SOURCES > 7u
#define SOURCE_7(X) X(7)
#else
#define SOURCE_7(X)
#endif
#if SOURCES > 8u
#define SOURCE_8(X) X(8)
#else
#define SOURCE_8(X)
#endif
#if SOURCES > 9u
#define SOURCE_9(X) X(9)
#else
#define SOURCE_9(X)
#endif
#if SOURCES > 10u
#define SOURCE_10(X) X(10)
#else
#define SOURCE_10(X)
#endif
#if SOURCES > 11u
#define SOURCE_11(X) X(11)
#else
#define SOURCE_11(X)
#endif
#if SOURCES > 12u
#define SOURCE_12(X) X(12)
#else
#define SOURCE_12(X)
#endif
#if SOURCES > 13u
#define SOURCE_13(X) X(13)
#else
#define SOURCE_13(X)
#endif
#if SOURCES > 14u
#define SOURCE_14(X) X(14)
#else
#define SOURCE_14(X)
#endif
#if SOURCES > 15u
#define SOURCE_15(X) X(15)
#else
#define SOURCE_15(X)
#endif
#define EACH_SOURCE(X) \
    X(0) SOURCE_1(X) SOURCE_2(X) SOURCE_3(X) \
    SOURCE_4(X) SOURCE_5(X) SOURCE_6(X) SOURCE_7(X) \
    SOURCE_8(X) SOURCE_9(X) SOURCE_10(X) SOURCE_11(X) \
    SOURCE_12(X) SOURCE_13(X) SOURCE_14(X) SOURCE_15(X)

#if DESTS > 1u
#define DEST_1(X) X(1)
#else
#define DEST_1(X)
#endif
#if DESTS > 2u
#define DEST_2(X) X(2)
#else
#define DEST_2(X)
#endif
#if DESTS > 3u
#define DEST_3(X) X(3)
#else
#define DEST_3(X)
#endif
#if DESTS > 4u
#define DEST_4(X) X(4)
#else
#define DEST_4(X)
#endif
#if DESTS > 5u
#define DEST_5(X) X(5)
#else
#define DEST_5(X)
#endif
#if DESTS > 6u
#define DEST_6(X) X(6)
#else
#define DEST_6(X)
#endif
#if DESTS > 7u
#define DEST_7(X) X(7)
#else
#define DEST_7(X)
#endif
#define EACH_DEST(X) \
    X(0) DEST_1(X) DEST_2(X) DEST_3(X) \
    DEST_4(X) DEST_5(X) DEST_6(X) DEST_7(X)
