"""See `core`: there are no GPU kernels here."""
