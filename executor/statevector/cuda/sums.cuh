// Inner products of two states about Pauli words, in a pass over both. Register bit 0 tells them apart: 0 for psi, 1 for
// lambda. Included by program.cu, which defines Amplitude, REAL, IN_THREAD, LANES, WARPS and N_SUMS. All sums run in a
// fixed order: REAL in a warp, then double.

// The part of conj(lambda) psi that is wanted.
template <int IMAGINARY> __device__ __forceinline__ REAL product_part(Amplitude lambda, Amplitude psi) {
    return IMAGINARY ? lambda.x * psi.y - lambda.y * psi.x : lambda.x * psi.x + lambda.y * psi.y;
}

// That of conj(lambda[j ^ X]) psi[j], one for each j of psi.
template <int X, int IMAGINARY> __device__ __forceinline__ void products(const Amplitude *a, REAL *p) {
#pragma unroll
    for (int j = 0; j < IN_THREAD; j += 2) p[j / 2] = product_part<IMAGINARY>(a[(j ^ X) | 1], a[j]);
}

// Their sum alone, in few parts that grow at the same time; with another sign where register bits of NEAR are odd.
template <int X, int IMAGINARY, int NEAR> __device__ __forceinline__ REAL sum_alone(const Amplitude *a) {
    constexpr int parts = IN_THREAD / 2 < 4 ? IN_THREAD / 2 : 4;
    REAL sums[parts] = {};
#pragma unroll
    for (int j = 0; j < IN_THREAD; j += 2) {
        const Amplitude psi = a[j], lambda = a[(j ^ X) | 1];
        const REAL sign = is_odd(j & NEAR) ? -1 : 1;
        REAL &sum = sums[j / 2 % parts];
        sum += sign * (IMAGINARY ? lambda.x * psi.y : lambda.x * psi.x);
        sum += sign * (IMAGINARY ? -lambda.y * psi.x : lambda.y * psi.y);
    }
    REAL total = sums[0];
#pragma unroll
    for (int k = 1; k < parts; ++k) total += sums[k];
    return total;
}

// Their sum, in pairs; with another sign where register bits of NEAR are odd. FIRST counts products.
template <int NEAR, int FIRST = 0, int COUNT = IN_THREAD / 2> __device__ __forceinline__ REAL added(const REAL *p) {
    if constexpr (COUNT == 1) {
        return is_odd(2 * FIRST & NEAR) ? -p[FIRST] : p[FIRST];
    } else {
        return added<NEAR, FIRST, COUNT / 2>(p) + added<NEAR, FIRST + COUNT / 2, COUNT / 2>(p);
    }
}

// Sums that a thread has before a warp adds them up.
enum { MOST_TOGETHER = 8 };

// A power of two that is COUNT or more.
__device__ constexpr int rounded_up(int count) {
    int found = 1;
    while (found < count) found *= 2;
    return found;
}

// Each thread of a warp has ROOM numbers, of which the first COUNT are wanted; totals of the warp grow by the sums over its
// threads. Halves of the numbers go to halves of the threads, until each thread has one.
template <int COUNT, int ROOM> __device__ __forceinline__ void add_in_warp(REAL *v, double *totals) {
    const unsigned lane = threadIdx.x % LANES;
    int step = LANES / 2;
#pragma unroll
    for (int i = COUNT; i < ROOM; ++i) v[i] = 0;
#pragma unroll
    for (int half = ROOM / 2; half; half /= 2, step /= 2) {
        const bool upper = lane & step;
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const REAL given = upper ? v[i] : v[i + half], kept = upper ? v[i + half] : v[i];
            v[i] = kept + __shfl_xor_sync(~0u, given, step);
        }
    }
#pragma unroll
    for (; step; step /= 2) v[0] += __shfl_xor_sync(~0u, v[0], step);
    const unsigned at = lane / (LANES / ROOM);
    if (lane % (LANES / ROOM) == 0 && at < COUNT) totals[at] += v[0];
}

#define PRODUCTS(X, IMAGINARY)                                                                                         \
    REAL p[IN_THREAD / 2];                                                                                             \
    products<X, IMAGINARY>(a, p);
#define SUM(AT, NEAR, PARITIES) v[AT] = flipped(added<NEAR>(p), PARITIES);
#define SUM_ALONE(X, IMAGINARY, AT, NEAR, PARITIES) v[AT] = flipped(sum_alone<X, IMAGINARY, NEAR>(a), PARITIES);
#define SUMS(COUNT, FIRST)                                                                                             \
    add_in_warp<COUNT, rounded_up(COUNT)>(v, totals + threadIdx.x / LANES * N_SUMS + (FIRST));
