"""Values of hi types as arguments and results of transformations, control flow and refs: a pair,
against its two arrays."""

import dataclasses

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.hooks import hi_types
from weft.experimental import hijax


@dataclasses.dataclass
class Pair:
    a: object
    b: object


@dataclasses.dataclass(frozen=True)
class PairType(hijax.HiType):
    a: hijax.ShapedArray
    b: hijax.ShapedArray

    def lo_ty(self):
        return [self.a, self.b]

    def lower_val(self, x):
        return [x.a, x.b]

    def raise_val(self, a, b):
        return Pair(a, b)

    def to_tangent_aval(self):
        return PairType(self.a.to_tangent_aval(), self.b.to_tangent_aval())

    def dec_rank(self, size, spec):
        return PairType(self.a.dec_rank(size, spec.a), self.b.dec_rank(size, spec.b))

    def inc_rank(self, size, spec):
        return PairType(self.a.inc_rank(size, spec.a), self.b.inc_rank(size, spec.b))

    def leading_axis_spec(self):
        return PairSpec(0, 0)

    def shard(self, mesh, manual_axes, check_vma, spec):
        return PairType(
            *[t.shard(mesh, manual_axes, check_vma, s) for t, s in zip(self.lo_ty(), spec.to_lo())]
        )

    def unshard(self, mesh, check_vma, spec):
        return PairType(
            *[t.unshard(mesh, check_vma, s) for t, s in zip(self.lo_ty(), spec.to_lo())]
        )


@dataclasses.dataclass(frozen=True)
class PairSpec(hijax.MappingSpec):
    a: int | None
    b: int | None


@dataclasses.dataclass(frozen=True)
class PairPspec(hijax.HiPspec):
    a: weft.P
    b: weft.P

    def to_lo(self):
        return self.a, self.b


class Pack(hijax.VJPHiPrimitive):
    """A pair of arrays. Its derivative is twice the true one, which distinguishes it from the
    derivative of `expand`."""

    def __init__(self, a, b):
        self.in_avals, self.out_aval, self.params = (a, b), PairType(a, b), {}
        super().__init__()

    def expand(self, a, b):
        return Pair(a, b)

    def jvp(self, primals, tangents):
        a, b = tangents
        return pack(*primals), pack(2 * a, 2 * b)

    vjp_fwd, vjp_bwd_retval = hijax.vjp_from_jvp

    def transpose(self, ct, *accums):
        for i, accum in enumerate(accums):
            if isinstance(accum, hijax.GradAccum):
                accum.accum(part(ct, i))

    def batch(self, axis_data, args, dims):
        return pack(*args), PairSpec(*dims)


class Part(hijax.VJPHiPrimitive):
    def __init__(self, pair, i):
        self.in_avals, self.out_aval, self.params = (pair,), pair.lo_ty()[i], {"i": i}
        super().__init__()

    def expand(self, x):
        return x.b if self.i else x.a

    def jvp(self, primals, tangents):
        return part(primals[0], self.i), part(tangents[0], self.i)

    def vjp_fwd(self, nzs_in, x):
        return part(x, self.i), None

    def vjp_bwd_retval(self, _, ct):
        types = self.in_avals[0].to_tangent_aval().lo_ty()
        return (
            Pair(
                *[
                    ct if i == self.i else hijax.instantiate_zeros(hijax.Zero(t))
                    for i, t in enumerate(types)
                ]
            ),
        )

    def transpose(self, ct, accum):
        accum.accum(*self.vjp_bwd_retval(None, ct))

    def batch(self, axis_data, args, dims):
        return part(args[0], self.i), (dims[0].b if self.i else dims[0].a)


class Swap(hijax.HiPrimitive):
    def abstract_eval(self, x):
        return PairType(x.b, x.a), set()

    def to_lojax(self, x):
        return Pair(x.b, x.a)


def pack(a, b):
    return Pack(weft.typeof(a), weft.typeof(b))(a, b)


def part(x, i):
    return Part(weft.typeof(x), i)(x)


swap = Swap("swap").bind
A, B = np.linspace(0.5, 2.0, 3).astype(np.float32), np.linspace(-1.0, 1.0, 3).astype(np.float32)


