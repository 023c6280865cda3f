// A chain of contractions on tiles of one large operand. A block holds a tile in shared memory, multiplies it
// with each branch in turn and writes it in the order of the output.
//
// Defined outside: REAL, COMPLEX (0 or 1), THREADS, BLOCKS (that share a multiprocessor at least), LOADS and
// STORES (elements of a tile that a thread moves), SHAPES (for each kind of stage SHAPE(number, rows and columns
// that a thread holds, k or 0 where it is not known before)), OWN_PART (1: every stage leaves each warp the
// part of the tile that it had).
//
// Invariants. Every place in the tile is an XOR of table entries, one for each part of an index, so that no
// index is ever taken apart here. A thread's outputs take the places of rows that no other thread reads, unless
// a row's columns are dealt to several warps; then all read before any writes. So a stage works in place.
// Tables are described in executor/device/fused_layout.py.

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

struct Stage {
    Place k, n, shape, unused;
    Place row[MOST_WALK], k_place[MOST_EXTENT], n_place[MOST_EXTENT];
};

// Kernel parameters, read through the constant cache. Offsets are in global memory, in elements.
struct Tables {
    long long load_offset[MOST_WALK], store_offset[MOST_WALK];
    const void* branch[MOST_STAGES];
    int branch_elements[MOST_STAGES];
    Place load_place[MOST_WALK], store_place[MOST_WALK];
    Stage stage[MOST_STAGES];
};

__device__ __forceinline__ Element& at(unsigned char* tile, unsigned place) {
    return *reinterpret_cast<Element*>(tile + place);
}

// A branch starts at a multiple of 16 bytes, as do the COLUMNS elements that a thread reads at once.
__device__ __forceinline__ int padded(int count) {
    const int unit = sizeof(Element) < 16 ? 16 / sizeof(Element) : 1;
    return (count + unit - 1) / unit * unit;
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

__device__ __forceinline__ void run_any(unsigned char* tile, const Element* branch, const Stage& stage,
                                        const unsigned base, const unsigned column) {
    switch (stage.shape) {
        #define SHAPE(number, rows, columns, k) \
            case number: run_stage<rows, columns, k>(tile, branch, stage, base, column); break;
        SHAPES
    }
}

__device__ __forceinline__ void copy_async(Element& target, const Element* source) {
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&target));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(source), "n"(sizeof(Element)));
}

// Where a tile starts in global memory: the sum of a far and a near entry.
struct Start {
    long long source, target;
};

// own_offset: source and target of each thread. own_place: of each thread in loads, in stores, then base and
// column of every stage. branch_place: for every branch the place of each of its elements.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
fused(const Element* __restrict__ operand, Element* __restrict__ out, const __grid_constant__ Tables tables,
      const Start* __restrict__ own_offset, const Start* __restrict__ near, const Start* __restrict__ far,
      const Place* __restrict__ own_place, const Place* __restrict__ branch_place, int n_stages, int n_near,
      int n_tiles, int tile_bytes, int branch_elements) {
    extern __shared__ __align__(16) unsigned char memory[];
    unsigned char* tile = memory;
    unsigned char* next_tile = tile + tile_bytes;
    Element* branches = reinterpret_cast<Element*>(next_tile + tile_bytes);
    Place* own = reinterpret_cast<Place*>(branches + branch_elements);

    for (int i = threadIdx.x; i < (2 + 2 * n_stages) * THREADS; i += THREADS) own[i] = own_place[i];
    Element* values = branches;
    for (int s = 0; s < n_stages; ++s) {
        const Element* from = static_cast<const Element*>(tables.branch[s]);
        const int count = tables.branch_elements[s];
        for (int i = threadIdx.x; i < count; i += THREADS) values[branch_place[i]] = from[i];
        branch_place += count;
        values += padded(count);
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
            const Element* from = operand + start.source;
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
        values = branches;
        for (int s = 0; s < n_stages; ++s) {
            const Place* place = own + (2 + 2 * s) * THREADS;
            run_any(tile, values, tables.stage[s], place[0], place[THREADS]);
            values += padded(tables.branch_elements[s]);
        }
        if (OWN_PART) __syncthreads();
        const Start after_next = start_of(number + 2 * step);
        if (store_base != IDLE) {
            Element* into = out + start.target;
            #pragma unroll
            for (int i = 0; i < STORES; ++i) into[tables.store_offset[i]] = at(tile, store_base ^ tables.store_place[i]);
        }
        __syncthreads();
        unsigned char* done = tile;
        tile = next_tile;
        next_tile = done;
        start = next;
        next = after_next;
    }
}
