"""Explicit shardings in types: their text, errors and messages, and functions that accept
`out_sharding`."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import weft
from weft import lax, numpy as wnp
from weft._engine.ir.types import ShapedArray
from weft._engine.util.config import Override
from weft.errors import ShardingError, ShardingTypeError
from weft.sharding import (
    AbstractMesh,
    AxisType,
    NamedSharding,
    P,
    SingleDeviceSharding,
    auto_axes,
    explicit_axes,
    get_abstract_mesh,
    reshard,
    set_mesh,
    use_mesh,
)

EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
MESH = weft.make_mesh((2, 4), ("a", "b"), axis_types=(EXPLICIT, EXPLICIT))
MIXED = weft.make_mesh((2, 4), ("a", "b"), axis_types=(EXPLICIT, AUTO))
WHOLE = np.arange(128, dtype=np.float32).reshape(8, 16)


def put(x, *spec, mesh=MESH):
    return weft.device_put(x, NamedSharding(mesh, P(*spec)))


def short(x) -> str:
    return weft.typeof(x).str_short()


def kinds(fun, *args) -> list[str]:
    """Return the collectives of a call."""
    return [c.kind for c in weft.explain(fun, *args).collectives]


X, ROWS, COLUMNS = put(WHOLE, "a", "b"), put(WHOLE, "a"), put(WHOLE, None, "b")
W, V = put(WHOLE.reshape(16, 8), "b"), put(WHOLE.reshape(16, 8), None, "b")


# ---- types


def test_types_print_as_the_documents_show():
    assert repr(weft.typeof(X)) == "ShapedArray(float32[8@a,16@b])"
    assert str(weft.typeof(X)) == "ShapedArray(float32[8@a,16@b])"
    with Override(jax_api="0.10"):
        assert str(weft.typeof(X)) == "float32[8@a,16@b]" and str(weft.typeof(1.0)) == "~float32[]"
    assert short(put(WHOLE, ("a", "b"))) == "float32[8@(a,b),16]"
    assert short(put(WHOLE)) == "float32[8,16]"
    assert weft.typeof(X).sharding.spec == P("a", "b")
    assert weft.typeof(X).sharding.mesh is MESH.abstract_mesh
    assert str(weft.make_jaxpr(lambda x: reshard(x * 2, NamedSharding(MESH, P("b"))))(X)) == (
        "{ lambda ; a:f32[8@a,16@b]. let\n    b:f32[8@a,16@b] = mul a 2.0:f32[]\n    c:f32[8@b,16] = reshard b\n  in (c,) }"
    )


@pytest.mark.parametrize(
    "f, specs, expected",
    [
        (lambda x: x.reshape(128), P("a", "b"), P(("a", "b"))),
        (lambda x: x.reshape(128), P("b", "a"), P(("b", "a"))),
        (lambda x: x.reshape(128), P("a"), P("a")),
        (lambda x: x.reshape(2, 4, 16).reshape(8, 16), P("a", "b"), P("a", "b")),
        (lambda x: x.sum(1), P("a", "b"), P("a")),
        (lambda x: wnp.fft.fft(x).real, P("a", "b"), P("a", "b")),
        (lambda x: wnp.fft.ifft(x, axis=0).real, P("a", "b"), P("a", "b")),
        (lambda x: wnp.fft.fft2(x).imag, P("b", "a"), P("b", "a")),
        (lambda x: wnp.fft.irfft(x + 0j), P("a", None), P("a", None)),
    ],
)
@pytest.mark.parametrize("transform", [lambda f: f, weft.jit])
def test_dims_that_move_data_keep_the_split_of_the_operand(f, specs, expected, transform):
    """Merged and transformed dims keep the operand's split, though other devices hold their parts."""
    got = transform(f)(put(WHOLE, *specs))
    spec = weft.typeof(got).sharding.spec
    assert spec == expected and len(spec) == got.ndim and got.sharding.spec == expected
    np.testing.assert_allclose(got, f(wnp.asarray(WHOLE)), rtol=1e-4, atol=1e-3)
    assert weft.eval_shape(f, put(WHOLE, *specs)).sharding.spec == expected
    loss = lambda x: (f(x) ** 2).sum()
    slope = weft.grad(loss)(put(WHOLE, *specs))
    assert weft.typeof(slope).sharding.spec == specs.of_rank(slope.ndim)
    np.testing.assert_allclose(slope, weft.grad(loss)(wnp.asarray(WHOLE)), rtol=1e-3, atol=1e-2)


