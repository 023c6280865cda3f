// Rows of a qubit Hamiltonian in a list of bit strings (qubit_hamiltonian.py, string_table.py).
//
// A warp makes a row, its lanes take the groups of words in turn. Every element of y is written by one thread, and its
// sum runs in one order, so that the same bits come out every time. CPU twin: qubit_kernel.py.
//
// Injected: WORDS words of a string, THREADS of a block, COMPLEX (1: elements are complex).

typedef unsigned long long Word;

#include "strings.cuh"

#if COMPLEX
struct Value {
    double real, imaginary;
};
__device__ inline Value value_of(double real, double imaginary) { return {real, imaginary}; }
__device__ inline void add_product(Value &sum, Value a, Value b) {
    sum.real += a.real * b.real - a.imaginary * b.imaginary;
    sum.imaginary += a.real * b.imaginary + a.imaginary * b.real;
}
__device__ inline void add(Value &sum, Value a) {
    sum.real += a.real;
    sum.imaginary += a.imaginary;
}
#else
typedef double Value;
__device__ inline Value value_of(double real, double) { return real; }
__device__ inline void add_product(Value &sum, Value a, Value b) { sum += a * b; }
__device__ inline void add(Value &sum, Value a) { sum += a; }
#endif

__device__ inline Value value_of_warp(Value sum) {
#if COMPLEX
    return {sum_of_warp(sum.real), sum_of_warp(sum.imaginary)};
#else
    return sum_of_warp(sum);
#endif
}

// Strings in rising order, their hash table and its sieve; both have a power of two of entries.
struct Strings {
    const Word *words;
    const int *slots;
    Index n_slots;
    const Word *sieve;
    Index n_sieve;
};

// The number of a string; -1 where it is not in the list.
__device__ inline int find(const String &string, const Strings &s) {
    Word mixed = 0;
#pragma unroll
    for (int w = 0; w < WORDS; ++w) {
        mixed = (mixed ^ string.words[w]) * 0x9E3779B97F4A7C15ull;
        mixed ^= mixed >> 32;
    }
    mixed = mixed * 0x9E3779B97F4A7C15ull >> 32;
    const Word bit = mixed & (Word)(64 * s.n_sieve - 1);
    if (!(s.sieve[bit >> 6] >> (bit & 63) & 1))
        return -1;
    for (Word at = mixed & (Word)(s.n_slots - 1);; at = (at + 1) & (Word)(s.n_slots - 1)) {
        const int number = s.slots[at];
        if (number < 0)
            return -1;
        Word differ = 0;
#pragma unroll
        for (int w = 0; w < WORDS; ++w)
            differ |= s.words[WORDS * (Index)number + w] ^ string.words[w];
        if (!differ)
            return number;
    }
}

// The partner of a string by group g.
__device__ inline int partner(const String &own, const Word *__restrict__ flips, Index g, const Strings &s) {
    String other = string_at(flips, g);
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        other.words[w] ^= own.words[w];
    return find(other, s);
}

__device__ inline double signed_sum(const String &own, const Word *__restrict__ signs, const double *__restrict__ factors,
                                    Index first, Index last) {
    double sum = 0;
    for (Index t = first; t < last; ++t) {
        int odd = 0;
#pragma unroll
        for (int w = 0; w < WORDS; ++w)
            odd ^= __popcll(own.words[w] & signs[WORDS * t + w]);
        sum += odd & 1 ? -factors[t] : factors[t];
    }
    return sum;
}

// The numbers of elements of a rank's rows.
extern "C" __global__ void __launch_bounds__(THREADS)
    count_rows(Index n_rows, Index above, Index n_slots, Index n_sieve, Index n_groups, const Word *__restrict__ words,
               const int *__restrict__ slots, const Word *__restrict__ sieve, const Word *__restrict__ flips,
               Index *__restrict__ counts) {
    const Index i = (Index)blockIdx.x * WARPS + threadIdx.x / 32;
    if (i >= n_rows)
        return;
    const Strings s = {words, slots, n_slots, sieve, n_sieve};
    const int lane = threadIdx.x % 32;
    const String own = string_at(words, above + i);
    Index count = 1;
    for (Index base = 0; base < n_groups; base += 32) {
        const Index g = base + lane;
        count += __popcll((Word)__ballot_sync(ALL, g < n_groups && partner(own, flips, g, s) >= 0));
    }
    if (lane == 0)
        counts[i] = count;
}

