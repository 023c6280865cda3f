// Rotations one after another in one launch of blocks that all run at once. See table.cuh.
// Twin: executor/pauli/terms/hash_table_kernel.py.
//
// The words that a rotation about G mixes are pairs P, G P, and no word is in two of them. Where a row finds its
// partner in the table, the lower of the two does both; where it does not, the row has its pair to itself, and
// appends the partner if its branch is not cut. No row is written by two threads, and a coefficient is the sum of
// the same two numbers in every run.
//
// Up to MEMBERS rotations in a row whose generators commute are a group. Each of them leaves a row P and its partner
// alike before all others, since G' commutes with G P as it does with P: so members mix only rows that anticommute
// with the same members. The first pass over the rows reads the keys, 8 WORDS bytes a row, and writes a row's pattern:
// the members that it anticommutes with. The other passes read the patterns, and a row that is appended gets that of
// its partner. Rows appended in a pass are not looked at in it: their words are distinct, and no other row looks for
// them. The blocks wait for each other after a pass.
// BY_PASSES 1, for few rows, where waiting takes the time: in a pass a row takes its turn with the first member that it
// has still to meet, as its partner does, and its pattern is which members are left for it. There are as many passes as
// members that one row anticommutes with. BY_PASSES 0, for many rows: a pass is one member, a pattern is a byte that
// stays, and tallies stay in registers.
//
// Each warp queues its rows that take a turn; when 32 wait, it turns them, a lane each. Such a row reads an entry of
// the table and its partner's key; a pair's two coefficients are read and written. Frequencies are followed only
// where they are a limit. When many rows are no terms, the gaps are closed before more rotations begin.

#include "table.cuh"
#include "blocks.cuh"
#include "tally.cuh"
#include "scan.cuh"

static_assert(MEMBERS <= 8 * sizeof(Pattern), "a pattern has a bit for each member, and a warp a lane");

// A term's new coefficient `value` after the sweep that is due; `is_term`: it counts as one before it.
static __device__ __forceinline__ REAL swept_value(REAL value, int frequency, const Row &row, bool is_term,
                                            const Turn &turn, const Limits &limits, Tally &tally) {
    if (turn.sweep != 1 || !is_term)
        return value;
    const double size = fabs((double)value);
    if (size == 0) {
        ++tally.zeros;
        return value;
    }
    if (size >= limits.merged_cut && !(limits.max_frequency >= 0 && frequency > limits.max_frequency) &&
        !(limits.has_letters && too_heavy(row, limits)))
        return value;
    ++tally.swept;
    tally.swept_l1 += size;
    tally.swept_squares += size * size;
    return 0;
}

// A branch, or 0 where it is below the cut.
static __device__ __forceinline__ double branch_of(double coefficient, double sign, const Turn &turn,
                                                   Tally &tally) {
    const double branch = sign * __dmul_rn(turn.sine, coefficient);
    if (branch == 0 || fabs(branch) >= turn.cut)
        return branch;
    ++tally.gone;
    tally.l1 += fabs(branch);
    tally.squares += branch * branch;
    return 0;
}

