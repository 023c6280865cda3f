// Rows of a Hamiltonian among a list of determinants, grouped by the string of one spin (list_tables.py).
//
// Every element of y is written by one thread, and its sum runs in one order, so that the same bits come out every
// time. CPU twin: list_kernel.py.
//
// Injected: WORDS words of BITS (32, 64) bits of a string, THREADS of a block, CHUNK candidates, ROWS of a task at most,
// LANES of a warp on a cell, COUNTING (1: count couplings instead of adding their elements).

#if BITS == 32
typedef unsigned Word;
__device__ inline int filled(Word word) { return __popc(word); }
__device__ inline int lowest(Word word) { return __ffs(word) - 1; }
#else
typedef unsigned long long Word;
__device__ inline int filled(Word word) { return __popcll(word); }
__device__ inline int lowest(Word word) { return __ffsll(word) - 1; }
#endif

#include "strings.cuh"

// A table of integrals over pairs of orbitals, n_pairs in a row; number operators come first.
struct Orbitals {
    int n, n_pairs;
};

// The number of the pair of p and q: in order where that is how pairs are numbered.
__device__ inline Index pair(int p, int q, Orbitals o) {
    if (p == q)
        return p;
    const int high = p > q ? p : q, low = p > q ? q : p, unordered = o.n * (o.n + 1) / 2;
    return o.n + high * (high - 1) / 2 + low + (p < q && o.n_pairs > unordered ? unordered - o.n : 0);
}

// The bits of word w that stand for orbitals below p.
__device__ inline Word below(int p, int w) {
    const int inside = p - BITS * w;
    return inside <= 0 ? 0 : inside >= BITS ? ~(Word)0 : ((Word)1 << inside) - 1;
}

// How many filled orbitals lie between two, whichever is the higher.
__device__ inline int between(const String &string, int p, int q) {
    const int low = p < q ? p : q, high = p < q ? q : p;
    int count = 0;
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        count += filled(string.words[w] & below(high, w) & ~below(low + 1, w));
    return count;
}

__device__ inline int differing(const String &bra, const String &ket) {
    int count = 0;
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        count += filled(bra.words[w] ^ ket.words[w]);
    return count;
}

// The orbital that the first string fills and the second does not, after `skip` lower ones.
__device__ inline int only_in(const String &first, const String &second, int skip) {
#pragma unroll
    for (int w = 0; w < WORDS; ++w) {
        Word word = first.words[w] & ~second.words[w];
        const int count = filled(word);
        if (skip < count) {
            for (; skip > 0; --skip)
                word &= word - 1;
            return BITS * w + lowest(word);
        }
        skip -= count;
    }
    return 0;
}

// The sum over filled orbitals r of row[r], for r in a string.
__device__ inline double over_filled(const String &string, const double *__restrict__ row) {
    double sum = 0;
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        for (Word word = string.words[w]; word; word &= word - 1)
            sum += row[BITS * w + lowest(word)];
    return sum;
}

// The element between determinants that differ by one excitation of this spin; `opposite` is that of the other.
__device__ double single_value(const String &bra, const String &ket, const String &opposite, Orbitals o,
                               const double *__restrict__ one, const double *__restrict__ two,
                               const double *__restrict__ two_other) {
    const int p = only_in(bra, ket, 0), q = only_in(ket, bra, 0);
    const Index both = pair(p, q, o);
    double value = one[p * o.n + q] + over_filled(opposite, two_other + both * o.n_pairs);
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        for (Word word = ket.words[w]; word; word &= word - 1) {
            const int k = BITS * w + lowest(word);
            if (k != q)
                value += two[both * o.n_pairs + k] - two[pair(p, k, o) * o.n_pairs + pair(k, q, o)];
        }
    return between(ket, p, q) & 1 ? -value : value;
}

// The element between determinants that differ by two excitations of this spin.
__device__ double double_value(const String &bra, const String &ket, Orbitals o, const double *__restrict__ two) {
    const int p1 = only_in(bra, ket, 0), p2 = only_in(bra, ket, 1), q1 = only_in(ket, bra, 0), q2 = only_in(ket, bra, 1);
    const double value = two[pair(p1, q1, o) * o.n_pairs + pair(p2, q2, o)] -
                         two[pair(p1, q2, o) * o.n_pairs + pair(p2, q1, o)];
    const int low = p2 < q2 ? p2 : q2, high = p2 < q2 ? q2 : p2;
    const int moved = (low < p1 && p1 < high) + (low < q1 && q1 < high);
    return between(ket, p1, q1) + between(ket, p2, q2) + moved & 1 ? -value : value;
}

