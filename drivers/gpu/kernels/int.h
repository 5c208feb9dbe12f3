// Integers of up to 32 bits, each extended to a word.

FN bool int_signed() {
    return DTYPE == T_I8 || DTYPE == T_I16 || DTYPE == T_I32 || DTYPE == T_I64;
}

// The lowest 8, 16 or 32 bits, extended as the type says: what a wider sum wraps to.
FN uint int_wrap(uint a) {
    uint unused = 32u - 8u * SIZE;
    if (int_signed()) {
        return UINT(INT(a << unused) >> unused);
    }
    return (a << unused) >> unused;
}

FN uint int_minimum(uint a, uint b) {
    // Flipping the sign orders signed numbers as unsigned ones.
    uint flip = int_signed() ? 0x80000000u : 0u;
    return (a ^ flip) < (b ^ flip) ? a : b;
}

FN uint int_maximum(uint a, uint b) {
    uint flip = int_signed() ? 0x80000000u : 0u;
    return (a ^ flip) > (b ^ flip) ? a : b;
}

// Rounded toward zero.
FN uint int_divide(uint a, uint divisor, uint inverse, uint shift) {
    a = int_wrap(a);
    bool negative = int_signed() && (a >> 31) != 0u;
    uint quotient = u32_divide(negative ? 0u - a : a, divisor, inverse, shift);
    return negative ? 0u - quotient : quotient;
}

FN uint int_combine(uint a, uint b) {
    if (OP == OP_PROD) {
        return a * b;
    }
    if (OP == OP_MIN) {
        return int_minimum(a, b);
    }
    if (OP == OP_MAX) {
        return int_maximum(a, b);
    }
    if (OP == OP_AND) {
        return a & b;
    }
    if (OP == OP_OR) {
        return a | b;
    }
    if (OP == OP_XOR) {
        return a ^ b;
    }
    return a + b;
}