// Turn row i, which anticommutes with the generator and has the pattern `whole`. A row that lacks a free row is left
// as it was, and is listed in `spare`.
static __device__ __forceinline__ void rotate(Word *keys, REAL *coefficients, int *frequencies, Pattern *patterns,
                                              Word *slots, Word mask, Index capacity, unsigned *spare, Index n,
                                              bool is_row, Index i, unsigned whole, const Turn &turn,
                                              const Limits &limits, Word *taken, Tally &tally) {
    Row row, other;
    Word hash = 0, at = 0;
    Index j = -1;
    REAL value = 0, second = 0;
    double branch = 0;
    int frequency = 0;
    bool is_new = false;
    const bool follows = limits.max_frequency >= 0;
    if (is_row) {
        value = __ldcg(coefficients + i);
        row = load(keys, i);
#pragma unroll
        for (int w = 0; w < WORDS; ++w)
            other.word[w] = row.word[w] ^ turn.generator[w];
        hash = hash_row(other);
        for (at = hash & mask;; at = (at + 1) & mask) {
            const Word slot = *(volatile Word *)(slots + at);
            if (slot == 0)
                break;
            const Index k = (Index)(slot & 0xffffffffull) - 1;
            if (slot >> 32 != hash || k >= n)
                continue;
            if (k > i)
                second = __ldcg(coefficients + k);
            if (same(load(keys, k), other)) {
                j = k;
                break;
            }
        }
        if (j < 0 && value != 0) {
            branch = branch_sign(row, turn.generator) * __dmul_rn(turn.sine, (double)value);
            frequency = follows ? __ldcg(frequencies + i) + 1 : 0;
            is_new = branch != 0 && fabs(branch) >= turn.cut;
            if (is_new && turn.sweep == 1)
                is_new = fabs((double)(REAL)branch) >= limits.merged_cut && (REAL)branch != 0 &&
                         !(follows && frequency > limits.max_frequency) &&
                         !(limits.has_letters && too_heavy(other, limits));
        }
    }
    const Index new_row = n + rows_taken(next_position(taken, is_new));
    if (is_new) {
        if (new_row >= capacity) {
            spare[new_row - capacity] = (unsigned)i;
            if (BY_PASSES)
                patterns[i] = whole;
            return;
        }
        store(keys, new_row, other);
        coefficients[new_row] = (REAL)branch;
        if (follows)
            frequencies[new_row] = frequency;
        patterns[new_row] = (Pattern)(BY_PASSES ? whole & whole - 1 : whole);
        enter_row(slots, mask, hash, at, new_row);
        ++tally.fresh;
    }
    if (!is_row || (j >= 0 && j < i) || (j < 0 && value == 0))
        return;
    if (j < 0) {
        ++tally.hits;
        if (!is_new && branch != 0 && branch_of((double)value, 1, turn, tally) != 0) {
            ++tally.passed;
            swept_value((REAL)branch, frequency, other, true, turn, limits, tally);
        }
        const REAL scaled = (REAL)__dmul_rn(turn.cosine, (double)value);
        if (follows)
            frequencies[i] = frequency;
        coefficients[i] = swept_value(scaled, frequency, row, turn.cosine != 0, turn, limits, tally);
        return;
    }
    if (value == 0 && second == 0)
        return;
    const double sign = branch_sign(row, turn.generator);
    const double there_goes = branch_of((double)value, sign, turn, tally);
    const double here_comes = branch_of((double)second, -sign, turn, tally);
    const REAL scaled_i = (REAL)__dmul_rn(turn.cosine, (double)value);
    const REAL scaled_j = (REAL)__dmul_rn(turn.cosine, (double)second);
    tally.hits += (value != 0) + (second != 0);
    tally.merged += (there_goes != 0 && scaled_j != 0) + (here_comes != 0 && scaled_i != 0);
    tally.revived += (there_goes != 0 && scaled_j == 0) + (here_comes != 0 && scaled_i == 0);
    int count_i = 0, count_j = 0;
    if (follows) {
        const int split_i = __ldcg(frequencies + i) + 1, split_j = __ldcg(frequencies + j) + 1;
        count_i = here_comes == 0 ? split_i : scaled_i != 0 ? min(split_i, split_j) : split_j;
        count_j = there_goes == 0 ? split_j : scaled_j != 0 ? min(split_i, split_j) : split_i;
        frequencies[i] = count_i;
        frequencies[j] = count_j;
    }
    coefficients[i] = swept_value(scaled_i + (REAL)here_comes, count_i, row, scaled_i != 0 || here_comes != 0, turn,
                           limits, tally);
    coefficients[j] = swept_value(scaled_j + (REAL)there_goes, count_j, other, scaled_j != 0 || there_goes != 0, turn,
                           limits, tally);
}

