// Powers of two that keep tensors within the range of their type, found and used without the host. NumPy twin:
// executor/device/cpu/exponents.py.
//
// Defines: REAL (float or double; a complex number counts as two), REAL_BYTES, WIDTH (numbers that a thread takes at
// once), ZERO (the exponent of a tensor of zeros; no sum with it comes above half of it).
// The bits of absolute values are ordered as the values are; those of what is not finite come last.

#if REAL_BYTES == 8
typedef unsigned long long Word;
#define SIGN 0x8000000000000000ull
#define FRACTION_BITS 52
#define BIAS 1023
#else
typedef unsigned Word;
#define SIGN 0x80000000u
#define FRACTION_BITS 23
#define BIAS 127
#endif
#define NOT_FINITE ((Word)(2 * BIAS + 1) << FRACTION_BITS)
#define MOST_WARPS 32
#define BATCH 8

struct __align__(REAL_BYTES * WIDTH) Unit {
    REAL value[WIDTH];
};

__device__ __forceinline__ Word magnitude(REAL x)
{
#if REAL_BYTES == 8
    return (Word)__double_as_longlong(x) & ~SIGN;
#else
    return __float_as_uint(x) & ~SIGN;
#endif
}

__device__ __forceinline__ Word larger(Word one, Word other) { return one > other ? one : other; }

// The p of 2^(p-1) <= x < 2^p; ZERO for zero, 0 for what is not finite.
__device__ __forceinline__ int power_of(Word x)
{
    if (x == 0) return ZERO;
    if (x >= NOT_FINITE) return 0;
    int power = (int)(x >> FRACTION_BITS);
    if (power) return power - (BIAS - 1);
    for (power = 1 - BIAS - FRACTION_BITS; x; x >>= 1) ++power;
    return power;
}

// Divides by 2^power as two factors do, each of which is within the range. ZERO divides nothing.
struct Scale {
    REAL one, two;
    __device__ explicit Scale(int power)
    {
        const int most = 2 * (BIAS - 2);
        power = power == ZERO ? 0 : power < -most ? most : power > most ? -most : -power;
        one = factor(power / 2);
        two = factor(power - power / 2);
    }
    static __device__ __forceinline__ REAL factor(int power)
    {
#if REAL_BYTES == 8
        return __longlong_as_double((long long)(BIAS + power) << FRACTION_BITS);
#else
        return __uint_as_float((unsigned)(BIAS + power) << FRACTION_BITS);
#endif
    }
    __device__ __forceinline__ REAL operator()(REAL x) const { return x * one * two; }
};

// The largest of the values that the threads of a block give, for all of them; once in a kernel.
__device__ __forceinline__ Word block_largest(Word largest)
{
    __shared__ Word of_warps[MOST_WARPS];
    for (int bits = 16; bits > 0; bits /= 2) largest = larger(largest, __shfl_xor_sync(~0u, largest, bits));
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = largest;
    __syncthreads();
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) largest = larger(largest, of_warps[warp]);
    return largest;
}

// Every blockDim.x-th of n values from the i-th on, all read at once; zeros beyond the end.
__device__ __forceinline__ void read_batch(REAL* batch, const REAL* values, long long i, long long n)
{
#pragma unroll
    for (int k = 0; k < BATCH; ++k) batch[k] = i + k * blockDim.x < n ? values[i + k * blockDim.x] : REAL(0);
}

// The bits of the largest of n values, for all threads of the only block that reads them.
__device__ __forceinline__ Word largest_in_block(const REAL* values, long long n)
{
    Word largest = 0;
    for (long long i = threadIdx.x; i < n; i += BATCH * blockDim.x) {
        REAL batch[BATCH];
        read_batch(batch, values, i, n);
#pragma unroll
        for (int k = 0; k < BATCH; ++k) largest = larger(largest, magnitude(batch[k]));
    }
    return block_largest(largest);
}

// The sum of the slots of some terms, for all threads of a block; once in a kernel.
__device__ __forceinline__ long long sum_of_slots(const int* slots, const int* terms, unsigned n_terms)
{
    __shared__ long long of_warps[MOST_WARPS];
    long long sum = 0;
    for (unsigned i = threadIdx.x; i < n_terms; i += blockDim.x) sum += slots[terms[i]];
    for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(~0u, sum, bits);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += of_warps[warp];
    return sum;
}

// The powers of two by which a sum of exponent `present` and a term of exponent `added` are to be divided.
struct Aligned {
    int level, sum, term;
    __device__ Aligned(int present, long long added)
    {
        const bool is_zero = added <= ZERO / 2, begins = present <= ZERO / 2;
        level = is_zero ? present : begins || added > present ? (int)added : present;
        sum = is_zero || begins ? 0 : level - present;
        term = is_zero ? 0 : (int)(level - added);
    }
};

