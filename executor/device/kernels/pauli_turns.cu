// Rotations one after another in one launch of blocks that all run at once. See pauli.cuh.
// Twin: executor/pauli/hash_kernel.py.
//
// The words that a rotation about G mixes are pairs P, G P, and no word is in two of them. Where a row finds its
// partner in the table, the lower of the two does both; where it does not, the row has its pair to itself, and
// appends the partner if its branch is not cut. No row is written by two threads, and a coefficient is the sum of
// the same two numbers in every run. Rows appended by a rotation are not looked at in it: their words are
// distinct, and no other row looks for them.
//
// Each warp reads its share of the keys, 8 WORDS bytes a row, and lists the rows that anticommute; when 32 wait, it
// rotates them, a lane each. Such a row reads an entry of the table and its partner's key; a pair's two coefficients
// are read and written. Frequencies are followed only where they are a limit. When a quarter of the rows are no
// terms, the gaps are closed between two rotations.

#include "pauli.cuh"

#define THREADS 1024
// Lanes that share the reading of a row, 16 bytes each at a time, and loads of a lane that are under way at once.
#define ROW_LANES (HALF == 2 ? 2 : HALF == 4 ? 4 : 1)
#define LOADS 4
// The number of a warp, warps next to each other being of different blocks, and how many there are.
#define WARP ((Index)(threadIdx.x / 32) * gridDim.x + blockIdx.x)
#define WARPS ((Index)gridDim.x * (THREADS / 32))
#define TILE (32 / ROW_LANES * LOADS)

// `sweep`: 0 none; 1 of the rows that the rotation changes, all others being within the limits; 2 of all rows.
struct Turn {
    Word generator[WORDS];
    double cosine, sine, cut;
    Index sweep;
};

// What a thread saw in a rotation; the fields of Event.
struct Tally {
    unsigned hits, merged, revived, gone, passed, swept, zeros, left;
    double l1, squares, swept_l1, swept_squares;
};

#define COUNTS 8
#define SUMS 4

// The blocks meet: each arrives, and waits until `goal` arrivals. What a block wrote before it arrived, all see
// after they waited. *arrivals is 0 when the kernel begins.
static __device__ __forceinline__ void arrive(Word *arrivals) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrivals, 1ull);
    }
}

static __device__ __forceinline__ void wait(const Word *arrivals, Word goal) {
    if (threadIdx.x == 0) {
        while (*(const volatile Word *)arrivals < goal) {
        }
        __threadfence();
    }
    __syncthreads();
}

// Add the tallies of a block to the log.
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
#pragma unroll
    for (int k = 0; k < COUNTS; ++k) {
        const unsigned all = __reduce_add_sync(ALL, count[k]);
        if (threadIdx.x % 32 == 0 && all)
            atomicAdd(counts + k, all);
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
static __device__ __forceinline__ void rotate(Word *keys, REAL *coefficients, int *frequencies, Word *slots,
                                              Word mask, Index capacity, Index n, Index there, bool is_resumed,
                                              bool is_row, Index i, const Turn &turn, const Limits &limits,
                                              Event *own, Tally &tally) {
    Row row, other;
    Word hash = 0, at = 0;
    Index j = -1;
    REAL value = 0;
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
            if (slot >> 32 == hash && k < there && same(load(keys, k), other)) {
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
    const REAL second = __ldcg(coefficients + j);
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

// Which rows of a tile anticommute with the generator: for load k those of `takers[k]`, bit ROW_LANES r for row
// base + 32 / ROW_LANES k + r. `swapped`: the generator's z, then its x.
static __device__ __forceinline__ void scan(const Word *keys, Index base, Index n, const Word *swapped,
                                            unsigned (&takers)[LOADS]) {
    const unsigned lane = threadIdx.x % 32, part = lane % ROW_LANES;
    const ulonglong2 *from = reinterpret_cast<const ulonglong2 *>(keys);
    ulonglong2 two[LOADS][HALF / ROW_LANES];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        const Index i = base + (32 * k + lane) / ROW_LANES;
#pragma unroll
        for (int u = 0; u < HALF / ROW_LANES; ++u)
            two[k][u] = i < n ? __ldcg(from + HALF * i + part + ROW_LANES * u) : make_ulonglong2(0, 0);
    }
#pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        Word both = 0;
#pragma unroll
        for (int u = 0; u < HALF / ROW_LANES; ++u) {
            const unsigned w = 2 * (part + ROW_LANES * u);
            both ^= (two[k][u].x & swapped[w]) ^ (two[k][u].y & swapped[w + 1]);
        }
        unsigned odd = __ballot_sync(ALL, __popcll(both) & 1);
#pragma unroll
        for (int step = 1; step < ROW_LANES; step *= 2)
            odd ^= odd >> step;
        takers[k] = odd & (ROW_LANES == 4 ? 0x11111111u : ROW_LANES == 2 ? 0x55555555u : ALL);
    }
}

// Write to the end of a list, which *count counts, the rows base + 32 k + lane that are `chosen`.
static __device__ __forceinline__ void list_rows(Word *count, unsigned *list, Index base,
                                                 const bool (&chosen)[LOADS]) {
    const unsigned lane = threadIdx.x % 32;
    unsigned takers[LOADS], all = 0;
#pragma unroll
    for (int k = 0; k < LOADS; ++k)
        all += __popc(takers[k] = __ballot_sync(ALL, chosen[k]));
    if (all == 0)
        return;
    Word next = 0;
    if (lane == 0)
        next = atomicAdd(count, (Word)all);
    next = __shfl_sync(ALL, next, 0);
#pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        if (chosen[k])
            list[next + __popc(takers[k] & ((1u << lane) - 1))] = (unsigned)(base + 32 * k + lane);
        next += __popc(takers[k]);
    }
}

