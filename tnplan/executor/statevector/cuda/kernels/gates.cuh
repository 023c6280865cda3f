// What a thread does with the amplitudes in its registers: matrices, phases and factors on the bits that number them.
// Included by program.cu, which defines Amplitude, REAL, Code, THREADS, REGISTER_BITS and the tables of factors.

__device__ __forceinline__ Amplitude times(Amplitude a, Amplitude b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}

// The element m of a kind, times x.
template <int KIND> __device__ __forceinline__ Amplitude product(Amplitude m, Amplitude x) {
    if constexpr (KIND == NOTHING) return {0, 0};
    if constexpr (KIND == PLUS) return x;
    if constexpr (KIND == MINUS) return {-x.x, -x.y};
    if constexpr (KIND == PLUS_I) return {-x.y, x.x};
    if constexpr (KIND == MINUS_I) return {x.y, -x.x};
    if constexpr (KIND == REAL_PART) return {m.x * x.x, m.x * x.y};
    if constexpr (KIND == IMAGINARY_PART) return {-(m.y * x.y), m.y * x.x};
    if constexpr (KIND == ANY) return times(m, x);
}

template <int KIND> __device__ __forceinline__ void add_product(Amplitude m, Amplitude x, Amplitude &sum) {
    if constexpr (KIND == REAL_PART || KIND == ANY) {
        sum.x += m.x * x.x;
        sum.y += m.x * x.y;
    }
    if constexpr (KIND == IMAGINARY_PART || KIND == ANY) {
        sum.x -= m.y * x.y;
        sum.y += m.y * x.x;
    }
    if constexpr (KIND >= PLUS && KIND <= MINUS_I) {
        const Amplitude more = product<KIND>(m, x);
        sum.x += more.x;
        sum.y += more.y;
    }
}

// The column that a row's sum begins with: a unit, which needs no instruction, else one that is not 0.
template <Code KINDS, int SIDE> __device__ constexpr int first_column(int row) {
    int found = 0;
    for (int column = SIDE; column--;) {
        const int kind = (int)(KINDS >> KIND_DIGITS * (row * SIDE + column) & 7);
        const int old = (int)(KINDS >> KIND_DIGITS * (row * SIDE + found) & 7);
        const bool is_unit = kind >= PLUS && kind <= MINUS_I, was_unit = old >= PLUS && old <= MINUS_I;
        if (is_unit || (kind != NOTHING && !was_unit)) found = column;
    }
    return found;
}

// y = m x, from element AT on.
template <Code KINDS, int SIDE, int AT = 0>
__device__ __forceinline__ void multiply(const Amplitude *m, const Amplitude *x, Amplitude *y) {
    if constexpr (AT < SIDE * SIDE) {
        constexpr int row = AT / SIDE, column = AT % SIDE, first = first_column<KINDS, SIDE>(row);
        constexpr int kind = (int)(KINDS >> KIND_DIGITS * AT & 7);
        constexpr int first_kind = (int)(KINDS >> KIND_DIGITS * (row * SIDE + first) & 7);
        if constexpr (column == 0) y[row] = product<first_kind>(m[AT + first], x[first]);
        if constexpr (column != first) add_product<kind>(m[AT], x[column], y[row]);
        multiply<KINDS, SIDE, AT + 1>(m, x, y);
    }
}

template <int P, Code KINDS, int MASK, int VALUE>
__device__ __forceinline__ void one(const Amplitude *m, Amplitude *a) {
#pragma unroll
    for (int j = 0; j < IN_THREAD; ++j) {
        if (j >> P & 1 || (j & MASK) != VALUE) continue;
        const Amplitude x[2] = {a[j], a[j | 1 << P]};
        Amplitude y[2];
        multiply<KINDS, 2>(m, x, y);
        a[j] = y[0];
        a[j | 1 << P] = y[1];
    }
}

// P is the less significant bit of a row.
template <int P, int Q, Code KINDS, int MASK, int VALUE>
__device__ __forceinline__ void two(const Amplitude *m, Amplitude *a) {
#pragma unroll
    for (int j = 0; j < IN_THREAD; ++j) {
        if ((j >> P | j >> Q) & 1 || (j & MASK) != VALUE) continue;
        const Amplitude x[4] = {a[j], a[j | 1 << P], a[j | 1 << Q], a[j | 1 << P | 1 << Q]};
        Amplitude y[4];
        multiply<KINDS, 4>(m, x, y);
        a[j] = y[0];
        a[j | 1 << P] = y[1];
        a[j | 1 << Q] = y[2];
        a[j | 1 << P | 1 << Q] = y[3];
    }
}

// The kinds of a matrix whose elements off the diagonal are taken times a real number.
__device__ constexpr Code signed_kinds(Code kinds) {
    for (int at = 1; at < 3; ++at) {
        const Code kind = kinds >> KIND_DIGITS * at & 7;
        const Code now = kind == PLUS || kind == MINUS ? REAL_PART : kind == PLUS_I || kind == MINUS_I ? IMAGINARY_PART : kind;
        kinds += (now - kind) << KIND_DIGITS * at;
    }
    return kinds;
}

