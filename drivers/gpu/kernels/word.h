// Pairs of words as 64-bit integers, and the division by a number of ranks.

FN pair u64_add(pair a, pair b) {
    uint low = a.x + b.x;
    return PAIR(low, a.y + b.y + UINT(low < a.x));
}

FN pair u64_subtract(pair a, pair b) {
    return PAIR(a.x - b.x, a.y - b.y - UINT(a.x < b.x));
}

FN bool u64_less(pair a, pair b) {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

FN bool u64_equal(pair a, pair b) {
    return a.x == b.x && a.y == b.y;
}

// The low half of the product.
FN pair u64_multiply(pair a, pair b) {
    pair low = multiply_wide(a.x, b.x);
    return PAIR(low.x, low.y + a.x * b.y + a.y * b.x);
}

FN uint u64_leading_zeros(pair a) {
    return a.y != 0u ? LEADING_ZEROS(a.y) : 32u + LEADING_ZEROS(a.x);
}

// Shifts by 0 to 63 bits. A shift of a word by 32 means nothing in either language, so the bits
// that cross over are shifted in two steps.
FN pair u64_shift_left(pair a, uint by) {
    if (by >= 32u) {
        return PAIR(0u, a.x << (by - 32u));
    }
    return PAIR(a.x << by, (a.y << by) | ((a.x >> 1) >> (31u - by)));
}

FN pair u64_shift_right(pair a, uint by) {
    if (by >= 32u) {
        return PAIR(a.y >> (by - 32u), 0u);
    }
    return PAIR((a.x >> by) | ((a.y << 1) << (31u - by)), a.y >> by);
}

// Shifts right; the lowest bit also says whether a bit that is set was lost. `a` below 2^31, so
// that everything is lost from 31 on.
FN uint shift_right_sticky(uint a, uint by) {
    by = by < 31u ? by : 31u;
    uint kept = a >> by;
    return kept | UINT((kept << by) != a);
}

// The same for `a` below 2^63.
FN pair u64_shift_right_sticky(pair a, uint by) {
    by = by < 63u ? by : 63u;
    pair kept = u64_shift_right(a, by);
    uint lost = UINT(!u64_equal(u64_shift_left(kept, by), a));
    return PAIR(kept.x | lost, kept.y);
}

// Divides two words, the high one below the divisor, by a divisor that has its highest bit set:
// quotient in x, remainder in y. Moeller and Granlund, "Improved division by invariant integers",
// IEEE Transactions on Computers 60 (2011), algorithm 4.
FN pair divide_step(uint high, uint low, uint divisor, uint inverse) {
    pair estimate = u64_add(multiply_wide(inverse, high), PAIR(low, high));
    uint quotient = estimate.y + 1u;
    uint rest = low - quotient * divisor;
    if (rest > estimate.x) {
        quotient -= 1u;
        rest += divisor;
    }
    if (rest >= divisor) {
        quotient += 1u;
        rest -= divisor;
    }
    return PAIR(quotient, rest);
}

// Integers divided by the number of ranks, rounded down.
FN uint u32_divide(uint a, uint divisor, uint inverse, uint shift) {
    return divide_step((a >> 1) >> (31u - shift), a << shift, divisor, inverse).x;
}

FN pair u64_divide(pair a, uint divisor, uint inverse, uint shift) {
    pair low = u64_shift_left(a, shift);
    pair first = divide_step((a.y >> 1) >> (31u - shift), low.y, divisor, inverse);
    pair second = divide_step(first.y, low.x, divisor, inverse);
    return PAIR(second.x, first.x);
}
