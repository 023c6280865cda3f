// A chain of contractions on tiles of one large operand. A block holds a tile in shared memory, multiplies it
// with each branch in turn and writes it in the order of the output.
//
// Defined outside: REAL, COMPLEX (0 or 1), THREADS, BLOCKS (that share a multiprocessor at least), LOADS and
// STORES (elements of a tile that a thread moves), SHAPES (the kinds of stages: FMA(number, rows and columns
// that a thread holds, k or 0 where it is not known before), TENSOR(number, groups of 16 rows that a warp holds,
// n / 4, k / 4)), OWN_PART (1: every stage leaves each warp the part of the tile that it had), TERMS (of a
// product on tensor cores: 3, or 1 for their own precision; 0: no stage runs on them).
//
// Invariants. Every place in the tile is an XOR of table entries, one for each part of an index, so that no
// index is ever taken apart here. A thread's outputs take the places of rows that no other thread reads, unless
// a row's columns are dealt to several warps; then all read before any writes. So a stage works in place.
// The tables are made in executor/device/fused_tables.py.

#if COMPLEX
struct __align__(2 * sizeof(REAL)) Element { REAL re, im; };
__device__ __forceinline__ Element zero() { return {REAL(0), REAL(0)}; }
__device__ __forceinline__ Element multiply(Element a, Element b) {
    Element product = {a.re * b.re, a.re * b.im};
    product.re -= a.im * b.im;
    product.im += a.im * b.re;
    return product;
}
__device__ __forceinline__ void multiply_add(Element& sum, Element a, Element b) {
    sum.re += a.re * b.re;
    sum.re -= a.im * b.im;
    sum.im += a.re * b.im;
    sum.im += a.im * b.re;
}
#else
typedef REAL Element;
__device__ __forceinline__ Element zero() { return REAL(0); }
__device__ __forceinline__ Element multiply(Element a, Element b) { return a * b; }
__device__ __forceinline__ void multiply_add(Element& sum, Element a, Element b) { sum += a * b; }
#endif

// The place of an element in a tile, in bytes.
typedef unsigned short Place;
const Place IDLE = 0xffff;
const int MOST_WALK = 32, MOST_STAGES = 8, MOST_EXTENT = 64;

// shape: the number of its kind. rounds: how often a warp takes its groups of rows on tensor cores; 0 elsewhere.
struct Stage {
    Place k, n, shape, rounds;
    Place row[MOST_WALK], k_place[MOST_EXTENT], n_place[MOST_EXTENT];
};

// Kernel parameters, read through the constant cache. Offsets are in global memory, in bytes; branch_start is in
// shared memory, in bytes: a multiple of 16, as is the size of the COLUMNS elements that a thread reads at once.
struct Tables {
    long long load_offset[MOST_WALK], store_offset[MOST_WALK];
    const void* branch[MOST_STAGES];
    int branch_elements[MOST_STAGES], branch_start[MOST_STAGES];
    Place load_place[MOST_WALK], store_place[MOST_WALK];
    Stage stage[MOST_STAGES];
};

__device__ __forceinline__ Element& at(unsigned char* tile, unsigned place) {
    return *reinterpret_cast<Element*>(tile + place);
}

template <int COLUMNS>
__device__ __forceinline__ void load_columns(Element (&b)[COLUMNS], const Element* from) {
    constexpr int UNIT = COLUMNS * sizeof(Element) < 16 ? COLUMNS : (sizeof(Element) < 16 ? 16 / sizeof(Element) : 1);
    struct __align__(UNIT * sizeof(Element)) Unit { Element element[UNIT]; };
    #pragma unroll
    for (int j = 0; j < COLUMNS; j += UNIT) {
        const Unit unit = *reinterpret_cast<const Unit*>(from + j);
        #pragma unroll
        for (int u = 0; u < UNIT; ++u) b[j + u] = unit.element[u];
    }
}

// base and column: the place of the thread's first row, and its first column.
template <int ROWS, int COLUMNS, int K>
__device__ __forceinline__ void run_stage(unsigned char* tile, const Element* branch, const Stage& stage,
                                          const unsigned base, const unsigned column) {
    Element sum[ROWS][COLUMNS];
    const int k = K ? K : stage.k, n = stage.n;
    if (!K) {
        #pragma unroll
        for (int i = 0; i < ROWS; ++i)
            #pragma unroll
            for (int j = 0; j < COLUMNS; ++j) sum[i][j] = zero();
    }
    if (base != IDLE) {
        #pragma unroll (K ? K : 4)
        for (int q = 0; q < k; ++q) {
            Element b[COLUMNS];
            load_columns<COLUMNS>(b, branch + q * n + column);
            const unsigned first = base ^ stage.k_place[q];
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                const Element a = at(tile, first ^ stage.row[i]);
                #pragma unroll
                for (int j = 0; j < COLUMNS; ++j) {
                    if (K && q == 0) sum[i][j] = multiply(a, b[j]);
                    else multiply_add(sum[i][j], a, b[j]);
                }
            }
        }
    }
    if (n > COLUMNS) __syncthreads();
    if (base != IDLE) {
        #pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            const unsigned first = base ^ stage.n_place[column + j];
            #pragma unroll
            for (int i = 0; i < ROWS; ++i) at(tile, first ^ stage.row[i]) = sum[i][j];
        }
    }
    if (OWN_PART) __syncwarp();
    else __syncthreads();
}

