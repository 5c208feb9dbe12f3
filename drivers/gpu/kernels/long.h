// 64-bit integers as two words, low word first.

FN pair long_add(pair a, pair b) {
#ifdef HAS_I64
    return FROM_U64(AS_U64(a) + AS_U64(b));
#else
    return u64_add(a, b);
#endif
}

FN pair long_multiply(pair a, pair b) {
#ifdef HAS_I64
    return FROM_U64(AS_U64(a) * AS_U64(b));
#else
    return u64_multiply(a, b);
#endif
}

FN bool long_less(pair a, pair b) {
    // Flipping the sign orders signed numbers as unsigned ones.
    uint flip = DTYPE == T_I64 ? 0x80000000u : 0u;
    a.y ^= flip;
    b.y ^= flip;
#ifdef HAS_I64
    return AS_U64(a) < AS_U64(b);
#else
    return u64_less(a, b);
#endif
}

FN pair long_negate(pair a) {
    return u64_subtract(PAIR(0u, 0u), a);
}

// Rounded toward zero.
FN pair long_divide(pair a, uint divisor, uint inverse, uint shift) {
    if (DTYPE == T_I64 && (a.y >> 31) != 0u) {
        return long_negate(u64_divide(long_negate(a), divisor, inverse, shift));
    }
    return u64_divide(a, divisor, inverse, shift);
}

FN pair long_combine(pair a, pair b) {
    if (OP == OP_PROD) {
        return long_multiply(a, b);
    }
    if (OP == OP_MIN) {
        if (long_less(a, b)) {
            return a;
        }
        return b;
    }
    if (OP == OP_MAX) {
        if (long_less(a, b)) {
            return b;
        }
        return a;
    }
    if (OP == OP_AND) {
        return PAIR(a.x & b.x, a.y & b.y);
    }
    if (OP == OP_OR) {
        return PAIR(a.x | b.x, a.y | b.y);
    }
    if (OP == OP_XOR) {
        return PAIR(a.x ^ b.x, a.y ^ b.y);
    }
    return long_add(a, b);
}
