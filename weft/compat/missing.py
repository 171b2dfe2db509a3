"""Why weft does not have a public name of JAX: a reason for each, which the error for the name says.

In:   a module of JAX and a name in it.
Out:  the reason, or None where no reason is known.
Law:  `docs/missing-names.md` lists these names with their reasons; a test holds that every public name is there or has one.
"""

from __future__ import annotations

_PRIMITIVE = "there is no such primitive: programs hold the operations that it is made of"
_HELPER = "a helper of JAX's own code that its module happens to show; no page describes it"
_TPU = "it drives parts of a TPU's core; kernels are compiled for CPUs"
_XLA = "it hooks into XLA's or MLIR's own objects, and programs are compiled by weft; `lower().as_text()` gives StableHLO and HLO as text"

#: reason -> module -> names, or "*" for all that are missing
_MISSING: dict[str, dict[str, str]] = {
    _PRIMITIVE: {
        "jax.lax": "mulhi_p rng_bit_generator_p reduce_p", "jax.lax.linalg": "*", "jax.extend.core.primitives": "*", "jax.random": "*",
        "jax.experimental.sparse.linalg": "*",
    },
    _HELPER: {
        "jax.experimental.jet": "*", "jax.experimental.multihost_utils": "*", "jax.experimental.ode": "*", "jax.experimental.rnn": "*",
        "jax.experimental.mesh_utils": "*", "jax.example_libraries.optimizers": "*",
        "jax.example_libraries.stax": "*", "jax.experimental.roofline.roofline": "*", "jax.experimental.roofline.rooflines": "*",
        "jax.experimental.scheduling_groups": "*", "jax.experimental.source_mapper.mlir": "*",
    },
    _TPU: {
        "jax.experimental.pallas.tpu": "*", "jax.experimental.pallas": "Indirect core_map kernel semaphore",
    },
    "pipelines of copies between memories overlap nothing on a CPU; `pallas_call` with a grid does the same": {
        "jax.experimental.pallas.tpu": "BufferedRef BufferedRefBase emit_pipeline emit_pipeline_with_allocations",
    },
    "copies and semaphores between devices are collectives here: call `shard_map` around the kernel": {
        "jax.experimental.pallas.tpu": "async_remote_copy make_async_remote_copy core_barrier get_barrier_semaphore",
    },
    "a generator in a TPU's core makes them; draw with `jax.random` outside of the kernel and pass the values": {
        "jax.experimental.pallas.tpu": """
            prng_random_bits prng_seed sample_block stateful_bernoulli stateful_bits stateful_normal stateful_uniform stochastic_round
            to_pallas_key
        """,
    },
    "it rewrites kernels for a TPU's compiler; operations around a kernel are fused by weft itself": {"jax.experimental.pallas.fuser": "*"},
    _XLA: {
        "jax.extend.backend": "ifrt_proxy", "jax.extend.lowering": "*", "jax.extend.mlir": "*", "jax.extend.pallas": "*",
        "jax.extend.sharding": "*", "jax.extend.xla": "*", "jax.experimental.pallas": "lower_as_mlir pallas_export_experimental",
        "jax.ffi": "build_ffi_lowering_function ffi_lowering",
    },
    "functions of other languages are called as Python functions or by their address; there are no headers and types of XLA's interface": {
        "jax.ffi": "include_dir register_ffi_target_as_batch_partitionable register_ffi_type register_ffi_type_id",
    },
    "it compiles a function of values in two memories to one kernel, which JAX does for GPUs alone; there is one memory here": {
        "jax.experimental.fused": "*",
    },
    "it carries notes to passes of XLA, and there are none": {"jax.experimental.control_deps": "*"},
    "arrays move between processes by `device_put` to a mesh of all of them": {"jax.experimental.transfer": "*"},
    "profiles are written as traces of Perfetto, not as XLA's protocol buffers": {
        "jax.profiler": "ProfileData ProfileEvent ProfilePlane", "jax.experimental.profiler": "*",
    },
    "programs are compiled in this process; options of the compiler are `generate_sourcemaps(..., xla_compiler_flags=...)`": {
        "jax.experimental.source_mapper": "compile_with_env", "jax.experimental.source_mapper.common": "*",
    },
    "each process writes a profile of its own": {"jax.profiler": "register_subprocess"},
    "a setting of JAX that weft does not have: what it chooses is always so, or never": {
        "jax": """
            array_garbage_collection_guard jax2tf_associative_scan_reductions thread_guard
        """,
    },
    "effects of printing are part of a program's order here; no object stands for them": {"jax.debug": "*"},
    "dtypes with a dtype of tangents of their own are not there; a `HiType` has such tangents": {
        "jax.experimental": "EArray primal_tangent_dtype",
    },
}


def why(module: str, name: str) -> str | None:
    """The reason for a missing name: that of the name itself, else that of its whole module.

    >>> why("jax.profiler", "register_subprocess")
    'each process writes a profile of its own'
    """
    whole = None
    for reason, modules in _MISSING.items():
        names = modules.get(module, "").split()
        if name in names:
            return reason
        if names == ["*"]:
            whole = reason
    if whole is None and name.endswith("_p") and module.startswith(("jax.lax", "jax.experimental.sparse", "jax.extend.core")):
        return _PRIMITIVE
    return whole


def why_module(module: str) -> str | None:
    """The reason for a missing module.

    >>> why_module("jax.experimental.transfer")
    'arrays move between processes by `device_put` to a mesh of all of them'
    """
    return next((reason for reason, modules in _MISSING.items() if modules.get(module) == "*"), None)
