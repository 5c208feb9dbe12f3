// binary64 as two words, low word first: what f32.h does for binary32.

#define F64_NAN PAIR(0u, 0x7ff80000u)
#define F64_INFINITY 0x7ff00000u
#define F64_SIGN 0x80000000u

FN bool f64_is_nan(pair a) {
    uint magnitude = a.y & 0x7fffffffu;
    return magnitude > F64_INFINITY || (magnitude == F64_INFINITY && a.x != 0u);
}

FN bool f64_is_zero(pair a) {
    return (a.x | (a.y << 1)) == 0u;
}

FN bool f64_is_infinite(pair a) {
    return (a.y & 0x7fffffffu) == F64_INFINITY && a.x == 0u;
}

// Every NaN becomes the one that results have.
FN pair f64_canonical(pair a) {
    if (f64_is_nan(a)) {
        return F64_NAN;
    }
    return a;
}

FN uint f64_exponent(pair a) {
    return (a.y >> 20) & 0x7ffu;
}

// The fraction with its leading one, which subnormals do not have.
FN pair f64_significand(pair a) {
    return PAIR(a.x, (a.y & 0xfffffu) | (UINT(f64_exponent(a) != 0u) << 20));
}

// Rounds `m * 2^(exponent - 1085)`, m from 2^62 to 2^63, its lowest bit also standing for all that
// is below it.
FN pair f64_round(uint sign, int exponent, pair m) {
    if (exponent >= 2047) {
        return PAIR(0u, sign | F64_INFINITY);
    }
    if (exponent <= 0) {
        m = u64_shift_right_sticky(m, UINT(1 - exponent));
        exponent = 1;
    }
    pair kept = u64_shift_right(m, 10u);
    uint up = UINT((m.x & 0x3ffu) + (kept.x & 1u) > 0x200u);
    kept = u64_add(kept, PAIR(up, UINT(exponent - 1) << 20));
    return PAIR(kept.x, kept.y | sign);
}

FN pair f64_add_integer(pair a, pair b) {
    pair magnitude_a = PAIR(a.x, a.y & 0x7fffffffu);
    pair magnitude_b = PAIR(b.x, b.y & 0x7fffffffu);
    if (u64_less(magnitude_a, magnitude_b)) {
        pair swapped = a;
        a = b;
        b = swapped;
    }
    bool opposite = ((a.y ^ b.y) >> 31) != 0u;
    uint exponent_a = f64_exponent(a);
    uint exponent_b = f64_exponent(b);
    if (exponent_a == 2047u) {
        if (f64_is_nan(a) || (opposite && exponent_b == 2047u)) {
            return F64_NAN;
        }
        return a;
    }
    pair m = u64_shift_left(f64_significand(a), 9u);
    pair n = u64_shift_left(f64_significand(b), 9u);
    exponent_a += UINT(exponent_a == 0u);
    exponent_b += UINT(exponent_b == 0u);
    n = u64_shift_right_sticky(n, exponent_a - exponent_b);
    if (opposite) {
        m = u64_subtract(m, n);
    } else {
        m = u64_add(m, n);
    }
    if ((m.x | m.y) == 0u) {
        return PAIR(0u, opposite ? 0u : a.y & F64_SIGN);
    }
    uint by = u64_leading_zeros(m) - 1u;
    return f64_round(a.y & F64_SIGN, INT(exponent_a + 1u - by), u64_shift_left(m, by));
}

// How far the significand of a number other than 0 is shifted left so that its highest bit is
// bit 63, and the exponent that it has then, which may wrap below 0.
FN pair f64_normalise(pair a) {
    uint by = u64_leading_zeros(f64_significand(a));
    uint exponent = f64_exponent(a);
    return PAIR(by, exponent + UINT(exponent == 0u) + 11u - by);
}

FN pair f64_multiply_integer(pair a, pair b) {
    uint sign = (a.y ^ b.y) & F64_SIGN;
    if (f64_is_nan(a) || f64_is_nan(b)) {
        return F64_NAN;
    }
    if (f64_is_infinite(a) || f64_is_infinite(b)) {
        if (f64_is_zero(a) || f64_is_zero(b)) {
            return F64_NAN;
        }
        return PAIR(0u, sign | F64_INFINITY);
    }
    if (f64_is_zero(a) || f64_is_zero(b)) {
        return PAIR(0u, sign);
    }
    pair normal_a = f64_normalise(a);
    pair normal_b = f64_normalise(b);
    // From 2^62 and 2^63 on: the product is from 2^125 to 2^127.
    pair x = u64_shift_left(f64_significand(a), normal_a.x - 1u);
    pair y = u64_shift_left(f64_significand(b), normal_b.x);
    pair low = multiply_wide(x.x, y.x);
    pair cross = multiply_wide(x.x, y.y);
    pair middle = u64_add(multiply_wide(x.y, y.x), PAIR(low.y, 0u));
    pair sum = u64_add(middle, cross);
    pair m = multiply_wide(x.y, y.y);
    m = u64_add(m, PAIR(sum.y, UINT(u64_less(sum, cross))));
    m.x |= UINT((low.x | sum.x) != 0u);
    uint carry = m.y >> 30;
    m = u64_shift_left(m, 1u - carry);
    return f64_round(sign, INT(normal_a.y + normal_b.y + carry) - 1023, m);
}

FN pair f64_divide(pair a, uint divisor, uint inverse, uint shift) {
    if (f64_is_zero(a) || f64_exponent(a) == 2047u) {
        return f64_canonical(a);
    }
    pair normal = f64_normalise(a);
    pair x = u64_shift_left(f64_significand(a), normal.x - 1u);
    pair high = divide_step(x.y, x.x, divisor, inverse);
    pair low = divide_step(high.y, 0u, divisor, inverse);
    pair m = PAIR(low.x, high.x);
    uint carry = m.y >> 31;
    uint lost = UINT(low.y != 0u) | (m.x & carry);
    m = u64_shift_right(m, carry);
    m.x |= lost;
    return f64_round(a.y & F64_SIGN, INT(normal.y + shift + carry) - 32, m);
}

// The device's own arithmetic, where it has it.

FN pair f64_add(pair a, pair b) {
#ifdef HAS_F64
    EXACT double sum = AS_F64(a) + AS_F64(b);
    return FROM_F64(sum);
#else
    return f64_add_integer(a, b);
#endif
}

FN pair f64_multiply(pair a, pair b) {
#ifdef HAS_F64
    EXACT double product = AS_F64(a) * AS_F64(b);
    return FROM_F64(product);
#else
    return f64_multiply_integer(a, b);
#endif
}

// Two words that order as the numbers do, -0 before +0.
FN pair f64_key(pair a) {
    uint flip = (a.y >> 31) != 0u ? 0xffffffffu : 0u;
    return PAIR(a.x ^ flip, a.y ^ (flip | F64_SIGN));
}

FN pair f64_minimum(pair a, pair b) {
    if (f64_is_nan(a) || f64_is_nan(b)) {
        return F64_NAN;
    }
    if (u64_less(f64_key(a), f64_key(b))) {
        return a;
    }
    return b;
}

FN pair f64_maximum(pair a, pair b) {
    if (f64_is_nan(a) || f64_is_nan(b)) {
        return F64_NAN;
    }
    if (u64_less(f64_key(a), f64_key(b))) {
        return b;
    }
    return a;
}
