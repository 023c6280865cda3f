// What kernels need to know of an array to code it, in memory: the host says it, or it is chosen where the array is.
//
// After fast.cuh.

// Frames, none where nothing is to be coded, and for threads that take vectors (`plain`) what the lane and warp of each
// add to the number of its elements, and from bit 32 on to their places in shared memory.
struct __align__(16) Plan {
    Frames frames;
    unsigned plain;
    Word mine[THREADS];
};

#define PLAN_BYTES 2560
static_assert(sizeof(Plan) <= PLAN_BYTES, "the host allocates PLAN_BYTES for a plan");

// Fill a plan, and offsets (n_tiles): the number of each tile's first element. A block.
__device__ __forceinline__ void lay_out(const Frames& frames, const Element* values, Plan& plan, unsigned* offsets)
{
    const Mine mine = mine_of<VECTOR_LOG2>(frames.order);
    plan.mine[threadIdx.x] = (Word)mine.place << 32 | mine.number;
    if (threadIdx.x == 0) {
        plan.frames = frames;
        plan.frames.done = 0;
        plan.plain = is_plain(frames.rules, frames.order, frames.elements, values);
    }
    for (unsigned tile = threadIdx.x; tile < frames.n_tiles; tile += THREADS) {
        offsets[tile] = tile_offset(tile, frames.order);
    }
}
