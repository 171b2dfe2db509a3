"""The check `maps` of kernels: the elements that each result reads, derived in two ways.

In:   a fusion graph, a group, and the kernel built for it.
Out:  nothing, or KernelMapError.
How:  `equation_maps` derives the elements that each result may and must read from the equations,
      `loops_provenance` from the loops. Small kernels run completely, and every element of every
      result must be stored. Of large kernels, only some iterations run. The first, the last and
      random elements among the stored ones are compared.
Laws: a kernel loads only elements that contribute, and all of them, unless constant masks drop
      them. Kernels with data-dependent indices are compared again with given indices. The check
      does not detect the exchange of two values that read the same elements.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from weft._engine.compiler.fusion.classify import LoweringKind, computes, lowering_kind
from weft._engine.compiler.fusion.fuse import Fusion
from weft._engine.compiler.fusion.groups import KernelGroup
from weft._engine.compiler.fusion.reduction_domain import reduced_dims
from weft._engine.compiler.loops.loop_nest import BuiltKernel
from weft._engine.core.primitive import IndexOp
from weft._engine.ir.jaxpr import Eqn, Var
from weft._engine.ops.windows import GatherScatterMode
from weft._engine.util import dtypes
from weft._engine.util.errors import VerificationError
from weft._engine.util.record import field, record
from weft._engine.verification.equation_maps import (
    BITS,
    ElementSet,
    EquationMaps,
    UncheckedKernelError,
    elements_of,
    pairs,
)
from weft._engine.verification.loops_provenance import (
    INCOMPLETE,
    AccessError,
    Provenance,
    leaves_of,
    provenance_of,
)

#: maximum number of elements of an integer input that is filled with indices
LARGEST_INDICES = 1 << 16
#: number of compared elements per result
SAMPLES = 256
#: approximate number of loads of all compared elements of a result
MOST_LOADS = 20_000
_NONE = np.zeros(0, np.int64)


class KernelMapError(VerificationError):
    """A kernel that reads or writes elements that its equations do not."""


@record(frozen=False)
class MapCounts:
    """Numbers of kernels checked completely, in samples or partially, and skipped by reason."""

    whole: int = 0
    sampled: int = 0
    partial: int = 0
    skipped: dict[str, int] = field(default_factory=dict)


counts = MapCounts()


class ResultSample(NamedTuple):
    """Elements of a result, and the elements that the loops load for each."""

    root: Var
    name: str
    elements: list[int]
    loads: list[set[int]]


def check_group_kernel(graph: Fusion, group: KernelGroup, built: BuiltKernel) -> None:
    """Compare the reads and writes of a kernel with its equations; raise KernelMapError."""
    try:
        provenance = provenance_of(built.kernel)
        maps = EquationMaps(graph, group)
        _compare(maps, built, provenance)
        _compare_counts(maps, built, provenance)
        _compare_at_given_indices(maps, built, provenance)
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
        elements = _sampled_elements(stored, _sample_count(maps, root))
        loads = [leaves_of(stored[element]) for element in elements]
        expected = maps.find_dependencies(root, elements)
        for number, leaf in enumerate(built.ins):
            result = ResultSample(root, name, elements, loads)
            _compare_leaf(
                maps,
                built,
                provenance,
                result,
                number,
                expected.get(leaf, ElementSet(_NONE, _NONE)),
            )


def _sample_count(maps: EquationMaps, root: Var) -> int:
    """Return the number of elements to compare; fewer if each depends on many elements."""
    reductions = [
        eqn for eqn in maps.equations([root]) if lowering_kind(eqn) is LoweringKind.REDUCE
    ]
    most = max(
        [eqn.invars[0].aval.size // max(eqn.outvars[0].aval.size, 1) for eqn in reductions],
        default=1,
    )
    return min(SAMPLES, max(8, MOST_LOADS // max(most, 1)))


def _compare_counts(maps: EquationMaps, built: BuiltKernel, provenance: Provenance) -> None:
    """Compare the numbers of values that accumulators combine with the sizes of the reductions."""
    if not provenance.complete:
        return
    reductions = [
        eqn for eqn in maps.equations(built.outs) if lowering_kind(eqn) is LoweringKind.REDUCE
    ]
    sizes = {
        math.prod([eqn.invars[0].aval.shape[d] for d in reduced_dims(eqn)]) for eqn in reductions
    }
    for name, counts in provenance.combined.items():
        if sizes and not counts <= sizes:
            lengths = _abbreviate(sorted(sizes))
            facts = f"accumulator {name} combines {min(counts - sizes)} values, not {lengths}"
            raise _error(built, reductions[0], facts)


def _compare_at_given_indices(
    maps: EquationMaps, built: BuiltKernel, provenance: Provenance
) -> None:
    """Compare again with given integer inputs, if the kernel has indices or masks.

    Indices that the program promises to be in bounds are small. If even these are out of bounds,
    nothing is compared.
    """
    eqns = list(maps.equations(built.outs))
    if not any(isinstance(eqn.primitive, IndexOp) or computes(eqn) == "select" for eqn in eqns):
        return
    promised = any(eqn.params.get("mode") is GatherScatterMode.UNCHECKED for eqn in eqns)
    rng = np.random.default_rng(0)
    inputs = [v for v in built.ins if _is_integral(v.aval.dtype) and v.aval.size <= LARGEST_INDICES]
    index_values = {v: _positions(rng, v.aval.shape, v.aval.dtype, promised) for v in inputs}
    names = dict(zip(built.ins, provenance.inputs))
    values = {names[var]: values for var, values in index_values.items()}
    try:
        if index_values:
            given_maps = EquationMaps(maps.graph, maps.group, index_values)
            _compare(given_maps, built, provenance_of(built.kernel, values))
    except (AccessError, IndexError):
        if not promised:
            raise


def _is_integral(dtype: np.dtype) -> bool:
    return dtypes.is_native_integer(dtype) or dtype == np.bool_


def _positions(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, promised: bool
) -> np.ndarray:
    """Return indices near the beginning, and also out of bounds unless `promised` in bounds."""
    if dtype == np.bool_ or promised:
        return rng.integers(0, 2, shape).astype(dtype)
    limits = np.iinfo(dtype)
    extremes = [max(limits.min, -(1 << 31)), min(limits.max, (1 << 31) - 1)]
    choices = [
        rng.integers(0, 3, shape),
        rng.integers(max(-3, limits.min), 30, shape),
        rng.choice(extremes, shape),
    ]
    return np.choose(rng.choice(3, shape, p=[0.6, 0.3, 0.1]), choices).astype(dtype)


def _sampled_elements(stored: Mapping[int, object], count: int) -> list[int]:
    elements = sorted(stored)
    if len(elements) <= count:
        return elements
    return [elements[0], elements[-1], *random.Random(0).sample(elements[1:-1], count - 2)]


def _compare_leaf(
    maps: EquationMaps,
    built: BuiltKernel,
    provenance: Provenance,
    result: ResultSample,
    number: int,
    expected: ElementSet,
) -> None:
    """Compare the elements of input `number` that elements of a result depend on."""
    first, size = provenance.bases[number], built.ins[number].aval.size
    loaded = [
        (k, x - first)
        for k, loads in enumerate(result.loads)
        for x in loads
        if first <= x < first + size
    ]
    data_dependent = [k for k, loads in enumerate(result.loads) if -2 - number in loads]
    exempt = {
        *data_dependent,
        *(k for k, loads in enumerate(result.loads) if INCOMPLETE in loads),
    }
    table = np.array(loaded, np.int64).reshape(-1, 2)
    codes = pairs(table[:, 0], table[:, 1])
    extra = _NONE if expected.may is None else np.setdiff1d(codes, expected.may)
    missing = np.setdiff1d(expected.must, codes) if provenance.complete else _NONE
    if extra.size:
        k, problem = int(extra[0] >> BITS), "the kernel reads an element that does not contribute"
    elif expected.may is not None and data_dependent:
        k, problem = data_dependent[0], "the kernel reads it at places that depend on data"
    else:
        missing = missing[~np.isin(missing >> BITS, list(exempt))]
        if not missing.size:
            return
        k, problem = int(missing[0] >> BITS), "the kernel does not read an element that contributes"
    reference = expected.must if missing.size and not extra.size else expected.may
    leaf, buf = built.ins[number], provenance.inputs[number]
    by_loops, by_equations = (
        elements_of(codes, k),
        None if reference is None else elements_of(reference, k),
    )
    facts = (
        f"element {result.elements[k]} of {result.name}, {leaf.aval.str_short()} {buf}: "
        f"{problem}.\n"
        f"    by the loops      {buf}[{_abbreviate(by_loops)}]\n"
        f"    by the equations  {buf}[{_abbreviate(by_equations)}]"
    )
    raise _error(built, maps.readers.get(leaf, maps.graph.producer[result.root]), facts)


def _abbreviate(elements: Iterable[int] | None) -> str:
    if elements is None:
        return "any"
    numbers = [int(x) for x in elements]
    if len(numbers) <= 8:
        return ", ".join(map(str, numbers))
    ends = [", ".join(map(str, part)) for part in (numbers[:4], numbers[-2:])]
    return f"{ends[0]}, ..., {ends[1]} ({len(numbers)} elements)"


def _error(built: BuiltKernel, eqn: Eqn, problem: str) -> KernelMapError:
    return KernelMapError(
        f"compile: the kernel {built.kernel.name} does not implement its equations. {problem}\n"
        f"    equation          {eqn!r}\n"
        f"    at                {eqn.source if eqn.source is not None else 'unknown'}\n"
        "  The compiled program would be wrong: this is a fault of weft."
    )
