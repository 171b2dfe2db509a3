"""Expressions of symbolic sizes: values, bounds and decided comparisons agree with those at concrete sizes."""

import itertools
import operator

import numpy as np
import pytest
from hypothesis import given, strategies as st

import weft
import weft.numpy as wnp
from weft._engine.ir.symbolic import (
    SymbolicDim,
    SymbolicScope,
    evaluate,
    max_dim,
    min_dim,
    slice_bounds,
)
from weft.errors import InconclusiveDimensionOperation

OPERATIONS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "max": max_dim,
    "min": min_dim,
}
CONSTRAINTS = [
    (),
    ("a >= 3",),
    ("b <= 4",),
    ("a >= b",),
    ("2*a <= b + 4", "a >= 2"),
    ("mod(a, 2) == 0",),
    ("b == 2*a",),
]
leaves = st.one_of(st.sampled_from(["a", "b"]), st.integers(-4, 6))
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(sorted(OPERATIONS)), inner, inner),
        st.tuples(st.sampled_from(["//", "%"]), inner, st.integers(1, 4)),
    ),
    max_leaves=6,
)


def value_of(expression, sizes):
    """Return the value of an expression at sizes, which may be symbolic."""
    if not isinstance(expression, tuple):
        return sizes.get(expression, expression)
    name, *operands = expression
    x, y = [value_of(operand, sizes) for operand in operands]
    return {**OPERATIONS, "//": operator.floordiv, "%": operator.mod}[name](x, y)


def admitted(constraints):
    """Yield small sizes that satisfy the constraints."""
    scope = SymbolicScope(constraints)
    for a, b in itertools.product(range(1, 9), repeat=2):
        try:
            scope.check({"a": a, "b": b}, ())
        except ValueError:
            continue
        yield {"a": a, "b": b}


@given(expressions, expressions, st.sampled_from(CONSTRAINTS))
def test_values_bounds_and_comparisons_are_those_at_all_sizes(left, right, constraints):
    scope = SymbolicScope(constraints)
    dims = {name: scope.dim(name) for name in "ab"}
    x, y = value_of(left, dims), value_of(right, dims)
    low, high = x.bounds() if isinstance(x, SymbolicDim) else (x, x)
    decided = {}
    for sign in ("lt", "le", "gt", "ge"):
        try:
            decided[sign] = getattr(operator, sign)(x, y)
        except InconclusiveDimensionOperation:
            pass
    for sizes in admitted(constraints):
        at = lambda n, sizes=sizes: (
            evaluate(n.expression, sizes) if isinstance(n, SymbolicDim) else n
        )
        assert at(x) == value_of(left, sizes) and low <= at(x) <= high
        assert all(
            getattr(operator, sign)(at(x), at(y)) == result for sign, result in decided.items()
        )
        assert not x == y or at(x) == at(y)


@given(expressions)
def test_expressions_are_evaluated_at_symbolic_sizes(expression):
    scope = SymbolicScope()
    a, b = scope.dim("a"), scope.dim("b")
    value = value_of(expression, {"a": a, "b": b})
    if not isinstance(value, int):
        swapped = value_of(expression, {"a": b, "b": a})
        assert evaluate(value.expression, {"a": b, "b": a}) == swapped


@pytest.mark.parametrize("step", [None, 1, 2, 3, -1, -2, -3])
def test_slices_have_the_positions_of_python(step):
    n = SymbolicScope().dim("n")
    for start, stop in itertools.product([None, *range(-5, 6)], repeat=2):
        first, count, by = slice_bounds(start, stop, step, n)
        for size in range(1, 9):
            places = range(size)[start:stop:step]
            at = [
                evaluate(v.expression, {"n": size}) if isinstance(v, SymbolicDim) else v
                for v in (first, count)
            ]
            assert at[1] == len(places) and by == (step or 1)
            assert at[0] == places[0] if len(places) else -1 <= at[0] <= size


@pytest.mark.parametrize(
    ("claim", "constraints"),
    [
        (lambda n, m: n - n // 2 >= 0, ()),
        (lambda n, m: n * m >= n, ()),
        (lambda n, m: n % 4 == 0 and 4 * (n // 4) == n, ("mod(n, 4) == 0",)),
        (lambda n, m: n + m >= 5, ("n + m >= 5",)),
        (lambda n, m: max_dim(n - 5, 0) + min_dim(n, 5) <= n, ()),
        (lambda n, m: min_dim(n, m) <= max_dim(n, m), ()),
        (lambda n, m: 3 * (n // 3) + n % 3 >= n, ()),
        (lambda n, m: m > n, ("n <= 4", "m >= 5")),
        (lambda n, m: (-1) % n == n - 1 and (n - 1) // n == 0, ()),
    ],
)
def test_comparisons_that_hold_are_decided(claim, constraints):
    scope = SymbolicScope(constraints)
    assert claim(scope.dim("n"), scope.dim("m"))


@pytest.mark.parametrize(
    "use",
    [
        int,
        float,
        complex,
        range,
        operator.index,
        [1, 2].__getitem__,
        lambda n: [0] * n,
        lambda n: np.array([n], np.float32),
        lambda n: np.arange(3)[:n],
    ],
)
def test_a_size_has_no_value(use):
    with pytest.raises(
        InconclusiveDimensionOperation, match="'n' used in a context that requires a constant"
    ):
        use(SymbolicScope().dim("n"))


@pytest.mark.parametrize("use", [np.sin, np.sqrt, np.exp, np.zeros, lambda n: np.ones((2, n))])
def test_numpy_functions_refuse_sizes(use):
    with pytest.raises(TypeError):
        use(SymbolicScope().dim("n"))


def test_numpy_sums_and_products_of_sizes_are_sizes():
    n, m = [SymbolicScope().dim("n")] * 2
    assert np.prod((n, m, 3)) == 3 * n * m and np.sum([n, 1]) == n + 1 and np.int32(2) * n == 2 * n


@pytest.mark.parametrize(
    "compute",
    [
        lambda n, x: 5.0 + n,
        lambda n, x: n / 2,
        lambda n, x: 1 / n,
        lambda n, x: 2.0**n,
        lambda n, x: n**0.5,
        lambda n, x: n - np.arange(3),
        lambda n, x: np.arange(3) * n,
        lambda n, x: np.float32(2) * n,
        lambda n, x: x * n + n,
        lambda n, x: n // x[0],
        lambda n, x: n > x,
        lambda n, x: wnp.array([n, 3]),
        lambda n, x: wnp.float32(n),
        lambda n, x: wnp.maximum(n, 3),
        lambda n, x: wnp.sin(n),
        lambda n, x: wnp.stack([n, n + 1]),
        lambda n, x: wnp.where(x > n, n, 0),
    ],
)
@pytest.mark.parametrize("x64", [False, True])
def test_sizes_become_numbers_of_the_program(compute, x64):
    with weft.enable_x64(x64):
        x = np.linspace(1, 5, 4).astype(np.float32)
        spec = weft.ShapeDtypeStruct(weft.export.symbolic_shape("n"), np.float32)
        exported = weft.export.export(weft.jit(lambda x: compute(x.shape[0], x)))(spec)
        ours, theirs = exported.call(x), weft.jit(lambda x: wnp.asarray(compute(x.shape[0], x)))(x)
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_size_has_no_value_outside_of_a_traced_program():
    n = SymbolicScope().dim("n")
    for use in (wnp.sin, lambda n: n + 1.0):
        with pytest.raises(InconclusiveDimensionOperation, match="outside of a traced program"):
            use(n)
    with pytest.raises(InconclusiveDimensionOperation):
        wnp.zeros((n,))
