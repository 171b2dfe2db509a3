"""Operations that users define as classes: each rule under each transformation, against the
operations that they expand to."""

import dataclasses

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.core.trace import Tracer
from weft._engine.hooks import hi_types
from weft.experimental import cur_qdd, hijax
from weft.experimental.hijax import (
    VJPHiPrimitive,
    jvp_from_lin,
    linearize_from_jvp,
    vjp_from_jvp,
    vjp_from_lin,
)

X = np.linspace(0.5, 2.0, 4).astype(np.float32)


class Unary(VJPHiPrimitive):
    def __init__(self, aval):
        self.in_avals, self.out_aval, self.params = (aval,), aval, {}
        super().__init__()

    def expand(self, x):
        return wnp.sin(x)

    def batch_dim_rule(self, axis_data, dims):
        return dims[0]


class Reverse(
    Unary
):  # rules return twice the derivative, which distinguishes them from the derivative of `expand`
    def vjp_fwd(self, nzs_in, x):
        assert nzs_in == (True,)
        return self(x), x

    def vjp_bwd_retval(self, x, ct):
        return (2 * ct * wnp.cos(x),)


class Forward(Unary):
    def jvp(self, primals, tangents):
        (x,), (t,) = primals, tangents
        return self(x), 2 * t * wnp.cos(x)


class Both(Forward, Reverse):
    pass


class FromJvp(Forward):
    vjp_fwd, vjp_bwd_retval = vjp_from_jvp


class FromLin(Unary):
    def lin(self, nzs_in, x):
        return self(x), wnp.cos(x)

    def linearized(self, cos, t):
        return 2 * t * cos

    vjp_fwd, vjp_bwd_retval = vjp_from_lin
    jvp = jvp_from_lin


class Linearized(Forward):
    lin, linearized = linearize_from_jvp
    vjp_fwd, vjp_bwd_retval = vjp_from_lin


def function(kind):
    return lambda x: kind(weft.typeof(x))(x)


WRAPS = [lambda f: f, weft.jit, weft.checkpoint]


@pytest.mark.parametrize("wrap", WRAPS, ids=["eager", "jit", "checkpoint"])
@pytest.mark.parametrize("kind", [Reverse, Both, FromJvp, FromLin, Linearized])
def test_reverse_mode(kind, wrap):
    f = wrap(function(kind))
    want = 2 * np.cos(X)
    assert np.allclose(f(X), np.sin(X))
    assert np.allclose(weft.grad(lambda x: f(x).sum())(X), want, atol=1e-5)
    assert np.allclose(weft.jit(weft.vmap(weft.grad(f)))(X), want, atol=1e-5)
    assert np.allclose(weft.grad(lambda x: weft.vmap(f)(x).sum())(X), want, atol=1e-5)
    assert np.allclose(weft.vmap(f)(X[:, None])[:, 0], np.sin(X))
    assert np.allclose(
        weft.grad(lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0].sum())(X),
        want,
        atol=1e-5,
    )


@pytest.mark.parametrize("wrap", WRAPS[:2], ids=["eager", "jit"])
@pytest.mark.parametrize("kind", [Forward, Both, FromJvp, FromLin, Linearized])
def test_forward_mode(kind, wrap):
    f = wrap(function(kind))
    want = 2 * np.cos(X)
    assert np.allclose(weft.jvp(f, (X,), (np.ones_like(X),))[1], want, atol=1e-5)
    assert np.allclose(weft.vmap(lambda x: weft.jvp(f, (x,), (1.0,))[1])(X), want, atol=1e-5)
    assert np.allclose(weft.jvp(weft.vmap(f), (X,), (np.ones_like(X),))[1], want, atol=1e-5)


@pytest.mark.parametrize("kind", [Both, FromJvp, FromLin, Linearized])
def test_modes_compose(kind):
    f = function(kind)
    assert np.allclose(weft.linearize(f, X)[1](X), 2 * X * np.cos(X), atol=1e-5)
    assert np.allclose(weft.jvp(weft.grad(f), (0.5,), (1.0,))[1], -2 * np.sin(0.5), atol=1e-5)
    assert np.allclose(
        weft.grad(lambda x: weft.jvp(f, (x,), (1.0,))[1])(0.5), -2 * np.sin(0.5), atol=1e-5
    )


