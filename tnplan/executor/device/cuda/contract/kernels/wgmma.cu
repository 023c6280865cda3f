// c[row(i) + column(j)] = the sum over q of a[i, q] b[j, q] for complex numbers, by the tensor core instructions
// that Hopper GPUs have, as exact as fp32: both operands are split into two half-precision numbers,
// x 2^e = high + low, and three products are summed in fp32: high high + high low + low high.
// a [m | k] and b [n | k] row-major, k a multiple of 16; c anywhere.
//
// Injected: COLUMNS: columns of a block (32, 64, 128); GROUPS: warpgroups that multiply, 64 rows each.
// NumPy twin: wgmma_product in tests/executor/device/cuda/test_fp16x3_wgmma.py.
//
// `split_columns` splits b beforehand, into the tiles that tensor cores read, each row with a power of two of its
// own. In `contract` one warpgroup has copy engines bring these tiles to shared memory. In the others a thread
// reads the numbers of a that its registers hold as an operand, which no other thread needs. The power of two of
// a row of a is chosen from its first chunk; later numbers that would leave the range of half precision lower it,
// and what was summed is rescaled. Four lanes hold a row and its sums, so that this concerns them alone.

#define CHUNK 32                                  // reals of a row that are multiplied at once
#define REALS (2 * COLUMNS)                       // real and imaginary sums of a row of a tile
#define SUMS (REALS / 2)                          // those of a thread: of two rows, shared by four lanes
#define HALF_BYTES (REALS * 16)                   // 8 of 16 reals of a step, for all sums
#define PLANE_BYTES (REALS * CHUNK * 2)           // the high, or the low, numbers of a chunk
#define STAGE_BYTES (2 * PLANE_BYTES)
#define STAGES ((192 << 10) / STAGE_BYTES)
#define BLOCK_CHUNKS 32                           // what tensor cores sum; longer sums are added in fp32
#define GROUP_ROWS 64
#define BM (GROUPS * GROUP_ROWS)
#define BN COLUMNS
#define VECTOR 4
#define THREADS ((GROUPS + 1) * 128)
#define REGISTERS (65536 / THREADS / 8 * 8)       // of a thread at first
#define FEW_REGISTERS 24                          // then of one that has tiles brought, and of one that multiplies
#define MANY_REGISTERS ((REGISTERS * THREADS - FEW_REGISTERS * 128) / (GROUPS * 128) / 8 * 8)

#include "half.cuh"
#include "product.cuh"

#define REAL(x) (x ^ 0x80000000u)
#define IMAGINARY(x) (x << 16 | x >> 16)
#define PIECE(SUM, x) make_uint4(SUM(x[0]), SUM(x[1]), SUM(x[2]), SUM(x[3]))

// out: tiles of COLUMNS rows of b, each [chunk][high, low][step][half][8 columns][real, imaginary][column][8 reals].
// A step is 16 reals; its halves are the even and the odd ones of 8 complex numbers, since a lane of `contract`
// reads two neighbours. (re, im) is (re, -im) for real sums, (im, re) for imaginary ones. Rows from `rows` on are
// zeros. A thread writes a half of a step of a row.
extern "C" __global__ void split_columns(const float *b, long long stride, int chunks, unsigned rows,
                                         unsigned all_rows, const int *exponents, uint4 *out) {
    const long long count = (long long)all_rows * chunks * 4;
    for (long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x; at < count;
         at += gridDim.x * (long long)blockDim.x) {
        const unsigned column = at % COLUMNS, step = at / COLUMNS % 4 / 2, half = at / COLUMNS % 2;
        const long long rest = at / (COLUMNS * 4);
        const unsigned chunk = rest % chunks, row = rest / chunks * COLUMNS + column;
        unsigned high[4] = {}, low[4] = {};
        if (row < rows) {
            const float2 *from = (const float2 *)(b + row * stride) + chunk * (CHUNK / 2) + step * 8 + half;
            const int e = exponents[row];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float2 v = __ldg(from + 2 * i);
                const float x = ldexpf(v.x, e), y = ldexpf(v.y, e);
                float one, two;
                high[i] = pack(x, y);
                unpack(high[i], one, two);
                low[i] = pack(x - one, y - two);
            }
        }
        uint4 *to = out + rest * (STAGE_BYTES / 16) + (step * 2 + half) * REALS + column / 8 * 16 + column % 8;
        to[0] = PIECE(REAL, high);
        to[8] = PIECE(IMAGINARY, high);
        to[PLANE_BYTES / 16] = PIECE(REAL, low);
        to[PLANE_BYTES / 16 + 8] = PIECE(IMAGINARY, low);
    }
}

