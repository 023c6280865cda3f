// Inner products of two states about Pauli words, in a pass over both. Register bit 0 selects one: 0 for psi, 1 for
// lambda. Included by program.cu, which defines Amplitude, REAL, IN_THREAD, LANES, WARPS and N_SUMS. All sums run in a
// fixed order: REAL in a warp, then double.

// The part of conj(lambda) psi that is wanted.
template <int IMAGINARY> __device__ __forceinline__ REAL product_part(Amplitude lambda, Amplitude psi) {
    return IMAGINARY ? lambda.x * psi.y - lambda.y * psi.x : lambda.x * psi.x + lambda.y * psi.y;
}

// That of conj(lambda[j ^ X]) psi[j], one for each j of psi.
template <int X, int IMAGINARY, int J = 0> __device__ __forceinline__ void products(const Amplitude *a, REAL *p) {
    if constexpr (J < IN_THREAD) {
        p[J / 2] = product_part<IMAGINARY>(a[(J ^ X) | 1], a[J]);
        products<X, IMAGINARY, J + 2>(a, p);
    }
}

// Their sum alone from J on, every STEP-th; with another sign where register bits of NEAR are odd.
template <int X, int IMAGINARY, int NEAR, int STEP, int J>
__device__ __forceinline__ REAL sum_alone(const Amplitude *a, REAL sum) {
    if constexpr (J >= IN_THREAD) {
        return sum;
    } else {
        const Amplitude psi = a[J], lambda = a[(J ^ X) | 1];
        constexpr bool is_minus = is_odd(J & NEAR);
        sum += (is_minus ? -lambda.x : lambda.x) * (IMAGINARY ? psi.y : psi.x);
        sum += (is_minus != (IMAGINARY != 0) ? -lambda.y : lambda.y) * (IMAGINARY ? psi.x : psi.y);
        return sum_alone<X, IMAGINARY, NEAR, STEP, J + STEP>(a, sum);
    }
}

// In two parts that grow at the same time.
template <int X, int IMAGINARY, int NEAR> __device__ __forceinline__ REAL summed(const Amplitude *a) {
    return sum_alone<X, IMAGINARY, NEAR, 4, 0>(a, 0) + sum_alone<X, IMAGINARY, NEAR, 4, 2>(a, 0);
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
    int power = 1;
    while (power < count) power *= 2;
    return power;
}

// Halves of ROOM numbers go to halves of the threads of a warp, until each thread has one; then threads that have the same
// add up theirs.
template <int ROOM, int STEP, int I = 0> __device__ __forceinline__ void shared_out(bool upper, REAL *v) {
    if constexpr (I < ROOM / 2) {
        const REAL sent = upper ? v[I] : v[I + ROOM / 2], own = upper ? v[I + ROOM / 2] : v[I];
        v[I] = own + __shfl_xor_sync(~0u, sent, STEP);
        shared_out<ROOM, STEP, I + 1>(upper, v);
    }
}

template <int ROOM, int STEP> __device__ __forceinline__ void add_up(unsigned lane, REAL *v) {
    if constexpr (STEP > 0) {
        if constexpr (ROOM > 1)
            shared_out<ROOM, STEP>(lane & STEP, v);
        else
            v[0] += __shfl_xor_sync(~0u, v[0], STEP);
        add_up<(ROOM > 1 ? ROOM / 2 : 1), STEP / 2>(lane, v);
    }
}

// Totals of a warp grow by the sums over its threads of COUNT of ROOM numbers, a power of two.
template <int COUNT, int ROOM> __device__ __forceinline__ void add_in_warp(REAL *v, double *totals) {
    const unsigned lane = threadIdx.x % LANES, at = lane / (LANES / ROOM);
#pragma unroll
    for (int i = COUNT; i < ROOM; ++i) v[i] = 0;
    add_up<ROOM, LANES / 2>(lane, v);
    if (lane % (LANES / ROOM) == 0 && at < COUNT) totals[at] += v[0];
}

#define PRODUCTS(X, IMAGINARY)                                                                                         \
    REAL p[IN_THREAD / 2];                                                                                             \
    products<X, IMAGINARY>(a, p);
#define SUM(AT, NEAR, PARITIES) v[AT] = flipped(added<NEAR>(p), PARITIES);
#define SUM_ALONE(X, IMAGINARY, AT, NEAR, PARITIES) v[AT] = flipped(summed<X, IMAGINARY, NEAR>(a), PARITIES);
#define SUMS(COUNT, FIRST)                                                                                             \
    add_in_warp<COUNT, rounded_up(COUNT)>(v, totals + threadIdx.x / LANES * N_SUMS + (FIRST));