// Close the gaps among `rows` rows: terms past the number of terms move to the places below it that are free, and
// the table is made anew. `spare` has room for `capacity` numbers. Returns how many rows are left.
static __device__ Index close_gaps(Word *keys, REAL *coefficients, int *frequencies, Word *slots, Word mask,
                                   Index capacity, unsigned *spare, Index rows, bool follows, Event *own,
                                   Word *arrivals, Word &goal) {
    const Index warp = WARP, warps = WARPS;
    const unsigned lane = threadIdx.x % 32;
    unsigned *holes = spare, *movers = spare + capacity / 2;
    Word count = 0;
    for (Index i = FIRST; i < rows; i += STRIDE)
        count += __ldcg(coefficients + i) != 0;
    for (Word at = FIRST; at <= mask; at += STRIDE)
        slots[at] = 0;
    add_of_warp(&own->alive, count);
    arrive(arrivals);
    wait(arrivals, goal += gridDim.x);
    const Index alive = (Index) * (volatile Word *)&own->alive;
    for (Index base = 32 * LOADS * warp; base < rows; base += 32 * LOADS * warps) {
        bool is_term[LOADS], is_hole[LOADS], is_mover[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            const Index i = base + 32 * k + lane;
            is_term[k] = i < rows && __ldcg(coefficients + i) != 0;
            is_hole[k] = i < alive && !is_term[k];
            is_mover[k] = i >= alive && is_term[k];
        }
        list_rows(&own->holes, holes, base, is_hole);
        list_rows(&own->movers, movers, base, is_mover);
        for (int k = 0; k < LOADS; ++k) {
            const Index i = base + 32 * k + lane;
            if (!is_term[k] || is_mover[k])
                continue;
            const Word hash = hash_row(load(keys, i));
            enter_row(slots, mask, hash, hash & mask, i);
        }
    }
    arrive(arrivals);
    wait(arrivals, goal += gridDim.x);
    const Index moved = (Index) * (volatile Word *)&own->movers;
    for (Index m = FIRST; m < moved; m += STRIDE) {
        const Index from = __ldcg(movers + m), to = __ldcg(holes + m);
        const Row row = load(keys, from);
        const Word hash = hash_row(row);
        store(keys, to, row);
        coefficients[to] = __ldcg(coefficients + from);
        if (follows)
            frequencies[to] = __ldcg(frequencies + from);
        enter_row(slots, mask, hash, hash & mask, to);
    }
    if (FIRST == 0) {
        own->packed = (Word)(rows - alive);
        own->dead = own->passed + own->revived - own->swept - own->zeros;
    }
    arrive(arrivals);
    wait(arrivals, goal += gridDim.x);
    return alive;
}

// The rotations `list[first]` to `list[last - 1]`; that of `list[k]` is event `event` + k. `resumed` is 0, or the
// rows that are there after a first attempt at list[first] that found no room. Gaps of `few` rows or fewer stay.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    turns(Word *keys, REAL *coefficients, int *frequencies, Word *slots, Word mask, Index capacity,
          unsigned *spare, Index few, const Turn *__restrict__ list, Index first, Index last, Index event,
          Index resumed, Limits limits, Event *log, Index *stalled, Word *arrivals) {
    __shared__ unsigned queues[THREADS / 32][TILE + 32];
    __shared__ Turn pair[2];
    if (*stalled)
        return;
    const Index warp = WARP, warps = WARPS;
    const unsigned lane = threadIdx.x % 32;
    unsigned *queue = queues[threadIdx.x / 32];
    Word goal = 0;
    Index n = rows_after(log + event + first - 1);
    if (threadIdx.x == 0)
        pair[first % 2] = list[first];
    __syncthreads();
    for (Index t = first; t < last; ++t) {
        Event *own = log + event + t;
        const Turn &turn = pair[t % 2];
        const bool is_resumed = t == first && resumed;
        const Index there = is_resumed ? resumed : n;
        if (FIRST == 0)
            own->n = (Word)n;
        Word swapped[WORDS];
#pragma unroll
        for (int w = 0; w < WORDS; ++w)
            swapped[w] = turn.generator[(w + HALF) % WORDS];
        Tally tally = {};
        unsigned waiting = 0;
        for (Index base = TILE * warp;; base += TILE * warps) {
            const bool is_end = base >= n;
            if (!is_end) {
                unsigned takers[LOADS];
                scan(keys, base, n, swapped, takers);
#pragma unroll
                for (int k = 0; k < LOADS; ++k) {
                    if (takers[k] >> lane & 1)
                        queue[waiting + __popc(takers[k] & ((1u << lane) - 1))] =
                            (unsigned)(base + (32 * k + lane) / ROW_LANES);
                    waiting += __popc(takers[k]);
                }
                __syncwarp();
            }
            while (waiting >= 32 || (is_end && waiting)) {
                const unsigned some = waiting < 32 ? waiting : 32;
                waiting -= some;
                rotate(keys, coefficients, frequencies, slots, mask, capacity, n, there, is_resumed, lane < some,
                       lane < some ? queue[waiting + lane] : 0, turn, limits, own, tally);
            }
            if (is_end)
                break;
            __syncwarp();
        }
        const Index sweep = turn.sweep;
        arrive(arrivals);
        if (threadIdx.x == THREADS - 32 && t + 1 < last)
            pair[(t + 1) % 2] = list[t + 1];
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
        if (4 * dead > (Word)n && n > few)
            n = close_gaps(keys, coefficients, frequencies, slots, mask, capacity, spare, n,
                           limits.max_frequency >= 0, own, arrivals, goal);
    }
}
