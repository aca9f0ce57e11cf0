// Graph attention of K heads: online softmax and weighted sums in one pass over a row, and the gradients along A^T.
//
// A thread takes one column of a row and its entries in order, as in aggregate.cu: neighboring threads read
// neighboring numbers of x, all sums stay in registers and are written once. The threads of a head compute the same
// weights, each for itself: exp and Philox are repeated f times, and no thread waits for another. The order of sums
// depends on the lengths of rows only; nothing of the size of the nonzeros is kept.

#ifndef REAL
#define REAL float  // of all numbers; the launcher sets REAL and INDEX
#endif
#ifndef INDEX
#define INDEX int
#endif

// What a draw depends on but for entry and head; keep where a 16-bit lane is not below the threshold. The two words k0
// and k1 are arguments of kernels; of repeated calls, whose arguments are fixed, they are in memory, at `now`
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

// Items are rows, or pieces of long rows, whose sums go to slots of their own and are added by another kernel: no thread
// waits long for the one with the longest row.
struct Item {
    long long row, begin, end, slot;  // slot is below 0 for a whole row
};

__device__ __forceinline__ Item item_of(const long long *indptr, const long long *pieces, long long number)
{
    if (pieces)
        return {pieces[4 * number], pieces[4 * number + 1], pieces[4 * number + 2], pieces[4 * number + 3]};
    return {number, indptr[number], indptr[number + 1], -1};
}

constexpr int DEEP = 4;  // entries whose numbers are asked for before the first is added

// The threads that share a head of a row, a power of two: each looks after one entry of a chunk and gives its weight to
// the others, which have a column each. So a weight takes one exponential for all columns.
struct Lanes {
    int count, lane;
#ifdef HPGCN_GPU_ONLY
    unsigned members;

    __device__ __forceinline__ Lanes(long long lanes) : count((int)lanes), lane((int)(threadIdx.x % lanes))
    {
        const unsigned all = count == 32 ? ~0u : (1u << count) - 1;
        members = all << (threadIdx.x % 32 - lane);
    }
    template <class T> __device__ __forceinline__ T take(T value, int source) const
    {
        return __shfl_sync(members, value, source, count);
    }
    template <class T> __device__ __forceinline__ T add(T value) const
    {
        for (int other = count / 2; other; other /= 2)
            value += __shfl_xor_sync(members, value, other, count);
        return value;
    }
    template <class T> __device__ __forceinline__ T most(T value) const
    {
        for (int other = count / 2; other; other /= 2) {
            const T rival = __shfl_xor_sync(members, value, other, count);
            value = rival > value ? rival : value;
        }
        return value;
    }
#else  // one thread
    __device__ __forceinline__ Lanes(long long) : count(1), lane(0) {}
    template <class T> __device__ __forceinline__ T take(T value, int) const { return value; }
    template <class T> __device__ __forceinline__ T add(T value) const { return value; }
    template <class T> __device__ __forceinline__ T most(T value) const { return value; }
#endif
};

// Sums of weight value, and of those with a score above 0, over a chunk of entries: a column of the rows whose first
// numbers are `stride` apart, at `from` of the lane of each entry
__device__ __forceinline__ void add_chunk(const Lanes &lanes, long long entries, const REAL *rows, long long stride,
                                          INDEX from, REAL weight, REAL above, bool exists, REAL &sum, REAL &positive)
{
    const int count = entries < lanes.count ? (int)entries : lanes.count;
    for (int e = 0; e < count; e += DEEP) {
        REAL values[DEEP];
#pragma unroll
        for (int u = 0; u < DEEP; ++u) {
            const long long row = lanes.take(from, e + u);
            values[u] = exists && e + u < count ? rows[row * stride] : REAL(0);
        }
#pragma unroll
        for (int u = 0; u < DEEP; ++u) {
            const REAL all = lanes.take(weight, e + u), part = lanes.take(above, e + u);
            if (e + u < count) {
                sum += all * values[u];
                positive += part * values[u];
            }
        }
    }
}

// Sums of one column of a head, relative to exp(top)
struct State {
    REAL top, total, sum, positive, part;

    __device__ __forceinline__ void raise(REAL score)
    {
        if (score > top) {
            const REAL factor = (REAL)exp(top - score);
            total *= factor, sum *= factor, positive *= factor, part *= factor;
            top = score;
        }
    }
};

// The results of a row. A head has `span` threads: its columns, one where it has none.
struct Results {
    REAL *out, *lse, *above, *share;
    long long heads, width, head, q;  // head counts from the first of row 0

    __device__ __forceinline__ long long at() const { return head * width + q; }

