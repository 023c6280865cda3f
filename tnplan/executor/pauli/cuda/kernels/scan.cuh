// What a pass of rotations over the rows reads: keys, or the patterns that the first pass of a group left. Comes after
// blocks.cuh.

// A pattern, and how many rows' patterns a lane has in one word.
#if BY_PASSES
typedef unsigned Pattern;
#define ROWS 1
#else
typedef Byte Pattern;
#define ROWS 4
#endif

// Lanes that share the reading of a row, 16 bytes each at a time.
#define ROW_LANES (HALF == 2 ? 2 : HALF == 4 ? 4 : 1)
// Rows whose keys a warp reads at once, and rows next to each other whose patterns it reads at once.
#define TILE (32 / ROW_LANES * LOADS)
#define CHUNK 128

// `sweep`: 0 none; 1 of the rows that the rotation changes, all others being within the limits; 2 of all rows, in the
// last of a group. `member`: its number in its group; `left`: how many members of the group are left, it among them.
struct Turn {
    Word generator[WORDS];
    double cosine, sine, cut;
    int sweep;
    short member, left;
};

// Which rows of a tile anticommute with which members of a group of so many: bit m of row_patterns[k] is of row
// base + (32 k + lane) / ROW_LANES and member m.
static __device__ __forceinline__ void scan(const Word *keys, Index base, Index n, const Turn *group, int size,
                                            unsigned (&row_patterns)[LOADS]) {
    const unsigned lane = threadIdx.x % 32, row_lane = lane % ROW_LANES;
    const ulonglong2 *from = reinterpret_cast<const ulonglong2 *>(keys);
    ulonglong2 two[LOADS][HALF / ROW_LANES];
#pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        const Index i = base + (32 * k + lane) / ROW_LANES;
#pragma unroll
        for (int u = 0; u < HALF / ROW_LANES; ++u)
            two[k][u] = i < n ? __ldcg(from + HALF * i + row_lane + ROW_LANES * u) : make_ulonglong2(0, 0);
    }
#pragma unroll 1
    for (int m = 0; m < size; ++m) {
        const Word *generator = group[m].generator;
        Word both[LOADS] = {};
#pragma unroll
        for (int u = 0; u < HALF / ROW_LANES; ++u) {
            const unsigned w = (2 * (row_lane + ROW_LANES * u) + HALF) % WORDS;
            const Word a = generator[w], b = generator[(w + 1) % WORDS];
#pragma unroll
            for (int k = 0; k < LOADS; ++k)
                both[k] ^= (two[k][u].x & a) ^ (two[k][u].y & b);
        }
#pragma unroll
        for (int k = 0; k < LOADS; ++k)
            row_patterns[k] |= (__popc((unsigned)(both[k] ^ both[k] >> 32)) & 1u) << m;
    }
#pragma unroll
    for (int step = 1; step < ROW_LANES; step *= 2)
#pragma unroll
        for (int k = 0; k < LOADS; ++k)
            row_patterns[k] ^= __shfl_xor_sync(ALL, row_patterns[k], step);
}

// The patterns of rows base + 4 lane to base + 4 lane + 3, a word each; or, as bytes, in word k those of four rows that
// lie `step` k further on. Those of rows past n are 0.
static __device__ __forceinline__ void read_patterns(const Pattern *patterns, Index base, Index step, Index n,
                                                     unsigned (&row_patterns)[LOADS]) {
    const Index i = base + 4 * (threadIdx.x % 32);
#if BY_PASSES
    if (i >= n)
        return;
    const uint4 four = __ldcg(reinterpret_cast<const uint4 *>(patterns + i));
    row_patterns[0] = four.x;
    row_patterns[1] = i + 1 < n ? four.y : 0;
    row_patterns[2] = i + 2 < n ? four.z : 0;
    row_patterns[3] = i + 3 < n ? four.w : 0;
#else
#pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        const Index at = i + step * k;
        row_patterns[k] = at < n ? __ldcg(reinterpret_cast<const unsigned *>(patterns + at)) : 0;
        if (at < n && n - at < 4)
            row_patterns[k] &= (1u << 8 * (n - at)) - 1;
    }
#endif
}