@pytest.fixture(autouse=True)
def registered():
    hijax.register_hitype(Pair, lambda x: PairType(weft.typeof(x.a), weft.typeof(x.b)))
    yield
    del hi_types[Pair]


def same(pair, a, b):
    assert isinstance(pair, Pair)
    np.testing.assert_allclose(pair.a, a, rtol=1e-6)
    np.testing.assert_allclose(pair.b, b, rtol=1e-6)


# ---- vmap

SPEC = PairSpec(0, 0)


@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit])
def test_vmap_maps_values_as_their_spec_says(wrap):
    pair = Pair(wnp.array(A), wnp.arange(6.0).reshape(2, 3))

    def f(x, y):
        assert weft.typeof(x).b.shape == (2,)
        return pack(part(x, 1) * y, part(x, 0)), y

    out, ys = wrap(
        weft.vmap(wrap(f), in_axes=(PairSpec(0, 1), 0), out_axes=(PairSpec(1, 0), 0), axis_size=3)
    )(pair, B)
    same(out, pair.b * B, A)
    np.testing.assert_array_equal(ys, B)


def test_vmap_of_values_of_which_a_part_is_mapped_and_nested():
    f = weft.vmap(
        lambda x: pack(part(x, 1), part(x, 0)),
        in_axes=PairSpec(0, None),
        out_axes=PairSpec(None, 0),
        axis_size=3,
    )
    same(f(Pair(A, 5.0)), 5.0, A)
    table = wnp.arange(12.0).reshape(3, 4)
    inner = weft.vmap(
        lambda x: pack(part(x, 0) + 1, part(x, 1)), in_axes=SPEC, out_axes=SPEC, axis_size=3
    )
    outer = weft.vmap(inner, in_axes=PairSpec(1, 1), out_axes=PairSpec(1, 1), axis_size=4)
    same(outer(Pair(table, -table)), table + 1, -table)
    np.testing.assert_array_equal(weft.vmap(lambda x: part(pack(x, 2 * x), 1))(A), 2 * A)


def test_what_vmap_refuses_of_values_is_named():
    pair = Pair(wnp.array(A), wnp.array(B))
    identity = lambda x: x
    with pytest.raises(ValueError, match="non-array type"):
        weft.vmap(identity, axis_size=3)(pair)
    with pytest.raises(ValueError, match="non-array type"):
        weft.vmap(identity, in_axes=SPEC, axis_size=3)(A)
    with pytest.raises(ValueError, match="needs axis_size"):
        weft.vmap(identity, in_axes=SPEC)(pair)
    with pytest.raises(ValueError, match=r"is mapped as PairSpec.*but out_axes has 0"):
        weft.vmap(identity, in_axes=SPEC, axis_size=3)(pair)
    with pytest.raises(NotImplementedError, match="cannot be taken apart"):
        weft.vmap(lambda x: swap(x), in_axes=SPEC, out_axes=SPEC, axis_size=3)(pair)
    with pytest.raises(NotImplementedError, match="made of mapped arrays"):
        weft.vmap(lambda a: part(Pair(a, a), 0))(A)

    @dataclasses.dataclass(frozen=True)
    class Opaque(hijax.HiType):
        pass

    hi_types[Pair] = lambda x: Opaque()
    with pytest.raises(
        NotImplementedError, match="vmap requires Opaque to implement the `dec_rank` method"
    ):
        weft.vmap(identity, in_axes=SPEC, out_axes=SPEC, axis_size=3)(pair)


# ---- derivatives


def loss(x):
    y = swap(x)
    return (part(y, 0) * part(x, 0) ** 2).sum()  # b a^2


