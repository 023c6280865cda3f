// Steps of a Hamiltonian over products of half-strings, for a batch of alpha strings rows[0 .. n_rows-1], whose
// single excitations are e in start[i] .. start[i+1]-1. Place 0 of a string is the string itself, place
// 1 + e - start[i] an excitation; the places from there on are filled with zeros.
// Injected: REAL (float, double). NumPy twin: executor/sbd/numpy_batch.py. Every element is written by one thread,
// and sums run in rising order of excitations, so that the same bits come out whatever the grid.

typedef long long Index;

// weights[b, c, place] = factor times the coefficient of a place in column first + c: numbers[row, column], or
// +-two[column, pair]. Grid: one block for each b and c.
extern "C" __global__ void weigh(const Index *__restrict__ rows, Index n_block, Index k, Index first,
                                 Index n_columns, Index n_pairs, const Index *__restrict__ start,
                                 const int *__restrict__ pairs, const signed char *__restrict__ sign,
                                 const REAL *__restrict__ two, const REAL *__restrict__ numbers, REAL factor,
                                 REAL *__restrict__ weights) {
    const Index at = blockIdx.x, column = first + at % n_block, row = rows[at / n_block];
    const REAL *const own = two + column * n_pairs;
    for (Index place = threadIdx.x; place < k; place += blockDim.x) {
        const Index e = start[row] + place - 1;
        REAL weight = 0;
        if (place == 0)
            weight = numbers[row * n_columns + column];
        else if (e < start[row + 1])
            weight = sign[e] * own[pairs[e]];
        weights[at * k + place] = factor * weight;
    }
}

// values[b, place, j] = x[string at the place, j]; string `row` itself is x[row + shift], or absent for shift < 0.
// Grid: one block for each b and place.
extern "C" __global__ void take(const Index *__restrict__ rows, Index k, Index n_beta, Index shift,
                                const Index *__restrict__ start, const int *__restrict__ other,
                                const REAL *__restrict__ x, REAL *__restrict__ values) {
    const Index at = blockIdx.x, place = at % k, row = rows[at / k], e = start[row] + place - 1;
    Index source = -1;
    if (place == 0)
        source = shift < 0 ? -1 : row + shift;
    else if (e < start[row + 1])
        source = other[e];
    for (Index j = threadIdx.x; j < n_beta; j += blockDim.x)
        values[at * n_beta + j] = source < 0 ? (REAL)0 : x[source * n_beta + j];
}

// y[row, j] += the sum of +-held[b, element] for e in start[j] .. start[j+1]-1, where code[e] is twice the number of
// the element [column, string] in held[b], plus 1 for a negative sign. Grid: b along x, tiles of j along y.
extern "C" __global__ void collect(const Index *__restrict__ rows, Index n_block, Index n_beta,
                                   const Index *__restrict__ start, const int *__restrict__ code,
                                   const REAL *__restrict__ held, REAL *__restrict__ y) {
    const Index b = blockIdx.x;
    const REAL *const own = held + b * n_block * n_beta;
    for (Index j = (Index)blockIdx.y * blockDim.x + threadIdx.x; j < n_beta; j += (Index)gridDim.y * blockDim.x) {
        REAL sum = 0;
        for (Index e = start[j]; e < start[j + 1]; ++e) {
            const REAL value = own[code[e] >> 1];
            sum += code[e] & 1 ? -value : value;
        }
        y[rows[b] * n_beta + j] += sum;
    }
}

// As `collect`, with element [column, string] of held[b] = the sum over place < k of weights[b, column, place]
// values[b, place, string], which is not kept. `values` has `places` places. Grid: b along x, tiles of j along y.
extern "C" __global__ void gather(const Index *__restrict__ rows, Index n_block, Index k, Index places, Index n_beta,
                                  const Index *__restrict__ start, const int *__restrict__ code,
                                  const REAL *__restrict__ weights, const REAL *__restrict__ values,
                                  REAL *__restrict__ y) {
    const Index b = blockIdx.x;
    const int length = n_beta;
    const REAL *const factors = weights + b * n_block * k, *const own = values + b * places * n_beta;
    for (Index j = (Index)blockIdx.y * blockDim.x + threadIdx.x; j < n_beta; j += (Index)gridDim.y * blockDim.x) {
        REAL sum = 0;
        for (Index e = start[j]; e < start[j + 1]; ++e) {
            const int element = code[e] >> 1;
            const REAL *const factor = factors + element / length * k, *const value = own + element % length;
            REAL held = 0;
            for (Index place = 0; place < k; ++place)
                held += factor[place] * value[place * n_beta];
            sum += code[e] & 1 ? -held : held;
        }
        y[rows[b] * n_beta + j] += sum;
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
