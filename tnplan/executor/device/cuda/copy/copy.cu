// Permuting copies, tile by tile; the tables are made by tiling.py, all offsets are in bytes.
//
// Defines: UNIT_BYTES (4, 8 or 16), ADD (1: add to the target), REAL (float or double, what is added),
// MOST_THREADS (a block has at most so many: 256, 512 or 1024).
// table = load lanes | store lanes | load steps | store steps | rows | columns, pairs of offsets.
// An element is a sum of three pairs: one of its lane, one of its step, one of its tile (row + column).

#if UNIT_BYTES == 16
typedef uint4 Unit;
#elif UNIT_BYTES == 8
typedef uint2 Unit;
#else
typedef unsigned Unit;
#endif
#define BATCH 4

typedef ulonglong2 Pair;

union Parts {
    Unit unit;
    REAL values[UNIT_BYTES / sizeof(REAL)];
};

// What is written to `place`: the unit, or with ADD the sum of what is there and the unit.
__device__ __forceinline__ Unit result(const char* place, Unit unit)
{
#if ADD
    Parts sum, added;
    sum.unit = *(const Unit*)place;
    added.unit = unit;
#pragma unroll
    for (int part = 0; part < (int)(UNIT_BYTES / sizeof(REAL)); ++part) sum.values[part] += added.values[part];
    return sum.unit;
#else
    return unit;
#endif
}

__device__ __forceinline__ Pair place_of(const Pair* places, unsigned rows, unsigned columns, unsigned number)
{
    const Pair row = places[number / columns];
    const Pair column = places[rows + number % columns];
    return {row.x + column.x, row.y + column.y};
}

// All units are read before the first is written.
template <int COUNT>
__device__ __forceinline__ void load_units(char* slots, const char* from, const Pair* steps)
{
    Unit units[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) units[i] = __ldcg((const Unit*)(from + steps[i].x));
#pragma unroll
    for (int i = 0; i < COUNT; ++i) *(Unit*)(slots + steps[i].y) = units[i];
}

template <int COUNT>
__device__ __forceinline__ void store_units(char* to, const char* slots, const Pair* steps)
{
    Unit units[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) units[i] = *(const Unit*)(slots + steps[i].y);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) units[i] = result(to + steps[i].x, units[i]);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) *(Unit*)(to + steps[i].x) = units[i];
}

template <int COUNT>
__device__ __forceinline__ void move_units(char* to, const char* from, const Pair* steps)
{
    Unit units[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) units[i] = __ldcg((const Unit*)(from + steps[i].x));
#pragma unroll
    for (int i = 0; i < COUNT; ++i) units[i] = result(to + steps[i].y, units[i]);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) *(Unit*)(to + steps[i].y) = units[i];
}

// Load pairs are (source, slot), store pairs (target, slot). No two elements of a tile share a slot.
extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1536 / MOST_THREADS)
copy_tiles(char* target, const char* source, const Pair* table, unsigned load_lanes, unsigned load_steps,
           unsigned store_lanes, unsigned store_steps, unsigned rows, unsigned columns)
{
    extern __shared__ Pair shared[];
    const unsigned thread = threadIdx.x;
    const unsigned n_steps = load_steps + store_steps;
    const Pair* places = table + load_lanes + store_lanes + n_steps;
    for (unsigned i = thread; i < n_steps; i += blockDim.x) shared[i] = table[load_lanes + store_lanes + i];
    const Pair load_lane = table[thread < load_lanes ? thread : 0];
    const Pair store_lane = table[load_lanes + (thread < store_lanes ? thread : 0)];
    char* load_slot = (char*)(shared + n_steps) + load_lane.y;
    const char* store_slot = (const char*)(shared + n_steps) + store_lane.y;
    const Pair* load_step = shared;
    const Pair* store_step = shared + load_steps;
    unsigned number = blockIdx.x;
    Pair place = place_of(places, rows, columns, number);
    __syncthreads();

    while (number < rows * columns) {
        if (thread < load_lanes) {
            const char* from = source + place.x + load_lane.x;
            unsigned i = 0;
            for (; i + BATCH <= load_steps; i += BATCH) load_units<BATCH>(load_slot, from, load_step + i);
            for (; i < load_steps; ++i) load_units<1>(load_slot, from, load_step + i);
        }
        char* to = target + place.y + store_lane.x;
        number += gridDim.x;
        if (number < rows * columns) place = place_of(places, rows, columns, number);
        __syncthreads();
        if (thread < store_lanes) {
            unsigned i = 0;
            for (; i + BATCH <= store_steps; i += BATCH) store_units<BATCH>(to, store_slot, store_step + i);
            for (; i < store_steps; ++i) store_units<1>(to, store_slot, store_step + i);
        }
        __syncthreads();
    }
}

// Pairs are (source, target): there is one pass, and the table has no store lanes and store steps.
extern "C" __global__ void __launch_bounds__(MOST_THREADS, 1536 / MOST_THREADS)
copy_direct(char* target, const char* source, const Pair* table, unsigned lanes, unsigned steps,
            unsigned rows, unsigned columns)
{
    if (threadIdx.x >= lanes) return;
    const Pair lane = table[threadIdx.x];
    const Pair* step = table + lanes;
    for (unsigned number = blockIdx.x; number < rows * columns; number += gridDim.x) {
        const Pair place = place_of(step + steps, rows, columns, number);
        const char* from = source + place.x + lane.x;
        char* to = target + place.y + lane.y;
        unsigned i = 0;
        for (; i + BATCH <= steps; i += BATCH) move_units<BATCH>(to, from, step + i);
        for (; i < steps; ++i) move_units<1>(to, from, step + i);
    }
}
