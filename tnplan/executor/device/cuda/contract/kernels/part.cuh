// Offsets in c of numbers 0, 1, ... of a part: high[number / split] + low[number % split].
struct Part {
    const long long *high, *low;
    unsigned split;
    __device__ long long operator()(unsigned number) const {
        return __ldg(high + number / split) + __ldg(low + number % split);
    }
};
