// What the kernels of Pauli words share: rows, their hash, lists and the log. Term i has the row keys[WORDS i ..]
// (WORDS / 2 words of x, then of z), a coefficient and a frequency; where the coefficient is 0 there is no term,
// but the row stays and may come back. Injected: WORDS (uint64 a row), REAL (float, double).
//
// Every change belongs to an event, an element of the log: event e begins with the n + added - packed rows that
// event e - 1 left. dead_after(e - 1) is about how many of these are no terms; `dead`, modulo 2^64, is its part
// from earlier events. Rotations that are done together have these numbers in the event of the last of them, where n
// is the number of rows after it; `fresh` is how many rows a rotation appended.
// Where free rows are lacking, the event is written to *stalled, and every launch after it does nothing until the host
// has enlarged the arrays, cleared it, and begins again with that event.

typedef unsigned long long Word;
typedef long long Index;
typedef unsigned char Byte;

struct Event {
    Word n, added, listed, hits, merged, revived, gone;
    double l1, squares;
    Word passed, swept, zeros, left;
    double swept_l1, swept_squares;
    Word dead, packed, alive, holes, movers, fresh;
};

// What a sweep drops; max_frequency is -1 where there is no such limit.
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

static __device__ __forceinline__ Row load(const Word *keys, Index i) {
    Row row;
    const ulonglong2 *from = reinterpret_cast<const ulonglong2 *>(keys + WORDS * i);
#pragma unroll
    for (int w = 0; w < WORDS; w += 2) {
        const ulonglong2 two = __ldcg(from + w / 2);
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

static __device__ __forceinline__ Word long_hash(const Row &row) {
    Word value = 0x9E3779B97F4A7C15ull;
#pragma unroll
    for (int w = 0; w < WORDS; ++w) {
        value = (value ^ row.word[w]) * 0xBF58476D1CE4E5B9ull;
        value ^= value >> 32;
    }
    return value * 0x9E3779B97F4A7C15ull;
}

static __device__ __forceinline__ Word hash_row(const Row &row) { return long_hash(row) >> 32; }

// Enter row i of this hash at the next free entry of the table from `at` on.
static __device__ __forceinline__ void enter_row(Word *slots, Word mask, Word hash, Word at, Index i) {
    while (atomicCAS(slots + at, 0ull, hash << 32 | (Word)(i + 1)) != 0)
        at = (at + 1) & mask;
}

static __device__ __forceinline__ bool same(const Row &a, const Row &b) {
    Word different = 0;
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        different |= a.word[w] ^ b.word[w];
    return different == 0;
}

// The next free position of a list that *count counts, for the lanes that `take` one. All lanes call it.
static __device__ __forceinline__ Index next_position(Word *count, bool take) {
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

// How many rows an event left.
static __device__ __forceinline__ Index rows_after(const Event *event) {
    const volatile Event *seen = event;
    return (Index)(seen->n + seen->added - seen->packed);
}

// About how many of them are no terms.
static __device__ __forceinline__ Word dead_after(const Event *event) {
    const volatile Event *seen = event;
    const Index dead = (Index)(seen->dead + seen->swept + seen->zeros) - (Index)(seen->passed + seen->revived);
    return dead > 0 ? (Word)dead : 0;
}

// The number of rows at an event, which is entered in the log; 0 where one before it has stalled.
static __device__ __forceinline__ Index begin(Event *log, const Index *stalled, Index event) {
    if (*stalled)
        return 0;
    const Index n = rows_after(log + event - 1);
    if (FIRST == 0) {
        log[event].n = (Word)n;
        log[event].dead = dead_after(log + event - 1);
    }
    return n;
}

// Whether a term is past the limits of letters.
static __device__ __forceinline__ bool too_heavy(const Row &row, const Limits &limits) {
    int weight = 0, xy = 0;
#pragma unroll
    for (int w = 0; w < HALF; ++w) {
        weight += __popcll(row.word[w] | row.word[HALF + w]);
        xy += __popcll(row.word[w]);
    }
    return weight > limits.max_weight || xy > limits.max_xy;
}

static __device__ __forceinline__ bool anticommutes(const Row &row, const Word *generator) {
    Word both = 0;
#pragma unroll
    for (int w = 0; w < HALF; ++w)
        both ^= (row.word[w] & generator[HALF + w]) ^ (row.word[HALF + w] & generator[w]);
    return __popcll(both) & 1;
}

// -s, where the product of the generator and an anticommuting row is i s times a word.
static __device__ __forceinline__ double branch_sign(const Row &row, const Word *generator) {
    int power = 0;
#pragma unroll
    for (int w = 0; w < HALF; ++w) {
        const Word x = row.word[w], z = row.word[HALF + w];
        power += __popcll(generator[w] & generator[HALF + w]) + __popcll(x & z);
        power += 2 * __popcll(generator[HALF + w] & x);
        power -= __popcll((x ^ generator[w]) & (z ^ generator[HALF + w]));
    }
    return (power & 3) == 1 ? -1.0 : 1.0;
}
