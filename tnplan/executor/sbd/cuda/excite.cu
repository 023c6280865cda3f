// Steps of a Hamiltonian over products of half-strings, for alpha strings 0 .. n_rows-1, whose single excitations are
// e in start[i] .. start[i+1]-1: to string i from other[e], by pairs[e], with sign[e].
// Injected: REAL (float, double), THREADS of a block of `numbers` and `join`. NumPy twin: tests/oracles/sbd.py.
// Every element is written by one thread, and sums run in one order, so that the same bits come out whatever the grid.

typedef long long Index;

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

// y[row, j] += factor times the sum of x[other, j'] over excitations of the row and of string j by the same pair in
// opposite directions: up[e] says whether e creates the higher orbital. active[pair] is the number of the pair in
// `partners`, or -1; partners[number, j] is -1, or 4 j' + 2 where string j fills the higher orbital, + 1 where the
// excitation has a minus. Rows of x have n_source elements. Grid: as that of `numbers`.
extern "C" __global__ void exchange(Index n_rows, Index n_beta, Index n_source, const Index *__restrict__ start,
                                    const int *__restrict__ other, const int *__restrict__ pairs,
                                    const signed char *__restrict__ sign, const signed char *__restrict__ up,
                                    const int *__restrict__ active, const int *__restrict__ partners, REAL factor,
                                    const REAL *__restrict__ x, REAL *__restrict__ y) {
    const Index row = blockIdx.x % n_rows, j = blockIdx.x / n_rows * THREADS + threadIdx.x;
    if (j >= n_beta)
        return;
    REAL sum = 0;
    for (Index e = start[row]; e < start[row + 1]; ++e) {
        const int number = active[pairs[e]];
        const int partner = number < 0 ? -1 : partners[number * n_beta + j];
        if (partner >= 0 && (partner >> 1 & 1) != up[e])
            sum += (partner & 1 ? -sign[e] : sign[e]) * x[other[e] * n_source + (partner >> 2)];
    }
    y[row * n_beta + j] += factor * sum;
}

// y[rows[i], j] += the sum of spare[k, j] over k in bounds[i] .. bounds[i+1]-1. Grid: one block for each i.
extern "C" __global__ void join(Index n_beta, const Index *__restrict__ rows, const Index *__restrict__ bounds,
                                const REAL *__restrict__ spare, REAL *__restrict__ y) {
    for (Index j = threadIdx.x; j < n_beta; j += THREADS) {
        REAL sum = 0;
        for (Index k = bounds[blockIdx.x]; k < bounds[blockIdx.x + 1]; ++k)
            sum += spare[k * n_beta + j];
        y[rows[blockIdx.x] * n_beta + j] += sum;
    }
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
