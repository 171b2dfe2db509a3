"""Simplification: equations that are removed, and equations that must remain."""

import numpy as np
import pytest

import weft._engine.ops.elementwise as E
import weft._engine.ops.layout as L
import weft._engine.ops.reduce as R
import weft._engine.ops.slicing as S
from tests.compiler.test_fusion import dot, spread, staged, values
from weft._engine.compiler.rewrite.simplify import simplify
from weft._engine.core.interpret import run_reference
from weft._engine.core.primitive import CallLike
from weft._engine.ir.check import check_jaxpr
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Var

I32, F16 = np.dtype("i4"), np.dtype("f2")
X = (4, 6)
T = lambda x: L.transpose(x, permutation=(1, 0))
CASES = [
    ("dead", lambda x: [(E.sin(x), E.neg(x))[1]], ["neg"]),
    ("common", lambda x: [E.add(E.sin(x), E.sin(x))], ["sin", "add"]),
    ("times one", lambda x: [E.mul(E.mul(x, 1.0), 1.0)], []),
    ("over one", lambda x: [E.div(x, 1.0)], []),
    ("one over", lambda x: [E.div(1.0, x)], ["div"]),
    ("plus zero stays", lambda x: [E.add(x, 0.0)], ["add"]),
    ("plus minus zero", lambda x: [E.add(x, -0.0)], []),
    ("a choice of one", lambda x: [E.select_n(E.gt(x, np.float32(0)), x, x)], []),
    ("minus zero", lambda x: [E.sub(x, 0.0)], []),
    ("neg neg", lambda x: [E.neg(E.neg(x))], []),
    ("transposes", lambda x: [T(T(x))], []),
    (
        "reshapes",
        lambda x: [L.reshape(L.reshape(x, new_sizes=(3, 8)), new_sizes=(24,))],
        ["reshape"],
    ),
    ("reshape back", lambda x: [L.reshape(L.reshape(x, new_sizes=(24,)), new_sizes=X)], []),
    (
        "broadcasts",
        lambda x: [spread(spread(x, (2, 4, 6), (1, 2)), (5, 2, 4, 6), (1, 2, 3))],
        ["broadcast_in_dim"],
    ),
    ("scalar operand", lambda x: [E.mul(x, spread(np.float32(3), X, ()))], ["mul"]),
    (
        "lossless cast",
        lambda x: [
            E.convert_element_type(
                E.convert_element_type(E.convert_element_type(x, F16), np.dtype("f4")), F16
            )
        ],
        ["convert_element_type"],
    ),
    (
        "lossy cast stays",
        lambda x: [E.convert_element_type(E.convert_element_type(x, I32), np.dtype("f4"))],
        ["convert_element_type", "convert_element_type"],
    ),
    (
        "sums of sums",
        lambda x: [R.reduce_sum(R.reduce_sum(x, axes=(0,)), axes=(0,))],
        ["reduce_sum"],
    ),
    (
        "transpose of a matmul",
        lambda x: [T(dot(x, E.sin(T(x))))],
        ["transpose", "sin", "dot_general"],
    ),
    ("matmul of a transpose", lambda x: [dot(x, T(x))], ["dot_general"]),
    (
        "matmul of a transpose that exchanges free dims",
        lambda x: [dot(x, L.transpose(L.reshape(x, new_sizes=(2, 2, 6)), permutation=(2, 1, 0)))],
        ["reshape", "transpose", "dot_general"],
    ),
]


@pytest.mark.parametrize("name, fn, remaining", CASES, ids=[c[0] for c in CASES])
def test_rules(name, fn, remaining):
    jaxpr = staged(fn, [X])
    simple = check_jaxpr(simplify(jaxpr))
    assert [e.primitive.name for e in simple.eqns] == remaining
    (x,) = values([X])
    for a, b in zip(run_reference(jaxpr, x), run_reference(simple, x)):
        np.testing.assert_allclose(a, b, rtol=1e-6 if "matmul" in name or "sums" in name else 0)


def test_a_sum_of_matmuls_over_devices_is_one_matmul():
    numbers = (((1,), (1,)), ((0,), (0,)))
    jaxpr = staged(
        lambda a, b: [R.reduce_sum(dot(a, b, numbers), axes=(0,))], [(4, 9, 7), (4, 9, 5)]
    )
    simple = check_jaxpr(simplify(jaxpr))
    (eqn,) = simple.eqns
    assert eqn.params["dimension_numbers"] == (((0, 1), (0, 1)), ((), ()))


