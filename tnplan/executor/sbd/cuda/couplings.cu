// What a list of determinants couples to, in a hash table (selected_ci/shards.py). CPU twin: connections_kernel.py.
//
// A key is WORDS words of 64 bits: bit p is orbital p of alpha, bit STRIDE + p that of beta. Words of ones alone are free:
// no determinant has one. Threads set the words of a slot one after another and never change them, so that all
// threads of a key end at one slot: the first from its hash on that has no other word. Values are integers, so that they
// do not depend on the order in which threads come: sums are scaled, and magnitudes are the bits of positive doubles.
//
// Injected: WORDS, STRIDE, THREADS of a block, MODE (0: the sum of H_ai weight; 1: the largest |H_ai weight|; 2: the
// sum of |H_ai|^2 weight).

typedef unsigned long long Word;

#include "strings.cuh"

const int MOST_PROBES = 1 << 12, LOOK_EVERY = 64;
const Word FREE = ~0ull;
const Index MEMBER = (Index)(1ull << 63);  // the value of members of the list

// Both spins of a determinant.
typedef String Key;

__device__ inline bool fills(const Key &key, int bit) {
    Word word = 0;
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        word |= bit / 64 == w ? key.words[w] : 0;
    return word >> bit % 64 & 1;
}

__device__ inline void turn(Key &key, int bit) {
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        key.words[w] ^= bit / 64 == w ? (Word)1 << bit % 64 : 0;
}

// The bits of word w below a bit.
__device__ inline Word below(int bit, int w) {
    const int inside = bit - 64 * w;
    return inside <= 0 ? 0 : inside >= 64 ? ~(Word)0 : ((Word)1 << inside) - 1;
}

// How many bits are set from the first to before the last.
__device__ inline int filled(const Key &key, int first, int last) {
    int count = 0;
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        count += __popcll(key.words[w] & below(last, w) & ~below(first, w));
    return count;
}

// Whether an electron passes an odd number of others between two bits.
__device__ inline bool is_odd(const Key &key, int p, int q) {
    return filled(key, (p < q ? p : q) + 1, p < q ? q : p) & 1;
}

// Bits of a hash are as good as random: the finalizer of SplitMix64, word by word.
__device__ inline Word hash_of(const Key &key) {
    Word hash = 0;
#pragma unroll
    for (int w = 0; w < WORDS; ++w) {
        hash = (hash ^ key.words[w]) + 0x9e3779b97f4a7c15ull;
        hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9ull;
        hash = (hash ^ hash >> 27) * 0x94d049bb133111ebull;
        hash ^= hash >> 31;
    }
    return hash;
}

// The table of a shard: hashes whose lowest bits are its number. state[0] counts keys, state[1] is set where it is full.
struct Table {
    Word *keys;
    Index *values;
    Index n_slots;
    Index *state;
    Word shard, shards;
};

__device__ inline bool holds(const Table &table, Word hash) { return (hash & table.shards - 1) == table.shard; }

// The slot of a key, or -1 where there is none. `is_new`: this thread has put it there, which it does if it may.
__device__ inline Index slot_of(const Table &table, const Key &key, Word hash, bool may_add, bool &is_new) {
    Index slot = (Index)__umul64hi(hash, (Word)table.n_slots);
    for (int probe = 0; probe < MOST_PROBES; ++probe) {
        bool is_same = true;
#pragma unroll
        for (int w = 0; w < WORDS; ++w)
            if (is_same) {
                Word *place = table.keys + WORDS * slot + w, old = *place;
                if (old == FREE && may_add) {
                    old = atomicCAS(place, FREE, key.words[w]);
                    is_new = w == WORDS - 1 && old == FREE;
                    old = old == FREE ? key.words[w] : old;
                }
                if (old == FREE)
                    return -1;
                is_same = old == key.words[w];
            }
        if (is_same)
            return slot;
        slot = slot + 1 == table.n_slots ? 0 : slot + 1;
        if (probe % LOOK_EVERY == LOOK_EVERY - 1 && *(volatile Index *)(table.state + 1))
            return -1;
    }
    if (may_add)
        table.state[1] = 1;
    return -1;
}

// Take in a term of a key; 1 where the key is new.
__device__ inline int put(const Table &table, const Key &key, Word hash, double element, bool is_minus, double weight,
                          double scale) {
    bool is_new = false;
    const Index slot = slot_of(table, key, hash, true, is_new);
    if (slot < 0)
        return 0;
#if MODE == 1
    const Index value = __double_as_longlong(fabs(element * weight));
    if (table.values[slot] < value)
        atomicMax(table.values + slot, value);
#else
    const double term = MODE == 2 ? element * element * weight : is_minus ? -element * weight : element * weight;
    atomicAdd((Word *)table.values + slot, (Word)__double2ll_rn(term * scale));
#endif
    return is_new;
}

