// Numbers of stored entries: dot products of their rows and columns, and softmax over the entries of a row. Sums of
// messages that read edge features: relu(x_j + b + e W), and their gradients along the transpose.
//
// A thread takes one head: of an entry, or of a row whose entries it goes over in order. Sums are of double.

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

// Row of entry k: the last whose first entry is not after k
__device__ __forceinline__ long long row_of(const long long *indptr, long long m, long long k)
{
    long long low = 0, high = m;
    while (high - low > 1) {
        const long long middle = (low + high) / 2;
        if (indptr[middle] <= k)
            low = middle;
        else
            high = middle;
    }
    return low;
}

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

// Messages: a thread takes one column of a row and its entries in order, so neighbouring threads read neighbouring
// numbers. The linear map of an edge is computed again in each pass: it is small, and its weights stay in the caches.
struct Map {
    const REAL *x, *features, *weight, *bias;
    long long d, width;

    __device__ __forceinline__ REAL inner(long long j, long long t, long long q) const
    {
        REAL sum = x[j * width + q] + bias[q];
        for (long long k = 0; k < d; ++k)
            sum += features[t * d + k] * weight[k * width + q];
        return sum;
    }
};

#define PARAMETERS                                                                                                   \
    const long long *__restrict__ indptr, const INDEX *__restrict__ indices, const EDGE *__restrict__ edge,         \
        const REAL *__restrict__ x, const REAL *__restrict__ features, const REAL *__restrict__ weight,             \
        const REAL *__restrict__ bias, long long d, long long width

extern "C" __global__ void edge_relu(PARAMETERS, REAL *__restrict__ out, long long accumulate, long long m)
{
    const long long i = thread_number() / width, q = thread_number() % width;
    if (i >= m)
        return;
    const Map map = {x, features, weight, bias, d, width};
    REAL sum = accumulate ? out[i * width + q] : REAL(0);
    for (long long k = indptr[i]; k < indptr[i + 1]; ++k) {
        const REAL value = map.inner(indices[k], edge[k], q);
        sum += value <= 0 ? REAL(0) : value;
    }
    out[i * width + q] = sum;
}

// Gradient of x: rows of the transpose
extern "C" __global__ void edge_relu_rows(PARAMETERS, const REAL *__restrict__ grad, REAL *__restrict__ out,
                                          long long accumulate, long long n)
{
    const long long j = thread_number() / width, q = thread_number() % width;
    if (j >= n)
        return;
    const Map map = {x, features, weight, bias, d, width};
    REAL sum = 0;
    for (long long k = indptr[j]; k < indptr[j + 1]; ++k)
        sum += map.inner(j, edge[k], q) <= 0 ? REAL(0) : grad[(long long)indices[k] * width + q];
    out[j * width + q] = accumulate ? out[j * width + q] + sum : sum;
}

// Gradients that pass the relu of the entries first to first + items, one row for each
extern "C" __global__ void edge_relu_slopes(PARAMETERS, const REAL *__restrict__ grad, REAL *__restrict__ slopes,
                                            long long n, long long first, long long items)
{
    const long long k = first + thread_number() / width, q = thread_number() % width;
    if (k >= first + items)
        return;
    const Map map = {x, features, weight, bias, d, width};
    const REAL inner = map.inner(row_of(indptr, n, k), edge[k], q);
    slopes[(k - first) * width + q] = inner <= 0 ? REAL(0) : grad[(long long)indices[k] * width + q];
}
