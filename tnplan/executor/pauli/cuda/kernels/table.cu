// Changes of all terms in a pass: transfers, Cliffords, sweeps; and rotations in two halves, for branches that go to
// another rank. See table.cuh. Twin: executor/pauli/terms/hash_table_kernel.py.

#include "table.cuh"
#include "blocks.cuh"

struct Turn {
    Word generator[WORDS];
    double cosine, sine, cut;
    Index event;
};

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
    Event *own = log + turn.event;
    const Index n = begin(log, stalled, turn.event);
    Word hits = 0, gone = 0;
    double l1 = 0, squares = 0;
    FOR_WARPS(i, n) {
        bool is_listed = false;
        double branch = 0;
        int frequency = 0;
        if (i < n) {
            const Row row = load(keys, i);
            const double old = anticommutes(row, turn.generator) ? (double)coefficients[i] : 0.0;
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
                branch *= branch_sign(row, turn.generator);
            }
        }
        const Index position = next_position(&own->listed, is_listed);
        if (is_listed) {
            index[position] = (unsigned)i;
            values[position] = (REAL)branch;
            counts[position] = frequency;
        }
    }
    add_of_warp(&own->hits, hits);
    add_of_warp(&own->gone, gone);
    add_of_warp(&own->l1, l1);
    add_of_warp(&own->squares, squares);
}