def test_trees_and_settings():
    class Scaled(VJPHiPrimitive):
        def __init__(self, x_aval, pair_avals, *, power):
            self.in_avals, self.out_aval, self.params = (
                (x_aval, pair_avals),
                {"y": x_aval, "z": x_aval},
                {"power": power},
            )
            super().__init__()

        def expand(self, x, pair):
            return {"y": x**self.power * pair[0], "z": pair[1]}

        def vjp_fwd(self, nzs_in, x, pair):
            assert nzs_in == (True, (True, False))
            return self(x, pair), (x, pair)

        def vjp_bwd_retval(self, res, ct):
            x, (a, _) = res
            return self.power * x ** (self.power - 1) * a * ct["y"], (x**self.power * ct["y"], None)

        def batch_dim_rule(self, axis_data, dims):
            x, (a, b) = dims
            return {"y": x if a is None else a, "z": b}

    def f(x, a, b, power=3):
        return Scaled(weft.typeof(x), (weft.typeof(a), weft.typeof(b)), power=power)(x, (a, b))

    assert {k: float(v) for k, v in f(2.0, 3.0, 5.0).items()} == {"y": 24.0, "z": 5.0}
    g = weft.grad(lambda x, a: f(x, a, 5.0)["y"], (0, 1))
    assert tuple(map(float, g(2.0, 3.0))) == (36.0, 8.0)
    mapped = weft.vmap(
        weft.vmap(lambda x, a: f(x, a, 5.0)["y"], in_axes=(0, None)), in_axes=(None, 0)
    )
    assert np.allclose(mapped(X, 2 * X), np.outer(2 * X, X**3), rtol=1e-5)
    slopes = weft.grad(lambda x, a: mapped(x, a).sum(), (0, 1))(X, 2 * X)
    assert np.allclose(slopes[0], 3 * X**2 * (2 * X).sum(), rtol=1e-5) and np.allclose(
        slopes[1], (X**3).sum(), rtol=1e-5
    )
    assert Scaled(weft.typeof(1.0), (weft.typeof(1.0),) * 2, power=2) == Scaled(
        weft.typeof(1.0), (weft.typeof(1.0),) * 2, power=2
    )


def test_linear_operations_transpose_by_their_rule():
    class Double(Unary):
        def expand(self, x):
            return 2 * x

        def jvp(self, primals, tangents):
            return self(*primals), self(*tangents)

        def transpose(self, ct, accum):
            accum.accum(10 * ct)

        lin = lambda self, nzs, x: (self(x), None)
        linearized = lambda self, res, t: self(t)

    f = function(Double)
    assert np.array_equal(weft.linear_transpose(f, X)(X)[0], 10 * X)
    assert weft.grad(f)(1.0) == 10.0 and weft.grad(weft.jit(f))(1.0) == 10.0


def test_programs_hold_one_equation():
    program = weft.make_jaxpr(lambda x: function(Both)(x) * 2)(X)
    assert [e.primitive.name for e in program.eqns] == ["call_hi_primitive", "mul"]


def test_what_is_missing_is_named():
    f = function(Unary)
    for use, text in [
        (lambda: weft.grad(f)(1.0), "vjp_fwd"),
        (lambda: weft.jvp(f, (1.0,), (1.0,)), "`jvp`"),
        (lambda: weft.grad(function(Forward))(1.0), "vjp_from_jvp"),
        (lambda: weft.linear_transpose(f, 1.0)(1.0), "`transpose`"),
    ]:
        with pytest.raises(NotImplementedError, match=text):
            use()

    class NoBatch(Unary):
        batch_dim_rule = VJPHiPrimitive.batch_dim_rule

    with pytest.raises(NotImplementedError, match="batch_dim_rule"):
        weft.vmap(function(NoBatch))(X)

    class Incomplete(VJPHiPrimitive):
        def __init__(self):
            self.in_avals, self.params = (), {}
            super().__init__()

    with pytest.raises(AttributeError, match="out_aval"):
        Incomplete()
    with pytest.raises(TypeError, match="in_avals says"):
        Unary(weft.typeof(1.0))(X)
    with pytest.raises(TypeError, match="structure of in_avals"):
        Unary(weft.typeof(1.0))(1.0, 2.0)


