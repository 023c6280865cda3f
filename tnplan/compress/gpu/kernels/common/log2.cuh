// Whole logarithms, so that a CPU and a GPU choose alike.

#define LOG2_BITS 20

// number log2(number) in units of 2^-LOG2_BITS, as compress/format/bit_tiling.py has it: squares give the logarithm's bits.
__device__ __forceinline__ Word times_log2(unsigned number)
{
    if (number == 0) return 0;
    const unsigned whole = 31 - __clz(number);
    unsigned log2 = whole, power = number << (31 - whole);
#pragma unroll 1
    for (unsigned k = 0; k < LOG2_BITS; ++k) {
        const Word square = (Word)power * power >> 31;
        const unsigned bit = (unsigned)(square >> 32);
        log2 = 2 * log2 + bit, power = (unsigned)(square >> bit);
    }
    return (Word)number * log2;
}
