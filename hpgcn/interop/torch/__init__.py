"""PyTorch: kernels as its operators, its models on ranks, weights of PyG."""
