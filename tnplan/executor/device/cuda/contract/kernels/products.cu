// c[t, i, j] = the sum over q of a[t, i, q] b[t, j, q] for products too small for tensor tiles; row-major.
// Injected: REAL (float, double), COMPLEX (0, 1), INDEX (an unsigned type that holds every element number
// and extent).
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
                                    Value *__restrict__ c, long long count, INDEX m, INDEX n, int k) {
    const INDEX step = (INDEX)gridDim.x * blockDim.x;
    for (INDEX e = (INDEX)blockIdx.x * blockDim.x + threadIdx.x; e < (INDEX)count; e += step) {
        const INDEX row = e / n; // t * m + i
        const INDEX t = row / m;
        const Value *x = a + row * k;
        const Value *y = b + (t * n + (e - row * n)) * k;
        Value sum = {};
        for (int q = 0; q < k; ++q)
            add_product(sum, x[q], y[q]);
        c[e] = sum;
    }
}
