// Amplitudes as whole numbers: tiles in shared memory are decoded from them and encoded again.
//
// Included by program.cu and pass.cu, which define Amplitude, REAL, TILE_BITS, THREADS (32 or more), slot() and
// beside(slot(i), k), which is slot(i + k) where i is a multiple of 8 and k less than 8.
// Defines: CODE_BITS (8 or 16). A block is 32 neighbouring amplitudes: a scale, whole numbers for all real parts, then for
// all imaginary parts. An amplitude's part is its number times the scale. Rounding is at random, as
// executor/statevector/cpu/packed_kernel.py says, the twin. A thread has 8 neighbours of a tile at a time, four threads of
// a warp a block.

typedef unsigned long long Key;

enum { AT_A_TIME = 8, BLOCK_BITS = 5, PART_BYTES = CODE_BITS, LANES_OF_BLOCK = (1 << BLOCK_BITS) / AT_A_TIME };
enum { GROUPS = (1 << TILE_BITS) / AT_A_TIME, ROUNDS = (GROUPS + THREADS - 1) / THREADS };
static_assert(AT_A_TIME * CODE_BITS / 8 == PART_BYTES, "parts of a thread are as many bytes as a number has bits");
static_assert(TILE_BITS >= BLOCK_BITS && THREADS % 32 == 0, "tiles have whole blocks, and warps all of their threads");

struct Packed {
    unsigned char *codes;  // numbers of CODE_BITS bits
    float *scales;
    Key key;
};

// The numbers of one part of 8 amplitudes.
struct alignas(PART_BYTES) Part {
    unsigned word[PART_BYTES / 4];
};

// The address of the numbers of amplitudes from `place` on, a multiple of 8; imaginary parts lie 4 parts on.
__device__ __forceinline__ Part *part_at(const Packed &packed, long long place) {
    const long long in_block = place & ((1 << BLOCK_BITS) - 1), first = place - in_block;
    return (Part *)(packed.codes + (2 * first + in_block) * (CODE_BITS / 8));
}

// Number k of a part as float, exactly: put into the mantissa of 2^23, with its sign bit turned, so that it is not negative.
__device__ __forceinline__ float number_of(const Part &part, int k) {
    constexpr int per_word = 32 / CODE_BITS;
    const unsigned turned = part.word[k / per_word] ^ (CODE_BITS == 8 ? 0x80808080u : 0x80008000u);
    const unsigned at = k % per_word;
    const unsigned chosen = CODE_BITS == 8 ? 0x7540 | at : 0x7500 | (2 * at + 1) << 4 | 2 * at;
    return __uint_as_float(__byte_perm(turned, 0x4B000000u, chosen)) - (float)((1 << 23) + (1 << (CODE_BITS - 1)));
}

// Amplitude i of the tile lies at where(i) in the state; 8 neighbours lie together.
template <typename Where> __device__ __forceinline__ void decode_tile(const Packed &packed, Where where, Amplitude *tile) {
    Part re[ROUNDS], im[ROUNDS];
    float scales[ROUNDS];
    // All are on their way before the first is used.
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
        const unsigned group = threadIdx.x + r * THREADS;
        if (GROUPS % THREADS && group >= GROUPS) continue;
        const long long place = where(group * AT_A_TIME);
        const Part *from = part_at(packed, place);
        re[r] = from[0];
        im[r] = from[LANES_OF_BLOCK];
        scales[r] = packed.scales[place >> BLOCK_BITS];
    }
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
        const unsigned group = threadIdx.x + r * THREADS;
        if (GROUPS % THREADS && group >= GROUPS) continue;
        const REAL scale = scales[r];
        const unsigned first = slot(group * AT_A_TIME);
#pragma unroll
        for (int k = 0; k < AT_A_TIME; ++k)
            tile[beside(first, k)] = {number_of(re[r], k) * scale, number_of(im[r], k) * scale};
    }
}

__device__ __forceinline__ float larger(float most, float x) { return fmaxf(most, fabsf(x)); }
__device__ __forceinline__ double larger(double most, double x) { return fmax(most, fabs(x)); }
__device__ __forceinline__ float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return fma(a, b, c); }

// floor(x) - 1 as a number, and in the lowest bits of a word: what is added leaves no places after the point.
__device__ __forceinline__ float floor_less_one(float x, unsigned &word) {
    const float shifted = __fadd_rd(x, 12582911.0f);  // 1.5 2^23 - 1, rounded down
    word = __float_as_uint(shifted);
    return shifted - 12582912.0f;
}

__device__ __forceinline__ double floor_less_one(double x, unsigned &word) {
    const double shifted = __dadd_rd(x, 6755399441055743.0);  // 1.5 2^52 - 1
    word = (unsigned)__double2loint(shifted);
    return shifted - 6755399441055744.0;
}

