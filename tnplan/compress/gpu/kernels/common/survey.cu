// What is known of an array before it is coded: the extent of its components, its reflection, how much neighbours tell
// about each other; and an array from its first half.

#include "tile.cuh"
#include "bound.cuh"

#define THREADS 256
#define AHEAD 4
#define CLASSES 6
#define PAIRS (CLASSES * CLASSES)
// Axes that a block looks along.
#define NEAR 8u
#define WARPS (THREADS / LANES)
// Elements of 16 bytes.
#define WIDTH (16 / (COMPONENTS * (unsigned)sizeof(REAL)))

// Numbers whose order is that of the values; 0 is below that of any finite one.
__device__ __forceinline__ BITS rank_of(REAL x)
{
    const BITS bits = bits_of(x);
    return bits & SIGN_BIT ? ~bits : bits | SIGN_BIT;
}

// Ranks of the least and greatest finite values, and how much the bits of the least normal magnitude are above those
// of the least normal number; whether a value is not finite.
struct Reach {
    BITS least, greatest, normal, odd;
};

__device__ __forceinline__ void see(Reach& reach, REAL x)
{
    const BITS size = bits_of(x) & ~SIGN_BIT, rank = rank_of(x), above = size - (BITS)least_normal();
    if (size >= (BITS)infinite()) {
        reach.odd = 1;
        return;
    }
    if (rank > reach.greatest) reach.greatest = rank;
    if (rank < reach.least) reach.least = rank;
    if (above < reach.normal) reach.normal = above;
}

// What a thread has seen: extents, and bits in which elements differ from their images, and from those with signs
// flipped.
struct Seen {
    Reach reaches[COMPONENTS];
    BITS changed, flipped;
};

// Look at pairs of a part of the array and its image, `width` elements at once. n_elements is a multiple of twice
// the width, but that of single ones may be odd.
template <unsigned width> __device__ __forceinline__ void look(const Element* values, Word n_elements, Seen& seen)
{
    struct __align__(width * sizeof(Element)) Part {
        Element of[width];
    };
    const Part* parts = (const Part*)values;
    const Word all = n_elements / width, half = all / 2, step = (Word)gridDim.x * THREADS * AHEAD;
    for (Word first = (Word)blockIdx.x * THREADS * AHEAD + threadIdx.x; first < half; first += step) {
        Part here[AHEAD], there[AHEAD];
#pragma unroll
        for (unsigned k = 0; k < AHEAD; ++k) {
            const Word i = first + k * THREADS < half ? first + k * THREADS : first;
            here[k] = parts[i], there[k] = parts[all - 1 - i];
        }
#pragma unroll
        for (unsigned k = 0; k < AHEAD * width; ++k) {
            const Element one = here[k / width].of[k % width], other = there[k / width].of[width - 1 - k % width];
#pragma unroll
            for (unsigned c = 0; c < COMPONENTS; ++c) {
                const BITS bits = bits_of(one.part[c]) ^ bits_of(other.part[c]);
                seen.changed |= bits, seen.flipped |= bits ^ SIGN_BIT;
                see(seen.reaches[c], one.part[c]);
                see(seen.reaches[c], other.part[c]);
            }
        }
    }
}

// The largest of the warp's numbers, in lane 0.
__device__ __forceinline__ unsigned largest(unsigned number) { return __reduce_max_sync(WHOLE_WARP, number); }

__device__ __forceinline__ Word largest(Word number)
{
    for (unsigned step = LANES / 2; step; step /= 2) {
        const Word other = __shfl_down_sync(WHOLE_WARP, number, step);
        if (other > number) number = other;
    }
    return number;
}