// Set coefficients past the limits to 0; one lane of a warp, which `is_own`, tallies it.
static __device__ __forceinline__ void sweep_all(const Word *keys, REAL *coefficients, const int *frequencies, Index n,
                                                 const Limits &limits, bool is_own, Tally &tally) {
    unsigned left = 0, swept = 0;
    double l1 = 0, squares = 0;
    for (Index i = FIRST; i < n; i += STRIDE) {
        const double size = fabs((double)__ldcg(coefficients + i));
        if (size == 0)
            continue;
        bool is_past = size < limits.merged_cut ||
                       (limits.max_frequency >= 0 && __ldcg(frequencies + i) > limits.max_frequency);
        if (!is_past && limits.has_letters)
            is_past = too_heavy(load(keys, i), limits);
        if (!is_past) {
            ++left;
            continue;
        }
        coefficients[i] = 0;
        ++swept;
        l1 += size;
        squares += size * size;
    }
    left = __reduce_add_sync(ALL, left);
    swept = __reduce_add_sync(ALL, swept);
    for (int step = 16; step > 0; step /= 2) {
        l1 += __shfl_xor_sync(ALL, l1, step);
        squares += __shfl_xor_sync(ALL, squares, step);
    }
    if (is_own) {
        tally.left = left;
        tally.swept = swept;
        tally.swept_l1 = l1;
        tally.swept_squares = squares;
    }
}

