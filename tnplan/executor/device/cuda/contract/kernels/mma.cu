// c[batch(t) + row(i) + column(j)] (+)= the sum over q of a[t, i, q] b[t, j, q] by tensor cores, as exact as
// fp32: both operands are split into two half-precision numbers, x 2^e = high + low, and three products are
// summed in fp32: high high + high low + low high. a [batch | m | k], b [batch | n | k] row-major; c anywhere.
//
// Injected: COMPLEX (0, 1); BM, BN, WM, WN: rows of a and b of a block and of a warp; VECTOR: floats that a row
// can be read by (4, 2, 1); BLOCKS: blocks that share a multiprocessor; ADD: 1 adds to c, 0 overwrites it.
// NumPy twin: split_product in tests/executor/device/cuda/test_contract.py.
//
// A row's numbers are scaled by a power of two, 2^e, chosen from the row's largest number in the first chunk.
// Later numbers that would leave the range of half precision lower e, and what was summed is rescaled: every
// row and column keeps its own range, and no pass over the operands is needed to find it.

#define CHUNK 32                                   // floats of a row that are in shared memory at once
#define WARPS (BM / WM * (BN / WN))
#define THREADS (WARPS * 32)
#define ROWS_A_PASS (THREADS / 8)                  // 8 threads read a row's chunk, 4 floats each
#define A_PASSES (BM / ROWS_A_PASS)
#define B_PASSES (BN / ROWS_A_PASS)
#define MT (WM / 16)
#define NT (WN / 8)
#define PARTS (COMPLEX + 1)                        // real and imaginary sums
#define PLANE_BYTES(rows) ((rows)*CHUNK * 2)       // one half (high or low) of a chunk of rows
#define STAGE_BYTES (2 * PLANE_BYTES(BM) + 2 * PLANE_BYTES(BN))

#include "half.cuh"
#include "product.cuh"

__device__ inline void load_matrices(unsigned (&r)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

__device__ inline void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Byte offset of 16-byte piece `piece` of a row in a plane: pieces are exchanged so that neither the 8 rows
// that ldmatrix reads nor the rows that half a warp writes share a bank.
__device__ inline unsigned swizzled(unsigned row, unsigned piece) {
    return row * (CHUNK * 2) + ((piece ^ (row >> 1 & 3)) << 4);
}

__device__ inline float largest(const float4 &v) {
    return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
}

// What a row's sums are multiplied by: when its exponent changes, and in the end, by 2^-e in two steps, since
// 2^-(e + e') of a row and a column can leave fp32's range while the result is in it.
struct Scale {
    float change, one, two;
};

// One operand's side of a block: the rows that this thread reads, their scales, and floats under way.
template <int PASSES> struct Side {
    float4 value[PASSES];
    float scale[PASSES];
    const float *next; // this thread's floats of the chunk to be read next, in the first pass
    unsigned step;     // bytes between passes
    int left;          // floats of a row from there to its end
    int rows;          // rows from the first pass on that exist

    __device__ void start(const float *base, long long stride, int length, int first, int count) {
        const int mine = threadIdx.x / 8;
        next = base + (first + mine) * stride + threadIdx.x % 8 * 4;
        step = ROWS_A_PASS * 4 * stride;
        left = length - (int)(threadIdx.x % 8) * 4;
        rows = count - first - mine;
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
            scale[p] = power_of_two(UNSET);
    }

    __device__ void fetch(int p) {
        value[p] = read((const float *)((const char *)next + p * step), p * ROWS_A_PASS < rows ? left : 0);
    }

    __device__ void fetch_all() {
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
            fetch(p);
    }

    __device__ void move(int chunks) { next += chunks * CHUNK, left -= chunks * CHUNK; }

    // Split the floats of a pass into halves and store them; the largest of them, scaled.
    __device__ float store(int p, char *high, char *low) const {
        const float4 x = value[p];
        const float4 y = make_float4(x.x * scale[p], x.y * scale[p], x.z * scale[p], x.w * scale[p]);
        uint2 h, l;
        float4 rest;
        h.x = pack(y.x, y.y);
        h.y = pack(y.z, y.w);
        unpack(h.x, rest.x, rest.y);
        unpack(h.y, rest.z, rest.w);
        l.x = pack(y.x - rest.x, y.y - rest.y);
        l.y = pack(y.z - rest.z, y.w - rest.w);
        const unsigned at =
            swizzled(p * ROWS_A_PASS + threadIdx.x / 8, threadIdx.x % 8 / 2) + threadIdx.x % 2 * 8;
        *(uint2 *)(high + at) = h;
        *(uint2 *)(low + at) = l;
        return largest(y);
    }

    __device__ float store_all(char *high, char *low) const {
        float most = 0.0f;
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
            most = fmaxf(most, store(p, high, low));
        return most;
    }

    // Lower the scales to what the floats under way need, store those of every row, and store the floats.
    __device__ void lower(Scale *scales, char *high, char *low) {
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            const float4 v = value[p];
            float most = fmaxf(fmaxf(finite(v.x), finite(v.y)), fmaxf(finite(v.z), finite(v.w)));
#pragma unroll
            for (int lane = 1; lane < 8; lane *= 2)
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lane));
            const int old = (__float_as_int(scale[p]) >> 23) - 127;
            const int exponent = lowered(old, most);
            scale[p] = power_of_two(exponent);
            if (threadIdx.x % 8 == 0) {
                const int at = p * ROWS_A_PASS + threadIdx.x / 8;
                scales[at].change = power_of_two(exponent - old);
                scales[at].one = power_of_two(-(exponent / 2));
                scales[at].two = power_of_two(-(exponent - exponent / 2));
            }
            store(p, high, low);
        }
    }
};

