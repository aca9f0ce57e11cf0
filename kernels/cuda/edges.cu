// Numbers of stored entries: dot products of their rows and columns, and softmax over the entries of a row. Sums of
// messages that read edge features: relu(x_j + b + e W), and their gradients along the transpose.
//
// A thread takes one head: of an entry, or of a row whose entries it goes over in order. Sums are of double.
// Messages have threads for columns.

#ifndef REAL
#define REAL float  // of all numbers; the launcher sets REAL, INDEX and EDGE
#endif
#ifndef INDEX
#define INDEX int
#endif
#ifndef EDGE
#define EDGE int  // of the rows of edge features
#endif

__device__ __forceinline__ long long thread_number() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }

// Entries are first to first + items
extern "C" __global__ void edge_dot(const long long *__restrict__ indptr, long long m,
                                    const INDEX *__restrict__ indices, const REAL *__restrict__ x,
                                    const REAL *__restrict__ y, REAL *__restrict__ out, long long heads,
                                    long long width, long long first, long long items)
{
    const long long k = first + thread_number() / heads, h = thread_number() % heads;
    if (k >= first + items)
        return;
    const REAL *const a = x + (row_of(indptr, m, k) * heads + h) * width;
    const REAL *const b = y + ((long long)indices[k] * heads + h) * width;
    double sum = 0;
    for (long long q = 0; q < width; ++q)
        sum += (double)a[q] * b[q];
    out[k * heads + h] = (REAL)sum;
}

extern "C" __global__ void edge_softmax(const long long *indptr, const REAL *values, REAL *out, long long items,
                                        long long heads)
{
    const long long i = thread_number() / heads, h = thread_number() % heads;
    if (thread_number() >= items)
        return;
    double top = log(0.0), total = 0;
    for (long long k = indptr[i]; k < indptr[i + 1]; ++k)
        if (values[k * heads + h] > top)
            top = values[k * heads + h];
    for (long long k = indptr[i]; k < indptr[i + 1]; ++k)
        total += exp((double)values[k * heads + h] - top);
    for (long long k = indptr[i]; k < indptr[i + 1]; ++k)
        out[k * heads + h] = (REAL)(exp((double)values[k * heads + h] - top) / total);
}

extern "C" __global__ void edge_softmax_backward(const long long *indptr, const REAL *alpha, const REAL *grad,
                                                 REAL *out, long long items, long long heads)
{
    const long long i = thread_number() / heads, h = thread_number() % heads;
    if (thread_number() >= items)
        return;
    double total = 0;
    for (long long k = indptr[i]; k < indptr[i + 1]; ++k)
        total += (double)alpha[k * heads + h] * grad[k * heads + h];
    for (long long k = indptr[i]; k < indptr[i + 1]; ++k)
        out[k * heads + h] = (REAL)(alpha[k * heads + h] * (grad[k * heads + h] - total));
}

// Messages: a thread takes one column of an item, a row or a piece of a long one, and its entries in order. So
// neighboring threads read neighboring numbers, and no thread waits long for the one with the longest row.
struct Item {
    long long row, begin, end, slot;  // the sum of a piece goes to a slot, where it is not below 0
};

__device__ __forceinline__ Item item_of(const long long *indptr, const long long *pieces, long long number)
{
    if (pieces)
        return {pieces[4 * number], pieces[4 * number + 1], pieces[4 * number + 2], pieces[4 * number + 3]};
    return {number, indptr[number], indptr[number + 1], -1};
}

// The linear map of an edge is computed again in each pass: it is small, and a thread holds its first weights
constexpr int HELD = 8;
struct Map {
    const REAL *features, *weight;
    long long d, width, q;
    REAL held[HELD];

    __device__ __forceinline__ Map(const REAL *features, const REAL *weight, long long d, long long width, long long q)
        : features(features), weight(weight), d(d), width(width), q(q)
    {
#pragma unroll
        for (int k = 0; k < HELD; ++k)
            held[k] = k < d ? weight[k * width + q] : REAL(0);
    }
    __device__ __forceinline__ REAL inner(REAL start, long long t) const
    {
        REAL sum = start;
#pragma unroll
        for (int k = 0; k < HELD; ++k)
            if (k < d)
                sum += features[t * d + k] * held[k];
        for (long long k = HELD; k < d; ++k)
            sum += features[t * d + k] * weight[k * width + q];
        return sum;
    }
};

