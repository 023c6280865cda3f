// Amplitudes of this GPU change places with those of peers, whose memory is mapped here: no buffer, one way each.
//
// Defines: UNIT (what one thread moves: double2, or float2 where single amplitudes of 8 bytes have to be moved), BITS
// (of the index in units that are swapped, or say which part is, rising, with commas), THREADS, AT_ONCE (units that a
// thread waits for), PEERS. Each of two GPUs swaps one half of the places; one peer comes after the other.

typedef long long Place;

// For each peer, where the bits have their values here and there, and the numbers of places: first .. end-1.
struct Sides {
    UNIT *own[PEERS], *theirs[PEERS];
    Place first[PEERS], end[PEERS];
};

// A number with zeros put in at these bits.
__device__ __forceinline__ Place opened(Place number) {
    constexpr int bits[] = {BITS};
#pragma unroll
    for (int k = 0; k < (int)(sizeof(bits) / sizeof(int)); ++k) {
        const Place low = number & (((Place)1 << bits[k]) - 1);
        number = ((number - low) << 1) + low;
    }
    return number;
}

// A thread has 128 registers at most, as those of passes have.
extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS)
    swap_places(const __grid_constant__ Sides sides) {
    const Place step = (Place)gridDim.x * blockDim.x, start = (Place)blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll 1
    for (int peer = 0; peer < PEERS; ++peer) {
        UNIT *const __restrict__ own = sides.own[peer];
        UNIT *const __restrict__ theirs = sides.theirs[peer];
        const Place end = sides.end[peer];
        for (Place at = sides.first[peer] + start; at < end; at += AT_ONCE * step) {
            UNIT mine[AT_ONCE], peers[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                if (at + k * step >= end) continue;
                const Place place = opened(at + k * step);
                peers[k] = theirs[place];
                mine[k] = own[place];
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                if (at + k * step >= end) continue;
                const Place place = opened(at + k * step);
                own[place] = peers[k];
                theirs[place] = mine[k];
            }
        }
    }
}
