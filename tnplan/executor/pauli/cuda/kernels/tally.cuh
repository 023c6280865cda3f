// What rotations of a group did, summed over lanes, warps and blocks into the log. Comes after blocks.cuh.
// Where lanes turn rows with different members at once, a lane notes what it saw in a turn, and lane m of its warp adds
// up the notes of member m, so there are 32 at most. Where a pass is one rotation, `of_warp` sums what lanes tallied.

// What rotations did; fields of Event.
struct Tally {
    unsigned hits, merged, revived, gone, passed, swept, zeros, fresh, left;
    double l1, squares, swept_l1, swept_squares;
};

#define COUNTS 9
#define SUMS 4

#if BY_PASSES
// What a lane saw of member `member` in one turn: eight counts of a Tally, a byte each, and its sums.
struct Note {
    double sums[SUMS];
    unsigned counts[2];
    unsigned member;
};

static __device__ __forceinline__ Note note_of(const Tally &tally, unsigned member) {
    return {{tally.l1, tally.squares, tally.swept_l1, tally.swept_squares},
            {tally.hits | tally.merged << 8 | tally.revived << 16 | tally.gone << 24,
             tally.passed | tally.swept << 8 | tally.zeros << 16 | tally.fresh << 24},
            member};
}

// Lane m adds up what is noted of member m in the first `some` of the warp's notes.
static __device__ __forceinline__ void add_notes(const Note *notes, unsigned some, Tally &tally) {
    unsigned counts[2] = {};
    __syncwarp();
#pragma unroll 4
    for (unsigned k = 0; k < some; ++k) {
        const bool is_own = notes[k].member == threadIdx.x % 32;
        counts[0] += is_own ? notes[k].counts[0] : 0;
        counts[1] += is_own ? notes[k].counts[1] : 0;
        tally.l1 += is_own ? notes[k].sums[0] : 0;
        tally.squares += is_own ? notes[k].sums[1] : 0;
        tally.swept_l1 += is_own ? notes[k].sums[2] : 0;
        tally.swept_squares += is_own ? notes[k].sums[3] : 0;
    }
    __syncwarp();
    tally.hits += counts[0] & 255;
    tally.merged += counts[0] >> 8 & 255;
    tally.revived += counts[0] >> 16 & 255;
    tally.gone += counts[0] >> 24;
    tally.passed += counts[1] & 255;
    tally.swept += counts[1] >> 8 & 255;
    tally.zeros += counts[1] >> 16 & 255;
    tally.fresh += counts[1] >> 24;
}

#else
// The sum over the lanes of a warp, in lane 0; the others have nothing.
static __device__ __forceinline__ Tally of_warp(const Tally &tally) {
    Tally all = {};
    const bool is_own = threadIdx.x % 32 == 0;
    const auto sum = [&](unsigned count) {
        const unsigned sum = __reduce_add_sync(ALL, count);
        return is_own ? sum : 0;
    };
    if (__any_sync(ALL, tally.hits | tally.fresh)) {
        all.hits = sum(tally.hits), all.merged = sum(tally.merged), all.revived = sum(tally.revived);
        all.gone = sum(tally.gone), all.passed = sum(tally.passed), all.swept = sum(tally.swept);
        all.zeros = sum(tally.zeros), all.fresh = sum(tally.fresh);
    }
    if (__any_sync(ALL, tally.gone | tally.swept)) {
        double sums[SUMS] = {tally.l1, tally.squares, tally.swept_l1, tally.swept_squares};
        for (int step = 16; step > 0; step /= 2)
#pragma unroll
            for (int k = 0; k < SUMS; ++k)
                sums[k] += __shfl_xor_sync(ALL, sums[k], step);
        if (is_own)
            all.l1 = sums[0], all.squares = sums[1], all.swept_l1 = sums[2], all.swept_squares = sums[3];
    }
    return all;
}
#endif

// The tallies of a block, a member each.
struct Tallies {
    unsigned counts[MEMBERS][COUNTS];
    double sums[MEMBERS][SUMS];
};

// Add what lane m tallied of member m.
static __device__ __forceinline__ void add_tally(Tallies &all, const Tally &tally) {
    const unsigned member = threadIdx.x % 32;
    const unsigned counts[COUNTS] = {tally.hits,  tally.merged, tally.revived, tally.gone, tally.passed,
                                     tally.swept, tally.zeros,  tally.fresh,   tally.left};
    const double sums[SUMS] = {tally.l1, tally.squares, tally.swept_l1, tally.swept_squares};
#pragma unroll
    for (int k = 0; k < COUNTS; ++k)
        if (counts[k])
            atomicAdd(&all.counts[member][k], counts[k]);
#pragma unroll
    for (int k = 0; k < SUMS; ++k)
        if (sums[k] != 0)
            atomicAdd(&all.sums[member][k], sums[k]);
}

// Enter the tallies of a group of so many in the log, `first` being its first event, and clear them. A warp calls it.
static __device__ __forceinline__ void enter(Event *first, int size, Tallies &all) {
    const int member = threadIdx.x % 32;
    Word dead = 0;
    if (member < size) {
        unsigned *counts = all.counts[member];
        double *sums = all.sums[member];
        Event *own = first + member;
        Word *counted[COUNTS] = {&own->hits,  &own->merged, &own->revived, &own->gone, &own->passed,
                                 &own->swept, &own->zeros,  &own->fresh,   &own->left};
        double *summed[SUMS] = {&own->l1, &own->squares, &own->swept_l1, &own->swept_squares};
        if (member < size - 1)
            dead = (Word)counts[5] + counts[6] - counts[2] - counts[4];
#pragma unroll
        for (int k = 0; k < COUNTS; ++k)
            if (counts[k]) {
                atomicAdd(counted[k], (Word)counts[k]);
                counts[k] = 0;
            }
#pragma unroll
        for (int k = 0; k < SUMS; ++k)
            if (sums[k] != 0) {
                atomicAdd(summed[k], sums[k]);
                sums[k] = 0;
            }
    }
    add_of_warp(&first[size - 1].dead, dead);
}
