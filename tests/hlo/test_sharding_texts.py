"""Shardings in StableHLO texts: of arguments and results, of operands, of types with automatic axes, and of exported programs."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import export
from weft.sharding import AxisType, NamedSharding, P

X = np.ones((4, 6), np.float32)
EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto


def mesh_of(*types):
    names = ("a", "b", "c")[: len(types)]
    return weft.make_mesh(
        (2,) * len(types), names, axis_types=types, devices=weft.devices()[: 2 ** len(types)]
    )


def text_of(fun, *args, **options):
    return weft.jit(fun, **options).lower(*args).as_text()


def main_of(text):
    return next(line for line in text.splitlines() if "@main(" in line)


def constraints_of(text):
    lines = [
        line.split("sdy.sharding_constraint ")[1]
        for line in text.splitlines()
        if "sdy.sharding_constraint" in line
    ]
    return [line.split(" <@mesh, ")[1].rsplit("> :", 1)[0] for line in lines]


#: spec of the argument, and what its type is constrained to
PARTLY_OPEN = {
    "one dim": (P("a"), '[{"a", ?}, {?}], replicated={"c"}'),
    "both axes": (P("a", "c"), '[{"a", ?}, {"c", ?}]'),
    "an axis that is not in the type": (P(("a", "b")), '[{"a", ?}, {?}], replicated={"c"}'),
    "none": (P(), '[{?}, {?}], replicated={"a", "c"}'),
}


@pytest.mark.parametrize("name", PARTLY_OPEN)
def test_types_leave_automatic_axes_open(name):
    spec, layout = PARTLY_OPEN[name]
    x = weft.device_put(
        X.repeat(2, 0).repeat(2, 1), NamedSharding(mesh_of(EXPLICIT, AUTO, EXPLICIT), spec)
    )
    assert constraints_of(text_of(wnp.sin, x)) == [layout]


def test_types_without_automatic_axes_are_closed():
    x = weft.device_put(X, NamedSharding(mesh_of(EXPLICIT, EXPLICIT), P("a")))
    assert constraints_of(text_of(wnp.sin, x)) == ['[{"a"}, {}]']


def test_terms_of_a_sum_are_unreduced():
    mesh = mesh_of(EXPLICIT, EXPLICIT)
    with weft.set_mesh(mesh):
        x, y = weft.device_put(X, P(None, "a")), weft.device_put(X.T, P("a", None))
        text = text_of(lambda x, y: wnp.dot(x, y, out_sharding=P("b", unreduced={"a"})), x, y)
    assert constraints_of(text)[-1] == '[{"b"}, {}], unreduced={"a"}'


#: a function of values split by rows, by columns and not at all, and how many operands are constrained to the type of the result
OPERANDS = {
    "rows and columns": (lambda r, c, w: r + c, 2),
    "rows and whole": (lambda r, c, w: r * w, 1),
    "rows alone": (lambda r, c, w: r * r, 0),
    "a number": (lambda r, c, w: r * 2, 1),
    "a choice": (lambda r, c, w: wnp.where(r > 1, r, r), 1),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_operands_are_split_like_results(name):
    fun, count = OPERANDS[name]
    mesh = mesh_of(EXPLICIT, EXPLICIT)
    rows, columns, whole = (
        weft.device_put(X, NamedSharding(mesh, spec)) for spec in (P("a"), P(None, "b"), P())
    )
    text = text_of(fun, rows, columns, whole)
    jaxpr = weft.make_jaxpr(fun)(rows, columns, whole)
    assert text.count("sdy.sharding_constraint") == count + len(jaxpr.eqns)


def test_main_tells_where_arguments_and_results_are():
    mesh = mesh_of(EXPLICIT, EXPLICIT)
    x = weft.device_put(X, NamedSharding(mesh, P("a")))
    line = main_of(text_of(lambda x: {"t": x.T, "n": [x * 2]}, x))
    assert '%arg0: tensor<4x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}' in line
    assert (
        'tensor<4x6xf32> {jax.result_info = "result[\'n\'][0]", sdy.sharding = #sdy.sharding<@mesh, [{"a"}, {}]>}'
        in line
    )
    assert (
        'tensor<6x4xf32> {jax.result_info = "result[\'t\']", sdy.sharding = #sdy.sharding<@mesh, [{}, {"a"}]>}'
        in line
    )


def test_places_tell_names_of_arguments():
    lowered = weft.jit(lambda x, scale: x * scale["by"]).lower(X, {"by": X, "unused": X})
    assert main_of(lowered.as_text(debug_info=True)).count("loc(\"scale['by']\")") == 1
    assert "loc(" not in lowered.as_text() and "unused" not in lowered.as_text(debug_info=True)


@pytest.mark.parametrize("is_whole", [True, False])
def test_dims_of_shard_map_are_open_to_other_axes(is_whole):
    mesh = mesh_of(AUTO, AUTO)
    fun = weft.shard_map(
        wnp.sin,
        mesh=mesh,
        in_specs=P("a"),
        out_specs=P("a"),
        axis_names={"a", "b"} if is_whole else {"a"},
    )
    layout = '[{"a"}, {}]' if is_whole else '[{"a", ?}, {?}]'
    assert f"in_shardings=[<@mesh, {layout}>] out_shardings=[<@mesh, {layout}>]" in text_of(fun, X)


def test_types_in_shard_map_are_closed_without_automatic_axes():
    mesh = mesh_of(EXPLICIT, EXPLICIT)
    fun = weft.shard_map(wnp.sin, mesh=mesh, in_specs=P("a"), out_specs=P("a"), axis_names={"a"})
    with weft.set_mesh(mesh):
        text = text_of(fun, weft.device_put(X, P("a", "b")))
    assert constraints_of(text)[0] == '[{}, {"b"}]'


#: jit's parameters, and the layouts of the argument and of the result
EXPORTED = {
    "none": ({}, "", ""),
    "arguments": ({"in_shardings": P("a")}, '[{"a"}, {}]', ""),
    "results": ({"out_shardings": P(None, "a")}, "", '[{}, {"a"}]'),
    "both": ({"in_shardings": P("a"), "out_shardings": P(None, "a")}, '[{"a"}, {}]', '[{}, {"a"}]'),
}


@pytest.mark.parametrize("again", [False, True], ids=["exported", "read from bytes"])
@pytest.mark.parametrize("name", EXPORTED)
def test_exported_programs_tell_their_shardings(name, again):
    specs, argument, result = EXPORTED[name]
    mesh = mesh_of(AUTO)
    options = {key: NamedSharding(mesh, spec) for key, spec in specs.items()}
    exported = export.export(weft.jit(lambda x: wnp.sin(x.T), **options))(X)
    exported = export.deserialize(exported.serialize(vjp_order=1)) if again else exported
    attribute = lambda layout: f"sdy.sharding = #sdy.sharding<@mesh, {layout}>" if layout else ""
    of_argument, of_result = (
        (f" {{{attribute(argument)}}}" if argument else ""),
        (f", {attribute(result)}" if result else ""),
    )
    text = exported.mlir_module()
    assert (
        "module @jit__lambda_ attributes {jax.uses_shape_polymorphism = false, " in text
        and "func.call" not in text
    )
    assert main_of(text) == (
        f'  func.func public @main(%arg0: tensor<4x6xf32>{of_argument} loc("args[0]")) -> '
        f'(tensor<6x4xf32> {{jax.result_info = "result"{of_result}}}) {{'
    )
    # the derivative has the argument and the cotangent of the result, and gives the cotangent of the argument
    derivative = main_of(exported.vjp().mlir_module())
    of_cotangent = f" {{{attribute(result)}}}" if result else ""
    assert (
        f'%arg0: tensor<4x6xf32>{of_argument} loc("args[0]"), %arg1: tensor<6x4xf32>{of_cotangent} loc("args[1]")'
        in derivative
    )
    assert (
        f'-> (tensor<4x6xf32> {{jax.result_info = "result[0]"{f", {attribute(argument)}" if argument else ""}}})'
        in derivative
    )