def test_only_explicit_axes_are_in_types():
    assert short(put(WHOLE, "a", "b", mesh=MIXED)) == "float32[8@a,16]"
    assert weft.typeof(put(WHOLE, "a", mesh=weft.make_mesh((2,), ("a",)))).sharding.mesh.empty
    alone = weft.typeof(weft.device_put(X, weft.devices()[0]))
    assert (
        alone.sharding.mesh.empty
        and alone.sharding.spec == P(None, None)
        and alone.sharding.is_fully_replicated
    )
    assert alone.update(sharding=alone.sharding) is alone and alone.explicit is None


@pytest.mark.parametrize(
    ("spec", "of_type"),
    [
        (P(("a", "b", "c"), "d"), P(("a", "b"))),
        (P(("a", "c"), "b", "d"), P("a", "b")),
        (P("c", ("a", "b")), P(None, ("a", "b"))),
        (P("c", "d"), P()),
        (P("a", unreduced={"b"}), P("a", unreduced={"b"})),
    ],
)
def test_types_keep_what_a_sharding_says_of_explicit_axes(spec, of_type):
    mesh = AbstractMesh(
        (2, 2, 2, 2), ("a", "b", "c", "d"), (EXPLICIT, EXPLICIT, AUTO, AxisType.Manual)
    )
    aval = ShapedArray((16, 8, 4, 2), np.float32)
    of_type = of_type.of_rank(4)
    for typed in (
        aval.update(sharding=NamedSharding(mesh, spec)),
        ShapedArray(
            aval.shape, aval.dtype, sharding=NamedSharding(mesh, spec, memory_kind="device")
        ),
    ):
        assert typed is aval.update(
            sharding=NamedSharding(mesh, of_type)
        ) and typed.sharding == NamedSharding(mesh, of_type)


def test_explicit_axes_divide_the_dims_of_types():
    over = lambda *spec: NamedSharding(MESH.abstract_mesh, P(*spec))
    for shape, spec in (
        ((5, 2), ("a",)),
        ((8, 2), (None, "b")),
        ((4, 4), (("a", "b"),)),
        ((4,), (None, "a")),
    ):
        with pytest.raises(ValueError, match=r"evenly divide|at most one entry per dim"):
            ShapedArray(shape, np.int32, sharding=over(*spec))
        with pytest.raises(ValueError):
            ShapedArray(shape, np.int32).update(sharding=over(*spec))
    assert ShapedArray((5, 4), np.int32, sharding=over(None, "b")).str_short() == "int32[5,4@b]"
    assert (
        ShapedArray(
            (5, 2), np.int32, sharding=NamedSharding(MIXED.abstract_mesh, P(None, "b"))
        ).str_short()
        == "int32[5,2]"
    )


@pytest.mark.parametrize(
    ("spec", "of_type"),
    [
        (P("a", "b"), P("a")),
        (P(("a", "b")), P("a")),
        (P("b"), P()),
        (P(None, ("b", "a")), P(None, "a")),
        (P("a", unreduced={"b"}), P("a")),
        (P("a", reduced={"b"}), P("a")),
        (P(unreduced={"a", "b"}), P(unreduced={"a"})),
    ],
)
def test_types_leave_out_axes_of_one_device_where_asked(spec, of_type):
    mesh = weft.make_mesh(
        (2, 1), ("a", "b"), axis_types=(EXPLICIT, EXPLICIT), devices=weft.devices()[:2]
    )
    sharding = NamedSharding(mesh, spec)
    aval = ShapedArray((8, 2), np.float32, sharding=sharding)
    of_type = of_type.of_rank(2)
    assert aval.sharding.spec == spec.of_rank(2)
    with Override(remove_size_one_mesh_axis_from_type=True):
        assert ShapedArray((8, 2), np.float32, sharding=sharding).sharding.spec == of_type
        if spec.is_partial:
            return
        x = weft.device_put(np.ones((8, 2), np.float32), sharding)
        seen = []
        y = weft.jit(
            lambda x: (seen.append(weft.typeof(x)), lax.with_sharding_constraint(x * 2, sharding))[
                1
            ]
        )(x)
        assert seen[0].sharding.spec == of_type == y.sharding.spec and x.sharding.spec == spec
        if spec.partitions[0]:
            spread = weft.vmap(lambda r: r * 2, spmd_axis_name=spec.partitions[0])(x)
            assert (
                weft.typeof(spread).sharding.spec.partitions[0] == of_type.partitions[0]
                if of_type.partitions
                else True
            )
    array = weft.device_put(np.ones((8, 2), np.float32), sharding)
    assert (
        weft.typeof(array).sharding.spec == weft.typeof(array * 2).sharding.spec == spec.of_rank(2)
    )


