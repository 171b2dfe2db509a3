"""Collectives: their meaning on a simulated mesh, for any order of axes, and their derivatives."""

import itertools
import math

import numpy as np
import pytest

from weft._engine.core.interpret import evaluate
from weft._engine.core.primitive import BatchAxis
from weft._engine.core.stage import stage
from weft._engine.core.trace import UndefPrimal, extend_axis_env, typeof
from weft._engine.ir.types import ShapedArray
from weft._engine.ops import collective_rules as rules, collectives as c
from weft._engine.ops.elementwise import mul
from weft._engine.ops.families import move_dim
from weft._engine.ops.rule_helpers import batch_dim_to_front
from weft._engine.transforms.batch import batch_flat
from weft._engine.util.errors import ShapeError

MESH = (("a", 2), ("b", 3), ("c", 2))
SIZES = dict(MESH)
rng = np.random.default_rng(0)


def positions():
    return itertools.product(*[range(n) for _, n in MESH])


def group(position, axes):
    """Return the positions that differ from `position` only along `axes`, in the order of these
    axes."""
    names = [name for name, _ in MESH]
    groups = []
    for along in itertools.product(*[range(SIZES[a]) for a in axes]):
        other = list(position)
        for a, i in zip(axes, along):
            other[names.index(a)] = i
        groups.append(tuple(other))
    return groups


def simulate(meaning, axes, values):
    """Apply `meaning(values of the group in order, own number)` at every position."""
    out = {}
    for p in positions():
        members = group(p, axes)
        out[p] = meaning([values[m] for m in members], members.index(p))
    return out


def run_on_mesh(fun, x, order, varying=("a", "b", "c")):
    """Run `fun` on values `x[mesh dims of varying..., local dims]` with axes mapped in `order` (the
    first outermost), and return the result of each position."""
    lead = [name for name, _ in MESH if name in varying]

    def nest(axes, lead):
        if not axes:
            return fun
        name = axes[0]
        others = [a for a in lead if a != name]
        inner = nest(axes[1:], others)

        def mapped(value):
            dim = lead.index(name) if name in lead else None
            outs, dims = batch_flat(
                lambda v: [inner(v)], BatchAxis(SIZES[name], name), [value], [dim]
            )
            (out,), (d,) = outs, dims
            if d is None:
                return batch_dim_to_front(out, None, SIZES[name])
            return move_dim(out, d, 0)

        return mapped

    with extend_axis_env(MESH):
        out = np.asarray(nest(list(order), lead)(x))
    # dims are in the order of the mapped axes
    back = [order.index(name) for name, _ in MESH]
    out = out.transpose(*back, *range(len(MESH), out.ndim))
    return {p: out[p] for p in positions()}


def block(x, dim, n, i):
    return np.split(x, n, dim)[i]


AXES = [("a",), ("b",), ("a", "b"), ("b", "a"), ("c", "a"), ("c", "a", "b")]
ORDERS = [("a", "b", "c"), ("c", "b", "a"), ("b", "c", "a")]


