// The small floating-point formats, to and from binary32: what numeric/small.rs of the core says.

// Bits of the stored fraction.
FN uint small_fraction() {
    return DTYPE == T_F16 ? 10u : DTYPE == T_BF16 ? 7u : DTYPE == T_F8E4M3 ? 3u : 2u;
}

FN uint small_bias() {
    return DTYPE == T_BF16 ? 127u : DTYPE == T_F8E4M3 ? 7u : 15u;
}

FN uint small_sign() {
    return SIZE == 2u ? 0x8000u : 0x80u;
}

// The first code above the largest finite one: infinity, or the one NaN of e4m3.
FN uint small_overflow() {
    return DTYPE == T_F16 ? 0x7c00u : DTYPE == T_BF16 ? 0x7f80u : DTYPE == T_F8E4M3 ? 0x7fu : 0x7cu;
}

FN uint small_nan() {
    return DTYPE == T_F16 ? 0x7e00u : DTYPE == T_BF16 ? 0x7fc0u : DTYPE == T_F8E4M3 ? 0x7fu : 0x7eu;
}

// The binary32 of a code; exact.
FN uint small_decode(uint code) {
    if (DTYPE == T_BF16) {
        return code << 16;
    }
    uint sign = (code & small_sign()) << (SIZE == 2u ? 16 : 24);
    uint magnitude = code & (small_sign() - 1u);
    if (magnitude >= small_overflow()) {
        bool infinite = DTYPE != T_F8E4M3 && magnitude == small_overflow();
        return infinite ? sign | F32_INFINITY : F32_NAN;
    }
    if (magnitude >> small_fraction() == 0u) {
        // A subnormal is a small integer in units of the last place: as binary32 neither it nor
        // the unit is subnormal.
        uint unit = small_bias() - 1u + small_fraction();
        EXACT float number = FLOAT(magnitude) * AS_F32((127u - unit) << 23);
        return sign | AS_U32(number);
    }
    return sign | ((magnitude << (23u - small_fraction())) + ((127u - small_bias()) << 23));
}

// The code nearest to a binary32.
FN uint small_encode(uint a) {
    if (DTYPE == T_BF16) {
        uint rounded = (a + 0x7fffu + ((a >> 16) & 1u)) >> 16;
        return f32_is_nan(a) ? small_nan() : rounded;
    }
    uint sign = (a >> (SIZE == 2u ? 16 : 24)) & small_sign();
    // The exponent in the format, 1 for its subnormals too. A subnormal binary32 is far below half
    // of the smallest of these numbers, with a leading one or without.
    int exponent = INT(f32_exponent(a)) - 127 + INT(small_bias());
    // Bits to cut off; all is below a half from 25 on.
    int below = exponent < 1 ? 1 - exponent : 0;
    int cut = 23 - INT(small_fraction()) + below;
    uint drop = UINT(cut < 25 ? cut : 25);
    uint significand = (a & 0x7fffffu) | 0x800000u;
    uint kept = significand >> drop;
    uint rest = significand - (kept << drop);
    kept += UINT(rest + (kept & 1u) > (1u << (drop - 1u)));
    // A carry out of the fraction runs into the exponent.
    uint finite = (UINT(exponent + below - 1) << small_fraction()) + kept;
    uint magnitude = finite < small_overflow() ? finite : small_overflow();
    // The one NaN of e4m3 has no sign.
    uint code = DTYPE == T_F8E4M3 && magnitude == small_overflow() ? magnitude : sign | magnitude;
    return f32_is_nan(a) ? small_nan() : code;
}