def test_a_sum_over_devices_behind_a_layout_is_one_matmul():
    """The program has two sums over mesh axes; the second is over blocks of the result of the
    first."""
    numbers = (((1, 2), (1, 2)), ((0,), (0,)))

    def blocks(a, b):
        y = L.reshape(dot(a, b, numbers), new_sizes=(2, 3, 1, 3, 5))
        y = L.squeeze(L.transpose(y, permutation=(1, 2, 0, 3, 4)), dimensions=(1,))
        return [R.reduce_sum(y, axes=(1,))]

    shapes = [(2, 4, 7, 9), (2, 4, 7, 5)]
    jaxpr = staged(blocks, shapes)
    simple = check_jaxpr(simplify(jaxpr))
    assert [
        e.primitive.name
        for e in simple.eqns
        if e.primitive.name not in ("reshape", "transpose", "squeeze")
    ] == ["dot_general"]
    (product,) = [e for e in simple.eqns if e.primitive.name == "dot_general"]
    assert product.params["dimension_numbers"] == (((0, 1, 2), (0, 1, 2)), ((), ()))
    args = values(shapes)
    for a, b in zip(run_reference(jaxpr, *args), run_reference(simple, *args)):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 3], ids=["a free dim", "a part of a batch dim"])
def test_other_sums_behind_a_matmul_stay(axis):
    numbers = (((1,), (1,)), ((0,), (0,)))
    jaxpr = staged(
        lambda a, b: [
            R.reduce_sum(
                L.transpose(
                    L.reshape(dot(a, b, numbers), new_sizes=(2, 2, 9, 5)), permutation=(2, 3, 0, 1)
                ),
                axes=(axis,),
            )
        ],
        [(4, 7, 9), (4, 7, 5)],
    )
    simple = check_jaxpr(simplify(jaxpr))
    assert [e.primitive.name for e in simple.eqns] == [
        "dot_general",
        "reshape",
        "transpose",
        "reduce_sum",
    ]


def there_and_back(x):
    """Exchange a value split over (4, 2) devices from rows to columns and back, through another
    shape."""
    y = L.transpose(L.reshape(x, new_sizes=(4, 2, 3, 4, 2, 5)), permutation=(3, 4, 0, 1, 2, 5))
    y = L.transpose(L.reshape(y, new_sizes=(8, 4, 6, 5)), permutation=(1, 2, 0, 3))
    return L.reshape(y, new_sizes=(4, 2, 3, 40))


@pytest.mark.parametrize(
    "name, fn, shape, remaining",
    [
        ("there and back", there_and_back, (24, 40), ["reshape"]),
        (
            "to the same shape",
            lambda x: L.reshape(there_and_back(x), new_sizes=(24, 40)),
            (24, 40),
            [],
        ),
        (
            "dims of 1",
            lambda x: L.squeeze(
                L.transpose(L.reshape(x, new_sizes=(4, 1, 6)), permutation=(1, 0, 2)),
                dimensions=(0,),
            ),
            X,
            ["reshape", "squeeze"],
        ),
        (
            "another order",
            lambda x: L.reshape(
                L.transpose(L.reshape(x, new_sizes=(2, 3, 4)), permutation=(1, 0, 2)),
                new_sizes=(24,),
            ),
            X,
            ["reshape", "transpose", "reshape"],
        ),
        (
            "parts of dims",
            lambda x: L.transpose(
                L.reshape(L.transpose(x, permutation=(1, 0)), new_sizes=(8, 3)), permutation=(1, 0)
            ),
            X,
            ["transpose", "reshape", "transpose"],
        ),
        (
            "used between",
            lambda x: E.add(T(T(E.sin(x))), L.reshape(T(E.sin(x)), new_sizes=X)),
            X,
            ["sin", "transpose", "reshape", "add"],
        ),
        (
            "empty",
            lambda x: L.reshape(L.transpose(x, permutation=(1, 0)), new_sizes=(0, 3)),
            (3, 0),
            ["transpose"],
        ),
    ],
)
def test_layouts_that_undo_one_another(name, fn, shape, remaining):
    jaxpr = staged(lambda x: [fn(x)], [shape])
    simple = check_jaxpr(simplify(jaxpr))
    assert [e.primitive.name for e in simple.eqns] == remaining
    args = values([shape])
    for a, b in zip(run_reference(jaxpr, *args), run_reference(simple, *args)):
        np.testing.assert_array_equal(a, b)


def padded(x, low, high, inner=0, value=0.0):
    return S.pad(x, np.float32(value), [(0, 0, 0), (low, high, inner)])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
@pytest.mark.parametrize("value", [0.0, -0.0])
def test_a_sum_of_what_is_padded_apart_is_a_join(order, value):
    """The gradient of a split, bit for bit: padding with 0.0 changes the sign of a zero, with -0.0
    it does not."""

    def gradient(*parts):
        a, b, c = (padded(parts[i], *[(0, 9), (2, 6), (5, 0)][i], value=value) for i in order)
        return [E.add(E.add(a, b), c)]

    shapes = [(4, 2), (4, 3), (4, 6)]
    jaxpr = staged(gradient, shapes)
    simple = check_jaxpr(simplify(jaxpr))
    assert [e.primitive.name for e in simple.eqns] == ["concatenate", "add"]
    args = [np.where(x > 0, x, -0.0) for x in values(shapes)]
    for a, b in zip(run_reference(jaxpr, *args), run_reference(simple, *args)):
        np.testing.assert_array_equal(np.asarray(a).view("u4"), np.asarray(b).view("u4"))


