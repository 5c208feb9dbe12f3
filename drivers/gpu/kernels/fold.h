// The kernel: runs the fold program of no_std_core/src/fold.rs for every element.
//
// How it is called, and what the caller keeps, is at the top of src/kernel/mod.rs. Parameters, in
// words: 0 elements; 1 to 3 what avg divides by (see divide_step in word.h); 8 to 23 where each
// source starts, in bytes from its span's start; 24 to 31 where each destination does; 32 to 63 the
// weights of the sources, two words each.
//
// First every source is loaded into a value of its own, then values are merged in pairs, which
// MERGES_0 to MERGES_3 list: a byte a merge, the left value in its low half, four in a word. The
// result is value 0.

#define COUNT PARAM(0)
#define SOURCE_START(i) PARAM(8 + i)
#define DEST_START(i) PARAM(24 + i)
#define WEIGHT(i) PAIR(PARAM(32 + 2 * i), PARAM(33 + 2 * i))
#define FINISH(a) finish(a, PARAM(1), PARAM(2), PARAM(3))

#define WEIGH(i) \
    if (OP == OP_PREMULSUM && ((PARTIALS >> i) & 1u) == 0u) { \
        v[i] = weigh(v[i], WEIGHT(i)); \
    }

#define MERGE(j, words, shift) \
    if (j + 1u < SOURCES) { \
        v[((words) >> shift) & 15u] = \
            combine(v[((words) >> shift) & 15u], v[((words) >> (shift + 4)) & 15u]); \
    }
#define MERGE_4(j, words) \
    MERGE(j, words, 0) MERGE(j + 1u, words, 8) MERGE(j + 2u, words, 16) MERGE(j + 3u, words, 24)
#define MERGE_ALL \
    MERGE_4(0u, MERGES_0) \
    MERGE_4(4u, MERGES_1) \
    MERGE_4(8u, MERGES_2) \
    MERGE(12u, MERGES_3, 0) MERGE(13u, MERGES_3, 8) MERGE(14u, MERGES_3, 16)

// Spans of values that are wider than the elements: sums of small floating-point numbers.
#ifdef SINGLE
CONSTANT(WIDE_SOURCES, SIZE < 4u ? PARTIALS : 0u)
CONSTANT(WIDE_RESULT, SIZE < 4u ? PARTIAL : 0u)
#else
CONSTANT(WIDE_SOURCES, 0u)
CONSTANT(WIDE_RESULT, 0u)
#endif
#define WIDE(i) ((WIDE_SOURCES >> i) & 1u)

#if defined(DOUBLE) || defined(LONG) || defined(NARROW)

// A work item makes one element.

#ifdef NARROW
#define LOAD(i) \
    if (UINT(i) < SOURCES) { \
        if (WIDE(i) != 0u) { \
            v[i] = SOURCE_WORD(i, (SOURCE_START(i) >> 2) + item); \
        } else { \
            v[i] = decode(SOURCE_ELEMENT(i, SOURCE_START(i), item)); \
        } \
        WEIGH(i) \
    }
#define STORE(i) \
    if (UINT(i) < DESTS) { \
        if (WIDE_RESULT != 0u) { \
            DEST_WORD(i, (DEST_START(i) >> 2) + item) = result; \
        } else { \
            STORE_ELEMENT(i, DEST_START(i), item, result) \
        } \
    }
#else
#define LOAD(i) \
    if (UINT(i) < SOURCES) { \
        uint at = (SOURCE_START(i) >> 2) + 2u * item; \
        v[i] = PAIR(SOURCE_WORD(i, at), SOURCE_WORD(i, at + 1u)); \
        WEIGH(i) \
    }
#define STORE(i) \
    if (UINT(i) < DESTS) { \
        uint at = (DEST_START(i) >> 2) + 2u * item; \
        DEST_WORD(i, at) = result.x; \
        DEST_WORD(i, at + 1u) = result.y; \
    }
#endif

FOLD_KERNEL {
    OPEN_SPANS
    uint item = WORK_ITEM;
    if (item >= COUNT) {
        return;
    }
    value v[16];
    EACH_SOURCE(LOAD)
    MERGE_ALL
    value result = FINISH(v[0]);
    EACH_DEST(STORE)
}