// The middle of one of 2^16 equal parts of (1, 2), by bits 7 to 22 of a word.
__device__ __forceinline__ float dither(unsigned word) {
    return __uint_as_float(0x3F800040u | (word & 0x7FFF80u));
}

// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) of a key and a number, which may be one in a row of them.
__device__ __forceinline__ unsigned first_random(Key key, long long number) {
    Key state = key + (Key)number * 0x9E3779B97F4A7C15ull;
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9ull;
    state = (state ^ state >> 27) * 0x94D049BB133111EBull;
    return (unsigned)(state >> 32);
}

// 32 bits for each number in a row that begins at random: a round of MurmurHash3's finalizer (Appleby).
__device__ __forceinline__ unsigned random_of(unsigned x) {
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    return x ^ x >> 15;
}

// The lowest bits of 8 words as the numbers of a part.
__device__ __forceinline__ Part packed_part(const unsigned *words) {
    Part part;
    for (int k = 0; k < PART_BYTES / 4; ++k) {
        if (CODE_BITS == 16) {
            part.word[k] = __byte_perm(words[2 * k], words[2 * k + 1], 0x5410);
        } else {
            const unsigned low = __byte_perm(words[4 * k], words[4 * k + 1], 0x0040);
            part.word[k] = __byte_perm(low, __byte_perm(words[4 * k + 2], words[4 * k + 3], 0x0040), 0x5410);
        }
    }
    return part;
}

// Encode a tile; sums[0] grows by the squares of rounding errors, sums[1] by those of what is stored, of this thread.
template <typename Where>
__device__ __forceinline__ void encode_tile(const Packed &packed, Where where, const Amplitude *tile, double *sums) {
    constexpr int largest = (1 << (CODE_BITS - 1)) - 1;
    constexpr float smallest = 1e-30f;
#pragma unroll 1
    for (int r = 0; r < ROUNDS; ++r) {
        // Invariant: all threads of a warp come here, as they shuffle; those without a group have one of zeros.
        const unsigned group = threadIdx.x + r * THREADS;
        const bool is_there = GROUPS % THREADS == 0 || group < GROUPS;
        Amplitude a[AT_A_TIME];
        REAL most = 0;
        const unsigned first = slot(group * AT_A_TIME);
#pragma unroll
        for (int k = 0; k < AT_A_TIME; ++k) {
            a[k] = is_there ? tile[beside(first, k)] : Amplitude{0, 0};
            most = larger(larger(most, a[k].x), a[k].y);
        }
#pragma unroll
        for (int step = 1; step < LANES_OF_BLOCK; step *= 2) most = larger(most, __shfl_xor_sync(~0u, most, step));
        if (!is_there) continue;
        const long long place = where(group * AT_A_TIME);
        Part re = {}, im = {};
        float scale = 0;
        if (most >= (REAL)smallest) {
            // A millionth more than needed: no number gets larger than `largest`, rounded up or down.
            scale = (float)(most * (REAL)((1 + 0x1p-20) / largest));
            const REAL inverse = (REAL)1 / (REAL)scale;
            const unsigned random = first_random(packed.key, place);
            REAL errors = 0, norm = 0;
            unsigned p_words[AT_A_TIME], q_words[AT_A_TIME];
#pragma unroll
            for (int k = 0; k < AT_A_TIME; ++k) {
                // floor(x + r) with r in (0, 1): up with the probability of what is left over.
                const unsigned bits = random_of(random + k * 0x9E3779B9u);
                const REAL p = floor_less_one(fused(a[k].x, inverse, (REAL)dither(bits << 7)), p_words[k]);
                const REAL q = floor_less_one(fused(a[k].y, inverse, (REAL)dither(bits >> 9)), q_words[k]);
                const REAL e = fused(a[k].x, inverse, -p), f = fused(a[k].y, inverse, -q);
                errors = fused(e, e, fused(f, f, errors));
                norm = fused(p, p, fused(q, q, norm));
            }
            re = packed_part(p_words);
            im = packed_part(q_words);
            // In units of the scale up to here, so that small amplitudes have no subnormal squares.
            const double square = (double)scale * scale;
            sums[0] += (double)errors * square;
            sums[1] += (double)norm * square;
        } else {
            sums[0] += 2 * AT_A_TIME * ((double)most * most);
        }
        Part *to = part_at(packed, place);
        to[0] = re;
        to[LANES_OF_BLOCK] = im;
        if (group % LANES_OF_BLOCK == 0) packed.scales[place >> BLOCK_BITS] = scale;
    }
}

// Totals of a warp, two, grow by the sums of its threads. All run in a fixed order.
__device__ __forceinline__ void add_errors(double *sums, double *totals) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int step = 16; step > 0; step /= 2) sums[k] += __shfl_xor_sync(~0u, sums[k], step);
        if (threadIdx.x % 32 == 0) totals[threadIdx.x / 32 * 2 + k] += sums[k];
    }
}