// Columns and values of the elements of a rank's rows.
extern "C" __global__ void __launch_bounds__(THREADS)
    fill_rows(Index n_rows, Index above, Index n_slots, Index n_sieve, Index n_groups, const Word *__restrict__ words,
              const int *__restrict__ slots, const Word *__restrict__ sieve, const Word *__restrict__ flips,
              const Index *__restrict__ start, const Index *__restrict__ middle, const Word *__restrict__ signs,
              const double *__restrict__ factors, const double *__restrict__ diagonal, const Index *__restrict__ row,
              int *__restrict__ column, Value *__restrict__ value) {
    const Index i = (Index)blockIdx.x * WARPS + threadIdx.x / 32;
    if (i >= n_rows)
        return;
    const Strings s = {words, slots, n_slots, sieve, n_sieve};
    const int lane = threadIdx.x % 32;
    const String own = string_at(words, above + i);
    Index e = row[i];
    if (lane == 0) {
        column[e] = (int)(above + i);
        value[e] = value_of(diagonal[i], 0);
    }
    ++e;
    for (Index base = 0; base < n_groups; base += 32) {
        const Index g = base + lane;
        const int number = g < n_groups ? partner(own, flips, g, s) : -1;
        const unsigned coupled = __ballot_sync(ALL, number >= 0);
        if (number >= 0) {
            const Index at = e + __popcll((Word)(coupled & ((1u << lane) - 1)));
            column[at] = number;
            value[at] = value_of(signed_sum(own, signs, factors, start[g], middle[g]),
                                 signed_sum(own, signs, factors, middle[g], start[g + 1]));
        }
        e += __popcll((Word)coupled);
    }
}

// Adds a rank's rows of a product to y; elements are made for it.
extern "C" __global__ void __launch_bounds__(THREADS)
    add_rows(Index n_rows, Index above, Index n_slots, Index n_sieve, Index n_groups, const Word *__restrict__ words,
             const int *__restrict__ slots, const Word *__restrict__ sieve, const Word *__restrict__ flips,
             const Index *__restrict__ start, const Index *__restrict__ middle, const Word *__restrict__ signs,
             const double *__restrict__ factors, const double *__restrict__ diagonal, const Value *__restrict__ x,
             Value *__restrict__ y) {
    const Index i = (Index)blockIdx.x * WARPS + threadIdx.x / 32;
    if (i >= n_rows)
        return;
    const Strings s = {words, slots, n_slots, sieve, n_sieve};
    const int lane = threadIdx.x % 32;
    const String own = string_at(words, above + i);
    Value sum = value_of(0, 0);
    for (Index g = lane; g < n_groups; g += 32) {
        const int number = partner(own, flips, g, s);
        if (number >= 0) {
            const Value element = value_of(signed_sum(own, signs, factors, start[g], middle[g]),
                                           signed_sum(own, signs, factors, middle[g], start[g + 1]));
            add_product(sum, element, x[number]);
        }
    }
    sum = value_of_warp(sum);
    if (lane == 0) {
        add_product(sum, value_of(diagonal[i], 0), x[above + i]);
        add(y[i], sum);
    }
}

// Adds a rank's rows of a product to y, from elements that are kept.
extern "C" __global__ void __launch_bounds__(THREADS)
    add_sparse(Index n_rows, const Index *__restrict__ row, const int *__restrict__ column,
               const Value *__restrict__ value, const Value *__restrict__ x, Value *__restrict__ y) {
    const Index i = (Index)blockIdx.x * WARPS + threadIdx.x / 32;
    if (i >= n_rows)
        return;
    const int lane = threadIdx.x % 32;
    Value sum = value_of(0, 0);
    for (Index e = row[i] + lane; e < row[i + 1]; e += 32)
        add_product(sum, value[e], x[column[e]]);
    sum = value_of_warp(sum);
    if (lane == 0)
        add(y[i], sum);
}