#else

// Elements of up to 4 bytes: a work item makes those that share a word of the first destination.

CONSTANT(LANES, 4u / SIZE)
#define CODE_MASK (0xffffffffu >> (32u - 8u * SIZE))

FN int limit(int at, int lowest, int highest) {
    return max(lowest, min(at, highest));
}

// Where a span has the item's first element, in bytes.
FN int place(uint start, int first) {
    return INT(start) + first * INT(SIZE);
}

// The word that holds a byte, or the nearest one that holds a byte of the span: the others are not
// touched, and what they would give is not used.
FN int word_of(int at, uint start, uint count) {
    return limit(at >> 2, INT(start >> 2), INT((start + count * SIZE - 1u) >> 2));
}

// Loads the word that starts where the item's first element does.
#define LOAD(i) \
    if (UINT(i) < SOURCES) { \
        if (SIZE == 4u) { \
            codes[i] = SOURCE_WORD(i, (SOURCE_START(i) >> 2) + item); \
        } else if (WIDE(i) == 0u) { \
            int at = place(SOURCE_START(i), first); \
            uint by = 8u * (UINT(at) & 3u); \
            codes[i] = SOURCE_WORD(i, word_of(at, SOURCE_START(i), COUNT)) >> by; \
            if (by != 0u) { \
                codes[i] |= SOURCE_WORD(i, word_of(at + 4, SOURCE_START(i), COUNT)) << (32u - by); \
            } \
        } \
    }
#define DECODE(i) \
    if (UINT(i) < SOURCES) { \
        if (WIDE(i) != 0u) { \
            v[i] = SOURCE_WORD(i, INT(SOURCE_START(i) >> 2) + inside); \
        } else { \
            v[i] = decode((codes[i] >> (8u * SIZE * lane)) & CODE_MASK); \
        } \
        WEIGH(i) \
    }
#define STORE_WIDE(i) \
    if (UINT(i) < DESTS) { \
        DEST_WORD(i, INT(DEST_START(i) >> 2) + inside) = code; \
    }
#define STORE(i) \
    if (UINT(i) < DESTS) { \
        int at = place(DEST_START(i), first); \
        if (SIZE == 4u || (mask == 0xffffffffu && (at & 3) == 0)) { \
            DEST_WORD(i, at >> 2) = result; \
        } else { \
            pair bits = u64_shift_left(PAIR(result, 0u), 8u * (UINT(at) & 3u)); \
            pair part = u64_shift_left(PAIR(mask, 0u), 8u * (UINT(at) & 3u)); \
            STORE_MASKED(i, at >> 2, bits.x, part.x) \
            STORE_MASKED(i, (at >> 2) + 1, bits.y, part.y) \
        } \
    }

FOLD_KERNEL {
    OPEN_SPANS
    uint item = WORK_ITEM;
    // Elements that the first word has room for before the span starts.
    uint lead = WIDE_RESULT != 0u ? 0u : (DEST_START(0) & 3u) / SIZE;
    if (COUNT == 0u || item >= (COUNT + lead + LANES - 1u) / LANES) {
        return;
    }
    int first = INT(item * LANES) - INT(lead);
    uint codes[16];
    value v[16];
    EACH_SOURCE(LOAD)
    uint result = 0u;
    for (uint lane = 0u; lane < LANES; lane++) {
        int element = first + INT(lane);
        int inside = limit(element, 0, INT(COUNT) - 1);
        EACH_SOURCE(DECODE)
        MERGE_ALL
        uint code = FINISH(v[0]);
        if (WIDE_RESULT == 0u) {
            result |= (code & CODE_MASK) << (8u * SIZE * lane);
        } else if (element == inside) {
            EACH_DEST(STORE_WIDE)
        }
    }
    if (WIDE_RESULT != 0u) {
        return;
    }
    // Bits of the elements that there are.
    uint mask = 0xffffffffu;
    if (first < 0) {
        mask <<= 8u * SIZE * UINT(-first);
    }
    int above = first + INT(LANES) - INT(COUNT);
    if (above > 0) {
        mask &= 0xffffffffu >> (8u * SIZE * UINT(above));
    }
    EACH_DEST(STORE)
}

#endif