// Candidates in shared memory: their strings and their elements of the state.
struct Chunk {
    Word words[WORDS][CHUNK];
    double values[CHUNK];
};

__device__ inline String candidate(const Chunk &chunk, int c) {
    String string;
#pragma unroll
    for (int w = 0; w < WORDS; ++w)
        string.words[w] = chunk.words[w][c];
    return string;
}

// Candidates of a warp that wait to be worked on together.
struct Queue {
    unsigned short candidates[64];
};

// Put the candidates of lanes that have one behind the `waiting` ones; how many wait then.
__device__ inline int enqueue(Queue &queue, int waiting, bool has_one, int c, int lane) {
    const unsigned mask = __ballot_sync(ALL, has_one);
    if (has_one)
        queue.candidates[waiting + __popc(mask & ((1u << lane) - 1))] = c;
    __syncwarp();
    return waiting + __popc(mask);
}

// Drop the first 32 of the waiting candidates.
__device__ inline int dequeue(Queue &queue, int waiting, int lane) {
    const unsigned short next = queue.candidates[32 + lane];
    __syncwarp();
    queue.candidates[lane] = next;
    __syncwarp();
    return waiting > 32 ? waiting - 32 : 0;
}

// y += the excitations of the other spin within groups. A block takes one task: rows of one group, whose members are
// the candidates of all of them. Candidates come to shared memory CHUNK at a time. A warp takes a row; its lanes compare
// the row's other string with those of the candidates, and add the elements of those that couple. tasks[t] are the
// group of task t and its rows, which are members local[i] for i from the second number to before the third. Row 0 of
// y is determinant first_row. own[g] is the string of group g; one, two and two_other are integrals of the other spin
// (SpinTerms). Grid: one block a task.
extern "C" __global__ void __launch_bounds__(THREADS)
    same_spin(int n, int n_pairs, Index first_row, const Index *__restrict__ tasks, const int *__restrict__ local,
              const Index *__restrict__ begin, const int *__restrict__ determinants, const Word *__restrict__ words,
              const Word *__restrict__ own, const double *__restrict__ one, const double *__restrict__ two,
              const double *__restrict__ two_other, const double *__restrict__ x, double *__restrict__ y) {
    __shared__ Chunk chunk;
    __shared__ double sums[ROWS];
    __shared__ Queue queues[WARPS][2];
    const Orbitals o = {n, n_pairs};
    const Index group = tasks[3 * blockIdx.x], first = tasks[3 * blockIdx.x + 1], last = tasks[3 * blockIdx.x + 2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Index start = begin[group], total = begin[group + 1] - start;
    const String opposite = string_at(own, group);
    for (int i = threadIdx.x; i < ROWS; i += THREADS)
        sums[i] = 0;
    for (Index from = 0; from < total; from += CHUNK) {
        const int count = total - from < CHUNK ? (int)(total - from) : CHUNK;
        __syncthreads();
        for (int c = threadIdx.x; c < count; c += THREADS) {
            for (int w = 0; w < WORDS; ++w)
                chunk.words[w][c] = words[(start + from + c) * WORDS + w];
#if !COUNTING
            chunk.values[c] = x[determinants[start + from + c]];
#endif
        }
        __syncthreads();
        for (Index row = first + warp; row < last; row += WARPS) {
            const String bra = string_at(words, local[row]);
            double sum = 0;
            // Few candidates couple: they wait until there is one for every lane.
            Queue &singles = queues[warp][0], &doubles = queues[warp][1];
            int n_singles = 0, n_doubles = 0;
            for (int step = 0; step < count || n_singles > 0 || n_doubles > 0; step += 32) {
                const int c = step + lane;
                const bool all_seen = step + 32 >= count;
                const int apart = c < count ? differing(bra, candidate(chunk, c)) : 0;
#if COUNTING
                sum += apart == 2 || apart == 4;
#else
                n_singles = enqueue(singles, n_singles, apart == 2, c, lane);
                n_doubles = enqueue(doubles, n_doubles, apart == 4, c, lane);
                if (n_singles >= 32 || (all_seen && n_singles > 0)) {
                    if (lane < n_singles) {
                        const int at = singles.candidates[lane];
                        sum += single_value(bra, candidate(chunk, at), opposite, o, one, two, two_other) *
                               chunk.values[at];
                    }
                    n_singles = dequeue(singles, n_singles, lane);
                }
                if (n_doubles >= 32 || (all_seen && n_doubles > 0)) {
                    if (lane < n_doubles) {
                        const int at = doubles.candidates[lane];
                        sum += double_value(bra, candidate(chunk, at), o, two) * chunk.values[at];
                    }
                    n_doubles = dequeue(doubles, n_doubles, lane);
                }
#endif
            }
            sum = sum_of_warp(sum);
            if (lane == 0)
                sums[row - first] += sum;
        }
    }
    __syncthreads();
    for (Index row = first + threadIdx.x; row < last; row += THREADS)
        y[determinants[local[row]] - first_row] += sums[row - first];
}

// A determinant, and 4 pair + 2 (creates the higher orbital) + 1 (has a minus) of the excitation that leads from it.
struct __align__(8) Entry {
    int determinant, code;
};

// The entries of links first_link to before last_link of alpha groups, and keys[e] = number of the group * n_betas +
// beta string. Link l is of group numbers[l - first_link]; its entries, the members of the linked group, stand from
// before[l - first_link] on. betas[k] is the beta string of member k. Grid: a warp for each link.
extern "C" __global__ void __launch_bounds__(THREADS)
    link_entries(Index first_link, Index last_link, unsigned n_betas, const unsigned *__restrict__ numbers,
                 const Index *__restrict__ before, const Index *__restrict__ begin, const int *__restrict__ determinants,
                 const int *__restrict__ betas, const int *__restrict__ other, const short *__restrict__ create,
                 const short *__restrict__ destroy, const int *__restrict__ pairs, const signed char *__restrict__ sign,
                 unsigned *__restrict__ keys, Entry *__restrict__ entries) {
    const Index number = (Index)blockIdx.x * WARPS + threadIdx.x / 32, link = first_link + number;
    if (link >= last_link)
        return;
    const Index from = before[number], member = begin[other[link]];
    const int count = (int)(before[number + 1] - from);
    const int code = 4 * pairs[link] + 2 * (create[link] > destroy[link]) + (sign[link] < 0);
    for (int e = threadIdx.x % 32; e < count; e += 32) {
        keys[from + e] = numbers[number] * n_betas + betas[member + e];
        entries[from + e] = {determinants[member + e], code};
    }
}

// The entries of a link of a row, counted from the first one of its alpha string, and the link.
struct Cell {
    int begin, end, link;
};

// y += the excitations of both spins of rows of some alpha groups. Row i is member local[i] of group groups[i], its
// beta string betas[member]; row 0 of y is determinant first_row. Beta string b has links link_start[b] to before
// link_start[b+1], each to a string, with a pair and a sign. The cells are those of `SortedCells` (list_tables.py),
// from first_group on. `two` has a row for each pair of beta. A warp takes a row: each lane looks for the cell of a
// link, and cells that are there are taken by LANES lanes each. Grid: a warp for each row.
extern "C" __global__ void __launch_bounds__(THREADS)
    opposite_spin(Index n_rows, Index first_row, int n_pairs, int first_group, const int *__restrict__ local,
                  const int *__restrict__ groups, const int *__restrict__ determinants, const int *__restrict__ betas,
                  const Index *__restrict__ link_start, const int *__restrict__ other, const int *__restrict__ pairs,
                  const signed char *__restrict__ sign, const Entry *__restrict__ entries, const Index *__restrict__ base,
                  const Index *__restrict__ first_cell, const int *__restrict__ strings, const int *__restrict__ begin,
                  const double *__restrict__ two, const double *__restrict__ x, double *__restrict__ y) {
    __shared__ Cell cells_of_warps[WARPS][32];
    const Index i = (Index)blockIdx.x * WARPS + threadIdx.x / 32;
    if (i >= n_rows)
        return;
    const int lane = threadIdx.x % 32, alpha = groups[i] - first_group, beta = betas[local[i]];
    Cell *cells = cells_of_warps[threadIdx.x / 32];
    const Index first = link_start[beta], count = link_start[beta + 1] - first;
    const Index own_cell = first_cell[alpha];
    const int n_cells = (int)(first_cell[alpha + 1] - own_cell), n_entries = (int)(base[alpha + 1] - base[alpha]);
    const int *own_strings = strings + own_cell, *own_begin = begin + own_cell;
    const Entry *own = entries + base[alpha];
    double sum = 0;
    for (Index from = 0; from < count; from += 32) {
        int low = 0, high = from + lane < count ? n_cells : 0;
        const int string = high > 0 ? other[first + from + lane] : 0;
        const int end = high;
        // The first cell whose string is at least that of the link.
        while (low < high) {
            const int middle = (low + high) / 2;
            if (own_strings[middle] < string)
                low = middle + 1;
            else
                high = middle;
        }
        const bool is_there = low < end && own_strings[low] == string;
        const unsigned mask = __ballot_sync(ALL, is_there);
        if (is_there)
            cells[__popc(mask & ((1u << lane) - 1))] = {
                own_begin[low], low + 1 < n_cells ? own_begin[low + 1] : n_entries, (int)from + lane};
        __syncwarp();
        for (int c = lane / LANES; c < __popc(mask); c += 32 / LANES) {
            const Cell cell = cells[c];
#if COUNTING
            sum += lane % LANES == 0 ? cell.end - cell.begin : 0;
#else
            const double *row = two + (Index)pairs[first + cell.link] * n_pairs;
            double link_sum = 0;
            for (int e = cell.begin + lane % LANES; e < cell.end; e += LANES) {
                const Entry entry = own[e];
                const double element = row[entry.code >> 2] * x[entry.determinant];
                link_sum += entry.code & 1 ? -element : element;
            }
            sum += sign[first + cell.link] < 0 ? -link_sum : link_sum;
#endif
        }
        __syncwarp();
    }
    sum = sum_of_warp(sum);
    if (lane == 0)
        y[determinants[local[i]] - first_row] += sum;
}

// y[i] += diagonal[i] x[first_row + i]. Grid: threads for all rows.
extern "C" __global__ void __launch_bounds__(THREADS)
    diagonal_rows(Index n_rows, Index first_row, const double *__restrict__ diagonal, const double *__restrict__ x,
                  double *__restrict__ y) {
    const Index i = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (i < n_rows)
        y[i] += COUNTING ? 1.0 : diagonal[i] * x[first_row + i];
}

// y += factor times the sum over p != q of E^a_pq E^b_qp x. Row local[i] of group member_group[i] looks, for every
// link that creates p and destroys q, for its own string with q emptied and p filled. Strings of a group rise.
extern "C" __global__ void __launch_bounds__(THREADS)
    exchange(Index n_rows, Index first_row, double factor, const int *__restrict__ local, const int *__restrict__ groups,
             const Index *__restrict__ begin, const int *__restrict__ determinants, const Word *__restrict__ words,
             const Index *__restrict__ link_start, const int *__restrict__ other, const short *__restrict__ create,
             const short *__restrict__ destroy, const signed char *__restrict__ sign, const double *__restrict__ x,
             double *__restrict__ y) {
    const Index i = (Index)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n_rows)
        return;
    const String bra = string_at(words, local[i]);
    const int group = groups[i];
    double sum = 0;
    for (Index link = link_start[group]; link < link_start[group + 1]; ++link) {
        const int p = create[link], q = destroy[link];
        String ket = bra;
        bool fits = true;
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            const Word at_p = p / BITS == w ? (Word)1 << p % BITS : 0, at_q = q / BITS == w ? (Word)1 << q % BITS : 0;
            fits = fits && !(bra.words[w] & at_p) && (bra.words[w] & at_q) == at_q;
            ket.words[w] ^= at_p | at_q;
        }
        if (!fits)
            continue;
        Index low = begin[other[link]], high = begin[other[link] + 1];
        while (low < high) {
            const Index middle = (low + high) / 2;
            int order = 0;
#pragma unroll
            for (int w = WORDS - 1; w >= 0; --w)
                if (order == 0 && ket.words[w] != words[middle * WORDS + w])
                    order = ket.words[w] < words[middle * WORDS + w] ? -1 : 1;
            if (order == 0) {
                const double value = sign[link] * x[determinants[middle]];
                sum += between(ket, p, q) & 1 ? -value : value;
                break;
            }
            if (order > 0)
                low = middle + 1;
            else
                high = middle;
        }
    }
    y[determinants[local[i]] - first_row] += factor * sum;
}
