// Passes over dense rows and over parameters: keyed dropout, activation, masks, optimizer steps.
//
// All are bound by memory, Philox included, so each is one pass. A thread takes 8 columns of a row: one Philox block,
// one byte of the mask, and (where rows begin at multiples of 16 bytes) loads and stores of 128 bits. Which bit
// belongs to which column is said in kernels/reference/random.py; the bits are integers, the same on every device.

#ifndef REAL
#define REAL float  // of the numbers; the launcher sets REAL and INDEX
#endif
#ifndef ROW
#define ROW REAL  // as rows are stored
#endif
#ifndef INDEX
#define INDEX int
#endif

#ifdef HPGCN_GPU_ONLY
#define TEAM 32  // threads of a warp take entries of a sparse row in turn
#else
#define TEAM 1
#endif

template <class T> struct __align__(16) Pack {
    T at[16 / sizeof(T)];
};

// What a draw depends on but for vertex and column; keep where a 16-bit lane is not below the threshold. Kernels get
// these words as arguments; of repeated calls, whose arguments are fixed, the epoch is in memory, at `now`
struct Key {
    unsigned epoch, layer, k0, k1, threshold;
};

__device__ __forceinline__ long long thread_number() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }

// Ten rounds of Philox4x32 (Salmon et al. 2011)
__device__ __forceinline__ void philox_words(unsigned (&c)[4], unsigned k0, unsigned k1)
{
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned long long p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
        c[0] = (unsigned)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (unsigned)p1;
        c[2] = (unsigned)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (unsigned)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
}

// Keep bits of the global columns 8 byte .. 8 byte + 7 of a vertex
__device__ __forceinline__ unsigned keep_byte(long long vertex, long long byte, const Key &key)
{
    unsigned c[4] = {(unsigned)vertex, (unsigned)byte, key.epoch, key.layer << 16 | (unsigned)(vertex >> 32)};
    philox_words(c, key.k0, key.k1);
    unsigned bits = 0;
#pragma unroll
    for (int q = 0; q < 8; ++q)
        bits |= (unsigned)((c[q / 2] >> q % 2 * 16 & 0xFFFF) >= key.threshold) << q;
    return bits;
}

// Keep bits of 8 columns from a global column on, which may lie inside a byte: then it takes two draws
__device__ __forceinline__ unsigned keep_eight(long long vertex, long long column, const Key &key)
{
    if (key.threshold == 0)
        return 0xFF;
    const int shift = column & 7;
    unsigned bits = keep_byte(vertex, column >> 3, key);
    if (shift)
        bits = (bits >> shift | keep_byte(vertex, (column >> 3) + 1, key) << (8 - shift)) & 0xFF;
    return bits;
}

template <class T>
__device__ __forceinline__ void load_eight(REAL (&v)[8], const T *at, int count, bool aligned)
{
    constexpr int VEC = 16 / sizeof(T);
    if (aligned) {
#pragma unroll
        for (int p = 0; p < 8 / VEC; ++p) {
            const Pack<T> pack = reinterpret_cast<const Pack<T> *>(at)[p];
#pragma unroll
            for (int q = 0; q < VEC; ++q)
                v[p * VEC + q] = pack.at[q];
        }
        return;
    }
#pragma unroll
    for (int q = 0; q < 8; ++q)
        v[q] = q < count ? (REAL)at[q] : REAL(0);
}

template <class T>
__device__ __forceinline__ void store_eight(const REAL (&v)[8], T *at, int count, bool aligned)
{
    constexpr int VEC = 16 / sizeof(T);
    if (aligned) {
#pragma unroll
        for (int p = 0; p < 8 / VEC; ++p) {
            Pack<T> pack;
#pragma unroll
            for (int q = 0; q < VEC; ++q)
                pack.at[q] = (T)v[p * VEC + q];
            reinterpret_cast<Pack<T> *>(at)[p] = pack;
        }
        return;
    }
#pragma unroll
    for (int q = 0; q < 8; ++q)
        if (q < count)
            at[q] = (T)v[q];
}

// The group of 8 columns that a thread takes: row i, byte b of it, and the number of columns that exist
struct Eight {
    long long i, b, at;
    int count;
};

__device__ __forceinline__ Eight eight(long long width)
{
    const long long bytes = (width + 7) / 8, i = thread_number() / bytes, b = thread_number() % bytes;
    const long long left = width - 8 * b;
    return {i, b, i * width + 8 * b, left < 8 ? (int)left : 8};
}

