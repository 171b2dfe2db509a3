"""The names of kernels for the sparse cores of TPUs: none has a meaning on a CPU, and each says so when it is used."""

from weft.experimental.pallas.absent import absent

__getattr__, __dir__ = absent(__name__, """
    Indices PackFormat addupdate addupdate_compressed addupdate_scatter all_reduce_ffs all_reduce_population_count bitcast cummax
    cumsum fetch_and_add get_sparse_core_info load_expanded load_gather pack parallel_loop scan_count sort_key_val
    store_compressed store_scatter subcore_barrier unpack
""", "it runs on the sparse cores of a TPU. Write the kernel with weft.experimental.pallas alone, which is compiled for this machine.")
