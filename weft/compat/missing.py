"""The public names of JAX that weft refuses: the one table, with the reason for each.

In:   a module of JAX and a name in it.
Out:  the reason, and the object for the name: it can be imported, and raises NotImplementedError when it is used.
Laws: every public name of JAX is available or in this table, and a test compares their kinds with those in JAX. `docs/missing-names.md`
      lists the table.

Next to read: `refuse` (the objects).
"""

from __future__ import annotations

from typing import Any

_PRIMITIVE = "weft composes this operation from other primitives, and programs contain those"
_HELPER = "it is an internal helper of JAX that its module exposes; no page documents it"
_TPU = "it drives parts of a TPU core; kernels are compiled for CPUs"
_XLA = "it hooks into objects of XLA or MLIR, and weft compiles programs itself; `lower().as_text()` gives StableHLO and HLO as text"
_MLIR = (
    "weft compiles from its own programs and makes no MLIR. State what the primitive computes as a function of arrays:"
    " `register_lowering(p, lower_fun(fun))`"
)
_NCCL = "separate send and receive serve GPUs that communicate by NCCL. Use `lax.ppermute`, which does both"

#: reason -> module -> names, or "*" for all that weft does not have
_MISSING: dict[str, dict[str, str]] = {
    _PRIMITIVE: {
        "jax.lax": "mulhi_p rng_bit_generator_p reduce_p",
        "jax.lax.linalg": "*",
        "jax.extend.core.primitives": "*",
        "jax.random": "*",
        "jax.experimental.sparse.linalg": "*",
    },
    _HELPER: {
        "jax.experimental.jet": "*",
        "jax.experimental.multihost_utils": "*",
        "jax.experimental.ode": "*",
        "jax.experimental.rnn": "*",
        "jax.example_libraries.optimizers": "*",
        "jax.experimental.roofline.roofline": "*",
        "jax.experimental.roofline.rooflines": "*",
        "jax.experimental.scheduling_groups": "*",
        "jax.experimental.source_mapper.mlir": "*",
    },
    _TPU: {
        "jax.experimental.pallas.tpu": "*",
        "jax.experimental.pallas": "Indirect core_map kernel semaphore",
    },
    "pipelines of copies between memories overlap nothing on a CPU; `pallas_call` with a grid does the same": {
        "jax.experimental.pallas.tpu": "BufferedRef BufferedRefBase emit_pipeline emit_pipeline_with_allocations",
    },
    "copies and semaphores between devices are collectives in weft: call `shard_map` around the kernel": {
        "jax.experimental.pallas.tpu": "async_remote_copy make_async_remote_copy core_barrier get_barrier_semaphore",
    },
    "it uses the random generator of a TPU core; draw with `jax.random` outside of the kernel and pass the values": {
        "jax.experimental.pallas.tpu": """
            prng_random_bits prng_seed sample_block stateful_bernoulli stateful_bits stateful_normal stateful_uniform stochastic_round
            to_pallas_key
        """,
    },
    "it runs on the sparse cores of a TPU. Write the kernel with `jax.experimental.pallas` alone, which weft compiles for this machine": {
        "jax.experimental.pallas.tpu_sc": "*",
    },
    "it is part of the instruction set of a GPU. Write the kernel with `jax.experimental.pallas` alone, which weft compiles for this"
    " machine": {
        "jax.experimental.pallas.mosaic_gpu": "*",
    },
    "it rewrites kernels for the TPU compiler; weft fuses the operations around a kernel itself": {
        "jax.experimental.pallas.fuser": "*"
    },
    _XLA: {
        "jax.extend.backend": "ifrt_proxy",
        "jax.extend.lowering": "*",
        "jax.extend.mlir": "*",
        "jax.extend.pallas": "*",
        "jax.extend.sharding": "*",
        "jax.extend.xla": "*",
        "jax.experimental.pallas": "lower_as_mlir pallas_export_experimental",
        "jax.ffi": "build_ffi_lowering_function ffi_lowering",
    },
    _MLIR: {"jax.interpreters.mlir": "*"},
    _NCCL: {"jax.lax": "precv psend"},
    "it draws from a hidden state, so equal calls differ. Use `random.uniform` with a key": {
        "jax.lax": "rng_uniform"
    },
    "weft calls functions of other languages as Python functions or by their address; there are no headers and types of XLA's interface": {
        "jax.ffi": "include_dir register_ffi_target_as_batch_partitionable register_ffi_type register_ffi_type_id",
    },
    "it compiles a function of values in two memories to one kernel, which JAX does for GPUs only; weft has one memory": {
        "jax.experimental.fused": "*",
    },
    "it carries notes to passes of XLA, which weft does not have": {
        "jax.experimental.control_deps": "*"
    },
    "arrays move between processes by `device_put` to a mesh of all devices": {
        "jax.experimental.transfer": "*"
    },
    "profiles are written as traces of Perfetto, not as protocol buffers of XLA": {
        "jax.profiler": "ProfileData ProfileEvent ProfilePlane",
        "jax.experimental.profiler": "*",
    },
    "programs are compiled in this process; options of the compiler are `generate_sourcemaps(..., xla_compiler_flags=...)`": {
        "jax.experimental.source_mapper": "compile_with_env",
        "jax.experimental.source_mapper.common": "*",
    },
    "each process writes its own profile": {"jax.profiler": "register_subprocess"},
    "weft's programs do not call TensorFlow": {"jax.experimental.jax2tf": "call_tf"},
    "a converted function runs on one device of TensorFlow": {
        "jax.experimental.jax2tf": "split_to_logical_devices"
    },
    "running reductions have one form in programs for TensorFlow": {
        "jax": "jax2tf_associative_scan_reductions"
    },
    "weft keeps the order of prints without effect objects": {"jax.debug": "*"},
    "weft has no dtypes with a tangent dtype of their own; a `HiType` has its own tangents": {
        "jax.experimental": "EArray primal_tangent_dtype",
    },
}