typedef unsigned short Orbitals[2][64];  // fewer than 64 electrons of a spin

// All determinants of the shard that members first .. last - 1 couple to, by |H_ai| > limits[i]. A warp takes a member,
// its lanes the places of singles and the pairs of electrons of doubles. Ends where the table has more than `most` keys.
// Singles are one[spin, p, q] + the sum of same[spin, p, q, k] over its own spin + that of other[spin, p, q, k], none
// above reach[spin, p, q]. Doubles of type alpha, beta or both lead from two orbitals to create[e], in falling |value[e]|.
extern "C" __global__ void __launch_bounds__(THREADS)
    collect(int n, Index first, Index last, const Word *__restrict__ members, const double *__restrict__ weights,
            const double *__restrict__ limits, const double *__restrict__ one, const double *__restrict__ same,
            const double *__restrict__ other, const double *__restrict__ reach, const Index *__restrict__ start,
            const short *__restrict__ create, const double *__restrict__ value, double scale, Word shard, Word shards,
            Index n_slots, Index most, Word *keys, Index *values, Index *state) {
    __shared__ Orbitals of_warps[WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Index i = first + (Index)blockIdx.x * WARPS + warp;
    const Table table = {keys, values, n_slots, state, shard, shards};
    const int is_full = __shfl_sync(ALL, (int)*(volatile Index *)(state + 1), 0);
    if (i >= last || is_full)
        return;
    const double weight = weights[i], limit = limits[i];
    if (weight == 0)
        return;
    const Key source = string_at(members, i);
    Orbitals &orbitals = of_warps[warp];
    int counts[2];
    for (int spin = 0; spin < 2; ++spin) {
        const int zero = spin * STRIDE;
        for (int p = lane; p < n; p += 32)
            if (fills(source, zero + p))
                orbitals[spin][filled(source, zero, zero + p)] = p;
        counts[spin] = filled(source, zero, zero + n);
    }
    __syncwarp();
    unsigned added = 0;
    for (int spin = 0; spin < 2; ++spin)
        for (int place = lane; place < counts[spin] * n; place += 32) {
            const int q = orbitals[spin][place / n], p = place % n, zero = spin * STRIDE;
            const Index at = ((Index)spin * n + p) * n + q;
            if (!(reach[at] > limit) || fills(source, zero + p))
                continue;
            Key key = source;
            turn(key, zero + q);
            turn(key, zero + p);
            const Word hash = hash_of(key);
            if (!holds(table, hash))
                continue;
            double element = one[at];
            for (int j = 0; j < counts[spin]; ++j)
                element += same[at * n + orbitals[spin][j]];
            for (int j = 0; j < counts[1 - spin]; ++j)
                element += other[at * n + orbitals[1 - spin][j]];
            if (fabs(element) > limit)
                added += put(table, key, hash, element, is_odd(source, zero + p, zero + q), weight, scale);
        }
    for (int type = 0; type < 3; ++type) {
        const bool is_mixed = type == 2;
        const int spin1 = type % 2, spin2 = is_mixed ? 1 : type, zero1 = spin1 * STRIDE, zero2 = spin2 * STRIDE;
        for (int pair = lane; pair < counts[spin1] * counts[spin2]; pair += 32) {
            const int k = pair / counts[spin2], j = pair % counts[spin2];
            if (!is_mixed && j <= k)
                continue;
            const int q1 = orbitals[spin1][k], q2 = orbitals[spin2][j];
            const Index row = (Index)type * (n * n + 1) + q1 * n + q2;
            for (Index e = start[row]; e < start[row + 1]; ++e) {
                const double element = value[e];
                if (!(fabs(element) > limit))
                    break;
                const int p1 = create[2 * e], p2 = create[2 * e + 1];
                if (fills(source, zero1 + p1) || fills(source, zero2 + p2))
                    continue;
                Key key = source;
                turn(key, zero1 + q1);
                turn(key, zero1 + p1);
                turn(key, zero2 + q2);
                turn(key, zero2 + p2);
                const Word hash = hash_of(key);
                if (!holds(table, hash))
                    continue;
                // Of one spin, the first electron's move changes how many the second one passes.
                const bool crossed = !is_mixed && ((p1 > p2) != (p1 > q2)) != ((q1 > p2) != (q1 > q2));
                const bool is_minus =
                    is_odd(source, zero1 + p1, zero1 + q1) != is_odd(source, zero2 + p2, zero2 + q2) != crossed;
                added += put(table, key, hash, element, is_minus, weight, scale);
            }
        }
    }
    added = __reduce_add_sync(ALL, added);
    if (lane == 0 && added && (Index)atomicAdd((Word *)state, (Word)added) + added > most)
        state[1] = 1;
}

// Mark the members of the list among the keys. Grid: threads for all members.
extern "C" __global__ void __launch_bounds__(THREADS)
    mark(Index n_members, const Word *__restrict__ members, Word shard, Word shards, Index n_slots, Word *keys,
         Index *values, Index *state) {
    const Index i = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n_members)
        return;
    const Table table = {keys, values, n_slots, state, shard, shards};
    const Key key = string_at(members, i);
    const Word hash = hash_of(key);
    bool is_new = false;
    const Index slot = holds(table, hash) ? slot_of(table, key, hash, false, is_new) : -1;
    if (slot >= 0)
        values[slot] = MEMBER;
}