@pytest.mark.parametrize(
    "wrap",
    [
        lambda f: f,
        weft.jit,
        weft.checkpoint,
        lambda f: weft.jit(weft.checkpoint(f)),
        lambda f: lambda x: lax.cond(True, f, lambda x: 0.0, x),
        lambda f: lambda x: lax.scan(lambda c, _: (c, f(c)), x, None, length=1)[1][0],
    ],
    ids=["plain", "jit", "checkpoint", "jit-checkpoint", "cond", "scan"],
)
def test_derivatives_with_respect_to_values(wrap):
    f = wrap(loss)
    pair, ones = Pair(wnp.array(A), wnp.array(B)), Pair(wnp.ones(3), wnp.zeros(3))
    same(weft.grad(f)(pair), 2 * A * B, A * A)
    same(weft.jit(weft.grad(f))(pair), 2 * A * B, A * A)
    value, tangent = weft.jvp(f, (pair,), (ones,))
    np.testing.assert_allclose([value, tangent], [(A * A * B).sum(), (2 * A * B).sum()], rtol=1e-6)
    np.testing.assert_allclose(weft.linearize(f, pair)[1](ones), (2 * A * B).sum(), rtol=1e-6)


@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit, weft.checkpoint])
def test_rules_make_values_of_what_is_differentiated(wrap):
    f = wrap(
        lambda a, b: (part(swap(pack(a, b)), 0) * a).sum()
    )  # b a, and b by a rule that doubles
    da, db = weft.grad(f, (0, 1))(A, B)
    np.testing.assert_allclose(da, B)
    np.testing.assert_allclose(db, 2 * A)
    np.testing.assert_allclose(weft.jvp(f, (A, B), (0 * A, B))[1], (2 * A * B).sum(), rtol=1e-6)


def test_vjp_takes_and_gives_values():
    f = weft.jit(lambda x: pack(part(x, 0) * part(x, 1), part(x, 1)))
    out, pull = weft.vjp(f, Pair(wnp.array(A), wnp.array(B)))
    same(out, A * B, B)
    same(pull(Pair(wnp.ones(3), wnp.zeros(3)))[0], 2 * B, 2 * A)
    out, tangent = weft.jvp(
        f, (Pair(wnp.array(A), wnp.array(B)),), (Pair(wnp.array(A), wnp.array(B)),)
    )
    same(tangent, 4 * A * B, 2 * B)
    with pytest.raises(ValueError, match="tree structure of the cotangent"):
        pull(A)
    with pytest.raises(NotImplementedError, match="vmap of a program with Part"):
        weft.vmap(weft.jit(lambda a: part(Pair(a, a), 0)))(A)


def test_parts_of_integers_have_no_tangents():
    grads = weft.grad(lambda x: (part(x, 0) * part(x, 1)).sum(), allow_int=True)(
        Pair(wnp.array(A), wnp.arange(3))
    )
    np.testing.assert_allclose(grads.a, np.arange(3))
    assert grads.b.dtype == weft.dtypes.float0 and weft.typeof(grads).b.dtype == weft.dtypes.float0


def tenfold():
    """Return functions with custom rules of a pair and an array: b a y, with ten times its
    derivative with respect to a and b."""
    of = lambda x, y: part(swap(x), 0) * part(x, 0) * y

    @weft.custom_vjp
    def reverse(x, y):
        return of(x, y)

    reverse.defvjp(
        lambda x, y: (of(x, y), (x, y)),
        lambda res, ct: (Pair(10 * ct * res[1] * res[0].b, 10 * ct * res[1] * res[0].a), None),
    )

    @weft.custom_jvp
    def forward(x, y):
        return of(x, y)

    @forward.defjvp
    def rule(primals, tangents):
        (x, y), (dx, _) = primals, tangents
        return of(x, y), 10 * y * (part(dx, 0) * x.b + dx.b * x.a)

    gradient = weft.custom_gradient(
        lambda x, y: (of(x, y), lambda ct: (Pair(10 * ct * y * x.b, 10 * ct * y * x.a), 0 * y))
    )
    return reverse, forward, gradient


@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit, weft.checkpoint])
@pytest.mark.parametrize("which", range(3))
def test_functions_with_rules_of_their_own_take_values(wrap, which):
    f = wrap(tenfold()[which])
    pair = Pair(wnp.array(A), wnp.array(B))
    np.testing.assert_allclose(f(pair, 2.0), 2 * A * B, rtol=1e-6)
    for grad in (
        weft.grad(lambda x: f(x, 2.0).sum()),
        weft.jit(weft.grad(lambda x: f(swap(swap(x)), 2.0).sum())),
    ):
        same(grad(pair), 20 * B, 20 * A)


