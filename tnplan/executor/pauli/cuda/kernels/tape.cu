// Rotations that keep a tape of what they did, and the backward pass along it. See table.cuh.
// Twin: executor/pauli/terms/tape.py.
//
// Row i is a term where alive[i] is 1, also if its coefficient is 0. A row that was dropped stays and may come back.
// The words that a rotation about G mixes are pairs P, G P. Each pair with a term is an entry of the tape: its two rows,
// their coefficients before the rotation, and its kind. No row is in two entries of a rotation.

#include "table.cuh"

// What an event did, for the host.
// It begins with the n rows of log[event - 1] and those that were added there.
struct Count {
    Word n, hits, entries, added, revived, merged, gone, swept;
    double l1, squares, swept_l1, swept_squares;
};

struct Turn {
    Word generator[WORDS];
    double cosine, sine, cut;
};

// Of an entry: the first row's branch has a minus; it was added to the second row; the second row's branch was added to
// the first; the second row was a term before.
enum { NEGATIVE = 1, THERE = 2, HERE = 4, WAS_TERM = 8 };

static __device__ __forceinline__ Index rows_at(Count *log, Index event) {
    const volatile Count *before = log + event - 1;
    const Index n = (Index)(before->n + before->added);
    if (FIRST == 0)
        log[event].n = (Word)n;
    return n;
}

// List the terms that anticommute with the generator.
extern "C" __global__ void find(const Word *__restrict__ keys, const Byte *__restrict__ alive, Turn turn,
                                unsigned *__restrict__ hits, Count *log, Index event) {
    Count *count = log + event;
    const Index n = rows_at(log, event);
    FOR_WARPS(i, n) {
        const bool is_hit = i < n && alive[i] && anticommutes(load(keys, i), turn.generator);
        const Index position = next_position(&count->hits, is_hit);
        if (is_hit)
            hits[position] = (unsigned)i;
    }
}

// Turn the terms that are listed among n rows; there are as many free rows. Entries are written from `at_entry` on.
extern "C" __global__ void turn_pairs(Word *keys, REAL *coefficients, int *frequencies, Byte *alive, Word *slots,
                                      Word mask, Index n, const unsigned *__restrict__ hits, Index n_hits, Turn turn,
                                      unsigned *__restrict__ first, unsigned *__restrict__ second,
                                      REAL *__restrict__ both, Byte *__restrict__ kinds, Index at_entry, Count *log,
                                      Index event) {
    Count *count = log + event;
    Word merged = 0, revived = 0, gone = 0;
    double l1 = 0, squares = 0;
    FOR_WARPS(h, n_hits) {
        Row row, other;
        Word hash = 0, at = 0;
        Index i = 0, k = -1;
        bool is_owner = false, was_term = false, there = false, here = false;
        double value = 0, second_value = 0;
        if (h < n_hits) {
            i = hits[h];
            row = load(keys, i);
#pragma unroll
            for (int w = 0; w < WORDS; ++w)
                other.word[w] = row.word[w] ^ turn.generator[w];
            hash = hash_row(other);
            for (at = hash & mask;; at = (at + 1) & mask) {
                const Word slot = *(volatile Word *)(slots + at);
                if (slot == 0)
                    break;
                const Index candidate = (Index)(slot & 0xffffffffull) - 1;
                if (slot >> 32 == hash && candidate < n && same(load(keys, candidate), other)) {
                    k = candidate;
                    break;
                }
            }
            was_term = k >= 0 && alive[k];
            is_owner = !was_term || i < k;
        }
        if (is_owner) {
            value = (double)coefficients[i];
            second_value = was_term ? (double)coefficients[k] : 0.0;
            const double branches[2] = {__dmul_rn(turn.sine, value), __dmul_rn(turn.sine, second_value)};
            there = fabs(branches[0]) >= turn.cut;
            here = was_term && fabs(branches[1]) >= turn.cut;
            for (int side = 0; side < 2; ++side)
                if (branches[side] != 0 && !(side ? here : there)) {
                    ++gone;
                    l1 += fabs(branches[side]);
                    squares += branches[side] * branches[side];
                }
        }
        const bool is_new = is_owner && there && k < 0;
        const Index position = n + next_position(&count->added, is_new);
        const Index entry = at_entry + next_position(&count->entries, is_owner);
        if (!is_owner)
            continue;
        const double sign = branch_sign(row, turn.generator);
        if (is_new) {
            k = position;
            store(keys, k, other);
            enter_row(slots, mask, hash, at, k);
        }
        const int split = frequencies[i] + 1, second_split = was_term ? frequencies[k] + 1 : split;
        const REAL here_comes = here ? (REAL)(-sign * __dmul_rn(turn.sine, second_value)) : (REAL)0;
        const REAL there_goes = there ? (REAL)(sign * __dmul_rn(turn.sine, value)) : (REAL)0;
        coefficients[i] = (REAL)__dmul_rn(turn.cosine, value) + here_comes;
        frequencies[i] = here ? min(split, second_split) : split;
        if (was_term) {
            coefficients[k] = (REAL)__dmul_rn(turn.cosine, second_value) + there_goes;
            frequencies[k] = there ? min(split, second_split) : second_split;
            merged += there + here;
        } else if (there) {
            coefficients[k] = there_goes;
            frequencies[k] = split;
            alive[k] = 1;
            revived += !is_new;
        }
        first[entry] = (unsigned)i;
        second[entry] = (unsigned)(there || was_term ? k : i);
        both[2 * entry] = (REAL)value;
        both[2 * entry + 1] = (REAL)second_value;
        kinds[entry] =
            (Byte)((sign < 0 ? NEGATIVE : 0) | (there ? THERE : 0) | (here ? HERE : 0) | (was_term ? WAS_TERM : 0));
    }
    add_of_warp(&count->merged, merged);
    add_of_warp(&count->revived, revived);
    add_of_warp(&count->gone, gone);
    add_of_warp(&count->l1, l1);
    add_of_warp(&count->squares, squares);
}