extern "C" __global__ void philox(const unsigned *counter, long long items, unsigned k0, unsigned k1, unsigned *out)
{
    const long long i = thread_number();
    if (i >= items)
        return;
    unsigned c[4] = {counter[4 * i], counter[4 * i + 1], counter[4 * i + 2], counter[4 * i + 3]};
    philox_words(c, k0, k1);
    for (int word = 0; word < 4; ++word)
        out[4 * i + word] = c[word];
}

extern "C" __global__ void dropout_bits(const long long *vertex, long long m, long long width, long long first,
                                        const unsigned *now, unsigned epoch, unsigned layer, unsigned k0, unsigned k1,
                                        unsigned threshold, unsigned char *out)
{
    const Eight e = eight(width);
    if (e.i >= m)
        return;
    const unsigned bits = keep_eight(vertex[e.i], first + 8 * e.b, {now ? *now : epoch, layer, k0, k1, threshold});
    out[thread_number()] = (unsigned char)(bits & 0xFFu >> (8 - e.count));  // pad bits are 0
}

extern "C" __global__ void dropout(const ROW *x, const long long *vertex, long long m, long long width, long long first,
                                   const unsigned *now, unsigned epoch, unsigned layer, unsigned k0, unsigned k1,
                                   unsigned threshold, REAL scale, ROW *out, long long aligned)
{
    const Eight e = eight(width);
    if (e.i >= m)
        return;
    const unsigned bits = keep_eight(vertex[e.i], first + 8 * e.b, {now ? *now : epoch, layer, k0, k1, threshold});
    REAL v[8];
    load_eight(v, x + e.at, e.count, aligned && e.count == 8);
#pragma unroll
    for (int q = 0; q < 8; ++q)
        v[q] = bits >> q & 1 ? v[q] * scale : REAL(0);
    store_eight(v, out + e.at, e.count, aligned && e.count == 8);
}

// A team takes a row. Entries of one byte share a draw only by chance here: drawing again costs less than telling
extern "C" __global__ void dropout_csr(const long long *indptr, const INDEX *indices, const REAL *data,
                                       const long long *vertex, long long m, long long first, const unsigned *now,
                                       unsigned epoch, unsigned layer, unsigned k0, unsigned k1, unsigned threshold,
                                       REAL scale, REAL *out)
{
    const long long i = thread_number() / TEAM;
    if (i >= m)
        return;
    const Key key = {now ? *now : epoch, layer, k0, k1, threshold};
    for (long long k = indptr[i] + threadIdx.x % TEAM; k < indptr[i + 1]; k += TEAM) {
        const long long column = first + indices[k];
        out[k] = keep_byte(vertex[i], column >> 3, key) >> (column & 7) & 1 ? data[k] * scale : REAL(0);
    }
}

// In place z = keep * scale * relu(z + bias); the bits kept go to mask. vertex is not read where nothing is dropped
extern "C" __global__ void activate(ROW *z, const REAL *bias, const long long *vertex, long long m, long long width,
                                    long long relu, long long first, const unsigned *now, unsigned epoch,
                                    unsigned layer, unsigned k0, unsigned k1, unsigned threshold, REAL scale,
                                    unsigned char *mask, long long drawn, long long aligned)
{
    const Eight e = eight(width);
    if (e.i >= m)
        return;
    unsigned bits = 0xFF;
    if (drawn)
        bits = mask[thread_number()];
    else if (threshold)
        bits = keep_eight(vertex[e.i], first + 8 * e.b, {now ? *now : epoch, layer, k0, k1, threshold});
    bits &= 0xFFu >> (8 - e.count);
    REAL v[8], addend[8];
    load_eight(v, z + e.at, e.count, aligned && e.count == 8);
    load_eight(addend, bias + 8 * e.b, e.count, aligned && e.count == 8);
#pragma unroll
    for (int q = 0; q < 8; ++q) {
        const REAL value = v[q] + addend[q];
        if (relu && value <= REAL(0))  // not for NaN: it passes on, and the loss shows it
            bits &= ~(1u << q);
        v[q] = bits >> q & 1 ? value * scale : REAL(0);
    }
    store_eight(v, z + e.at, e.count, aligned && e.count == 8);
    if (mask)
        mask[thread_number()] = (unsigned char)bits;
}

