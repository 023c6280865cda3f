// Terms of a sum of Pauli words in a hash table: rotations, transfers, Cliffords, sweeps. Term i has the row
// keys[WORDS i ..] (WORDS / 2 words of x, then of z), a coefficient and a frequency; where the coefficient is 0
// there is no term, but the row stays and may come back.
// Injected: WORDS (uint64 a row), REAL (float, double). Twin: executor/pauli/hash_kernel.py.
//
// Every launch belongs to an event, a place of the log: event e begins with n = log[e-1].n + log[e-1].added rows.
// Where a list does not fit, `meet` writes its event to *stalled, and every launch after it does nothing until the
// host has made room, cleared it, and begins again with that `meet`.
//
// A rotation reads the keys of all rows, 8 WORDS bytes each, and nothing else of those that commute. A row that
// does not: coefficient and frequency read and written; 8 + sizeof(REAL) bytes a branch to the list and from it,
// the source's key, an entry of the table and the target's key, coefficient and frequency, each a sector of 32.
// Branches of one list go to distinct words: coefficients have the same bits in every run, whatever the order.

typedef unsigned long long Word;
typedef long long Index;

struct Event {
    Word n, added, listed, hits, merged, revived, gone;
    double l1, squares;
};

struct Turn {
    Word generator[WORDS];
    double cosine, sine, cut;
    Index event;
};

struct Limits {
    double merged_cut;
    int max_weight, max_xy, max_frequency, has_letters;
    Index event;
};

struct Row {
    Word word[WORDS];
};

#define HALF (WORDS / 2)
#define ALL 0xffffffffu
#define STRIDE ((Index)gridDim.x * blockDim.x)
#define FIRST ((Index)blockIdx.x * blockDim.x + threadIdx.x)
// All lanes of a warp make every turn of such a loop, so that they can vote in it.
#define FOR_WARPS(i, n) for (Index i = FIRST; i - threadIdx.x % 32 < (n); i += STRIDE)

static __device__ __forceinline__ Row load(const Word *__restrict__ keys, Index i) {
    Row row;
    const ulonglong2 *from = reinterpret_cast<const ulonglong2 *>(keys + WORDS * i);
#pragma unroll
    for (int w = 0; w < WORDS; w += 2) {
        const ulonglong2 two = from[w / 2];
        row.word[w] = two.x;
        row.word[w + 1] = two.y;
    }
    return row;
}

static __device__ __forceinline__ void store(Word *keys, Index i, const Row &row) {
    ulonglong2 *to = reinterpret_cast<ulonglong2 *>(keys + WORDS * i);
#pragma unroll
    for (int w = 0; w < WORDS; w += 2)
        to[w / 2] = make_ulonglong2(row.word[w], row.word[w + 1]);
}

static __device__ __forceinline__ Word hash_row(const Row &row) {
    Word value = 0x9E3779B97F4A7C15ull;
#pragma unroll
    for (int w = 0; w < WORDS; ++w) {
        value = (value ^ row.word[w]) * 0xBF58476D1CE4E5B9ull;
        value ^= value >> 32;
    }
    return (value * 0x9E3779B97F4A7C15ull) >> 32;
}

static __device__ __forceinline__ bool same(const Row &a, const Row &b) {
    Word different = 0;
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        different |= a.word[w] ^ b.word[w];
    return different == 0;
}

// The next free place of a list that *count counts, for the lanes that `take` one. All lanes call it.
static __device__ __forceinline__ Index next_place(Word *count, bool take) {
    const unsigned takers = __ballot_sync(ALL, take);
    if (takers == 0)
        return 0;
    const int leader = __ffs(takers) - 1, lane = threadIdx.x % 32;
    Word first = 0;
    if (lane == leader)
        first = atomicAdd(count, (Word)__popc(takers));
    first = __shfl_sync(ALL, first, leader);
    return (Index)first + __popc(takers & ((1u << lane) - 1));
}

template <typename T> static __device__ __forceinline__ void add_of_warp(T *total, T value) {
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_down_sync(ALL, value, offset);
    if (threadIdx.x % 32 == 0 && value != 0)
        atomicAdd(total, value);
}

static __device__ __forceinline__ Index rows_before(const Event *log, Index event) {
    return (Index)(log[event - 1].n + log[event - 1].added);
}

