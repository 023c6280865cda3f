// Between values and whole numbers, as compress/quantize_kernel.py does it, bit for bit.
//
// Defines: REAL (float or double), BITS (unsigned or unsigned long long: as wide), COMPONENTS (1 or 2).

#define TILE 4096
#define LANES 32

typedef unsigned char Byte;
typedef unsigned short Half;
typedef unsigned long long Word;

// One component's rule; numbers of type REAL are held exactly by the doubles (compress/launches.py).
struct Rule {
    double step, inverse, limit, largest;
    Word zero_bits, checked, bits_step, base_bits;
};

struct Rules {
    Rule of[COMPONENTS];
};

struct __align__(COMPONENTS * sizeof(REAL)) Element {
    REAL part[COMPONENTS];
};

#define SIGN_BIT ((BITS)1 << (8 * sizeof(BITS) - 1))

__device__ __forceinline__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ double times(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ float less(float a, float b) { return __fsub_rn(a, b); }
__device__ __forceinline__ double less(double a, double b) { return __dsub_rn(a, b); }
__device__ __forceinline__ float nearest(float a) { return rintf(a); }
__device__ __forceinline__ double nearest(double a) { return rint(a); }
__device__ __forceinline__ float magnitude(float a) { return fabsf(a); }
__device__ __forceinline__ double magnitude(double a) { return fabs(a); }
__device__ __forceinline__ unsigned bits_of(float x) { return __float_as_uint(x); }
__device__ __forceinline__ Word bits_of(double x) { return (Word)__double_as_longlong(x); }
__device__ __forceinline__ float value_of(unsigned bits) { return __uint_as_float(bits); }
__device__ __forceinline__ double value_of(Word bits) { return __longlong_as_double((long long)bits); }

// The bits of the least normal number and of infinity.
__device__ __forceinline__ Word least_normal() { return sizeof(BITS) == 4 ? 1ull << 23 : 1ull << 52; }
__device__ __forceinline__ Word infinite() { return sizeof(BITS) == 4 ? 255ull << 23 : 2047ull << 52; }

// The whole number of x; `exact` is set where x must be stored exactly, and the number is then 0.
__device__ __forceinline__ int quantized(REAL x, const Rule& rule, bool& exact)
{
    const BITS bits = bits_of(x);
    exact = false;
    if (rule.bits_step) {
        const Word size = bits & ~SIGN_BIT;
        if (size == 0) return 0;
        if (size >= least_normal() && size < infinite()) {
            const Word steps = (size - rule.base_bits + rule.bits_step / 2) / rule.bits_step;
            const Word again = rule.base_bits + steps * rule.bits_step;
            const Word miss = again > size ? again - size : size - again;
            if (again < infinite() && 2 * miss <= rule.bits_step) {
                return bits & SIGN_BIT ? -(int)(steps + 1) : (int)(steps + 1);
            }
        }
        exact = true;
        return 0;
    }
    if (rule.step == 0) {
        exact = ((bits ^ (BITS)rule.zero_bits) & (BITS)rule.checked) != 0;
        return 0;
    }
    const REAL scaled = nearest(times(x, (REAL)rule.inverse));
    if (magnitude(scaled) <= (REAL)rule.largest
        && magnitude(less(x, times(scaled, (REAL)rule.step))) < (REAL)rule.limit) {
        return (int)scaled;
    }
    exact = true;
    return 0;
}

__device__ __forceinline__ REAL restored(int number, const Rule& rule)
{
    if (rule.bits_step) {
        if (number == 0) return value_of((BITS)0);
        const Word size = rule.base_bits + ((number < 0 ? -number : number) - 1) * rule.bits_step;
        return value_of((BITS)((BITS)size | (number < 0 ? SIGN_BIT : (BITS)0)));
    }
    if (number == 0) return value_of((BITS)rule.zero_bits);
    return times((REAL)rule.step, (REAL)number);
}

__device__ __forceinline__ unsigned zigzag(int number)
{
    return number > 0 ? 2u * (unsigned)number - 1u : 2u * (unsigned)-number;
}

__device__ __forceinline__ int unzigzag(unsigned z)
{
    return z & 1u ? (int)(z >> 1) + 1 : -(int)(z >> 1);
}

__device__ __forceinline__ unsigned lanes_below(unsigned lane) { return (1u << lane) - 1u; }
