"""See `core`: weft has no GPU kernels."""
