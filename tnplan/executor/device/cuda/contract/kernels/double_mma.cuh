// Tensor cores for double precision, of compute capability 8.0 and up.

#pragma once

// c[16, 8] += a[16, 8] b[8, 8]: lane l has rows l / 4 and l / 4 + 8 of a at depth l % 4, then at l % 4 + 4; column l / 4 of
// b at both depths; and of c both rows at columns l % 4 * 2 and the next.
__device__ inline void multiply(double (&c)[4], double2 a, double2 beyond, double b0, double b1) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
                 : "d"(a.x), "d"(a.y), "d"(beyond.x), "d"(beyond.y), "d"(b0), "d"(b1));
#else
    const double lower[2] = {a.x, a.y}, upper[2] = {beyond.x, beyond.y};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                     : "+d"(c[2 * h]), "+d"(c[2 * h + 1])
                     : "d"(lower[h]), "d"(b0));
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                     : "+d"(c[2 * h]), "+d"(c[2 * h + 1])
                     : "d"(upper[h]), "d"(b1));
    }
#endif
}