#if TERMS
// A number as the sum of two of 11 bits, all that tensor cores keep of a float: they cut off its last 13. Half a unit
// added before the cut rounds high, and may turn a NaN into zero, but then low is the NaN. Without low the conversion
// is one that keeps it.
__device__ __forceinline__ void split(float value, unsigned& high, unsigned& low) {
    #if TERMS == 1
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(high) : "f"(value));
    low = 0;
    #else
    high = __float_as_uint(value) + 0x1000u & 0xffffe000u;
    low = __float_as_uint(value - __uint_as_float(high));
    #endif
}

// What a lane multiplies with: high and low parts of two numbers.
struct __align__(16) Fragment { unsigned high[2], low[2]; };

// Of an element of a branch: what makes the real or the imaginary part of a result.
__device__ __forceinline__ Fragment fragment(Element b, bool imaginary) {
    Fragment parts;
    split(imaginary ? b.im : b.re, parts.high[0], parts.low[0]);
    split(imaginary ? b.re : -b.im, parts.high[1], parts.low[1]);
    return parts;
}

__device__ __forceinline__ void multiply_add(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 16 rows by 4 of k by 4 columns a step. Lane 4 g + t reads rows g and g + 8 at k = t, and holds column t of their
// product; its part of the branch is row t of k, and of column g / 2 what makes the real part (even g) or the
// imaginary one. A branch of up to FRAGMENTS elements is held as [k / 4][n / 4][lane] in fragments, a larger one as
// [k / 4][n / 4][4 of k][4 of n]. read and write: the places of the lane's first element, and of its first result.
const int FRAGMENTS = 256;

template <int GROUPS, int N_STEPS, int K_STEPS>
__device__ __forceinline__ void run_tensor_stage(unsigned char* tile, const unsigned char* branch, const Stage& stage,
                                                 const unsigned read, const unsigned write) {
    const int lane = threadIdx.x % 32;
    const bool imaginary = lane / 4 % 2;
    const Element* elements = reinterpret_cast<const Element*>(branch) + lane % 4 * 4 + lane / 8;
    const Fragment* fragments = reinterpret_cast<const Fragment*>(branch) + lane;
    const int rounds = read == IDLE ? 0 : stage.rounds;
    for (int round = 0; round < rounds; ++round) {
        const Place* row = stage.row + round * 2 * GROUPS;
        float sum[GROUPS][N_STEPS][4] = {};
        #pragma unroll (K_STEPS < 4 ? K_STEPS : 2)
        for (int s = 0; s < K_STEPS; ++s) {
            unsigned high[GROUPS][4], low[GROUPS][4];
            const unsigned first = read ^ stage.k_place[s];
            #pragma unroll
            for (int g = 0; g < GROUPS; ++g)
                #pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const Element a = at(tile, first ^ row[2 * g + half]);
                    split(a.re, high[g][half], low[g][half]);
                    split(a.im, high[g][2 + half], low[g][2 + half]);
                }
            #pragma unroll
            for (int j = 0; j < N_STEPS; ++j) {
                const int step = s * N_STEPS + j;
                const Fragment b = 16 * N_STEPS * K_STEPS <= FRAGMENTS ? fragments[step * 32]
                                                                       : fragment(elements[step * 16], imaginary);
                #if TERMS == 3
                #pragma unroll
                for (int g = 0; g < GROUPS; ++g) multiply_add(sum[g][j], high[g], b.low);
                #pragma unroll
                for (int g = 0; g < GROUPS; ++g) multiply_add(sum[g][j], low[g], b.high);
                #endif
                #pragma unroll
                for (int g = 0; g < GROUPS; ++g) multiply_add(sum[g][j], high[g], b.high);
            }
        }
        __syncwarp();
        #pragma unroll
        for (int j = 0; j < N_STEPS; ++j) {
            const unsigned first = write ^ stage.n_place[j];
            #pragma unroll
            for (int g = 0; g < GROUPS; ++g)
                #pragma unroll
                for (int half = 0; half < 2; ++half)
                    at(tile, first ^ row[2 * g + half]) = {sum[g][j][2 * half], sum[g][j][2 * half + 1]};
        }
    }
    if (OWN_PART) __syncwarp();
    else __syncthreads();
}
#endif