// The number of rows at an event, which is entered in the log.
static __device__ __forceinline__ Index begin(Event *log, Index event) {
    const Index n = rows_before(log, event);
    if (FIRST == 0)
        log[event].n = (Word)n;
    return n;
}

static __device__ __forceinline__ int local_word(const Row &row, const int *qubits, int n_qubits) {
    int word = 0;
    for (int j = 0; j < n_qubits; ++j)
#pragma unroll
        for (int w = 0; w < HALF; ++w)
            if (qubits[j] >> 6 == w) {
                word |= (int)(row.word[w] >> (qubits[j] & 63) & 1) << 2 * j;
                word |= (int)(row.word[HALF + w] >> (qubits[j] & 63) & 1) << (2 * j + 1);
            }
    return word;
}

// P becomes cosine P - s sine Q with G P = i s Q: scale the rows that anticommute with G, list -s sine Q.
extern "C" __global__ void split(const Word *__restrict__ keys, REAL *__restrict__ coefficients,
                                 int *__restrict__ frequencies, unsigned *__restrict__ index,
                                 REAL *__restrict__ values, int *__restrict__ counts, Event *log,
                                 const Index *stalled, Turn turn) {
    if (*stalled)
        return;
    Event *own = log + turn.event;
    const Index n = begin(log, turn.event);
    int power_of_g = 0;
#pragma unroll
    for (int w = 0; w < HALF; ++w)
        power_of_g += __popcll(turn.generator[w] & turn.generator[HALF + w]);
    Word hits = 0, gone = 0;
    double l1 = 0, squares = 0;
    FOR_WARPS(i, n) {
        bool is_listed = false;
        double branch = 0;
        int frequency = 0;
        if (i < n) {
            const Row row = load(keys, i);
            Word both = 0;
#pragma unroll
            for (int w = 0; w < HALF; ++w)
                both ^= (row.word[w] & turn.generator[HALF + w]) ^ (row.word[HALF + w] & turn.generator[w]);
            const double old = __popcll(both) & 1 ? (double)coefficients[i] : 0.0;
            if (old != 0) {
                ++hits;
                coefficients[i] = (REAL)(turn.cosine * old);
                frequencies[i] = frequency = frequencies[i] + 1;
                branch = turn.sine * old;
                is_listed = fabs(branch) >= turn.cut && branch != 0;
                if (!is_listed && branch != 0) {
                    ++gone;
                    l1 += fabs(branch);
                    squares += branch * branch;
                }
                int power = power_of_g;
#pragma unroll
                for (int w = 0; w < HALF; ++w) {
                    const Word x = row.word[w], z = row.word[HALF + w];
                    power += __popcll(x & z) + 2 * __popcll(turn.generator[HALF + w] & x);
                    power -= __popcll((x ^ turn.generator[w]) & (z ^ turn.generator[HALF + w]));
                }
                branch = (power & 3) == 1 ? -branch : branch;
            }
        }
        const Index place = next_place(&own->listed, is_listed);
        if (is_listed) {
            index[place] = (unsigned)i;
            values[place] = (REAL)branch;
            counts[place] = frequency;
        }
    }
    add_of_warp(&own->hits, hits);
    add_of_warp(&own->gone, gone);
    add_of_warp(&own->l1, l1);
    add_of_warp(&own->squares, squares);
}

