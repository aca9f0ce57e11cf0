"""The machine below kernels: cores, memory, threads, compiler and its cache."""