__device__ inline void start_barrier(unsigned barrier, unsigned count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ inline void arrive(unsigned barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ inline void wait(unsigned barrier, unsigned parity) {
    asm volatile("{\n.reg .pred done;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// Bring a stage; `barrier` is passed when all its bytes are there.
__device__ inline void bring(unsigned to, const char *from, unsigned barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(STAGE_BYTES) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(STAGE_BYTES), "r"(barrier)
                 : "memory");
}

__device__ inline void sync_threads(unsigned group) { // the threads of a warpgroup
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}

// Where tensor cores find a step of a plane: pieces of 16 bytes, one behind the other for 8 sums, the next sums
// 128 bytes on, the other half of the step behind all sums.
__device__ inline unsigned long long matrix_at(unsigned address) {
    const unsigned long long next_half = HALF_BYTES, next_sums = 128;
    return (address & 0x3ffff) >> 4 | next_half >> 4 << 16 | next_sums >> 4 << 32;
}

#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define FOUR(x, i) "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3])
#define SIXTEEN(x, i) FOUR(x, i), FOUR(x, i + 4), FOUR(x, i + 8), FOUR(x, i + 12)
#if COLUMNS == 32
#define INSTRUCTION "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" TEN() TEN(1) TEN(2) \
    "%30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
#define ALL(x) SIXTEEN(x, 0), SIXTEEN(x, 16)
#elif COLUMNS == 64
#define INSTRUCTION "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" TEN() TEN(1) TEN(2) TEN(3) TEN(4) \
    TEN(5) "%60, %61, %62, %63}, {%64, %65, %66, %67}, %68, 1, 1, 1, 0;"
#define ALL(x) SIXTEEN(x, 0), SIXTEEN(x, 16), SIXTEEN(x, 32), SIXTEEN(x, 48)
#else
#define INSTRUCTION "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" TEN() TEN(1) TEN(2) TEN(3) TEN(4) \
    TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11) "%120, %121, %122, %123, %124, %125, %126, %127}, " \
    "{%128, %129, %130, %131}, %132, 1, 1, 1, 0;"
#define ALL(x) SIXTEEN(x, 0), SIXTEEN(x, 16), SIXTEEN(x, 32), SIXTEEN(x, 48), \
    SIXTEEN(x, 64), SIXTEEN(x, 80), SIXTEEN(x, 96), SIXTEEN(x, 112)
#endif

// Begin to add the product of a step of 64 rows, which the registers of a warpgroup hold, and of a step of a plane.
__device__ inline void multiply(float (&sum)[SUMS], const unsigned (&a)[4], unsigned long long b) {
    asm volatile(INSTRUCTION : ALL(sum) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// Sums are in their registers here: products have ended, or are yet to begin.
__device__ inline void hold(float (&sum)[SUMS]) {
#pragma unroll
    for (int i = 0; i < SUMS; ++i)
        asm volatile("" : "+f"(sum[i])::"memory");
}

__device__ inline float4 fetch(const float *p) { // where it stands, long before it is used
    float4 v;
    asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
    return v;
}

__device__ inline float largest(float x, float y, float z, float w) { return fmaxf(fmaxf(x, y), fmaxf(z, w)); }

// A thread's numbers of one row: four reals of both steps of a chunk, and the row's scale.
struct Row {
    const float *next;
    float4 value[2];
    float scale;

    __device__ void prefetch() {
        value[0] = fetch(next);
        value[1] = fetch(next + CHUNK / 2);
        next += CHUNK;
    }

    __device__ bool leaves_range() const {
        const float4 v = value[0], w = value[1];
        const float most = fmaxf(largest(fabsf(v.x), fabsf(v.y), fabsf(v.z), fabsf(v.w)),
                                 largest(fabsf(w.x), fabsf(w.y), fabsf(w.z), fabsf(w.w)));
        return most * scale > LARGEST;
    }

    // Lower the scale to what the numbers need; what sums change by.
    __device__ float lower() {
        const float4 v = value[0], w = value[1];
        float most = fmaxf(largest(finite(v.x), finite(v.y), finite(v.z), finite(v.w)),
                           largest(finite(w.x), finite(w.y), finite(w.z), finite(w.w)));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        const int old = exponent();
        const int wanted = lowered(old, most);
        scale = power_of_two(wanted);
        return power_of_two(wanted - old);
    }

    __device__ int exponent() const { return (__float_as_int(scale) >> 23) - 127; }

    // The halves of a step, high and low, as an operand's registers hold them.
    __device__ void split(int step, unsigned &high0, unsigned &high1, unsigned &low0, unsigned &low1) const {
        const float4 v = value[step];
        const float x = v.x * scale, y = v.y * scale, z = v.z * scale, w = v.w * scale;
        float one, two;
        high0 = pack(x, y);
        unpack(high0, one, two);
        low0 = pack(x - one, y - two);
        high1 = pack(z, w);
        unpack(high1, one, two);
        low1 = pack(z - one, w - two);
    }
};

struct Scale { // 2^-e in two steps, since 2^-(e + e') of a row and a column can leave fp32's range
    float one, two;
    __device__ Scale() {}
    __device__ Scale(int e) : one(power_of_two(-(e / 2))), two(power_of_two(-(e - e / 2))) {}
};

// Write one or two numbers, or add them to what is there; nobody else does meanwhile.
__device__ inline void put(float2 *at, float2 x, bool add) {
    if (add)
        asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(at), "f"(x.x), "f"(x.y) : "memory");
    else
        *at = x;
}

__device__ inline void put_pair(float2 *at, float2 x, float2 y, bool add) {
    if (add)
        asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(at), "f"(x.x), "f"(x.y),
                     "f"(y.x), "f"(y.y)
                     : "memory");
    else
        *(float4 *)at = make_float4(x.x, x.y, y.x, y.y);
}

// `b`, `exponents`: n columns from `first_column` of c on, as split_columns has left them. `in_pairs`: columns 0
// and 1, 2 and 3, ... lie side by side in c, at 16 bytes.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
contract(const float *__restrict__ a, const char *__restrict__ b, const int *__restrict__ exponents,
         float2 *__restrict__ c, long long stride, int chunks, unsigned m, unsigned first_column, unsigned n,
         unsigned m_tiles, unsigned n_tiles, int in_pairs, const long long *m_high, const long long *m_low,
         unsigned m_split, const long long *n_high, const long long *n_low, unsigned n_split) {
    extern __shared__ __align__(128) char stages[];
    __shared__ long long barriers[2 * STAGES]; // a stage is full; it has been read by all warps that multiply
    __shared__ long long offsets[GROUPS][COLUMNS];
    __shared__ Scale scales[GROUPS][COLUMNS];
    const unsigned at_stages = shared_address(stages);
    const unsigned full = shared_address(barriers), empty = full + 8 * STAGES;
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / 4;
    const unsigned tiles = m_tiles * n_tiles;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            start_barrier(full + 8 * s, 1);
            start_barrier(empty + 8 * s, GROUPS * 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    unsigned stage = 0, turn = 0; // the stage to be used, and how often all of them were, modulo 2

    if (group == GROUPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(FEW_REGISTERS));
        if (threadIdx.x % 128 != 0)
            return;
        for (unsigned number = blockIdx.x; number < tiles; number += gridDim.x) {
            const Tile tile(number, m_tiles, n_tiles);
            const char *from = b + (long long)(tile.first_n / COLUMNS) * chunks * STAGE_BYTES;
            for (int chunk = 0; chunk < chunks; ++chunk, from += STAGE_BYTES) {
                wait(empty + 8 * stage, turn ^ 1);
                bring(at_stages + stage * STAGE_BYTES, from, full + 8 * stage);
                if (++stage == STAGES)
                    stage = 0, turn ^= 1;
            }
        }
        return;
    }

    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(MANY_REGISTERS));
    const Part of_m = {m_high, m_low, m_split}, of_n = {n_high, n_low, n_split};
    const unsigned own = group * GROUP_ROWS + warp % 4 * 16 + lane / 4; // of the rows of a tile; the other 8 on
    Row row[2];
    auto prefetch = [&](const Tile &tile) { // for the first chunk of a tile
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            row[r].next = a + min(tile.first_m + own + r * 8, m - 1) * stride + lane % 4 * 4;
            row[r].prefetch();
        }
    };
    prefetch(Tile(blockIdx.x, m_tiles, n_tiles));
    unsigned loaded_n = ~0u; // the first column of the tables
    for (unsigned number = blockIdx.x; number < tiles; number += gridDim.x) {
        const Tile tile(number, m_tiles, n_tiles), after(min(number + gridDim.x, tiles - 1), m_tiles, n_tiles);
        if (tile.first_n != loaded_n) {
            loaded_n = tile.first_n;
            sync_threads(group); // nobody reads the tables of the tile before
            for (unsigned j = threadIdx.x % 128; j < COLUMNS; j += 128) {
                const unsigned column = min(loaded_n + j, n - 1);
                offsets[group][j] = of_n(first_column + column);
                scales[group][j] = Scale(exponents[column]);
            }
            sync_threads(group);
        }
        row[0].scale = row[1].scale = power_of_two(UNSET);
        float sum[SUMS] = {};
        for (int chunk = 0; chunk < chunks; ++chunk) {
            if (__any_sync(0xffffffffu, row[0].leaves_range() || row[1].leaves_range())) {
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const float change = row[r].lower();
#pragma unroll
                    for (int i = 0; i < SUMS; i += 4)
                        sum[i + 2 * r] *= change, sum[i + 2 * r + 1] *= change;
                }
            }
            unsigned high[2][4], low[2][4];
#pragma unroll
            for (int step = 0; step < 2; ++step)
#pragma unroll
                for (int r = 0; r < 2; ++r)
                    row[r].split(step, high[step][r], high[step][r + 2], low[step][r], low[step][r + 2]);
            if (chunk + 1 < chunks)
                row[0].prefetch(), row[1].prefetch();
            else
                prefetch(after);

            wait(full + 8 * stage, turn);
            hold(sum);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                const unsigned plane = at_stages + stage * STAGE_BYTES + step * (2 * HALF_BYTES);
                multiply(sum, high[step], matrix_at(plane));
                multiply(sum, high[step], matrix_at(plane + PLANE_BYTES));
                multiply(sum, low[step], matrix_at(plane));
            }
            asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
            hold(sum);
            if (lane == 0)
                arrive(empty + 8 * stage);
            if (++stage == STAGES)
                stage = 0, turn ^= 1;
            if ((chunk + 1) % BLOCK_CHUNKS != 0 && chunk + 1 != chunks)
                continue;

            const bool add = chunk >= BLOCK_CHUNKS;
            const Scale of_row[2] = {row[0].exponent(), row[1].exponent()};
            float2 *to[2];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const unsigned i = tile.first_m + own + r * 8;
                to[r] = i < m ? c + of_m(i) : nullptr;
            }
#pragma unroll
            for (int i = 0; i < COLUMNS / 8; ++i) {
                const unsigned column = i * 8 + lane % 4 * 2;
                if (tile.first_n + column >= n)
                    continue;
                const Scale left = scales[group][column], right = scales[group][column + 1];
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    if (to[r] == nullptr)
                        continue;
                    const float *real = sum + i * 8 + r * 2, *imaginary = real + 4;
                    const float one = of_row[r].one * left.one, two = of_row[r].two * left.two;
                    const float next_one = of_row[r].one * right.one, next_two = of_row[r].two * right.two;
                    const float2 x = make_float2(real[0] * one * two, imaginary[0] * one * two);
                    const float2 y = make_float2(real[1] * next_one * next_two, imaginary[1] * next_one * next_two);
                    float2 *const at = to[r] + offsets[group][column];
                    if (in_pairs) {
                        put_pair(at, x, y, add);
                        continue;
                    }
                    put(at, x, add);
                    if (tile.first_n + column + 1 < n)
                        put(to[r] + offsets[group][column + 1], y, add);
                }
            }
#pragma unroll
            for (int i = 0; i < SUMS; ++i)
                sum[i] = 0.0f;
        }
    }
}