// Take the slopes from after a rotation to before it, and add its part to derivatives[number]. Its entries are n_entries
// from `at` on.
extern "C" __global__ void back(double *slopes, const unsigned *__restrict__ first,
                                const unsigned *__restrict__ second, const REAL *__restrict__ both,
                                const Byte *__restrict__ kinds, Index at, Index n_entries, double cosine, double sine,
                                double *derivatives, Index number) {
    double total = 0;
    for (Index e = at + FIRST; e < at + n_entries; e += STRIDE) {
        const unsigned i = first[e], k = second[e];
        const int kind = kinds[e];
        const double sign = kind & NEGATIVE ? -1 : 1;
        const double v = slopes[i], w = kind & (THERE | WAS_TERM) ? slopes[k] : 0.0;
        const double from_there = kind & THERE ? sign * w : 0.0, from_here = kind & HERE ? -sign * v : 0.0;
        total += (double)both[2 * e] * (cosine * from_there - sine * v);
        total += (double)both[2 * e + 1] * (cosine * from_here - sine * w);
        slopes[i] = cosine * v + sine * from_there;
        if (kind & WAS_TERM)
            slopes[k] = cosine * w + sine * from_here;
        else if (kind & THERE)
            slopes[k] = 0;
    }
    __syncwarp();
    add_of_warp(derivatives + number, total);
}

// Drop terms past the limits.
extern "C" __global__ void drop(const Word *__restrict__ keys, REAL *__restrict__ coefficients,
                                const int *__restrict__ frequencies, Byte *__restrict__ alive, Limits limits, Count *log) {
    Count *count = log + limits.event;
    const Index n = rows_at(log, limits.event);
    Word swept = 0, gone = 0;
    double l1 = 0, squares = 0;
    for (Index i = FIRST; i < n; i += STRIDE) {
        if (!alive[i])
            continue;
        const double size = fabs((double)coefficients[i]);
        bool is_past = size < limits.merged_cut;
        if (!is_past && limits.max_frequency >= 0)
            is_past = frequencies[i] > limits.max_frequency;
        if (!is_past && limits.has_letters)
            is_past = too_heavy(load(keys, i), limits);
        if (!is_past)
            continue;
        alive[i] = 0;
        coefficients[i] = 0;
        ++swept;
        gone += size != 0;
        l1 += size;
        squares += size * size;
    }
    __syncwarp();
    add_of_warp(&count->swept, swept);
    add_of_warp(&count->gone, gone);
    add_of_warp(&count->swept_l1, l1);
    add_of_warp(&count->swept_squares, squares);
}

// slopes[i] = the value of a term's word in a computational state, 0 where there is no term; `ones` has the qubits in 1.
extern "C" __global__ void weigh(const Word *__restrict__ keys, const Byte *__restrict__ alive,
                                 const Word *__restrict__ ones, Index n, double *__restrict__ slopes) {
    for (Index i = FIRST; i < n; i += STRIDE) {
        const Row row = load(keys, i);
        Word any_x = 0;
        int shared = 0;
#pragma unroll
        for (int w = 0; w < HALF; ++w) {
            any_x |= row.word[w];
            shared += __popcll(row.word[HALF + w] & ones[w]);
        }
        slopes[i] = !alive[i] || any_x ? 0.0 : shared & 1 ? -1.0 : 1.0;
    }
}

// *sum += the sum of slope times coefficient.
extern "C" __global__ void value(const double *__restrict__ slopes, const REAL *__restrict__ coefficients, Index n,
                                 double *sum) {
    double total = 0;
    FOR_WARPS(i, n)
        if (i < n)
            total += slopes[i] * (double)coefficients[i];
    add_of_warp(sum, total);
}

// The signs that a map brought to rows whose coefficients were 1, and the coefficients `before` it with these signs.
extern "C" __global__ void take_signs(REAL *__restrict__ coefficients, const REAL *__restrict__ before, Index n,
                                      signed char *__restrict__ signs) {
    for (Index i = FIRST; i < n; i += STRIDE) {
        signs[i] = coefficients[i] < 0 ? -1 : 1;
        coefficients[i] *= before[i];
    }
}

// slopes[i] times signs[i].
extern "C" __global__ void give_signs(double *__restrict__ slopes, const signed char *__restrict__ signs, Index n) {
    for (Index i = FIRST; i < n; i += STRIDE)
        slopes[i] *= signs[i];
}

// out[rows[i]] = slopes[i]: the slopes before gaps were closed.
extern "C" __global__ void spread(const double *__restrict__ slopes, const unsigned *__restrict__ rows, Index n,
                                  double *__restrict__ out) {
    for (Index i = FIRST; i < n; i += STRIDE)
        out[rows[i]] = slopes[i];
}
