// Sums over rows, in double and in an order that the shape alone fixes: chunks of rows first, then their sums.

#ifndef REAL
#define REAL float  // of x; the launcher sets it
#endif

#ifndef ROW
#define ROW REAL  // as rows are stored
#endif

#ifdef HPGCN_GPU_ONLY
#define TEAM 32  // threads of a warp share a sum
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

// sums[chunk, q] over rows chunk * m / chunks to (chunk + 1) * m / chunks of x (m, width): a thread each, columns
// side by side. The loads of a column do not wait for its additions, so they are unrolled.
extern "C" __global__ void chunk_sums(const ROW *__restrict__ x, long long m, long long width, long long chunks,
                                      double *__restrict__ sums)
{
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x, chunk = thread / width;
    if (chunk >= chunks)
        return;
    const long long column = thread % width, last = (chunk + 1) * m / chunks;
    double sum = 0;
#pragma unroll 8
    for (long long i = chunk * m / chunks; i < last; ++i)
        sum += (REAL)x[i * width + column];
    sums[thread] = sum;
}

// As chunk_sums, of the products of the elements of x and y
extern "C" __global__ void chunk_products(const REAL *__restrict__ x, const REAL *__restrict__ y, long long m,
                                          long long width, long long chunks, double *__restrict__ sums)
{
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x, chunk = thread / width;
    if (chunk >= chunks)
        return;
    const long long column = thread % width, last = (chunk + 1) * m / chunks;
    double sum = 0;
#pragma unroll 8
    for (long long i = chunk * m / chunks; i < last; ++i)
        sum += (double)x[i * width + column] * (double)y[i * width + column];
    sums[thread] = sum;
}

// total[q] of sums (chunks, width): a team each
extern "C" __global__ void total(const double *__restrict__ sums, long long chunks, long long width,
                                 double *__restrict__ total)
{
    const long long column = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / TEAM;
    if (column >= width)
        return;
    double sum = 0;
    for (long long chunk = threadIdx.x % TEAM; chunk < chunks; chunk += TEAM)
        sum += sums[chunk * width + column];
    sum = team_sum(sum);
    if (threadIdx.x % TEAM == 0)
        total[column] = sum;
}

// Rows that were cut into pieces: a thread adds one column of the pieces firsts[c] to firsts[c + 1] of row cut[c]
extern "C" __global__ void piece_sums(const REAL *carries, const long long *cut, const long long *firsts,
                                      long long items, REAL *out, long long width, long long accumulate)
{
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x, c = thread / width;
    if (c >= items)
        return;
    const long long column = thread % width, at = cut[c] * width + column;
    REAL sum = 0;
    for (long long slot = firsts[c]; slot < firsts[c + 1]; ++slot)
        sum += carries[slot * width + column];
    out[at] = accumulate ? out[at] + sum : sum;
}
