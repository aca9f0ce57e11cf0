// Graph attention of K heads: online softmax and weighted sums in one pass over a row, and the gradients along A^T.
//
// A thread takes one column of a row and its entries in order, as in aggregate.cu: neighbouring threads read
// neighbouring numbers of x, all sums stay in registers and are written once. The threads of a head compute the same
// weights, each for itself: exp and Philox are repeated f times, and no thread waits for another. All shapes and devices
// add in the same order; nothing of the size of the nonzeros is kept.

#ifndef REAL
#define REAL float  // of all numbers; the launcher sets REAL and INDEX
#endif
#ifndef INDEX
#define INDEX int
#endif

// What a draw depends on but for entry and head; keep where a 16-bit lane is not below the threshold
struct Key {
    unsigned k0, k1, threshold, first;
};

__device__ __forceinline__ long long thread_number() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }

// Whether head h of an entry is kept; the counter is said in kernels/reference/attend.py
__device__ __forceinline__ bool kept(long long i, long long j, long long h, Key key)
{
    h += key.first;
    unsigned c[4] = {(unsigned)i, (unsigned)j, (unsigned)(i >> 32) << 16 | (unsigned)(j >> 32), (unsigned)(h / 8)};
#pragma unroll
    for (int round = 0; round < 10; ++round) {  // of Philox4x32 (Salmon et al. 2011)
        const unsigned long long p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
        c[0] = (unsigned)(p1 >> 32) ^ c[1] ^ key.k0;
        c[1] = (unsigned)p1;
        c[2] = (unsigned)(p0 >> 32) ^ c[3] ^ key.k1;
        c[3] = (unsigned)p0;
        key.k0 += 0x9E3779B9u, key.k1 += 0xBB67AE85u;
    }
    const int lane = (int)(h % 8), word = lane / 2;  // chosen without an index: c stays in registers
    const unsigned chosen = word == 0 ? c[0] : word == 1 ? c[1] : word == 2 ? c[2] : c[3];
    return (chosen >> lane % 2 * 16 & 0xFFFF) >= key.threshold;
}

// out, lse, above and share of a row, which begin with what they hold where `before`, lse as it was, is given: threads
// of a head read it while one of them writes lse. A head has `span` threads: its columns, one where it has none.
extern "C" __global__ void attend(const long long *__restrict__ indptr, const INDEX *__restrict__ indices,
                                  const REAL *__restrict__ x, const REAL *__restrict__ row_score,
                                  const REAL *__restrict__ col_score, REAL *__restrict__ out, REAL *__restrict__ lse,
                                  REAL *__restrict__ above, REAL *__restrict__ share, REAL slope,
                                  const long long *__restrict__ vertex, const long long *__restrict__ neighbour,
                                  unsigned k0, unsigned k1, unsigned threshold, unsigned first, REAL scale,
                                  const REAL *__restrict__ before, long long m, long long heads, long long width,
                                  long long span)
{
    const long long head = thread_number() / span, q = thread_number() % span;
    const long long i = head / heads, h = head % heads;
    if (i >= m)
        return;
    const long long columns = heads * width, column = h * width + q, at = i * columns + column;
    const bool leads = q == 0, exists = q < width;
    const REAL none = (REAL)log(0.0);
    REAL top = none, total = 0, sum = 0, positive = 0, part = 0;
    if (before && before[head] != none) {
        top = before[head], total = 1;
        sum = exists ? out[at] : REAL(0);
        positive = above && exists ? above[at] : REAL(0);
        part = share && leads ? share[head] : REAL(0);
    }
    for (long long k = indptr[i]; k < indptr[i + 1]; ++k) {
        const long long j = indices[k];
        const REAL z = row_score[head] + col_score[j * heads + h], score = z > 0 ? z : slope * z;
        if (score > top) {
            const REAL factor = (REAL)exp(top - score);
            total *= factor, sum *= factor, positive *= factor, part *= factor;
            top = score;
        }
        REAL weight = (REAL)exp(score - top);
        total += weight;
        part += z > 0 ? weight : REAL(0);
        if (threshold)
            weight = kept(vertex[i], neighbour[j], h, {k0, k1, threshold, first}) ? weight * scale : REAL(0);
        if (exists) {
            const REAL value = weight * x[j * columns + column];
            sum += value;
            positive += z > 0 ? value : REAL(0);
        }
    }
    const REAL factor = total == 0 ? REAL(0) : 1 / total;
    if (exists) {
        out[at] = sum * factor;
        if (above)
            above[at] = positive * factor;
    }
    if (leads) {
        lse[head] = total == 0 ? none : top + (REAL)log(total);
        if (share)
            share[head] = part * factor;
    }
}

