// The kernel that puts the branches of a chain where its stages read them.

struct Sources {
    const void* branch[MOST_STAGES];
};

// One block a branch: puts its elements where the stage reads them. branch_place: for every branch the place of each
// of its elements, in elements. constant: the address of `constant_branches`, which a kernel may write only before
// the launch that reads it.
extern "C" __global__ void hold(const __grid_constant__ Sources sources, const Place* __restrict__ branch_place,
                                unsigned char* constant) {
    const Element* from = static_cast<const Element*>(sources.branch[blockIdx.x]);
    #define FMA(s, rows, columns, k, n, first) \
        if (blockIdx.x == s) \
            for (int i = threadIdx.x; i < k * n; i += blockDim.x) \
                reinterpret_cast<Element*>((n > columns ? shared_branches : constant) + first)[branch_place[i]] = from[i]; \
        branch_place += blockIdx.x > s ? k * n : 0;
    #define TENSOR(s, groups, n_steps, k_steps, rounds, first) \
        if (blockIdx.x == s) \
            for (int i = threadIdx.x; i < 16 * n_steps * k_steps; i += blockDim.x) \
                hold_fragment(shared_branches + first, 16 * n_steps * k_steps <= FRAGMENTS, branch_place[i], from[i]); \
        branch_place += blockIdx.x > s ? 16 * n_steps * k_steps : 0;
    STAGES
    #undef FMA
    #undef TENSOR
}
