"""Hand-written layouts: what users write for data, ZeRO, FSDP, tensor and expert parallelism, and their combinations.

A layout has a spec for each flat argument: the mesh axes of each dim.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

Axes = tuple[str, ...]
Spec = tuple[Axes, ...]
Layout = list[Spec]


class Role(Enum):
    """What an argument is to a training step."""

    PARAMETER = auto()
    MOMENT = auto()
    DATA = auto()


@dataclass(frozen=True)
class Leaf:
    """One flat argument: the dims that data parallelism and tensor (or expert) parallelism shard."""

    shape: tuple[int, ...]
    role: Role
    batch: int | None = None
    tensor: int | None = None


def shard(
    shape: Sequence[int], axes_of: Mapping[int | None, Axes], sizes: Mapping[str, int]
) -> Spec:
    """Return the spec with the axes of each dim; dims that they do not divide stay whole."""
    axes = [axes_of.get(d, ()) for d in range(len(shape))]
    return tuple(a if n % math.prod(sizes[x] for x in a) == 0 else () for n, a in zip(shape, axes))


def shard_largest(shape: Sequence[int], axes: Axes, spec: Spec, sizes: Mapping[str, int]) -> Spec:
    """Return `spec` with `axes` on the largest whole dim that they divide."""
    for d in sorted(range(len(shape)), key=lambda d: -shape[d]):
        if not spec[d] and axes and shape[d] % math.prod(sizes[a] for a in axes) == 0:
            return (*spec[:d], axes, *spec[d + 1 :])
    return spec


def parallel(
    leaves: Sequence[Leaf],
    data: Axes,
    tensor: Axes,
    kept: frozenset[Role],
    sizes: Mapping[str, int],
) -> Layout:
    """Return batches over `data`, tensor dims over `tensor`; arguments with a role in `kept` are sharded over `data` too."""
    found: Layout = []
    for leaf in leaves:
        axes_of = {leaf.batch: data} if leaf.batch is not None else {}
        if leaf.tensor is not None:
            axes_of[leaf.tensor] = tensor
        spec = shard(leaf.shape, axes_of, sizes)
        if leaf.role in kept:
            used = {a for axes in spec for a in axes}
            free = tuple(a for a in sizes if a not in used)
            spec = shard_largest(leaf.shape, free, spec, sizes)
        found.append(spec)
    return found


def _tensor_axes(sizes: Mapping[str, int]) -> Iterator[Axes]:
    """Yield the axes for tensor parallelism: of meshes with equal axes, one set of each number of axes."""
    seen: set[tuple[int, ...]] = set()
    for count in range(1, len(sizes) + 1):
        for axes in itertools.combinations(reversed(sizes), count):
            key = tuple(sizes[a] for a in axes)
            if key not in seen:
                seen.add(key)
                yield tuple(a for a in sizes if a in axes)


def training_layouts(
    leaves: Sequence[Leaf], sizes: Mapping[str, int], experts: bool = False
) -> dict[str, Layout]:
    """Return data parallel, ZeRO-1, FSDP, tensor parallel layouts and combinations; with `experts`, of these too."""
    every = tuple(sizes)
    kinds = {
        "": frozenset[Role](),
        "+zero1": frozenset({Role.MOMENT}),
        "+fsdp": frozenset({Role.PARAMETER, Role.MOMENT}),
    }
    whole = [replace(leaf, tensor=None) for leaf in leaves]
    found: dict[str, Layout] = {"replicated": parallel(whole, (), (), kinds[""], sizes)}
    for suffix, kept in kinds.items():
        found["dp" + suffix] = parallel(whole, every, (), kept, sizes)
        for tensor in _tensor_axes(sizes):
            rest = tuple(a for a in every if a not in tensor)
            name = f"tp({','.join(tensor)}){suffix}"
            found[name] = parallel(leaves, rest, tensor, kept, sizes)
            if experts:
                found[f"ep({','.join(tensor)}){suffix}"] = parallel(
                    leaves, every, tensor, kept, sizes
                )
    return _distinct(found)


def array_layouts(leaves: Sequence[Leaf], sizes: Mapping[str, int]) -> dict[str, Layout]:
    """Return layouts that shard each dim of each argument, each dim of all, and two dims over two groups of axes."""
    whole: Layout = [((),) * len(leaf.shape) for leaf in leaves]
    found: dict[str, Layout] = {"replicated": whole}
    for axes in _tensor_axes(sizes):
        rest = tuple(a for a in sizes if a not in axes)
        over = ",".join(axes)
        for i, leaf in enumerate(leaves):
            for d in range(len(leaf.shape)):
                spec = shard(leaf.shape, {d: axes}, sizes)
                found[f"argument {i} dim {d} over {over}"] = [*whole[:i], spec, *whole[i + 1 :]]
        for d in range(max((len(leaf.shape) for leaf in leaves), default=0)):
            found[f"dim {d} over {over}"] = [shard(x.shape, {d: axes}, sizes) for x in leaves]
            for other in range(d + 1, max(len(leaf.shape) for leaf in leaves) if rest else 0):
                found[f"dims {d},{other} over {over};{','.join(rest)}"] = [
                    shard(x.shape, {d: axes, other: rest}, sizes) for x in leaves
                ]
    return _distinct(found)


def _distinct(layouts: Mapping[str, Layout]) -> dict[str, Layout]:
    """Return the layouts without later ones that equal an earlier one."""
    first: dict[tuple[Spec, ...], str] = {}
    for name, layout in layouts.items():
        first.setdefault(tuple(layout), name)
    return {name: list(layout) for layout, name in first.items()}
