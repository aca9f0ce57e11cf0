// In front of every source.

// A number in rows of 16 bits: bfloat16, unpacked in a register, rounded to nearest even as it is stored. ROW is the type
// of rows, which the launcher sets where it is not REAL.
struct Bf16 {
    unsigned short bits;

    Bf16() = default;
    __device__ __forceinline__ Bf16(float value)
    {
        union {
            float number;
            unsigned word;
        } of = {value};
        if (value != value)
            bits = (unsigned short)((of.word | 0x400000u) >> 16);  // NaN made quiet
        else
            bits = (unsigned short)((of.word + 0x7FFFu + (of.word >> 16 & 1u)) >> 16);
    }
    __device__ __forceinline__ operator float() const
    {
        union {
            unsigned word;
            float number;
        } of = {(unsigned)bits << 16};
        return of.number;
    }
};

// Row of entry k: the last of m rows whose first entry is not after k, because empty rows begin where others do
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
