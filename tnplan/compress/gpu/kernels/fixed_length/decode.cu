// The coder `fast` reads.

#include "fixed_length.cuh"
#include "read.cuh"
#include "../common/checksum.cuh"
#include "../common/wait.cuh"
#include "../common/read.cuh"
#include "../common/verdict.cuh"

// Words of a checksum in flight, and blocks on a multiprocessor, as registers allow.
#define AT_ONCE 2
#define BLOCKS (VALUE_BYTES == 4 ? 8 : VALUE_BYTES == 8 ? 5 : 4)

// Whether shared.z can hold the bits of values instead of their numbers: as it does where rules are plain, so that a
// number is restored once, and zeros are not.
#define HOLDS (sizeof(REAL) == 4)

// A tile's word says, from bit 19 on, where its bytes start in the stream, and from bit 1 on, how many they are, both
// in words of 4 bytes. That of tiles that are not coded:
#define NOT_CODED 1
#define SIZE_BITS 18
#define MOST_BYTES (4 * ((1u << SIZE_BITS) - 1))
// Tiles whose sizes a thread takes at once.
#define SIZES 4
// Columns of blocks that look at frames before tiles are taken.
#define HEADS 2

// Tell where the tiles of a frame are, once it is found, and put it to the table. A block.
__device__ __forceinline__ void index_frame(
    const Byte* data, const Work& work, const Span& span, unsigned row, Word raw_bytes, unsigned n_tiles, Word* sums)
{
    const Frame frame = found_frame(data, work, span, span.first + row, raw_bytes);
    Frame& into = work.frames[span.first + row];
    Word* tiles = work.own + (Word)row * n_tiles;
    const Word begin = frame.start + CODED_HEAD_BYTES, stop = begin + frame.coded;
    const bool has_sizes = frame.kind == CODED && frame.coded >= 4ull * n_tiles;
    const unsigned* sizes = (const unsigned*)(data + begin);
    Word end = begin + 4ull * n_tiles;
    for (unsigned before = 0; before < n_tiles; before += SIZES * THREADS) {
        const unsigned first = before + SIZES * threadIdx.x;
        unsigned own[SIZES];
        Word sum = 0, total;
#pragma unroll
        for (unsigned k = 0; k < SIZES; ++k) own[k] = has_sizes && first + k < n_tiles ? sizes[first + k] : 0;
#pragma unroll
        for (unsigned k = 0; k < SIZES; ++k) sum += own[k];
        Word at = end + scanned<WARPS>(sum, sums, total);
        end += total;
        for (unsigned k = 0; k < SIZES && first + k < n_tiles; ++k) {
            const bool good = has_sizes && own[k] % 4 == 0 && own[k] <= MOST_BYTES && at + own[k] <= stop;
            store_word(tiles + first + k, good ? at / 4 << (SIZE_BITS + 1) | own[k] / 4 << 1 | 1 : NOT_CODED);
            if (frame.kind == CODED && !good) into.damaged = 1;
            at += own[k];
        }
    }
    if (threadIdx.x != 0) return;
    if (frame.kind == CODED && end != stop) into.damaged = 1;
    put_frame(into, frame);
    publish(work.ready + span.first + row, 1);
}

// The element at a place in bytes of shared.z, of plain rules or any.
template <bool PLAIN>
__device__ __forceinline__ Element element_at(Shared& shared, unsigned place, const Rules& rules)
{
    Element element;
#pragma unroll
    for (unsigned c = 0; c < COMPONENTS; ++c) {
        const unsigned z = at_bytes(shared.z[c], place);
        element.part[c] = PLAIN && HOLDS ? value_of((BITS)z) : restored<PLAIN>(unzigzag(z), rules.of[c]);
    }
    return element;
}

// Write a vector as one; as a structure it would go element by element.
__device__ __forceinline__ void put_vector(const Vector& vector, Element* into)
{
    static_assert(sizeof(Vector) == sizeof(uint4), "vectors are of 16 bytes");
    unsigned words[4];
#pragma unroll
    for (unsigned k = 0; k < 4; ++k) {
        const unsigned part = k * 4 / sizeof(REAL), shift = sizeof(REAL) == 4 ? 0 : k % 2 * 32;
        words[k] = (unsigned)((Word)bits_of(vector.of[part / COMPONENTS].part[part % COMPONENTS]) >> shift);
    }
    __stwb((uint4*)into, make_uint4(words[0], words[1], words[2], words[3]));
}

// Values of a tile from its numbers, of which this thread's first one is at `first`.
__device__ __forceinline__ void take_vectors(
    Shared& shared, unsigned first, const Order& order, const Rules& rules, Element* into)
{
#pragma unroll
    for (unsigned k = 0; k < VECTORS; ++k) {
        const unsigned place = first ^ combined<VECTOR_LOG2 + 8, TILE_LOG2>(k, order.turns);
        Vector vector;
#pragma unroll
        for (unsigned v = 0; v < VECTOR; ++v) {
            vector.of[v] = element_at<true>(shared, place ^ combined<0, VECTOR_LOG2>(v, order.turns), rules);
        }
        put_vector(vector, into + combined<VECTOR_LOG2 + 8, TILE_LOG2>(k, order.numbers));
    }
}

// Values of a tile without any numbers.
__device__ __forceinline__ void put_zeros(const Order& order, const Rules& rules, Element* into)
{
    Vector vector;
#pragma unroll
    for (unsigned v = 0; v < VECTOR; ++v) {
        for (unsigned c = 0; c < COMPONENTS; ++c) vector.of[v].part[c] = restored<true>(0, rules.of[c]);
    }
#pragma unroll
    for (unsigned k = 0; k < VECTORS; ++k) {
        put_vector(vector, into + combined<VECTOR_LOG2 + 8, TILE_LOG2>(k, order.numbers));
    }
}

