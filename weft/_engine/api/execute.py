"""Execution of programs on arrays: placing the arguments, and caching the executables of a program.

In:   a Jaxpr and concrete arguments.
Out:  arrays. A program is compiled once per combination of array specs of arguments; its executables live as long as the program.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft._engine.api.calls.build import ProgramOptions, build
from weft._engine.api.layouts import argument_order
from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.formats import Layout
from weft._engine.core.context import current_context
from weft._engine.core.stage import stage
from weft._engine.core.trace import (
    Tracer,
    array_converter,
    escaped_tracer_error,
    eval_trace,
    set_trace,
    typeof,
)
from weft._engine.ir.explicit import determines_placement
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.mesh import placement_mesh, use_default_device
from weft._engine.ir.program_mesh import (
    is_abstract,
)
from weft._engine.ir.shardings import NamedSharding, Sharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.layout import reshape, transpose
from weft._engine.ops.placement import reshard
from weft._engine.runtime import transfer_guards
from weft._engine.runtime.array import (
    Array,
    default_sharding,
    from_numpy,
    make_replicated_sharding,
    spec_of,
)
from weft._engine.runtime.executable import Executable
from weft._engine.runtime.placement import as_blocks, change_layout, is_compatible, of_blocks
from weft._engine.transforms.expand_library_ops import expand
from weft._engine.transforms.key_physicalization import has_keys
from weft._engine.util.config import config
from weft._engine.util.dispatch_state import on_clear_caches
from weft._engine.util.errors import MissingMeshError

# thresholds, measured on several machines
#: minimum bytes of an array to compile its copies
_COPY_COMPILED_BYTES = 1 << 20
#: minimum bytes of an array to compile even its first move
_COPY_REPEATED_BYTES = 1 << 26


def to_array(x, sharding: Sharding | None = None, order: tuple[int, ...] | None = None) -> Array:
    """Return an array, a NumPy value or a Python scalar as an uncommitted Array.

    An Array is returned unchanged. With `sharding`, NumPy arrays are committed to it, and stored in `order`.
    """
    if type(x) is Array:
        return x
    if isinstance(x, Tracer):
        raise escaped_tracer_error(x)
    convert = array_converter(x)
    if convert is not None:
        return to_array(convert())
    aval = typeof(x)
    if aval.weak_type or aval.ndim == 0:
        return _scalar_array(x, aval)
    return from_numpy(np.asarray(x, dtype=aval.dtype), aval, sharding, order=order)


def _scalar_array(x, aval) -> Array:
    value = np.asarray(x)
    if value.dtype != aval.dtype:
        # NumPy's own numbers are truncated, like arrays of them
        if isinstance(x, int) and np.issubdtype(aval.dtype, np.integer):
            info = np.iinfo(aval.dtype)
            if not info.min <= int(value) <= info.max:
                raise OverflowError(
                    f"An overflow: Python int {int(value)} too large to convert to {aval.dtype.name}. Enable 64-bit "
                    "types with "
                    "weft.config.update('enable_x64', True)."
                )
        with np.errstate(over="ignore"):
            value = value.astype(aval.dtype)
    return from_numpy(value, aval)


def run(jaxpr: Jaxpr, args: Sequence[Array], options: ProgramOptions) -> list[Array]:
    """Compile `jaxpr` for these arguments if need be, and run it."""
    executable, ready = prepare(jaxpr, args, options)
    return run_ready(executable, ready, args)


def run_ready(executable: Executable, ready: Sequence[Array], args: Sequence[Array]) -> list[Array]:
    """Run on the result of `prepare`. Donated arguments are deleted, even if a copy in another layout was passed in their place."""
    outs = executable(ready)
    for i in executable.donated:
        args[i - len(executable.const_inputs)].delete()
    return outs


def prepare(
    jaxpr: Jaxpr, args: Sequence[Array], options: ProgramOptions
) -> tuple[Executable, list[Array]]:
    """Return the executable for these arguments, and its inputs: the constants, then the placed arguments."""
    jaxpr = expand(jaxpr)
    consts = const_arrays(jaxpr)
    if options.places_arguments:
        args = _place_arguments(args, options)
    specs = (*[x._spec for x in consts], *options.open_specs([x._spec for x in args]))
    executable = executable_for(jaxpr, specs, options)
    return executable, [*executable.const_inputs, *place_for(executable, args)]


def executable_for(
    jaxpr: Jaxpr, specs: tuple[ArraySpec, ...], options: ProgramOptions
) -> Executable:
    """Return the executable for array specs of arguments (constants first), which is compiled on first use."""
    context = current_context().for_compilation
    key = ("executable", specs, options.compilation_key(), context)
    executable = jaxpr._cache.get(key)
    if executable is not None:
        return executable
    typed = tuple([_with_sharding_of_type(s) for s in specs])
    if typed == specs:
        executable = build(jaxpr, specs, options)
        executable.const_inputs = [
            x if is_compatible(x._spec, s) else move_to_layout(x, s.sharding, order=s.order)
            for x, s in zip(const_arrays(jaxpr), executable.in_specs)
        ]
    else:
        executable = executable_for(jaxpr, typed, options).with_input_specs(typed, specs)
    jaxpr._cache[key] = executable
    return executable


def with_key_reuse_check(
    jaxpr: Jaxpr, name: str, arrays: Sequence[Array], call: Callable[[], list[Array]]
) -> list[Array]:
    """Return the results of `call`, which runs `jaxpr` on `arrays`; with `debug_key_reuse`, raise KeyReuseError for a reused random key."""
    if not config.debug_key_reuse or not has_keys(jaxpr):
        return call()
    from weft._engine.api import key_reuse

    signature = key_reuse.signature_of(jaxpr)
    key_reuse.consume_call_keys(name, signature, arrays)
    outs = call()
    key_reuse.give_results(signature, arrays, outs)
    return outs


def _with_sharding_of_type(spec: ArraySpec) -> ArraySpec:
    """Return `spec` with the sharding of its type if all axes are explicit, so that `P('x')` and `P('x', None)` share a program."""
    sharding, ndim = spec.sharding, spec.aval.ndim
    if not determines_placement(spec.aval.explicit) or len(sharding.spec) == ndim:
        return spec
    return ArraySpec(
        spec.aval, sharding.with_spec(sharding.spec.of_rank(ndim)), spec.committed, spec.order
    )


def move_to_layout(
    x: Array, sharding: Sharding, committed: bool = True, order: tuple[int, ...] | None = None
) -> Array:
    """Return `x` with the given sharding, and its dims stored in `order`.

    Memory is shared if layouts allow it; large arrays are moved by a compiled copy.
    """
    have, requested = x._spec, ArraySpec(x.aval, sharding, committed, order)
    if have.has_terms or requested.has_terms:
        return _of_other_terms(x, requested)
    if have.order != requested.order:
        return _in_other_order(x, requested)
    if requested.order is not None:
        return Array(
            requested, move_to_layout(x._as_stored(), requested.stored.sharding, committed)._live()
        )
    move = (
        have.splits,
        have.local_shape,
        requested.splits,
        requested.local_shape,
        requested.storage_dtype,
    )
    is_here = have.by_process is None and requested.by_process is None
    by_program = (
        is_here
        and have.backend is requested.backend is default_sharding().device.client
        and requested.backend.is_one_memory
    )
    is_small = x.nbytes < _COPY_COMPILED_BYTES
    if is_here and not is_small and _can_reshard_on_devices(have, requested):
        (moved,) = run(
            _build_copy(x.aval), [x], ProgramOptions("reshard", out_shardings=(sharding,))
        )
        return Array(requested, moved._live())
    if (
        is_small
        or not by_program
        or is_compatible(have, requested)
        or (x.nbytes < _COPY_REPEATED_BYTES and _is_first(move))
    ):
        return change_layout(x, requested)
    with use_default_device():
        (moved,) = run(_build_block_move(*move), [as_blocks(x)], ProgramOptions("reshard"))
    return of_blocks(moved, requested)


def _can_reshard_on_devices(have: ArraySpec, want: ArraySpec) -> bool:
    """Return whether devices with separate memories can exchange values to get from `have` to `want`, without the host."""
    old, new = have.sharding, want.sharding
    is_same_place = (
        old.device_assignment == new.device_assignment and old.memory_kind == new.memory_kind
    )
    return have.backend.exchanges_values and is_same_place and have.splits != want.splits


def _in_other_order(x: Array, want: ArraySpec) -> Array:
    """Return `x` in the layout `want`, which has another dim order: copied by NumPy, or by a program if it is large."""
    have = x._spec
    is_here = have.by_process is None and want.by_process is None
    move = (have.order, have.local_shape, have.splits, want.order, want.splits, want.storage_dtype)
    is_small = x.nbytes < _COPY_COMPILED_BYTES or (
        x.nbytes < _COPY_REPEATED_BYTES and _is_first(move)
    )
    if is_here and (is_small or have.backend is not want.backend):
        return change_layout(x, want)
    if x.sharding.device_assignment != want.sharding.device_assignment:
        x = move_to_layout(x, want.sharding, want.committed, have.order)
    with use_default_device():
        (moved,) = run(
            _build_copy(x.aval),
            [x],
            ProgramOptions(
                "reshard",
                out_shardings=(want.sharding,),
                out_layouts=(Layout(want.order or range(x.ndim)),),
            ),
        )
    return Array(want, moved._live())


@functools.lru_cache(maxsize=1024)
def _build_copy(aval: ShapedArray) -> Jaxpr:
    """Return the program of the identity function."""
    with set_trace(eval_trace):
        return stage(lambda x: [x], [aval], "reshard")


def _of_other_terms(x: Array, want: ArraySpec) -> Array:
    """Return `x` in the layout `want`, where one of them has unreduced axes: equal terms are moved, others are computed by a program."""
    have, sharding = x._spec, want.sharding
    if is_compatible(have, want):
        return Array(want, x._live())
    if want.order is not None:
        return move_to_layout(
            move_to_layout(x, sharding, want.committed), sharding, want.committed, want.order
        )
    if have.has_terms and (
        not isinstance(sharding, NamedSharding)
        or have.sharding.device_assignment != sharding.device_assignment
    ):
        if want.has_terms and have.stored.aval.shape == want.stored.aval.shape:
            return Array(
                want, move_to_layout(x._as_stored(), want.stored.sharding, want.committed)._live()
            )
        x = move_to_layout(
            x, have.sharding.with_spec(have.sharding.spec.update(unreduced=frozenset()))
        )
        if not want.has_terms:
            return move_to_layout(x, sharding, want.committed)
    if x.sharding.device_assignment != sharding.device_assignment:
        x = move_to_layout(x, sharding.with_spec(PartitionSpec()))
    (moved,) = run(
        _build_reshard(x.aval, sharding), [x], ProgramOptions("reshard", out_shardings=(sharding,))
    )
    return moved


@functools.lru_cache(maxsize=1024)
def _build_reshard(aval: ShapedArray, sharding: NamedSharding) -> Jaxpr:
    """Return the program that reshards a value."""
    with set_trace(eval_trace):
        return stage(lambda x: [reshard(x, sharding)], [aval], "reshard")


on_clear_caches(_build_reshard.cache_clear)
on_clear_caches(_build_copy.cache_clear)

_moves: set[tuple] = set()


def _is_first(move: tuple) -> bool:
    """Return True on first use; a one-off transfer is cheaper uncompiled."""
    if move in _moves:
        return False
    if len(_moves) >= 1024:
        _moves.clear()
    _moves.add(move)
    return True


@functools.lru_cache(maxsize=1024)
def _build_block_move(
    splits: tuple, local: tuple, new_splits: tuple, new_local: tuple, dtype
) -> Jaxpr:
    """Return the program that converts one block grid to another."""
    n = len(splits)

    def move(block):
        whole = transpose(block, tuple(k for d in range(n) for k in (d, n + d)))
        cut = reshape(whole, tuple(k for pair in zip(new_splits, new_local) for k in pair))
        return [transpose(cut, (*range(0, 2 * n, 2), *range(1, 2 * n, 2)))]

    with set_trace(eval_trace):
        return stage(move, [ShapedArray(splits + local, dtype)], "reshard")


def place_on_mesh(args: Sequence[Array]) -> Sequence[Array]:
    """Move uncommitted arguments to the context mesh, if there is one."""
    mesh = placement_mesh()
    if mesh is None:
        return args
    return [
        x if x.committed else move_to_layout(x, make_replicated_sharding(mesh), order=x._spec.order)
        for x in args
    ]


def place_for(executable: Executable, args: Sequence[Array]) -> Sequence[Array]:
    """Return the arguments (without constants) in the layouts that the executable expects."""
    specs = executable.in_specs[len(executable.const_inputs) :]
    if transfer_guards.has_guard():
        have = [x._spec for x in args]
        transfer_guards.between_devices(have, specs)
        # the program's devices; it may read the memory of other devices in place
        targets = executable.out_specs[:1] * len(specs)
        transfer_guards.between_devices([h for h, s in zip(have, specs) if s is h], targets)
    if all(map(operator.is_, map(spec_of, args), specs)):
        return args
    return [
        x if is_compatible(x._spec, s) else move_to_layout(x, s.sharding, order=s.order)
        for x, s in zip(args, specs)
    ]


def const_arrays(jaxpr: Jaxpr) -> list[Array]:
    """Return the constants of a program as arrays that remain valid if the user deletes or donates the originals. Conversion is cached."""
    if not jaxpr.consts:
        return []
    with transfer_guards.AllowTransfers(transfer_guards.NO_TRANSFER), use_default_device():
        return jaxpr.memo(
            "const arrays", lambda: [Array(x._spec, x._live()) for x in map(to_array, jaxpr.consts)]
        )


def _place_arguments(args: Sequence[Array], options: ProgramOptions) -> list[Array]:
    """Return the arguments with the shardings of `in_shardings` and the dim orders of `in_layouts`."""
    shardings = options.in_shardings or [None] * len(args)
    layouts = options.in_layouts or [None] * len(args)
    return [
        _place_argument(x, i, sharding, layout, options)
        for i, (x, sharding, layout) in enumerate(zip(args, shardings, layouts))
    ]


def _place_argument(
    x: Array, i: int, sharding: Sharding | None, layout: Any, options: ProgramOptions
) -> Array:
    label, name, order = options.label(i), options.name, x._spec.order
    if layout is not None:
        order = argument_order(name, label, x._spec, layout, x.committed)
    if sharding is None:
        return x if order == x._spec.order else move_to_layout(x, x.sharding, x.committed, order)
    if x.committed and not x.sharding.is_equivalent_to(sharding, x.ndim):
        devices = [
            f" on devices with ids {[d.id for d in s.device_assignment]}"
            for s in (x.sharding, sharding)
        ]
        if devices[0] == devices[1]:
            devices = ["", ""]
        raise ValueError(
            f"{name}: Sharding passed to jit does not match the sharding on the respective arg. argument {label} of type "
            f"{x.aval.str_short()} has the sharding {x.sharding}{devices[0]}, but in_shardings has {sharding}{devices[1]}.\n"
            "  A committed argument is not moved silently. Use weft.device_put(x, sharding) first, or leave its in_sharding out."
        )
    if is_abstract(sharding):
        raise MissingMeshError(
            f"{name}: the in_sharding of argument {label} is over a mesh without devices, {sharding.mesh}, on which no "
            "program runs; a PartitionSpec requires a non-empty mesh of devices in context.\n"
            "  Make one current with weft.set_mesh(mesh), or lower the function only."
        )
    sharding.check_shape(x.shape, label if i < len(options.arg_names) else "an argument")
    if transfer_guards.has_guard():
        transfer_guards.between_devices([x._spec], [ArraySpec(x.aval, sharding, True)])
    return move_to_layout(x, sharding, order=order)
