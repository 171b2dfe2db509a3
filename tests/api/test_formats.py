"""`Format` and `Layout`: accepted arguments, formats of arrays and compiled programs, and errors."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.experimental.layout import Format, Layout, with_layout_constraint
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P, SingleDeviceSharding

ROWS, COLUMNS = Layout((0, 1), ()), Layout((1, 0), ())
AUTO = Format(Layout.AUTO)
VALUE = np.arange(32.0, dtype="float32").reshape(4, 8)


@pytest.fixture
def here():
    return SingleDeviceSharding(weft.devices()[0])


@pytest.fixture
def sharding():
    return NamedSharding(weft.make_mesh((4, 2), ("a", "b")), P("a"))


def layout_of(x):
    return x.format.layout


def test_arrays_and_programs_tell_their_format(sharding):
    x = weft.device_put(wnp.ones((4, 3)), sharding)
    assert x.format == Format(ROWS, sharding)
    assert wnp.ones(()).format.layout == Layout((), ()) and hash(ROWS) == hash(Layout([0, 1], ()))
    compiled = weft.jit(lambda x, *, y: {"sum": x + y}).lower(x, y=x).compile()
    assert compiled.input_formats == ((x.format,), {"y": x.format})
    assert compiled.output_formats == {"sum": x.format}
    struct = weft.ShapeDtypeStruct((4, 3), "float32", sharding=x.format)
    assert struct.sharding is sharding and struct.format == x.format


def test_a_format_stands_for_its_sharding(sharding):
    for format in (Format(Layout((0, 1)), sharding), Format(None, sharding)):
        assert weft.device_put(VALUE, format).sharding == sharding
        assert weft.jit(lambda x: x + 1, out_shardings=format)(VALUE).sharding == sharding
        assert weft.jit(lambda x: x + 1, in_shardings=format)(VALUE).sharding == sharding
    auto = weft.jit(lambda x: x.T, in_shardings=AUTO, out_shardings=AUTO)
    np.testing.assert_array_equal(auto(VALUE), VALUE.T)
    np.testing.assert_array_equal(with_layout_constraint([VALUE], Layout((0, 1)))[0], VALUE)


@pytest.mark.parametrize("spec", [P("a"), P("b", "a"), P(None, ("a", "b")), P()])
@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1), (2, 1, 0)])
def test_memory_is_in_the_order_that_was_asked_for(sharding, spec, order):
    value = np.arange(4 * 8 * 2, dtype="int32").reshape(4, 8, 2)
    expected = Format(Layout(order, ()), sharding.with_spec(spec))
    x = weft.device_put(value, expected)
    assert x.format == expected and repr(x) == repr(wnp.asarray(value))
    plain = weft.device_put(value, expected.sharding)
    array = weft.make_array_from_callback(value.shape, expected, lambda index: value[index])
    assert weft.make_array_from_process_local_data(expected, value).format == expected
    for shard, same, part in zip(
        x.addressable_shards, plain.addressable_shards, array.addressable_shards
    ):
        assert shard.index == same.index == part.index and shard.replica_id == same.replica_id
        assert layout_of(shard.data) == layout_of(part.data) == expected.layout
        block = np.asarray(shard.data)
        np.testing.assert_array_equal(block, value[shard.index])
        np.testing.assert_array_equal(part.data, block)
        assert block.transpose(order).flags.c_contiguous


def test_other_layouts_and_places(sharding, here):
    x = weft.device_put(VALUE, Format(COLUMNS, sharding))
    same_layout = [
        weft.device_put(x, to)
        for to in (weft.devices()[1], here, sharding.with_spec(P("b", "a")), None)
    ]
    assert [layout_of(y) for y in same_layout] == [
        COLUMNS
    ] * 4  # a sharding alone does not determine a memory layout
    places = here, sharding, sharding.with_spec(P(None, "b"))
    others = [weft.device_put(x, Format(layout, to)) for layout in (ROWS, None) for to in places]
    assert [layout_of(y) for y in others] == [ROWS] * 6
    for y in (*same_layout, *others):
        np.testing.assert_array_equal(y, VALUE)


def test_functions_that_make_arrays_take_formats(here):
    x = weft.device_put(VALUE, here)
    for make in (
        lambda device: wnp.array(VALUE, device=device),
        lambda device: wnp.asarray(x, device=device),
        x.to_device,
        lambda device: wnp.zeros((4, 8), device=device) + VALUE,
        lambda device: wnp.ones_like(x, device=device) * VALUE,
    ):
        np.testing.assert_array_equal(make(Format(COLUMNS, here)), VALUE)
    for array in (
        wnp.array(x, device=Format(COLUMNS, here)),
        wnp.ones_like(x, device=Format(COLUMNS, here)),
    ):
        assert layout_of(array) == COLUMNS
    with pytest.raises(ValueError, match="committed to the device ids"):
        wnp.array(x, device=Format(COLUMNS, SingleDeviceSharding(weft.devices()[1])))


def test_large_arrays_change_their_order_by_programs(sharding, here):
    value = np.arange(1 << 19, dtype="float32").reshape(1 << 9, 1 << 10)
    for place in (sharding, here, sharding.with_spec(P("b", "a"))):
        x = weft.device_put(value, place)
        for _ in range(2):  # the second call uses a compiled copy
            x = weft.device_put(weft.device_put(x, Format(COLUMNS, sharding)), Format(ROWS, place))
        np.testing.assert_array_equal(x, value)


def test_one_function_has_a_program_for_each_order(here):
    f = weft.jit(lambda x: x @ x.T)
    rows, columns = weft.device_put(VALUE, here), weft.device_put(VALUE, Format(COLUMNS, here))
    for _ in range(3):
        np.testing.assert_allclose(f(rows), f(columns))
    assert f._cache_size() == 2
    assert f.lower(columns).compile().input_formats == ((columns.format,), {})
    struct = weft.ShapeDtypeStruct(VALUE.shape, "float32", sharding=columns.format)
    assert f.lower(struct).compile().input_formats == ((columns.format,), {})


@pytest.mark.parametrize("spec", [None, P("a"), P("b", "a")])
def test_results_in_an_order(sharding, here, spec):
    place = here if spec is None else sharding.with_spec(spec)
    f = weft.jit(
        lambda x: (x + 1, x.T, x.sum()),
        out_shardings=(Format(COLUMNS, place), Format(COLUMNS, place), None),
    )
    x = weft.device_put(VALUE, Format(COLUMNS, place))
    compiled = f.lower(x).compile()
    for run in (f, f, compiled):
        more, turned, total = run(x)
        assert more.format == Format(COLUMNS, place) == turned.format
        np.testing.assert_array_equal(more, VALUE + 1)
        np.testing.assert_array_equal(turned, VALUE.T)
        assert float(total) == VALUE.sum()
    assert (
        compiled.output_formats[:2] == (more.format, turned.format)
        and compiled.out_info[0].format == more.format
    )


def test_auto_leaves_transposes_out(sharding, here):
    x = weft.device_put(VALUE, here)
    compiled = weft.jit(lambda x: x.T, out_shardings=AUTO).lower(x).compile()
    assert not compiled.stages.simplified.eqns  # only a copy remains
    out = compiled(x)
    assert layout_of(out) == COLUMNS == compiled.output_formats.layout
    np.testing.assert_array_equal(out, VALUE.T)

    def order(f, *args):
        result = weft.jit(f, out_shardings=AUTO)(*args)
        np.testing.assert_allclose(result, f(*args), rtol=1e-6)
        return layout_of(result).major_to_minor

    y = weft.device_put(VALUE, Format(COLUMNS, here))
    assert order(lambda x: wnp.sin(x.T) * 2 + wnp.arange(4.0), x) == (1, 0)
    assert order(lambda x: wnp.sin(x), y) == (1, 0) and order(lambda x: x.T, y) == (0, 1)
    assert order(lambda x, y: x + y, x, y) == (0, 1)  # they disagree
    assert order(lambda x: x.T @ x, x) == (0, 1) and order(
        lambda x: weft.jit(lambda x: x.T)(x), x
    ) == (1, 0)
    cube = wnp.arange(24.0).reshape(2, 3, 4)
    assert order(lambda x: x.transpose(2, 0, 1), cube) == (1, 2, 0)
    split = weft.device_put(VALUE, sharding)
    out = (
        weft.jit(lambda x: x.T, in_shardings=Format(Layout.AUTO, sharding), out_shardings=AUTO)
        .lower(weft.ShapeDtypeStruct(VALUE.shape, "float32", sharding=sharding))
        .compile()(split)
    )
    assert out.format == Format(COLUMNS, sharding.with_spec(P(None, "a")))


def test_arguments_are_laid_out_as_jit_says(here):
    f = weft.jit(lambda x: x + 1, in_shardings=Format(Layout((1, 0)), here))
    for x in (VALUE, wnp.asarray(VALUE), weft.device_put(VALUE, Format(COLUMNS, here))):
        for _ in range(3):
            np.testing.assert_array_equal(f(x), VALUE + 1)
    assert f.lower(VALUE).compile().input_formats == ((Format(COLUMNS, here),), {})
    struct = weft.ShapeDtypeStruct(VALUE.shape, "float32", sharding=here)
    assert f.lower(struct).compile().input_formats == ((Format(COLUMNS, here),), {})
    rows = weft.device_put(VALUE, here)
    with pytest.raises(
        ValueError, match="Layout passed to jit does not match the layout on the respective arg"
    ):
        f(rows)
    for use in (
        f.lower,
        weft.jit(lambda x: x, in_shardings=AUTO),
        weft.jit(lambda x: x, in_shardings=AUTO).lower,
    ):
        with pytest.raises(ValueError, match="Layout passed to jit does not match"):
            use(rows)
    np.testing.assert_array_equal(
        weft.jit(lambda x: x * 2, in_shardings=here)(weft.device_put(VALUE, Format(COLUMNS, here))),
        VALUE * 2,
    )


def test_compiled_programs_take_arrays_of_their_order(here):
    rows, columns = weft.device_put(VALUE, here), weft.device_put(VALUE, Format(COLUMNS, here))
    for lowered_for, other in ((rows, columns), (columns, rows)):
        compiled = weft.jit(lambda x: x + 1).lower(lowered_for).compile()
        for x in (lowered_for, VALUE, wnp.asarray(VALUE)):
            np.testing.assert_array_equal(compiled(x), VALUE + 1)
        with pytest.raises(
            ValueError,
            match="compiled for input layouts that disagree with the layouts of arguments",
        ):
            compiled(other)


def test_texts_tell_the_order_of_arguments_and_results(sharding):
    x = weft.device_put(VALUE, Format(COLUMNS, sharding.with_spec(P("b"))))
    f = weft.jit(lambda unused, x, y: (x * 2, y + x.sum(1)), out_shardings=(x.format, None))
    text = f.lower(x, x, np.ones(4, "float32")).compile().as_text()
    assert (
        "entry_computation_layout={(f32[2,8]{0,1}, f32[2]{0})->(f32[2,8]{0,1}, f32[2]{0})}" in text
    )
    assert "f32[8,2]{1,0} bitcast(" in text and "f32[2,8]{0,1} bitcast(" in text


def test_donation(here):
    for layout in (ROWS, COLUMNS):
        x = weft.device_put(VALUE, Format(COLUMNS, here))
        y = weft.jit(lambda x: x + 1, donate_argnums=0, out_shardings=Format(layout, here))(x)
        np.testing.assert_array_equal(y, VALUE + 1)
        assert x.is_deleted() and layout_of(y) == layout
    x = weft.device_put(VALUE, here)
    weft.jit(lambda x: x * x, out_shardings=AUTO, donate_argnums=0)(
        x
    )  # committed: its layout is fixed
    assert x.is_deleted()
    with pytest.raises(ValueError, match="Did you mean to set the output layout"):
        weft.jit(lambda x: x * 2, donate_argnums=0, in_shardings=AUTO)(wnp.asarray(VALUE))
    with pytest.raises(ValueError, match="Did you mean to set the input layout"):
        weft.jit(lambda x: x * 2, donate_argnums=0, out_shardings=AUTO).lower(VALUE)


def test_constraints_hold_for_results(sharding, here):
    x = weft.device_put(VALUE, here)
    turned = lambda x: with_layout_constraint(x * 2, Layout((1, 0)))
    for f in (
        turned,
        weft.jit(turned),
        weft.jit(weft.jit(turned)),
        weft.jit(turned, out_shardings=AUTO),
        weft.jit(lambda x: weft.lax.with_sharding_constraint(x * 2, Format(Layout((1, 0)), here))),
        weft.jit(lambda x: weft.device_put(x * 2, Format(Layout((1, 0)), here))),
        weft.jit(
            lambda x: weft.jit(lambda x: x * 2, out_shardings=Format(Layout((1, 0)), here))(x)
        ),
    ):
        out = f(x)
        assert layout_of(out) == COLUMNS
        np.testing.assert_array_equal(out, VALUE * 2)
    assert (
        layout_of(weft.jit(lambda x: turned(x) + 1)(x)) == ROWS
    )  # inside a program values have no memory layout
    assert layout_of(weft.jit(turned, out_shardings=Format(ROWS, here))(x)) == ROWS
    assert (
        layout_of(
            weft.jit(lambda x: with_layout_constraint(x.T, Layout((0, 1))), out_shardings=AUTO)(x)
        )
        == ROWS
    )
    assert "LayoutConstraint" in weft.jit(turned).lower(x).as_text()
    split = weft.jit(
        lambda x: weft.lax.with_sharding_constraint(x.T, Format(Layout((1, 0)), sharding))
    )(wnp.asarray(VALUE))
    assert split.format == Format(COLUMNS, sharding)
    np.testing.assert_array_equal(split, VALUE.T)


def test_transformations_of_functions_with_orders(here):
    f = weft.jit(
        lambda x: with_layout_constraint(wnp.sin(x) * x, Layout((1, 0))),
        out_shardings=Format(Layout((1, 0)), here),
    )
    x = weft.device_put(VALUE / 8, Format(COLUMNS, here))
    slope = np.cos(VALUE / 8) * VALUE / 8 + np.sin(VALUE / 8)
    np.testing.assert_allclose(weft.grad(lambda x: f(x).sum())(x), slope, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        weft.jit(weft.grad(lambda x: f(x).sum()), out_shardings=AUTO)(x),
        slope,
        rtol=1e-5,
        atol=1e-5,
    )
    np.testing.assert_allclose(
        weft.jvp(f, (x,), (wnp.ones_like(x),))[1], slope, rtol=1e-5, atol=1e-5
    )
    batch = wnp.stack([x, 2 * x, 3 * x])
    for at in (0, 1, 2):
        mapped = weft.jit(weft.vmap(f, in_axes=at, out_axes=at))(wnp.moveaxis(batch, 0, at))
        np.testing.assert_allclose(
            wnp.moveaxis(mapped, at, 0), np.sin(batch) * np.asarray(batch), rtol=1e-5
        )
    weft.test_util.check_grads(
        lambda x: with_layout_constraint(wnp.sin(x.T), Layout((1, 0))),
        (VALUE[:2, :3] / 8,),
        order=2,
    )


def test_shapes_of_results_keep_shardings_and_formats(sharding, here):
    expected = Format(Layout((1, 0)), sharding)
    f = weft.jit(lambda x: (x + 1, x, x), out_shardings=(expected, sharding, None))
    for out in (weft.eval_shape(f, VALUE), f.eval_shape(VALUE), f.lower(VALUE).out_info):
        assert [s.format for s in out] == [expected, Format(None, sharding), Format(None, None)]
        assert [s.sharding for s in out] == [sharding, sharding, None] and "format=Layout" in repr(
            out[0]
        )
    struct = out[0]
    assert struct.update(dtype="int32").format == expected and struct.update(
        sharding=Format(None, here)
    ).format == Format(None, here)
    assert struct != struct.update(sharding=Format(None, sharding))
    assert hash(struct) == hash(weft.ShapeDtypeStruct((4, 8), "float32", sharding=expected))
    x = weft.device_put(VALUE, expected)
    assert weft.ShapeDtypeStruct.like(x).format.layout == COLUMNS


def test_explicit_axes():
    mesh = weft.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)
    rows = NamedSharding(mesh, P("a", "b"))
    x = weft.device_put(VALUE, Format(COLUMNS, rows))
    assert x.aval.str_short() == "float32[4@a,8@b]"
    with weft.set_mesh(mesh):
        y = weft.jit(lambda x: x.T * 2, out_shardings=AUTO)(x)
        z = weft.jit(lambda x: with_layout_constraint(x.T * 2, Layout((1, 0))))(x)
    assert (
        layout_of(y) == ROWS
        and layout_of(z) == COLUMNS
        and y.sharding.spec == z.sharding.spec == P("b", "a")
    )
    np.testing.assert_array_equal(y, VALUE.T * 2)
    np.testing.assert_array_equal(z, VALUE.T * 2)
    terms = NamedSharding(mesh, P(unreduced={"a"}))
    with pytest.raises(NotImplementedError, match="unreduced axes are stored row-major"):
        weft.device_put(VALUE, Format(COLUMNS, terms))
    np.testing.assert_array_equal(weft.sharding.reshard(weft.device_put(x, terms), rows), VALUE)


USES = {
    "device_put": lambda format: weft.device_put(np.ones((2, 3)), format),
    "in_shardings": lambda format: weft.jit(lambda x: x, in_shardings=format)(np.ones((2, 3))),
    "out_shardings": lambda format: weft.jit(lambda x: x, out_shardings=format)(np.ones((2, 3))),
    "struct": lambda format: weft.ShapeDtypeStruct((2, 3), "float32", sharding=format),
    "callback": lambda format: weft.make_array_from_callback(
        (2, 3), format, lambda index: np.ones((2, 3))[index]
    ),
    "parts": lambda format: weft.make_array_from_single_device_arrays(
        (2, 3), format, [weft.device_put(wnp.ones((2, 3)), format.sharding)]
    ),
    "constraint": lambda format: weft.jit(lambda x: weft.lax.with_sharding_constraint(x, format))(
        np.ones((2, 3))
    ),
    "layout constraint": lambda format: with_layout_constraint(wnp.ones((2, 3)), format.layout),
}


@pytest.mark.parametrize("use", USES)
def test_layouts_that_do_not_fit(use, here):
    for order in ((0, 1, 2), (0,), (1, 1), (0, 2)):
        with pytest.raises(
            ValueError, match="major_to_minor and the rank of the value should match"
        ):
            USES[use](Format(Layout(order), here))
    with pytest.raises(NotImplementedError, match="without tiles"):
        USES[use](Format(Layout((1, 0), ((8, 128),)), here))
    if use not in ("in_shardings", "out_shardings"):
        with pytest.raises((TypeError, ValueError), match="AUTO"):
            USES[use](Format(Layout.AUTO, here))


def test_what_is_no_format():
    with pytest.raises(ValueError, match="needs a concrete sharding"):
        Format(ROWS)
    with pytest.raises(TypeError, match="must be a Layout"):
        Format((0, 1))
    for options in ({"in_shardings": ROWS}, {"out_shardings": Layout.AUTO}):
        with pytest.raises(
            ValueError, match=r"`weft.jit` does not accept device-local layouts directly"
        ):
            weft.jit(lambda x: x, **options)(VALUE)