// first and second: of the thread, see own_place.
__device__ __forceinline__ void run_any(unsigned char* tile, const unsigned char* branch, const Stage& stage,
                                        const unsigned first, const unsigned second) {
    switch (stage.shape) {
        #define FMA(number, rows, columns, k) \
            case number: \
                run_stage<rows, columns, k>(tile, reinterpret_cast<const Element*>(branch), stage, first, second); break;
        #define TENSOR(number, groups, n_steps, k_steps) \
            case number: run_tensor_stage<groups, n_steps, k_steps>(tile, branch, stage, first, second); break;
        SHAPES
    }
}

__device__ __forceinline__ void copy_async(Element& target, const unsigned char* source) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&target));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(source), "n"(sizeof(Element)));
}

// Puts an element of a branch where the stage reads it; `to` counts as branch_place says.
__device__ __forceinline__ void hold(unsigned char* branch, const Stage& stage, int to, Element value) {
    #if TERMS
    if (stage.rounds && stage.k * stage.n <= FRAGMENTS) {
        Fragment* into = reinterpret_cast<Fragment*>(branch) + to / 16 * 32 + to % 4 * 8 + to / 4 % 4;
        into[0] = fragment(value, false);
        into[4] = fragment(value, true);
        return;
    }
    #endif
    reinterpret_cast<Element*>(branch)[to] = value;
}

// Where a tile starts in global memory, in bytes: the sum of a far and a near entry.
struct Start {
    long long source, target;
};

// own_offset: source and target of each thread. own_place: of each thread in loads, in stores, then for every stage
// base and column, or on tensor cores read and write. branch_place: for every branch the place of each of its elements,
// in elements.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
fused(const unsigned char* __restrict__ operand, unsigned char* __restrict__ out,
      const __grid_constant__ Tables tables,
      const Start* __restrict__ own_offset, const Start* __restrict__ near, const Start* __restrict__ far,
      const Place* __restrict__ own_place, const Place* __restrict__ branch_place, int n_stages, int n_near,
      int n_tiles, int tile_bytes, int branch_bytes) {
    extern __shared__ __align__(16) unsigned char memory[];
    unsigned char* tile = memory;
    unsigned char* next_tile = tile + tile_bytes;
    unsigned char* branches = next_tile + tile_bytes;
    Place* own = reinterpret_cast<Place*>(branches + branch_bytes);

    for (int i = threadIdx.x; i < (2 + 2 * n_stages) * THREADS; i += THREADS) own[i] = own_place[i];
    for (int s = 0; s < n_stages; ++s) {
        const Element* from = static_cast<const Element*>(tables.branch[s]);
        const int count = tables.branch_elements[s];
        for (int i = threadIdx.x; i < count; i += THREADS)
            hold(branches + tables.branch_start[s], tables.stage[s], branch_place[i], from[i]);
        branch_place += count;
    }
    __syncthreads();
    own += threadIdx.x;
    const Start offset = own_offset[threadIdx.x];
    const unsigned load_base = own[0], store_base = own[THREADS];

    auto start_of = [&](int number) -> Start {
        if (number >= n_tiles) return {0, 0};
        const Start low = near[number % n_near], high = far[number / n_near];
        return {low.source + high.source + offset.source, low.target + high.target + offset.target};
    };
    auto load = [&](unsigned char* into, const Start& start) {
        if (load_base != IDLE) {
            const unsigned char* from = operand + start.source;
            #pragma unroll
            for (int i = 0; i < LOADS; ++i)
                copy_async(at(into, load_base ^ tables.load_place[i]), from + tables.load_offset[i]);
        }
        asm volatile("cp.async.commit_group;");
    };

    // While a tile is worked on, the block's next one arrives in the other buffer; the start of the one
    // after that is looked up before the tile is written.
    const int step = gridDim.x;
    Start start = start_of(blockIdx.x), next = start_of(blockIdx.x + step);
    load(tile, start);
    for (int number = blockIdx.x; number < n_tiles; number += step) {
        if (number + step < n_tiles) {
            load(next_tile, next);
            asm volatile("cp.async.wait_group 1;");
        } else {
            asm volatile("cp.async.wait_group 0;");
        }
        __syncthreads();
        for (int s = 0; s < n_stages; ++s) {
            const Place* place = own + (2 + 2 * s) * THREADS;
            run_any(tile, branches + tables.branch_start[s], tables.stage[s], place[0], place[THREADS]);
        }
        if (OWN_PART) __syncthreads();
        const Start after_next = start_of(number + 2 * step);
        if (store_base != IDLE) {
            unsigned char* into = out + start.target;
            #pragma unroll
            for (int i = 0; i < STORES; ++i)
                *reinterpret_cast<Element*>(into + tables.store_offset[i]) = at(tile, store_base ^ tables.store_place[i]);
        }
        __syncthreads();
        unsigned char* done = tile;
        tile = next_tile;
        next_tile = done;
        start = next;
        next = after_next;
    }
}
