// Losses over rows: softmax, its columns on one device or spread over several, and sigmoids for several labels.
//
// A team takes a row: a warp on a GPU, whose lanes read neighboring columns, or one thread. All is computed in double
// and rounded as it is stored. A row leaves its terms of loss and counts in `terms`; reductions.cu sums them over rows in an
// order that their number alone fixes.

#ifndef REAL
#define REAL float  // of logits; the launcher sets it
#endif
#ifndef ROW
#define ROW REAL  // of the gradient
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

// Columns of scale * (whole * softmax - every - own * one-hot); `column` of the label may lie outside, and `every` be 0
__device__ __forceinline__ void softmax_gradient(const REAL *row, ROW *grad, long long width, int lane, double top,
                                                 double total, long long column, double scale, double own, double whole,
                                                 const double *every)
{
    for (long long q = lane; q < width; q += TEAM) {
        const double share = (q == column ? own : 0.0) + (every ? every[q] : 0.0);
        grad[q] = (ROW)(REAL)((exp((double)row[q] - top) / total * whole - share) * scale);
    }
}

// Sum over a row of every * (top - z)
__device__ __forceinline__ double every_sum(const REAL *row, const double *every, long long width, int lane, double top)
{
    double sum = 0;
    for (long long q = lane; q < width; q += TEAM)
        sum += every[q] * (top - (double)row[q]);
    return team_sum(sum);
}

// terms (r, 2): loss, and whether the first maximum is at the label; target (3, width) or 0
extern "C" __global__ void softmax_cross_entropy(const REAL *logits, long long width, const long long *labels,
                                                 const long long *rows, long long items, const double *target,
                                                 double scale, ROW *grad, double *terms)
{
    const long long r = team_number();
    if (r >= items)
        return;
    const int lane = threadIdx.x % TEAM;
    const long long i = rows[r], label = labels[i];
    const REAL *const row = logits + i * width;
    long long best;
    const double top = top_of(row, width, lane, best), total = power_sum(row, width, lane, top);
    const double *const every = target ? target + width : 0;
    const double own = target ? target[label] : 1.0, whole = target ? target[2 * width + label] : 1.0;
    if (grad)
        softmax_gradient(row, grad + i * width, width, lane, top, total, label, scale, own, whole, every);
    const double shared = target ? every_sum(row, every, width, lane, top) : 0.0;
    if (lane == 0) {
        terms[2 * r] = target ? whole * log(total) + own * (top - (double)row[label]) + shared
                              : log(total) + top - (double)row[label];
        terms[2 * r + 1] = best == label;
    }
}

// terms (r, 4): loss, true positives, false positives, false negatives
extern "C" __global__ void sigmoid_cross_entropy(const REAL *logits, long long width, const REAL *labels,
                                                 const long long *rows, long long items, double smoothing,
                                                 double scale, ROW *grad, double *terms)
{
    const long long r = team_number();
    if (r >= items)
        return;
    const int lane = threadIdx.x % TEAM;
    const long long start = rows[r] * width;
    double loss = 0, hits = 0, wrong = 0, missed = 0;
    for (long long q = lane; q < width; q += TEAM) {
        const double z = logits[start + q], y = labels[start + q];
        const double soft = y * (1.0 - smoothing) + 0.5 * smoothing;
        const double small = exp(-fabs(z));  // never overflows
        loss += (z > 0 ? z : 0) - z * soft + log1p(small);  // never finite where z is not
        hits += z > 0 && y > 0;
        wrong += z > 0 && !(y > 0);
        missed += !(z > 0) && y > 0;
        if (grad)
            grad[start + q] = (ROW)(REAL)(((z >= 0 ? 1.0 : small) / (1.0 + small) - soft) * scale);
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

// terms (r, 1): loss, 0 where the label lies in another block; target (3, classes) or 0
extern "C" __global__ void spread_gradient(const REAL *logits, long long width, const long long *labels,
                                           long long first, const long long *rows, long long items, const double *top,
                                           const double *total, const double *target, long long classes, double scale,
                                           ROW *grad, double *terms)
{
    const long long r = team_number();
    if (r >= items)
        return;
    const int lane = threadIdx.x % TEAM;
    const long long i = rows[r], column = labels[i] - first;
    const REAL *const row = logits + i * width;
    const double *const every = target ? target + classes + first : 0;
    const double own = target ? target[labels[i]] : 1.0, whole = target ? target[2 * classes + labels[i]] : 1.0;
    if (grad)
        softmax_gradient(row, grad + i * width, width, lane, top[i], total[i], column, scale, own, whole, every);
    const double shared = target ? every_sum(row, every, width, lane, top[i]) : 0.0;
    if (lane == 0) {
        double loss = 0;
        if (0 <= column && column < width)
            loss = target ? whole * log(total[i]) + own * (top[i] - (double)row[column])
                          : log(total[i]) + top[i] - (double)row[column];
        terms[r] = loss + shared;
    }
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
