// Rows into exchange buffers and back: a copy, and its transpose without atomics.
//
// Both are bound by memory alone. Threads that follow each other take pieces that follow each other in a row, of 16
// bytes where rows begin at multiples of 16, so that a warp asks for 512 bytes in one instruction.

#ifndef REAL
#define REAL float  // of x and out in scatter_add; rows are bytes to gather
#endif

struct __align__(16) Quad {
    unsigned at[4];
};
struct __align__(16) Pack {
    REAL at[16 / sizeof(REAL)];
};
struct Single {
    REAL at[1];
};

// out[i] = x[index[i]]: rows of `pieces` pieces, which begin `stride` and `out_stride` bytes apart
template <class Piece>
__device__ __forceinline__ void copy_rows(const char *x, long long stride, const long long *index, char *out,
                                          long long out_stride, long long pieces, long long items)
{
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x, i = thread / pieces;
    if (i >= items)
        return;
    const long long at = thread % pieces * (long long)sizeof(Piece);
    *reinterpret_cast<Piece *>(out + i * out_stride + at) =
        *reinterpret_cast<const Piece *>(x + index[i] * stride + at);
}

extern "C" __global__ void gather_16(const char *x, long long stride, const long long *index, char *out,
                                     long long out_stride, long long pieces, long long items)
{
    copy_rows<Quad>(x, stride, index, out, out_stride, pieces, items);
}

extern "C" __global__ void gather_4(const char *x, long long stride, const long long *index, char *out,
                                    long long out_stride, long long pieces, long long items)
{
    copy_rows<unsigned>(x, stride, index, out, out_stride, pieces, items);
}

extern "C" __global__ void gather_2(const char *x, long long stride, const long long *index, char *out,
                                    long long out_stride, long long pieces, long long items)
{
    copy_rows<unsigned short>(x, stride, index, out, out_stride, pieces, items);
}

extern "C" __global__ void gather_1(const char *x, long long stride, const long long *index, char *out,
                                    long long out_stride, long long pieces, long long items)
{
    copy_rows<char>(x, stride, index, out, out_stride, pieces, items);
}

// out[index[i]] += x[i] in increasing i. `order` sorts index, stably; the thread at the first of equal indices adds
// them all, to one piece of the row, and the others leave: no sum has two writers, and each is taken in the order of
// x.
template <class Piece>
__device__ __forceinline__ void add_rows(const REAL *x, long long stride, const long long *index,
                                         const long long *order, REAL *out, long long out_stride, long long pieces,
                                         long long items)
{
    constexpr int VEC = sizeof(Piece) / sizeof(REAL);
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x, column = thread % pieces * VEC;
    long long t = thread / pieces;
    if (t >= items)
        return;
    const long long row = index[order[t]];
    if (t && index[order[t - 1]] == row)
        return;
    Piece *const at = reinterpret_cast<Piece *>(out + row * out_stride + column);
    Piece sum = *at;
    do {
        const Piece part = *reinterpret_cast<const Piece *>(x + order[t] * stride + column);
#pragma unroll
        for (int q = 0; q < VEC; ++q)
            sum.at[q] = sum.at[q] + part.at[q];
    } while (++t < items && index[order[t]] == row);
    *at = sum;
}

extern "C" __global__ void scatter_add_16(const REAL *x, long long stride, const long long *index,
                                          const long long *order, REAL *out, long long out_stride, long long pieces,
                                          long long items)
{
    add_rows<Pack>(x, stride, index, order, out, out_stride, pieces, items);
}

extern "C" __global__ void scatter_add_1(const REAL *x, long long stride, const long long *index,
                                         const long long *order, REAL *out, long long out_stride, long long pieces,
                                         long long items)
{
    add_rows<Single>(x, stride, index, order, out, out_stride, pieces, items);
}
