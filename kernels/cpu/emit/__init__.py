"""Emitters of LLVM vector code for the CPU kernels."""