def test_types_of_programs_may_say_a_memory_space():
    Space = weft.sharding.MemorySpace
    aval = ShapedArray((8,), np.float32)
    host = ShapedArray((8,), np.float32, memory_space=Space.Host)
    assert (
        aval.memory_space is Space.Device
        and str(host.str_short()) == "float32<host>[8]"
        and host.str_short(True) == "f32<host>[8]"
    )
    assert (
        aval.update(memory_space=Space.Host) is host
        and host.update(shape=(4,)).memory_space is Space.Host
    )
    assert (
        pickle.loads(pickle.dumps(host)) is host
        and ShapedArray((8,), np.float32, memory_space=Space.Device) is aval
    )
    with pytest.raises(ValueError):
        aval.update(memory_space="disk")


def test_copies_keep_the_type():
    for copied in (X.copy(), copy.copy(X), copy.deepcopy(X), wnp.asarray(X), +X):
        assert weft.typeof(copied) is weft.typeof(X) and copied.sharding.spec == X.sharding.spec
    loaded = pickle.loads(pickle.dumps(X))
    assert weft.typeof(loaded).sharding.mesh.empty and (loaded == WHOLE).all()
    assert short(X.addressable_shards[0].data) == "float32[4,4]"


def test_the_default_mesh_is_auto_except_in_the_newer_api():
    assert weft.make_mesh((2,), ("a",)).axis_types == (AUTO,)
    try:
        for api, types in (
            ("0.4.30", AUTO),
            ("0.8", AUTO),
            ("0.9.1", EXPLICIT),
            ("0.10", EXPLICIT),
            ("0.10.2+weft", EXPLICIT),
        ):
            weft.config.update("jax_api", api)
            assert weft.make_mesh((2,), ("a",)).axis_types == (types,)
        weft.config.update("jax_api", "newest")
        with pytest.raises(ValueError, match=r"a version such as .*, got 'newest'"):
            weft.make_mesh((2,), ("a",))
    finally:
        weft.config.update("jax_api", None)


def test_eager_and_compiled_results_have_one_type():
    for fun in (
        lambda x: x.T,
        lambda x: x.sum(0),
        lambda x: wnp.tanh(x) + 1,
        lambda x: wnp.stack([x, x]),
    ):
        eager, compiled = fun(X), weft.jit(fun)(X)
        assert weft.typeof(eager) is weft.typeof(compiled)
        assert (
            eager.sharding
            == compiled.sharding
            == NamedSharding(MESH, weft.typeof(eager).sharding.spec)
        )


def test_values_without_a_type_take_part():
    assert short(X + wnp.ones((8, 16))) == "float32[8@a,16@b]"
    assert short(X + np.ones(16, np.float32)) == "float32[8@a,16@b]"
    assert short(wnp.zeros_like(X)) == short(weft.jit(wnp.zeros_like)(X)) == "float32[8@a,16@b]"


def test_shapes_of_results_say_their_shardings():
    shape = weft.ShapeDtypeStruct((8, 16), np.float32, sharding=NamedSharding(MESH, P("a")))
    assert weft.eval_shape(lambda x: x.T, shape).sharding.spec == P(None, "a")
    assert weft.jit(lambda x: x @ V).lower(shape).out_info.sharding.spec == P("a", "b")


# ---- errors