// found (COMPONENTS, 4) and two more, from zero: complement of the rank of the least finite value, rank of the
// greatest, complement of the bits of the least normal magnitude, 1 where a value is not finite; then whether an
// element's bits are not those of its reflection, and whether not the same with all signs flipped.
extern "C" __global__ void __launch_bounds__(THREADS) survey(const Element* values, Word n_elements, BITS* found)
{
    __shared__ BITS warp_values[WARPS][FOUND];
    Seen seen;
    for (unsigned c = 0; c < COMPONENTS; ++c) seen.reaches[c] = {~(BITS)0, 0, ~(BITS)0, 0};
    seen.changed = seen.flipped = 0;
    if (n_elements % (2 * WIDTH) == 0 && (Word)values % (WIDTH * sizeof(Element)) == 0) {
        look<WIDTH>(values, n_elements, seen);
    } else {
        look<1>(values, n_elements, seen);
    }
    BITS own[FOUND];
#pragma unroll
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        Reach& reach = seen.reaches[c];
        // The middle of an odd number of elements is no one's image.
        if (n_elements % 2) see(reach, values[n_elements / 2].part[c]);
        const bool normal = reach.normal < (BITS)infinite() - (BITS)least_normal();
        own[4 * c] = ~reach.least, own[4 * c + 1] = reach.greatest, own[4 * c + 3] = reach.odd;
        own[4 * c + 2] = normal ? (BITS)~(reach.normal + (BITS)least_normal()) : 0;
    }
    own[FOUND - 2] = seen.changed != 0, own[FOUND - 1] = seen.flipped != 0;
#pragma unroll
    for (unsigned k = 0; k < FOUND; ++k) {
        own[k] = largest(own[k]);
        if (threadIdx.x % LANES == 0) warp_values[threadIdx.x / LANES][k] = own[k];
    }
    __syncthreads();
    if (threadIdx.x >= FOUND) return;
    BITS most = 0;
    for (unsigned w = 0; w < WARPS; ++w) most = warp_values[w][threadIdx.x] > most ? warp_values[w][threadIdx.x] : most;
    if (most) atomicMax(&found[threadIdx.x], most);
}

__device__ __forceinline__ unsigned class_of(const Element& element, const Rules& rules)
{
    Word sum = 0;
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        bool missed;
        const int number = quantized(element.part[c], rules.of[c], missed);
        sum += number < 0 ? -number : number;
    }
    return sum < 1u << (CLASSES - 2) ? 32 - __clz((unsigned)sum) : CLASSES - 1;
}

// Count the pairs of classes of sampled elements and of their neighbours along each axis, of those that the stream of
// an array of n_elements will hold: counts (n_axes, CLASSES, CLASSES), from zero (compress/format/bit_tiling.py: sampled). found:
// what the survey found, and `done`, blocks that are; axes beyond those of the elements are left out. A thread a sample
// along x, NEAR axes along y. The last block sends the host the n_words of 32 bits that `found`, `done` and counts are.
extern "C" __global__ void __launch_bounds__(THREADS) neighbours(
    const Element* values, Word n_elements, Bound bound, unsigned samples, unsigned n_axes, BITS* found, unsigned* counts,
    unsigned n_words, Word* mailbox)
{
    __shared__ bool last;
    __shared__ unsigned sums[NEAR * PAIRS];
    __shared__ Rules rules;
    const Word stored = is_mirrored(found, n_elements) ? (n_elements + 1) / 2 : n_elements;
    while (stored >> n_axes == 0) --n_axes;
    const unsigned first = blockIdx.y * NEAR, n_near = n_axes > first ? min(NEAR, n_axes - first) : 0;
    for (unsigned k = threadIdx.x; k < NEAR * PAIRS; k += THREADS) sums[k] = 0;
    if (threadIdx.x < COMPONENTS) rules.of[threadIdx.x] = rule_of(found + 4 * threadIdx.x, bound);
    __syncthreads();
    const Word whole = stored >> n_axes << n_axes;
    for (unsigned k = blockIdx.x * THREADS + threadIdx.x; k < samples && n_near; k += gridDim.x * THREADS) {
        Word mixed = (k + 1ull) * 0x9E3779B97F4A7C15ull;
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9ull;
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBull;
        const Word number = (mixed ^ mixed >> 31) % whole;
        const Element one = values[number];
        Element near[NEAR];
#pragma unroll
        for (unsigned j = 0; j < NEAR; ++j) near[j] = values[number ^ (Word)(j < n_near) << (first + j)];
        const unsigned own = class_of(one, rules) * CLASSES;
#pragma unroll
        for (unsigned j = 0; j < NEAR && j < n_near; ++j) {
            atomicAdd(&sums[j * PAIRS + own + class_of(near[j], rules)], 1u);
        }
    }
    __syncthreads();
    for (unsigned k = threadIdx.x; k < n_near * PAIRS; k += THREADS) {
        if (sums[k]) atomicAdd(&counts[first * PAIRS + k], sums[k]);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(&found[FOUND], (BITS)1) + 1 == gridDim.x * gridDim.y;
    __syncthreads();
    if (!last) return;
    for (unsigned k = threadIdx.x; k < n_words; k += THREADS) ((unsigned*)mailbox)[k] = ((volatile unsigned*)found)[k];
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) post(mailbox, (n_words + 1) / 2 + 1);
}

