// Steps of a Hamiltonian over products of half-strings, for a batch of alpha strings rows[0 .. n_rows-1], whose
// single excitations are e in start[i] .. start[i+1]-1. Place 0 of a string is the string itself, place
// 1 + e - start[i] an excitation. LANES places of each string, from `first` on, are worked on at once; lanes past
// the last place have zeros, and strings without any of the places are passed over.
// Injected: REAL (float, double), LANES (a power of two up to 32), THREADS of a block of `weigh`, `pairs` and
// `numbers`. NumPy twin: executor/sbd/numpy_batch.py. Every element is written by one thread, and sums run in one
// order, so that the same bits come out whatever the grid.

typedef long long Index;

#define TILE 32

// values[b, j, lane] = x[string at the place, j]; string `row` itself is x[row + shift], or absent for shift < 0.
// Grid: tiles of TILE strings j of a row side by side, then the next row; block: TILE x 8.
extern "C" __global__ void take(const Index *__restrict__ rows, Index n_beta, Index first, Index shift,
                                const Index *__restrict__ start, const int *__restrict__ other,
                                const REAL *__restrict__ x, REAL *__restrict__ values) {
    __shared__ REAL tile[LANES][TILE + 1];
    const Index n_tiles = (n_beta + TILE - 1) / TILE, b = blockIdx.x / n_tiles, j0 = blockIdx.x % n_tiles * TILE;
    const Index row = rows[b], end = start[row + 1];
    if (start[row] + first > end)
        return;
    for (int lane = threadIdx.y; lane < LANES; lane += blockDim.y) {
        const Index j = j0 + threadIdx.x, place = first + lane, e = start[row] + place - 1;
        Index source = -1;
        if (place == 0)
            source = shift < 0 ? -1 : row + shift;
        else if (e < end)
            source = other[e];
        tile[lane][threadIdx.x] = source < 0 || j >= n_beta ? (REAL)0 : x[source * n_beta + j];
    }
    __syncthreads();
    for (int at = threadIdx.y * TILE + threadIdx.x; at < TILE * LANES; at += TILE * blockDim.y)
        if (j0 + at / LANES < n_beta)
            values[(b * n_beta + j0) * LANES + at] = tile[at % LANES][at / LANES];
}

// weights[b, a, lane] = the coefficient of the place with active pair a of beta: own[row, a] of number operators, or
// +-active[pair, a]. Grid: n_tiles blocks for a row side by side, then the next row.
extern "C" __global__ void weigh(const Index *__restrict__ rows, Index n_tiles, Index n_active, Index first,
                                 const Index *__restrict__ start, const int *__restrict__ pairs,
                                 const signed char *__restrict__ sign, const REAL *__restrict__ active,
                                 const REAL *__restrict__ own, REAL *__restrict__ weights) {
    const Index b = blockIdx.x / n_tiles, row = rows[b], end = start[row + 1];
    if (start[row] + first > end)
        return;
    for (Index at = blockIdx.x % n_tiles * THREADS + threadIdx.x; at < n_active * LANES; at += n_tiles * THREADS) {
        const Index a = at / LANES, place = first + at % LANES, e = start[row] + place - 1;
        REAL weight = 0;
        if (place == 0)
            weight = own[row * n_active + a];
        else if (e < end)
            weight = sign[e] * active[pairs[e] * n_active + a];
        weights[b * n_active * LANES + at] = weight;
    }
}

