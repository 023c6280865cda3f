// c[t, i, j] = the sum over q of a[t, i, q] b[t, j, q] for products too small for tensor tiles; row-major. Where K_FIRST,
// an operand is a[t, q, i] or b[t, q, j], a part of one with `all_m` or `all_n` of these.
// Injected: REAL (float, double), COMPLEX (0, 1), INDEX (an unsigned type that holds every element number
// and extent), A_K_FIRST, B_K_FIRST (0, 1).
// NumPy twin: einsum "tiq,tjq->tij". Every element is summed by one thread in rising q: same bits every run.

#if COMPLEX
struct alignas(2 * sizeof(REAL)) Value {
    REAL re, im;
};
__device__ inline void add_product(Value &sum, const Value &x, const Value &y) {
    sum.re += x.re * y.re - x.im * y.im;
    sum.im += x.re * y.im + x.im * y.re;
}
#else
struct Value {
    REAL re;
};
__device__ inline void add_product(Value &sum, const Value &x, const Value &y) { sum.re += x.re * y.re; }
#endif

extern "C" __global__ void products(const Value *__restrict__ a, const Value *__restrict__ b,
                                    Value *__restrict__ c, long long count, INDEX m, INDEX n, int k,
                                    INDEX all_m, INDEX all_n) {
    const INDEX step = (INDEX)gridDim.x * blockDim.x;
    for (INDEX e = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; e < (INDEX)count; e += step) {
        const INDEX row = e / n; // t * m + i
        const INDEX t = row / m;
        const INDEX i = row - t * m, j = e - row * n;
        const Value *x = a + t * all_m * k + (A_K_FIRST ? i : i * k);
        const Value *y = b + t * all_n * k + (B_K_FIRST ? j : j * k);
        const INDEX x_step = A_K_FIRST ? all_m : 1, y_step = B_K_FIRST ? all_n : 1;
        Value sum = {};
        for (int q = 0; q < k; ++q)
            add_product(sum, x[q * x_step], y[q * y_step]);
        c[e] = sum;
    }
}
