// Pauli words between two state vectors: inner products of many words at once, and words times a state.
//
// Defines: REAL (float or double), TILE_BITS, THREADS (of a block of `between`; a power of two, 32 to 2^TILE_BITS).
// The numba twin is executor/statevector/cpu/measure_kernel.py. All sums run in a fixed order.

typedef long long Index;

struct alignas(2 * sizeof(REAL)) Amplitude {
    REAL x, y;
};

// A word on the bits of a tile; `far` has those of z outside of it.
struct Word {
    unsigned x, z;
    Index far;
};

// A word on the bits of an index, times a factor.
struct Term {
    Index x, z;
    double2 factor;
};

#define IN_THREAD ((1 << TILE_BITS) / THREADS)
#define WARPS (THREADS / 32)
#define ALL 0xffffffffu

__device__ __forceinline__ float flipped(float number, unsigned odd) {
    return __uint_as_float(__float_as_uint(number) ^ odd << 31);
}

__device__ __forceinline__ double flipped(double number, unsigned odd) {
    return __hiloint2double(__double2hiint(number) ^ (int)(odd << 31), __double2loint(number));
}

// Element i of a word times a factor times a state.
__device__ __forceinline__ double2 times_word(const Amplitude *source, Index i, Term term) {
    const Amplitude b = source[i ^ term.x];
    const unsigned odd = __popcll(term.z & (i ^ term.x));
    const double re = flipped(term.factor.x, odd), im = flipped(term.factor.y, odd);
    return {re * b.x - im * b.y, re * b.y + im * b.x};
}

// out[block * n_words + k] = the part of the tiles of this block in the sum over i of (-1)^|z & i| conj(others[i ^ x])
// own[i], real and imaginary part, for word k. A tile of `others` lies in shared memory, that of `own` in registers.
// starts[row]: where a run of 2^run_bits amplitudes of a tile begins; far: the bits of a tile's number. All words have
// the same bits `far_x` of x outside of a tile; those with the same x in it, next to each other, share products. A thread adds up its amplitudes of a tile in REAL, all else is double.
extern "C" __global__ void __launch_bounds__(THREADS)
    between(const Amplitude *__restrict__ own, const Amplitude *__restrict__ others, Index n_tiles,
            const int *__restrict__ far, int n_far, const Index *__restrict__ starts, int run_bits, Index far_x,
            const Word *__restrict__ words, int n_words, double2 *__restrict__ out) {
    extern __shared__ __align__(16) unsigned char shared[];
    double2 *sums = (double2 *)shared;
    Amplitude *tile = (Amplitude *)(sums + n_words * WARPS);
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, in_run = (1u << run_bits) - 1;
    for (int k = threadIdx.x; k < n_words * WARPS; k += THREADS) sums[k] = {0, 0};
    for (Index number = blockIdx.x; number < n_tiles; number += gridDim.x) {
        Index base = 0;
        for (int k = 0; k < n_far; ++k) base |= (number >> k & 1) << far[k];
        Amplitude a[IN_THREAD];
        __syncthreads();
#pragma unroll
        for (int j = 0; j < IN_THREAD; ++j) {
            const unsigned i = threadIdx.x + j * THREADS;
            const Index at = base + starts[i >> run_bits] + (i & in_run);
            a[j] = own[at];
            tile[i] = others[at ^ far_x];
        }
        __syncthreads();
        REAL p[IN_THREAD], q[IN_THREAD], all_p = 0, all_q = 0;
        unsigned x = ~0u;
#pragma unroll 1
        for (int k = 0; k < n_words; ++k) {
            const Word word = words[k];
            if (word.x != x) {
                x = word.x;
                all_p = all_q = 0;
#pragma unroll
                for (int j = 0; j < IN_THREAD; ++j) {
                    const Amplitude b = tile[(threadIdx.x + j * THREADS) ^ x];
                    all_p += p[j] = b.x * a[j].x + b.y * a[j].y;
                    all_q += q[j] = b.x * a[j].y - b.y * a[j].x;
                }
            }
            REAL own_p = all_p, own_q = all_q;
            const unsigned z = word.z / THREADS;
            if (z) {
                own_p = own_q = 0;
#pragma unroll
                for (int j = 0; j < IN_THREAD; ++j) {
                    const unsigned odd = __popc(j & z);
                    own_p += flipped(p[j], odd);
                    own_q += flipped(q[j], odd);
                }
            }
            const unsigned odd = __popcll(word.far & base) + __popc(threadIdx.x & word.z);
            double re = flipped((double)own_p, odd), im = flipped((double)own_q, odd);
#pragma unroll
            for (int step = 16; step > 0; step /= 2) {
                re += __shfl_xor_sync(ALL, re, step);
                im += __shfl_xor_sync(ALL, im, step);
            }
            if (lane == 0) {
                sums[k * WARPS + warp].x += re;
                sums[k * WARPS + warp].y += im;
            }
        }
    }
    __syncthreads();
    for (int k = threadIdx.x; k < n_words; k += THREADS) {
        double2 total = {0, 0};
        for (int w = 0; w < WARPS; ++w) {
            total.x += sums[k * WARPS + w].x;
            total.y += sums[k * WARPS + w].y;
        }
        out[(Index)blockIdx.x * n_words + k] = total;
    }
}

// out[i] += factor (-1)^|z & (i ^ x)| source[i ^ x] for i below `count`, in double precision.
extern "C" __global__ void add_word(Amplitude *out, const Amplitude *source, Index count, Index x, Index z,
                                    double2 factor) {
    for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (Index)gridDim.x * blockDim.x) {
        const double2 more = times_word(source, i, {x, z, factor});
        const Amplitude a = out[i];
        out[i] = {(REAL)(a.x + more.x), (REAL)(a.y + more.y)};
    }
}

// both[2 i] = source[i], both[2 i + 1] = the sum over the terms of factor (-1)^|z & (i ^ x)| source[i ^ x].
extern "C" __global__ void join(Amplitude *both, const Amplitude *source, Index count, const Term *terms, int n_terms) {
    for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (Index)gridDim.x * blockDim.x) {
        double2 sum = {0, 0};
        for (int k = 0; k < n_terms; ++k) {
            const double2 more = times_word(source, i, terms[k]);
            sum = {sum.x + more.x, sum.y + more.y};
        }
        both[2 * i] = source[i];
        both[2 * i + 1] = {(REAL)sum.x, (REAL)sum.y};
    }
}