// The rotations `list[first]` to `list[last - 1]`; that of `list[k]` is event `event` + k. A step is a group where
// BY_PASSES, else one rotation. One without free rows for all ends the launch: the event of its first rotation
// is in *stalled, with the number of rows that there would be. Another begins with that step: `resumed` is then the
// rows that are there, else 0, and `failed` lists the `failures` rows that lacked one. More rows than `most` after a
// group end it in the same way, without failures: the other form is to go on, or the host is to look at the terms. Gaps
// among `few` rows or fewer stay. For `words` see Meeting.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    turns(Word *keys, REAL *coefficients, int *frequencies, Pattern *patterns, Word *slots, Word mask,
          Index capacity, unsigned *spare, Index few, Index most, const Turn *__restrict__ list, Index first,
          Index last, Index event, const unsigned *failed, Index failures, Index resumed, Limits limits, Event *log,
          Index *stalled, Word *words) {
    __shared__ uint2 queues[THREADS / 32][32 * ROWS + 32];
#if BY_PASSES
    __shared__ Note notes[THREADS];
    Note *own_notes = notes + threadIdx.x / 32 * 32;
#endif
    __shared__ Turn near[2][MEMBERS];
    __shared__ Tallies tallies;
    if (*stalled)
        return;
    const Index warp = WARP, warps = WARPS;
    const unsigned lane = threadIdx.x % 32;
    const bool is_last_warp = threadIdx.x >= blockDim.x - 32;
    uint2 *queue = queues[threadIdx.x / 32];
    Meeting meeting = {words, 0};
    Event *before = log + event + first - 1;
    Index n = resumed ? resumed : rows_after(before);
    int side = 0, member = list[first].member;
    Index t = first - member;
    bool is_resumed = resumed != 0;
    for (unsigned k = threadIdx.x; k < sizeof tallies / 4; k += blockDim.x)
        reinterpret_cast<unsigned *>(&tallies)[k] = 0;
    if (threadIdx.x < MEMBERS && t + threadIdx.x < last)
        near[0][threadIdx.x] = list[t + threadIdx.x];
    __syncthreads();
    for (; t < last; t += near[side][0].left, side ^= 1, member = 0) {
        const Turn *group = near[side];
        const int size = group[0].left;
        bool reads_keys = !is_resumed, is_first = true;
        for (; member < size; member += BY_PASSES ? size : 1) {
            const int together = BY_PASSES ? size : 1;
            Event *begun = log + event + t + member, *own = begun + together - 1;
            bool goes_on = true;
            while (goes_on) {
                const Index count = is_resumed ? failures : n, step = ROWS == 1 || reads_keys ? 0 : CHUNK * warps;
                const Index stride = reads_keys ? TILE * warps : ROWS == 1 ? CHUNK * warps : LOADS * step;
                unsigned waiting = 0;
                bool more = BY_PASSES && is_resumed && size > 1;
                Tally tally = {};
#if BY_PASSES
                unsigned noted = 0;
#endif
                for (Index base = (reads_keys ? TILE : CHUNK) * warp;; base += stride) {
                    const bool is_end = base >= count;
                    unsigned reads[LOADS] = {};
                    if (!is_end && reads_keys)
                        scan(keys, base, n, group, size, reads);
                    else if (!is_end && !is_resumed)
                        read_patterns(patterns, base, step, n, reads);
#pragma unroll 1
                    for (int k = 0; k < (is_end ? 1 : LOADS); ++k) {
                        const unsigned word = k == 0 ? reads[0] : k == 1 ? reads[1] : k == 2 ? reads[2] : reads[3];
#pragma unroll
                        for (int b = 0; b < ROWS; ++b) {
                            if (b > 0 && reads_keys)
                                break;
                            unsigned whole = ROWS == 1 ? word : word >> 8 * b & 255u;
                            Index i = base + (ROWS == 1 ? k : step * k + b) + 4 * lane;
                            if (reads_keys)
                                i = base + (32 * k + lane) / ROW_LANES;
                            bool is_row = i < count && !is_end && (!reads_keys || lane % ROW_LANES == 0);
                            if (is_resumed && is_row) {
                                i = failed[i];
                                whole = size > 1 ? patterns[i] : 1;
                            }
#if BY_PASSES
                            const unsigned rest = whole & whole - 1;
                            if (is_row && size > 1 && (reads_keys || whole))
                                patterns[i] = rest;
                            const bool takes = is_row && whole;
                            more = more || (takes && rest);
#else
                            if (is_row && size > 1 && reads_keys)
                                patterns[i] = (Pattern)whole;
                            const bool takes = is_row && whole >> member & 1;
#endif
                            const unsigned takers = __ballot_sync(ALL, takes);
                            if (takes)
                                queue[waiting + __popc(takers & ((1u << lane) - 1))] = make_uint2((unsigned)i, whole);
                            waiting += __popc(takers);
                        }
                        __syncwarp();
                        while (waiting >= (is_end ? 1 : 32)) {
                            const unsigned some = waiting < 32 ? waiting : 32;
                            waiting -= some;
                            const uint2 queued = queue[waiting + (lane < some ? lane : 0)];
#if BY_PASSES
                            const int now = __ffs(queued.y) - 1;
                            add_notes(own_notes, noted, tally);
                            noted = some;
                            Tally seen = {};
#else
                            const int now = member;
                            Tally &seen = tally;
#endif
                            rotate(keys, coefficients, frequencies, patterns, slots, mask, capacity, spare, n,
                                   lane < some, queued.x, queued.y, group[now], limits, word_of(meeting), seen);
#if BY_PASSES
                            own_notes[lane] = note_of(seen, now);
#endif
                        }
                        __syncwarp();
                    }
                    if (is_end)
                        break;
                }
                arrive(meeting, more);
                if (is_last_warp && is_first && lane < MEMBERS && t + size + lane < last)
                    near[side ^ 1][lane] = list[t + size + lane];
#if BY_PASSES
                add_notes(own_notes, noted, tally);
#else
                tally = of_warp(tally);
#endif
                add_tally(tallies, tally);
                const Word word = wait(meeting);
                n += rows_taken(word);
                goes_on = has_more(word) && n <= capacity;
                is_resumed = reads_keys = is_first = false;
            }
            const bool is_stalled = n > capacity;
            if (!is_stalled && group[member + together - 1].sweep == 2) {
                Tally tally = {};
                sweep_all(keys, coefficients, frequencies, n, limits, (int)lane == together - 1, tally);
                arrive(meeting);
                add_tally(tallies, tally);
                wait(meeting);
            }
            if (is_last_warp)
                enter(begun, together, tallies);
            if (is_stalled) {
                if (FIRST == 0) {
                    begun->n = (Word)n;
                    *stalled = begun - log;
                }
                return;
            }
            const Word dead = FIRST == 0 || n > few ? dead_after(before) : 0;
            if (FIRST == 0) {
                own->n = (Word)n;
                atomicAdd(&own->dead, dead);
            }
            if (n > few && has_gaps((Index)dead, n, capacity))
                n = close_gaps(keys, coefficients, frequencies, patterns, slots, mask, capacity, spare, n,
                               limits.max_frequency >= 0, own, meeting);
            before = own;
        }
        if (n > most && t + size < last) {
            if (FIRST == 0) {
                before[1].n = (Word)n;
                *stalled = before + 1 - log;
            }
            return;
        }
    }
}
