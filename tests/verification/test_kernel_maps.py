"""The check `maps` of kernels: ordinary ones pass, kernels with planted faults do not."""

import re

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.verification.loop_mutants import MUTATIONS, changes_values, mutants, some
from tests.verification.map_programs import FLOAT_PROGRAMS, INDEX_PROGRAMS
from weft import lax
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.compiler.schedule import schedule
from weft._engine.ir import loops as L
from weft._engine.util.config import Override
from weft._engine.util.record import replace
from weft._engine.verification import kernel_maps
from weft._engine.verification.equation_maps import EquationMaps
from weft._engine.verification.kernel_maps import KernelMapError, check_group_kernel
from weft._engine.verification.loops_provenance import AccessError, provenance_of


@pytest.fixture(autouse=True)
def no_kernels(monkeypatch):
    """Let every kernel be built, and so checked."""
    monkeypatch.setattr(schedule, "_lowered", {})
    monkeypatch.setattr(kernel_maps, "counts", kernel_maps.MapCounts())


def built_kernels(function, *args):
    """Return the graph, the group and the kernel of every group of a program."""
    kernels = []
    schedule.schedule(
        simplify(weft.make_jaxpr(function)(*args)),
        check_kernel=lambda *built: kernels.append(built),
    )
    return kernels


def floats(*shapes):
    return [np.zeros(shape, np.float32) for shape in shapes]


def is_found(graph, group, built, kernel):
    try:
        check_group_kernel(graph, group, replace(built, kernel=kernel))
    except KernelMapError:
        return True
    return False


@pytest.mark.parametrize("name", FLOAT_PROGRAMS)
def test_kernels_implement_their_equations(name):
    function, shapes = FLOAT_PROGRAMS[name]
    for built in built_kernels(function, *floats(*shapes)):
        check_group_kernel(*built)
    assert not kernel_maps.counts.skipped


@pytest.mark.parametrize("name", INDEX_PROGRAMS)
def test_kernels_with_indices_implement_equations(name):
    function, indices, shapes = INDEX_PROGRAMS[name]
    kernels = built_kernels(function, np.zeros(indices, np.int32), *floats(*shapes))
    for built in kernels:
        check_group_kernel(*built)
    assert kernels and not kernel_maps.counts.skipped


def test_the_setting_checks_kernels():
    with Override(check="maps"):
        weft.jit(lambda x: wnp.exp(x.T) * 1.25)(np.ones((3, 5), np.float32))
    assert kernel_maps.counts.whole == 1


#: the bounds of their indices are not checked by their kernels
UNCHECKED = ["take_wrap", "take_sorted"]
MUTATED = [
    "broadcast_row",
    "transpose_2d",
    "transpose_odd",
    "pad",
    "pad_interior",
    "concatenate_columns",
    "roll",
    "strided_slice",
    "reverse",
    "shifted_mask",
    "layer_norm",
    "standardize",
    "logsumexp_last",
    "logsumexp_first",
    "sum_columns",
    "mean_pool",
    "pixel_shuffle",
    "sum_(0, 2)",
    "softmax_(1,)",
]


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.parametrize("name", MUTATED)
def test_planted_faults_are_found(name, mutation):
    function, shapes = FLOAT_PROGRAMS[name]
    for graph, group, built in built_kernels(function, *floats(*shapes)):
        for mutant in some(mutants(built.kernel, mutation), 3):
            if not is_found(graph, group, built, mutant):
                assert not changes_values(built.kernel, mutant), mutant


@pytest.mark.parametrize(
    "mutation", [m for m in MUTATIONS if m != "exchange cases"]
)  # cases of equal reads are a matter of values
@pytest.mark.parametrize("name", [name for name in INDEX_PROGRAMS if name not in UNCHECKED])
def test_faults_planted_in_gathers_are_found(name, mutation):
    function, indices, shapes = INDEX_PROGRAMS[name]
    for graph, group, built in built_kernels(
        function, np.zeros(indices, np.int32), *floats(*shapes)
    ):
        for mutant in some(mutants(built.kernel, mutation), 3):
            if not is_found(graph, group, built, mutant):
                assert not changes_values(built.kernel, mutant), mutant


@pytest.mark.parametrize("mutation", ["shift load", "shift store"])
@pytest.mark.parametrize("name", ["large_elementwise", "large_transpose", "large_softmax"])
def test_faults_in_large_kernels_are_found(name, mutation):
    function, shapes = FLOAT_PROGRAMS[name]
    for graph, group, built in built_kernels(function, *floats(*shapes)):
        results = [
            is_found(graph, group, built, mutant)
            for mutant in some(mutants(built.kernel, mutation), 3)
        ]
        assert all(results)


def test_the_error_names_kernel_equation_and_line():
    ((graph, group, built),) = built_kernels(
        lambda x: wnp.exp(x[::-1])[2:-2], np.zeros(9, np.float32)
    )
    wrong = mutants(built.kernel, "shift load down")[0]
    with pytest.raises(KernelMapError) as error:
        check_group_kernel(graph, group, replace(built, kernel=wrong))
    text = str(error.value)
    assert (
        re.search(r"kernel fused_slice", text)
        and "= rev[" in text
        and "test_kernel_maps.py" in text
    )
    assert "x0[" in text and "element" in text


