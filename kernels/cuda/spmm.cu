// Sparse times dense, plain and masked: out[i] = mask[i] * (out[i] + row_scale[i] * sum of data[k] col_scale[j] x[j]),
// over k of row i, j = indices[k].
//
// The product is bound by the bytes of the rows of x that it gathers, so
//  - x is read 128 bits a thread (VEC numbers: 4 floats, or 8 numbers of 16 bits), neighboring threads next to each
//    other: a row of 41 floats, padded to 44, is 11 requests of 16 bytes and not 41 of 4;
//  - the rows of several nonzeros are asked for before the first is added (DEEP): a gather waits some 600 ns;
//  - the sum stays in registers, and out is written once, scaled and masked;
//  - of columns that the mask drops nothing is read: 8 columns of float are a sector of 32 bytes, the least that memory
//    gives, and one byte of the mask;
//  - 64-bit numbers are kept for k, and for offsets into x, which are the product of two of 32 bits where indices are.
//
// A group of LANES threads takes a row, or a piece of one where degrees are skewed (see spmm.py), and LANES * PACKS
// packs of its columns. Whatever LANES is, each column is summed by one thread in the order of k, so all shapes give
// the same bits. Sums of pieces go to `carries`, and a second kernel adds them in order.

#ifndef REAL
#define REAL float  // of weights and sums; the launcher sets REAL, INDEX and POINTER to what the arrays hold
#endif
#ifndef ROW
#define ROW REAL  // of x
#endif
#ifndef OUT
#define OUT REAL  // of out: a sum is rounded once
#endif
#ifndef INDEX
#define INDEX int
#endif
#ifndef POINTER
#define POINTER long long
#endif

#define PARAMETERS                                                                                                   \
    const POINTER *__restrict__ indptr, const INDEX *__restrict__ indices, const REAL *__restrict__ data,           \
        const ROW *__restrict__ x, long long ldx, OUT *__restrict__ out, long long width,                           \
        const REAL *__restrict__ row_scale, const REAL *__restrict__ col_scale, const long long *__restrict__ rows, \
        const long long *__restrict__ pieces, const unsigned char *__restrict__ mask, long long accumulate,         \
        REAL *__restrict__ carries, long long items, long long x_aligned, long long out_aligned
#define ARGUMENTS                                                                                                \
    indptr, indices, data, x, ldx, out, width, row_scale, col_scale, rows, pieces, mask, accumulate, carries, \
        items, x_aligned, out_aligned

constexpr int VEC = 16 / sizeof(ROW);  // numbers of a pack
struct Pack {
    REAL at[VEC];
};
template <class T> struct __align__(VEC * sizeof(T) < 16 ? VEC * sizeof(T) : 16) Stored {  // as many numbers in memory
    T at[VEC];
};
constexpr unsigned ALL = (1u << VEC) - 1;

// Mask bits of the VEC columns from `column` on, 0 past the end of the row: VEC divides 8, so they lie in one byte
__device__ __forceinline__ unsigned bits(const unsigned char *mask, long long row, int column, int width)
{
    if (column >= width)
        return 0;
    return mask ? mask[row * ((width + 7) / 8) + column / 8] >> column % 8 & ALL : ALL;
}

template <class T> __device__ __forceinline__ Stored<T> load(const T *at, int left, bool aligned)
{
    if (aligned)
        return *reinterpret_cast<const Stored<T> *>(at);
    Stored<T> stored;
#pragma unroll
    for (int q = 0; q < VEC; ++q)
        stored.at[q] = q < left ? at[q] : T(0);
    return stored;
}

template <class T> __device__ __forceinline__ void store(T *at, const Pack &pack, int left, bool aligned)
{
    if (aligned) {
        Stored<T> stored;
#pragma unroll
        for (int q = 0; q < VEC; ++q)
            stored.at[q] = (T)pack.at[q];
        *reinterpret_cast<Stored<T> *>(at) = stored;
        return;
    }
#pragma unroll
    for (int q = 0; q < VEC; ++q)
        if (q < left)
            at[q] = (T)pack.at[q];
}

__device__ __forceinline__ REAL weight(const REAL *data, const REAL *col_scale, long long k, INDEX j)
{
    const REAL value = data ? data[k] : REAL(1);
    return col_scale ? value * col_scale[j] : value;
}

// Add the rows j[0..count) of x, count <= DEEP: all are asked for before the first is needed
template <int STEP, int PACKS, int DEEP>
__device__ __forceinline__ void add(Pack (&sum)[PACKS], const unsigned (&keep)[PACKS], const INDEX (&j)[DEEP],
                                    const REAL (&w)[DEEP], int count, const ROW *x, int ldx, int first, int width,
                                    bool aligned)
{
    Stored<ROW> part[DEEP][PACKS];  // as they are stored: 16 bits take half of the registers
#pragma unroll
    for (int u = 0; u < DEEP; ++u)
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
            if (u < count && keep[p])
                part[u][p] = load(x + (long long)j[u] * ldx + first + p * STEP, width - first - p * STEP, aligned);
#pragma unroll
    for (int u = 0; u < DEEP; ++u)
#pragma unroll
        for (int p = 0; p < PACKS; ++p)
            if (u < count && keep[p])
#pragma unroll
                for (int q = 0; q < VEC; ++q)
                    sum[p].at[q] = fma(w[u], (REAL)part[u][p].at[q], sum[p].at[q]);
}

