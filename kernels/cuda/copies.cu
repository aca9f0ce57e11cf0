// Rows of another type: copied, and added.

#ifndef FROM
#define FROM float  // of what is read; the launcher sets FROM and TO
#endif
#ifndef TO
#define TO Bf16
#endif

extern "C" __global__ void convert(const FROM *x, TO *out, long long size)
{
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size)
        out[i] = (TO)x[i];
}

extern "C" __global__ void add(const FROM *x, FROM *out, long long size)
{
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size)
        out[i] = out[i] + x[i];
}