def cases(axes):
    """Return name, local shape, function and meaning of each case."""
    n = math.prod(SIZES[a] for a in axes)
    ring = [(i, (i + 1) % n) for i in range(n)]
    some = [(i, (5 * i + 1) % n) for i in range(0, n, 2) if math.gcd(5, n) == 1]
    back = [(i, n - 1 - i) for i in range(n)]
    pick = lambda perm: lambda vs, i: next((vs[s] for s, d in perm if d == i), np.zeros_like(vs[0]))
    yield "psum", (2,), lambda x: c.psum(x, axes), lambda vs, i: sum(vs)
    yield "pmax", (2,), lambda x: c.pmax(x, axes), lambda vs, i: np.max(vs, 0)
    yield "pmin", (2,), lambda x: c.pmin(x, axes), lambda vs, i: np.min(vs, 0)
    yield "pmean", (2,), lambda x: c.pmean(x, axes), lambda vs, i: sum(vs) / len(vs)
    yield "pvary", (2,), lambda x: c.pvary(x, axes), lambda vs, i: vs[i]
    yield "axis_index", (), lambda x: c.axis_index(axes), lambda vs, i: i
    for d in (0, 1):
        yield (
            f"all_gather {d}",
            (2, 3),
            lambda x, d=d: c.all_gather(x, axes, axis=d),
            lambda vs, i, d=d: np.stack(vs, d),
        )
        yield (
            f"all_gather tiled {d}",
            (2, 3),
            lambda x, d=d: c.all_gather(x, axes, axis=d, tiled=True),
            lambda vs, i, d=d: np.concatenate(vs, d),
        )
        shape = (2 * n, 3) if d == 0 else (3, 2 * n)
        yield (
            f"psum_scatter tiled {d}",
            shape,
            lambda x, d=d: c.psum_scatter(x, axes, scatter_dimension=d, tiled=True),
            lambda vs, i, d=d: block(sum(vs), d, n, i),
        )
        yield (
            f"own_slice {d}",
            shape,
            lambda x, d=d: c.own_slice(x, axes, d),
            lambda vs, i, d=d: block(vs[i], d, n, i),
        )
        for e in (0, 1):
            yield (
                f"all_to_all tiled {d} {e}",
                shape,
                lambda x, d=d, e=e: c.all_to_all(x, axes, split_axis=d, concat_axis=e, tiled=True),
                lambda vs, i, d=d, e=e: np.concatenate([block(v, d, n, i) for v in vs], e),
            )
    yield (
        "psum_scatter",
        (2, n),
        lambda x: c.psum_scatter(x, axes, scatter_dimension=1),
        lambda vs, i: sum(vs)[:, i],
    )
    for s, e in itertools.product(range(3), range(3)):
        shape = [2, 3, 4]
        shape[s] = n
        yield (
            f"all_to_all {s} {e}",
            tuple(shape),
            lambda x, s=s, e=e: c.all_to_all(x, axes, s, e),
            lambda vs, i, s=s, e=e: np.stack([v.take(i, s) for v in vs], e),
        )
    yield (
        "pswapaxes",
        (2, n),
        lambda x: c.pswapaxes(x, axes, 1),
        lambda vs, i: np.stack([v[:, i] for v in vs], 1),
    )
    yield "ppermute ring", (2,), lambda x: c.ppermute(x, axes, ring), pick(ring)
    yield "ppermute back", (2,), lambda x: c.ppermute(x, axes, back), pick(back)
    yield "ppermute some", (2,), lambda x: c.ppermute(x, axes, some), pick(some)
    yield "ppermute none", (2,), lambda x: c.ppermute(x, axes, []), pick([])
    yield "pshuffle", (2,), lambda x: c.pshuffle(x, axes, [n - 1 - i for i in range(n)]), pick(back)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("axes", AXES, ids="".join)
@pytest.mark.parametrize("varying", ["abc", "ab", "c", ""])
def test_meaning_on_a_mesh(axes, varying):
    for number, (name, shape, fun, meaning) in enumerate(cases(axes)):
        lead = tuple(n for a, n in MESH if a in varying)
        x = rng.standard_normal(lead + shape).astype(np.float32)
        spread = np.broadcast_to(
            x.reshape(tuple(n if a in varying else 1 for a, n in MESH) + shape),
            tuple(n for _, n in MESH) + shape,
        )
        values = {p: spread[p] for p in positions()}
        want = simulate(meaning, axes, values)
        order = ORDERS[number % len(ORDERS)]
        got = run_on_mesh(fun, x, order, varying)
        for p in positions():
            assert got[p].shape == np.shape(want[p]), (name, got[p].shape, np.shape(want[p]))
            np.testing.assert_allclose(
                got[p], want[p], rtol=2e-5, atol=2e-5, err_msg=f"{name} order {order} at {p}"
            )