@pytest.mark.parametrize(
    ("fun", "args", "words"),
    [
        (
            lambda x, w: x @ w,
            (X, W),
            [
                "dot_general: the contracted dims are split",
                "float32[8@a,16@b]  contracts dim 1, split by 'b'",
                "float32[16@b,8]    contracts dim 0",
                "out_sharding=P('a', None)",
            ],
        ),
        (
            lambda x, y: x + y,
            (X, put(WHOLE, "b", "a")),
            [
                "add got incompatible shardings for broadcasting: the operands are split differently",
                "dim 0 is split by 'b'",
                "reshard(<operand 1>, P('a', None))",
            ],
        ),
        (lambda x, y: x + y, (ROWS, put(WHOLE, None, "a")), ["P('a', 'a')", "at most one dim"]),
        (
            lambda x, w: x @ w,
            (X, put(WHOLE.reshape(16, 8), "a")),
            ["split differently", "out_sharding=P('a', None)"],
        ),
        (
            lambda x: x.reshape(128),
            (COLUMNS,),
            [
                "reshape: the split of dim 1 cannot be carried over to the result",
                "out_sharding=P(None)",
            ],
        ),
        (
            lambda x: x[wnp.array([0, 2])],
            (X,),
            ["gather: dim 0 is split", "x.at[...].get(out_sharding=P(None, 'b'))"],
        ),
        (lambda x: wnp.pad(x, ((0, 0), (2, 1))), (X,), ["pad: dim 1 is split", "P('a', None)"]),
        (
            lambda x: wnp.sort(x, 1),
            (X,),
            ["sort: dim 1 is split, but it is needed whole", "reshard(<operand 0>, P('a', None))"],
        ),
        (lambda x, y: x + y, (X, put(WHOLE, "a", mesh=MIXED)), ["different meshes", "reshard"]),
        (
            lambda x: lax.with_sharding_constraint(x, NamedSharding(MESH, P("b"))),
            (X,),
            ["asserts what the type says", "reshard"],
        ),
        (
            lambda x: lax.scan(lambda c, r: (c, r), 0.0, x),
            (X,),
            ["scan: xs is split along dim 0", "reshard(xs, P(None, 'b'))"],
        ),
    ],
)
def test_ambiguous_shardings_raise_with_the_fix(fun, args, words):
    for run in (fun, weft.jit(fun), lambda *xs: weft.make_jaxpr(fun)(*xs)):
        with pytest.raises(ShardingTypeError) as caught:
            run(*args)
        for word in words:
            assert word in str(caught.value)
        assert "test_types.py" in str(caught.value)


def test_errors_are_not_hidden_by_transformations():
    for run in (
        weft.grad(lambda x, w: (x @ w).sum()),
        weft.vmap(lambda r, w: r @ w, (0, None)),
        weft.checkpoint(wnp.matmul),
        weft.jit(weft.value_and_grad(lambda x, w: weft.jit(wnp.dot)(x, w).sum())),
    ):
        with pytest.raises(ShardingTypeError, match="contracted dims are split"):
            run(X, W)


def test_a_constraint_over_explicit_axes_is_an_assertion():
    with pytest.raises(AssertionError, match="asserts what the type says"):
        weft.jit(lambda x: lax.with_sharding_constraint(x, NamedSharding(MESH, P("b"))))(X)
    assert lax.with_sharding_constraint(X, NamedSharding(MESH, P("a", "b"))) is X


def test_a_dim_is_left_unconstrained_where_an_axis_is_automatic():
    assert NamedSharding(MIXED, P("a", P.UNCONSTRAINED)).spec[1] is P.UNCONSTRAINED
    with pytest.raises(ValueError, match="cannot contain `P"):
        NamedSharding(MESH, P("a", P.UNCONSTRAINED))


def test_sizes_must_divide():
    with pytest.raises(ShardingError, match="not divisible by 4"):
        reshard(np.ones(6), NamedSharding(MESH, P("b")))
    with pytest.raises(ValueError, match="there is none"):
        reshard(np.ones(6), P("b"))


@pytest.mark.parametrize(
    "fun",
    [
        wnp.sin,
        lambda x: x + x,
        lambda x: x.astype(int),
        lambda x: x.view("i4"),
        lambda x: x.cumsum(0),
        lambda x: x.sum(0),
        lambda x: x.T,
        lambda x: x @ wnp.ones((5, 2)),
        weft.grad(lambda x: (x * x).sum()),
    ],
)
def test_types_keep_one_device_axes_of_one_element_dims(fun):
    x = put(
        np.ones((3, 1, 5), "f4"),
        None,
        "one",
        mesh=weft.make_mesh((1, 4), ("one", "b"), axis_types=(EXPLICIT, EXPLICIT)),
    )
    with set_mesh(x.sharding.mesh):
        assert "1@one" in short(weft.jit(fun)(x)) and "1@one" in short(fun(x))


