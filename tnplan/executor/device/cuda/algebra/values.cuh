// What an algebra adds and multiplies. A sum of products is gathered in a `Value`, settled before it has more
// than TERMS terms beyond a settled one, and finished at its end.
//
// Defines: ALGEBRA (a name below), DOUBLE (1: values are doubles, or pairs of them; 0: floats).

#define MAX_PLUS 1
#define MIN_PLUS 2
#define BOOLEAN 3
#define RESIDUES 4
#define OPTIMA 5

typedef long long Long;

// A prime p below 2^23 and its inverse, rounded. The largest double stands for no prime.
struct Modulus {
    double p, inverse;
};

// x - p round(x / p) for |x| <= 2^52: exact, and of size p / 2 + 1 at most.
__device__ __forceinline__ double centered(double x, Modulus modulus)
{
    const double shift = 6755399441055744.0; // 1.5 * 2^52: what is added to it is rounded to an integer
    const double quotient = (x * modulus.inverse + shift) - shift;
    return fma(-modulus.p, quotient, x);
}

// From -p to below 2 p into 0 to below p.
__device__ __forceinline__ double wrapped(double x, Modulus modulus)
{
    if (x < 0) x += modulus.p;
    return x >= modulus.p ? x - modulus.p : x;
}

__device__ __forceinline__ double infinite()
{
    const unsigned long long bits = 0x7ffULL << 52;
    double value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#if DOUBLE
typedef double Real;
#define LARGER fmax
#define SMALLER fmin
#else
typedef float Real;
#define LARGER fmaxf
#define SMALLER fminf
#endif

#if ALGEBRA == MAX_PLUS || ALGEBRA == MIN_PLUS
typedef Real Value;
#define TERMS 0
__device__ __forceinline__ Real better(Real x, Real y) { return ALGEBRA == MAX_PLUS ? LARGER(x, y) : SMALLER(x, y); }
__device__ __forceinline__ Value zero() { return (Real)(ALGEBRA == MAX_PLUS ? -infinite() : infinite()); }
__device__ __forceinline__ void gather(Value& sum, Value x, Value y) { sum = better(sum, x + y); }
__device__ __forceinline__ void settle(Value& sum, Modulus) {}
__device__ __forceinline__ void finish(Value& sum, Modulus) {}
__device__ __forceinline__ Value plus(Value x, Value y, Modulus) { return better(x, y); }
#elif ALGEBRA == BOOLEAN
typedef Real Value;
#define TERMS 0
__device__ __forceinline__ Value zero() { return 0; }
// A number of products that are 1: rounded, but never to 0.
__device__ __forceinline__ void gather(Value& sum, Value x, Value y) { sum += x * y; }
__device__ __forceinline__ void settle(Value& sum, Modulus) {}
__device__ __forceinline__ void finish(Value& sum, Modulus) { sum = sum > 0 ? 1 : 0; }
__device__ __forceinline__ Value plus(Value x, Value y, Modulus) { return x > y ? x : y; }
#elif ALGEBRA == RESIDUES
typedef double Value;
#define TERMS 63 // p / 2 + 1 + 63 p^2 <= 2^52
__device__ __forceinline__ Value zero() { return 0; }
__device__ __forceinline__ void gather(Value& sum, Value x, Value y) { sum = fma(x, y, sum); }
__device__ __forceinline__ void settle(Value& sum, Modulus modulus) { sum = centered(sum, modulus); }
__device__ __forceinline__ void finish(Value& sum, Modulus modulus)
{
    sum = wrapped(centered(sum, modulus), modulus);
}
__device__ __forceinline__ Value plus(Value x, Value y, Modulus modulus) { return wrapped(x + y, modulus); }
#elif ALGEBRA == OPTIMA
typedef double2 Value; // the largest value, and how often it is attained
#define TERMS 63
__device__ __forceinline__ Value zero()
{
    return {-infinite(), 0};
}
__device__ __forceinline__ void gather_pair(Value& sum, double value, double count)
{
    const double kept = value <= sum.x ? sum.y : 0.0;
    sum.y = kept + (value >= sum.x ? count : 0.0);
    sum.x = value > sum.x ? value : sum.x;
}
__device__ __forceinline__ void gather(Value& sum, Value x, Value y) { gather_pair(sum, x.x + y.x, x.y * y.y); }
__device__ __forceinline__ void settle(Value& sum, Modulus modulus) { sum.y = centered(sum.y, modulus); }
__device__ __forceinline__ void finish(Value& sum, Modulus modulus)
{
    sum.y = wrapped(centered(sum.y, modulus), modulus);
}
__device__ __forceinline__ Value plus(Value x, Value y, Modulus modulus)
{
    gather_pair(x, y.x, y.y);
    x.y = wrapped(x.y, modulus);
    return x;
}
#endif

__device__ __forceinline__ Modulus read_modulus(const double* modulus) { return {modulus[0], 1.0 / modulus[0]}; }