@pytest.mark.parametrize("axes", [("a",), ("b", "a")], ids="".join)
def test_transposes_are_adjoint_on_the_whole_mesh(axes):
    """<f(u), v> == <u, f_T(v)>, summed over all positions."""
    for name, shape, fun, _ in cases(axes):
        if name.split()[0] in ("pmax", "pmin", "axis_index", "pmean"):
            continue
        mesh = tuple(n for _, n in MESH)
        u = rng.standard_normal(mesh + shape).astype(np.float32)
        out = run_on_mesh(fun, u, ("a", "b", "c"))
        v = {p: rng.standard_normal(out[p].shape).astype(np.float32) for p in positions()}
        with extend_axis_env(MESH):
            program = stage(lambda x, fun=fun: [fun(x)], [ShapedArray(shape, np.dtype(np.float32))])

        def transposed(ct, program=program):
            from weft._engine.transforms.transpose import backward_pass

            return backward_pass(program, [UndefPrimal(program.in_avals[0])], [ct])[0]

        stacked = np.stack([v[p] for p in positions()]).reshape(mesh + next(iter(v.values())).shape)
        pull = lambda ct, shape=shape, transposed=transposed: _dense(transposed(ct), shape)
        pulled = run_on_mesh(pull, stacked, ("a", "b", "c"))
        left = sum(np.vdot(out[p], v[p]) for p in positions())
        right = sum(np.vdot(u[p], pulled[p]) for p in positions())
        np.testing.assert_allclose(right, left, rtol=1e-4, atol=1e-3, err_msg=name)


def _dense(ct, shape):
    return ct if hasattr(ct, "shape") else np.zeros(shape, np.float32)


def test_cotangent_of_invariant_own_slice_is_gathered():
    aval = ShapedArray((6,), np.dtype(np.float32))
    with extend_axis_env(MESH, tracked=frozenset("abc")):
        jaxpr = stage(
            lambda ct: rules.own_slice_p.transpose(
                ct, UndefPrimal(aval), axis_name=("b",), axis_size=3, dim=0
            ),
            [ShapedArray((2,), np.dtype(np.float32), vma=frozenset("b"))],
        )
    assert [e.primitive.name for e in jaxpr.eqns] == ["all_gather_invariant"]
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 2, 2)
    got = run_on_mesh(lambda ct: evaluate(jaxpr, ct)[0], x, ("a", "b", "c"))
    for a, b, k in positions():
        np.testing.assert_array_equal(got[a, b, k], x[a, :, k].reshape(-1))


def test_derivative_of_pmax_is_shared_among_those_that_attain_it():
    def fun(x):
        _out, t = rules.pmax_p.jvp(
            (x,), (mul(x, np.float32(3)),), axes=("a",), axis_index_groups=None
        )
        return t

    x = np.ones((2, 1), np.float32).repeat(3, 1).reshape(2, 3, 1).repeat(2, 2)
    x[0, 1] = 5
    got = run_on_mesh(fun, x, ("a", "b", "c"))
    assert got[0, 0, 0] == 3 and got[1, 1, 0] == 15


def test_constants_are_summed_at_once():
    with extend_axis_env(MESH):
        assert (
            c.psum(1, "a") == 2 and c.psum(2.5, ("a", "b")) == 15.0 and c.axis_size(("b", "c")) == 6
        )
        assert c.psum({"x": 1, "y": (2,)}, "b") == {"x": 3, "y": (6,)} and c.pmean(4, "a") == 4


def test_psum_of_bools_counts():
    got = run_on_mesh(lambda x: c.psum(x, "a"), np.ones((2, 3, 2), bool), ("a", "b", "c"))
    assert got[0, 0, 0] == 2 and got[0, 0, 0].dtype == np.int32


def test_ppermute_of_bools_whose_moves_depend_on_other_axes():
    x = rng.standard_normal((2, 3, 2)) > 0
    axes, perm = ("a", "b"), [(0, 3), (1, 0), (2, 5), (5, 2)]
    got = run_on_mesh(lambda v: c.ppermute(v, axes, perm), x, ("a", "b", "c"))
    want = simulate(
        lambda vs, i: next((vs[s] for s, d in perm if d == i), False),
        axes,
        {p: x[p] for p in positions()},
    )
    assert all(bool(got[p]) == bool(want[p]) for p in positions())


