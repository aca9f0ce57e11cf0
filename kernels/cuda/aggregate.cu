// DistGNN's aggregation primitive: an operator between a source and an edge, a reduction over the edges of a row, and
// the gradients of both. Sums and means that are products are left to spmm.cu.
//
// A thread takes one column of a row and its edges in order, so neighboring threads read neighboring numbers, and
// the sum, maximum or minimum stays in a register. `op` and `reduce` are the same for all threads: such branches cost
// next to nothing beside a gather.

#ifndef REAL
#define REAL float  // of x, e and gradients; the launcher sets REAL and INDEX
#endif
#ifndef INDEX
#define INDEX int
#endif

#ifdef HPGCN_GPU_ONLY
#define TEAM 32  // threads of a warp share a sum
__device__ __forceinline__ REAL team_sum(REAL value)
{
    for (int other = 16; other; other /= 2)
        value += __shfl_xor_sync(~0u, value, other);
    return value;
}
#else
#define TEAM 1
__device__ __forceinline__ REAL team_sum(REAL value) { return value; }
#endif

enum Op { ADD, SUB, MUL, DIV, COPYLHS, COPYRHS };
enum Reduce { SUM, MEAN, MAX, MIN };

__device__ __forceinline__ long long thread_number() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }

__device__ __forceinline__ REAL message(int op, const REAL *x, const REAL *e, long long x_at, long long e_at)
{
    switch (op) {
    case ADD: return x[x_at] + e[e_at];
    case SUB: return x[x_at] - e[e_at];
    case MUL: return x[x_at] * e[e_at];
    case DIV: return x[x_at] / e[e_at];
    case COPYLHS: return x[x_at];
    default: return e[e_at];
    }
}

// out[v] = reduce over entries t of row v of op(x[indices[t]], e[k]), k = edge[t], or t without `edge`. Of max and min
// arg[v] is the k chosen. With `chosen` (x's shape) only entries count that it names.
extern "C" __global__ void aggregate(const long long *__restrict__ indptr, const INDEX *__restrict__ indices,
                                     const long long *__restrict__ edge, const REAL *__restrict__ x,
                                     const REAL *__restrict__ e, long long e_width, long long op, long long reduce,
                                     const long long *__restrict__ chosen, REAL *__restrict__ out,
                                     long long *__restrict__ arg, long long m, long long width)
{
    const long long v = thread_number() / width, q = thread_number() % width;
    if (v >= m)
        return;
    const long long begin = indptr[v], end = indptr[v + 1], e_column = e_width == 1 ? 0 : q;
    REAL result = 0;
    long long best = -1;
#pragma unroll 4
    for (long long t = begin; t < end; ++t) {
        const long long u = indices[t], k = edge ? edge[t] : t;
        const REAL value = message((int)op, x, e, u * width + q, k * e_width + e_column);
        if (reduce < MAX) {
            result += !chosen || chosen[u * width + q] == k ? value : REAL(0);
        } else {
            // not <= and not >= take a NaN; the last test keeps the first one met
            const bool better = reduce == MAX ? !(value <= result) : !(value >= result);
            if (t == begin || (better && result == result))
                result = value, best = k;
        }
    }
    out[v * width + q] = reduce == MEAN && end > begin ? result / REAL(end - begin) : result;
    if (arg)
        arg[v * width + q] = best;
}

struct Edge {
    const INDEX *indices;
    const REAL *x, *e, *grad;
    const long long *chosen;
    long long e_width, width, k, v;

    __device__ __forceinline__ REAL slope(int op, long long q) const
    {
        if (chosen && chosen[v * width + q] != k)
            return 0;
        const REAL g = grad[v * width + q];
        if (op == SUB)
            return -g;
        if (op != MUL && op != DIV)
            return g;
        const REAL product = g * x[(long long)indices[k] * width + q];
        if (op == MUL)
            return product;
        const REAL by = e[k * e_width + (e_width == 1 ? 0 : q)];
        return -(product / by) / by;
    }
};

#define PARAMETERS                                                                                                   \
    const long long *__restrict__ indptr, long long m, const INDEX *__restrict__ indices,                           \
        const REAL *__restrict__ x, const REAL *__restrict__ e, long long e_width, long long op,                    \
        const REAL *__restrict__ grad, const long long *__restrict__ chosen, REAL *__restrict__ de, long long width, \
        long long first, long long edges

// Gradient of e, as wide as grad: a thread takes one column of an edge. Edges are first to first + edges
extern "C" __global__ void edge_gradient(PARAMETERS)
{
    const long long k = first + thread_number() / width, q = thread_number() % width;
    if (k >= first + edges)
        return;
    const Edge edge = {indices, x, e, grad, chosen, e_width, width, k, row_of(indptr, m, k)};
    de[k * width + q] = edge.slope((int)op, q);
}

// Gradient of an e of one column: a team sums an edge over all columns
extern "C" __global__ void edge_gradient_sum(PARAMETERS)
{
    const long long k = first + thread_number() / TEAM;
    if (k >= first + edges)
        return;
    const Edge edge = {indices, x, e, grad, chosen, e_width, width, k, row_of(indptr, m, k)};
    REAL sum = 0;
    for (long long q = threadIdx.x % TEAM; q < width; q += TEAM)
        sum += edge.slope((int)op, q);
    sum = team_sum(sum);
    if (threadIdx.x % TEAM == 0)
        de[k] = sum;
}
