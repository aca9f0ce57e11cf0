// Normalization of rows and of columns (see kernels/reference/norm.py), in double and rounded as it is stored.
//
// Sums over the columns of a row are taken by a team: a warp on a GPU, whose lanes read neighboring columns, or one
// thread. Sums over rows are taken in chunks, and reductions.cu sums the chunks. Results may replace operands: a thread
// reads all that it needs of an element before it writes there.

#ifndef REAL
#define REAL float  // of x, g, xhat and out; the launcher sets it
#endif

#ifdef HPGCN_GPU_ONLY
#define TEAM 32
__device__ __forceinline__ double team_sum(double value)
{
    for (int other = 16; other; other /= 2)
        value += __shfl_xor_sync(~0u, value, other);
    return value;
}
#else
#define TEAM 1
__device__ __forceinline__ double team_sum(double value) { return value; }
#endif

__device__ __forceinline__ long long thread_number() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }

extern "C" __global__ void row_sum(const REAL *x, long long m, long long width, double *out)
{
    const long long i = thread_number() / TEAM;
    if (i >= m)
        return;
    double sum = 0;
    for (long long q = threadIdx.x % TEAM; q < width; q += TEAM)
        sum += x[i * width + q];
    sum = team_sum(sum);
    if (threadIdx.x % TEAM == 0)
        out[i] = sum;
}

extern "C" __global__ void row_squares(const REAL *x, long long m, long long width, const double *mean, double *out)
{
    const long long i = thread_number() / TEAM;
    if (i >= m)
        return;
    double sum = 0;
    for (long long q = threadIdx.x % TEAM; q < width; q += TEAM) {
        const double deviation = x[i * width + q] - mean[i];
        sum += deviation * deviation;
    }
    sum = team_sum(sum);
    if (threadIdx.x % TEAM == 0)
        out[i] = sum;
}

extern "C" __global__ void layer_norm(const REAL *x, const double *mean, const double *inv_std, const double *gain,
                                      const double *bias, long long m, long long width, REAL *out, REAL *xhat)
{
    const long long at = thread_number(), i = at / width, q = at % width;
    if (i >= m)
        return;
    const double normal = (x[at] - mean[i]) * inv_std[i];
    if (xhat)
        xhat[at] = (REAL)normal;
    out[at] = (REAL)(normal * gain[q] + bias[q]);
}

// sums (m, 2) over columns of gain * g and of gain * g * xhat
extern "C" __global__ void backward_row_sums(const REAL *g, const REAL *xhat, const double *gain, long long m,
                                             long long width, double *sums)
{
    const long long i = thread_number() / TEAM;
    if (i >= m)
        return;
    double first = 0, second = 0;
    for (long long q = threadIdx.x % TEAM; q < width; q += TEAM) {
        const double slope = gain[q] * g[i * width + q];
        first += slope;
        second += slope * xhat[i * width + q];
    }
    first = team_sum(first), second = team_sum(second);
    if (threadIdx.x % TEAM == 0) {
        sums[2 * i] = first;
        sums[2 * i + 1] = second;
    }
}

// sums (chunks, 2 width) over a chunk of rows of g * xhat and of g: a thread a column, neighbors side by side
extern "C" __global__ void backward_column_sums(const REAL *__restrict__ g, const REAL *__restrict__ xhat, long long m,
                                                long long width, long long chunks, double *__restrict__ sums)
{
    const long long chunk = thread_number() / width, q = thread_number() % width;
    if (chunk >= chunks)
        return;
    double first = 0, second = 0;
    const long long last = (chunk + 1) * m / chunks;
#pragma unroll 4
    for (long long i = chunk * m / chunks; i < last; ++i) {
        const double slope = g[i * width + q];
        first += slope * xhat[i * width + q];
        second += slope;
    }
    sums[chunk * 2 * width + q] = first;
    sums[(chunk * 2 + 1) * width + q] = second;
}

extern "C" __global__ void layer_norm_backward(const REAL *g, const REAL *xhat, const double *inv_std,
                                               const double *gain, const double *means, long long m, long long width,
                                               REAL *out)
{
    const long long at = thread_number(), i = at / width, q = at % width;
    if (i < m)
        out[at] = (REAL)(inv_std[i] * (g[at] * gain[q] - means[2 * i] - xhat[at] * means[2 * i + 1]));
}

// sums (chunks, width) over a chunk of rows of (x - mean)^2: a thread a column, neighbors side by side
extern "C" __global__ void column_squares(const REAL *__restrict__ x, const double *__restrict__ mean, long long m,
                                          long long width, long long chunks, double *__restrict__ sums)
{
    const long long chunk = thread_number() / width, q = thread_number() % width;
    if (chunk >= chunks)
        return;
    double sum = 0;
    const long long last = (chunk + 1) * m / chunks;
#pragma unroll 4
    for (long long i = chunk * m / chunks; i < last; ++i) {
        const double deviation = x[i * width + q] - mean[q];
        sum += deviation * deviation;
    }
    sums[chunk * width + q] = sum;
}

extern "C" __global__ void batch_norm(const REAL *x, const double *mean, const double *inv_std, const double *gain,
                                      const double *bias, long long m, long long width, REAL *out, REAL *xhat)
{
    const long long at = thread_number(), i = at / width, q = at % width;
    if (i >= m)
        return;
    const double normal = (x[at] - mean[q]) * inv_std[q];
    if (xhat)
        xhat[at] = (REAL)normal;
    out[at] = (REAL)(normal * gain[q] + bias[q]);
}

extern "C" __global__ void batch_norm_backward(const REAL *g, const REAL *xhat, const double *inv_std,
                                               const double *gain, const double *means, long long m, long long width,
                                               REAL *out)
{
    const long long at = thread_number(), i = at / width, q = at % width;
    if (i < m)
        out[at] = (REAL)(inv_std[q] * gain[q] * (g[at] - means[q] - xhat[at] * means[width + q]));
}
