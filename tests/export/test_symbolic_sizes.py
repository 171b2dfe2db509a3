"""Programs traced once with symbolic sizes equal their functions at every size, from bytes, mapped and differentiated."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.export.symbolic_programs import PROGRAMS, Program
from weft import export
from weft.export import Exported, SymbolicScope, symbolic_shape

DTYPES = {"": np.float32, "i": np.int32, "b": np.bool_}
struct = lambda *shape, dtype="float32": weft.ShapeDtypeStruct(shape, dtype)
every_program = pytest.mark.parametrize("program", PROGRAMS, ids=[p.name for p in PROGRAMS])


def types_of(program: Program) -> list[weft.ShapeDtypeStruct]:
    scope = SymbolicScope(program.constraints)
    split = [shape.partition(":") for shape in program.shapes]
    return [
        struct(*symbolic_shape(text, scope=scope), dtype=DTYPES[kind]) for text, _, kind in split
    ]


def exported(program: Program) -> Exported:
    return export.export(weft.jit(program.function))(*types_of(program))


def arguments(program: Program, n: int, m: int, k: int = 3) -> list[np.ndarray]:
    """Return arguments of these sizes, or of the nearest sizes that the constraints allow."""
    n, m = max(n, program.smallest), max(m, program.smallest)
    n = -(-n // 4) * 4 if "mod(n, 4) == 0" in program.constraints else n
    rng = np.random.default_rng(n + 10 * m)
    arrays = []
    for shape in program.shapes:
        text, _, kind = shape.partition(":")
        sizes = [int(eval(part, {"n": n, "m": m, "k": k})) for part in text.split(",")]
        arrays.append(
            rng.integers(0, min(n, 3), sizes).astype(DTYPES[kind])
            if kind
            else rng.normal(size=sizes).astype(np.float32)
        )
    return arrays


def assert_same(ours, theirs, tolerance=3e-5) -> None:
    for x, y in zip(weft.tree.leaves(ours), weft.tree.leaves(theirs), strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def check_at(call, program: Program, n: int, m: int, tolerance=3e-5) -> None:
    args = arguments(program, n, m)
    assert_same(call(*args), weft.jit(program.function)(*args), tolerance)


def loss(function, args):
    """Return the sum of the results, as a function of the floating-point arguments, which come first."""
    floats = [x for x in args if x.dtype == np.float32]

    def of_floats(*xs):
        return sum(
            wnp.sum(y.astype(np.float32)) for y in weft.tree.leaves(function(*xs, *args[len(xs) :]))
        )

    return of_floats, floats


@pytest.mark.sampled(2)
@every_program
def test_results_at_small_sizes_and_from_bytes(program):
    exported_function = exported(program)
    check_at(exported_function.call, program, 1, 2)
    check_at(export.deserialize(exported_function.serialize()).call, program, 5, 1)


@pytest.mark.slow
@every_program
def test_results_at_all_small_and_at_large_sizes(program):
    exported_function = exported(program)
    again = export.deserialize(exported_function.serialize())
    for n in range(1, 9):
        check_at(exported_function.call, program, n, 9 - n)
        check_at(again.call, program, n, n)
    check_at(again.call, program, 61, 40, 3e-4)
    check_at(exported_function.call, program, 34, 130, 3e-4)


@pytest.mark.sampled(4)
@every_program
def test_results_under_vmap(program):
    exported_function, args = exported(program), arguments(program, 3, 2)
    batch = [np.stack([x, x[::-1]]) for x in args]
    assert_same(
        weft.jit(weft.vmap(exported_function.call))(*batch),
        weft.jit(weft.vmap(program.function))(*batch),
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p.smooth], ids=[p.name for p in PROGRAMS if p.smooth]
)
def test_gradients(program):
    exported_function, args = exported(program), arguments(program, 4, 3)
    ours, floats = loss(exported_function.call, args)
    theirs, _ = loss(program.function, args)
    of = tuple(range(len(floats)))
    assert_same(
        weft.jit(weft.grad(ours, of))(*floats), weft.jit(weft.grad(theirs, of))(*floats), 3e-4
    )


#: expressions as they are written, of any order of their terms
WRITTEN = [
    "- b + a", "b - a", "- a + 3", "- 2*a + 3", "a*b + b^2", "- a*b^2 - 2*a^2*b + 5", "- mod(a, 4) + 3", "floordiv(a, 2) - b + 1",
    "- floordiv(a, 2) - b + 5", "b*c + a*c + a*b + c^2 + b^2 + a^2",
    "a*b*c + b*c^2 + a*c^2 + b^2*c + a^2*c + a*b^2 + a^2*b + c^3 + b^3 + a^3",
]  # fmt: skip


@pytest.mark.parametrize("text", WRITTEN)
def test_expressions_have_one_text(text):
    size, *_ = export.symbolic_shape(f"{text}, a, b, c")
    terms = text.replace("- ", "+ -1*").removeprefix("+ ").split(" + ")
    again, *_ = export.symbolic_shape(f"{' + '.join(reversed(terms))}, a, b, c", scope=size.scope)
    assert str(size) == str(again) == text
