"""Options of a compiler of GPU kernels that are meaningful without a GPU."""
