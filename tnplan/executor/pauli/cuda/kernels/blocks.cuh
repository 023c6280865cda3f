// Launches whose blocks all run at once: how these wait for each other, and close the gaps among the rows together.
// Comes after table.cuh.

// Threads of a block, at most.
#define THREADS 512
// Loads of a lane that are under way at once.
#define LOADS 4
// The number of a warp, warps next to each other being of different blocks, and how many there are.
#define WARP ((Index)(threadIdx.x / 32) * gridDim.x + blockIdx.x)
#define WARPS ((Index)gridDim.x * (blockDim.x / 32))

// Where the blocks meet: at three words in turn, APART from each other, all 0 when the kernel begins. A word counts
// the blocks that have arrived, from bit ARRIVED on; those of them that have more to do, from bit MORE on; and the
// rows that were taken since the last meeting.
#define APART 16
#define ARRIVED 54
#define MORE 44
struct Meeting {
    Word *words;
    unsigned now;
};

static __device__ __forceinline__ Word *word_of(const Meeting &meeting) { return meeting.words + APART * meeting.now; }

static __device__ __forceinline__ Index rows_taken(Word word) { return (Index)(word & ((1ull << MORE) - 1)); }

static __device__ __forceinline__ bool has_more(Word word) { return word << 64 - ARRIVED >> 64 - ARRIVED + MORE; }

// A block arrives; all its threads call it. All have read the word of the next meeting when they came to the last.
static __device__ __forceinline__ void arrive(const Meeting &meeting, bool more = false) {
    const Word word = 1ull << ARRIVED | (__syncthreads_or(more) ? 1ull << MORE : 0);
    if (threadIdx.x == 0) {
        if (blockIdx.x == 0)
            meeting.words[APART * ((meeting.now + 1) % 3)] = 0;
        asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(word_of(meeting)), "l"(word) : "memory");
    }
}

// Wait until all have arrived; returns the word. What a block wrote before it arrived, all see then.
static __device__ __forceinline__ Word wait(Meeting &meeting) {
    __shared__ Word seen;
    if (threadIdx.x == 0) {
        Word word;
        do
            asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(word_of(meeting)) : "memory");
        while (word >> ARRIVED != gridDim.x);
        seen = word;
    }
    __syncthreads();
    meeting.now = (meeting.now + 1) % 3;
    return seen;
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
// they are more than the free rows.
static __device__ __forceinline__ bool has_gaps(Index dead, Index rows, Index capacity) {
    return 5 * dead > 2 * rows || (8 * dead > rows && dead > capacity - rows);
}

// Close the gaps among `rows` rows: terms past the number of terms move to the free rows below it, and
// the table is filled again. `spare` has `capacity` elements; `patterns` is null where none is
// needed any more. Returns how many rows are left.
template <class Pattern>
static __device__ Index close_gaps(Word *keys, REAL *coefficients, int *frequencies, Pattern *patterns, Word *slots,
                                   Word mask, Index capacity, unsigned *spare, Index rows, bool follows, Event *own,
                                   Meeting &meeting) {
    const Index warp = WARP, warps = WARPS;
    const unsigned lane = threadIdx.x % 32;
    unsigned *holes = spare, *movers = spare + capacity / 2;
    Word count = 0;
    for (Index i = FIRST; i < rows; i += STRIDE)
        count += __ldcg(coefficients + i) != 0;
    for (Word at = FIRST; at <= mask; at += STRIDE)
        slots[at] = 0;
    add_of_warp(&own->alive, count);
    arrive(meeting);
    wait(meeting);
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
        Word hash[LOADS], occupant[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; ++k)
            hash[k] = is_term[k] && !is_mover[k] ? hash_row(load(keys, base + 32 * k + lane)) : 0;
#pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            const Word entry = hash[k] << 32 | (Word)(base + 32 * k + lane + 1);
            occupant[k] = is_term[k] && !is_mover[k] ? atomicCAS(slots + (hash[k] & mask), 0ull, entry) : 0;
        }
#pragma unroll
        for (int k = 0; k < LOADS; ++k)
            if (occupant[k] != 0)
                enter_row(slots, mask, hash[k], hash[k] + 1 & mask, base + 32 * k + lane);
    }
    arrive(meeting);
    wait(meeting);
    const Index moved = (Index) * (volatile Word *)&own->movers;
    for (Index m = FIRST; m < moved; m += STRIDE) {
        const Index from = __ldcg(movers + m), to = __ldcg(holes + m);
        const Row row = load(keys, from);
        const Word hash = hash_row(row);
        store(keys, to, row);
        coefficients[to] = __ldcg(coefficients + from);
        if (follows)
            frequencies[to] = __ldcg(frequencies + from);
        if (patterns)
            patterns[to] = __ldcg(patterns + from);
        enter_row(slots, mask, hash, hash & mask, to);
    }
    if (FIRST == 0) {
        own->packed = (Word)(rows - alive);
        own->dead = own->passed + own->revived - own->swept - own->zeros;
    }
    arrive(meeting);
    wait(meeting);
    return alive;
}
