// Rows of numbers as sums of two half-precision ones, x 2^e = high + low, with a power of two for each row.

#define UNSET 127        // e of a row of zeros: any number leaves its range
#define LARGEST 65000.0f // below the largest half-precision number
#define TOP 12           // the largest number found becomes 2^TOP .. 2^(TOP + 1)

__device__ inline float power_of_two(int exponent) { // 0 below the normal numbers
    return exponent < -126 ? 0.0f : __int_as_float((exponent + 127) << 23);
}

__device__ inline float finite(float x) { return fabsf(x) <= 3.402823466e38f ? fabsf(x) : 0.0f; }

// e of a row that has had `old`, where `most` is its largest number now.
__device__ inline int lowered(int old, float most) {
    return most > 0.0f ? min(old, TOP + 127 - (__float_as_int(most) >> 23)) : old;
}

// Two numbers as a pair of half-precision ones, rounded to the nearest, and back.

__device__ inline unsigned pack(float low, float high) {
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ inline void unpack(unsigned pair, float &low, float &high) {
    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(low), "=f"(high)
        : "r"(pair));
}
