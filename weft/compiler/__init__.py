"""From a program on dense arrays to a schedule of kernels: simplify, fuse, lower to Loops, plan memory."""