def test_an_axis_splits_one_dim():
    with pytest.raises(ShardingError, match="duplicate"):
        wnp.dot(X, W, out_sharding=NamedSharding(MESH, P("a", "a")))


# ---- out_sharding

KEY = weft.random.key(0)
PICKS = np.array([3, 0, 5, 1], np.int32)
TAKING = {
    "dot": (lambda x, w, s: wnp.dot(x, w, out_sharding=s), (X, W), 2),
    "matmul": (lambda x, w, s: wnp.matmul(x, w, out_sharding=s), (X, W), 2),
    "tensordot": (lambda x, w, s: wnp.tensordot(x, w, 1, out_sharding=s), (X, W), 2),
    "einsum": (lambda x, w, s: wnp.einsum("ij,jk->ik", x, w, out_sharding=s), (X, W), 2),
    "lax.dot": (lambda x, w, s: lax.dot(x, w, out_sharding=s), (X, W), 2),
    "lax.dot_general": (
        lambda x, w, s: lax.dot_general(x, w, (((1,), (0,)), ((), ())), out_sharding=s),
        (X, W),
        2,
    ),
    "reshape": (lambda x, s: wnp.reshape(x, (4, 32), out_sharding=s), (X,), 2),
    "lax.reshape": (lambda x, s: lax.reshape(x, (16, 8), out_sharding=s), (X,), 2),
    "ravel": (lambda x, s: wnp.ravel(x, out_sharding=s), (COLUMNS,), 1),
    "broadcast_to": (
        lambda x, s: wnp.broadcast_to(x, (8, 16), out_sharding=s),
        (put(WHOLE[0], "b"),),
        2,
    ),
    "broadcast_in_dim": (
        lambda x, s: lax.broadcast_in_dim(x, (8, 16), (1,), out_sharding=s),
        (put(WHOLE[0], "b"),),
        2,
    ),
    "reduce_sum": (lambda x, s: lax.reduce_sum(x, (0,), out_sharding=s), (X,), 1),
    "at get": (lambda x, s: x.at[PICKS].get(out_sharding=s), (X,), 2),
    "at slice": (lambda x, s: x.at[:4].get(out_sharding=s), (X,), 2),
    "at set": (lambda x, s: x.at[PICKS].set(1.0, out_sharding=s), (X,), 2),
    "at add": (lambda x, s: x.at[PICKS].add(1.0, out_sharding=s), (X,), 2),
    "repeat": (lambda x, s: wnp.repeat(x, 2, 1, out_sharding=s), (ROWS,), 2),
    "arange": (lambda s: wnp.arange(8, out_sharding=s), (), 1),
    "zeros": (lambda s: wnp.zeros((8, 4), out_sharding=s), (), 2),
    "ones": (lambda s: wnp.ones((8, 4), out_sharding=s), (), 2),
    "full": (lambda s: wnp.full((8, 4), 3, out_sharding=s), (), 2),
    "ones_like": (lambda x, s: wnp.ones_like(x, out_sharding=s), (X,), 2),
    "lax.full": (lambda s: lax.full((8, 4), 3.0, sharding=s), (), 2),
    "iota": (lambda s: lax.broadcasted_iota(np.float32, (8, 4), 0, out_sharding=s), (), 2),
    "array": (lambda s: wnp.array(WHOLE, out_sharding=s), (), 2),
    "normal": (lambda s: weft.random.normal(KEY, (8, 4), out_sharding=s), (), 2),
    "uniform": (lambda s: weft.random.uniform(KEY, (8, 4), out_sharding=s), (), 2),
    "randint": (lambda s: weft.random.randint(KEY, (8, 4), 0, 9, out_sharding=s), (), 2),
    "bits": (lambda s: weft.random.bits(KEY, (8, 4), out_sharding=s), (), 2),
    "permutation": (lambda s: weft.random.permutation(KEY, 8, out_sharding=s), (), 1),
    "rng_bit_generator": (
        lambda s: lax.rng_bit_generator(np.arange(4, dtype=np.uint32), (8, 4), out_sharding=s)[1],
        (),
        2,
    ),
    "conv": (
        lambda x, k, s: lax.conv_general_dilated(x, k, (1,), "SAME", out_sharding=s),
        (put(WHOLE.reshape(4, 8, 4), "a", "b"), put(np.ones((4, 8, 3), np.float32), None, "b")),
        3,
    ),
}