def _copy(index, extent=4, size=4, out=4):
    load = L.Load("x", index, "f32")
    store = L.StoreElement("y", L.Index("i"), load)
    return L.LoopsKernel(
        (L.Buf("x", "f32", size), L.Buf("y", "f32", out, "out")), (L.For("i", extent, (store,)),)
    )


I, ONE = L.Index("i"), L.Const(1, "i64")
SCRATCH = (L.Buf("s", "f32", 4),)
WRONG_ACCESSES = {
    "load after the end": (_copy(L.ScalarOp("add", (I, ONE), "i64")), "element 4 is outside"),
    "load before the beginning": (
        _copy(L.ScalarOp("sub", (I, ONE), "i64")),
        "element -1 is outside",
    ),
    "store after the end": (_copy(I, extent=5, size=5), "element 4 is outside"),
    "result not written": (_copy(I, extent=3), "element 3 is never written"),
    "scratch read before it is written": (
        L.LoopsKernel(
            (L.Buf("y", "f32", 4, "out"),),
            (L.For("i", 4, (L.StoreElement("y", I, L.Load("s", I, "f32")),)),),
            SCRATCH,
        ),
        "element 0 is read before it is written",
    ),
    "two tasks": (
        L.LoopsKernel(
            (L.Buf("x", "f32", 4), L.Buf("y", "f32", 1, "out")),
            (
                L.For(
                    "i",
                    4,
                    (L.StoreElement("y", L.Const(0, "i64"), L.Load("x", I, "f32")),),
                    L.LoopKind.PARALLEL,
                ),
            ),
        ),
        "written by two tasks, with different values",
    ),
    "scratch of another task": (
        L.LoopsKernel(
            (L.Buf("x", "f32", 4), L.Buf("y", "f32", 4, "out")),
            (
                L.For(
                    "i",
                    4,
                    (
                        L.For(
                            "k",
                            L.ScalarOp(
                                "select",
                                (
                                    L.ScalarOp("eq", (I, L.Const(0, "i64")), "bool"),
                                    L.Const(4, "i64"),
                                    L.Const(0, "i64"),
                                ),
                                "i64",
                            ),
                            (L.StoreElement("s", L.Index("k"), L.Load("x", L.Index("k"), "f32")),),
                        ),
                        L.StoreElement("y", I, L.Load("s", I, "f32")),
                    ),
                    L.LoopKind.PARALLEL,
                ),
            ),
            SCRATCH,
        ),
        "element 1 is read before it is written",
    ),
}


@pytest.mark.parametrize("kernel, problem", WRONG_ACCESSES.values(), ids=WRONG_ACCESSES)
def test_wrong_accesses_are_found(kernel, problem):
    L.check(kernel)
    with pytest.raises(AccessError, match=problem):
        provenance_of(kernel)


def test_guarded_loads_outside_read_nothing():
    inside = L.ScalarOp("lt", (L.Index("i"), L.Const(2, "i64")), "bool")
    load = L.Load("x", L.Index("i"), "f32", inside)
    kernel = L.LoopsKernel(
        (L.Buf("x", "f32", 2), L.Buf("y", "f32", 4, "out")),
        (L.For("i", 4, (L.StoreElement("y", L.Index("i"), load),)),),
    )
    assert provenance_of(kernel).stored["y"] == {0: 0, 1: 1, 2: None, 3: None}


@pytest.mark.parametrize(
    "function, element, may, must",
    [
        (lambda x: x[::-1] * 2, 0, [8], [8]),
        (lambda x: lax.pad(x, 0.0, ((2, 0, 0),)) * 2, 1, [], []),
        (lambda x: wnp.where(wnp.arange(9) < 4, x, -x[::-1]), 3, [3], [3]),
        (lambda x: wnp.where(wnp.arange(9) < 4, x, -x[::-1]), 4, [4], [4]),
        (lambda x: wnp.where(x > 0, x, x[::-1]), 2, [2, 6], [2, 6]),
        (lambda x: x.reshape(3, 3).sum(0) * 2, 1, [1, 4, 7], [1, 4, 7]),
        (lambda x: x[wnp.array([5, 2, 2])] * 2, 0, [5], [5]),
    ],
    ids=["reverse", "padding", "mask true", "mask false", "select", "reduction", "static gather"],
)
def test_maps_of_equations(function, element, may, must):
    graph, group, built = built_kernels(function, np.zeros(9, np.float32))[-1]
    positions = {
        v: np.array([5, 2, 2], v.aval.dtype)
        for v in built.ins
        if v.aval.shape == (3,) and v.aval.dtype.kind == "i"
    }
    maps = EquationMaps(graph, group, positions)
    reads = {
        v: s
        for v, s in maps.find_dependencies(group.roots[0], [element]).items()
        if v.aval.shape == (9,)
    }
    sets = next(iter(reads.values()), None)
    assert (
        ([], []) == (may, must)
        if sets is None
        else (sets.may.tolist(), sets.must.tolist()) == (may, must)
    )