// Write down all keys but those of members, in any order, and their values; state[2] counts them.
extern "C" __global__ void __launch_bounds__(THREADS)
    extract(Index n_slots, const Word *__restrict__ keys, const Index *__restrict__ values, Index *state,
            Word *__restrict__ chosen, Index *__restrict__ sizes) {
    const Index slot = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (slot >= n_slots || keys[WORDS * slot] == FREE || values[slot] == MEMBER)
        return;
    const Index place = (Index)atomicAdd((Word *)state + 2, (Word)1);
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        chosen[WORDS * place + w] = keys[WORDS * slot + w];
    sizes[place] = values[slot];
}

// Each value becomes its term of the correction, value^2 / (energy - H_aa) or, of squares, value / (energy - H_aa);
// 0 where there is none. state[2] counts terms, state[3] are the bits of the largest magnitude.
extern "C" __global__ void __launch_bounds__(THREADS)
    terms(int n, Index n_slots, double scale, double energy, const double *__restrict__ one,
          const double *__restrict__ within, const double *__restrict__ between, const Word *__restrict__ keys,
          Index *values, Index *state) {
    Orbitals orbitals;
    Index count = 0, largest = 0;
    for (Index slot = (Index)blockIdx.x * THREADS + threadIdx.x; slot < n_slots; slot += (Index)gridDim.x * THREADS) {
        double term = 0;
        if (keys[WORDS * slot] != FREE && values[slot] != MEMBER) {
            const Key key = string_at(keys, slot);
            int counts[2] = {0, 0};
            for (int spin = 0; spin < 2; ++spin)
                for (int p = 0; p < n; ++p)
                    if (fills(key, spin * STRIDE + p))
                        orbitals[spin][counts[spin]++] = p;
            double own = 0;
            for (int spin = 0; spin < 2; ++spin)
                for (int k = 0; k < counts[spin]; ++k) {
                    const int p = orbitals[spin][k];
                    own += one[spin * n + p];
                    for (int j = 0; j < k; ++j)
                        own += within[(spin * n + p) * n + orbitals[spin][j]];
                    for (int j = 0; spin == 0 && j < counts[1]; ++j)
                        own += between[p * n + orbitals[1][j]];
                }
            const double sum = (double)values[slot] / scale;
            term = (MODE == 2 ? sum : sum * sum) / (energy - own);
            const Index size = __double_as_longlong(fabs(term));
            largest = size > largest ? size : largest;
            ++count;
        }
        values[slot] = __double_as_longlong(term);
    }
    if (count) {
        atomicAdd((Word *)state + 2, (Word)count);
        atomicMax(state + 3, largest);
    }
}

// Add up all terms, in units of 1 / scale (state[4]) and in 2^-31 of these (state[5]).
extern "C" __global__ void __launch_bounds__(THREADS)
    add_up(Index n_slots, double scale, const double *__restrict__ terms, Index *state) {
    Index high = 0, low = 0;
    for (Index slot = (Index)blockIdx.x * THREADS + threadIdx.x; slot < n_slots; slot += (Index)gridDim.x * THREADS) {
        const double scaled = terms[slot] * scale;
        const Index whole = __double2ll_rn(scaled);
        high += whole;
        low += __double2ll_rn((scaled - (double)whole) * 2147483648.0);
    }
    atomicAdd((Word *)state + 4, (Word)high);
    atomicAdd((Word *)state + 5, (Word)low);
}
