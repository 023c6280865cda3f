// Measuring a state vector: probabilities of chunks, samples, marginals, Pauli words. Sums are doubles.
//
// Defines: REAL (float or double), THREADS (a power of two); CODE_BITS (8 or 16) where the state is that of packed.cuh: its
// first argument is then where the numbers are. A chunk is 2^chunk_bits neighbouring amplitudes. The
// numba twin is executor/statevector/cpu/measure_kernel.py. All sums but those of `marginal` run in a fixed order.

typedef long long Index;

struct alignas(2 * sizeof(REAL)) Amplitude {
    REAL x, y;
};

#ifdef CODE_BITS
struct Codes {
#if CODE_BITS == 8
    signed char
#else
    short
#endif
        re[32], im[32];
};

__device__ __forceinline__ Amplitude decoded(const Codes *blocks, const float *scales, Index i) {
    const REAL scale = scales[i >> 5];
    const Codes &codes = blocks[i >> 5];
    return {codes.re[i & 31] * scale, codes.im[i & 31] * scale};
}
#define AT(STATE, I) decoded((const Codes *)(STATE), STATE##_scales, I)
#else
#define AT(STATE, I) (STATE)[I]
#endif

__device__ __forceinline__ double weight(Amplitude a) {
    return (double)a.x * a.x + (double)a.y * a.y;
}

// The sum of one value of each thread, in every thread.
__device__ double block_sum(double value, double *parts) {
    parts[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        __syncthreads();
    }
    const double sum = parts[0];
    __syncthreads();
    return sum;
}

// out[chunk] = the probability of each chunk.
extern "C" __global__ void chunk_sums(const Amplitude *__restrict__ state, int chunk_bits, Index n_chunks,
                                      double *__restrict__ out
#ifdef CODE_BITS
                                      , const float *__restrict__ state_scales
#endif
) {
    __shared__ double parts[THREADS];
    for (Index chunk = blockIdx.x; chunk < n_chunks; chunk += gridDim.x) {
        const Index own = chunk << chunk_bits;
        double sum = 0;
        for (int i = threadIdx.x; i < 1 << chunk_bits; i += THREADS) sum += weight(AT(state, own + i));
        sum = block_sum(sum, parts);
        if (threadIdx.x == 0) out[chunk] = sum;
    }
}

// out[k] = the index in chunk chunks[c] up to which probability rests[k] is reached, for k in first[c] .. first[c+1]-1.
// Threads sum segments of the chunk, then find their shots' segments and places. Amplitudes that are 0 are never drawn.
extern "C" __global__ void draw(const Amplitude *__restrict__ state, int chunk_bits, Index n_chunks,
                                const Index *__restrict__ chunks, const Index *__restrict__ first,
                                const double *__restrict__ rests, Index *__restrict__ out
#ifdef CODE_BITS
                                      , const float *__restrict__ state_scales
#endif
) {
    __shared__ double reached[THREADS + 1];
    const int length = max(1, (1 << chunk_bits) / THREADS);
    const int n_segments = (1 << chunk_bits) / length;
    for (Index c = blockIdx.x; c < n_chunks; c += gridDim.x) {
        const Index start = chunks[c] << chunk_bits;
        const int segment = threadIdx.x;
        double sum = 0;
        if (segment < n_segments)
            for (int i = 0; i < length; ++i) sum += weight(AT(state, start + segment * length + i));
        reached[segment + 1] = sum;
        __syncthreads();
        if (threadIdx.x == 0) {
            reached[0] = 0;
            for (int k = 1; k <= n_segments; ++k) reached[k] += reached[k - 1];
        }
        __syncthreads();
        for (Index k = first[c] + threadIdx.x; k < first[c + 1]; k += THREADS) {
            int at = 0;
            while (at < n_segments - 1 && reached[at + 1] <= rests[k]) ++at;
            while (at > 0 && reached[at + 1] <= reached[at]) --at;
            double total = reached[at];
            Index found = start + at * length;
            for (Index i = found; i < start + (at + 1) * length; ++i) {
                const double p = weight(AT(state, i));
                if (p == 0) continue;
                total += p;
                found = i;
                if (rests[k] < total) break;
            }
            out[k] = found;
        }
        __syncthreads();
    }
}

// out[value of `bits`, the first least significant] += the probability of every amplitude.
extern "C" __global__ void marginal(const Amplitude *__restrict__ state, Index count, const int *__restrict__ bits,
                                    int n_bits, double *__restrict__ out
#ifdef CODE_BITS
                                      , const float *__restrict__ state_scales
#endif
) {
    for (Index i = (Index)blockIdx.x * THREADS + threadIdx.x; i < count; i += (Index)gridDim.x * THREADS) {
        int value = 0;
        for (int k = 0; k < n_bits; ++k) value |= (int)(i >> bits[k] & 1) << k;
        atomicAdd(out + value, weight(AT(state, i)));
    }
}

// out[block] = its part of the sum over i of (-1)^|z & i| conj(others[i ^ x]) own[i], real and
// imaginary part.
extern "C" __global__ void pauli(const Amplitude *__restrict__ own, const Amplitude *__restrict__ others, Index count,
                                 Index x, Index z, double2 *__restrict__ out
#ifdef CODE_BITS
                                      , const float *__restrict__ own_scales, const float *__restrict__ others_scales
#endif
) {
    __shared__ double parts[THREADS];
    double re = 0, im = 0;
    for (Index i = (Index)blockIdx.x * THREADS + threadIdx.x; i < count; i += (Index)gridDim.x * THREADS) {
        const Amplitude a = AT(others, i ^ x), b = AT(own, i);
        const double sign = __popcll(z & i) & 1 ? -1 : 1;
        re += sign * ((double)a.x * b.x + (double)a.y * b.y);
        im += sign * ((double)a.x * b.y - (double)a.y * b.x);
    }
    re = block_sum(re, parts);
    im = block_sum(im, parts);
    if (threadIdx.x == 0) out[blockIdx.x] = {re, im};
}
