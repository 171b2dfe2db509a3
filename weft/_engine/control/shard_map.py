"""`shard_map`: a program for one device, run by every device of a mesh on its own block of each
operand.

The operation maps global values to global values. Its program takes blocks (an operand is split
over the mesh axes of its spec) and communicates by collectives along the *manual* axes. The
compiler handles the other axes of the mesh.

Laws: with `check_vma`, types inside include the manual axes over which a value varies: an input
      varies over the axes of its spec, a result over exactly the axes of its own. So cotangents
      have the types of their primals, and the adjoint is the adjoint program with the specs
      exchanged. Without `check_vma`, any value may differ between devices; then a cotangent is
      divided among the devices that hold a copy of a result, and summed over the devices that hold
      a copy of an operand.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np

from weft._engine.control.effect_guards import add_guard_input
from weft._engine.control.staged_body import define_partial_eval, pick
from weft._engine.core.interpret import evaluate, run_reference
from weft._engine.core.primitive import BatchAxis, RegionOp, declare_unsupported
from weft._engine.core.stage import stage
from weft._engine.core.trace import Zero, extend_axis_env, is_undef, typeof
from weft._engine.ir.explicit import type_sharding, typed_axes
from weft._engine.ir.jaxpr import Eqn, Jaxpr
from weft._engine.ir.mesh import AbstractMesh, AxisType, Mesh, enter_mesh, use_mesh
from weft._engine.ir.rewrite import dce as dce_jaxpr, inline_calls, is_transparent, used_vars
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec, spec_of_dims
from weft._engine.ir.types import ShapedArray
from weft._engine.ops.arithmetic import div
from weft._engine.ops.collectives import psum
from weft._engine.ops.layout import reshape
from weft._engine.transforms.batch import batch_flat, batch_jaxpr, named_axes, to_dim
from weft._engine.transforms.erase_varying_axes import erase
from weft._engine.transforms.jvp import jvp_jaxpr
from weft._engine.transforms.linearize import partial_eval_jaxpr
from weft._engine.transforms.transpose import transpose_jaxpr
from weft._engine.util.record import replace

#: params: jaxpr (of one device), mesh, in_specs, out_specs (PartitionSpecs), manual_axes (in the order of the mesh), check_vma
shard_map_p = RegionOp("shard_map", multiple_results=True, per_device=True)


def manual_scope(params: dict) -> AbstractContextManager:
    """Return the context for tracing and transforming the program of one device.

    Its manual axes have names.
    """
    mesh, manual = params["mesh"], params["manual_axes"]
    return extend_axis_env(
        [(name, size) for name, size in mesh.shape_tuple if name in manual],
        typed_axes(manual, mesh) if params["check_vma"] else frozenset(),
    )


@functools.lru_cache(maxsize=256)
def mesh_inside(mesh: Mesh | AbstractMesh, manual: tuple) -> AbstractContextManager:
    """Return a context of the mesh as the program of one device sees it, with manual axes."""
    inside = mesh.update(
        axis_types=tuple(
            AxisType.Manual if n in manual else t for n, t in zip(mesh.axis_names, mesh.axis_types)
        )
    )
    return enter_mesh(inside) if isinstance(inside, Mesh) else use_mesh(inside)


# --- types ------------------------------------------------------------------------------------------------------------


def block_aval(aval: ShapedArray, spec: PartitionSpec, params: dict) -> ShapedArray:
    """Return the type of one device's block of a value of type `aval`.

    Explicit non-manual axes split the block further.
    """
    return aval.shard(params["mesh"], params["manual_axes"], params["check_vma"], spec)


def whole_aval(aval: ShapedArray, spec: PartitionSpec, mesh: Mesh, manual: Sequence) -> ShapedArray:
    """Return the type of a value whose blocks have type `aval`."""
    dims = spec.dims(aval.ndim)
    shape = tuple(n * math.prod(mesh.shape[a] for a in axes) for n, axes in zip(aval.shape, dims))
    vma = aval.vma.difference(manual)
    explicit = aval.explicit is not None or (
        not vma and mesh.explicit_axes and set(mesh.explicit_axes) <= set(manual)
    )
    sharding = type_sharding(whole_sharding(aval, spec, mesh), aval.ndim) if explicit else None
    return aval.update(shape=shape, sharding=sharding, vma=vma)


def whole_sharding(aval: ShapedArray, spec: PartitionSpec, mesh: Mesh) -> NamedSharding:
    """Return the sharding of a value whose blocks have type `aval`.

    Explicit axes in that type split the blocks further.
    """
    if aval.explicit is not None:
        spec = spec_of_dims(
            tuple(
                (*mine, *more)
                for mine, more in zip(spec.dims(aval.ndim), aval.explicit.spec_dims(aval.ndim))
            )
        )
    return NamedSharding(mesh, spec)


def replicated_axes(spec: PartitionSpec, params: dict) -> tuple:
    """Return the manual axes along which a value with this spec is replicated."""
    return tuple(a for a in params["manual_axes"] if a not in spec.axes)


@shard_map_p.def_type
def _type(*avals, jaxpr, mesh, in_specs, out_specs, manual_axes, check_vma):
    for aval, inner, spec in zip(avals, jaxpr.in_avals, in_specs):
        if whole_aval(inner, spec, mesh, manual_axes).shape != aval.shape:
            raise TypeError(
                f"shard_map: {aval.str_short()} cut as {spec} has no blocks of type {inner.str_short()}."
            )
    return [whole_aval(a, spec, mesh, manual_axes) for a, spec in zip(jaxpr.out_avals, out_specs)]


shard_map_p.in_avals = lambda params: [
    whole_aval(a, spec, params["mesh"], params["manual_axes"])
    for a, spec in zip(params["jaxpr"].in_avals, params["in_specs"])
]
shard_map_p.ref_effects = lambda params: params["jaxpr"].effects


# --- reference: device after device -----------------------------------------------------------------------------------


@shard_map_p.def_reference
def _reference(*args, jaxpr, mesh, in_specs, out_specs, manual_axes, check_vma):
    axes = [(name, size) for name, size in mesh.shape_tuple if name in manual_axes]
    program = erase(jaxpr)
    for name, size in reversed(axes):
        program, _ = batch_jaxpr(
            program, BatchAxis(size, name), (True,) * len(program.invars), True
        )
    names, sizes = [n for n, _ in axes], dict(axes)
    outs = run_reference(
        program,
        *[
            _split_into_blocks(np.asarray(x), spec.dims(np.ndim(x)), names, sizes)
            for x, spec in zip(args, in_specs)
        ],
    )
    return [
        _join_blocks(y, spec.dims(y.ndim - len(axes)), names, sizes)
        for y, spec in zip(outs, out_specs)
    ]


def _split_into_blocks(x: np.ndarray, dims: Sequence, names: list, sizes: dict) -> np.ndarray:
    """Return the blocks of all devices: [manual axes..., block dims...]."""
    shape, places, n = [], {}, 0
    for size, axes in zip(x.shape, dims):
        shape += [*(sizes[a] for a in axes), size // math.prod(sizes[a] for a in axes)]
        places.update({a: n + i for i, a in enumerate(axes)})
        n += len(axes) + 1
    inner = [d for d in range(n) if d not in places.values()]
    x = x.reshape(shape).transpose([*(places[a] for a in names if a in places), *inner])
    x = x.reshape([*(sizes[a] if a in places else 1 for a in names), *x.shape[len(places) :]])
    return np.broadcast_to(x, [*(sizes[a] for a in names), *x.shape[len(names) :]])


def _join_blocks(y: np.ndarray, dims: Sequence, names: list, sizes: dict) -> np.ndarray:
    """Return the whole value; among equal copies, take the first."""
    named = {a for axes in dims for a in axes}
    y = y[tuple(slice(None) if a in named else 0 for a in names)]
    split_axes = [a for a in names if a in named]
    order, shape = [], []
    for d, axes in enumerate(dims):
        order += [*(split_axes.index(a) for a in axes), len(split_axes) + d]
        shape.append(y.shape[len(split_axes) + d] * math.prod(sizes[a] for a in axes))
    return y.transpose(order).reshape(shape)


# --- jvp, batch -------------------------------------------------------------------------------------------------------


def _bind(
    jaxpr: Jaxpr, args: Sequence, params: dict, in_specs: Sequence, out_specs: Sequence
) -> list:
    """Bind the operation with another program, otherwise like `params`."""
    return shard_map_p.bind(*args, **_params(jaxpr, params, in_specs, out_specs))


def _params(jaxpr: Jaxpr, params: dict, in_specs: Sequence, out_specs: Sequence) -> dict:
    return {**params, "jaxpr": jaxpr, "in_specs": tuple(in_specs), "out_specs": tuple(out_specs)}


@shard_map_p.def_jvp
def _jvp(primals, tangents, **params):
    jaxpr, ins, outs = params["jaxpr"], params["in_specs"], params["out_specs"]
    nonzero = tuple(type(t) is not Zero for t in tangents)
    with manual_scope(params):
        jvp_program, out_nonzero = jvp_jaxpr(jaxpr, nonzero)
    results = _bind(
        jvp_program,
        [*primals, *pick(tangents, nonzero)],
        params,
        [*ins, *pick(ins, nonzero)],
        [*outs, *pick(outs, out_nonzero)],
    )
    n = len(outs)
    tangents_out = iter(results[n:])
    return results[:n], [
        next(tangents_out) if nz else Zero(typeof(x).to_tangent_aval())
        for x, nz in zip(results, out_nonzero)
    ]


@shard_map_p.def_batch
def _batch(axis, args, dims, **params):
    split_axes = _find_split_axes(axis, params)
    if split_axes:
        return _batch_over_manual_axes(axis, split_axes, args, dims, params)
    batched = tuple(d is not None for d in dims)
    args = [to_dim(x, d, axis, 0) if b else x for x, d, b in zip(args, dims, batched)]
    inside = replace(
        axis, explicit_axes=tuple(a for a in axis.explicit_axes if a not in params["manual_axes"])
    )
    with manual_scope(params):
        mapped, out_batched = batch_jaxpr(params["jaxpr"], inside, batched)
    return _bind_mapped(mapped, args, params, batched, out_batched, None)


def _bind_mapped(
    mapped: Jaxpr,
    args: Sequence,
    params: dict,
    batched: Sequence[bool],
    out_batched: Sequence[bool],
    split: tuple | None,
) -> tuple[list, list]:
    """Bind a mapped program whose batched operands and results have a leading dim that is split over the axes `split`."""
    wider = lambda specs, mask: [PartitionSpec(split, *s) if b else s for s, b in zip(specs, mask)]
    ins, outs = wider(params["in_specs"], batched), wider(params["out_specs"], out_batched)
    results = _bind(mapped, args, params, ins, outs)
    return results, [0 if b else None for b in out_batched]


def _find_split_axes(axis: BatchAxis, params: dict) -> tuple:
    """Return the manual axes over which a mapped dim is split.

    These are axes that the user requests, or that split it already. Return None if the program has collectives over them, or if the specs
    were derived (as for adjoints without varying types): then every device computes the whole dim.
    """
    spmd_axes, manual = axis.spmd_axes, set(params["manual_axes"])
    split_axes = axis.spmd_axes or axis.explicit_axes
    if not split_axes or not set(split_axes) <= manual:
        return ()
    named = {a for spec in (*params["in_specs"], *params["out_specs"]) for a in spec.axes}
    n = math.prod(params["mesh"].shape[a] for a in split_axes)
    if spmd_axes and params["check_vma"] and named & set(split_axes):
        raise ValueError(
            f"vmap: spmd_axis_name cannot appear in the specs of a shard_map, and is {split_axes}. The specs name "
            f"{sorted(map(str, named))}, which split other dims.\n  Split the mapped dim over axes that the specs leave out."
        )
    if spmd_axes and axis.size % n:
        raise ValueError(
            f"vmap: spmd_axis_name={split_axes} of size {n} cannot split the mapped dim of size {axis.size}: "
            "it must divide the dim."
        )
    return (
        ()
        if (named | named_axes(params["jaxpr"])) & set(split_axes) or axis.size % n
        else split_axes
    )


def _batch_over_manual_axes(
    axis: BatchAxis, split_axes: tuple, args: Sequence, dims: Sequence, params: dict
) -> tuple[list, list]:
    """Map over a dim that is split over manual axes which the program does not use.

    Each device maps its own part.
    """
    jaxpr, n = params["jaxpr"], math.prod(params["mesh"].shape[a] for a in split_axes)
    batched = tuple(d is not None for d in dims)
    part = BatchAxis(axis.size // n, axis.name)
    here = frozenset(split_axes) if params["check_vma"] else frozenset()
    out_batched: list[bool] = []

    def run(*blocks):
        outs, out_dims = batch_flat(
            lambda *xs: evaluate(jaxpr, *xs), part, blocks, [0 if b else None for b in batched]
        )
        out_batched[:] = [d is not None for d in out_dims]
        return [x if d is None else to_dim(x, d, part, 0) for x, d in zip(outs, out_dims)]

    avals = [
        a.with_dim(0, part.size).update(vma=a.vma | here) if b else a
        for a, b in zip(jaxpr.in_avals, batched)
    ]
    with manual_scope(params):
        mapped = stage(run, avals, jaxpr.name)
    args = [to_dim(x, d, axis, 0) if b else x for x, d, b in zip(args, dims, batched)]
    return _bind_mapped(mapped, args, params, batched, out_batched, split_axes)


# --- partial evaluation -----------------------------------------------------------------------------------------------


def _split(args, unknown, params, known, staged, saveable=None):
    """Compute at once the values that the known blocks determine.

    A residual leaves with a leading dim for the axes over which it varies, and enters the other side block by block.
    """
    jaxpr = params["jaxpr"]
    with manual_scope(params):
        key = (
            "shard_map partial",
            tuple(unknown),
            params["mesh"],
            params["manual_axes"],
            params["check_vma"],
        )
        part, early, late, axes = (
            _split_body(inline_calls(jaxpr, is_transparent), tuple(unknown), params, saveable)
            if saveable
            else (jaxpr.memo(key, lambda: _split_body(jaxpr, tuple(unknown), params)))
        )
    ins, outs = params["in_specs"], params["out_specs"]
    known_args, known_ins = (
        [x for x, u in zip(values, unknown) if not u] for values in (args, ins)
    )
    known_outs = [s for s, u in zip(outs, part.out_unknown) if not u]
    first, second = [], []
    if early.outvars or early.effects:
        first = known(
            shard_map_p,
            known_args,
            _params(early, params, known_ins, [*known_outs, *map(_leading, axes)]),
        )
    if any(part.out_unknown) or late.effects:
        computed, specs = iter(first[len(known_outs) :]), iter(map(_leading, axes))
        residuals = [
            (known_args[i], known_ins[i]) if i is not None else (next(computed), next(specs))
            for i in part.forwarded
        ]
        second = staged(
            shard_map_p,
            [*(x for x, _ in residuals), *pick(args, unknown)],
            _params(
                late,
                params,
                [*(s for _, s in residuals), *pick(ins, unknown)],
                pick(outs, part.out_unknown),
            ),
        )
    first, second = iter(first), iter(second)
    return [next(second) if u else next(first) for u in part.out_unknown], list(part.out_unknown)


def _leading(axes: tuple) -> PartitionSpec:
    return PartitionSpec(axes) if axes else PartitionSpec()


def _split_body(
    jaxpr: Jaxpr, unknown: tuple, params: dict, saveable: Callable | None = None
) -> tuple:
    """Return the split program, its two halves with residuals as they leave and enter, and the axes over which each residual varies."""
    part = partial_eval_jaxpr(jaxpr, unknown, saveable=saveable)
    if saveable:
        part.known = dce_jaxpr(part.known)
    n = part.out_unknown.count(False)
    avals = part.known.out_avals[n:]
    axes = [
        tuple(name for name in params["manual_axes"] if name in a.vma or not params["check_vma"])
        for a in avals
    ]

    def early(*args):
        outs = evaluate(part.known, *args)
        return [
            *outs[:n],
            *(
                reshape(x, (1, *a.shape)) if mine else x
                for x, a, mine in zip(outs[n:], avals, axes)
            ),
        ]

    widened = iter([a if mine else None for a, mine in zip(avals, axes)])
    blocks = [None if i is not None else next(widened) for i in part.forwarded]
    blocks += [None] * (len(part.unknown.invars) - len(blocks))

    def late(*args):
        args = [x if a is None else reshape(x, a.shape) for x, a in zip(args, blocks)]
        return evaluate(part.unknown, *args)

    late_avals = [
        a if block is None else a.with_dim(0, 1) for a, block in zip(part.unknown.in_avals, blocks)
    ]
    return (
        part,
        stage(early, part.known.in_avals, jaxpr.name),
        stage(late, late_avals, jaxpr.name),
        axes,
    )


define_partial_eval(shard_map_p, _split, sees_policy=True)


# --- transpose, dce ---------------------------------------------------------------------------------------------------


@shard_map_p.def_transpose
def _transpose(cts, *args, **params):
    linear = tuple(map(is_undef, args))
    ct_nonzero = tuple(type(ct) is not Zero for ct in cts)
    ins, outs = params["in_specs"], params["out_specs"]
    with manual_scope(params):
        backward, nonzero = transpose_jaxpr(params["jaxpr"], linear, ct_nonzero)
        ct_specs, ct_out_specs = pick(outs, ct_nonzero), pick(pick(ins, linear), nonzero)
        if not params["check_vma"]:
            backward = stage(
                _divide_copied_cotangents(backward, ct_specs, ct_out_specs, params),
                backward.in_avals,
                backward.name,
            )
    fixed = [(x, s) for x, s, lin in zip(args, ins, linear) if not lin]
    results = iter(
        _bind(
            backward,
            [*(x for x, _ in fixed), *pick(cts, ct_nonzero)],
            params,
            [*(s for _, s in fixed), *ct_specs],
            ct_out_specs,
        )
    )
    flags = iter(nonzero)
    return [(next(results) if next(flags) else None) if lin else None for lin in linear]


def _divide_copied_cotangents(
    backward: Jaxpr, result_specs: Sequence, operand_specs: Sequence, params: dict
) -> Callable:
    """Return an adjoint program for types that do not track copies.

    A cotangent is divided among the copies of its result, and the cotangents of the copies of an operand are summed.
    """

    def share(ct, spec):
        n = math.prod(params["mesh"].shape[a] for a in replicated_axes(spec, params))
        return ct if n == 1 else div(ct, np.asarray(n).astype(typeof(ct).dtype)[()])

    def run(*operands):
        n = len(operands) - len(result_specs)
        cts = [share(ct, spec) for ct, spec in zip(operands[n:], result_specs)]
        results = evaluate(backward, *operands[:n], *cts)
        return [
            psum(ct, axes) if (axes := replicated_axes(spec, params)) else ct
            for ct, spec in zip(results, operand_specs)
        ]

    return run


@shard_map_p.def_dce
def _dce(eqn: Eqn, used: Sequence[bool]) -> Eqn:
    params = eqn.params
    inner = dce_jaxpr(params["jaxpr"], used)
    needed = used_vars(inner)
    keep = [v in needed for v in inner.invars]
    inner = inner.replace(invars=pick(inner.invars, keep))
    return eqn.replace(
        invars=pick(eqn.invars, keep),
        outvars=pick(eqn.outvars, used),
        effects=inner.effects,
        params=_params(
            inner, params, pick(params["in_specs"], keep), pick(params["out_specs"], used)
        ),
    )


def _guard(on, operands, params):
    with manual_scope(params):
        inner = add_guard_input(params["jaxpr"])
    return _bind(
        inner, [on, *operands], params, [PartitionSpec(), *params["in_specs"]], params["out_specs"]
    )


shard_map_p.guard = _guard
shard_map_p.define(
    factors=declare_unsupported("its specs say how operands and results are split"),
    lower=declare_unsupported("it becomes part of the program of one device when that is made"),
)