// A number, with another sign where the top bit of a word is set.
__device__ __forceinline__ float flipped(float number, unsigned word) {
    return __uint_as_float(__float_as_uint(number) ^ (word & 1u << 31));
}

__device__ __forceinline__ double flipped(double number, unsigned word) {
    return __hiloint2double(__double2hiint(number) ^ (int)(word & 1u << 31), __double2loint(number));
}

// The parity of the bits of MASK in a word, as the top bit of what comes back.
template <Code MASK> __device__ __forceinline__ unsigned top_parity(Code word) {
    if constexpr (MASK == 0) {
        return 0;
    } else if constexpr ((MASK & (MASK - 1)) == 0) {
        constexpr int above = MASK >> 32 ? 32 : 0;
        constexpr unsigned half = (unsigned)(MASK >> above);
        return (unsigned)(word >> above) * ((1u << 31) / half);
    } else {
        return (unsigned)(MASK >> 32 ? __popcll(word & MASK) : __popc((unsigned)word & (unsigned)MASK)) << 31;
    }
}

template <int KIND> __device__ __forceinline__ Amplitude times_real(Amplitude m, REAL sign) {
    const Amplitude value = product<KIND>(m, Amplitude{1, 0});
    return {value.x * sign, value.y * sign};
}

// Bit k of a code is bit k of a parity.
__device__ __forceinline__ constexpr int is_odd(Code word) {
    int bits = 0;
    for (; word; word &= word - 1) bits ^= 1;
    return bits;
}

// Like `one`; elements off the diagonal have the sign of a parity, and another one where register bits of NEAR are odd.
template <int P, Code KINDS, int NEAR>
__device__ __forceinline__ void signed_one(const Amplitude *m, unsigned parity, Amplitude *a) {
    const REAL sign = flipped((REAL)1, parity);
    const Amplitude above = times_real<(int)(KINDS >> KIND_DIGITS & 7)>(m[1], sign);
    const Amplitude below = times_real<(int)(KINDS >> 2 * KIND_DIGITS & 7)>(m[2], sign);
#pragma unroll
    for (int j = 0; j < IN_THREAD; ++j) {
        if (j >> P & 1) continue;
        const REAL near = is_odd(j & NEAR) ? -1 : 1;
        const Amplitude own[4] = {m[0], {above.x * near, above.y * near}, {below.x * near, below.y * near}, m[3]};
        const Amplitude x[2] = {a[j], a[j | 1 << P]};
        Amplitude y[2];
        multiply<signed_kinds(KINDS), 2>(own, x, y);
        a[j] = y[0];
        a[j | 1 << P] = y[1];
    }
}

// The same for a real rotation divided by its cosine: its matrix has 1 on the diagonal, -slope above, slope below.
template <int P, int NEAR> __device__ __forceinline__ void rotate(REAL slope, unsigned parity, Amplitude *a) {
    const REAL own = flipped(slope, parity);
#pragma unroll
    for (int j = 0; j < IN_THREAD; ++j) {
        if (j >> P & 1) continue;
        const REAL s = is_odd(j & NEAR) ? -own : own;
        const Amplitude x = a[j], y = a[j | 1 << P];
        a[j] = {x.x - s * y.x, x.y - s * y.y};
        a[j | 1 << P] = {y.x + s * x.x, y.y + s * x.y};
    }
}

// The bits of MASK alone, pushed together.
__device__ __forceinline__ constexpr int gathered(int number, int mask) {
    int found = 0, count = 0;
    for (int k = 0; k < REGISTER_BITS; ++k)
        if (mask >> k & 1) found |= (number >> k & 1) << count++;
    return found;
}

// A factor for each value of the register bits in MASK but 0.
template <int MASK> __device__ __forceinline__ void by_registers(const Amplitude *m, Amplitude *a) {
#pragma unroll
    for (int j = 0; j < IN_THREAD; ++j)
        if (j & MASK) a[j] = times(m[gathered(j, MASK) - 1], a[j]);
}

// x -= tan(f / 2) y, y += sin(f) x, x -= tan(f / 2) y is a turn by f.
__device__ __forceinline__ void shear(Amplitude slopes, Amplitude &x) {
    x.x -= slopes.x * x.y;
    x.y += slopes.y * x.x;
    x.x -= slopes.x * x.y;
}

// Turns for the values of the register bits in MASK, from FIRST on, which is 0 or 1.
template <int MASK, int FIRST> __device__ __forceinline__ void by_shears(const Amplitude *m, Amplitude *a) {
#pragma unroll
    for (int j = 0; j < IN_THREAD; ++j)
        if (gathered(j, MASK) >= FIRST) shear(m[gathered(j, MASK) - FIRST], a[j]);
}

// The lower register bits whose pairs with bit k are in PAIRS.
__device__ __forceinline__ constexpr int paired(Code pairs, int k) {
    int mask = 0;
    for (int l = 0; l < k; ++l) mask |= (int)(pairs >> (l * REGISTER_BITS + k) & 1) << l;
    return mask;
}