@pytest.mark.parametrize(
    "name, fn, shapes",
    [
        ("overlap", lambda a, b: E.add(padded(a, 0, 3), padded(b, 1, 2)), [(4, 2), (4, 2)]),
        ("gap", lambda a, b: E.add(padded(a, 0, 4), padded(b, 3, 1)), [(4, 2), (4, 2)]),
        (
            "other dim",
            lambda a, b: E.add(padded(a, 0, 2), S.pad(b, np.float32(0), [(2, 2, 0), (0, 0, 0)])),
            [(6, 2), (2, 4)],
        ),
        ("apart", lambda a, b: E.add(padded(a, 0, 0, 1), padded(b, 3, 0)), [(4, 2), (4, 0)]),
        (
            "ones",
            lambda a, b: E.add(padded(a, 0, 2, value=1.0), padded(b, 2, 0, value=1.0)),
            [(4, 2), (4, 2)],
        ),
        (
            "something else",
            lambda a, b: E.add(E.add(padded(a, 0, 2), padded(b, 2, 0)), E.sin(padded(a, 2, 0))),
            [(4, 2), (4, 2)],
        ),
    ],
)
def test_other_sums_of_padded_values_stay(name, fn, shapes):
    jaxpr = staged(lambda a, b: [fn(a, b)], shapes)
    simple = check_jaxpr(simplify(jaxpr))
    args = values(shapes)
    for a, b in zip(run_reference(jaxpr, *args), run_reference(simple, *args)):
        np.testing.assert_array_equal(a, b)
    kinds = [e.primitive.name for e in simple.eqns]
    assert "pad" in kinds if name != "something else" else "concatenate" in kinds


@pytest.mark.parametrize(
    "a, b, parts, has_transpose",
    [
        ((4, 2, 6, 512), (2, 512, 7), (2, 512), False),  # shards of the left operand
        (
            (4, 2, 6, 1024),
            (2, 2, 512, 7),
            (2, 2, 512),
            False,
        ),  # split differently: all parts of both
        ((4, 3, 6, 512), (1536, 7), (3, 512), False),  # the right one is not split
        ((4, 2, 6, 64), (128, 7), (), True),  # parts too short to pay off
        ((4, 3, 6, 1024), (3, 2, 512, 7), (), True),  # no split points in common
    ],
)
def test_sums_over_parts_that_lie_apart_take_them_where_they_lie(a, b, parts, has_transpose):
    k = a[1] * a[3]

    def fn(x, y):
        x = L.reshape(L.transpose(x, permutation=(0, 2, 1, 3)), new_sizes=(a[0] * a[2], k))
        y = L.transpose(y, permutation=(1, 0, 2, 3)) if len(b) == 4 else y
        return [dot(x, L.reshape(y, new_sizes=(k, b[-1])))]

    jaxpr = staged(fn, [a, b])
    simple = check_jaxpr(simplify(jaxpr))
    names = [e.primitive.name for e in simple.eqns]
    assert ("transpose" in names) == has_transpose and names.count("dot_general") == 1
    (product,) = [e for e in simple.eqns if e.primitive.name == "dot_general"]
    summed = product.params["dimension_numbers"][0]
    assert tuple(product.invars[0].aval.shape[d] for d in summed[0]) == (parts or (k,))
    args = values([a, b])
    np.testing.assert_allclose(
        run_reference(simple, *args)[0], run_reference(jaxpr, *args)[0], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    "a, b, numbers",
    [
        ((4, 5, 2, 0), (0, 3), (((3,), (0,)), ((), ()))),
        ((2, 0, 5), (5, 0, 7), (((1, 2), (1, 0)), ((), ()))),
    ],
)
def test_a_product_that_sums_nothing_has_no_parts(a, b, numbers):
    simple = simplify(staged(lambda x, y: [dot(x, y, numbers)], [a, b]))
    assert [e.primitive.name for e in simple.eqns] == ["dot_general"]
    assert not run_reference(simple, *values([a, b]))[0].any()


def test_calls_are_inlined_at_every_depth():
    call = CallLike("test_call", multiple_results=True, register=False)
    call.def_type(lambda *avals, jaxpr: jaxpr.out_avals)
    call.def_reference(lambda *args, jaxpr: run_reference(jaxpr, *args))

    def wrap(jaxpr):
        ins, outs = [Var(a) for a in jaxpr.in_avals], [Var(a) for a in jaxpr.out_avals]
        return Jaxpr((), (), ins, outs, [Eqn(call, ins, outs, {"jaxpr": jaxpr})])

    base = staged(lambda x: [E.sin(E.mul(x, np.arange(24, dtype="f4").reshape(X)))], [X])
    simple = check_jaxpr(simplify(wrap(wrap(base))))
    assert [e.primitive.name for e in simple.eqns] == ["mul", "sin"] and len(simple.consts) == 1
    (x,) = values([X])
    np.testing.assert_array_equal(run_reference(simple, x)[0], run_reference(base, x)[0])