# ---- types of users


@dataclasses.dataclass
class Scaled:
    values: weft.Array
    scale: weft.Array


@dataclasses.dataclass(frozen=True)
class ScaledType(hijax.HiType):
    of: hijax.ShapedArray

    def lo_ty(self):
        return [self.of, self.of.update(shape=())]

    def lower_val(self, x):
        return [x.values, x.scale]

    def raise_val(self, values, scale):
        return Scaled(values, scale)

    def to_tangent_aval(self):
        return self


@dataclasses.dataclass(frozen=True)
class HalfTangent(ScaledType):
    def to_tangent_aval(self):
        return self.of


class Cell:
    def __init__(self, value):
        self.value = value

    def cur_qdd(self):
        return weft.typeof(self.value)


class CellType(hijax.MutableHiType):
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def lo_ty_qdd(self, state):
        return [state]

    def new_from_loval(self, state, value):
        return Cell(value)

    def read_loval(self, state, cell):
        return [cell.value]

    def update_from_loval(self, state, cell, value):
        cell.value = value


class Scale(hijax.HiPrimitive):
    def abstract_eval(self, x, scale, *, kind=ScaledType):
        return kind(x), set()

    def to_lojax(self, x, scale, *, kind=ScaledType):
        return Scaled(x, scale)

    def jvp(self, primals, tangents, **params):
        return self.bind(*primals, **params), self.bind(*tangents, **params)


class Unscale(hijax.HiPrimitive):  # its derivative is twice to_lojax's derivative
    def abstract_eval(self, x):
        return x.of, set()

    def to_lojax(self, x):
        return x.values * x.scale

    def jvp(self, primals, tangents):
        (x,), (t,) = primals, tangents
        return self.bind(x), 2 * (t.values * x.scale + x.values * t.scale)


class Put(hijax.HiPrimitive):
    def to_lojax(self, cell, value):
        cell.value = value
        return value


class Get(hijax.HiPrimitive):
    def to_lojax(self, cell):
        return cell.value


class New(hijax.HiPrimitive):
    def abstract_eval(self, x):
        return hijax.AvalQDD(CellType(), x), {"a cell is made"}

    def to_lojax(self, x):
        return Cell(x)


class Effectful(hijax.HiPrimitive):
    def abstract_eval(self, x):
        return x, {"printing"}


scale_p, unscale_p, put_p, get_p, new_p = (
    Scale("scale"),
    Unscale("unscale"),
    Put("put"),
    Get("get"),
    New("new"),
)


@pytest.fixture
def registered():
    before = dict(hi_types)
    hijax.register_hitype(Scaled, lambda x: ScaledType(weft.typeof(x.values)))
    hijax.register_hitype(Cell, lambda x: CellType())
    yield
    hi_types.clear()
    hi_types.update(before)


def test_values_of_hi_types_go_through_jit_as_arrays(registered):
    x = Scaled(wnp.array(X), wnp.array(3, np.float32))
    assert weft.typeof(x) == ScaledType(weft.typeof(x.values)) and isinstance(
        weft.typeof(x), hijax.AbstractValue
    )
    assert weft.tree.leaves([x]) == [x]
    seen = []

    @weft.jit
    def f(x, *, y):
        seen.append(type(x))
        return {"out": scale_p.bind(unscale_p.bind(x["in"]) + y, x["in"].scale + 1), "y": y}

    out = f({"in": x}, y=1.0)
    assert type(out["out"]) is Scaled and seen == [dict]
    np.testing.assert_allclose(out["out"].values, 3 * X + 1)
    assert float(out["out"].scale) == 4
    f({"in": out["out"]}, y=2.0)
    assert len(seen) == 1  # the type determines the trace
    np.testing.assert_allclose(unscale_p.bind(x), 3 * X)  # without jit