// Along a row j of A^T, of all entries and of those with a score above 0: sums of keep alpha grad, of each column; and
// of each head, total, the sum of alpha LeakyReLU' dot
extern "C" __global__ void attend_backward(const long long *__restrict__ indptr, const INDEX *__restrict__ indices,
                                           const REAL *__restrict__ pulled,
                                           const REAL *__restrict__ col_score, REAL *__restrict__ sums,
                                           REAL *__restrict__ above, REAL *__restrict__ totals, REAL slope,
                                           const long long *__restrict__ vertex,
                                           const long long *__restrict__ neighbour, unsigned k0, unsigned k1,
                                           unsigned threshold, unsigned first, REAL scale, long long n,
                                           long long heads, long long width, long long span)
{
    const long long head = thread_number() / span, q = thread_number() % span;
    const long long j = head / heads, h = head % heads;
    if (j >= n)
        return;
    const long long columns = heads * width, column = h * width + q, at = j * columns + column;
    const bool exists = q < width;
    REAL sum = 0, positive = 0, total = 0;
    for (long long k = indptr[j]; k < indptr[j + 1]; ++k) {
        const long long i = indices[k];
        const REAL *grad = pulled + i * (columns + 3 * heads), *row_score = grad + columns + h;
        const REAL z = row_score[0] + col_score[head], lse = row_score[heads], dot = row_score[2 * heads];
        REAL weight = (REAL)exp((z > 0 ? z : slope * z) - lse);
        total += weight * (z > 0 ? dot : slope * dot);
        if (threshold)
            weight = kept(vertex[i], neighbour[j], h, {k0, k1, threshold, first}) ? weight * scale : REAL(0);
        if (exists) {
            const REAL value = weight * grad[column];
            sum += value;
            positive += z > 0 ? value : REAL(0);
        }
    }
    if (exists)
        sums[at] = sum, above[at] = positive;
    if (q == 0)
        totals[head] = total;
}

// The results, out of these sums: a thread takes a head of a row
extern "C" __global__ void attend_gradients(const REAL *sums, const REAL *above, const REAL *totals, const REAL *x,
                                            REAL slope, REAL *dx, REAL *dcol_score, long long items, long long width,
                                            long long accumulate)
{
    const long long head = thread_number();
    if (head >= items)
        return;
    REAL total = -totals[head];
    for (long long at = head * width; at < (head + 1) * width; ++at) {
        total += (slope * sums[at] + (1 - slope) * above[at]) * x[at];
        dx[at] = accumulate ? dx[at] + sums[at] : sums[at];
    }
    dcol_score[head] = accumulate ? dcol_score[head] + total : total;
}

// Sums of two sets of entries of the same rows into one, by online softmax: a thread takes a head of a row
extern "C" __global__ void attend_merge(REAL *out, REAL *lse, const REAL *part, const REAL *part_lse, REAL *above,
                                        REAL *share, const REAL *part_above, const REAL *part_share, long long items,
                                        long long width)
{
    const long long head = thread_number();
    if (head >= items)
        return;
    const REAL none = (REAL)log(0.0), before = lse[head], other = part_lse[head];
    if (other == none)
        return;
    REAL mine = 0, theirs = 1;
    if (before == none) {
        lse[head] = other;
    } else {
        const bool larger = before > other;
        const REAL top = larger ? before : other, low = larger ? other : before;
        const REAL ratio = (REAL)exp(low - top), of_larger = 1 / (1 + ratio);  // in units of the larger sum
        mine = larger ? of_larger : of_larger * ratio;
        theirs = larger ? of_larger * ratio : of_larger;
        lse[head] = top + (REAL)log1p(ratio);
    }
    for (long long at = head * width; at < (head + 1) * width; ++at) {
        out[at] = mine * out[at] + theirs * part[at];
        if (above)
            above[at] = mine * above[at] + theirs * part_above[at];
    }
    if (share)
        share[head] = mine * share[head] + theirs * part_share[head];
}

// What a row gives to the backward by itself, in double until it is stored: a thread takes a head of a row
extern "C" __global__ void attend_dots(const REAL *grad, const REAL *out, const REAL *above, const REAL *share,
                                       const REAL *row_score, const REAL *lse, double slope, REAL *pulled,
                                       REAL *drow_score, long long items, long long heads, long long width)
{
    const long long head = thread_number();
    if (head >= items)
        return;
    const long long i = head / heads, h = head % heads;
    REAL *row = pulled + i * heads * (width + 3), *scores = row + heads * width + h;
    double whole = 0, part = 0;
    for (long long q = 0, at = head * width; q < width; ++q, ++at) {
        row[h * width + q] = grad[at];
        whole += (double)grad[at] * out[at];
        part += (double)grad[at] * above[at];
    }
    scores[0] = row_score[head], scores[heads] = lse[head], scores[2 * heads] = (REAL)whole;
    drow_score[head] = (REAL)((1 - slope) * (part - whole * share[head]));
}

extern "C" __global__ void attention_bits(const long long *vertex, const long long *neighbour, long long items,
                                          long long heads, unsigned k0, unsigned k1, unsigned threshold,
                                          unsigned char *out)
{
    const long long k = thread_number() / heads, h = thread_number() % heads;
    if (k < items)
        out[k * heads + h] = kept(vertex[k], neighbour[k], h, {k0, k1, threshold, 0});
}
