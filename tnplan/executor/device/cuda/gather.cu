// Copies the values of many inputs to their places in one block: a row of blocks for each. The table has three
// rows of `n`: addresses, starts in the block, sizes in bytes, which are multiples of 4.

template <typename Unit>
__device__ void copy(char *target, const char *source, long long bytes) {
    const long long n = bytes / sizeof(Unit), step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
        ((Unit *)target)[i] = ((const Unit *)source)[i];
}

extern "C" __global__ void gather(const long long *__restrict__ table, long long n, char *block) {
    const char *source = (const char *)table[blockIdx.y];
    char *target = block + table[n + blockIdx.y];
    const long long bytes = table[2 * n + blockIdx.y];
    if (((unsigned long long)source | (unsigned long long)target | bytes) % sizeof(int4) == 0)
        copy<int4>(target, source, bytes);
    else
        copy<int>(target, source, bytes);
}
