// Between values and whole numbers, as compress/cpu/quantize_kernel.py does it, bit for bit.
//
// Defines: REAL (float or double), BITS (unsigned or unsigned long long: as wide), COMPONENTS (1 or 2).

#define TILE 4096
#define LANES 32

typedef unsigned char Byte;
typedef unsigned short Half;
typedef unsigned long long Word;

// One component's rule (compress/gpu/launches.py).
struct Rule {
    REAL step, inverse, limit;
    BITS zero_bits, checked, bits_step, base_bits;
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
__device__ __forceinline__ float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double plus(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ float magnitude(float a) { return fabsf(a); }
__device__ __forceinline__ double magnitude(double a) { return fabs(a); }
__device__ __forceinline__ unsigned bits_of(float x) { return __float_as_uint(x); }
__device__ __forceinline__ Word bits_of(double x) { return (Word)__double_as_longlong(x); }
__device__ __forceinline__ float value_of(unsigned bits) { return __uint_as_float(bits); }
__device__ __forceinline__ double value_of(Word bits) { return __longlong_as_double((long long)bits); }

// A whole number of small magnitude, added to this, stands in the low bits; the sum rounds to the nearest, even
// one, and what is too large comes out larger than any number that counts.
__device__ __forceinline__ REAL magic() { return sizeof(REAL) == 4 ? (REAL)12582912.0 : (REAL)6755399441055744.0; }

// The bits of the least normal number and of infinity.
__device__ __forceinline__ Word least_normal() { return sizeof(BITS) == 4 ? 1ull << 23 : 1ull << 52; }
__device__ __forceinline__ Word infinite() { return sizeof(BITS) == 4 ? 255ull << 23 : 2047ull << 52; }

// Steps of one width for every component, and 0 for 0, as for all bounds but point-wise ones.
__device__ __forceinline__ bool linear(const Rules& rules)
{
    bool all = true;
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        all &= rules.of[c].bits_step == 0 && rules.of[c].step != 0 && rules.of[c].zero_bits == 0;
    }
    return all;
}

// The largest magnitude of a whole number under a linear rule.
#define LARGEST_LINEAR ((REAL)(sizeof(REAL) == 4 ? 1 << 20 : 1 << 30))

// The whole number of x; `exact` is set where x must be stored exactly, and the number is then 0. LINEAR: the
// rules are known to be.
template <bool LINEAR = false> __device__ __forceinline__ int quantized(REAL x, const Rule& rule, bool& exact)
{
    if (!LINEAR && rule.bits_step) {
        const BITS bits = bits_of(x), size = bits & ~SIGN_BIT;
        exact = size != 0;
        if (size < (BITS)least_normal() || size >= (BITS)infinite()) return 0;
        const BITS steps = (size - rule.base_bits + rule.bits_step / 2) / rule.bits_step;
        const BITS again = rule.base_bits + steps * rule.bits_step;
        const BITS miss = again > size ? again - size : size - again;
        if (again >= (BITS)infinite() || 2 * miss > rule.bits_step) return 0;
        exact = false;
        return bits & SIGN_BIT ? -(int)(steps + 1) : (int)(steps + 1);
    }
    if (!LINEAR && rule.step == 0) {
        exact = ((bits_of(x) ^ rule.zero_bits) & rule.checked) != 0;
        return 0;
    }
    const REAL sum = plus(times(x, rule.inverse), magic()), scaled = less(sum, magic());
    exact = !((magnitude(scaled) <= LARGEST_LINEAR) & (magnitude(less(x, times(scaled, rule.step))) < rule.limit));
    return exact ? 0 : (int)(unsigned)(bits_of(sum) - bits_of(magic()));
}

template <bool LINEAR = false> __device__ __forceinline__ REAL restored(int number, const Rule& rule)
{
    if (!LINEAR && rule.bits_step) {
        if (number == 0) return value_of((BITS)0);
        const BITS size = rule.base_bits + (BITS)((number < 0 ? -number : number) - 1) * rule.bits_step;
        return value_of((BITS)(size | (number < 0 ? SIGN_BIT : (BITS)0)));
    }
    if (!LINEAR && number == 0) return value_of(rule.zero_bits);
    return times(rule.step, less(value_of((BITS)(bits_of(magic()) + (BITS)number)), magic()));
}

__device__ __forceinline__ unsigned zigzag(int number)
{
    return (2u * (unsigned)number - 1u) ^ (unsigned)(number - 1 >> 31);
}

__device__ __forceinline__ int unzigzag(unsigned z) { return (int)(((z >> 1) ^ ((z & 1u) - 1u)) + 1u); }

// zigzag(quantized(x)) under a linear rule; `sure` becomes false where that may be wrong.
__device__ __forceinline__ unsigned sure_zigzag(REAL x, const Rule& rule, bool& sure)
{
    const REAL sum = plus(times(x, rule.inverse), magic()), scaled = less(sum, magic());
    sure &= (magnitude(scaled) <= LARGEST_LINEAR) & (magnitude(less(x, times(scaled, rule.step))) < rule.limit);
    const unsigned bits = (unsigned)bits_of(sum), zero = (unsigned)bits_of(magic());
    return (2 * bits - (2 * zero + 1)) ^ (unsigned)((int)(bits - (zero + 1)) >> 31);
}

__device__ __forceinline__ unsigned lanes_below(unsigned lane) { return (1u << lane) - 1u; }