#define PARAMETERS                                                                                                   \
    const long long *__restrict__ indptr, const INDEX *__restrict__ indices, const EDGE *__restrict__ edge,         \
        const REAL *__restrict__ x, const REAL *__restrict__ features, const REAL *__restrict__ weight,             \
        const REAL *__restrict__ bias, long long d, long long width, const long long *__restrict__ pieces,          \
        long long items, REAL *__restrict__ carries

extern "C" __global__ void edge_relu(PARAMETERS, REAL *__restrict__ out, long long accumulate)
{
    const long long number = thread_number() / width, q = thread_number() % width;
    if (number >= items)
        return;
    const Item item = item_of(indptr, pieces, number);
    const Map map(features, weight, d, width, q);
    const REAL shift = bias[q];
    REAL sum = accumulate && item.slot < 0 ? out[item.row * width + q] : REAL(0);
#pragma unroll 4
    for (long long k = item.begin; k < item.end; ++k) {
        const REAL value = map.inner(x[(long long)indices[k] * width + q] + shift, edge[k]);
        sum += value <= 0 ? REAL(0) : value;
    }
    (item.slot < 0 ? out + item.row * width : carries + item.slot * width)[q] = sum;
}

// Gradients along the rows of the transpose. A thread takes every `chunks`-th item, which are about equally long side by
// side, and sums the gradients of HELD weights of its column: sums[chunk, k, q], k = d for the bias. The first block of
// weights gives the gradients of x and of the bias as well.
template <bool FIRST>
__device__ __forceinline__ void backward(PARAMETERS, const REAL *__restrict__ grad, REAL *__restrict__ out,
                                         long long accumulate, double *__restrict__ sums, long long chunks,
                                         long long blocks)
{
    const long long q = thread_number() % width, place = thread_number() / width;
    const long long chunk = place / blocks, base = FIRST ? 0 : (place % blocks + 1) * HELD;
    if (chunk >= chunks)
        return;
    const Map map(features, weight, d, width, q);
    const REAL shift = bias[q];
    double of_weights[HELD] = {}, of_bias = 0;
    for (long long number = chunk; number < items; number += chunks) {
        const Item item = item_of(indptr, pieces, number);
        const REAL start = x[item.row * width + q] + shift;
        REAL part[HELD] = {}, sum = 0;
#pragma unroll 4
        for (long long k = item.begin; k < item.end; ++k) {
            const long long t = edge[k];
            const REAL given = grad[(long long)indices[k] * width + q];
            const REAL slope = map.inner(start, t) <= 0 ? REAL(0) : given;
            sum += slope;
#pragma unroll
            for (int b = 0; b < HELD; ++b)
                if (base + b < d)
                    part[b] += features[t * d + base + b] * slope;
        }
#pragma unroll
        for (int b = 0; b < HELD; ++b)
            of_weights[b] += part[b];
        if (FIRST) {
            of_bias += sum;
            REAL *const at = (item.slot < 0 ? out + item.row * width : carries + item.slot * width) + q;
            *at = accumulate && item.slot < 0 ? *at + sum : sum;
        }
    }
    double *const mine = sums + chunk * (d + 1) * width + q;
#pragma unroll
    for (int b = 0; b < HELD; ++b)
        if (base + b < d)
            mine[(base + b) * width] = of_weights[b];
    if (FIRST)
        mine[d * width] = of_bias;
}

#define ARGUMENTS                                                                                               \
    indptr, indices, edge, x, features, weight, bias, d, width, pieces, items, carries, grad, out, accumulate, sums, \
        chunks, blocks

extern "C" __global__ void edge_relu_backward(PARAMETERS, const REAL *__restrict__ grad, REAL *__restrict__ out,
                                              long long accumulate, double *__restrict__ sums, long long chunks,
                                              long long blocks)
{
    backward<true>(ARGUMENTS);
}

// The blocks of weights behind the first
extern "C" __global__ void edge_relu_weights(PARAMETERS, const REAL *__restrict__ grad, REAL *__restrict__ out,
                                             long long accumulate, double *__restrict__ sums, long long chunks,
                                             long long blocks)
{
    backward<false>(ARGUMENTS);
}
