// Shares of work that blocks claim one after the other, as many blocks as run at once.
//
// Blocks that are few are begun several on one multiprocessor while others have none. So a block waits a moment for
// each one that came to its multiprocessor before it, in which time those that are alone claim: work is spread evenly.

#define MULTIPROCESSORS 255
#define WAIT_CYCLES 1000

// Zeros before a launch: the next share; how many there are, as whoever launches counts them; and how many blocks came
// to each multiprocessor.
struct Claims {
    Word next, most, came[MULTIPROCESSORS];
};

// To be called before a block claims for the first time; blocks that come when all shares are claimed do not wait. One
// thread.
__device__ __forceinline__ void wait_in_turn(Claims& claims, Word shares)
{
#ifdef __CUDA_ARCH__
    unsigned place;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(place));
    const long long begin = clock64(), wait = atomicAdd(claims.came + place % MULTIPROCESSORS, (Word)1) * WAIT_CYCLES;
    while (clock64() - begin < wait && *(const volatile Word*)&claims.next < shares) {}
#endif
}

// The number of the next share. One thread.
__device__ __forceinline__ unsigned claim(Claims& claims) { return (unsigned)atomicAdd(&claims.next, (Word)1); }
