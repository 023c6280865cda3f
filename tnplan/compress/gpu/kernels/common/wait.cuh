// Words that blocks of a launch publish for those behind them. Blocks begin in the order of their numbers, x first, so that
// whoever waits for a block with a lower number waits for one that runs.

// Publish `word`, not 0, and that all is written that this thread wrote before, or knew to be written.
__device__ __forceinline__ void publish(Word* place, Word word)
{
#ifdef __CUDA_ARCH__
    asm volatile("st.release.gpu.global.u64 [%0], %1;" :: "l"(place), "l"(word) : "memory");
#else
    *place = word;
#endif
}

// The word at `place`, 0 where none is published yet.
__device__ __forceinline__ Word published(const Word* place)
{
#ifdef __CUDA_ARCH__
    Word word;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(place) : "memory");
    return word;
#else
    return *place;
#endif
}

// The same; waits until it is published.
__device__ __forceinline__ Word awaited(const Word* place)
{
    Word word;
    while (!(word = published(place))) {}
    return word;
}

// Store a word that stands for itself, nothing written before, where others wait for it with `stored_word`.
__device__ __forceinline__ void store_word(Word* place, Word word) { *(volatile Word*)place = word; }

// The word at a place, as soon as there is one.
__device__ __forceinline__ Word stored_word(const Word* place)
{
    Word word;
    while (!(word = *(const volatile Word*)place)) {}
    return word;
}