// y[row, j] += the sum over lanes and excitations of beta string j, entries[bounds[2 j] .. bounds[2 j + 2] - 1], each
// an active pair and a source, of weights[b, pair, lane] values[b, source, lane]; entries from bounds[2 j + 1] on are
// subtracted. With `half`, for the half of the strings from row + above on and round, the first one halved. LANES
// threads make an element. Grid: n_tiles blocks for a row side by side, then the next row.
extern "C" __global__ void __launch_bounds__(THREADS)
    pairs(const Index *__restrict__ rows, Index n_tiles, Index n_beta, Index n_active, Index first, Index above,
          Index half, const Index *__restrict__ start, const Index *__restrict__ bounds,
          const int2 *__restrict__ entries, const REAL *__restrict__ weights, const REAL *__restrict__ values,
          REAL *__restrict__ y) {
    const Index b = blockIdx.x / n_tiles, row = rows[b];
    if (start[row] + first > start[row + 1])
        return;
    const int lane = threadIdx.x % LANES, at_once = THREADS / LANES;
    const REAL *const w = weights + b * n_active * LANES + lane, *const v = values + b * n_beta * LANES + lane;
    const Index begin = half ? row + above : 0;
    const Index count = half ? (n_beta + 1) / 2 + (n_beta % 2 == 0 && begin < n_beta / 2) : n_beta;
    // All threads of a warp take as many turns as each other, for the sums over lanes.
    for (Index t0 = blockIdx.x % n_tiles * at_once; t0 < count; t0 += n_tiles * at_once) {
        const Index t = t0 + threadIdx.x / LANES, j = begin + t < n_beta ? begin + t : begin + t - n_beta;
        REAL sum = 0, less = 0;
        if (t < count) {
            const int2 *e = entries + bounds[2 * j];
            const int2 *const middle = entries + bounds[2 * j + 1], *const end = entries + bounds[2 * j + 2];
#pragma unroll 4
            for (; e < middle; ++e)
                sum += w[e->x * LANES] * v[(Index)e->y * LANES];
#pragma unroll 4
            for (; e < end; ++e)
                less += w[e->x * LANES] * v[(Index)e->y * LANES];
        }
        sum -= less;
        for (int step = LANES / 2; step; step /= 2)
            sum += __shfl_xor_sync(0xffffffff, sum, step);
        if (lane == 0 && t < count)
            y[row * n_beta + j] += half && t == 0 ? (REAL)0.5 * sum : sum;
    }
}

// y[row, j] += what number operators of beta string j give: the sum over excitations e of +-numbers[pair, j]
// x[other, j], and for shift >= 0 factor times that over orbitals p of filled[row, p] numbers[p, j] x[row + shift, j].
// Grid: one block for each row, for THREADS strings j; then for the next ones, so that their columns stay in cache.
extern "C" __global__ void numbers(Index n_rows, Index n_beta, Index n_orbitals, Index shift,
                                   const Index *__restrict__ start, const int *__restrict__ other,
                                   const int *__restrict__ pairs, const signed char *__restrict__ sign,
                                   const REAL *__restrict__ filled, const REAL *__restrict__ numbers, REAL factor,
                                   const REAL *__restrict__ x, REAL *__restrict__ y) {
    const Index row = blockIdx.x % n_rows, j = blockIdx.x / n_rows * THREADS + threadIdx.x;
    if (j >= n_beta)
        return;
    REAL sum = 0;
    for (Index e = start[row]; e < start[row + 1]; ++e)
        sum += sign[e] * numbers[pairs[e] * n_beta + j] * x[other[e] * n_beta + j];
    if (shift >= 0) {
        REAL own = 0;
        for (Index p = 0; p < n_orbitals; ++p)
            if (filled[row * n_orbitals + p] != 0)
                own += numbers[p * n_beta + j];
        sum += factor * own * x[(row + shift) * n_beta + j];
    }
    y[row * n_beta + j] += sum;
}

// y[i, j] += the sum over e in start[i] .. start[i+1]-1 of value[e] x[column[e], j]. Grid: i along x, tiles of j
// along y.
extern "C" __global__ void sparse(Index n_columns, const Index *__restrict__ start, const int *__restrict__ column,
                                  const REAL *__restrict__ value, const REAL *__restrict__ x, REAL *__restrict__ y) {
    const Index i = blockIdx.x;
    for (Index j = (Index)blockIdx.y * blockDim.x + threadIdx.x; j < n_columns; j += (Index)gridDim.y * blockDim.x) {
        REAL sum = 0;
        for (Index e = start[i]; e < start[i + 1]; ++e)
            sum += value[e] * x[column[e] * n_columns + j];
        y[i * n_columns + j] += sum;
    }
}