def test_rules_of_hi_primitives_are_used_under_grad_and_vmap(registered):
    loss = lambda v, s: unscale_p.bind(scale_p.bind(v, s)).sum()
    for f in (
        weft.grad(loss, (0, 1)),
        weft.jit(weft.grad(loss, (0, 1))),
        weft.grad(weft.jit(loss), (0, 1)),
    ):
        dv, ds = f(wnp.array(X), 3.0)
        np.testing.assert_allclose(dv, np.full(4, 6.0))
        np.testing.assert_allclose(ds, 2 * X.sum(), rtol=1e-6)
    rows = wnp.stack([X, 2 * X])
    np.testing.assert_allclose(
        weft.vmap(loss, (0, None))(rows, 3.0), [3 * X.sum(), 6 * X.sum()], rtol=1e-6
    )
    np.testing.assert_allclose(
        weft.vmap(weft.grad(loss), (0, None))(rows, 3.0), np.full((2, 4), 6.0)
    )


def test_what_hi_types_cannot_do_yet_is_named(registered):
    with pytest.raises(
        NotImplementedError, match="differentiating with respect to the type HalfTangent"
    ):
        weft.grad(lambda x: scale_p.bind(x, x[0], kind=HalfTangent).values.sum())(wnp.array(X))
    with pytest.raises(NotImplementedError, match="must implement `lo_ty`"):
        hijax.HiType().lo_ty()
    with pytest.raises(NotImplementedError, match=r"noisy: .* effects \('printing'\)"):
        weft.jit(Effectful("noisy").bind)(1.0)


def test_mutable_values_outside_of_transformations(registered):
    cell = Cell(wnp.zeros(2))
    put_p.bind(cell, wnp.ones(3))
    assert cell.value.shape == (3,) and cur_qdd(cell).shape == (3,) and weft.typeof(cell).has_qdd


def test_mutable_values_are_arguments_of_jit(registered):
    traces = 0

    @weft.jit
    def step(cells, x):
        nonlocal traces
        traces += 1
        a, b = cells["a"], cells["b"]
        assert a is cells["again"] and type(a) is Cell and isinstance(a.value, Tracer)
        put_p.bind(a, get_p.bind(a) + x)
        put_p.bind(
            b, wnp.concatenate([get_p.bind(b), get_p.bind(a)])
        )  # it may contain a value of another shape afterwards
        return get_p.bind(a) * 2

    a, b = Cell(wnp.zeros(2)), Cell(wnp.zeros(0))
    for i in range(1, 3):
        doubled = step({"a": a, "again": a, "b": b}, 1.0)
        assert (
            a.value.tolist() == [i, i]
            and doubled.tolist() == [2 * i, 2 * i]
            and b.value.shape == (2 * i,)
        )
    assert b.value.tolist() == [1, 1, 2, 2] and traces == 2
    assert weft.eval_shape(lambda c: get_p.bind(c) + 1, a).shape == (2,)
    nested = weft.jit(
        lambda x: (
            step({"a": (c := new_p.bind(x)), "again": c, "b": new_p.bind(x)}, x),
            get_p.bind(c),
        )
    )
    assert [r.tolist() for r in nested(wnp.ones(2))] == [[4, 4], [2, 2]]
    with pytest.raises(NotImplementedError, match="returns a value of the mutable type CellType"):
        weft.jit(lambda c: c)(a)
    assert a.value.tolist() == [2, 2]


@pytest.mark.parametrize(
    "run",
    [
        lambda f: weft.jit(f),
        lambda f: weft.grad(f),
        lambda f: weft.jit(weft.grad(f)),
        lambda f: weft.grad(weft.jit(f)),
        lambda f: lambda x: weft.lax.fori_loop(0, 1, lambda i, c: c + f(x), 0.0),
        lambda f: weft.jit(
            lambda x: weft.lax.scan(lambda c, _: (c + f(x), None), 0.0, None, length=1)[0]
        ),
        lambda f: lambda x: weft.lax.cond(x > 0, f, f, x),
    ],
    ids=["jit", "grad", "jit-grad", "grad-jit", "fori", "jit-scan", "cond"],
)
def test_mutable_values_are_closed_over(registered, run):
    cell = Cell(wnp.array(1.0, np.float32))

    def f(x):
        put_p.bind(cell, get_p.bind(cell) + weft.lax.stop_gradient(x))
        return x**2 + get_p.bind(cell)

    g = run(f)
    for want in (3.0, 5.0):
        g(2.0)
        assert float(cell.value) == want
    put_p.bind(cell, wnp.array(0.0, np.float32))  # writes outside are visible inside
    g(2.0)
    assert float(cell.value) == 2.0


