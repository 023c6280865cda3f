// target += source over n units of WIDTH numbers of type REAL (a complex number counts as two). NumPy twin:
// np.add. Every number is added by one thread, so that the sum has the same bits whatever the grid.

struct __align__(sizeof(REAL) * WIDTH) Unit {
    REAL value[WIDTH];
};

extern "C" __global__ void add(Unit *__restrict__ target, const Unit *__restrict__ source, long long n) {
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        Unit sum = target[i];
        const Unit term = source[i];
#pragma unroll
        for (int part = 0; part < WIDTH; ++part)
            sum.value[part] += term.value[part];
        target[i] = sum;
    }
}