// Signs times a scale: `alone` for all, parities[k] where register bit k is set, and PAIRS (bit k * REGISTER_BITS + l) for two.
template <Code PAIRS, int K = 0>
__device__ __forceinline__ void by_signs(const unsigned *parities, REAL *signs, Amplitude *a) {
    if constexpr (K < REGISTER_BITS) {
        constexpr int mask = paired(PAIRS, K);
#pragma unroll
        for (int j = 0; j < 1 << K; ++j)
            signs[j | 1 << K] = flipped(signs[j], is_odd(j & mask) ? ~parities[K] : parities[K]);
        by_signs<PAIRS, K + 1>(parities, signs, a);
    } else {
#pragma unroll
        for (int j = 0; j < IN_THREAD; ++j) a[j] = {a[j].x * signs[j], a[j].y * signs[j]};
    }
}

template <int KIND, int MASK, int VALUE> __device__ __forceinline__ void scale(Amplitude m, Amplitude *a) {
#pragma unroll
    for (int j = 0; j < IN_THREAD; ++j)
        if ((j & MASK) == VALUE) a[j] = product<KIND>(m, a[j]);
}

template <int MASK, int VALUE> __device__ __forceinline__ void shear_some(Amplitude slopes, Amplitude *a) {
#pragma unroll
    for (int j = 0; j < IN_THREAD; ++j)
        if ((j & MASK) == VALUE) shear(slopes, a[j]);
}

// a[j] times w, and times f[k] for each bit k of MASK set in j; IS_ONE: w is 1.
template <int K, int J, int MASK, bool IS_ONE>
__device__ __forceinline__ void turn(Amplitude w, const Amplitude *f, Amplitude *a) {
    if constexpr (K == 0) {
        if constexpr (!IS_ONE) a[J] = times(w, a[J]);
    } else {
        constexpr int bit = K - 1;
        turn<bit, J, MASK, IS_ONE>(w, f, a);
        if constexpr (!(MASK >> bit & 1))
            turn<bit, J | 1 << bit, MASK, IS_ONE>(w, f, a);
        else if constexpr (IS_ONE)
            turn<bit, J | 1 << bit, MASK, false>(f[bit], f, a);
        else
            turn<bit, J | 1 << bit, MASK, false>(times(w, f[bit]), f, a);
    }
}

// Factors of this thread from rows of THREADS: one for all where HAS_ALL, then one for each register bit in MASK. With
// those of the tile where IS_TURNED: one for all, and one for each register bit in TURNED.
template <int MASK, bool HAS_ALL, bool IS_TURNED, int TURNED>
__device__ __forceinline__ void by_factors(const Amplitude *__restrict__ rows, const Amplitude *turns, Amplitude *a) {
    Amplitude f[REGISTER_BITS], all = {1, 0};
    rows += threadIdx.x;
    if constexpr (HAS_ALL) {
        all = __ldg(rows);
        rows += THREADS;
    }
    if constexpr (IS_TURNED) {
        const Amplitude own = times(turns[threadIdx.x % LANES], turns[LANES + threadIdx.x / LANES]);
        all = HAS_ALL ? times(all, own) : own;
    }
#pragma unroll
    for (int k = 0; k < REGISTER_BITS; ++k) {
        if (MASK >> k & 1) {
            f[k] = __ldg(rows);
            rows += THREADS;
        }
        if (TURNED >> k & 1) {
            const Amplitude own = turns[LANES + WARPS + k];
            f[k] = MASK >> k & 1 ? times(f[k], own) : own;
        }
    }
    turn<REGISTER_BITS, 0, MASK | TURNED, !HAS_ALL && !IS_TURNED>(all, f, a);
}

__device__ __forceinline__ void by_table(const Amplitude *__restrict__ rows, Amplitude *a) {
#pragma unroll
    for (int j = 0; j < IN_THREAD; ++j) a[j] = times(__ldg(rows + j * THREADS + threadIdx.x), a[j]);
}

// Factors of a tile: by a thread's place in its warp, by its warp, and by its register bits. Each is a product of two
// from tables, by the lower and by the upper bits of the tile's number; the third table is of the whole number.
__device__ __forceinline__ void make_turns(const Amplitude *__restrict__ tables, unsigned number, Amplitude *turns) {
    for (int place = threadIdx.x; place < N_TWISTS * ENTRIES; place += THREADS) {
        const int entry = place % ENTRIES;
        constexpr int a_twist = (LOWS + HIGHS) * ENTRIES + (HAS_FAR_PAIRS ? 1 << NUMBER_BITS : 0);
        const Amplitude *own = tables + place / ENTRIES * a_twist;
        const Amplitude lower = __ldg(own + number % LOWS * ENTRIES + entry);
        const Amplitude upper = __ldg(own + (LOWS + number / LOWS) * ENTRIES + entry);
        Amplitude value = times(lower, upper);
        if (HAS_FAR_PAIRS && entry >= LANES && entry < LANES + WARPS)
            value = times(value, __ldg(own + (LOWS + HIGHS) * ENTRIES + number));
        turns[place] = value;
    }
}