@pytest.mark.parametrize("name", TAKING)
@pytest.mark.parametrize("spec", [P(), P("a"), P(("b", "a"))], ids=str)
def test_out_sharding(name, spec):
    fun, args, rank = TAKING[name]
    spec = P(*([None] * (rank - 1)), *spec) if spec == P("a") else spec
    expected = fun(*[wnp.asarray(np.asarray(a)) for a in args], None)
    if any(n % 8 for n in expected.shape) and spec == P(("b", "a")):
        spec = P("a")
    with use_mesh(MESH):
        for run in (
            lambda *xs: fun(*xs, spec),
            weft.jit(lambda *xs: fun(*xs, NamedSharding(MESH, spec))),
        ):
            got = run(*args)
            assert (
                weft.typeof(got).sharding.spec
                == got.sharding.spec.of_rank(got.ndim)
                == spec.of_rank(got.ndim)
            )
            assert len(got.sharding.spec) <= got.ndim
            np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-5)


@pytest.mark.parametrize("run", [lambda f: f, weft.jit])
def test_arrays_like_others_are_split_alike(run):
    with use_mesh(MESH):
        row = run(lax.broadcast_like)(WHOLE[0], X)
        assert short(row) == "float32[8@a,16@b]" and np.array_equal(
            row, np.broadcast_to(WHOLE[0], (8, 16))
        )
        assert short(run(lax.broadcast_like)(put(WHOLE[:1], None, "b"), X)) == "float32[8@a,16@b]"
        with pytest.raises(ShardingTypeError, match="Incompatible shardings"):
            run(lax.broadcast_like)(put(WHOLE[0], "a"), X)


def test_shardings_of_types_place_new_values():
    def f(x):
        like = weft.ShapeDtypeStruct.like(x)
        ones = wnp.ones(like.shape, like.dtype, out_sharding=like.sharding)
        return ones, weft.device_put(ones * 2, like.sharding)

    assert [short(y) for y in weft.jit(f)(X)] == ["float32[8@a,16@b]"] * 2
    with use_mesh(MESH):
        assert [short(y) for y in weft.jit(f)(X)] == ["float32[8@a,16@b]"] * 2
        assert weft.device_put(
            WHOLE, NamedSharding(MESH.abstract_mesh, P("a"))
        ).sharding == NamedSharding(MESH, P("a"))


def test_one_collective_ends_where_the_result_lies():
    counts = lambda spec: kinds(
        lambda x, w: wnp.dot(x, w, out_sharding=NamedSharding(MESH, spec)), X, W
    )
    assert counts(P("a")) == ["psum"]
    assert counts(P("a", "b")) == ["reduce_scatter"]


# ---- axes of other types


def test_auto_axes():
    @auto_axes(out_sharding=NamedSharding(MESH, P("a")))
    def product(x, w):
        assert (
            weft.typeof(x).sharding.mesh.axis_types
            == get_abstract_mesh().axis_types
            == (AUTO, AUTO)
        )
        return x @ w

    got = product(X, W)
    assert short(got) == short(weft.jit(product)(X, W)) == "float32[8@a,8]"
    np.testing.assert_allclose(np.asarray(got), WHOLE @ WHOLE.reshape(16, 8), rtol=1e-6)
    assert short(product(X, W, out_shardings=NamedSharding(MESH, P(None, "b")))) == "float32[8,8@b]"
    with pytest.raises(TypeError, match="out_sharding"):
        auto_axes(lambda x: x)(X)


def test_auto_axes_changes_nothing_where_all_axes_are_automatic():
    double = auto_axes(lambda x: x * 2, out_sharding=P("x"))
    assert "reshard" not in str(weft.make_jaxpr(double)(np.arange(8)))
    assert weft.jit(double)(np.arange(3)).tolist() == [0, 2, 4]  # there is no mesh
    with weft.set_mesh(weft.make_mesh((2,), ("x",))):
        assert "reshard" not in str(weft.make_jaxpr(double)(np.arange(8)))