// In place z = keep * scale * act(z + bias), ELU or GELU, in double and rounded as it is stored; slopes get keep * scale
// * act', the mask what dropout keeps
extern "C" __global__ void activate_smooth(REAL *z, const REAL *bias, const long long *vertex, long long m,
                                           long long width, long long elu, long long first, const unsigned *now,
                                           unsigned epoch, unsigned layer, unsigned k0, unsigned k1, unsigned threshold,
                                           double scale, unsigned char *mask, REAL *slopes)
{
    const Eight e = eight(width);
    if (e.i >= m)
        return;
    unsigned bits = 0xFF;
    if (threshold)
        bits = keep_eight(vertex[e.i], first + 8 * e.b, {now ? *now : epoch, layer, k0, k1, threshold});
    bits &= 0xFFu >> (8 - e.count);
    for (int q = 0; q < e.count; ++q) {
        const double value = (REAL)(z[e.at + q] + bias[8 * e.b + q]);
        double result = value, rise = 1;
        if (!elu) {
            const double below = (1 + erf(value * 0.70710678118654752)) / 2;
            result = value * below;
            rise = below + value * 0.39894228040143268 * exp(-value * value / 2);
        } else if (!(value > 0)) {
            result = expm1(value);
            rise = result + 1;
        }
        const bool kept = bits >> q & 1;
        z[e.at + q] = kept ? (REAL)(result * scale) : REAL(0);
        if (slopes)
            slopes[e.at + q] = kept ? (REAL)(rise * scale) : REAL(0);
    }
    if (mask)
        mask[thread_number()] = (unsigned char)bits;
}

extern "C" __global__ void elu_backward(REAL *g, const REAL *out, const unsigned char *mask, long long m,
                                        long long width, double scale)
{
    const long long at = thread_number(), i = at / width, q = at % width;
    if (i >= m)
        return;
    const bool kept = !mask || (mask[i * ((width + 7) / 8) + q / 8] >> (q & 7) & 1);
    g[at] = kept ? (REAL)(g[at] * (out[at] > REAL(0) ? scale : out[at] + scale)) : REAL(0);
}

extern "C" __global__ void apply_mask(ROW *x, const unsigned char *mask, long long m, long long width, REAL scale,
                                      long long aligned)
{
    const Eight e = eight(width);
    if (e.i >= m)
        return;
    const unsigned bits = mask[thread_number()];
    REAL v[8];
    load_eight(v, x + e.at, e.count, aligned && e.count == 8);
#pragma unroll
    for (int q = 0; q < 8; ++q)
        v[q] = bits >> q & 1 ? v[q] * scale : REAL(0);
    store_eight(v, x + e.at, e.count, aligned && e.count == 8);
}

// Computed in double and rounded as it is stored
extern "C" __global__ void adam(REAL *w, const REAL *g, REAL *mean, REAL *variance, long long size, double decay,
                                long long decayed, double beta1, double beta2, double rate, double correction,
                                double epsilon)
{
    const long long i = thread_number();
    if (i >= size)
        return;
    const double slope = i < decayed ? g[i] + decay * w[i] : (double)g[i];
    mean[i] = (REAL)(mean[i] + (1 - beta1) * (slope - mean[i]));
    variance[i] = (REAL)(variance[i] + (1 - beta2) * (slope * slope - variance[i]));
    w[i] = (REAL)(w[i] - rate * mean[i] / (sqrt((double)variance[i]) * correction + epsilon));
}

extern "C" __global__ void sgd(REAL *w, const REAL *g, long long size, double decay, long long decayed, double rate)
{
    const long long i = thread_number();
    if (i < size)
        w[i] = (REAL)(w[i] - rate * (i < decayed ? g[i] + decay * w[i] : (double)g[i]));
}

// The first words of `out`, as repeated calls read them
extern "C" __global__ void set_words(unsigned *out, long long count, unsigned w0, unsigned w1, unsigned w2,
                                     unsigned w3, unsigned w4, unsigned w5, unsigned w6, unsigned w7, unsigned w8,
                                     unsigned w9, unsigned w10, unsigned w11, unsigned w12, unsigned w13,
                                     unsigned w14, unsigned w15)
{
    const unsigned words[16] = {w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15};
    const long long i = thread_number();
    if (i < count)
        out[i] = words[i];
}
