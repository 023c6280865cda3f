// Amplitudes of this GPU change places with those of a peer, whose memory is mapped here: no buffer, one way each.
//
// Defines: UNIT (what one thread moves: double2, or float2 where single amplitudes of 8 bytes have to be moved), BITS
// (of the index in units that are swapped, or say which part is, rising, with commas), THREADS, AT_ONCE (units that a
// thread waits for). Each of the two GPUs swaps one half of the places.

typedef long long Place;

// A number with zeros put in at these bits.
__device__ __forceinline__ Place opened(Place number)
{
    constexpr int bits[] = {BITS};
#pragma unroll
    for (int k = 0; k < (int)(sizeof(bits) / sizeof(int)); ++k) {
        const Place low = number & (((Place)1 << bits[k]) - 1);
        number = ((number - low) << 1) + low;
    }
    return number;
}

// Numbers from first to before end; own and theirs begin where the bits have their values.
extern "C" __global__ void __launch_bounds__(THREADS)
    swap_places(UNIT *__restrict__ own, UNIT *__restrict__ theirs, Place first, Place end)
{
    const Place step = (Place)gridDim.x * blockDim.x;
    for (Place at = first + (Place)blockIdx.x * blockDim.x + threadIdx.x; at < end; at += AT_ONCE * step) {
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
