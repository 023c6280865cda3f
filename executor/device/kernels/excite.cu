// Three steps of a Hamiltonian's mixed-spin part for a batch of alpha strings rows[0 .. n_rows-1], whose single
// excitations are e in start[i] .. start[i+1]-1; place 0 of a string is the string itself, place 1 + e - start[i]
// an excitation, and the places from there up to k are filled with zeros.
// Injected: REAL (float, double). NumPy twin: executor/sbd/numpy_batch.py. Every element is written by one thread,
// and sums run in rising order of excitations, so that the same bits come out whatever the grid.

typedef long long Index;

#define FOR_EACH(e, count)                                                                                   \
    for (Index e = (Index)blockIdx.x * blockDim.x + threadIdx.x; e < (count); e += (Index)gridDim.x * blockDim.x)

// weights[b, c, place] = the coefficient of a place in column c: numbers[row, c], or +-two[pair, c].
extern "C" __global__ void weigh(const Index *__restrict__ rows, Index n_rows, Index k, Index n_columns,
                                 const Index *__restrict__ start, const int *__restrict__ pairs,
                                 const signed char *__restrict__ sign, const REAL *__restrict__ two,
                                 const REAL *__restrict__ numbers, REAL *__restrict__ weights) {
    FOR_EACH(at, n_rows * n_columns * k) {
        const Index place = at % k, column = at / k % n_columns, row = rows[at / k / n_columns];
        const Index e = start[row] + place - 1;
        REAL weight = 0;
        if (place == 0)
            weight = numbers[row * n_columns + column];
        else if (e < start[row + 1])
            weight = sign[e] * two[pairs[e] * n_columns + column];
        weights[at] = weight;
    }
}

// values[b, place, j] = x[string at the place, j].
extern "C" __global__ void take(const Index *__restrict__ rows, Index n_rows, Index k, Index n_beta,
                                const Index *__restrict__ start, const int *__restrict__ other,
                                const REAL *__restrict__ x, REAL *__restrict__ values) {
    FOR_EACH(at, n_rows * k * n_beta) {
        const Index j = at % n_beta, place = at / n_beta % k, row = rows[at / n_beta / k];
        const Index e = start[row] + place - 1;
        REAL value = 0;
        if (place == 0)
            value = x[row * n_beta + j];
        else if (e < start[row + 1])
            value = x[other[e] * n_beta + j];
        values[at] = value;
    }
}

// y[row, j] += the sum over e of +-held[b, column[e], source[e]] for e in start[j] .. start[j+1]-1.
extern "C" __global__ void collect(const Index *__restrict__ rows, Index n_rows, Index n_columns, Index n_beta,
                                   const Index *__restrict__ start, const int *__restrict__ source,
                                   const int *__restrict__ column, const signed char *__restrict__ sign,
                                   const REAL *__restrict__ held, REAL *__restrict__ y) {
    FOR_EACH(at, n_rows * n_beta) {
        const Index j = at % n_beta, b = at / n_beta;
        const REAL *own = held + b * n_columns * n_beta;
        REAL sum = 0;
        for (Index e = start[j]; e < start[j + 1]; ++e)
            sum += sign[e] * own[column[e] * n_beta + source[e]];
        y[rows[b] * n_beta + j] += sum;
    }
}