def test_pcast_types_as_varying():
    with extend_axis_env(MESH, tracked=frozenset("abc")):
        (out,) = stage(
            lambda x: [c.pcast(x, "a", to="varying")], [ShapedArray((2,), np.dtype(np.float32))]
        ).out_avals
        assert out.vma == {"a"}
        for to in ("reduced", "unreduced"):
            assert stage(
                lambda x: [c.pcast(x, "a", to=to)],  # noqa: B023
                [ShapedArray((2,), np.dtype(np.float32))],
            ).out_avals[0].vma == {"a"}


def test_a_replicated_value_is_not_repeated():
    """own_slice of an unbatched value only regroups; psum, full ppermute and pmax leave no batch dim."""
    axis = BatchAxis(3, "b")
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    with extend_axis_env(MESH):
        outs, dims = batch_flat(
            lambda x: [
                c.own_slice(x, "b", 0),
                c.psum(x, "b"),
                c.pmax(x, "b"),
                c.pvary(x, "b"),
                c.ppermute(x, "b", [(0, 1), (1, 2), (2, 0)]),
            ],
            axis,
            [x],
            [None],
        )
    assert dims == [0, None, None, None, None]
    np.testing.assert_array_equal(outs[0], x.reshape(3, 2, 2))
    np.testing.assert_array_equal(outs[1], 3 * x)


def test_types_follow_the_varying_axes():
    x = ShapedArray((6,), np.dtype(np.float32), False, None, frozenset({"a", "b"}))
    assert rules.psum_p.abstract([x], {"axes": ("a",), "axis_index_groups": None})[0].vma == {"b"}
    plain = ShapedArray((6,), np.dtype(np.float32))
    assert rules.pvary_p.abstract([plain], {"axes": ("a",)})[0].vma == {"a"}
    assert rules.ppermute_p.abstract([x], {"axis_name": ("a",), "perm": ()})[0].vma == x.vma


def test_psum_of_a_value_typed_as_varying_transposes_to_pvary():
    aval = ShapedArray((3,), np.dtype(np.float32), False, None, frozenset({"a"}))
    with extend_axis_env(MESH):
        jaxpr = stage(
            lambda ct: rules.psum_p.transpose(
                ct, UndefPrimal(aval), axes=("a",), axis_index_groups=None
            ),
            [ShapedArray((3,), np.dtype(np.float32))],
        )
    assert [e.primitive.name for e in jaxpr.eqns] == ["pvary"]


def test_errors():
    x = np.zeros((5, 3), np.float32)
    with pytest.raises(NameError, match="unbound axis name: z"):
        c.psum(x, "z")
    with extend_axis_env(MESH):
        with pytest.raises(ShapeError, match="cannot be cut into 2"):
            run_typed(lambda x: c.psum_scatter(x, "a", tiled=True), x)
        with pytest.raises(ShapeError, match="one entry per position"):
            run_typed(lambda x: c.psum_scatter(x, "a"), x)
        with pytest.raises(ShapeError, match="one entry per position"):
            run_typed(lambda x: c.all_to_all(x, "a", 0, 0), x)
        with pytest.raises(ShapeError, match="own_slice"):
            run_typed(lambda x: c.own_slice(x, "a", 0), x)
        with pytest.raises(ValueError, match="unique"):
            c.ppermute(x, "a", [(0, 1), (1, 1)])
        with pytest.raises(ValueError, match=r"0\.\.1"):
            c.ppermute(x, "a", [(0, 2)])
        with pytest.raises(ValueError, match="permutation"):
            c.pshuffle(x, "a", [0, 0])
    with pytest.raises(TypeError, match="stack the mesh axes first"), extend_axis_env(MESH):
        c.psum(x, "a")


def run_typed(fun, x):
    return stage(lambda x: [fun(x)], [typeof(x)])
