// Launches whose blocks all run at once: how these wait for each other, and close the gaps among the rows together.
// Comes after pauli.cuh.

// Threads of a block, at most.
#define THREADS 512
// Loads of a lane that are under way at once.
#define LOADS 4
// The number of a warp, warps next to each other being of different blocks, and how many there are.
#define WARP ((Index)(threadIdx.x / 32) * gridDim.x + blockIdx.x)
#define WARPS ((Index)gridDim.x * (blockDim.x / 32))

// The blocks meet: each arrives, and waits until `goal` arrivals. What a block wrote before it arrived, all see
// after they waited. *arrivals is 0 when the kernel begins.
static __device__ __forceinline__ void arrive(Word *arrivals) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrivals, 1ull);
    }
}

static __device__ __forceinline__ void wait(const Word *arrivals, Word goal) {
    if (threadIdx.x == 0) {
        while (*(const volatile Word *)arrivals < goal) {
        }
        __threadfence();
    }
    __syncthreads();
}

// Write to the end of a list, which *count counts, the rows base + 32 k + lane that are `chosen`.
static __device__ __forceinline__ void list_rows(Word *count, unsigned *list, Index base,
                                                 const bool (&chosen)[LOADS]) {
    const unsigned lane = threadIdx.x % 32;
    unsigned takers[LOADS], all = 0;
#pragma unroll
    for (int k = 0; k < LOADS; ++k)
        all += __popc(takers[k] = __ballot_sync(ALL, chosen[k]));
    if (all == 0)
        return;
    Word next = 0;
    if (lane == 0)
        next = atomicAdd(count, (Word)all);
    next = __shfl_sync(ALL, next, 0);
#pragma unroll
    for (int k = 0; k < LOADS; ++k) {
        if (chosen[k])
            list[next + __popc(takers[k] & ((1u << lane) - 1))] = (unsigned)(base + 32 * k + lane);
        next += __popc(takers[k]);
    }
}

// Whether gaps are to be closed: two fifths of the rows are no terms, or, lest the arrays grow, an eighth are and
// they are more than there is room left.
static __device__ __forceinline__ bool has_gaps(Index dead, Index rows, Index capacity) {
    return 5 * dead > 2 * rows || (8 * dead > rows && dead > capacity - rows);
}

// Close the gaps among `rows` rows: terms past the number of terms move to the places below it that are free, and
// the table is made anew. `spare` has room for `capacity` numbers. Returns how many rows are left.
static __device__ Index close_gaps(Word *keys, REAL *coefficients, int *frequencies, Byte *patterns, Word *slots,
                                   Word mask, Index capacity, unsigned *spare, Index rows, bool follows, Event *own,
                                   Word *arrivals, Word &goal) {
    const Index warp = WARP, warps = WARPS;
    const unsigned lane = threadIdx.x % 32;
    unsigned *holes = spare, *movers = spare + capacity / 2;
    Word count = 0;
    for (Index i = FIRST; i < rows; i += STRIDE)
        count += __ldcg(coefficients + i) != 0;
    for (Word at = FIRST; at <= mask; at += STRIDE)
        slots[at] = 0;
    add_of_warp(&own->alive, count);
    arrive(arrivals);
    wait(arrivals, goal += gridDim.x);
    const Index alive = (Index) * (volatile Word *)&own->alive;
    for (Index base = 32 * LOADS * warp; base < rows; base += 32 * LOADS * warps) {
        bool is_term[LOADS], is_hole[LOADS], is_mover[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            const Index i = base + 32 * k + lane;
            is_term[k] = i < rows && __ldcg(coefficients + i) != 0;
            is_hole[k] = i < alive && !is_term[k];
            is_mover[k] = i >= alive && is_term[k];
        }
        list_rows(&own->holes, holes, base, is_hole);
        list_rows(&own->movers, movers, base, is_mover);
        Word hash[LOADS], there[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; ++k)
            hash[k] = is_term[k] && !is_mover[k] ? hash_row(load(keys, base + 32 * k + lane)) : 0;
#pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            const Word entry = hash[k] << 32 | (Word)(base + 32 * k + lane + 1);
            there[k] = is_term[k] && !is_mover[k] ? atomicCAS(slots + (hash[k] & mask), 0ull, entry) : 0;
        }
#pragma unroll
        for (int k = 0; k < LOADS; ++k)
            if (there[k] != 0)
                enter_row(slots, mask, hash[k], hash[k] + 1 & mask, base + 32 * k + lane);
    }
    arrive(arrivals);
    wait(arrivals, goal += gridDim.x);
    const Index moved = (Index) * (volatile Word *)&own->movers;
    for (Index m = FIRST; m < moved; m += STRIDE) {
        const Index from = __ldcg(movers + m), to = __ldcg(holes + m);
        const Row row = load(keys, from);
        const Word hash = hash_row(row);
        store(keys, to, row);
        coefficients[to] = __ldcg(coefficients + from);
        if (follows)
            frequencies[to] = __ldcg(frequencies + from);
        patterns[to] = __ldcg(patterns + from);
        enter_row(slots, mask, hash, hash & mask, to);
    }
    if (FIRST == 0) {
        own->packed = (Word)(rows - alive);
        own->dead = own->passed + own->revived - own->swept - own->zeros;
    }
    arrive(arrivals);
    wait(arrivals, goal += gridDim.x);
    return alive;
}