#: names whose kind does not follow from their spelling
_KINDS = {
    "jax.experimental.jet.call_param_updaters": "value",
    "jax.experimental.pallas.fuser.custom_fusion": "class",
    "jax.experimental.pallas.semaphore": "class",
    "jax.experimental.pallas.tpu.LoweringException": "exception",
    "jax.experimental.pallas.tpu.dma_semaphore": "class",
    "jax.extend.backend.ifrt_proxy": "module",
    "jax.extend.lowering.upstream_dialects": "value",
    "jax.interpreters.mlir.func": "module",
    "jax.interpreters.mlir.ir": "module",
    "jax.interpreters.mlir.ir_tree_registry": "value",
    "jax.interpreters.mlir.ir_type_handlers": "value",
}


def why(module: str, name: str) -> str | None:
    """Return the reason for a refused name: its own, else the one of its module.

    >>> why("jax.profiler", "register_subprocess")
    'each process writes its own profile'
    """
    whole = None
    for reason, modules in _MISSING.items():
        names = modules.get(module, "").split()
        if name in names:
            return reason
        if names == ["*"]:
            whole = reason
    if (
        whole is None
        and name.endswith("_p")
        and module.startswith(("jax.lax", "jax.experimental.sparse", "jax.extend.core"))
    ):
        return _PRIMITIVE
    return whole


def why_module(module: str) -> str | None:
    """Return the reason for a module if all of its names are refused.

    >>> why_module("jax.experimental.transfer")
    'arrays move between processes by `device_put` to a mesh of all devices'
    """
    return next(
        (reason for reason, modules in _MISSING.items() if modules.get(module) == "*"), None
    )


def kind(module: str, name: str) -> str:
    """Return the kind of a refused name in JAX: "class", "exception", "function", "module", "primitive" or "value".

    >>> kind("jax.lax", "split_p"), kind("jax.profiler", "ProfileData"), kind("jax.ffi", "include_dir")
    ('primitive', 'class', 'function')
    """
    listed = _KINDS.get(f"{module}.{name}")
    if listed:
        return listed
    if name.endswith("_p"):
        return "primitive"
    if name.isupper():
        return "value"
    return "class" if name[0].isupper() else "function"


def refuse(module: str, name: str) -> Any:
    """Return the object for a refused name, which raises NotImplementedError with the reason when it is used."""
    from weft.compat.refused import refused_object  # loads the primitives

    reason = why(module, name)
    assert reason is not None, (module, name)
    return refused_object(module, name, kind(module, name), reason)
