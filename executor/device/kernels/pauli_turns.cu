// Rotations one after another in one launch of blocks that all run at once. See pauli.cuh.
// Twin: executor/pauli/hash_kernel.py.
//
// The words that a rotation about G mixes are pairs P, G P, and no word is in two of them. Where a row finds its
// partner in the table, the lower of the two does both; where it does not, the row has its pair to itself, and
// appends the partner if its branch is not cut. No row is written by two threads, and a coefficient is the sum of
// the same two numbers in every run. Rows appended by a rotation are not looked at in it: their words are
// distinct, and no other row looks for them.
//
// Up to MEMBERS rotations in a row whose generators commute are a group: each of them leaves a row P and its
// partner alike before all others, since G' commutes with G P as it does with P. So the first of a group reads the
// keys, 8 WORDS bytes a row, and writes to a byte of the row which members of the group it anticommutes with; the
// others read the bytes, and a row that is appended gets the byte of its partner. Each warp lists its rows that
// anticommute; when 32 wait, it rotates them, a lane each. Such a row reads an entry of the table and its partner's
// key; a pair's two coefficients are read and written. Frequencies are followed only where they are a limit. When
// many rows are no terms, the gaps are closed between two rotations.

#include "pauli.cuh"
#include "pauli_blocks.cuh"

// Lanes that share the reading of a row, 16 bytes each at a time.
#define ROW_LANES (HALF == 2 ? 2 : HALF == 4 ? 4 : 1)
// Rows whose keys a warp reads at once, and rows whose bytes it reads with one load.
#define TILE (32 / ROW_LANES * LOADS)
#define CHUNK 128
#define MEMBERS 8

// `sweep`: 0 none; 1 of the rows that the rotation changes, all others being within the limits; 2 of all rows.
// `member`: its number in its group; `left`: how many members of the group are left, it among them.
struct Turn {
    Word generator[WORDS];
    double cosine, sine, cut;
    int sweep;
    short member, left;
};

// What a thread saw in a rotation; the fields of Event.
struct Tally {
    unsigned hits, merged, revived, gone, passed, swept, zeros, left;
    double l1, squares, swept_l1, swept_squares;
};

#define COUNTS 8
#define SUMS 4

// Add the tallies of a block to the log; without hits and without a sweep there is nothing.
static __device__ __forceinline__ void enter(Event *own, const Tally &tally) {
    __shared__ unsigned counts[COUNTS];
    __shared__ double sums[SUMS];
    if (threadIdx.x < COUNTS)
        counts[threadIdx.x] = 0;
    if (threadIdx.x < SUMS)
        sums[threadIdx.x] = 0;
    __syncthreads();
    const unsigned count[COUNTS] = {tally.hits, tally.merged, tally.revived, tally.gone,
                                    tally.passed, tally.swept, tally.zeros, tally.left};
    if (__any_sync(ALL, tally.hits | tally.swept | tally.left)) {
#pragma unroll
        for (int k = 0; k < COUNTS; ++k) {
            const unsigned all = __reduce_add_sync(ALL, count[k]);
            if (threadIdx.x % 32 == 0 && all)
                atomicAdd(counts + k, all);
        }
    }
    if (__any_sync(ALL, tally.gone + tally.swept)) {
        add_of_warp(sums, tally.l1);
        add_of_warp(sums + 1, tally.squares);
        add_of_warp(sums + 2, tally.swept_l1);
        add_of_warp(sums + 3, tally.swept_squares);
    }
    __syncthreads();
    Word *counted[COUNTS] = {&own->hits, &own->merged, &own->revived, &own->gone,
                             &own->passed, &own->swept, &own->zeros, &own->left};
    double *summed[SUMS] = {&own->l1, &own->squares, &own->swept_l1, &own->swept_squares};
#pragma unroll
    for (int k = 0; k < COUNTS; ++k)
        if (threadIdx.x == k && counts[k])
            atomicAdd(counted[k], (Word)counts[k]);
#pragma unroll
    for (int k = 0; k < SUMS; ++k)
        if (threadIdx.x == COUNTS + k && sums[k] != 0)
            atomicAdd(summed[k], sums[k]);
}