// The sum over the block, in thread 0.
__device__ __forceinline__ double over_block(double value, double* buffer)
{
    buffer[threadIdx.x] = value;
    for (unsigned half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) buffer[threadIdx.x] += buffer[threadIdx.x + half];
    }
    const double sum = threadIdx.x == 0 ? buffer[0] : 0;
    __syncthreads();
    return sum;
}

// The sum of squares of each block's numbers in double precision: sums (gridDim.x).
extern "C" __global__ void __launch_bounds__(THREADS) sum_squares(const REAL* numbers, Word n_numbers, double* sums)
{
    __shared__ double buffer[THREADS];
    double sum = 0;
    const Word step = (Word)gridDim.x * THREADS;
#pragma unroll 8
    for (Word i = (Word)blockIdx.x * THREADS + threadIdx.x; i < n_numbers; i += step) {
        const double x = numbers[i];
        sum += x * x;
    }
    sum = over_block(sum, buffer);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// Over x, n_samples elements, and y, every stride-th value: add each block's sums of the real and imaginary parts of
// conj(x) y, of |x|^2 and of |y|^2 to its row of sums (gridDim.x, 4).
extern "C" __global__ void __launch_bounds__(THREADS) add_overlaps(
    const Element* samples, const Element* values, Word n_samples, Word stride, double* sums)
{
    __shared__ double buffer[THREADS];
    double own[4] = {};
    const Word step = (Word)gridDim.x * THREADS;
#pragma unroll 8
    for (Word i = (Word)blockIdx.x * THREADS + threadIdx.x; i < n_samples; i += step) {
        const Element x = samples[i], y = values[i * stride];
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            const double a = x.part[c], b = y.part[c];
            own[0] += a * b, own[2] += a * a, own[3] += b * b;
            if (c) own[1] += x.part[0] * b - a * y.part[0];
        }
    }
    for (unsigned k = 0; k < 4; ++k) {
        const double sum = over_block(own[k], buffer);
        if (threadIdx.x == 0) sums[4 * blockIdx.x + k] += sum;
    }
}

// Fill the second half of an array that is its reflection from the first `stored` elements.
extern "C" __global__ void __launch_bounds__(THREADS) fill_reflected(
    Element* values, Word n_elements, Word stored, unsigned negated)
{
    for (Word i = (Word)blockIdx.x * THREADS + threadIdx.x; i < n_elements - stored; i += (Word)gridDim.x * THREADS) {
        Element element = values[i];
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            if (negated) element.part[c] = value_of((BITS)(bits_of(element.part[c]) ^ SIGN_BIT));
        }
        values[n_elements - 1 - i] = element;
    }
}
