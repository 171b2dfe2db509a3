"""Nested shard_maps: the body of a shard_map inside a partitioned program uses the axes of the program's mesh.

In:   a global Jaxpr without varying axes in its types, and the mesh on which it is partitioned.
Out:  the same program with every shard_map, at any depth, on that mesh: its specs, manual axes and collectives use axes of the
      mesh. An axis may become several (of a finer mesh), or none (size 1). Each shard_map has a separate program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft._engine.core.interpret import evaluate_with
from weft._engine.core.primitive import BatchAxis, CollectiveOp, RegionOp
from weft._engine.core.stage import stage
from weft._engine.core.trace import extend_axis_env
from weft._engine.ir.collective_spec import collective_axes
from weft._engine.ir.jaxpr import Atom, DropVar, Eqn, Jaxpr, Literal, Var, subjaxprs
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.program_mesh import has_shard_map, to_spec
from weft._engine.ir.rewrite import map_jaxprs
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec, spec_of_dims
from weft._engine.ops.collective_groups import bind_over
from weft._engine.ops.layout import squeeze
from weft._engine.transforms.batch import batch_flat

Names = Mapping[Any, tuple[Any, ...]]  # axis -> axes of the program's mesh


def on_mesh(jaxpr: Jaxpr, mesh: Mesh) -> Jaxpr:
    """Return `jaxpr` with every shard_map on `mesh`."""
    if not has_shard_map(jaxpr):
        return jaxpr
    eqns = [
        eqn.replace(params=_params_on(eqn, mesh))
        if any(True for _ in subjaxprs(eqn.params))
        else eqn
        for eqn in jaxpr.eqns
    ]
    return jaxpr.replace(eqns=eqns)


def _params_on(eqn: Eqn, mesh: Mesh) -> dict[str, Any]:
    if eqn.primitive.per_device:
        return _shard_map_on(eqn.params, mesh)
    return map_jaxprs(eqn.params, lambda inner: on_mesh(inner, mesh))


def _shard_map_on(params: dict[str, Any], mesh: Mesh) -> dict[str, Any]:
    names = {axis: _axes_on(axis, params["mesh"], mesh) for axis in params["mesh"].axis_names}
    body = on_mesh(params["jaxpr"], mesh)

    def spec(s: PartitionSpec) -> PartitionSpec:
        return spec_of_dims(
            tuple(tuple(a for axis in axes for a in names[axis]) for axes in s.dims(len(s)))
        )

    manual = {
        axis: names[axis] for axis in params["mesh"].axis_names if axis in params["manual_axes"]
    }
    if params["mesh"] is mesh:
        body = _copy(body)
    else:
        with extend_axis_env(list(mesh.shape_tuple)):
            body = _with_axes_renamed(body, manual)
    return {
        **params,
        "mesh": mesh,
        "jaxpr": body,
        "in_specs": tuple(map(spec, params["in_specs"])),
        "out_specs": tuple(map(spec, params["out_specs"])),
        "manual_axes": tuple(a for axes in manual.values() for a in axes),
    }


def _axes_on(axis: Any, source: Mesh, target: Mesh) -> tuple[Any, ...]:
    """Return the axes of `target` that enumerate the devices along `axis` of `source`."""
    if source is target:
        return (axis,)
    dims = to_spec(NamedSharding(source, PartitionSpec(axis)), target, 1)
    assert dims is not None, (axis, source, target)
    return dims[0]


def _copy(jaxpr: Jaxpr) -> Jaxpr:
    """Return a copy of a program with new variables."""
    env: dict[Var, Var] = {v: Var(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars)}
    eqns: list[Eqn] = []

    def read(atoms: Sequence[Atom]) -> list[Atom]:
        return [a if type(a) is Literal else env[a] for a in atoms]

    for eqn in jaxpr.eqns:
        ins = read(eqn.invars)
        env.update((v, type(v)(v.aval)) for v in eqn.outvars)
        outs = [env[v] if type(v) is not DropVar else v for v in eqn.outvars]
        eqns.append(eqn.replace(invars=ins, outvars=outs, params=map_jaxprs(eqn.params, _copy)))
    return Jaxpr(
        [env[v] for v in jaxpr.constvars],
        jaxpr.consts,
        [env[v] for v in jaxpr.invars],
        read(jaxpr.outvars),
        eqns,
        jaxpr.effects,
        jaxpr.name,
    )


def rename(jaxpr: Jaxpr, source: Mesh, target: Mesh) -> Jaxpr:
    """Return a program of one device of `source` with the axes of `target` in its collectives."""
    if source is target:
        return jaxpr
    with extend_axis_env(list(target.shape_tuple)):
        return _with_axes_renamed(
            jaxpr, {axis: _axes_on(axis, source, target) for axis in source.axis_names}
        )


# --- renaming of axes ------------------------------------------------------------------------------------------------------


def _with_axes_renamed(jaxpr: Jaxpr, names: Names) -> Jaxpr:
    """Return `jaxpr` with the axes of its collectives replaced by `names`; axes of size 1 are mapped over and removed."""
    dropped_axes = [axis for axis, axes in names.items() if not axes]

    def run(*args: Any) -> list[Any]:
        def bind(eqn: Eqn, operands: list[Any]) -> list[Any]:
            return _bind_renamed(eqn, names, operands)

        def evaluated(*xs: Any) -> list[Any]:
            return evaluate_with(bind, jaxpr, xs)

        fun = evaluated
        for axis in dropped_axes:
            fun = _with_unit_axis(fun, axis)
        return fun(*args)

    return stage(run, jaxpr.in_avals, jaxpr.name)


def _with_unit_axis(fun: Callable[..., list[Any]], axis: Any) -> Callable[..., list[Any]]:
    """Return `fun` mapped over `axis`, which has one position."""

    def run(*args: Any) -> list[Any]:
        outs, dims = batch_flat(fun, BatchAxis(1, axis), args, [None] * len(args))
        return [x if d is None else squeeze(x, (d,)) for x, d in zip(outs, dims)]

    return run


def _bind_renamed(eqn: Eqn, names: Names, args: list[Any]) -> list[Any]:
    primitive, params = eqn.primitive, eqn.params
    if isinstance(primitive, CollectiveOp):
        key = "axes" if "axes" in params else "axis_name"
        axes = tuple(a for axis in collective_axes(params) for a in names.get(axis) or (axis,))
        named = axes if isinstance(params[key], tuple) or len(axes) != 1 else axes[0]
        return [bind_over(primitive, *args, **{**params, key: named})]
    if isinstance(primitive, RegionOp):
        params = map_jaxprs(
            params,
            lambda inner: _with_axes_renamed(inner, {k: axes for k, axes in names.items() if axes}),
        )
    out = primitive.bind(*args, **params)
    return out if primitive.multiple_results else [out]
