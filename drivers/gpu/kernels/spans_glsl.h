// How a Vulkan kernel reaches its constants and its memory: see the top of src/kernel/mod.rs.

// What the kernel is specialised with: NAMES in src/kernel/spirv.rs.
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint DTYPE = 0u;
layout(constant_id = 2) const uint OP = 0u;
layout(constant_id = 3) const uint PARTIAL = 0u;
layout(constant_id = 4) const uint SOURCES = 1u;
layout(constant_id = 5) const uint DESTS = 1u;
layout(constant_id = 6) const uint PARTIALS = 0u;
layout(constant_id = 7) const uint MERGES_0 = 0u;
layout(constant_id = 8) const uint MERGES_1 = 0u;
layout(constant_id = 9) const uint MERGES_2 = 0u;
layout(constant_id = 10) const uint MERGES_3 = 0u;
layout(constant_id = 11) const uint NATIVE = 0u;

layout(std430, set = 0, binding = 0) readonly buffer Params {
    uint words[64];
} params;
layout(std430, set = 0, binding = 1) readonly buffer Source {
    uint words[];
} sources[SOURCES];
layout(std430, set = 0, binding = 2) buffer Dest {
    uint words[];
} dests[DESTS];

#define PARAM(i) params.words[i]
// The index of a span that is not there appears in code that is never run; it stays in range.
#define SOURCE_WORD(i, at) sources[UINT(i) < SOURCES ? UINT(i) : 0u].words[at]
#define DEST_WORD(i, at) dests[UINT(i) < DESTS ? UINT(i) : 0u].words[at]

// Stores the bytes of a word that `mask` covers: others may be writing its other bytes.
#ifdef HAS_8
layout(std430, set = 0, binding = 2) buffer DestBytes {
    uint8_t bytes[];
} dests_8[DESTS];

#define STORE_MASKED(i, at, bits, mask) \
    for (int byte = 0; byte < 4; byte++) { \
        if ((((mask) >> (8 * byte)) & 1u) != 0u) { \
            dests_8[UINT(i) < DESTS ? UINT(i) : 0u].bytes[4 * (at) + byte] = \
                uint8_t((bits) >> (8 * byte)); \
        } \
    }
#else
#define STORE_MASKED(i, at, bits, mask) \
    if ((mask) != 0u) { \
        atomicAnd(DEST_WORD(i, at), ~(mask)); \
        atomicOr(DEST_WORD(i, at), (bits) & (mask)); \
    }
#endif

#define FOLD_KERNEL void main()
#define OPEN_SPANS
#define WORK_ITEM ((gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) \
    * gl_WorkGroupSize.x + gl_LocalInvocationID.x)

#define EACH_SOURCE(X) \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define EACH_DEST(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
