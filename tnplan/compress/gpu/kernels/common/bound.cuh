// From what a survey has found of a component to its rule, as compress/format/bounds.py does it, bit for bit.

// Numbers that the survey finds: see survey.cu.
#define FOUND (4 * COMPONENTS + 2)

// Whether half of the elements is stored.
__device__ __forceinline__ bool is_mirrored(const BITS* found, Word n_elements)
{
    return n_elements > 1 && !(found[FOUND - 2] && found[FOUND - 1]);
}

// The largest number of a type that is no greater than a positive value.
__device__ __forceinline__ double round_down(double value, double) { return value; }

__device__ __forceinline__ float round_down(double value, float)
{
    if (value >= (double)value_of((unsigned)infinite() - 1)) return value_of((unsigned)infinite() - 1);
    const float rounded = (float)value;
    return (double)rounded > value ? value_of(bits_of(rounded) - 1) : rounded;
}

// A bound as compress/format/bounds.py has it; bits_step is not 0 for point-wise ones.
struct Bound {
    double bound;
    Word bits_step;
    unsigned relative;
};

// The rule of a component of which `found` says what the survey found (compress/format/bounds.py: quantizer). Where there
// is none, and values go without loss, it is of no use, and nobody uses it.
__device__ __forceinline__ Rule rule_of(const BITS* found, const Bound& bound)
{
    Rule rule = {};
    if (bound.bits_step) {
        rule.bits_step = (BITS)bound.bits_step;
        rule.base_bits = found[2] ? (BITS)~found[2] : (BITS)least_normal();
        return rule;
    }
    const BITS ranks[2] = {(BITS)~found[0], found[1]};
    double ends[2];
    for (unsigned k = 0; k < 2; ++k) ends[k] = value_of((BITS)(ranks[k] & SIGN_BIT ? ranks[k] ^ SIGN_BIT : ~ranks[k]));
    if (!found[1] || ends[0] == ends[1]) return rule;
    const double most = fmax(fabs(ends[0]), fabs(ends[1])), range = less(ends[1], ends[0]);
    const double limit = bound.relative ? times(times(bound.bound, range), 1 - 0x1p-50) : bound.bound;
    const double rounding = sizeof(REAL) == 4 ? 0x1p-22 : 0x1p-51;
    const double reached = fmin(most, times(times(2, limit), (double)LARGEST_LINEAR));
    const double shrunk = less(times(limit, 1 - 0x1p-20), times(reached, rounding));
    if (!(shrunk > 0)) return rule;
    rule.step = round_down(times(2, shrunk), (REAL)0);
    rule.inverse = (REAL)1 / rule.step;
    rule.limit = round_down(limit, (REAL)0);
    rule.checked = SIGN_BIT - 1;
    return rule;
}
