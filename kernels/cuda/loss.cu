// Losses over rows: softmax, its columns on one device or spread over several, and sigmoids for several labels.
//
// A team takes a row: a warp on a GPU, whose lanes read neighbouring columns, or one thread. All is computed in double
// and rounded as it is stored. A row leaves its terms of loss and counts in `terms`; reductions.cu sums them over rows in an
// order that their number alone fixes.

#ifndef REAL
#define REAL float  // of logits and gradient; the launcher sets it
#endif

#ifdef HPGCN_GPU_ONLY
#define TEAM 32
__device__ __forceinline__ double team_sum(double value)
{
    for (int other = 16; other; other /= 2)
        value += __shfl_xor_sync(~0u, value, other);
    return value;
}

// Largest value, and the lowest of the places that hold it
__device__ __forceinline__ void team_top(double &value, long long &place)
{
    for (int other = 16; other; other /= 2) {
        const double rival = __shfl_xor_sync(~0u, value, other);
        const long long there = __shfl_xor_sync(~0u, place, other);
        if (rival > value || (rival == value && there < place))
            value = rival, place = there;
    }
}
#else
#define TEAM 1
__device__ __forceinline__ double team_sum(double value) { return value; }
__device__ __forceinline__ void team_top(double &, long long &) {}
#endif

constexpr long long ABSENT = 0x7FFFFFFFFFFFFFFFll;  // the column of no column

__device__ __forceinline__ long long team_number()
{
    return ((long long)blockIdx.x * blockDim.x + threadIdx.x) / TEAM;
}

// Maximum of a row, -infinity without columns, and its first column; NaN is never it
__device__ __forceinline__ double top_of(const REAL *row, long long width, int lane, long long &place)
{
    double top = log(0.0);
    place = ABSENT;
    for (long long q = lane; q < width; q += TEAM)
        if (row[q] > top || (row[q] == top && place == ABSENT))
            top = row[q], place = q;
    team_top(top, place);
    return top;
}

// Sum of exp(z - top) over a row: NaN where a logit is not finite
__device__ __forceinline__ double power_sum(const REAL *row, long long width, int lane, double top)
{
    double sum = 0;
    for (long long q = lane; q < width; q += TEAM) {
        const double z = row[q];
        sum += exp(z - top) + (z - z);
    }
    return team_sum(sum);
}

// Columns of scale * (softmax - one-hot); `column` of the label may lie outside
__device__ __forceinline__ void softmax_gradient(const REAL *row, REAL *grad, long long width, int lane, double top,
                                                 double total, long long column, double scale)
{
    for (long long q = lane; q < width; q += TEAM)
        grad[q] = (REAL)((exp((double)row[q] - top) / total - (q == column ? 1.0 : 0.0)) * scale);
}

// terms (r, 2): loss, and whether the first maximum is at the label
extern "C" __global__ void softmax_cross_entropy(const REAL *logits, long long width, const long long *labels,
                                                 const long long *rows, long long items, double scale, REAL *grad,
                                                 double *terms)
{
    const long long r = team_number();
    if (r >= items)
        return;
    const int lane = threadIdx.x % TEAM;
    const long long i = rows[r], label = labels[i];
    const REAL *const row = logits + i * width;
    long long best;
    const double top = top_of(row, width, lane, best), total = power_sum(row, width, lane, top);
    if (grad)
        softmax_gradient(row, grad + i * width, width, lane, top, total, label, scale);
    if (lane == 0) {
        terms[2 * r] = log(total) + top - (double)row[label];
        terms[2 * r + 1] = best == label;
    }
}

// terms (r, 4): loss, true positives, false positives, false negatives
extern "C" __global__ void sigmoid_cross_entropy(const REAL *logits, long long width, const REAL *labels,
                                                 const long long *rows, long long items, double scale, REAL *grad,
                                                 double *terms)
{
    const long long r = team_number();
    if (r >= items)
        return;
    const int lane = threadIdx.x % TEAM;
    const long long start = rows[r] * width;
    double loss = 0, hits = 0, wrong = 0, missed = 0;
    for (long long q = lane; q < width; q += TEAM) {
        const double z = logits[start + q], y = labels[start + q];
        const double small = exp(-fabs(z));  // never overflows
        loss += (z > 0 ? z : 0) - z * y + log1p(small);  // never finite where z is not
        hits += z > 0 && y > 0;
        wrong += z > 0 && !(y > 0);
        missed += !(z > 0) && y > 0;
        if (grad)
            grad[start + q] = (REAL)(((z >= 0 ? 1.0 : small) / (1.0 + small) - y) * scale);
    }
    loss = team_sum(loss), hits = team_sum(hits), wrong = team_sum(wrong), missed = team_sum(missed);
    if (lane == 0) {
        terms[4 * r] = loss;
        terms[4 * r + 1] = hits;
        terms[4 * r + 2] = wrong;
        terms[4 * r + 3] = missed;
    }
}

extern "C" __global__ void spread_max(const REAL *logits, long long m, long long width, REAL *out)
{
    const long long i = team_number();
    if (i >= m)
        return;
    long long place;
    const double top = top_of(logits + i * width, width, threadIdx.x % TEAM, place);
    if (threadIdx.x % TEAM == 0)
        out[i] = (REAL)top;
}

extern "C" __global__ void spread_sum(const REAL *logits, long long m, long long width, const double *top, double *out)
{
    const long long i = team_number();
    if (i >= m)
        return;
    const double sum = power_sum(logits + i * width, width, threadIdx.x % TEAM, top[i]);
    if (threadIdx.x % TEAM == 0)
        out[i] = sum;
}

// terms (r, 1): loss, 0 where the label lies in another block
extern "C" __global__ void spread_gradient(const REAL *logits, long long width, const long long *labels,
                                           long long first, const long long *rows, long long items, const double *top,
                                           const double *total, double scale, REAL *grad, double *terms)
{
    const long long r = team_number();
    if (r >= items)
        return;
    const int lane = threadIdx.x % TEAM;
    const long long i = rows[r], column = labels[i] - first;
    const REAL *const row = logits + i * width;
    if (grad)
        softmax_gradient(row, grad + i * width, width, lane, top[i], total[i], column, scale);
    if (lane == 0)
        terms[r] = 0 <= column && column < width ? log(total[i]) + top[i] - (double)row[column] : 0.0;
}

extern "C" __global__ void spread_argmax(const REAL *logits, long long m, long long width, long long first,
                                         const double *top, long long *out)
{
    const long long i = team_number();
    if (i >= m)
        return;
    const int lane = threadIdx.x % TEAM;
    long long place = ABSENT;
    for (long long q = lane; q < width && place == ABSENT; q += TEAM)
        if (logits[i * width + q] == top[i])
            place = q;
    double found = place == ABSENT ? 0 : 1;
    team_top(found, place);
    if (lane == 0)
        out[i] = place == ABSENT ? ABSENT : first + place;
}
