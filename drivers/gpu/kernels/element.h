// What a fold does with one element: the accumulation type `value`, decode (from the bits of an
// element), weigh (the leaf of a rank under PreMulSum), combine (one merge) and finish (the bits to
// store). The three last arguments of finish are what avg divides by.

#ifdef SINGLE
#define value uint

FN value decode(uint code) {
    if (SIZE < 4u) {
        return small_decode(code);
    }
    return code;
}

FN value weigh(value a, pair weight) {
    return f32_multiply(a, weight.x);
}

FN value combine(value a, value b) {
    if (OP == OP_PROD) {
        return f32_multiply(a, b);
    }
    if (OP == OP_MIN) {
        return f32_minimum(a, b);
    }
    if (OP == OP_MAX) {
        return f32_maximum(a, b);
    }
    return f32_add(a, b);
}

FN value finish(value a, uint divisor, uint inverse, uint shift) {
    if (PARTIAL == 0u && OP == OP_AVG) {
        a = f32_divide(a, divisor, inverse, shift);
    }
    if (PARTIAL == 0u && SIZE < 4u) {
        return small_encode(a);
    }
    return f32_canonical(a);
}
#endif

#ifdef INTEGER
#define value uint

FN value decode(uint code) {
    return int_wrap(code);
}

FN value weigh(value a, pair weight) {
    return a * weight.x;
}

FN value combine(value a, value b) {
    return int_combine(a, b);
}

FN value finish(value a, uint divisor, uint inverse, uint shift) {
    if (PARTIAL == 0u && OP == OP_AVG) {
        return int_divide(a, divisor, inverse, shift);
    }
    return a;
}
#endif

#ifdef DOUBLE
#define value pair

FN value weigh(value a, pair weight) {
    return f64_multiply(a, weight);
}

FN value combine(value a, value b) {
    if (OP == OP_PROD) {
        return f64_multiply(a, b);
    }
    if (OP == OP_MIN) {
        return f64_minimum(a, b);
    }
    if (OP == OP_MAX) {
        return f64_maximum(a, b);
    }
    return f64_add(a, b);
}

FN value finish(value a, uint divisor, uint inverse, uint shift) {
    if (PARTIAL == 0u && OP == OP_AVG) {
        return f64_divide(a, divisor, inverse, shift);
    }
    return f64_canonical(a);
}
#endif

#ifdef LONG
#define value pair

FN value weigh(value a, pair weight) {
    return long_multiply(a, weight);
}

FN value combine(value a, value b) {
    return long_combine(a, b);
}

FN value finish(value a, uint divisor, uint inverse, uint shift) {
    if (PARTIAL == 0u && OP == OP_AVG) {
        return long_divide(a, divisor, inverse, shift);
    }
    return a;
}
#endif
