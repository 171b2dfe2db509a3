"""Serialization of compiled programs: another process loads them without compiling.

In:   the result of `jit(f).lower(...).compile()`.
Out:  bytes, and the structures of arguments and results, which the user stores with them (both can be pickled).
Laws: the bytes hold the program and its machine code. Code from another machine, or from another version of weft, Python or
      NumPy, is never run: the program is compiled again, as for a backend without machine code (`reference`).
      For programs on other machines use `weft.export`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft._engine import backends, processes, programs
from weft._engine.api.calls.call_cache import TracedProgram
from weft._engine.api.execute import to_array
from weft._engine.api.jit import jit
from weft._engine.api.stages import Compiled, Lowered, Traced
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.backends.array_spec import ArraySpec, inverse
from weft._engine.backends.formats import format_of
from weft._engine.core.interpret import evaluate
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.runtime.array import Array
from weft._engine.runtime.device import Device
from weft._engine.runtime.executable import CompileRequest
from weft._engine.runtime.placement import change_layout
from weft._engine.transforms.dim_orders import with_dim_orders
from weft._engine.util import tree
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import api_boundary
from weft._engine.util.trees.treedef import PyTreeDef
from weft.export import format as bytes_format

__all__ = ["deserialize_and_load", "serialize"]

_MAGIC = b"weft-executable\x00"


@api_boundary
def serialize(compiled: Compiled) -> tuple[bytes, PyTreeDef, PyTreeDef]:
    """Return the bytes of a compiled program, and the structures of its arguments and results: the arguments of `deserialize_and_load`.

    Raises ValueError for a program that calls Python functions (callbacks) or closes over a mutable array, and
    NotImplementedError for a program of several processes.

    >>> from weft.experimental.serialize_executable import deserialize_and_load, serialize
    >>> kept = serialize(weft.jit(lambda x: x * 2).lower(wnp.arange(3.0)).compile())
    >>> deserialize_and_load(*kept)(wnp.arange(3.0)).tolist()
    [0.0, 2.0, 4.0]
    """
    lowered, executable = compiled._lowered, compiled._executable
    traced, program = lowered._traced, lowered._traced._program
    api = f"serialize: jit({program.name})"
    if traced._refs:
        raise ValueError(
            f"{api}: cannot serialize with a closed-over reference to a mutable array ({traced._refs[0]!r}).\n"
            "  It belongs to this process. Pass the reference, or its value, as an argument."
        )
    _check_one_process(api)
    request = executable.request
    parts = {
        "jaxpr": request.jaxpr,
        "in_specs": [(s.aval, s.sharding, s.committed) for s in request.in_specs],
        "out_shardings": tuple(request.out_shardings),
        "donated": tuple(request.donated),
        "name": request.name,
        "assignment": tuple(request.assignment),
        "in_context": request.in_context,
        "executable": programs.serialize_executable(executable),
        "consumed": executable.donated,
        "consts": [np.asarray(x) for x in compiled._consts],
        "arg_names": tuple(executable.arg_names),
        "orders": tuple(
            [
                tuple([s.order for s in specs])
                for specs in (executable.in_specs, executable.out_specs)
            ]
        ),
        "traced": (
            program.name,
            *map(
                tuple,
                (program.in_shardings, program.out_shardings, program.donated, program.in_avals),
            ),
        ),
        "keep_unused": traced._jitted.options.keep_unused,
    }
    ids = {
        "platform": request.backend.platform,
        "ids": [d.id for d in request.assignment],
    }
    return (
        bytes(
            bytes_format.to_bytes(
                {**ids, "parts": bytes(bytes_format.to_bytes(parts, _MAGIC, api, lines=True))},
                _MAGIC,
                api,
            )
        ),
        compiled.in_tree,
        compiled.out_tree,
    )


@api_boundary
def deserialize_and_load(
    serialized: bytes,
    in_tree: PyTreeDef,
    out_tree: PyTreeDef,
    backend: str | None = None,
    execution_devices: Sequence[Device] | None = None,
) -> Compiled:
    """Return the compiled program that `serialize` wrote, on the same devices, or on `execution_devices` instead, in this order.

    Load only bytes from a trusted source: they hold machine code, which calls run. Raises ValueError for other bytes, for
    another number of devices, and for a `backend` other than the backend of the compilation.
    """
    _check_one_process("deserialize_and_load")
    head = bytes_format.from_bytes(serialized, _MAGIC, "a compiled program")
    platform, ids = head["platform"], head["ids"]
    if backend is not None and backend != platform:
        raise ValueError(
            f"deserialize_and_load: the program was compiled for {platform!r} and is to be loaded for {backend!r}.\n"
            "  Use weft.export for programs that run on other platforms."
        )
    instead = (
        None if execution_devices is None else _map_devices(ids, platform, list(execution_devices))
    )
    parts = bytes_format.from_bytes(head["parts"], _MAGIC, "a compiled program", instead)
    in_specs = [ArraySpec(*spec) for spec in parts["in_specs"]]
    closed, n = parts["jaxpr"], len(parts["consts"])
    request = CompileRequest(
        closed,
        in_specs,
        parts["out_shardings"],
        parts["donated"],
        parts["name"],
        parts["assignment"],
        parts.get("in_context", False),
        backends.get(platform),
    )
    unnamed = [[None] * len(orders) for orders in parts["orders"]]
    executable = programs.restore_executable(request, **parts["executable"]).on_orders(
        *parts["orders"], *unnamed
    )
    consts: list[Array] = [
        change_layout(to_array(x), spec) for x, spec in zip(parts["consts"], executable.in_specs)
    ]
    executable.donated, executable.arg_names, executable.out_tree, executable.const_inputs = (
        parts["consumed"],
        parts["arg_names"],
        out_tree,
        consts,
    )
    closed = with_dim_orders(
        closed, *[[o and inverse(o) for o in orders] for orders in parts["orders"]]
    )
    jaxpr = Jaxpr(
        closed.invars[:n],
        consts,
        closed.invars[n:],
        closed.outvars,
        closed.eqns,
        closed.effects,
        closed.name,
    )
    return Compiled.make(
        _lower(jaxpr, in_tree, out_tree, executable.in_specs[n:], parts), executable, consts
    )


def _check_one_process(api: str) -> None:
    if processes.current() is not None:
        raise NotImplementedError(
            f"{api}: in a program of several processes it is not supported. Compiled programs are kept on disk, and "
            "one process compiles for all that share the folder (WEFT_CACHE_DIR)."
        )


def _map_devices(ids: Sequence[int], platform: str, devices: Sequence[Device]) -> Any:
    """Return a function that maps the ids of the original devices to the replacement devices."""
    if len(ids) != len(devices):
        raise ValueError(
            f"deserialize_and_load: the program runs on {quantity(len(ids), 'device')}, execution_devices has {len(devices)}."
        )
    other = [d for d in devices if d.platform != platform]
    if other:
        raise ValueError(
            f"deserialize_and_load: the program was compiled for {platform!r}, and execution_devices has {other[0]}."
        )
    return lambda id, _: devices[ids.index(id) if id in ids else 0]


def _lower(
    jaxpr: Jaxpr,
    in_tree: PyTreeDef,
    out_tree: PyTreeDef,
    in_specs: Sequence[ArraySpec],
    parts: dict[str, Any],
) -> Lowered:
    """Return the `Lowered` stage of a loaded program."""
    name, in_shardings, out_shardings, donated, in_avals = parts["traced"]

    def run(*args: Any, **kwargs: Any) -> Any:
        return tree.tree_unflatten(out_tree, evaluate(jaxpr, *tree.tree_leaves((args, kwargs))))

    arg_names = parts["arg_names"][len(jaxpr.constvars) :]
    program = TracedProgram(
        jaxpr,
        list(jaxpr.consts),
        in_tree,
        out_tree,
        in_shardings,
        out_shardings,
        donated,
        arg_names,
        name,
        in_avals,
    )
    leaves = [
        ShapeDtypeStruct(s.aval.shape, s.aval.dtype, sharding=format_of(s) if s.committed else None)
        for s in in_specs
    ]
    return Lowered.make(Traced.make(jit(run, keep_unused=parts["keep_unused"]), program, leaves))