// Add each value of a list to the word sources[index] times the generator; append the words that are not there.
// Without `index`, value b belongs to row b. Rows appended now have distinct words: none of them is looked up.
extern "C" __global__ void meet(Word *__restrict__ keys, REAL *__restrict__ coefficients,
                                int *__restrict__ frequencies, Word *slots, Word mask,
                                const Word *sources, const unsigned *__restrict__ index,
                                const REAL *__restrict__ values, const int *__restrict__ counts, Event *log,
                                Index *stalled, Index capacity, Turn turn) {
    if (*stalled)
        return;
    Event *own = log + turn.event;
    const Index n = begin(log, turn.event), listed = (Index)own->listed;
    if (n + listed > capacity) {
        if (FIRST == 0)
            *stalled = turn.event;
        return;
    }
    Word merged = 0, revived = 0;
    FOR_WARPS(b, listed) {
        Row row;
        Word hash = 0, at = 0;
        bool is_new = false;
        if (b < listed) {
            row = load(sources, index ? (Index)index[b] : b);
#pragma unroll
            for (int w = 0; w < WORDS; ++w)
                row.word[w] ^= turn.generator[w];
            hash = hash_row(row);
            for (at = hash & mask;; at = (at + 1) & mask) {
                const Word slot = *(volatile Word *)(slots + at);
                is_new = slot == 0;
                if (is_new)
                    break;
                const Index j = (Index)(slot & 0xffffffffull) - 1;
                if (slot >> 32 != hash || j >= n || !same(load(keys, j), row))
                    continue;
                const REAL old = coefficients[j];
                merged += old != 0;
                revived += old == 0;
                coefficients[j] = old + values[b];
                frequencies[j] = old != 0 ? min(frequencies[j], counts[b]) : counts[b];
                break;
            }
        }
        const Index j = n + next_place(&own->added, is_new);
        if (is_new) {
            store(keys, j, row);
            coefficients[j] = values[b];
            frequencies[j] = counts[b];
            while (atomicCAS(slots + at, 0ull, hash << 32 | (Word)(j + 1)) != 0)
                at = (at + 1) & mask;
        }
    }
    add_of_warp(&own->merged, merged);
    add_of_warp(&own->revived, revived);
}

// List weights[a] times the coefficient of each row of local word a, where that is not 0.
extern "C" __global__ void branches(const Word *__restrict__ keys, const REAL *__restrict__ coefficients,
                                    const int *__restrict__ frequencies, const int *__restrict__ qubits,
                                    int n_qubits, const double *__restrict__ weights, unsigned *__restrict__ index,
                                    REAL *__restrict__ values, int *__restrict__ counts, Event *log,
                                    const Index *stalled, double cut, Index event) {
    if (*stalled)
        return;
    Event *own = log + event;
    const Index n = begin(log, event);
    Word gone = 0;
    double l1 = 0;
    FOR_WARPS(i, n) {
        double branch = 0;
        if (i < n && coefficients[i] != 0)
            branch = weights[local_word(load(keys, i), qubits, n_qubits)] * (double)coefficients[i];
        const bool is_listed = branch != 0 && fabs(branch) >= cut;
        if (branch != 0 && !is_listed) {
            ++gone;
            l1 += fabs(branch);
        }
        const Index place = next_place(&own->listed, is_listed);
        if (is_listed) {
            index[place] = (unsigned)i;
            values[place] = (REAL)branch;
            counts[place] = frequencies[i];
        }
    }
    add_of_warp(&own->gone, gone);
    add_of_warp(&own->l1, l1);
}

// Multiply each row by the factor of its local word; hits counts those whose word splits.
extern "C" __global__ void scale(const Word *__restrict__ keys, REAL *__restrict__ coefficients,
                                 const int *__restrict__ qubits, int n_qubits, const double *__restrict__ factors,
                                 const int *__restrict__ splits, Event *log, const Index *stalled, Index event) {
    if (*stalled)
        return;
    const Index n = begin(log, event);
    Word hits = 0;
    FOR_WARPS(i, n) {
        if (i < n && coefficients[i] != 0) {
            const int word = local_word(load(keys, i), qubits, n_qubits);
            coefficients[i] = (REAL)(factors[word] * (double)coefficients[i]);
            hits += splits[word];
        }
    }
    add_of_warp(&log[event].hits, hits);
}

