"""The check `maps` of kernels made from groups of equations: what each element reads, derived twice.

In:   a fusion graph, a group, and the kernel built for it.
Out:  nothing, or KernelMapError.
How:  `equation_maps` derives the elements that each result may and must read from the equations, `loops_provenance` from the loops.
      Small kernels run whole; then every element of every result is stored, and once. Of large ones some iterations run. Elements
      to compare are the first, the last and random ones of those stored.
Laws: a kernel loads no element that does not contribute, but for masked ones; it loads all that do, unless constant masks drop
      them. Data-dependent indices may be anywhere in their operand.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import numpy as np

from weft.compiler.fusion.classify import LoweringKind, computes, lowering_kind
from weft.compiler.fusion.fuse import Fusion
from weft.compiler.fusion.groups import Group
from weft.compiler.fusion.reduction_domain import reduced_dims
from weft.compiler.loops.loop_nest import BuiltKernel
from weft.ir.jaxpr import Eqn, Var
from weft.util.errors import VerificationError
from weft.util.record import field, record
from weft.verification.equation_maps import ElementSet, EquationMaps, UncheckedKernelError
from weft.verification.loops_provenance import AccessError, Provenance, leaves_of, provenance_of

#: the most elements of integer inputs that get values
LARGEST_INDICES = 1 << 16
#: elements of each result that are compared
SAMPLES = 8


class KernelMapError(VerificationError):
    """A kernel that reads or writes other elements than its equations say."""


@record(frozen=False)
class MapCounts:
    """How many kernels were checked whole, in samples, and not at all by reason."""

    whole: int = 0
    sampled: int = 0
    partial: int = 0
    skipped: dict[str, int] = field(default_factory=dict)


counts = MapCounts()


def check_group_kernel(graph: Fusion, group: Group, built: BuiltKernel) -> None:
    """Compare the reads and writes of a kernel with its equations. KernelMapError where they differ."""
    try:
        provenance = provenance_of(built.kernel)
        maps = EquationMaps(graph, group)
        _compare(maps, built, provenance)
        _compare_counts(maps, built, provenance)
        given = _indices(maps, built)
        if given:
            names = dict(zip(built.ins, provenance.inputs))
            again = provenance_of(built.kernel, {names[var]: values for var, values in given.items()})
            _compare(EquationMaps(graph, group, given), built, again)
    except UncheckedKernelError as reason:
        counts.skipped[str(reason)] = counts.skipped.get(str(reason), 0) + 1
        return
    except AccessError as error:
        raise _error(built, graph.producer[group.roots[0]], f"buffer {error}") from None
    if provenance.whole:
        counts.whole += 1
    elif provenance.complete:
        counts.sampled += 1
    else:
        counts.partial += 1


def _compare(maps: EquationMaps, built: BuiltKernel, provenance: Provenance) -> None:
    names = [buf.name for buf in built.kernel.bufs if buf.mode != "in"]
    for root, name in zip(built.outs, names):
        stored = provenance.stored[name]
        for element in _sampled_elements(stored):
            loads = leaves_of(stored[element])
            expected = maps.reads(root, element)
            for number, leaf in enumerate(built.ins):
                _compare_leaf(maps, built, provenance, (root, name, element), (number, leaf), loads, expected.get(leaf))


def _compare_counts(maps: EquationMaps, built: BuiltKernel, provenance: Provenance) -> None:
    """Compare how many values accumulators combine with the sizes of the reductions."""
    if not provenance.complete:
        return
    reductions = [eqn for eqn in maps.equations(built.outs) if lowering_kind(eqn) is LoweringKind.REDUCE]
    sizes = {math.prod([eqn.invars[0].aval.shape[d] for d in reduced_dims(eqn)]) for eqn in reductions}
    for name, found in provenance.combined.items():
        if sizes and not found <= sizes:
            facts = f"accumulator {name} combines {min(found - sizes)} values, its reduction {_abbreviated(sorted(sizes))}"
            raise _error(built, reductions[0], facts)


def _indices(maps: EquationMaps, built: BuiltKernel) -> dict[Var, np.ndarray]:
    """Return values of the integer inputs of a kernel with data-dependent indices or masks: positions, inside and outside."""
    kinds = [eqn.primitive.kind == "index" or computes(eqn) == "select" for eqn in maps.equations(built.outs)]
    if not any(kinds):
        return {}
    rng = np.random.default_rng(0)
    inputs = [v for v in built.ins if v.aval.dtype.kind in "iub" and v.aval.size <= LARGEST_INDICES]
    return {v: _positions(rng, v.aval.shape, v.aval.dtype) for v in inputs}


def _positions(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    limits = np.iinfo(dtype)
    choices = [rng.integers(0, 3, shape), rng.integers(max(-3, limits.min), 30, shape),
               rng.choice([max(limits.min, -(1 << 31)), min(limits.max, (1 << 31) - 1)], shape)]
    return np.choose(rng.choice(3, shape, p=[0.6, 0.3, 0.1]), choices).astype(dtype)


def _sampled_elements(stored: dict[int, object]) -> list[int]:
    elements = sorted(stored)
    if len(elements) <= SAMPLES:
        return elements
    return [elements[0], elements[-1], *random.Random(0).sample(elements[1:-1], SAMPLES - 2)]


def _compare_leaf(maps: EquationMaps, built: BuiltKernel, provenance: Provenance, result: tuple[Var, str, int], operand: tuple[int, Var],
                  loads: set[int], expected: ElementSet | None) -> None:
    """Compare the elements of one input of which one element of a result is made."""
    (root, name, element), (number, leaf) = result, operand
    first, size = provenance.bases[number], leaf.aval.size
    loaded = np.sort(np.array([x - first for x in loads if first <= x < first + size], np.int64))
    anywhere = -2 - number in loads
    none = np.zeros(0, np.int64)
    may, must = (none, none) if expected is None else expected
    extra = loaded[:0] if may is None else np.setdiff1d(loaded, may)
    missing = none if anywhere or not provenance.complete or -1 in loads else np.setdiff1d(must, loaded)
    if anywhere and may is not None and may.size < size:
        problem = "the kernel reads it at places that depend on data"
    elif extra.size:
        problem = f"the kernel reads element {extra[0]}, which does not contribute"
    elif missing.size:
        problem = f"the kernel does not read element {missing[0]}, which contributes"
    else:
        return
    buf = provenance.inputs[number]
    eqn = maps.readers.get(leaf, maps.graph.producer[root])
    wanted = must if missing.size and not extra.size else may
    facts = f"element {element} of {name}, {leaf.aval.str_short()} {buf}: {problem}.\n" \
            f"    by the loops      {buf}[{_abbreviated(loaded)}]\n" \
            f"    by the equations  {buf}[{_abbreviated(wanted)}]"
    raise _error(built, eqn, facts)


def _abbreviated(elements: Iterable[int] | None) -> str:
    if elements is None:
        return "any"
    some = [int(x) for x in elements]
    if len(some) <= 8:
        return ", ".join(map(str, some))
    return f"{', '.join(map(str, some[:4]))}, ..., {', '.join(map(str, some[-2:]))} ({len(some)} elements)"


def _error(built: BuiltKernel, eqn: Eqn, problem: str) -> KernelMapError:
    return KernelMapError(
        f"compile: the kernel {built.kernel.name} does not implement its equations. {problem}\n"
        f"    equation          {eqn!r}\n"
        f"    at                {eqn.source if eqn.source is not None else 'unknown'}\n"
        "  The compiled program would be wrong: this is a fault of weft."
    )
