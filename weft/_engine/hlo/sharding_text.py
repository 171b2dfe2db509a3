"""Shardings as texts: named mesh axes in the dialect `sdy`, other shardings as device tiles."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from typing import Any

from weft._engine.hlo.ops import HloBlock, HloContext, HloValue
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.shardings import NamedSharding, Sharding


def axes_text(axes: Iterable, is_open: bool = False) -> str:
    """Return `{"a", "b"}`, or `{"a", ?}` if open: other axes may split the dim too."""
    return "{" + ", ".join([*(f'"{a}"' for a in axes), *["?"] * is_open]) + "}"


def _mesh(context: HloContext, mesh: Any) -> str:
    """Return the name of a mesh in the module."""
    context.sizes.append(math.prod(n for _, n in mesh.shape_tuple))
    text = _mesh_text(mesh)
    return context.meshes.setdefault(
        text, f"mesh_{len(context.meshes) - 1}" if context.meshes else "mesh"
    )


@lru_cache(maxsize=256)
def _mesh_text(mesh: Any) -> str:
    """Return the axes of a mesh, and its devices if they are not in order."""
    text = "[" + ", ".join(f'"{name}"={size}' for name, size in mesh.shape_tuple) + "]"
    ids = [d.id for d in mesh.devices.flat] if isinstance(mesh, Mesh) else []
    return text + (f", device_ids={ids}" if ids != list(range(len(ids))) else "")


def sharding_text(
    context: HloContext,
    mesh: Any,
    dims: Sequence,
    open_dims: Container[int] = (),
    replicated: Container = (),
    unreduced: Container = (),
) -> str:
    """Return the text of a sharding: `<@mesh, [{"a"}, {}]>`.

    `{?}` is an open dim, which the axes in `replicated={"b"}` do not split. `unreduced={"a"}` marks
    partial sums.
    """
    dim_texts = [axes_text(axes, d in open_dims) for d, axes in enumerate(dims)]
    others = [
        f", {name}={axes_text(a for a in mesh.axis_names if a in axes)}"
        for name, axes in (("replicated", replicated), ("unreduced", unreduced))
        if axes
    ]
    return f"<@{_mesh(context, mesh)}, [{', '.join(dim_texts)}]{''.join(others)}>"


def _format_placement(context: HloContext, sharding: NamedSharding, ndim: int) -> str:
    spec = sharding.spec
    return sharding_text(
        context,
        sharding.mesh,
        sharding.spec_dims(ndim),
        spec.unconstrained_dims(),
        unreduced=spec.unreduced,
    )


def attribute(context: HloContext, sharding: Sharding | None, ndim: int) -> dict[str, str]:
    """Return the sharding attribute of an argument or a result."""
    if sharding is None:
        return {}
    if isinstance(sharding, NamedSharding):
        return {"sdy.sharding": f"#sdy.sharding{_format_placement(context, sharding, ndim)}"}
    return {"mhlo.sharding": f'"{tiles_text(sharding, ndim)}"'}


def _format_type_placement(
    context: HloContext, sharding: NamedSharding, ndim: int, open_dims: Container[int]
) -> str:
    """Return the sharding that a type implies; automatic axes may split its open dims."""
    spec, explicit = sharding.spec, sharding.mesh.explicit_axes
    unused = [a for a in explicit if a not in spec.axes and a not in spec.unreduced]
    return sharding_text(
        context, sharding.mesh, sharding.spec_dims(ndim), open_dims, unused, spec.unreduced
    )


def type_attribute(
    context: HloContext, sharding: NamedSharding | None, ndim: int
) -> dict[str, str]:
    """Return the sharding attribute of a result whose type has `sharding`.

    Dims that the type does not split are open to automatic axes.
    """
    if sharding is None or not sharding.mesh.auto_axes:
        return attribute(context, sharding, ndim)
    whole = [d for d, axes in enumerate(sharding.spec_dims(ndim)) if not axes]
    return {
        "sdy.sharding": f"#sdy.sharding{_format_type_placement(context, sharding, ndim, whole)}"
    }


def constrain(b: HloBlock, x: HloValue, sharding: Sharding | None) -> HloValue:
    """Return `x`, constrained to `sharding`."""
    if sharding is None:
        return x
    if isinstance(sharding, NamedSharding):
        return b.op(
            "sdy.sharding_constraint",
            x,
            sharding=_format_placement(b.context, sharding, x.ndim),
            tiles=tiles_text(sharding, x.ndim),
        )
    return b.op(
        "custom_call",
        x,
        target="Sharding",
        backend_config={},
        sharding=tiles_text(sharding, x.ndim),
        has_side_effect=False,
    )


def constrain_to_type(b: HloBlock, x: HloValue, sharding: NamedSharding | None) -> HloValue:
    """Return `x`, constrained to the sharding in its type, which leaves automatic axes open."""
    if sharding is None or not sharding.mesh.auto_axes:
        return constrain(b, x, sharding)
    text = _format_type_placement(b.context, sharding, x.ndim, range(x.ndim))
    return b.op("sdy.sharding_constraint", x, sharding=text, tiles=tiles_text(sharding, x.ndim))


def is_abstract(sharding: Sharding) -> bool:
    """Return whether a sharding names axes of a mesh without devices."""
    return isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh)


@lru_cache(maxsize=256)
def tiles_text(sharding: Sharding, ndim: int) -> str:
    """Return a sharding as the device of each tile, in XLA's form.

    >>> from weft._engine.ir.shardings import PositionalSharding
    >>> tiles_text(PositionalSharding(weft.devices()[:4]).reshape(2, 2), 2)
    '{devices=[2,2]0,1,2,3}'
    """
    splits, shard_ids = sharding.grid(ndim)
    if len(shard_ids) == 1:
        return (
            f"{{maximal device={0 if is_abstract(sharding) else sharding.device_assignment[0].id}}}"
        )
    copies = len(shard_ids) // math.prod(splits)
    if copies == len(shard_ids):
        return "{replicated}"
    order = sorted(range(len(shard_ids)), key=lambda i: shard_ids[i])
    dims = [*splits, *([copies] if copies > 1 else [])]
    last = " last_tile_dim_replicate" if copies > 1 else ""
    return f"{{devices=[{','.join(map(str, dims))}]{','.join(map(str, order))}{last}}}"


def donation_aliases(
    main: HloBlock, donated: Sequence[bool], ins: Sequence, outs: Sequence
) -> dict[int, int | None]:
    """Return the result that takes the memory of each donated argument.

    It is the first free result of equal type and sharding. The value is None where results have the
    type but other shardings, or shardings that are not chosen yet.
    """
    free, aliases = list(range(len(main.results))), {}
    for i, (x, is_donated) in enumerate(zip(main.args, donated)):
        fits = [k for k in free if main.results[k].type is x.type] if is_donated else []
        aliased = [k for k in fits if ins[i : i + 1] == outs[k : k + 1]]
        if fits:
            aliases[i] = aliased[0] if aliased else None
        free = [k for k in free if k not in aliased[:1]]
    return aliases
