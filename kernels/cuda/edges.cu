// Numbers of stored entries: dot products of their rows and columns, and softmax over the entries of a row.
//
// A thread takes one head: of an entry, or of a row whose entries it goes over in order. Sums are of double.

#ifndef REAL
#define REAL float  // of all numbers; the launcher sets REAL and INDEX
#endif
#ifndef INDEX
#define INDEX int
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