    // What a row begins with: what it holds where `before`, lse as it was, is given. Threads of a head read it while one
    // of them writes lse.
    __device__ __forceinline__ State start(const REAL *before) const
    {
        const REAL none = (REAL)log(0.0);
        State state = {none, 0, 0, 0, 0};
        if (before && before[head] != none) {
            state.top = before[head], state.total = 1;
            state.sum = q < width ? out[at()] : REAL(0);
            state.positive = above && q < width ? above[at()] : REAL(0);
            state.part = share && q == 0 ? share[head] : REAL(0);
        }
        return state;
    }
    __device__ __forceinline__ void finish(const State &state) const
    {
        const REAL factor = state.total == 0 ? REAL(0) : 1 / state.total;
        if (q < width) {
            out[at()] = state.sum * factor;
            if (above)
                above[at()] = state.positive * factor;
        }
        if (q == 0) {
            lse[head] = state.total == 0 ? (REAL)log(0.0) : state.top + (REAL)log(state.total);
            if (share)
                share[head] = state.part * factor;
        }
    }
};

// Place in `carries` of a head of a slot: top, total and part, then two numbers for each column
__device__ __forceinline__ REAL *carried(REAL *carries, long long slot, long long h, long long heads, long long width)
{
    return carries + (slot * heads + h) * (3 + 2 * width);
}

extern "C" __global__ void attend(const long long *__restrict__ indptr, const INDEX *__restrict__ indices,
                                  const long long *__restrict__ pieces, REAL *__restrict__ carries,
                                  const REAL *__restrict__ x, const REAL *__restrict__ row_score,
                                  const REAL *__restrict__ col_score, REAL *__restrict__ out, REAL *__restrict__ lse,
                                  REAL *__restrict__ above, REAL *__restrict__ share, REAL slope,
                                  const long long *__restrict__ vertex, const long long *__restrict__ neighbor,
                                  const unsigned *now, unsigned k0, unsigned k1, unsigned threshold, unsigned first,
                                  REAL scale, const REAL *__restrict__ before, long long items, long long heads,
                                  long long width, long long span, long long team)
{
    if (now)
        k0 = now[0], k1 = now[1];
    const Lanes lanes(team);
    const long long place = thread_number() / span, q = thread_number() % span;
    const long long number = place / heads, h = place % heads;
    if (number >= items)
        return;
    const Item item = item_of(indptr, pieces, number);
    const long long i = item.row, head = i * heads + h, columns = heads * width;
    const bool exists = q < width;
    const Results results = {out, lse, above, share, heads, width, head, q};
    const REAL mine = row_score[head], none = (REAL)log(0.0);
    State state = results.start(item.slot < 0 ? before : nullptr);
    if (lanes.lane)  // of what the row held, the first thread has the total
        state.total = 0;
    for (long long k = item.begin; k < item.end; k += lanes.count) {
        const bool there = k + lanes.lane < item.end;
        const INDEX j = there ? indices[k + lanes.lane] : (INDEX)0;
        const REAL z = there ? mine + col_score[(long long)j * heads + h] : none;
        const REAL score = z > 0 ? z : slope * z;
        state.raise(lanes.most(there ? score : none));
        REAL weight = there ? (REAL)exp(score - state.top) : REAL(0);
        state.total += weight;
        state.part += z > 0 ? weight : REAL(0);
        if (threshold && there)
            weight = kept(vertex[i], neighbor[j], h, {k0, k1, threshold, first}) ? weight * scale : REAL(0);
        add_chunk(lanes, item.end - k, x + h * width + q, columns, j, weight, z > 0 ? weight : REAL(0), exists,
                  state.sum, state.positive);
    }
    state.total = lanes.add(state.total), state.part = lanes.add(state.part);
    if (item.slot < 0) {
        results.finish(state);
        return;
    }
    REAL *const slot = carried(carries, item.slot, h, heads, width);
    if (q == 0)
        slot[0] = state.top, slot[1] = state.total, slot[2] = state.part;
    if (exists)
        slot[3 + q] = state.sum, slot[3 + width + q] = state.positive;
}

// Rows that were cut: a thread takes one column of the pieces firsts[c] to firsts[c + 1] of row cut[c], in order
extern "C" __global__ void attend_pieces(REAL *carries, const long long *cut, const long long *firsts, REAL *out,
                                         REAL *lse, REAL *above, REAL *share, const REAL *before, long long items,
                                         long long heads, long long width, long long span)
{
    const long long place = thread_number() / span, q = thread_number() % span;
    const long long c = place / heads, h = place % heads;
    if (c >= items)
        return;
    const Results results = {out, lse, above, share, heads, width, cut[c] * heads + h, q};
    const bool exists = q < width;
    State state = results.start(before);
    for (long long slot = firsts[c]; slot < firsts[c + 1]; ++slot) {
        const REAL *const part = carried(carries, slot, h, heads, width);
        state.raise(part[0]);
        const REAL factor = (REAL)exp(part[0] - state.top);
        state.total += part[1] * factor;
        state.part += part[2] * factor;
        state.sum += exists ? part[3 + q] * factor : REAL(0);
        state.positive += exists ? part[3 + width + q] * factor : REAL(0);
    }
    results.finish(state);
}

