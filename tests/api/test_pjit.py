"""The arguments of `pjit` and `jit` that place values, choose devices, or keep and donate
arguments."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.api.jit import jit
from weft.compat.older import pjit
from weft.experimental.layout import Format, Layout
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding


@pytest.fixture
def mesh():
    return Mesh(np.array(weft.devices()[:8]), ("devices",))


@pytest.fixture
def x():
    return wnp.arange(8, dtype=wnp.float32)


def spec(array):
    return array.sharding.spec


def convolve(x):
    return wnp.convolve(x, wnp.asarray([0.5, 1.0, 0.5]), "same")


def test_convolution_over_the_mesh_of_the_call_site(mesh, x):
    f = pjit(convolve, in_shardings=None, out_shardings=P("devices"))
    with mesh:
        result = f(x)
    assert spec(result) == P("devices")
    np.testing.assert_array_equal(result, [0.5, 2, 4, 6, 8, 10, 12, 10])


def test_the_mesh_is_that_of_the_call(mesh, x):
    f = pjit(lambda x: x + 1, out_shardings=P("devices"))
    half = Mesh(np.array(weft.devices()[:4]), ("devices",))
    with mesh:
        assert len(f(x).devices()) == 8
    with half:
        assert len(f(x).devices()) == 4


def test_a_spec_without_a_mesh_says_what_to_do(x):
    with pytest.raises(RuntimeError, match=r"needs a mesh.*with mesh"):
        pjit(lambda x: x, out_shardings=P("devices"))(x)


def test_pjit_none_replicates_under_a_mesh(mesh, x):
    sharded = weft.device_put(x, NamedSharding(mesh, P("devices")))
    with mesh:
        assert spec(pjit(lambda x: x * 2, out_shardings=None)(sharded)) == P()
        assert spec(pjit(lambda x: x * 2, in_shardings=None)(x)) == P()
        with pytest.raises(
            ValueError, match=r"does not match the sharding on the respective arg.*x"
        ):
            pjit(lambda x: x * 2, in_shardings=None)(sharded)


@pytest.mark.parametrize("transform", [jit, pjit])
def test_none_without_a_mesh_leaves_the_layout_free(mesh, x, transform):
    sharded = weft.device_put(x, NamedSharding(mesh, P("devices")))
    assert spec(transform(lambda x: x * 2, in_shardings=None, out_shardings=None)(sharded)) == P(
        "devices"
    )


def test_unspecified_follows_the_data_under_a_mesh(mesh, x):
    sharded = weft.device_put(x, NamedSharding(mesh, P("devices")))
    with mesh:
        assert spec(pjit(lambda x: x * 2)(sharded)) == P("devices")


def test_prefixes_with_none(mesh, x):
    f = pjit(
        lambda d, y: (d, y),
        in_shardings=({"a": P("devices"), "b": None}, P("devices")),
        out_shardings=(P("devices"), None),
    )
    with mesh:
        d, y = f({"a": x, "b": x}, x)
    assert spec(d["a"]) == spec(d["b"]) == P("devices")
    assert spec(y) == P()


def test_a_prefix_of_the_wrong_length_is_refused(mesh, x):
    with pytest.raises(ValueError, match=r"in_shardings must be a prefix"):
        pjit(lambda x, y: x, in_shardings=(NamedSharding(mesh, P()),))(x, x)


def test_shardings_and_keywords_are_refused_together(mesh, x):
    with pytest.raises(ValueError, match=r"in_shardings cannot be given for keyword arguments.*x"):
        pjit(lambda x: x, in_shardings=(NamedSharding(mesh, P()),))(x=x)


@pytest.mark.parametrize(
    "keywords, what",
    [
        ({"in_shardings": (P("devices"),)}, "argument x"),
        ({"out_shardings": P("devices")}, "the result"),
    ],
)
def test_dims_must_divide(mesh, keywords, what):
    with (
        mesh,
        pytest.raises(
            ValueError,
            match=rf"cannot split {what}(.|\n)*dim 0 has size 9(.|\n)*not divisible by 8",
        ),
    ):
        pjit(lambda x: x, **keywords)(wnp.arange(9))


def test_unknown_axis_and_rank(mesh, x):
    with mesh, pytest.raises(ValueError, match=r"axis: nope of .*not found in mesh"):
        pjit(lambda x: x, in_shardings=(P("nope"),))(x)
    with mesh, pytest.raises(ValueError, match=r"argument x.*rank at least 2"):
        pjit(lambda x: x, in_shardings=(P(None, "devices"),))(x)


def test_older_names_of_the_shardings(mesh, x):
    with mesh:
        result = pjit(lambda x: x + 1, in_axis_resources=P("devices"), out_axis_resources=None)(x)
    assert spec(result) == P()


def test_static_arguments_by_number_and_name(x):
    seen = []

    def scaled(x, n):
        seen.append(n)
        return x * n

    by_number, by_name = pjit(scaled, static_argnums=1), pjit(scaled, static_argnames="n")
    for n in (3, 3, 4):
        np.testing.assert_array_equal(by_number(x, n), np.arange(8) * n)
        np.testing.assert_array_equal(by_name(x, n=n), np.arange(8) * n)
    assert sorted(seen) == [3, 3, 4, 4]
    with pytest.raises(ValueError, match=r"not hashable"):
        by_number(x, [3])


def test_donated_arguments_are_gone(mesh, x):
    sharded = weft.device_put(x, NamedSharding(mesh, P("devices")))
    with mesh:
        result = pjit(
            lambda x: x + 1, in_shardings=P("devices"), out_shardings=P("devices"), donate_argnums=0
        )(sharded)
    np.testing.assert_array_equal(result, np.arange(8) + 1)
    assert sharded.is_deleted()
    with pytest.raises(RuntimeError, match=r"deleted"):
        sharded + 1


def test_unused_arguments_are_dropped_from_the_texts_unless_kept(x):
    def first(a, unused):
        return a + 1

    dropped, unpruned = pjit(first).lower(x, x), pjit(first, keep_unused=True).lower(x, x)
    parameters = lambda text: text.partition("ENTRY")[2].count(" parameter(")
    assert [parameters(low.compile().as_text()) for low in (dropped, unpruned)] == [1, 2]
    assert [low.as_text().count("%arg1: tensor") for low in (dropped, unpruned)] == [0, 1]
    np.testing.assert_array_equal(dropped.compile()(x, x), np.arange(8) + 1)


def test_inline_leaves_no_call_in_the_trace(x):
    inner = pjit(lambda y: y * 2, inline=True)
    assert [e.primitive.name for e in weft.make_jaxpr(lambda x: inner(x) + 1)(x).eqns] == [
        "mul",
        "add",
    ]
    np.testing.assert_array_equal(weft.grad(lambda x: inner(x).sum())(x), np.full(8, 2.0))


def test_device_is_deprecated_but_works_and_so_does_backend(x):
    device = weft.devices()[3]
    with pytest.warns(DeprecationWarning, match=r"device_put") as caught:
        result = jit(lambda x: x + 1, device=device)(x)
    assert result.devices() == {device}
    assert caught[0].filename == __file__
    assert jit(lambda x: x + 1, backend="cpu")(x).devices() == {weft.devices()[0]}


def test_device_and_backend_that_cannot_be(mesh, x):
    with pytest.raises(RuntimeError, match=r"nope"):
        jit(lambda x: x, backend="nope")
    with (
        pytest.warns(DeprecationWarning),
        pytest.raises(ValueError, match="then in_shardings should not be specified"),
    ):
        jit(lambda x: x, device=weft.devices()[0], in_shardings=NamedSharding(mesh, P()))


def test_executables_accept_only_their_compiled_shardings(mesh, x):
    """Committed arrays with other shardings are refused; NumPy arrays and uncommitted arrays are
    placed."""
    split, whole = NamedSharding(mesh, P("devices")), NamedSharding(mesh, P())
    compiled = (
        weft.jit(lambda x, y: x + y)
        .lower(weft.device_put(x, split), weft.device_put(x, whole))
        .compile()
    )
    want = np.asarray(x) * 2
    np.testing.assert_array_equal(
        compiled(weft.device_put(x, NamedSharding(mesh, P("devices"))), np.asarray(x)), want
    )
    np.testing.assert_array_equal(
        compiled(wnp.asarray(np.asarray(x)), weft.device_put(x, NamedSharding(mesh, P(None)))), want
    )
    with pytest.raises(
        ValueError,
        match=r"input shardings that disagree .*\n  argument y of type .*compiled for .*P\(\)",
    ):
        compiled(weft.device_put(x, split), weft.device_put(x, split))
    alone = weft.jit(lambda x: x).lower(weft.ShapeDtypeStruct(x.shape, x.dtype)).compile()
    np.testing.assert_array_equal(alone(np.asarray(x)), x)
    with pytest.raises(ValueError, match="input shardings that disagree"):
        alone(weft.device_put(x, split))
    with weft.set_mesh(weft.make_mesh((8,), ("i",), axis_types=(AxisType.Explicit,))):
        spread = weft.jit(lambda x: x * 2, in_shardings=P("i")).lower(np.arange(8)).compile()
        assert spread.input_shardings[0][0].spec == P("i") and spread(
            np.arange(8)
        ).sharding.spec == P(None)
    with pytest.warns(DeprecationWarning, match="device is deprecated"):
        moved = weft.jit(lambda x: x + 1, device=weft.devices()[1])
    assert moved.lower(weft.ShapeDtypeStruct(x.shape, x.dtype)).compile()(
        weft.device_put(x, split)
    ).devices() == {weft.devices()[1]}


def test_devices_of_a_compilation_are_those_of_the_arguments(mesh, x):
    lowered = weft.jit(lambda x: x + 1).lower(weft.device_put(x, NamedSharding(mesh, P("devices"))))
    devices = tuple(mesh.devices.flat)
    np.testing.assert_array_equal(lowered.compile(device_assignment=devices)(x), np.asarray(x) + 1)
    with pytest.raises(
        ValueError, match=r"device_assignment passed to compile must match .* got \[1\]"
    ):
        lowered.compile(device_assignment=devices[1:2])


@pytest.mark.parametrize(
    "call",
    [
        lambda inner, x: weft.jit(lambda x: inner(x) + 1)(x),
        lambda inner, x: weft.jit(lambda x: inner(wnp.sin(x)))(x),
        lambda inner, x: weft.vmap(inner)(x[None])[0],
        lambda inner, x: weft.jvp(inner, (x,), (x,))[1],
        lambda inner, x: weft.vjp(inner, x)[0],
        lambda inner, x: weft.jit(
            lambda x: weft.lax.scan(lambda c, _: (inner(c), None), x, None, length=2)[0]
        )(x),
    ],
)
def test_shardings_of_a_jit_inside_hold_for_its_values(mesh, x, call):
    over = NamedSharding(mesh, P("devices"))
    inner = weft.jit(lambda x: 3 * x, in_shardings=over, out_shardings=over)
    assert spec(call(inner, x)) == P("devices")


def test_inside_operands_are_moved_to_their_in_shardings(mesh, x):
    inner = weft.jit(lambda x: x + 1, in_shardings=NamedSharding(mesh, P("devices")))
    assert spec(weft.jit(lambda x: inner(x) * 2)(x)) == P("devices")


def test_a_layout_that_is_shown_leaves_no_dim_open(mesh, x):
    over = NamedSharding(mesh, P("devices"))
    mapped = weft.vmap(lambda x: weft.lax.with_sharding_constraint(x, over))(x[None])
    assert spec(mapped) == P(None, "devices")


def test_results_of_uncommitted_inputs_use_the_context_mesh(mesh):
    x = wnp.arange(8.0)
    double = pjit(lambda x, y=0: (x * 2, wnp.zeros(3)), donate_argnums=0)
    with mesh:
        for _ in range(2):
            operand = wnp.arange(8.0)
            results = double(operand)
            assert (
                all(r.sharding == NamedSharding(mesh, P()) for r in results)
                and operand.is_deleted()
            )
        np.testing.assert_array_equal(results[0], 2 * np.arange(8.0))
        assert pjit(lambda x: x, out_shardings=P("devices"))(x).sharding.spec == P("devices")
        placed = weft.device_put(x, NamedSharding(mesh, P("devices")))
        assert spec(pjit(lambda x: x + 1)(placed)) == P("devices")
    assert isinstance(pjit(lambda x: x * 2)(x).sharding, SingleDeviceSharding)


def test_programs_are_lowered_for_types():
    compiled = weft.jit(lambda x: x * 2).lower(weft.typeof(wnp.ones((4, 2)))).compile()
    assert compiled(wnp.ones((4, 2))).tolist() == [[2, 2]] * 4
    with pytest.raises(TypeError, match="not a valid JAX type"):
        weft.jit(lambda x: x * 2)(weft.typeof(1.0))
    with pytest.raises(ValueError, match="rank at least 3, but was applied to a value of rank 2"):
        weft.ShapeDtypeStruct((4, 4), "float32", sharding=P(None, "x", None))


def test_specs_of_structs_are_read_under_the_mesh_of_the_context():
    struct = weft.ShapeDtypeStruct((4, 4), "float32", sharding=P("x"))
    meshes = [weft.make_mesh((n,), ("x",), devices=weft.devices()[:n]) for n in (2, 4)]
    for mesh in meshes:
        with weft.set_mesh(mesh):
            assert (
                struct.sharding == NamedSharding(mesh, P("x"))
                and struct.format.sharding == struct.sharding
            )
            assert weft.jit(lambda x: x * 2).lower(struct).compile().input_shardings[0][
                0
            ] == NamedSharding(mesh, P("x"))
    assert struct == struct.update(shape=(4, 4)) and hash(struct) == hash(
        weft.ShapeDtypeStruct((4, 4), "float32", sharding=P("x"))
    )
    assert "sharding=P('x',)" in repr(struct)
    for read in (
        lambda: struct.sharding,
        lambda: struct.aval,
        lambda: weft.jit(lambda x: x).lower(struct),
    ):
        with pytest.raises(TypeError, match="the context mesh cannot be empty"):
            read()
    with (
        weft.set_mesh(weft.make_mesh((2,), ("y",), devices=weft.devices()[:2])),
        pytest.raises(ValueError, match="'x'"),
    ):
        struct.sharding


def test_two_things_say_what_splits_a_mapped_dim():
    mesh = weft.make_mesh(
        (2, 2),
        ("x", "y"),
        devices=weft.devices()[:4],
        axis_types=(weft.sharding.AxisType.Explicit,) * 2,
    )
    x = weft.device_put(np.ones((4, 2), np.float32), NamedSharding(mesh, P("x", "y")))
    assert weft.jit(weft.vmap(lambda r: r * 2, spmd_axis_name="x"))(x).sharding.spec == P("x", "y")
    with pytest.raises(ValueError, match="Only one of spmd_axis_name or arrays sharded on"):
        weft.jit(weft.vmap(lambda r: r * 2, spmd_axis_name="y"))(x)


def test_the_context_mesh_holds_uncommitted_arguments(mesh, x):
    half = Mesh(np.array(weft.devices()[:4]), ("devices",))
    sharded = weft.device_put(x, NamedSharding(mesh, P("devices")))
    f = pjit(lambda x, y: (x, y))
    with mesh:
        assert pjit(lambda: 1)().sharding == NamedSharding(mesh, P())
        assert [len(out.devices()) for out in f(x, sharded)] == [8, 8]
        again = pjit(lambda x: x + 1, donate_argnums=0)
        mine = wnp.arange(8.0)
        again(mine)
        assert mine.is_deleted()
    with half:
        for args in [(sharded, sharded), (x, sharded)]:
            with pytest.raises(ValueError, match="incompatible devices"):
                f(*args)
    assert [len(out.devices()) for out in f(x, x)] == [1, 1]


def test_a_device_contradicts_a_mesh_in_context(x):
    with pytest.warns(DeprecationWarning):
        f, g = (make(lambda x: x, device=weft.devices()[0]) for make in (jit, pjit))
    mesh = Mesh(np.array(weft.devices()[:1]), ("devices",))
    with mesh, pytest.raises(ValueError, match="device"):
        g(x)
    with weft.set_mesh(mesh), pytest.raises(ValueError, match="device"):
        f(x)
    assert f(x).devices() == g(x).devices() == {weft.devices()[0]}


def test_errors_of_devices_name_the_operation_inside(x):
    wide = NamedSharding(Mesh(np.array(weft.devices()[:2]), ("i",)), P("i"))
    here = weft.device_put(x, weft.devices()[0])
    split = {
        "a sharding_constraint inside jit": lambda x: weft.lax.with_sharding_constraint(x, wide),
        "a shard_map inside jit": weft.shard_map(
            lambda x: x, mesh=wide.mesh, in_specs=P("i"), out_specs=P("i")
        ),
        "a jit inside jit": jit(lambda x: x * 2, in_shardings=wide),
    }
    for named, inside in split.items():
        with pytest.raises(
            ValueError,
            match=rf"argument x of f with shape float32\[8\] and device ids \[0\] and {named} with device ids",
        ):
            jit(plus_one(inside))(here)
    with pytest.raises(ValueError, match="an out_sharding of jit with device ids"):
        jit(lambda x: x * 2, out_shardings=wide)(here)


def plus_one(inside):
    def f(x):
        return inside(x) + 1

    return f


@pytest.mark.parametrize("argument", ["in_shardings", "out_shardings"])
def test_arguments_and_results_leave_no_dim_to_propagation(mesh, argument):
    for shardings in (
        NamedSharding(mesh, P(P.UNCONSTRAINED, "devices")),
        {"a": P(P.UNCONSTRAINED)},
    ):
        with pytest.raises(ValueError, match=f"{argument}: Unconstrained dims are not allowed"):
            jit(lambda x: x, **{argument: shardings})


def test_a_constraint_to_one_device_commits(x):
    for device in weft.devices()[:2]:
        placed = weft.lax.with_sharding_constraint(x, SingleDeviceSharding(device))
        assert placed.committed and placed.devices() == {device} and placed.tolist() == x.tolist()
    assert not x.committed


def test_a_named_sharding_has_a_spec(mesh):
    with pytest.raises(TypeError, match="Unexpected None"):
        NamedSharding(mesh, None)
    with pytest.raises(TypeError, match="spec"):
        NamedSharding(mesh)


def test_scalars_are_not_split(mesh):
    with pytest.raises(ValueError, match=r"For scalars the PartitionSpec should be P\(\)"):
        NamedSharding(mesh, P("devices")).check_compatible_aval(())


def test_a_struct_with_a_layout_takes_a_format(mesh):
    rows, whole = NamedSharding(mesh, P("devices")), NamedSharding(mesh, P())
    struct = weft.ShapeDtypeStruct((8, 8), wnp.int32, sharding=Format(Layout((0, 1)), whole))
    assert struct.update(sharding=Format(Layout((1, 0)), rows)).format == Format(
        Layout((1, 0)), rows
    )
    assert struct.update(shape=(4, 4)).format == struct.format
    with pytest.raises(ValueError, match="updating ShapeDtypeStruct"):
        struct.update(sharding=rows)


def test_compiler_options_are_taken():
    assert pjit(lambda x: x + 1, compiler_options={})(1) == 2
    with pytest.raises(weft.errors.JaxRuntimeError, match="No such compile option"):
        pjit(lambda x: x + 1, compiler_options={"no_such_option": True})(1)