template <int LANES, int PACKS> __device__ __forceinline__ void product(PARAMETERS)
{
    constexpr int STEP = LANES * VEC, TILE = STEP * PACKS, DEEP = 4;
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long group = thread / LANES, tiles = (width + TILE - 1) / TILE, item = group / tiles;
    const int lane = thread % LANES, first = (int)(group % tiles) * TILE + lane * VEC;
    if (item >= items)  // groups leave as a whole
        return;
    long long row, k, end, slot = -1;
    if (pieces) {
        row = pieces[4 * item], k = pieces[4 * item + 1], end = pieces[4 * item + 2], slot = pieces[4 * item + 3];
    } else {
        row = rows ? rows[item] : item, k = indptr[row], end = indptr[row + 1];
    }
    Pack sum[PACKS] = {};
    unsigned keep[PACKS];
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
        keep[p] = bits(mask, row, first + p * STEP, (int)width);
    INDEX j[DEEP];
    REAL w[DEEP];
#ifdef HPGCN_GPU_ONLY
    if (LANES >= DEEP) {
        // Each lane loads one index and one weight, side by side, and the next ones while these are worked off; they
        // then go round the group by shuffles, as each lane needs all of them. The mask of a shuffle names the group:
        // the others of the warp may have shorter rows.
        const unsigned members = LANES == 32 ? ~0u : ((1u << LANES) - 1) << (threadIdx.x % 32 - lane);
        INDEX mine = 0, next = 0;
        REAL weighs = 0, next_weighs = 0;
        if (k + lane < end) {
            next = indices[k + lane];
            next_weighs = weight(data, col_scale, k + lane, next);
        }
        for (; k < end; k += LANES) {
            mine = next, weighs = next_weighs;
            if (k + LANES + lane < end) {
                next = indices[k + LANES + lane];
                next_weighs = weight(data, col_scale, k + LANES + lane, next);
            }
            const int count = end - k < LANES ? (int)(end - k) : LANES;
            for (int t = 0; t < count; t += DEEP) {
#pragma unroll
                for (int u = 0; u < DEEP; ++u) {
                    j[u] = __shfl_sync(members, mine, t + u, LANES);
                    w[u] = __shfl_sync(members, weighs, t + u, LANES);
                }
                add<STEP>(sum, keep, j, w, count - t, x, (int)ldx, first, (int)width, x_aligned);
            }
        }
    } else
#endif
        for (; k < end; k += DEEP) {
            const int count = end - k < DEEP ? (int)(end - k) : DEEP;
#pragma unroll
            for (int u = 0; u < DEEP; ++u) {
                j[u] = u < count ? indices[k + u] : 0;
                w[u] = u < count ? weight(data, col_scale, k + u, j[u]) : REAL(0);
            }
            add<STEP>(sum, keep, j, w, count, x, (int)ldx, first, (int)width, x_aligned);
        }
    const REAL scale = row_scale ? row_scale[row] : REAL(1);
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const int column = first + p * STEP, left = (int)width - column;
        if (left <= 0)
            continue;
        if (slot >= 0) {
            store(carries + slot * width + column, sum[p], left, out_aligned);
            continue;
        }
        OUT *const at = out + row * width + column;
        Stored<OUT> before;
        if (accumulate)
            before = load(at, left, out_aligned);
#pragma unroll
        for (int q = 0; q < VEC; ++q) {
            const REAL total = sum[p].at[q] * scale;
            sum[p].at[q] = keep[p] >> q & 1 ? (accumulate ? total + (REAL)before.at[q] : total) : REAL(0);
        }
        store(at, sum[p], left, out_aligned);
    }
}

// A thread takes 8 columns of a row, one byte of the mask: no thread knows of another
extern "C" __global__ void spmm_thread(PARAMETERS) { product<1, 8 / VEC>(ARGUMENTS); }

#ifdef HPGCN_GPU_ONLY
// A group of spmm_N takes N packs. Lanes are the power of two that covers the packs of a row, so that a warp takes 8
// rows of 16 floats at once. A row of more than 32 packs gives each lane two: twice the bytes in flight for the same
// indices. One of two packs is not worth sharing: its thread takes the rows of 4 nonzeros at a time.
extern "C" __global__ void spmm_2(PARAMETERS) { product<1, 2>(ARGUMENTS); }
extern "C" __global__ void spmm_4(PARAMETERS) { product<4, 1>(ARGUMENTS); }
extern "C" __global__ void spmm_8(PARAMETERS) { product<8, 1>(ARGUMENTS); }
extern "C" __global__ void spmm_16(PARAMETERS) { product<16, 1>(ARGUMENTS); }
extern "C" __global__ void spmm_32(PARAMETERS) { product<32, 1>(ARGUMENTS); }
extern "C" __global__ void spmm_64(PARAMETERS) { product<32, 2>(ARGUMENTS); }
#endif

// Rows that were cut into pieces: a thread adds one column of the pieces firsts[c] to firsts[c + 1] of row cut[c]
extern "C" __global__ void spmm_carries(const REAL *carries, const long long *cut, const long long *firsts,
                                        long long items, OUT *out, long long width, const REAL *row_scale,
                                        const unsigned char *mask, long long accumulate)
{
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x, c = thread / width;
    if (c >= items)
        return;
    const long long column = thread % width, row = cut[c];
    REAL sum = 0;
    for (long long slot = firsts[c]; slot < firsts[c + 1]; ++slot)
        sum += carries[slot * width + column];
    sum *= row_scale ? row_scale[row] : REAL(1);
    if (accumulate)
        sum += (REAL)out[row * width + column];
    const bool kept = !mask || mask[row * ((width + 7) / 8) + column / 8] >> column % 8 & 1;
    out[row * width + column] = (OUT)(kept ? sum : REAL(0));
}