def test_mutable_values_outside_keep_their_shapes(registered):
    cell = Cell(wnp.zeros(2))
    with pytest.raises(ValueError, match="invalid shape"):
        weft.jit(lambda x: put_p.bind(cell, x))(wnp.ones(3))
    with pytest.raises(ValueError, match="differentiated"):
        weft.grad(lambda x: put_p.bind(cell, wnp.full(2, x)).sum())(1.0)
    assert cell.value.tolist() == [0, 0]


def test_parts_of_references_and_types_have_their_classes():
    ref = weft.new_ref(wnp.zeros(3))
    assert isinstance(ref.at[0], hijax.TransformedRef)
    assert isinstance(weft.typeof(ref), hijax.AbstractValue) and isinstance(
        weft.typeof(1.0), hijax.AbstractValue
    )
    assert not isinstance(1.0, hijax.AbstractValue)


@dataclasses.dataclass(frozen=True)
class Halves:
    low: weft.Array
    high: weft.Array


@dataclasses.dataclass(frozen=True)
class HalvesType(hijax.HiType):
    shape: tuple  # fields may have the names of array attributes

    def lo_ty(self):
        return [hijax.ShapedArray((*self.shape[:-1], self.shape[-1] // 2), np.dtype("float32"))] * 2

    def to_tangent_aval(self):
        return hijax.ShapedArray(self.shape, np.dtype("float32"))

    def dec_rank(self, size, spec):
        assert self.shape[0] == size and spec == "leading"
        return HalvesType(self.shape[1:])

    def leading_axis_spec(self):
        return "leading"

    def lower_val(self, x):
        return [x.low, x.high]

    def raise_val(self, low, high):
        return Halves(low, high)


class Cut(hijax.VJPHiPrimitive):
    def __init__(self, aval):
        self.in_avals, self.out_aval, self.params = (aval,), HalvesType(aval.shape), {}
        super().__init__()

    def expand(self, x):
        return Halves(*wnp.split(x, 2, axis=-1))

    def vjp_fwd(self, nzs_in, x):
        return self(x), x

    def vjp_bwd_retval(self, x, ct):
        return (3 * ct,)  # three times the derivative, to distinguish it


class Join(hijax.VJPHiPrimitive):
    def __init__(self, aval):
        self.in_avals, self.out_aval, self.params = (
            (aval,),
            hijax.ShapedArray(aval.shape, np.dtype("float32")),
            {},
        )
        super().__init__()

    def expand(self, x):
        return wnp.concatenate([x.low, x.high], axis=-1)

    def vjp_fwd(self, nzs_in, x):
        return self(x), x  # a value of a hi type is kept for the backward pass

    def vjp_bwd_retval(self, x, ct):
        return (Join(weft.typeof(x))(x) * ct,)


@pytest.fixture
def halves_registered():
    hijax.register_hitype(Halves, lambda x: HalvesType((*x.low.shape[:-1], 2 * x.low.shape[-1])))
    yield
    del hi_types[Halves]


def cut(x):
    return Cut(weft.typeof(x))(x)


def join(x):
    return Join(weft.typeof(x))(x)


def test_values_of_hi_types_outside_of_transformations(halves_registered):
    x = wnp.arange(4.0)
    halves = Cut(weft.typeof(x))(x)
    assert halves.high.tolist() == [2, 3] and weft.typeof(halves) == HalvesType((4,))
    assert Join(HalvesType((4,)))(halves).tolist() == [0, 1, 2, 3]
    with pytest.raises(TypeError, match="was passed where in_avals says"):
        Join(HalvesType((6,)))(halves)
    with pytest.raises(NotImplementedError, match="its type has no dtype"):
        weft.typeof(halves).dtype


def test_values_of_hi_types_in_programs(halves_registered):
    x = wnp.arange(4.0)
    halves = weft.jit(cut)(x)
    assert weft.typeof(halves) == HalvesType((4,)) and weft.jit(join)(halves).tolist() == [
        0,
        1,
        2,
        3,
    ]
    assert weft.jit(lambda x: join(cut(x)))(x).tolist() == [0, 1, 2, 3]
    names = [e.params["name"] for e in weft.make_jaxpr(lambda x: join(cut(x)))(x).eqns]
    assert names == ["Cut", "Join"]


def test_rules_on_values_of_hi_types(halves_registered):
    x = wnp.array(X)
    loss = lambda x: (join(cut(x)) * X).sum()
    want = 3 * X * X  # the rule of Join multiplies by its argument; then the rule of Cut applies
    np.testing.assert_allclose(weft.grad(loss)(x), want, rtol=1e-6)
    np.testing.assert_allclose(weft.jit(weft.grad(loss))(x), want, rtol=1e-6)
    by_halves = weft.grad(lambda h: (join(h) * X).sum())
    for gradient in (by_halves(cut(x)), weft.jit(by_halves)(cut(x))):
        assert weft.typeof(gradient).shape == X.shape
        np.testing.assert_allclose(gradient, X * X, rtol=1e-6)
    with pytest.raises(
        NotImplementedError, match=r"grad of a program with Cut.* apply jit to what grad gives"
    ):
        weft.grad(weft.jit(loss))(x)
    with pytest.raises(NotImplementedError, match="vmap of a program with Cut"):
        weft.vmap(weft.jit(lambda x: join(cut(x))))(wnp.stack([x, x]))


def test_values_of_hi_types_in_control_flow(halves_registered):
    x = wnp.arange(8.0).reshape(2, 4)
    total, doubled = lax.scan(
        lambda total, h: (total + join(h).sum(), cut(2 * join(h))), 0.0, cut(x)
    )
    assert total == 28 and weft.typeof(doubled) == HalvesType((2, 4))
    np.testing.assert_array_equal(join(doubled), 2 * x)
    last, _ = lax.scan(lambda h, row: (cut(join(h) + row), None), cut(wnp.zeros(4)), x)
    np.testing.assert_array_equal(join(last), x.sum(0))
    halved = lax.while_loop(lambda h: join(h).sum() > 4, lambda h: cut(join(h) / 2), cut(x[1]))
    np.testing.assert_array_equal(join(halved), x[1] / 8)
    chosen = lax.cond(True, lambda h: h, lambda h: cut(-join(h)), cut(x[0]))
    np.testing.assert_array_equal(join(chosen), x[0])


@dataclasses.dataclass(frozen=True)
class RowsType(ScaledType):  # a row of values, and a scale for each
    def lo_ty(self):
        return [self.of, self.of.update(shape=self.of.shape[:1])]

    def shard(self, mesh, manual_axes, check_vma, spec):
        return RowsType(self.of.shard(mesh, manual_axes, check_vma, spec.to_lo()[0]))

    def unshard(self, mesh, check_vma, spec):
        return RowsType(self.of.unshard(mesh, check_vma, spec.to_lo()[0]))

    def raise_val(self, values, scale):
        return Rows(values, scale)


class Rows(Scaled):
    pass


@dataclasses.dataclass(frozen=True)
class RowsSpec(hijax.HiPspec):
    axis: str | None

    def to_lo(self):
        return weft.P(self.axis), weft.P(self.axis)


@pytest.fixture
def rows():
    hijax.register_hitype(Rows, lambda x: RowsType(weft.typeof(x.values)))
    yield Rows(wnp.arange(24.0).reshape(8, 3), wnp.arange(8.0))
    del hi_types[Rows]


@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit])
def test_shard_map_splits_and_joins_hi_values_by_specs(rows, wrap):
    mesh = weft.make_mesh((4,), ("i",), devices=weft.devices()[:4])

    def f(r, y):
        assert weft.typeof(r).of.shape == (2, 3) and y.shape == (2,)
        return {
            "a": Rows(r.values * r.scale[:, None], r.scale + y),
            "b": Rows(-r.values, y),
        }, lax.psum(r.values.sum(), "i")

    specs = RowsSpec("i")
    out, total = wrap(
        weft.shard_map(f, mesh=mesh, in_specs=(specs, weft.P("i")), out_specs=(specs, weft.P()))
    )(rows, rows.scale)
    assert isinstance(out["a"], Rows) and weft.typeof(out["a"]).of.shape == (8, 3)
    np.testing.assert_array_equal(
        out["a"].values, np.arange(24.0).reshape(8, 3) * np.arange(8.0)[:, None]
    )
    np.testing.assert_array_equal(out["a"].scale, 2 * np.arange(8.0))
    np.testing.assert_array_equal(out["b"].values, -np.arange(24.0).reshape(8, 3))
    np.testing.assert_array_equal(out["b"].scale, np.arange(8.0))
    assert float(total) == 276


def test_gradients_pass_hi_values_inside_shard_map(rows):
    mesh, specs = weft.make_mesh((4,), ("i",), devices=weft.devices()[:4]), RowsSpec("i")
    pack = weft.shard_map(
        lambda x, s: Rows(x * s[:, None], s), mesh=mesh, in_specs=weft.P("i"), out_specs=specs
    )
    use = weft.shard_map(
        lambda r: r.values * r.scale[:, None], mesh=mesh, in_specs=(specs,), out_specs=weft.P("i")
    )
    gradient = weft.grad(lambda s: use(pack(rows.values, s)).sum())(rows.scale)
    np.testing.assert_allclose(gradient, 2 * np.arange(8.0) * np.arange(24.0).reshape(8, 3).sum(1))


def test_shard_map_refuses_specs_of_the_wrong_kind(rows):
    mesh, specs = weft.make_mesh((4,), ("i",), devices=weft.devices()[:4]), RowsSpec("i")
    run = lambda ins, outs, f=lambda r: r, x=rows: weft.shard_map(
        f, mesh=mesh, in_specs=(ins,), out_specs=outs
    )(x)
    with pytest.raises(
        TypeError, match=r"argument args\[0\], of type .*, needs a HiPspec as its spec, got P\('i'"
    ):
        run(weft.P("i"), specs)
    with pytest.raises(
        TypeError,
        match=r"argument args\[0\], of type .*, needs a PartitionSpec as its spec, got RowsSpec",
    ):
        run(specs, specs, x=wnp.ones(8))
    with pytest.raises(TypeError, match=r"result, of type .*, needs a HiPspec"):
        run(specs, weft.P("i"))
    with pytest.raises(TypeError, match=r"result, of type .*, needs a PartitionSpec"):
        run(specs, specs, f=lambda r: r.values)
    with pytest.raises(
        ValueError, match=r"in_specs\[0\]\.to_lo\(\)\[0\] names an axis that the mesh does not have"
    ):
        run(RowsSpec("j"), specs)
    with pytest.raises(NotImplementedError, match="HiPspec must implement `to_lo`"):
        run(hijax.HiPspec(), specs)


class Sealed(Halves):  # its type does not list its components
    pass


@dataclasses.dataclass(frozen=True)
class SealedType(hijax.HiType):
    shape: tuple

    def to_tangent_aval(self):
        return hijax.ShapedArray(self.shape, np.dtype("float32"))


class Seal(Cut):
    def __init__(self, aval):
        self.in_avals, self.out_aval, self.params = (aval,), SealedType(aval.shape), {}
        hijax.VJPHiPrimitive.__init__(self)

    def expand(self, x):
        return Sealed(*wnp.split(x, 2, axis=-1))

    def vjp_fwd(self, nzs_in, x):
        return self(x), None

    def vjp_bwd_retval(self, _, ct):
        return (3 * ct,)


class Unseal(Join):
    def vjp_fwd(self, nzs_in, x):
        return self(x), None

    def vjp_bwd_retval(self, _, ct):
        return (5 * ct,)


def test_opaque_hi_values_are_differentiated_by_rules():
    hijax.register_hitype(Sealed, lambda x: SealedType((*x.low.shape[:-1], 2 * x.low.shape[-1])))
    loss = lambda x: Unseal(SealedType(x.shape))(Seal(weft.typeof(x))(x)).sum()
    np.testing.assert_allclose(weft.grad(loss)(wnp.array(X)), 15 * np.ones(4))
    sealed = Seal(weft.typeof(wnp.array(X)))(wnp.array(X))
    np.testing.assert_allclose(
        weft.grad(lambda s: Unseal(weft.typeof(s))(s).sum())(sealed), 5 * np.ones(4)
    )
    with pytest.raises(NotImplementedError, match="must implement `lower_val`"):
        weft.jit(loss)(wnp.array(X))
    del hi_types[Sealed]
