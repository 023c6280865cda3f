// Stages of a fused chain by multiply-adds, in fused.cu, which says what is injected, and in adjoint.cu.

#if COMPLEX
struct __align__(2 * sizeof(REAL)) Element { REAL re, im; };
__device__ __forceinline__ Element zero() { return {REAL(0), REAL(0)}; }
__device__ __forceinline__ Element sum_of(Element a, Element b) { return {a.re + b.re, a.im + b.im}; }
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
__device__ __forceinline__ Element sum_of(Element a, Element b) { return a + b; }
__device__ __forceinline__ Element multiply(Element a, Element b) { return a * b; }
__device__ __forceinline__ void multiply_add(Element& sum, Element a, Element b) { sum += a * b; }
#endif

// The place of an element in a tile, in bytes.
typedef unsigned short Place;
const Place IDLE = 0xffff;
const int MOST_STAGES = 16; // of a chain, forward and backward
static_assert(N_STAGES <= MOST_STAGES && TILE_BYTES < IDLE, "stages have sources, and places in a tile are no IDLE");

// A row for each stage: the places of rows, of k, of n. Offsets are in global memory, in bytes.
static __device__ constexpr unsigned row_place[][MOST_ROW] = ROW_PLACES;
static __device__ constexpr unsigned k_place[][MOST_K] = K_PLACES, n_place[][MOST_N] = N_PLACES;
static __device__ constexpr unsigned load_place[] = LOAD_PLACES, store_place[] = STORE_PLACES;
static __device__ constexpr bool meets[] = MEETS;
static __device__ constexpr long long load_offset[] = LOAD_OFFSETS, store_offset[] = STORE_OFFSETS;
const int LOADS = sizeof(load_place) / sizeof(*load_place), STORES = sizeof(store_place) / sizeof(*store_place);

// Products of one thread that are unrolled: more do not fit the caches of instructions.
const int BODY = COMPLEX ? 128 : 512;

// Branches of stages whose threads hold whole rows are in constant memory; all others go to shared memory from a copy
// here. `hold` writes both before each launch. FMA stages have k slow and n fast.
__constant__ __align__(16) unsigned char constant_branches[CONSTANT_BYTES ? CONSTANT_BYTES : 16];
__device__ __align__(16) unsigned char shared_branches[SHARED_BYTES ? SHARED_BYTES : 16];

// XOR of a computed place and a constant one: only bits within a run of all banks can be set in both,
// the rest is added, by the instruction that reads or writes.
__device__ __forceinline__ unsigned moved(unsigned place, unsigned by) {
    return (place ^ by % 128) + by / 128 * 128;
}

__device__ __forceinline__ Element& at(unsigned char* tile, unsigned place) {
    return *reinterpret_cast<Element*>(tile + place);
}

template <int AFTER>
__device__ __forceinline__ void sync_threads() {
    if (meets[AFTER]) __syncthreads();
    else __syncwarp();
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

// From one tile into another, or in place. base and column: the place of the thread's first row, and its first column.
// branches: where the stage's are.
template <int S, int ROWS, int COLUMNS, int K, int N, int FIRST>
__device__ __forceinline__ void run_stage(unsigned char* tile, unsigned char* into, const unsigned char* branches,
                                          const unsigned base, const unsigned column) {
    constexpr int MOST = BODY / (ROWS * COLUMNS), STEP = K < MOST ? K : MOST; // of k that are unrolled
    const unsigned mine = N > COLUMNS ? column : 0;
    const Element* branch = reinterpret_cast<const Element*>(branches + FIRST) + mine;
    Element sum[ROWS][COLUMNS];
    if (K > STEP) {
        #pragma unroll
        for (int i = 0; i < ROWS; ++i)
            #pragma unroll
            for (int j = 0; j < COLUMNS; ++j) sum[i][j] = zero();
    }
    if (base != IDLE) {
        #pragma unroll 1
        for (int done = 0; done < K; done += STEP) {
            unsigned start = base;
            #pragma unroll
            for (int bit = STEP; bit < K; bit *= 2)
                if (done & bit) start = moved(start, k_place[S][bit]);
            #pragma unroll
            for (int q = 0; q < STEP; ++q) {
                Element a[ROWS];
                #pragma unroll
                for (int i = 0; i < ROWS; ++i)
                    a[i] = at(tile, moved(moved(start, k_place[S][q]), row_place[S][i]));
                Element b[COLUMNS];
                load_columns(b, branch + (done + q) * N);
                #pragma unroll
                for (int j = 0; j < COLUMNS; ++j)
                    #pragma unroll
                    for (int i = 0; i < ROWS; ++i) {
                        if (K == STEP && q == 0) sum[i][j] = multiply(a[i], b[j]);
                        else multiply_add(sum[i][j], a[i], b[j]);
                    }
            }
        }
    }
    if (N > COLUMNS) __syncthreads();
    if (base != IDLE) {
        #pragma unroll
        for (int part = 0; part < N; part += COLUMNS) {
            if (part != mine) continue;
            #pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
                #pragma unroll
                for (int i = 0; i < ROWS; ++i)
                    at(into, moved(moved(base, n_place[S][part + j]), row_place[S][i])) = sum[i][j];
        }
    }
    sync_threads<S + 1>();
}