// Values of a tile from its numbers, or of one without any, for any order, rules and frame.
__device__ __forceinline__ void take_elements(
    Shared& shared, bool any, unsigned offset, const Order& order, const Rules& rules, Word frame_elements,
    Element* into)
{
    const Mine mine = mine_of<0>(order);
    const Word first = (Word)offset + mine.number;
#pragma unroll 1
    for (unsigned k = 0; k < TILE / THREADS; ++k) {
        const unsigned place = mine.place ^ combined<8, TILE_LOG2>(k, order.turns);
        const Word number = first + combined<8, TILE_LOG2>(k, order.numbers);
        Element element;
        for (unsigned c = 0; c < COMPONENTS; ++c) element.part[c] = restored(0, rules.of[c]);
        if (any) element = element_at<false>(shared, place, rules);
        if (number < frame_elements) into[number] = element;
    }
}

// Look at frames, of which there are as many as rows of blocks. The first block finds them all, and sends the header.
// Those beside it index the frames of the next row each, the first one that of its own too, and leave for all what
// threads need to know of the order where rules are plain: number and, from bit 32 on, place (Mine), and the highest
// bit.
__device__ __forceinline__ void take_head(
    Shared& shared, const Byte* data, const Work& work, const Span& span, Word raw_bytes, const Order& order,
    unsigned n_tiles, Word* box)
{
    const unsigned row = blockIdx.y;
    if (blockIdx.x == 0) {
        if (row == 0 && threadIdx.x == 0) find_frames(data, work, span, gridDim.y, raw_bytes);
        if (row == 0 && span.first == 0 && threadIdx.x / LANES == 1) send_head(data, span, box);
        return;
    }
    if (row == 0) {
        const Mine mine = mine_of<VECTOR_LOG2>(order);
        store_word(work.own + (Word)gridDim.y * n_tiles + threadIdx.x, 1ull << 63 | (Word)mine.place << 32 | mine.number);
    }
    for (unsigned next = row ? row + 1 : 0; next <= row + 1 && next < gridDim.y; ++next) {
        index_frame(data, work, span, next, raw_bytes, n_tiles, (Word*)shared.z);
    }
}

// Fill the values of a tile, those of a frame that is stored raw too. The block counts as ended as soon as the tile's
// bytes are known to make sense, or its frame is `damaged`.
__device__ __forceinline__ void take_values(
    Shared& shared, unsigned& offset, const Byte* data, const Work& work, const Span& span, Word frame_elements,
    const Order& order, unsigned tile, unsigned n_tiles, const Rules& rules, Element* values)
{
    const unsigned row = blockIdx.y;
    Frame& frame = work.frames[span.first + row];
    Element* into = values + row * frame_elements;
    const Word own = stored_word(work.own + row * n_tiles + tile);
    if (own == NOT_CODED) {
        awaited(work.ready + span.first + row);
        if (frame.kind == RAW) {
            copy_raw((const REAL*)(data + frame.start + 8), (REAL*)into, frame_elements, tile, threadIdx.x, THREADS);
        }
        count_block(work, false);
        return;
    }
    const bool plain = is_plain(rules, order, frame_elements, values);
    const unsigned* from = (const unsigned*)data + (own >> (SIZE_BITS + 1));
    const unsigned size = (unsigned)(own >> 1) % (1u << SIZE_BITS) * 4;
    const auto place = [&] {
        if (threadIdx.x == 0) offset = tile_offset(tile, order);
    };
    bool good = true;
    if (!size) place();
    else if (plain) good = take_tile<HOLDS>(shared, from, size, rules, place);
    else good = take_tile<false>(shared, from, size, rules, place);
    if (!good) {
        if (threadIdx.x == 0) frame.damaged = 1;
        count_block(work, true);
        return;
    }
    count_block(work, false);
    // On its way while the block's threads wait for one another.
    const Word mine = plain ? stored_word(work.own + gridDim.y * n_tiles + threadIdx.x) : 0;
    __syncthreads();
    if (plain) {
        into += offset + (unsigned)mine;
        if (size) take_vectors(shared, (unsigned)(mine >> 32) & ~(1u << 31), order, rules, into);
        else put_zeros(order, rules, into);
    } else {
        take_elements(shared, size != 0, offset, order, rules, frame_elements, into);
    }
}

// Values are filled, but for exact ones; frames whose bytes make no sense become `damaged`. Words are added to the
// frames' sums. Frames along y; of the blocks along x the first look at frames, the last n_tiles take a tile each, those
// between them checksums. A launch's own words: one a tile, and THREADS (take_head). The last block of all launches
// sends the host the verdict; others may still be writing values then.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) fast_decode(
    const Byte* data, Word* words, Span span, Word frame_elements, Order order, unsigned n_tiles, Rules rules,
    Element* values, Word* box)
{
    __shared__ Shared shared;
    __shared__ unsigned offset;
    const unsigned others = gridDim.x - n_tiles;
    const Work work = work_of(words, span);
    if (blockIdx.x < HEADS) {
        take_head(shared, data, work, span, frame_elements * VALUE_BYTES, order, n_tiles, box);
        __syncthreads();
        count_block(work, true);
    } else if (blockIdx.x < others) {
        awaited(work.ready + span.first + blockIdx.y);
        Frame& frame = work.frames[span.first + blockIdx.y];
        add_words<AT_ONCE>(data, frame, blockIdx.x - HEADS, others - HEADS, (Word*)shared.z);
        count_block(work, true);
    } else {
        const unsigned tile = blockIdx.x - others;
        take_values(shared, offset, data, work, span, frame_elements, order, tile, n_tiles, rules, values);
    }
    send_verdict(data, work, span, gridDim.y, box);
}
