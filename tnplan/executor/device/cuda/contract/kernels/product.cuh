// What the products that write every sum to its place share: reads of rows, offsets in c, the order of blocks.
// Included by fma.cu, mma.cu and wgmma.cu, which define BM and BN (rows and columns of a block) and VECTOR (floats
// that a row can be read by: 4, 2, 1).

typedef unsigned long long Address;

#define GROUP 8  // blocks along m that are done before the next n, for the L2

// Four floats of a row, zeros from `left` on.
__device__ inline float4 read(const float *p, int left) {
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#if VECTOR == 4
    if (left > 0)
        v = __ldg((const float4 *)p);
#elif VECTOR == 2
    if (left > 0) {
        const float2 x = __ldg((const float2 *)p);
        v.x = x.x, v.y = x.y;
    }
    if (left > 2) {
        const float2 x = __ldg((const float2 *)p + 1);
        v.z = x.x, v.w = x.y;
    }
#else
    if (left > 0)
        v.x = __ldg(p);
    if (left > 1)
        v.y = __ldg(p + 1);
    if (left > 2)
        v.z = __ldg(p + 2);
    if (left > 3)
        v.w = __ldg(p + 3);
#endif
    return v;
}

__device__ inline unsigned shared_address(const void *pointer) {
    unsigned address;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(pointer));
    return address;
}

#include "part.cuh"

// The block of the product with this number: GROUP blocks along m before the next along n.
struct Tile {
    unsigned batch, first_m, first_n;

    __device__ Tile(Address number, unsigned m_tiles, unsigned n_tiles) {
        batch = number / ((Address)m_tiles * n_tiles);
        number -= batch * ((Address)m_tiles * n_tiles);
        const unsigned group = number / ((Address)GROUP * n_tiles);
        const unsigned within = number - group * ((Address)GROUP * n_tiles);
        const unsigned rows = min(GROUP, m_tiles - group * GROUP);
        first_m = (group * GROUP + within % rows) * BM;
        first_n = within / rows * BN;
    }

    // Offsets in c of the rows of a block, with that of the batch, then of its columns; -1 past the last of each.
    __device__ void offsets_in_c(long long *offsets, unsigned m, unsigned n, Part of_batch, Part of_m,
                                 Part of_n) const {
        const long long start = of_batch(batch);
        for (unsigned i = threadIdx.x; i < BM; i += THREADS)
            offsets[i] = first_m + i < m ? start + of_m(first_m + i) : -1;
        for (unsigned j = threadIdx.x; j < BN; j += THREADS)
            offsets[BM + j] = first_n + j < n ? of_n(first_n + j) : -1;
    }
};