// A term's new coefficient `value` after the sweep that is due; `is_term`: it counts as one before it.
static __device__ __forceinline__ REAL kept(REAL value, int frequency, const Row &row, bool is_term,
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

// The part of a branch that its word gets: all, or nothing where it is below the cut.
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

// Rotate row i, which anticommutes with the generator. Rows below `there` are in the table. Where `is_resumed`,
// only rows act that found no room before: those whose branch needs a row and whose partner is not there. A row
// that acted never looks like one: its coefficient has not grown, nor its frequency fallen.
static __device__ __forceinline__ void rotate(Word *keys, REAL *coefficients, int *frequencies, Byte *patterns,
                                              Word *slots, Word mask, Index capacity, Index n, Index there,
                                              bool is_resumed, bool is_row, Index i, const Turn &turn,
                                              const Limits &limits, Event *own, Tally &tally) {
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
            if (slot >> 32 != hash || k >= there)
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
    const Index place = n + next_place(&own->added, is_new);
    if (is_new) {
        if (place >= capacity)
            return;
        store(keys, place, other);
        coefficients[place] = (REAL)branch;
        if (follows)
            frequencies[place] = frequency;
        if (turn.left > 1)
            patterns[place] = __ldcg(patterns + i);
        enter_row(slots, mask, hash, at, place);
    } else if (is_resumed)
        return;
    if (!is_row || (j >= 0 && j < i) || (j < 0 && value == 0))
        return;
    if (j < 0) {
        ++tally.hits;
        if (!is_new && branch != 0 && branch_of((double)value, 1, turn, tally) != 0) {
            ++tally.passed;
            kept((REAL)branch, frequency, other, true, turn, limits, tally);
        }
        const REAL scaled = (REAL)__dmul_rn(turn.cosine, (double)value);
        if (follows)
            frequencies[i] = frequency;
        coefficients[i] = kept(scaled, frequency, row, turn.cosine != 0, turn, limits, tally);
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
    coefficients[i] = kept(scaled_i + (REAL)here_comes, count_i, row, scaled_i != 0 || here_comes != 0, turn,
                           limits, tally);
    coefficients[j] = kept(scaled_j + (REAL)there_goes, count_j, other, scaled_j != 0 || there_goes != 0, turn,
                           limits, tally);
}

// Which rows of a tile anticommute with which of the members `turns[t % (2 MEMBERS)]`, t from `first` on, that are
// left of their group: byte k of the result is of row base + (32 k + lane) / ROW_LANES, bit m of it of member m.
static __device__ __forceinline__ unsigned scan(const Word *keys, Index base, Index n, const Turn *turns,
                                                Index first) {
    const unsigned lane = threadIdx.x % 32, part = lane % ROW_LANES;
    const ulonglong2 *from = reinterpret_cast<const ulonglong2 *>(keys);
    const int member = turns[first % (2 * MEMBERS)].member, left = turns[first % (2 * MEMBERS)].left;
    ulonglong2 two[LOADS][HALF / ROW_LANES];
    unsigned found = 0;
#pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        const Index i = base + (32 * k + lane) / ROW_LANES;
#pragma unroll
        for (int u = 0; u < HALF / ROW_LANES; ++u)
            two[k][u] = i < n ? __ldcg(from + HALF * i + part + ROW_LANES * u) : make_ulonglong2(0, 0);
    }
#pragma unroll 1
    for (int m = 0; m < left; ++m) {
        const Word *generator = turns[(first + m) % (2 * MEMBERS)].generator;
        Word both[LOADS] = {};
#pragma unroll
        for (int u = 0; u < HALF / ROW_LANES; ++u) {
            const unsigned w = (2 * (part + ROW_LANES * u) + HALF) % WORDS;
            const Word a = generator[w], b = generator[(w + 1) % WORDS];
#pragma unroll
            for (int k = 0; k < LOADS; ++k)
                both[k] ^= (two[k][u].x & a) ^ (two[k][u].y & b);
        }
#pragma unroll
        for (int k = 0; k < LOADS; ++k)
            found |= (__popc((unsigned)(both[k] ^ both[k] >> 32)) & 1u) << (8 * k + member + m);
    }
#pragma unroll
    for (int step = 1; step < ROW_LANES; step *= 2)
        found ^= __shfl_xor_sync(ALL, found, step);
    return found;
}

// Append `row` to a queue in which so many wait, for the lanes that `take` it; returns how many wait then.
static __device__ __forceinline__ unsigned queued(unsigned *queue, unsigned waiting, bool take, Index row) {
    const unsigned takers = __ballot_sync(ALL, take);
    if (take)
        queue[waiting + __popc(takers & ((1u << threadIdx.x % 32) - 1))] = (unsigned)row;
    return waiting + __popc(takers);
}

// Load k of the bytes of rows from `base` on, four rows a lane; bytes of rows past n are 0.
static __device__ __forceinline__ unsigned four_bytes(const Byte *patterns, Index base, Index n) {
    const Index i = base + 4 * (threadIdx.x % 32);
    if (i >= n)
        return 0;
    const unsigned four = __ldcg(reinterpret_cast<const unsigned *>(patterns + i));
    return n - i < 4 ? four & ((1u << 8 * (n - i)) - 1) : four;
}

// The rotations `list[first]` to `list[last - 1]`; that of `list[k]` is event `event` + k. `resumed` is 0, or the
// rows that are there after a first attempt at list[first] that found no room. Gaps of `few` rows or fewer stay.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    turns(Word *keys, REAL *coefficients, int *frequencies, Byte *patterns, Word *slots, Word mask,
          Index capacity, unsigned *spare, Index few, const Turn *__restrict__ list, Index first, Index last,
          Index event, Index resumed, Limits limits, Event *log, Index *stalled, Word *arrivals) {
    __shared__ unsigned queues[THREADS / 32][CHUNK + 32];
    __shared__ Turn near[2 * MEMBERS];
    if (*stalled)
        return;
    const Index warp = WARP, warps = WARPS;
    const unsigned lane = threadIdx.x % 32;
    unsigned *queue = queues[threadIdx.x / 32];
    Word goal = 0;
    Index n = rows_after(log + event + first - 1);
    if (threadIdx.x < MEMBERS && first + threadIdx.x < last)
        near[(first + threadIdx.x) % (2 * MEMBERS)] = list[first + threadIdx.x];
    __syncthreads();
    for (Index t = first; t < last; ++t) {
        Event *own = log + event + t;
        const Turn &turn = near[t % (2 * MEMBERS)];
        const bool is_resumed = t == first && resumed;
        const Index there = is_resumed ? resumed : n;
        if (FIRST == 0)
            own->n = (Word)n;
        Tally tally = {};
        unsigned waiting = 0;
        const bool reads_keys = t == first || turn.member == 0;
        const Index step = reads_keys ? 0 : CHUNK * warps;
        for (Index base = (reads_keys ? TILE : CHUNK) * warp;; base += reads_keys ? TILE * warps : LOADS * step) {
            const bool is_end = base >= n;
            unsigned found[LOADS] = {};
            if (!is_end && reads_keys)
                found[0] = scan(keys, base, n, near, t);
            else if (!is_end) {
#pragma unroll
                for (int k = 0; k < LOADS; ++k)
                    found[k] = four_bytes(patterns, base + step * k, n);
            }
#pragma unroll 1
            for (int k = 0; k < LOADS && (k == 0 || base + step * k < n); ++k) {
                if (reads_keys) {
                    const Index i = base + (32 * k + lane) / ROW_LANES;
                    const unsigned byte = found[0] >> 8 * k & 255u;
                    const bool is_row = lane % ROW_LANES == 0 && i < n && !is_end;
                    if (is_row && turn.left > 1)
                        patterns[i] = (Byte)byte;
                    waiting = queued(queue, waiting, is_row && byte >> turn.member & 1, i);
                } else {
                    const unsigned four = k == 0 ? found[0] : k == 1 ? found[1] : k == 2 ? found[2] : found[3];
                    const Index i = base + step * k + 4 * lane;
#pragma unroll
                    for (int b = 0; b < 4; ++b)
                        waiting = queued(queue, waiting, four >> (8 * b + turn.member) & 1, i + b);
                }
                __syncwarp();
                while (waiting >= (is_end ? 1 : 32)) {
                    const unsigned some = waiting < 32 ? waiting : 32;
                    waiting -= some;
                    rotate(keys, coefficients, frequencies, patterns, slots, mask, capacity, n, there, is_resumed,
                           lane < some, lane < some ? queue[waiting + lane] : 0, turn, limits, own, tally);
                }
                __syncwarp();
            }
            if (is_end)
                break;
        }
        const int sweep = turn.sweep;
        arrive(arrivals);
        if (threadIdx.x == blockDim.x - 32 && t + MEMBERS < last)
            near[(t + MEMBERS) % (2 * MEMBERS)] = list[t + MEMBERS];
        if (sweep != 2)
            enter(own, tally);
        wait(arrivals, goal += gridDim.x);
        n = rows_after(own);
        const Word dead = dead_after(own - 1);
        if (n > capacity) {
            if (FIRST == 0)
                *stalled = event + t;
            return;
        }
        if (FIRST == 0)
            own->dead = dead;
        if (sweep == 2) {
            for (Index i = FIRST; i < n; i += STRIDE) {
                const double size = fabs((double)__ldcg(coefficients + i));
                if (size == 0)
                    continue;
                bool is_past = size < limits.merged_cut ||
                               (limits.max_frequency >= 0 && __ldcg(frequencies + i) > limits.max_frequency);
                if (!is_past && limits.has_letters)
                    is_past = too_heavy(load(keys, i), limits);
                if (!is_past) {
                    ++tally.left;
                    continue;
                }
                coefficients[i] = 0;
                ++tally.swept;
                tally.swept_l1 += size;
                tally.swept_squares += size * size;
            }
            arrive(arrivals);
            enter(own, tally);
            wait(arrivals, goal += gridDim.x);
        }
        if (n > few && has_gaps((Index)dead, n, capacity))
            n = close_gaps(keys, coefficients, frequencies, patterns, slots, mask, capacity, spare, n,
                           limits.max_frequency >= 0, own, arrivals, goal);
    }
}
