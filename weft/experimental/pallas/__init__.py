"""Kernels on blocks of arrays, written with references: see `pallas_call`."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft.experimental.pallas": "ops tpu triton",
        "weft._engine.util.config": "enable_debug_checks=pallas_enable_debug_checks enable_poison_buffers=pallas_poison_buffers",
        "weft._engine.control.ref_index": "Slice ds dslice=ds",
        "weft._engine.pallas.call": "pallas_call pallas_call_p",
        "weft._engine.pallas.costs": "estimate_cost",
        "weft._engine.pallas.inside": """
        align_to broadcast_to cdiv debug_check debug_print delay empty empty_like empty_ref_like get_global loop
        multiple_of next_power_of_2 num_programs program_id reciprocal run_scoped run_state select_ref strides_from_shape when
        with_scoped
    """,
        "weft.experimental.pallas.triton": "dot",
        "weft._engine.pallas.memory": """
        DeviceIdType load semaphore_read semaphore_signal semaphore_wait store swap
    """,
        "weft._engine.pallas.specs": """
        ANY BlockDim BlockSpec Blocked BoundedSlice Buffered CostEstimate Element GridSpec HOST MemoryRef MemorySpace RevisitMode Squeezed
        no_block_spec squeezed
    """,
    },
)
