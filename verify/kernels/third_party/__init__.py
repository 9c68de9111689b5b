"""One lazy adapter for each library: a module with a tuple `KERNELS` and a factory."""
