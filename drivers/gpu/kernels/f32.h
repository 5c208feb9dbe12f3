// binary32 as words: add, multiply, divide by a number of ranks, minimum and maximum, each rounded
// to nearest even, subnormals kept, whatever the device does with its own numbers.

#define F32_NAN 0x7fc00000u
#define F32_INFINITY 0x7f800000u
#define F32_SIGN 0x80000000u

FN bool f32_is_nan(uint a) {
    return (a << 1) > 0xff000000u;
}

// Every NaN becomes the one that results have.
FN uint f32_canonical(uint a) {
    return f32_is_nan(a) ? F32_NAN : a;
}

FN uint f32_exponent(uint a) {
    return (a >> 23) & 0xffu;
}

// A number other than 0, infinity and NaN as `x * 2^(y - 150)`, x from 2^23 to 2^24.
FN pair f32_unpack(uint a) {
    uint exponent = f32_exponent(a);
    uint fraction = a & 0x7fffffu;
    if (exponent != 0u) {
        return PAIR(fraction | 0x800000u, exponent);
    }
    // The exponent wraps below 0; so does all that is done with it.
    uint by = LEADING_ZEROS(fraction) - 8u;
    return PAIR(fraction << by, 1u - by);
}

// Rounds `m * 2^(exponent - 157)`, m from 2^30 to 2^31, its lowest bit also standing for all that
// is below it.
FN uint f32_round(uint sign, int exponent, uint m) {
    if (exponent >= 255) {
        return sign | F32_INFINITY;
    }
    if (exponent <= 0) {
        m = shift_right_sticky(m, UINT(1 - exponent));
        exponent = 1;
    }
    uint kept = m >> 7;
    // Up if more than half is cut off, or half and the number before it is odd.
    kept += UINT((m & 0x7fu) + (kept & 1u) > 0x40u);
    // The leading one counts as 1 in the exponent; a carry out of the fraction does too.
    return sign | ((UINT(exponent - 1) << 23) + kept);
}

FN uint f32_add_integer(uint a, uint b) {
    if ((a << 1) < (b << 1)) {
        uint swapped = a;
        a = b;
        b = swapped;
    }
    bool opposite = ((a ^ b) >> 31) != 0u;
    uint exponent_a = f32_exponent(a);
    uint exponent_b = f32_exponent(b);
    if (exponent_a == 255u) {
        // The larger of the two: a NaN, or an infinity, which only its opposite makes a NaN.
        bool is_nan = f32_is_nan(a) || (opposite && exponent_b == 255u);
        return is_nan ? F32_NAN : a;
    }
    uint m = (a & 0x7fffffu) | (UINT(exponent_a != 0u) << 23);
    uint n = (b & 0x7fffffu) | (UINT(exponent_b != 0u) << 23);
    exponent_a += UINT(exponent_a == 0u);
    exponent_b += UINT(exponent_b == 0u);
    m <<= 6;
    n = shift_right_sticky(n << 6, exponent_a - exponent_b);
    m = opposite ? m - n : m + n;
    if (m == 0u) {
        return opposite ? 0u : a & F32_SIGN;
    }
    uint by = LEADING_ZEROS(m) - 1u;
    return f32_round(a & F32_SIGN, INT(exponent_a + 1u - by), m << by);
}

FN uint f32_multiply_integer(uint a, uint b) {
    uint sign = (a ^ b) & F32_SIGN;
    uint magnitude_a = a & 0x7fffffffu;
    uint magnitude_b = b & 0x7fffffffu;
    if (f32_is_nan(a) || f32_is_nan(b)) {
        return F32_NAN;
    }
    if (magnitude_a == F32_INFINITY || magnitude_b == F32_INFINITY) {
        return magnitude_a == 0u || magnitude_b == 0u ? F32_NAN : sign | F32_INFINITY;
    }
    if (magnitude_a == 0u || magnitude_b == 0u) {
        return sign;
    }
    pair x = f32_unpack(magnitude_a);
    pair y = f32_unpack(magnitude_b);
    pair product = multiply_wide(x.x << 7, y.x << 8);
    uint m = product.y | UINT(product.x != 0u);
    uint carry = m >> 30;
    m <<= 1u - carry;
    return f32_round(sign, INT(x.y + y.y + carry) - 127, m);
}

FN uint f32_divide(uint a, uint divisor, uint inverse, uint shift) {
    uint magnitude = a & 0x7fffffffu;
    if (magnitude == 0u || magnitude >= F32_INFINITY) {
        return f32_canonical(a);
    }
    pair x = f32_unpack(magnitude);
    pair quotient = divide_step(x.x << 7, 0u, divisor, inverse);
    uint carry = quotient.x >> 31;
    uint lost = UINT(quotient.y != 0u) | (quotient.x & carry);
    uint m = (quotient.x >> carry) | lost;
    return f32_round(a & F32_SIGN, INT(x.y + shift + carry) - 32, m);
}

// Add and multiply by the device's own arithmetic where it gives the same bits: always, or as long
// as neither an operand nor the result is subnormal.

FN uint f32_add(uint a, uint b) {
    if (!NORMAL_F32) {
        return f32_add_integer(a, b);
    }
    EXACT float sum = AS_F32(a) + AS_F32(b);
    // From 2^-101 on, a subnormal operand is less than half of the last place, and a difference is
    // 0 or normal.
    if (NATIVE_F32 || f32_exponent(a) > 25u || f32_exponent(b) > 25u) {
        return AS_U32(sum);
    }
    return f32_add_integer(a, b);
}

FN uint f32_multiply(uint a, uint b) {
    if (!NORMAL_F32) {
        return f32_multiply_integer(a, b);
    }
    EXACT float product = AS_F32(a) * AS_F32(b);
    uint x = f32_exponent(a);
    uint y = f32_exponent(b);
    if (NATIVE_F32 || (x != 0u && y != 0u && x + y > 128u)) {
        return AS_U32(product);
    }
    return f32_multiply_integer(a, b);
}

// A word that orders as the numbers do, -0 before +0.
FN uint f32_key(uint a) {
    return (a >> 31) != 0u ? ~a : a | F32_SIGN;
}

FN uint f32_minimum(uint a, uint b) {
    if (f32_is_nan(a) || f32_is_nan(b)) {
        return F32_NAN;
    }
    return f32_key(a) < f32_key(b) ? a : b;
}

FN uint f32_maximum(uint a, uint b) {
    if (f32_is_nan(a) || f32_is_nan(b)) {
        return F32_NAN;
    }
    return f32_key(a) > f32_key(b) ? a : b;
}
