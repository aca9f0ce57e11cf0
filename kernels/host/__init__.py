"""What kernels need of the machine: cores, memory, threads, compiler and its cache."""