// Add each value of a list to its word; append the words that are not there. The arrays are large enough.
// Rows appended now have distinct words: none of them is looked up.
extern "C" __global__ void meet(Word *__restrict__ keys, REAL *__restrict__ coefficients,
                                int *__restrict__ frequencies, Word *slots, Word mask, const Word *sources,
                                const REAL *__restrict__ values, const int *__restrict__ counts, Index listed,
                                Event *log, const Index *stalled, Index event) {
    if (*stalled)
        return;
    Event *own = log + event;
    const Index n = begin(log, stalled, event);
    Word merged = 0, revived = 0;
    FOR_WARPS(b, listed) {
        Row row;
        Word hash = 0, at = 0;
        bool is_new = false;
        if (b < listed) {
            row = load(sources, b);
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
        const Index j = n + next_position(&own->added, is_new);
        if (is_new) {
            store(keys, j, row);
            coefficients[j] = values[b];
            frequencies[j] = counts[b];
            enter_row(slots, mask, hash, at, j);
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
    Event *own = log + event;
    const Index n = begin(log, stalled, event);
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
        const Index position = next_position(&own->listed, is_listed);
        if (is_listed) {
            index[position] = (unsigned)i;
            values[position] = (REAL)branch;
            counts[position] = frequencies[i];
        }
    }
    add_of_warp(&own->gone, gone);
    add_of_warp(&own->l1, l1);
}

// Multiply each row by the factor of its local word; hits counts those whose word splits.
extern "C" __global__ void scale(const Word *__restrict__ keys, REAL *__restrict__ coefficients,
                                 const int *__restrict__ qubits, int n_qubits, const double *__restrict__ factors,
                                 const int *__restrict__ splits, Event *log, const Index *stalled, Index event) {
    const Index n = begin(log, stalled, event);
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

// Apply one map to a row; the power of i that it brings.
static __device__ __forceinline__ int map_row(Row &row, const Word *__restrict__ images,
                                              const int *__restrict__ powers, const Word *__restrict__ touched,
                                              int map) {
    Row out;
    int power = 0;
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        out.word[w] = row.word[w] & ~touched[HALF * map + w % HALF];
#pragma unroll
    for (int w = 0; w < HALF; ++w) {
        const Word touched_here = touched[HALF * map + w];
        power += __popcll(row.word[w] & row.word[HALF + w] & touched_here);
        for (Word rest = (row.word[w] | row.word[HALF + w]) & touched_here; rest; rest &= rest - 1) {
            const int bit = __ffsll((long long)rest) - 1;
#pragma unroll
            for (int letter = 0; letter < 2; ++letter) {
                if (!(row.word[letter * HALF + w] >> bit & 1))
                    continue;
                const int number = 64 * (WORDS * map + letter * HALF + w) + bit;
                power += powers[number];
#pragma unroll
                for (int v = 0; v < HALF; ++v) {
                    const Word x = out.word[v], z = out.word[HALF + v];
                    const Word other_x = images[WORDS * number + v], other_z = images[WORDS * number + HALF + v];
                    out.word[v] = x ^ other_x;
                    out.word[HALF + v] = z ^ other_z;
                    power += __popcll(x & z) + __popcll(other_x & other_z) + 2 * __popcll(z & other_x);
                    power -= __popcll(out.word[v] & out.word[HALF + v]);
                }
            }
        }
    }
    row = out;
    return power;
}

// Apply maps in the order of their numbers `order`: each row becomes the product of the images of its factors;
// image b of bit b of a row, with a power of i. Only bits of `touched` change. The table is to be rebuilt.
extern "C" __global__ void clifford(Word *__restrict__ keys, REAL *__restrict__ coefficients,
                                    const Word *__restrict__ images, const int *__restrict__ powers,
                                    const Word *__restrict__ touched, const int *__restrict__ order, int maps,
                                    Event *log, const Index *stalled, Index event) {
    const Index n = begin(log, stalled, event);
    for (Index i = FIRST; i < n; i += STRIDE) {
        Row row = load(keys, i);
        int power = 0;
        for (int m = 0; m < maps; ++m)
            power += map_row(row, images, powers, touched, order[m]);
        store(keys, i, row);
        if (power & 2)
            coefficients[i] = -coefficients[i];
    }
}

// Take the terms that other shards own out of the n rows, `most` for each shard at most: those of shard s lie from
// most * s on, or most * (s - 1) where s > own, with the numbers of their rows, and their coefficients here become 0.
// Bit b of a row's shard is the parity of what it shares with mask b. shard_counts[s] counts the terms of shard s.
extern "C" __global__ void leave(const Word *__restrict__ keys, REAL *__restrict__ coefficients,
                                 const int *__restrict__ frequencies, const Word *__restrict__ masks, int bits,
                                 int own, Index n, Index most, Word *__restrict__ rows, REAL *__restrict__ values,
                                 int *__restrict__ counts, unsigned *__restrict__ free_rows, Word *shard_counts) {
    FOR_WARPS(i, n) {
        Row row;
        int shard = own;
        if (i < n && coefficients[i] != 0) {
            row = load(keys, i);
            shard = 0;
            for (int b = 0; b < bits; ++b) {
                Word both = 0;
#pragma unroll
                for (int w = 0; w < WORDS; ++w)
                    both ^= row.word[w] & masks[WORDS * b + w];
                shard |= (__popcll(both) & 1) << b;
            }
        }
        for (unsigned rest = __ballot_sync(ALL, shard != own); rest;) {
            const int to = __shfl_sync(ALL, shard, __ffs(rest) - 1);
            const bool goes = shard == to;
            const Index position = next_position(shard_counts + to, goes);
            if (goes && position < most) {
                const Index at = most * (to - (to > own)) + position;
                store(rows, at, row);
                values[at] = coefficients[i];
                counts[at] = frequencies[i];
                free_rows[at] = (unsigned)i;
                coefficients[i] = 0;
            }
            rest &= ~__ballot_sync(ALL, goes);
        }
    }
}

// Put so many terms in the `free` rows of these numbers, and those left over past n rows. The table is to be rebuilt.
extern "C" __global__ void join(Word *__restrict__ keys, REAL *__restrict__ coefficients,
                                int *__restrict__ frequencies, const Word *__restrict__ rows,
                                const REAL *__restrict__ values, const int *__restrict__ counts, Index arrived,
                                const unsigned *__restrict__ free_rows, Index free, Index n) {
    for (Index k = FIRST; k < arrived; k += STRIDE) {
        const Index at = k < free ? free_rows[k] : n + k - free;
        store(keys, at, load(rows, k));
        coefficients[at] = values[k];
        frequencies[at] = counts[k];
    }
}

// Set the coefficients of rows past a limit to 0; `left` counts the others.
extern "C" __global__ void sweep(const Word *__restrict__ keys, REAL *__restrict__ coefficients,
                                 const int *__restrict__ frequencies, Event *log, const Index *stalled,
                                 Limits limits) {
    Event *own = log + limits.event;
    const Index n = begin(log, stalled, limits.event);
    Word left = 0, gone = 0;
    double l1 = 0, squares = 0;
    FOR_WARPS(i, n) {
        const double size = i < n ? fabs((double)coefficients[i]) : 0.0;
        bool is_past = size < limits.merged_cut;
        if (size != 0 && !is_past && limits.max_frequency >= 0)
            is_past = frequencies[i] > limits.max_frequency;
        if (size != 0 && !is_past && limits.has_letters)
            is_past = too_heavy(load(keys, i), limits);
        if (size != 0 && is_past) {
            coefficients[i] = 0;
            ++gone;
            l1 += size;
            squares += size * size;
        }
        left += size != 0 && !is_past;
    }
    add_of_warp(&own->left, left);
    add_of_warp(&own->swept, gone);
    add_of_warp(&own->swept_l1, l1);
    add_of_warp(&own->swept_squares, squares);
}

// Enter the first `count` rows, which are distinct, into a table of zeros, or all after an event where `count` is -1.
extern "C" __global__ void rebuild(const Word *__restrict__ keys, Word *slots, Word mask, Event *log,
                                   const Index *stalled, Index event, Index count) {
    if (*stalled)
        return;
    const Index n = count < 0 ? rows_after(log + event) : count;
    for (Index i = FIRST; i < n; i += STRIDE) {
        const Word hash = hash_row(load(keys, i));
        enter_row(slots, mask, hash, hash & mask, i);
    }
}

// total += how many of the first n rows are terms that anticommute with the generator.
extern "C" __global__ void count_hits(const Word *__restrict__ keys, const REAL *__restrict__ coefficients,
                                      const Word *__restrict__ generator, Word *total, Index n) {
    Word count = 0;
    FOR_WARPS(i, n)
        count += i < n && coefficients[i] != 0 && anticommutes(load(keys, i), generator);
    add_of_warp(total, count);
}

// The hashes of the first n rows, of 64 bits.
extern "C" __global__ void hashes(const Word *__restrict__ keys, Word *__restrict__ out, Index n) {
    for (Index i = FIRST; i < n; i += STRIDE)
        out[i] = long_hash(load(keys, i));
}

// Close the gaps among the n rows of the event *log, where `packed` is then how many are gone. For `words` see Meeting.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    pack_rows(Word *keys, REAL *coefficients, int *frequencies, Word *slots, Word mask, Index capacity,
              unsigned *spare, Index n, Event *log, Word *words) {
    Meeting meeting = {words, 0};
    close_gaps(keys, coefficients, frequencies, (Byte *)nullptr, slots, mask, capacity, spare, n, true, log, meeting);
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
