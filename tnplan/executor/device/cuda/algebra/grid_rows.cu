// A row of the transfer matrix of independent sets of a grid, in place, modulo a prime p <= 2^29.
//
// Defines: GROUP (blocks of a pass), LOW (bits below them in a tile: 0, or all lanes of a warp), THREADS.
// A block is four sites in a row, of which no two neighbours are chosen: the words 0000, 0001, 0010, 0100, 0101,
// 1000, 1001, 1010 (the first site is the last bit) have the codes 0 to 7. An index of the vector has three bits a
// block, the first block lowest. A pass replaces the blocks of a group by those of the new row:
// new[y] = the sum of old[x] over the words x that share no site with y; zero where the word before y ends with a
// chosen site and y begins with one.
// Invariant: the block before a group is the same in a tile: LOW <= 3 first - 3, or LOW and first are 0.
// Invariant: before and after a pass the vector is zero where blocks of one row, side by side, both have a chosen
// site at their border. So tiles whose other blocks do are zero, and left out.

typedef long long Long;
typedef unsigned long long Word;

struct Row {
    Long size, tiles;   // elements, and tiles of this pass
    Word borders;       // bit 3 j: blocks j and j + 1 are of one row, and the same in a tile
    unsigned p, factor; // the prime, and 2^32 / p rounded down
    int first;          // the first block of the group
    int last, words;    // the last block, and how many codes it has
};

#define GROUP_BITS (3 * GROUP)
#define TILE (1 << (GROUP_BITS + LOW))
#define BATCH 8 // elements that a thread reads before it keeps them
#define BLOCK_ENDS 0x1249249249249249ULL // the lowest bit of every block

// Whether blocks side by side both have a chosen site at one of these borders.
__device__ __forceinline__ bool collides(Word index, Word borders)
{
    const Word low = index & BLOCK_ENDS, middle = index >> 1 & BLOCK_ENDS, high = index >> 2 & BLOCK_ENDS;
    const Word ends = high & (middle | low);                             // codes 5, 6, 7
    const Word begins = (high & ~low) | (low & ~(middle | high));        // codes 1, 4, 6
    return (ends & begins >> 3 & borders) != 0;
}

// The index in the vector of an element of a tile.
__device__ __forceinline__ Long index_of(Long base, int element, int shift)
{
    return base | (element & ((1 << LOW) - 1)) | (Long)(element >> LOW) << shift;
}

// x modulo p for x < 2^32.
__device__ __forceinline__ unsigned reduced(unsigned x, Row row)
{
    const unsigned quotient = (unsigned)((Word)x * row.factor >> 32); // one too small at most
    const unsigned rest = x - quotient * row.p;
    return rest >= row.p ? rest - row.p : rest;
}

// Where an element of a tile is in shared memory: eight neighbours of any block lie in different banks from those of
// the lanes beside.
__device__ __forceinline__ int slot(int element)
{
#if LOW
    return element;
#else
    const int line = element >> 5 & 7;
    return element ^ (line | line >> 1 << 3);
#endif
}

__device__ __forceinline__ void replace_block(unsigned (&v)[8], bool follows, int words, Row row)
{
    const unsigned w02 = v[0] + v[2], w57 = v[5] + v[7];
    unsigned sums[8];
    sums[6] = w02 + v[3];
    sums[4] = w02 + w57;
    sums[1] = sums[6] + w57;
    sums[7] = v[0] + v[3] + v[1] + v[4];
    sums[5] = sums[7] + v[2];
    sums[2] = sums[7] + v[5] + v[6];
    sums[3] = sums[4] + v[1] + v[6];
    sums[0] = sums[5] + w57 + v[6];
#pragma unroll
    for (int code = 0; code < 8; ++code) {
        const bool begins = code == 1 || code == 4 || code == 6;
        const bool is_there = code < words && !(begins && follows);
        v[code] = is_there ? reduced(sums[code], row) : 0;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) replace_group(unsigned* vector, Row row)
{
    extern __shared__ unsigned tile[];
    const int shift = 3 * row.first;
    for (Long number = blockIdx.x; number < row.tiles; number += gridDim.x) {
        // Bits between LOW and the group, then those above the group.
        const int between = shift - LOW;
        const Long base = (number & ((1LL << between) - 1)) << LOW | number >> between << (shift + GROUP_BITS);
        if (collides((Word)base, row.borders)) continue; // the same for the whole block
        __syncthreads();                                 // the tile before is stored
        for (int first = threadIdx.x; first < TILE; first += BATCH * THREADS) {
            unsigned held[BATCH];
#pragma unroll
            for (int i = 0; i < BATCH; ++i) {
                const Long index = index_of(base, first + i * THREADS, shift);
                held[i] = first + i * THREADS < TILE && index < row.size ? vector[index] : 0;
            }
#pragma unroll
            for (int i = 0; i < BATCH; ++i)
                if (first + i * THREADS < TILE) tile[slot(first + i * THREADS)] = held[i];
        }
        __syncthreads();
#pragma unroll
        for (int block = 0; block < GROUP; ++block) {
            const int place = LOW + 3 * block;
            const int words = row.first + block == row.last ? row.words : 8;
            for (int i = threadIdx.x; i < TILE / 8; i += THREADS) {
                const int element = (i & ((1 << place) - 1)) | i >> place << (place + 3);
                // The code of the block before, which is of the new row already.
                int before = 0;
                if (block > 0)
                    before = element >> (place - 3) & 7;
                else if (row.first > 0)
                    before = (int)(base >> (shift - 3) & 7);
                unsigned v[8];
#pragma unroll
                for (int code = 0; code < 8; ++code) v[code] = tile[slot(element | code << place)];
                replace_block(v, before >= 5, words, row);
#pragma unroll
                for (int code = 0; code < 8; ++code) tile[slot(element | code << place)] = v[code];
            }
            __syncthreads();
        }
#pragma unroll 8
        for (int i = threadIdx.x; i < TILE; i += THREADS) {
            const Long index = index_of(base, i, shift);
            if (index < row.size) vector[index] = tile[slot(i)];
        }
    }
}

// sums[thread] = a part of the sum of x[i] y[i] modulo p.
extern "C" __global__ void __launch_bounds__(THREADS)
dot(const unsigned* x, const unsigned* y, Word* sums, Long size, unsigned p)
{
    const Long thread = (Long)blockIdx.x * THREADS + threadIdx.x;
    Word sum = 0;
#pragma unroll 4
    for (Long i = thread; i < size; i += (Long)gridDim.x * THREADS) {
        sum += (Word)x[i] * y[i]; // below 2^58
        if (sum >> 63) sum %= p;
    }
    sums[thread] = sum % p;
}