def test_auto_axes_calls_its_function_with_the_arrays():
    seen = []
    double = auto_axes(lambda x: (seen.append(x.sharding.spec), x * 2)[1], out_sharding=P("a"))
    with use_mesh(MESH):
        out = double(put(WHOLE, "a"))
    assert [spec[0] for spec in seen] == ["a"]
    np.testing.assert_array_equal(out, WHOLE * 2)
    assert short(out) == "float32[8@a,16]"


def test_some_auto_axes():
    seen = []
    auto_axes(
        lambda x: seen.append(short(x)) or x,
        axes="a",
        out_sharding=NamedSharding(MESH, P("a", "b")),
    )(X)
    assert seen == ["float32[8,16@b]"]


def test_gradients_pass_changes_of_axes():
    product = auto_axes(lambda x, w: x @ w, out_sharding=NamedSharding(MESH, P("a")))
    by_x, by_w = weft.jit(weft.grad(lambda x, w: product(x, w).sum(), (0, 1)))(X, W)
    assert (short(by_x), short(by_w)) == ("float32[8@a,16@b]", "float32[16@b,8]")
    np.testing.assert_allclose(np.asarray(by_w), np.repeat(WHOLE.sum(0)[:, None], 8, 1))


def test_explicit_axes_in_automatic_code():
    mesh = weft.make_mesh((2, 4), ("a", "b"))
    seen = []
    with use_mesh(mesh):
        doubled = explicit_axes(lambda x: seen.append(short(x)) or x * 2, in_sharding=P("a", "b"))
        got = weft.jit(lambda x: doubled(x + 1) - 1)(WHOLE)
    assert seen == ["float32[8@a,16@b]"] and weft.typeof(got).sharding.mesh.empty
    np.testing.assert_array_equal(np.asarray(got), WHOLE * 2 + 1)


def test_mixed_axes_are_typed_and_free():
    x = put(WHOLE, "a", "b", mesh=MIXED)
    doubled = x * 2
    assert short(doubled) == "float32[8@a,16]" and doubled.sharding.spec == P("a", "b")
    free = lax.with_sharding_constraint(doubled, NamedSharding(MIXED, P("a", None)))
    assert short(free) == "float32[8@a,16]" and free.sharding.spec == P("a", None)
    assert short(wnp.dot(x.T, x, out_sharding=NamedSharding(MIXED, P("a")))) == "float32[16@a,16]"


def test_the_current_mesh_serves_specs():
    set_mesh(MESH)
    try:
        assert get_abstract_mesh() is MESH.abstract_mesh
        assert short(reshard(WHOLE, P("a"))) == "float32[8@a,16]"
        assert short(weft.jit(lambda x: reshard(x, P("a", "b")))(WHOLE)) == "float32[8@a,16@b]"
        assert [short(x) for x in reshard([WHOLE, WHOLE], [P("a"), P()])] == [
            "float32[8@a,16]",
            "float32[8,16]",
        ]
        with pytest.raises(ValueError, match="non-None"):
            reshard([WHOLE, WHOLE], [P("a"), None])
    finally:
        set_mesh(None)
    with use_mesh(AbstractMesh((2, 4), ("a", "b"), (EXPLICIT, EXPLICIT))):
        assert (
            weft.make_jaxpr(lambda x: reshard(x, P("b")))(WHOLE).out_avals[0].str_short()
            == "float32[8@b,16]"
        )


def test_a_placed_array_is_moved_by_reshard():
    single = weft.device_put(WHOLE, SingleDeviceSharding(weft.devices()[5]))
    assert short(reshard(single, NamedSharding(MESH, P("a")))) == "float32[8@a,16]"


def test_manual_axes_do_not_become_automatic():
    mesh = weft.make_mesh((2,), ("i",), devices=weft.devices()[:2])
    inside = lambda x: weft.sharding.auto_axes(lambda a: a * 2, axes="i", out_sharding=P("i"))(x)
    with pytest.raises(NotImplementedError, match="Going from `Manual` axes"):
        weft.jit(weft.shard_map(inside, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(
            np.ones(4, np.float32)
        )
