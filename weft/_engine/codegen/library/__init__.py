"""Native routines not generated from Loops: FFTs, sorts, joins, copies, BLAS and LAPACK calls.

In:   the kind, types and sizes of a routine.
Out:  its symbol and its code, compiled once per machine and cached on disk.
Next: `fft` (with `fft_passes` and `fft_load_store`), `sort`, `join`, `lapack`, `strided_copy`;
      `process_calls` and `process_reduction` for collectives.
"""
