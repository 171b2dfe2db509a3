"""What programs ask of a compiler of GPU kernels, where that means something without a GPU."""
