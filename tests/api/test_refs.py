"""Refs to mutable arrays: reads and writes inside every transformation, against programs of values;
and errors."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec as P

BOTH = pytest.mark.parametrize("wrap", [lambda f: f, weft.jit], ids=["eager", "jit"])


def value(ref):
    return np.asarray(ref[...]).tolist()


@BOTH
@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        slice(0, 2),
        (..., 1),
        (slice(None), 2),
        np.array([0, 1, 1]),
        (np.array([0, 1]), np.array([2, 0])),
        np.array([True, False]),
        ...,
        (),
    ],
    ids=str,
)
def test_reads_and_writes_are_those_of_numpy(wrap, index):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    ref = weft.new_ref(array.copy())
    assert np.array_equal(wrap(lambda: ref[index])(), array[index])

    def write():
        ref[index] = 10.0
        ref[index] += 1.0
        ref[index] = ref[index] * 2.0

    wrap(write)()
    array[index] = 22.0
    assert np.array_equal(ref[...], array)
    old = wrap(lambda: ref.swap(1.0, idx=index))()
    assert np.all(old == 22.0) and np.all(np.asarray(ref[index]) == 1.0)


@BOTH
def test_functions_take_references_and_close_over_them(wrap):
    total, other = weft.new_ref(wnp.zeros(3)), weft.new_ref(wnp.ones((2, 3)))

    @wrap
    def f(ref, y, scale):
        total[...] += y
        ref[0] = total[...] * scale["by"]
        return ref[...].sum() + y

    assert f(other, 1.0, {"by": 2.0}) == 10.0 and f(other, 1.0, {"by": 2.0}) == 16.0
    assert value(total) == [2.0] * 3 and value(other) == [[4.0] * 3, [1.0] * 3]
    third = weft.new_ref(wnp.zeros((2, 3)))
    f(third, 0.0, {"by": 1.0})
    assert value(third)[0] == [2.0] * 3 and value(other)[0] == [4.0] * 3
    nested = wrap(lambda: weft.jit(f)(third, 1.0, {"by": 1.0}))
    assert nested() == 10.0 and value(total) == [3.0] * 3


@BOTH
def test_control_flow_threads_references(wrap):
    count, xs, chosen = weft.new_ref(0), weft.new_ref(np.arange(4)), weft.new_ref(0.0)

    def step(carry, x):
        count[...] += 2
        x[...] += count[...]
        return carry + 1, count[...]

    last, ys = wrap(lambda: lax.scan(step, 0, xs))()
    assert (
        last == 4
        and ys.tolist() == [2, 4, 6, 8]
        and value(xs) == [2, 5, 8, 11]
        and value(count) == 8
    )

    def body(i):
        count[...] -= i
        return i + 1

    assert (
        wrap(lambda: lax.while_loop(lambda i: (i < 4) & (count[...] > 0), body, 0))() == 4
        and value(count) == 2
    )
    wrap(lambda: lax.fori_loop(0, 3, lambda i, c: (count.addupdate(i), c)[1], 0.0))()
    assert value(count) == 5
    choose = wrap(
        lambda p: lax.cond(
            p, lambda r: r.set(1.0), lambda r: chosen.set(count[...] * 2.0), weft.new_ref(0.0)
        )
    )
    for p, want in ((False, 10.0), (True, 10.0)):
        choose(p)
        assert value(chosen) == want
    wrap(lambda i: lax.switch(i, [lambda: chosen.set(0.0), lambda: chosen.set(1.0), lambda: None]))(
        1
    )
    assert value(chosen) == 1.0
    nested = wrap(
        lambda: lax.scan(
            lambda c, _: lax.scan(lambda d, _: (d, count.addupdate(1)), c, None, length=3),
            0,
            None,
            length=2,
        )
    )
    nested()
    assert value(count) == 11


def _rewritten(x):
    """Compute sin(2 x) + x through refs in every kind of control flow."""
    ref = weft.new_ref(x)
    weft.jit(lambda: ref.set(ref[...] + ref[...]))()
    lax.scan(lambda c, _: (c, ref.set(wnp.sin(ref[...]))), 0, None, length=1)
    lax.cond(x.sum() > -100.0, lambda: ref.addupdate(x), lambda: None)
    lax.fori_loop(0, 1, lambda i, c: (ref.set(ref[...] * 1.0), c)[1], 0)
    return weft.freeze(ref)


@BOTH
def test_functions_with_inner_refs_are_differentiated_and_mapped(wrap):
    x = np.linspace(0.1, 1.0, 3).astype(np.float32)
    f = wrap(_rewritten)
    assert np.allclose(f(x), np.sin(2 * x) + x, atol=1e-5)
    slope = 2 * np.cos(2 * x) + 1
    assert np.allclose(weft.grad(lambda x: f(x).sum())(x), slope, atol=1e-5)
    assert np.allclose(weft.jvp(f, (x,), (np.ones_like(x),))[1], slope, atol=1e-5)
    assert np.allclose(weft.vmap(f)(x[:, None])[:, 0], np.sin(2 * x) + x, atol=1e-5)
    assert np.allclose(weft.vmap(weft.grad(f))(x), slope, atol=1e-5)
    assert np.allclose(weft.grad(lambda x: weft.checkpoint(f)(x).sum())(x), slope, atol=1e-5)
    assert np.allclose(weft.vmap(weft.grad(weft.grad(f)))(x), -4 * np.sin(2 * x), atol=1e-4)


@BOTH
def test_vmap_maps_references_that_are_passed(wrap):
    def f(ref, x):
        ref[...] += x

    ref = weft.new_ref(wnp.zeros((2, 3)))
    wrap(weft.vmap(f, in_axes=(1, 0)))(ref, np.ones((3, 2), np.float32))
    assert value(ref) == [[1.0] * 3] * 2
    wrap(weft.vmap(weft.vmap(f, in_axes=(0, None)), in_axes=(1, 0)))(
        ref, np.arange(3, dtype=np.float32)
    )
    assert value(ref) == [[1.0, 2.0, 3.0]] * 2
    assert wrap(weft.vmap(lambda x: ref[0, 1] * x))(wnp.arange(3)).tolist() == [
        0.0,
        2.0,
        4.0,
    ]  # reads are allowed
    fresh = weft.vmap(lambda x: (lambda r: (r.addupdate(x), r[...])[1])(weft.new_ref(1.0)))
    assert wrap(fresh)(wnp.arange(3.0)).tolist() == [1.0, 2.0, 3.0]


@BOTH
def test_refs_carry_values_out_of_differentiated_functions(wrap):
    ref = weft.new_ref(0.0)

    def f(x, ref):
        ref[...] += lax.stop_gradient(x * x)
        return x * x

    assert weft.grad(wrap(f))(3.0, ref) == 6.0 and wrap(weft.grad(f))(3.0, ref) == 6.0
    assert value(ref) == 18.0

    stash = weft.custom_vjp(lambda ref, x: x)
    stash.defvjp(lambda ref, x: (x, ref), lambda ref, ct: (ref.set(ct), (None, ct))[1])
    assert np.allclose(weft.grad(wrap(lambda x: wnp.sin(stash(ref, x))))(1.0), np.cos(1.0))
    assert np.allclose(ref[...], np.cos(1.0))


@BOTH
def test_with_refs_accumulates_gradients(wrap):
    def squares(ref):
        ref[...] = wnp.sin(ref[...])
        return ref[...] ** 2

    ref, total = weft.new_ref(2.0), weft.new_ref(100.0)
    out, pullback = weft.vjp(wrap(squares), ref)
    assert np.allclose(out, np.sin(2.0) ** 2) and np.allclose(ref[...], np.sin(2.0))
    assert pullback.with_refs(total)(1.0) == (weft.ad.GradRef(),)
    assert np.allclose(total[...], 100.0 + np.sin(4.0))
    with pytest.raises(ValueError, match="accumulated into a ref"):
        pullback(1.0)
    with pytest.raises(ValueError, match="needs a reference of type"):
        pullback.with_refs(weft.new_ref(wnp.zeros(2)))(1.0)
    with pytest.raises(TypeError, match="accumulated into a ref"):
        weft.grad(squares)(ref)


def test_unwanted_gradients_are_not_computed():
    w, x = wnp.ones((4, 4)), wnp.ones(4)
    _, pullback = weft.vjp(lambda w, x: wnp.tanh(w @ x), w, x)
    some = pullback.with_refs(weft.ad.GradValue(), weft.ad.DontWant())
    assert some(x)[1] == weft.ad.DidntWant() and np.array_equal(some(x)[0], pullback(x)[0])
    count = lambda f: str(
        weft.make_jaxpr(lambda: [y for y in f(x) if not isinstance(y, weft.ad.DidntWant)])()
    ).count("dot_general")
    assert (count(pullback), count(some)) == (2, 1)
    with pytest.raises(ValueError, match="one entry for each leaf"):
        pullback.with_refs(weft.ad.GradValue())(x)
    leaves, structure = weft.tree.flatten(pullback)
    assert leaves and np.array_equal(weft.tree.unflatten(structure, leaves)(x)[1], pullback(x)[1])


def test_gradients_of_microbatches_are_summed_in_place():
    def loss(ws, xs):
        return lax.scan(lambda x, w: (x @ w, None), xs, ws)[0].mean()

    @weft.jit
    def summed(ws, batch):
        total = weft.new_ref(wnp.zeros_like(ws))

        def one(_, xs):
            out, pullback = weft.vjp(lambda ws: loss(ws, xs), ws)
            pullback.with_refs(total)(wnp.ones_like(out))
            return (), out

        lax.scan(one, (), batch)
        return weft.freeze(total)

    ws, batch = (
        np.random.default_rng(0).normal(size=(3, 4, 4)).astype(np.float32),
        np.ones((5, 7, 4), np.float32),
    )
    want = weft.grad(lambda ws: sum(loss(ws, xs) for xs in batch))(ws)
    assert np.allclose(summed(ws, batch), want, rtol=1e-4)


@BOTH
def test_shard_map_gives_each_device_its_block_of_a_reference(wrap):
    mesh = weft.make_mesh((4,), ("i",), devices=weft.devices()[:4])
    ref = weft.new_ref(weft.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("i"))))

    def body(ref, y):
        ref[...] = ref[...] * 10 + lax.axis_index("i")
        return lax.psum(y.sum(), "i")

    f = wrap(weft.shard_map(body, mesh=mesh, in_specs=(P("i"), P("i")), out_specs=P()))
    assert f(ref, np.arange(4, dtype=np.float32)) == 6.0
    assert np.array_equal(ref[...], np.arange(8) * 10 + np.arange(8) // 2)
    assert ref.sharding.is_equivalent_to(NamedSharding(mesh, P("i")), 1)


def test_parts_of_references():
    ref = weft.new_ref(wnp.zeros((2, 5)))
    ref.at[1:].at[:, 1:4][0] = wnp.arange(3.0)
    ref.at[1, 1:4].addupdate(1.0)
    assert value(ref)[1] == [0.0, 1.0, 2.0, 3.0, 0.0] and ref.at[1, 1:4][1] == 2.0
    assert weft.jit(lambda i: ref.at[1].at[i].swap(9.0))(2) == 2.0 and value(ref)[1][2] == 9.0


def test_references_tell_what_they_are():
    ref = weft.new_ref(wnp.zeros(3))
    assert isinstance(ref, weft.Ref) and not isinstance(ref, weft.Array) and len(ref) == 3
    assert weft.jit(lambda r: isinstance(r, weft.Ref) * 1)(ref) == 1
    assert (
        repr(weft.typeof(ref)) == "Ref{float32[3]}"
        and repr(ref) == "Ref([0., 0., 0.], dtype=float32)"
    )
    assert (ref.shape, ref.dtype, ref.ndim, ref.size) == ((3,), np.float32, 1, 3)
    half = weft.new_ref(wnp.zeros((), "bfloat16"))
    half[...] += 1.0
    assert half.dtype == wnp.bfloat16
    program = weft.make_jaxpr(lambda r, x: r.addupdate(x))(ref, 1.0)
    assert len(program.invars) == 2 and program.out_avals == [weft.typeof(ref[...])]
    compiled = weft.jit(lambda r: r.addupdate(2.0)).lower(ref).compile()
    compiled(ref)
    compiled(ref)
    assert value(ref) == [4.0] * 3


def _misuses():
    ref, other = weft.new_ref(wnp.zeros(3)), weft.new_ref(0.0)
    yield (
        "return from jit",
        lambda: weft.jit(weft.new_ref)(1.0),
        ValueError,
        r"traced for jit returned a mutable array(.|\n)*created on line",
    )
    yield (
        "return argument",
        lambda: weft.jit(lambda r: r)(ref),
        ValueError,
        r"returned(.|\n)*passed in as the argument r",
    )
    yield (
        "return from scan",
        lambda: lax.scan(lambda c, x: (weft.new_ref(c), x), 0, wnp.arange(3)),
        ValueError,
        "traced for scan returned",
    )
    yield (
        "return from cond",
        lambda: lax.cond(True, lambda: weft.new_ref(1.0), lambda: weft.new_ref(2.0)),
        ValueError,
        "traced for cond returned",
    )
    yield (
        "alias in jit",
        lambda: weft.jit(lambda a, b: 0)(ref, ref),
        ValueError,
        "appeared at both a and b",
    )
    yield (
        "alias in scan",
        lambda: lax.scan(lambda c, _: (None, None), (ref, ref), None, length=1),
        ValueError,
        r"both c\[0\] and c\[1\]",
    )
    yield (
        "alias in cond",
        lambda: lax.cond(True, lambda a, b: 0, lambda a, b: 0, ref, ref),
        ValueError,
        "for cond.*both a and b",
    )
    yield (
        "alias in vmap",
        lambda: weft.vmap(lambda a, b: 0)(ref, ref),
        ValueError,
        "only one reference to a mutable array",
    )
    yield (
        "closure and argument",
        lambda: weft.jit(lambda r: r[...] + ref[...])(ref),
        ValueError,
        "closed over and passed as the argument r",
    )
    yield (
        "closure and argument of cond",
        lambda: lax.cond(True, lambda r: r[...] + ref[...], lambda r: r[...], ref),
        ValueError,
        "closed over and passed as the argument r",
    )
    yield (
        "mapped value",
        lambda: weft.vmap(lambda x: other.set(x))(wnp.arange(3.0)),
        ValueError,
        "unbatched array reference",
    )
    yield (
        "mapped value in a loop",
        lambda: weft.vmap(lambda x: lax.fori_loop(0, 2, lambda i, c: (other.set(x), c)[1], 0))(
            wnp.arange(3.0)
        ),
        ValueError,
        "unbatched array reference",
    )
    yield (
        "differentiated value",
        lambda: weft.jvp(lambda x: other.set(x), (1.0,), (1.0,)),
        ValueError,
        "Move the array reference",
    )
    yield (
        "freeze elsewhere",
        lambda: weft.jit(lambda r: weft.freeze(r))(ref),
        ValueError,
        "in the function that created it",
    )
    yield (
        "freeze from outside",
        lambda: weft.jit(lambda: weft.freeze(ref))(),
        ValueError,
        "in the function that created it",
    )
    yield "arithmetic", lambda: wnp.sin(ref), TypeError, "Ref"
    yield (
        "reference to a reference",
        lambda: weft.new_ref(ref),
        ValueError,
        "references to references",
    )
    yield "dtype", lambda: weft.new_ref(wnp.zeros(3, int)).set(1.5), ValueError, "invalid dtype"
    yield "shape", lambda: ref.set(wnp.zeros(4)), ValueError, "invalid shape"
    yield "fwd", _foreign_residual, ValueError, "custom_vjp fwd function"
    yield (
        "unsupported",
        lambda: weft.linear_transpose(
            weft.custom_derivatives.closure_convert(lambda x: x * ref[...], 1.0)[0], 1.0
        ),
        NotImplementedError,
        "uses a reference to a mutable array",
    )

    frozen = weft.new_ref(1.0)
    weft.freeze(frozen)
    yield "frozen", lambda: frozen[...], ValueError, "freed or frozen"
    left = []
    weft.jit(lambda x: (left.append(weft.new_ref(x)), x)[1])(1.0)
    yield (
        "escaped",
        lambda: left[0][...],
        weft.errors.UnexpectedTracerError,
        "cannot leave the function",
    )


def _foreign_residual():
    f = weft.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, weft.new_ref(0.0)), lambda r, ct: (ct,))
    weft.grad(f)(1.0)


def test_misuse_is_refused():
    for what, use, error, text in _misuses():
        with pytest.raises(error, match=text):
            use()
            print(what)


def test_parts_of_references_are_arguments():
    def add(part):
        part[...] += 17 * wnp.ones(5)
        return part.at[1].get()

    want = np.zeros(7, np.float32)
    want[1:6] = 17
    for call in (
        weft.jit(add),
        weft.checkpoint(add),
        lambda part: lax.cond(True, add, lambda p: p.at[1].get(), part),
    ):

        @weft.jit
        def whole(call=call):
            ref = weft.new_ref(wnp.zeros(7))
            return call(ref.at[1:6]), ref[...]

        got, values = whole()
        assert got == 17
        np.testing.assert_array_equal(values, want)
    ref = weft.new_ref(wnp.zeros(7))
    weft.jit(add)(ref.at[1:6])
    np.testing.assert_array_equal(ref[...], want)
    weft.jit(lambda parts, x: parts["p"].at[0].set(x))({"p": ref.at[wnp.array([2, 4])].at[1:]}, 3.0)
    assert ref[4] == 3
    (leaf,) = weft.tree.leaves(ref.at[1:6])
    assert leaf is ref
    mesh = weft.make_mesh((2,), ("i",), devices=weft.devices()[:2])
    weft.jit(
        weft.shard_map(add, mesh=mesh, in_specs=weft.P(), out_specs=weft.P(), check_vma=False)
    )(ref.at[1:6])
    assert ref[1] == 34


def test_jit_traces_a_function_that_closes_over_references_once():
    def f(x):
        ref, traces = weft.new_ref(wnp.float32(x)), []

        @weft.jit
        def inner(a):
            traces.append(a)
            ref[...] *= 2
            return wnp.sin(ref[...]) + a

        first = inner(1.0)
        assert len(traces) == 1
        return first + inner(1.0) + ref[...]

    want = lambda x: np.sin(2 * x) + np.sin(4 * x) + 2 + 4 * x
    np.testing.assert_allclose(f(0.5), want(0.5), rtol=1e-6)
    slope = (want(0.5 + 1e-5) - want(0.5 - 1e-5)) / 2e-5
    np.testing.assert_allclose(weft.grad(f)(0.5), slope, rtol=1e-4)


@pytest.mark.parametrize("devices", [1, 2])
def test_structs_of_references(devices):
    """`lower` accepts a struct in place of a ref."""

    def step(ref, x, parts):
        ref[...] += x
        ref[0] = parts["b"][...]
        parts["b"][...] = 7.0
        return x * 2

    mesh = weft.make_mesh((devices,), ("a",), devices=weft.devices()[:devices])
    array = weft.device_put(np.arange(4, dtype=np.float32), NamedSharding(mesh, P("a")))
    struct = weft.ShapeDtypeStruct((4,), np.float32, sharding=array.sharding, is_ref=True)
    scalar = weft.ShapeDtypeStruct((), np.float32, is_ref=True)
    assert (
        struct.is_ref
        and struct != struct.update(is_ref=False)
        and repr(scalar).endswith("dtype=float32, is_ref=True)")
    )
    compiled = weft.jit(step).lower(struct, 1.0, {"b": scalar}).compile()
    ref, part = weft.new_ref(array), weft.new_ref(np.float32(5))
    assert float(compiled(ref, 1.0, {"b": part})) == 2.0
    assert value(ref) == [5.0, 2.0, 3.0, 4.0] and value(part) == 7.0


@pytest.mark.parametrize("transform", [lambda f: f, weft.jit], ids=["eager", "jit"])
def test_custom_vjp_takes_a_reference_once(transform):
    f = weft.custom_vjp(lambda one, other: None)
    f.defvjp(lambda one, other: (None, None), lambda _, ct: (None, None))
    r = weft.new_ref(0.0)
    transform(f)(r, weft.new_ref(1.0))
    with pytest.raises(ValueError, match=r"both one and other"):
        transform(f)(r, r)
    with pytest.raises(ValueError, match=r"both one\['k'\] and other\[0\]"):
        transform(f)({"k": r}, [r])


def _stash():
    f = weft.custom_vjp(lambda ref, x: x)

    def bwd(ref, ct):
        ref[...] += ct
        return None, ct

    f.defvjp(lambda ref, x: (x, ref), bwd)
    return f


def _in_scan(wrap, stash):
    return lambda ref, x: lax.scan(
        wrap(lambda c, _: (wnp.sin(stash(ref, wnp.sin(c))), None)), x, None, length=2
    )[0]


def _in_cond(wrap, stash):
    other = lambda x: 2 * x
    return lambda ref, x: lax.cond(
        x > 5,
        other,
        wrap(lambda x: wnp.sin(stash(ref, wnp.sin(wnp.sin(stash(ref, wnp.sin(x))))))),
        x,
    )


def _passed(wrap, stash):
    one = wrap(lambda ref, x: wnp.sin(stash(ref, wnp.sin(x))))
    return lambda ref, x: one(ref, one(ref, x))


def _closed_over(wrap, stash):
    def f(ref, x):
        one = wrap(lambda x: wnp.sin(stash(ref, wnp.sin(x))))
        return one(one(x))

    return f


@pytest.mark.parametrize("make", [_in_scan, _in_cond, _passed, _closed_over])
@pytest.mark.parametrize(
    "inner", [lambda f: f, weft.jit, weft.checkpoint], ids=["plain", "jit", "checkpoint"]
)
@pytest.mark.parametrize(
    "outer", [lambda f: f, weft.jit, weft.checkpoint], ids=["plain", "jit", "checkpoint"]
)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit of grad"])
def test_backward_rules_write_to_references(make, inner, outer, compiled):
    """Cotangents are accumulated in a ref wherever the rule runs: in backward loops, branches and
    recomputed programs."""
    slope = weft.grad(outer(make(inner, _stash())), 1)
    slope = weft.jit(slope) if compiled else slope
    ref, x = weft.new_ref(np.float32(0)), 1.0
    want, total = 1.0, 0.0
    points = [x]
    for _ in range(3):
        points.append(np.sin(points[-1]))
    for i, y in enumerate(reversed(points)):
        want *= np.cos(y)
        total += want if i in (0, 2) else 0.0
    for times in (1, 2):
        assert np.isclose(slope(ref, np.float32(x)), want, rtol=1e-5)
        assert np.isclose(ref[...], times * total, rtol=1e-5)


def _written(*refs):
    """Return a function whose backward rule writes the cotangent, times 1, 2, ..., to refs in this
    order."""
    f = weft.custom_vjp(lambda x: x * 2)

    def bwd(_, ct):
        for factor, ref in enumerate(refs, 1):
            ref[...] = factor * ct
        return (2 * ct,)

    f.defvjp(lambda x: (x * 2, None), bwd)
    return f


@BOTH
@pytest.mark.parametrize("first", [True, False])
def test_branches_write_to_the_same_references_in_other_orders(wrap, first):
    a, b = (weft.new_ref(np.float32(0)) for _ in "ab")
    one, other = _written(a, b), _written(b, a)
    assert (
        wrap(weft.grad(lambda x: lax.cond(x > 0, one, other, x)))(np.float32(3 if first else -3))
        == 2
    )
    assert [float(a[...]), float(b[...])] == ([1, 2] if first else [2, 1])


@BOTH
def test_a_part_of_a_reference_is_not_mapped(wrap):
    def f():
        ref = weft.new_ref(wnp.zeros(7))
        weft.vmap(lambda part: part[...] * 2)(ref.at[1:6])

    with pytest.raises(TypeError, match="is a part of a reference"):
        wrap(f)()


@BOTH
def test_custom_functions_of_refs_with_differentiated_values(wrap):
    f = weft.custom_vjp(lambda ref: ref[...] * 3)
    f.defvjp(lambda ref: (f(ref), None), lambda _, ct: (None,))
    assert wrap(f)(weft.new_ref(np.float32(2))) == 6.0
    assert weft.grad(lambda x: wrap(f)(weft.new_ref(x)))(2.0) == 3.0