// Each row becomes the product of the images of its factors; image b of bit b of a row, with a power of i. Only
// bits of `touched` change. The table of rows is to be rebuilt.
extern "C" __global__ void clifford(Word *__restrict__ keys, REAL *__restrict__ coefficients,
                                    const Word *__restrict__ images, const int *__restrict__ powers,
                                    const Word *__restrict__ touched, Event *log, const Index *stalled,
                                    Index event) {
    if (*stalled)
        return;
    const Index n = begin(log, event);
    for (Index i = FIRST; i < n; i += STRIDE) {
        const Row row = load(keys, i);
        Row out;
        int power = 0;
#pragma unroll
        for (int w = 0; w < WORDS; ++w)
            out.word[w] = 0;
#pragma unroll
        for (int w = 0; w < HALF; ++w) {
            power += __popcll(row.word[w] & row.word[HALF + w] & touched[w]);
            Word rest = (row.word[w] | row.word[HALF + w]) & touched[w];
            for (; rest; rest &= rest - 1) {
                const int bit = __ffsll((long long)rest) - 1;
#pragma unroll
                for (int part = 0; part < 2; ++part) {
                    if (!(row.word[part * HALF + w] >> bit & 1))
                        continue;
                    const int number = 64 * (part * HALF + w) + bit;
                    const Row image = load(images, number);
                    power += powers[number];
#pragma unroll
                    for (int v = 0; v < HALF; ++v) {
                        const Word x = out.word[v], z = out.word[HALF + v];
                        const Word other_x = image.word[v], other_z = image.word[HALF + v];
                        out.word[v] = x ^ other_x;
                        out.word[HALF + v] = z ^ other_z;
                        power += __popcll(x & z) + __popcll(other_x & other_z) + 2 * __popcll(z & other_x);
                        power -= __popcll(out.word[v] & out.word[HALF + v]);
                    }
                }
            }
        }
#pragma unroll
        for (int w = 0; w < WORDS; ++w)
            out.word[w] |= row.word[w] & ~touched[w % HALF];
        store(keys, i, out);
        if (power & 2)
            coefficients[i] = -coefficients[i];
    }
}

// Set the coefficients of rows past a limit to 0. hits counts the terms that are left.
extern "C" __global__ void sweep(const Word *__restrict__ keys, REAL *__restrict__ coefficients,
                                 const int *__restrict__ frequencies, Event *log, const Index *stalled,
                                 Limits limits) {
    if (*stalled)
        return;
    Event *own = log + limits.event;
    const Index n = begin(log, limits.event);
    Word left = 0, gone = 0;
    double l1 = 0, squares = 0;
    FOR_WARPS(i, n) {
        const double size = i < n ? fabs((double)coefficients[i]) : 0.0;
        bool is_past = size < limits.merged_cut;
        if (size != 0 && !is_past && limits.max_frequency >= 0)
            is_past = frequencies[i] > limits.max_frequency;
        if (size != 0 && !is_past && limits.has_letters) {
            const Row row = load(keys, i);
            int weight = 0, xy = 0;
#pragma unroll
            for (int w = 0; w < HALF; ++w) {
                weight += __popcll(row.word[w] | row.word[HALF + w]);
                xy += __popcll(row.word[w]);
            }
            is_past = weight > limits.max_weight || xy > limits.max_xy;
        }
        if (size != 0 && is_past) {
            coefficients[i] = 0;
            ++gone;
            l1 += size;
            squares += size * size;
        }
        left += size != 0 && !is_past;
    }
    add_of_warp(&own->hits, left);
    add_of_warp(&own->gone, gone);
    add_of_warp(&own->l1, l1);
    add_of_warp(&own->squares, squares);
}

// Enter all rows, which are distinct, into a table of zeros.
extern "C" __global__ void rebuild(const Word *__restrict__ keys, Word *slots, Word mask, Event *log,
                                   const Index *stalled, Index event) {
    if (*stalled)
        return;
    const Index n = rows_before(log, event);
    for (Index i = FIRST; i < n; i += STRIDE) {
        const Word hash = hash_row(load(keys, i));
        Word at = hash & mask;
        while (atomicCAS(slots + at, 0ull, hash << 32 | (Word)(i + 1)) != 0)
            at = (at + 1) & mask;
    }
}

// sums += the sum over rows without X and Y of coefficient times (-1)^(number of z bits shared with `ones`).
extern "C" __global__ void expect(const Word *__restrict__ keys, const REAL *__restrict__ coefficients,
                                  const Word *__restrict__ ones, double *sum, Index n) {
    double total = 0;
    FOR_WARPS(i, n) {
        if (i < n && coefficients[i] != 0) {
            const Row row = load(keys, i);
            Word any_x = 0;
            int shared = 0;
#pragma unroll
            for (int w = 0; w < HALF; ++w) {
                any_x |= row.word[w];
                shared += __popcll(row.word[HALF + w] & ones[w]);
            }
            if (any_x == 0)
                total += shared & 1 ? -(double)coefficients[i] : (double)coefficients[i];
        }
    }
    add_of_warp(sum, total);
}