def test_rules_with_symbolic_zeros_or_batching_refuse_hi_values():
    pair = Pair(wnp.array(A), wnp.array(B))
    f = weft.custom_jvp(lambda x: x.a.sum())
    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0].a.sum()), symbolic_zeros=True)
    with pytest.raises(NotImplementedError, match="symbolic_zeros=True"):
        weft.grad(f)(pair)
    g = weft.custom_batching.custom_vmap(lambda x: part(x, 0))
    g.def_vmap(lambda size, flags, x: (x.a, True))
    assert weft.jit(g)(pair).tolist() == A.tolist()
    with pytest.raises(NotImplementedError, match="takes values of hi types, whose mapped parts"):
        weft.vmap(lambda a: g(Pair(a, a)))(A)


def test_linear_functions_of_values():
    pair = Pair(wnp.array(A), wnp.array(B))
    same(weft.linear_transpose(lambda x: 3 * part(x, 0), pair)(wnp.array(B))[0], 3 * B, 0 * B)
    call = lambda x: weft.custom_derivatives.linear_call(
        lambda r, x: x.a * r, lambda r, ct: Pair(7 * ct * r, 0 * ct), 2.0, x
    )
    same(weft.grad(lambda x: call(x).sum())(pair), 14.0, 0.0)
    converted, values = weft.closure_convert(lambda x: 2 * part(x, 1), pair)
    np.testing.assert_allclose(converted(pair, *values), 2 * B)
    assert "PairType" in repr(weft.vjp(lambda x: swap(x), pair)[1])


# ---- programs, control flow


def test_values_in_programs_and_loops():
    pair = Pair(wnp.array(A), wnp.arange(6.0).reshape(3, 2))
    jaxpr = weft.make_jaxpr(lambda x: swap(x))(pair)
    assert [v.aval.shape for v in jaxpr.invars] == [(3,), (3, 2)] and [
        a.shape for a in jaxpr.out_avals
    ] == [(3, 2), (3,)]
    assert weft.eval_shape(lambda x: part(swap(x), 0), pair).shape == (3, 2)
    same(weft.jit(swap).lower(pair).compile()(pair), pair.b, pair.a)
    total, ys = lax.scan(
        lambda c, x: (c + part(x, 0), pack(part(x, 0) + 1, 2 * part(x, 1))), 0.0, pair
    )
    assert float(total) == A.sum()
    same(ys, A + 1, 2 * pair.b)
    _, last = lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, pack(part(s[1], 0) * 2, part(s[1], 1))), (0, pair)
    )
    same(last, 8 * A, pair.b)
    with pytest.raises(NotImplementedError, match="device_put does not yet support"):
        weft.device_put(pair)


def test_programs_report_hi_operations_and_are_lowered():
    square = lambda x: Square(weft.typeof(x))(x)
    ruled = weft.custom_jvp(square)
    ruled.defjvp(lambda primals, tangents: (ruled(*primals), tangents[0]))
    plain = weft.custom_jvp(lambda x: 2 * x)
    plain.defjvp(lambda primals, tangents: (plain(*primals), tangents[0]))
    loop = lambda x: lax.scan(lambda c, _: (square(c), None), x, None, length=2)[0]
    for f, high in (
        (square, True),
        (ruled, True),
        (weft.jit(square), True),
        (loop, True),
        (weft.checkpoint(square), True),
        (plain, False),
    ):
        traced = weft.jit(f).trace(3.0)
        assert (
            traced.jaxpr.is_high == traced.jaxpr.jaxpr.is_high == high
            and not traced.lojax.jaxpr.is_high
        )
        assert [
            e.primitive.name for e in traced.lojax.jaxpr.eqns if "custom" in e.primitive.name
        ] == ([] if high else ["custom_jvp_call"])
        (result,) = weft.eval_jaxpr(traced.lojax.jaxpr, (), 3.0)
        assert float(result) == float(f(3.0)) == float(traced.lojax.lower().compile()(3.0))


