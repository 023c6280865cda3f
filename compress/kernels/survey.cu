// What is known of an array before it is coded: the extent of its components, its mirror; and checksums.

#include "quantize.cuh"

#define THREADS 256

// Fold `count` numbers a thread over the block; every thread takes part.
template <typename T, typename Fold>
__device__ __forceinline__ T folded(T mine, T* room, Fold fold)
{
    room[threadIdx.x] = mine;
    for (unsigned half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) room[threadIdx.x] = fold(room[threadIdx.x], room[threadIdx.x + half]);
    }
    __syncthreads();
    const T all = room[0];
    __syncthreads();
    return all;
}

// For each block and component: least and greatest finite value, least normal magnitude (infinity where there
// is none), and how many values are not finite. reaches (gridDim.x, COMPONENTS, 4).
extern "C" __global__ void __launch_bounds__(THREADS) extents(
    const Element* values, Word n_elements, REAL* reaches)
{
    __shared__ REAL room[THREADS];
    const REAL top = value_of((BITS)infinite());
    const auto lesser = [](REAL a, REAL b) { return a < b ? a : b; };
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        REAL least = top, greatest = -top, normal = top, odd = 0;
        for (Word i = (Word)blockIdx.x * THREADS + threadIdx.x; i < n_elements; i += (Word)gridDim.x * THREADS) {
            const REAL x = values[i].part[c], size = magnitude(x);
            if (!(size < top)) {
                odd = 1;
                continue;
            }
            least = lesser(least, x);
            greatest = -lesser(-greatest, -x);
            if (size >= value_of((BITS)least_normal())) normal = lesser(normal, size);
        }
        const REAL found[4] = {
            folded(least, room, lesser), -folded(-greatest, room, lesser), folded(normal, room, lesser),
            -folded(-odd, room, lesser)};
        if (threadIdx.x < 4) reaches[((Word)blockIdx.x * COMPONENTS + c) * 4 + threadIdx.x] = found[threadIdx.x];
    }
}

// differs (2) is set to 1 at 0 where an element's bits are not those of its mirror image, at 1 where they are
// not the same with all signs flipped.
extern "C" __global__ void __launch_bounds__(THREADS) mirror(
    const Element* values, Word n_elements, unsigned* differs)
{
    for (Word i = (Word)blockIdx.x * THREADS + threadIdx.x; i < n_elements / 2; i += (Word)gridDim.x * THREADS) {
        if (differs[0] && differs[1]) return;
        const Element a = values[i], b = values[n_elements - 1 - i];
        for (unsigned c = 0; c < COMPONENTS; ++c) {
            const BITS changed = bits_of(a.part[c]) ^ bits_of(b.part[c]);
            if (changed != 0) differs[0] = 1;
            if (changed != SIGN_BIT) differs[1] = 1;
        }
    }
}

// Fill the second half of a mirrored array from the first `stored` elements.
extern "C" __global__ void __launch_bounds__(THREADS) fill_mirrored(
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

// Add the words' part of compress.stream.checksum to sums[y]: `words[starts[y]:]`, counts[y] words for each y.
extern "C" __global__ void __launch_bounds__(THREADS) checksums(
    const Word* words, const Word* starts, const Word* counts, Word* sums)
{
    __shared__ Word room[THREADS];
    const Word* own = words + starts[blockIdx.y];
    Word sum = 0;
    for (Word i = (Word)blockIdx.x * THREADS + threadIdx.x; i < counts[blockIdx.y]; i += (Word)gridDim.x * THREADS) {
        Word mixed = (own[i] ^ (i + 1) * 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
        mixed = (mixed ^ mixed >> 32) * 0x9E3779B97F4A7C15ull;
        sum += mixed ^ mixed >> 29;
    }
    sum = folded(sum, room, [](Word a, Word b) { return a + b; });
    if (threadIdx.x == 0 && sum) atomicAdd(&sums[blockIdx.y], sum);
}
