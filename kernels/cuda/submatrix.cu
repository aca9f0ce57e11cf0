// Batches cut out of a matrix: keyed draws, and the entries that a batch keeps.
//
// The hashes are those of hpgcn.sampling on the CPU, bit for bit. A thread has one slot: a place where an entry of a
// row may go. Slots of rows follow each other, so long rows keep as many threads busy as many short ones. A slot has
// one writer, and the caller closes the gaps with a scan: nothing depends on the order of threads.

#ifndef INDEX
#define INDEX int  // of columns
#endif

typedef unsigned long long Word;
#define GOLDEN 0x9E3779B97F4A7C15ull

// the finalizer of SplitMix64
__device__ __forceinline__ Word mix(Word x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// out[i] = image of numbers[i] < n under a Feistel network of `bits` bits and six rounds, walked until it is below n
extern "C" __global__ void permute(const long long *numbers, long long n, long long bits, Word key, long long *out,
                                   long long items)
{
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= items)
        return;
    const Word half = bits / 2, low_mask = (1ull << half) - 1, high_mask = (1ull << (bits - half)) - 1;
    Word x = numbers[i];
    do {
        Word low = x & low_mask, high = x >> half;
        for (int step = 0; step < 6; step += 2) {
            const Word first = key + step * GOLDEN;
            high ^= mix(first + low) & high_mask;
            low ^= mix(first + GOLDEN + (high << 32)) & low_mask;
        }
        x = high << half | low;
    } while (x >= (Word)n);
    out[i] = x;
}

// entry[t]: the entry of slot t, or -1 if its column is not in the batch; each entry of a row has a slot
extern "C" __global__ void entries_in_batch(const long long *begins, const long long *starts, long long rows,
                                            const INDEX *columns, const int *number, long long batch,
                                            long long *entry, long long items)
{
    const long long t = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= items)
        return;
    const long long k = row_of(starts, rows, t), e = begins[k] + t - starts[k];
    entry[t] = number[columns[e]] == batch ? e : -1;
}

// draws[t]: the number that the step of slot t draws by Floyd's algorithm, or -1 in a row that is taken whole
extern "C" __global__ void draw(const long long *starts, long long rows, const long long *lines,
                                const long long *degrees, const long long *vertex, long long count, Word key,
                                long long *draws, long long items)
{
    const long long t = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= items)
        return;
    const long long k = row_of(starts, rows, t), i = lines[k], degree = degrees[i];
    if (count < 0 || degree <= count) {
        draws[t] = -1;
        return;
    }
    const Word own = mix(mix(key + GOLDEN) + (Word)vertex[i] * GOLDEN);
    const Word next = degree - count + t - starts[k] + 1;
    draws[t] = mix(own + next * GOLDEN) % next;
}

// entry[t]: the entry of slot t, or -1 if another rank stores it. Step j of Floyd's algorithm takes j if its draw was
// taken before. That is so if an earlier step drew the same number, or if the step of this number took it instead of
// its own draw. So each thread finds out alone what its step takes.
extern "C" __global__ void choose(const long long *begins, const long long *ends, const long long *starts,
                                  long long rows, const long long *lines, const long long *degrees,
                                  const long long *positions, const long long *draws, long long *entry,
                                  long long items)
{
    const long long t = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= items)
        return;
    const long long k = row_of(starts, rows, t), start = starts[k], first = begins[k], last = ends[k];
    if (draws[t] < 0) {
        entry[t] = first + t - start;
        return;
    }

    // numbers from `base` on are also numbers of steps
    const long long degree = degrees[lines[k]], base = degree - (starts[k + 1] - start);
    bool taken = false;
    for (long long at = t; !taken;) {
        for (long long other = start; other < at && !taken; ++other)
            taken = draws[other] == draws[at];
        if (draws[at] < base || draws[at] - base + start >= at)
            break;
        at = draws[at] - base + start;
    }
    const long long wanted = taken ? base + t - start : draws[t];

    // where the entry is, if this rank stores a part of the row
    if (last - first == degree) {
        entry[t] = first + wanted;
        return;
    }
    long long low = first, high = last;
    while (low < high) {
        const long long middle = (low + high) / 2;
        if (positions[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    entry[t] = low < last && positions[low] == wanted ? low : -1;
}
