// Elements of a product as parts, real and imaginary. Injected: REAL (float, double), COMPLEX (0, 1).

#pragma once

struct alignas((COMPLEX + 1) * sizeof(REAL)) Value {
    REAL part[COMPLEX + 1];
};

__device__ inline void add_product(Value &sum, const Value &x, const Value &y) {
    sum.part[0] = fma(x.part[0], y.part[0], sum.part[0]);
#if COMPLEX
    sum.part[0] = fma(-x.part[1], y.part[1], sum.part[0]);
    sum.part[1] = fma(x.part[0], y.part[1], sum.part[1]);
    sum.part[1] = fma(x.part[1], y.part[0], sum.part[1]);
#endif
}