// A block for each row (address, count of numbers, slot) of the table scales a tensor to a largest part from 0.5 to 1.
extern "C" __global__ void __launch_bounds__(1024) normalize(const unsigned long long* table, int* slots)
{
    const unsigned long long* row = table + 3 * blockIdx.x;
    REAL* values = (REAL*)row[0];
    const long long n = (long long)row[1];
    const int power = power_of(largest_in_block(values, n));
    if (threadIdx.x == 0) slots[row[2]] = power;
    if (power == ZERO || power == 0) return;
    const Scale scale(power);
    for (long long i = threadIdx.x; i < n; i += BATCH * blockDim.x) {
        REAL batch[BATCH];
        read_batch(batch, values, i, n);
#pragma unroll
        for (int k = 0; k < BATCH; ++k)
            if (i + k * blockDim.x < n) values[i + k * blockDim.x] = scale(batch[k]);
    }
}

// *power becomes that of the largest part of n units, or 0 where that is tolerated. *word and *arrived are 0 before and
// after: the block that arrives last reads what all have found.
extern "C" __global__ void measure(const Unit* values, long long n, int tolerated, int* power, Word* word, unsigned* arrived)
{
    const long long step = (long long)gridDim.x * blockDim.x;
    Word largest = 0;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        const Unit unit = values[i];
#pragma unroll
        for (int part = 0; part < WIDTH; ++part) largest = larger(largest, magnitude(unit.value[part]));
    }
    largest = block_largest(largest);
    if (threadIdx.x != 0) return;
    atomicMax(word, largest);
    __threadfence();
    if (atomicAdd(arrived, 1u) + 1 < gridDim.x) return;
    const int found = power_of(atomicMax(word, (Word)0));
    *power = -tolerated <= found && found <= tolerated ? 0 : found;
    *word = 0;
    *arrived = 0;
}

// Divides n units by 2^*power; keeps what they were in `saved`, where there is such a place.
extern "C" __global__ void divide(Unit* values, long long n, const int* power, Unit* saved)
{
    const int by = *power;
    const bool stays = by == 0 || by == ZERO;
    if (stays && !saved) return;
    const Scale scale(by);
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        Unit unit = values[i];
        if (saved) saved[i] = unit;
#pragma unroll
        for (int part = 0; part < WIDTH; ++part) unit.value[part] = scale(unit.value[part]);
        values[i] = unit;
    }
}

// One block: by which powers a sum and a term are to be divided before they are added, powers[0] and powers[1]. The
// power of the term's largest part is in *own, where there is such a place.
extern "C" __global__ void align(int* slots, int slot, const int* terms, unsigned n_terms, const int* own, int* powers)
{
    const long long sum = sum_of_slots(slots, terms, n_terms);
    if (threadIdx.x != 0) return;
    const int measured = own ? *own : 0;
    const Aligned aligned(slots[slot], sum + measured);
    slots[slot] = aligned.level;
    powers[0] = aligned.sum;
    powers[1] = measured == ZERO ? 0 : aligned.term + measured;
}

// target = target / 2^powers[0] + source / 2^powers[1], n units of them.
extern "C" __global__ void add_aligned(Unit* target, const Unit* source, long long n, const int* powers)
{
    const Scale old(powers[0]), added(powers[1]);
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        Unit sum = target[i];
        const Unit term = source[i];
#pragma unroll
        for (int part = 0; part < WIDTH; ++part) sum.value[part] = old(sum.value[part]) + added(term.value[part]);
        target[i] = sum;
    }
}

// All of this by one block, for n numbers.
extern "C" __global__ void __launch_bounds__(1024) accumulate(REAL* target, const REAL* source, long long n, int* slots,
                                                              int slot, const int* terms, unsigned n_terms)
{
    const int own = power_of(largest_in_block(source, n));
    const int present = slots[slot];
    const Aligned aligned(present, sum_of_slots(slots, terms, n_terms) + own);
    if (threadIdx.x == 0) slots[slot] = aligned.level;
    const Scale old(aligned.sum), added(own == ZERO ? 0 : aligned.term + own);
    for (long long i = threadIdx.x; i < n; i += BATCH * blockDim.x) {
        REAL sums[BATCH], parts[BATCH];
        read_batch(sums, target, i, n);
        read_batch(parts, source, i, n);
#pragma unroll
        for (int k = 0; k < BATCH; ++k)
            if (i + k * blockDim.x < n) target[i + k * blockDim.x] = old(sums[k]) + added(parts[k]);
    }
}