def test_rules_in_shard_maps_of_differentiated_values():
    mesh = weft.make_mesh((2,), ("i",), devices=weft.devices()[:2])
    spec = PairPspec(weft.P("i"), weft.P("i"))
    f = weft.jit(
        weft.shard_map(
            lambda x: pack(part(x, 0) * part(x, 1), part(x, 1)),
            mesh=mesh,
            in_specs=spec,
            out_specs=spec,
        )
    )
    a, b = wnp.arange(4.0), wnp.arange(4.0) - 1
    out, pull = weft.vjp(f, Pair(a, b))
    same(out, a * b, b)
    same(pull(Pair(wnp.ones(4), wnp.zeros(4)))[0], 2 * b, 2 * a)


class Square(hijax.VJPHiPrimitive):  # it has no rule for vmap
    def __init__(self, aval):
        self.in_avals, self.out_aval, self.params = (aval,), aval, {}
        super().__init__()

    def expand(self, x):
        return x**2

    def jvp(self, primals, tangents):
        return self(*primals), np.empty(primals[0].shape, weft.dtypes.float0)

    lin, linearized = hijax.linearize_from_jvp


@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit])
def test_shard_map_does_not_vmap_ops_without_a_rule(wrap):
    mesh = weft.make_mesh((2,), ("i",), devices=weft.devices()[:2])
    f = weft.shard_map(
        lambda x: Square(weft.typeof(x))(x), mesh=mesh, in_specs=weft.P("i"), out_specs=weft.P("i")
    )
    np.testing.assert_array_equal(wrap(f)(wnp.arange(4.0)), [0, 1, 4, 9])


def test_a_tangent_of_dtype_float0_is_zero():
    f = lambda x: Square(weft.typeof(x))(x)
    assert weft.linearize(f, wnp.ones(3))[1](wnp.ones(3)).tolist() == [0, 0, 0]
    assert weft.jvp(f, (wnp.ones(3),), (wnp.ones(3),))[1].tolist() == [0, 0, 0]


def test_rules_that_need_each_other_are_refused():
    class Circle(Square):
        jvp = hijax.jvp_from_lin
        lin, linearized = hijax.linearize_from_jvp

    with pytest.raises(TypeError, match="jvp_from_lin"):
        weft.jvp(lambda x: Circle(weft.typeof(x))(x), (2.0,), (1.0,))


# ---- references


@pytest.mark.parametrize("wrap", [lambda f: f, weft.jit])
def test_references_to_values(wrap):
    def f(x, y):
        ref = weft.new_ref(x)
        first = ref[...]
        ref[:] = swap(y)
        old = ref.swap(first)
        assert weft.typeof(ref).inner_aval == weft.typeof(x) == weft.typeof(ref.get())
        return old, weft.freeze(ref), weft.freeze(weft.empty_ref(weft.typeof(x)))

    old, last, empty = wrap(f)(
        Pair(wnp.array(A), wnp.array(B)), Pair(wnp.array(B), wnp.array(2 * A))
    )
    same(old, 2 * A, B)
    same(last, A, B)
    same(empty, 0 * A, 0 * B)


def test_refs_to_hi_values_are_closed_over_and_differentiated():
    ref = weft.new_ref(Pair(wnp.array(A), wnp.array(B)))

    @weft.jit
    def double(value):
        value[...] = pack(2 * part(value[...], 0), part(value[...], 1))

    double(ref)
    weft.jit(lambda: double(ref))()
    lax.scan(lambda c, _: (double(ref), None), None, None, length=2)
    same(ref[...], 16 * A, B)

    def f(x):
        inner = weft.new_ref(x)
        double(inner)
        return loss(inner[...])

    same(weft.grad(f)(Pair(wnp.array(A), wnp.array(B))), 16 * A * B, 8 * A * A)


def test_what_references_to_values_refuse_is_named():
    ref = weft.new_ref(Pair(wnp.array(A), wnp.array(B)))
    with pytest.raises(NotImplementedError, match="read and written as a whole"):
        ref[1]
    with pytest.raises(ValueError, match="cannot be stored in Ref"):
        ref[...] = Pair(wnp.ones(2), wnp.ones(2))
    with pytest.raises(NotImplementedError, match="values of hi types cannot be added in place"):
        ref.addupdate(ref[...])
    with pytest.raises(ValueError, match="references to references"):
        weft.new_ref(ref)
    weft.free_ref(ref)
    with pytest.raises(ValueError, match="was freed"):
        ref[...]