// Where a warp's lane finds its matrices in a stage, in bytes, and the exchange of pieces of its row.
struct Places {
    unsigned a, b, a_piece, b_piece, turn;
};

// Add the products of the chunk in `stage` to the sums.
__device__ inline void multiply_chunk(float (&sum)[MT][NT][PARTS][4], unsigned stage, const Places &at) {
    const unsigned a_plane = stage + at.a, b_plane = stage + 2 * PLANE_BYTES(BM) + at.b;
#pragma unroll
    for (int step = 0; step < CHUNK / 16; ++step) {
        const unsigned a_shift = (step * 2 + at.a_piece ^ at.turn) << 4;
        const unsigned b_shift = (step * 2 + at.b_piece ^ at.turn) << 4;
        unsigned a[MT][4], b[NT / 2][4];
        // a high with b high, a high with b low, a low with b high
#pragma unroll
        for (int product = 0; product < 3; ++product) {
            const unsigned a_low = product == 2, b_low = product == 1;
#pragma unroll
            for (int j = 0; j < NT / 2; ++j)
                load_matrices(b[j], b_plane + b_low * PLANE_BYTES(BN) + j * 16 * (CHUNK * 2) + b_shift);
            if (product != 1) {
#pragma unroll
                for (int i = 0; i < MT; ++i)
                    load_matrices(a[i], a_plane + a_low * PLANE_BYTES(BM) + i * 16 * (CHUNK * 2) + a_shift);
            }
#pragma unroll
            for (int j = 0; j < NT; ++j) {
                const unsigned *pair = &b[j / 2][j % 2 * 2];
#if COMPLEX
                // (re, im) of b: its real sum takes (re, -im), its imaginary sum (im, re).
                const unsigned r0 = pair[0] ^ 0x80000000u, r1 = pair[1] ^ 0x80000000u;
                const unsigned i0 = __byte_perm(pair[0], 0, 0x1032), i1 = __byte_perm(pair[1], 0, 0x1032);
#pragma unroll
                for (int i = 0; i < MT; ++i) {
                    multiply(sum[i][j][0], a[i], r0, r1);
                    multiply(sum[i][j][1], a[i], i0, i1);
                }
#else
#pragma unroll
                for (int i = 0; i < MT; ++i)
                    multiply(sum[i][j][0], a[i], pair[0], pair[1]);
#endif
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
contract(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, long long stride,
         int length, unsigned m, unsigned n, unsigned m_tiles, unsigned n_tiles, const long long *batch_high,
         const long long *batch_low, unsigned batch_split, const long long *m_high, const long long *m_low,
         unsigned m_split, const long long *n_high, const long long *n_low, unsigned n_split) {
    extern __shared__ __align__(16) char stages[];
    __shared__ Scale scales[BM + BN];
    __shared__ long long offsets[BM + BN];
    char *const b_stages = stages + 2 * PLANE_BYTES(BM);

    const Tile tile(blockIdx.x, m_tiles, n_tiles);
    Side<A_PASSES> left;
    Side<B_PASSES> right;
    left.start(a + (long long)tile.batch * m * stride, stride, length, tile.first_m, m);
    right.start(b + (long long)tile.batch * n * stride, stride, length, tile.first_n, n);
    auto prefetch = [&](int chunks) { // for the chunk so many after the last
        left.move(chunks);
        right.move(chunks);
        left.fetch_all();
        right.fetch_all();
    };
    auto lower = [&](unsigned stage) {
        left.lower(scales, stages + stage, stages + stage + PLANE_BYTES(BM));
        right.lower(scales + BM, b_stages + stage, b_stages + stage + PLANE_BYTES(BN));
    };
    prefetch(0);
    tile.offsets_in_c(offsets, m, n, {batch_high, batch_low, batch_split}, {m_high, m_low, m_split},
                      {n_high, n_low, n_split});
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned warp_m = warp % (BM / WM) * WM, warp_n = warp / (BM / WM) * WN;
    const Places at = {(warp_m + lane % 16) * (CHUNK * 2), (warp_n + lane % 8 + lane / 16 * 8) * (CHUNK * 2),
                       lane / 16, lane / 8 % 2, lane % 8 / 2};

    float sum[MT][NT][PARTS][4] = {};
    unsigned stage = 0;
    lower(stage);
    __syncthreads();
    for (int done = CHUNK; done < length; done += CHUNK) {
        // The chunk at `done` is read while the one before it is multiplied, then goes to the other stage.
        const unsigned other = STAGE_BYTES - stage;
        prefetch(1);
        multiply_chunk(sum, shared_address(stages) + stage, at);
        const float most = fmaxf(left.store_all(stages + other, stages + other + PLANE_BYTES(BM)),
                                 right.store_all(b_stages + other, b_stages + other + PLANE_BYTES(BN)));
        stage = other;
        if (__syncthreads_or(most > LARGEST)) {
            lower(stage);
            __syncthreads();
#pragma unroll
            for (int i = 0; i < MT; ++i)
#pragma unroll
                for (int j = 0; j < NT; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const float change = scales[warp_m + i * 16 + lane / 4 + e / 2 * 8].change *
                                             scales[BM + warp_n + j * 8 + lane % 4 * 2 + e % 2].change;
#pragma unroll
                        for (int part = 0; part < PARTS; ++part)
                            sum[i][j][part][e] *= change;
                    }
        }
    }
    multiply_chunk(sum, shared_address(stages) + stage, at);

    float row_one[MT * 2], row_two[MT * 2];
    float *row_at[MT * 2];
#pragma unroll
    for (int i = 0; i < MT * 2; ++i) {
        const unsigned row = warp_m + i * 8 + lane / 4;
        row_one[i] = scales[row].one, row_two[i] = scales[row].two;
        row_at[i] = tile.first_m + row < m ? c + offsets[row] * PARTS : nullptr;
    }
#pragma unroll
    for (int j = 0; j < NT * 2; ++j) {
        const unsigned column = warp_n + j / 2 * 8 + lane % 4 * 2 + j % 2;
        if (tile.first_n + column >= n)
            continue;
        const long long offset = offsets[BM + column] * PARTS;
        const float one = scales[BM + column].one, two = scales[BM + column].two;
#pragma unroll
        for (int i = 0; i < MT * 2; ++i) {
            if (row_at[i] == nullptr)
                continue;
            const float (&value)[PARTS][4] = sum[i / 2][j / 2];
            const int e = i % 2 * 2 + j % 2;
            const float first = row_one[i] * one, second = row_two[i] * two;
#if COMPLEX
            float2 result = make_float2(value[0][e] * first * second, value[1][e] * first * second);
            float2 *to = (float2 *)(row_at[i] + offset);
            if (ADD) {
                const float2 old = *to;
                result.x += old.x, result.y += old.y;
            }
            *to = result;
#else
            float *to = row_at[i] + offset;
            *to = ADD ? *to + value[0][e] * first * second : value[0][e] * first * second;
#endif
        }
    }
}