// Along a row j of A^T: of all entries, then of those with a score above 0, sums of keep alpha grad, of each column; then
// of each head, total, the sum of alpha LeakyReLU' dot. They lie in a row of `sums`, or in a slot of `carries`.
extern "C" __global__ void attend_backward(const long long *__restrict__ indptr, const INDEX *__restrict__ indices,
                                           const long long *__restrict__ pieces, REAL *__restrict__ carries,
                                           const REAL *__restrict__ pulled, const REAL *__restrict__ col_score,
                                           REAL *__restrict__ sums, REAL slope, const long long *__restrict__ vertex,
                                           const long long *__restrict__ neighbor, const unsigned *now, unsigned k0,
                                           unsigned k1, unsigned threshold, unsigned first, REAL scale, long long items,
                                           long long heads, long long width, long long span, long long team)
{
    if (now)
        k0 = now[0], k1 = now[1];
    const Lanes lanes(team);
    const long long place = thread_number() / span, q = thread_number() % span;
    const long long number = place / heads, h = place % heads;
    if (number >= items)
        return;
    const Item item = item_of(indptr, pieces, number);
    const long long columns = heads * width, column = h * width + q, stride = columns + 3 * heads;
    const bool exists = q < width;
    const REAL mine = col_score[item.row * heads + h];
    REAL sum = 0, positive = 0, total = 0;
    for (long long k = item.begin; k < item.end; k += lanes.count) {
        const bool there = k + lanes.lane < item.end;
        const INDEX i = there ? indices[k + lanes.lane] : (INDEX)0;
        REAL z = 0, weight = 0;
        if (there) {
            const REAL *const row_score = pulled + i * stride + columns + h;
            z = row_score[0] + mine;
            weight = (REAL)exp((z > 0 ? z : slope * z) - row_score[heads]);
            total += weight * (z > 0 ? REAL(1) : slope) * row_score[2 * heads];
            if (threshold)
                weight = kept(vertex[i], neighbor[item.row], h, {k0, k1, threshold, first}) ? weight * scale : REAL(0);
        }
        add_chunk(lanes, item.end - k, pulled + column, stride, i, weight, z > 0 ? weight : REAL(0), exists, sum,
                  positive);
    }
    total = lanes.add(total);
    const long long numbers = 2 * columns + heads;
    REAL *const row = item.slot < 0 ? sums + item.row * numbers : carries + item.slot * numbers;
    if (exists)
        row[column] = sum, row[columns + column] = positive;
    if (q == 0)
        row[2 * columns + h] = total;
}

// The results, out of these sums: a team takes a head of a row
extern "C" __global__ void attend_gradients(const REAL *sums, const REAL *x, REAL slope, REAL *dx, REAL *dcol_score,
                                            long long items, long long heads, long long width, long long accumulate,
                                            long long team)
{
    const Lanes lanes(team);
    const long long head = thread_number() / lanes.count;
    if (head >= items)
        return;
    const long long columns = heads * width, h = head % heads;
    const REAL *const row = sums + head / heads * (2 * columns + heads);
    REAL total = lanes.lane ? REAL(0) : -row[2 * columns + h];
    for (long long q = lanes.lane; q < width; q += lanes.count) {
        const REAL sum = row[h * width + q], above = row[columns + h * width + q];
        const long long at = head * width + q;
        total += (slope * sum + (1 - slope) * above) * x[at];
        dx[at] = accumulate ? dx[at] + sum : sum;
    }
    total = lanes.add(total);
    if (lanes.lane == 0)
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

// What a row gives to the backward by itself, in double until it is stored: a team takes a head of a row
extern "C" __global__ void attend_dots(const REAL *grad, const REAL *out, const REAL *above, const REAL *share,
                                       const REAL *row_score, const REAL *lse, double slope, REAL *pulled,
                                       REAL *drow_score, long long items, long long heads, long long width,
                                       long long team)
{
    const Lanes lanes(team);
    const long long head = thread_number() / lanes.count;
    if (head >= items)
        return;
    const long long i = head / heads, h = head % heads;
    REAL *row = pulled + i * heads * (width + 3), *scores = row + heads * width + h;
    double whole = 0, part = 0;
    for (long long q = lanes.lane; q < width; q += lanes.count) {
        const long long at = head * width + q;
        row[h * width + q] = grad[at];
        whole += (double)grad[at] * out[at];
        part += (double)grad[at] * above[at];
    }
    whole = lanes.add(whole), part = lanes.add(part);
    if (lanes.lane)
        return;
    scores[0] = row_score[head], scores[heads] = lse[head], scores[2 * heads] = (REAL)whole;
    drow_score[head] = (REAL)((1 - slope) * (part - whole * share[head]));
}

extern "C" __global__ void attention_bits(const long long *vertex, const long long *neighbor, long long items,
                                          long long heads, const unsigned *now, unsigned k0, unsigned k1,
                                          unsigned threshold, unsigned char *out)
{
    if (now)
        k0 = now[0], k1 = now[1];
    const long long k = thread_number() / heads, h = thread_number() % heads;
    if (k < items)
        out[k * heads + h] = kept(vertex[k], neighbor[k], h, {k0, k1, threshold, 0});
}
