"""Prints and callbacks of programs for many devices: whole values from automatic code, blocks with
their position from shard_map, and no communication added by them."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.util import events
from weft.experimental import io_callback
from weft.sharding import NamedSharding, PartitionSpec as P

show = weft.debug.print
X = np.arange(8, dtype=np.float32).reshape(4, 2)
BOTH = [pytest.param(True, id="jit"), pytest.param(False, id="eager")]


def mesh(rows=2, columns=2):
    return weft.make_mesh((rows, columns), ("i", "j"), devices=weft.devices()[: rows * columns])


def laid(x, *spec, on=None):
    return weft.device_put(x, NamedSharding(on or mesh(), P(*spec)))


def flat_lines(capsys) -> list[str]:
    """Printed lines; arrays of several lines are joined."""
    weft.effects_barrier()
    return capsys.readouterr().out.replace("\n ", " ").splitlines()


# --- automatic code ---------------------------------------------------------------------------------------------------

AUTOMATIC = {
    "value": (lambda x: show("{}", x.sum(1)), ["[ 1.  5.  9. 13.]"]),
    "split differently": (lambda x: show("{} {}", x.T[0], x.sum()), ["[0. 2. 4. 6.] 28.0"]),
    "vmap": (weft.vmap(lambda r: show("{}", r * 2), 1), ["[ 0.  4.  8. 12.]", "[ 2.  6. 10. 14.]"]),
    "named vmap": (
        weft.vmap(lambda r: show("{}", r), 1, axis_name="i"),
        ["[0. 2. 4. 6.]", "[1. 3. 5. 7.]"],
    ),
    "scan": (
        lambda x: lax.scan(lambda c, r: (show("{} {}", c, r), (c + r.sum(), None))[1], 0.0, x)[0],
        ["0.0 [0. 1.]", "1.0 [2. 3.]", "6.0 [4. 5.]", "15.0 [6. 7.]"],
    ),
    "vmap of cond": (
        weft.vmap(lambda r: lax.cond(r[0] > 3, lambda: show("{}", r), lambda: None)),
        ["[4. 5.]", "[6. 7.]"],
    ),
    "vmap in a mapped branch": (
        weft.vmap(
            lambda r: lax.cond(
                r[0] > 5, lambda: (weft.vmap(lambda v: show("{}", v))(r), 0)[1], lambda: 1
            )
        ),
        ["6.0", "7.0"],
    ),
    "grad": (weft.grad(lambda x: (show("{}", x[0]), (x**2).sum())[1]), ["[0. 1.]"]),
    "blocks apart": (
        lambda x: show("{}", x[:, 0] + 1, partitioned=True),
        ["[i=0] [1. 3.]", "[i=1] [5. 7.]"],
    ),
}


@pytest.mark.parametrize(
    "spec", [("i", "j"), ("j", "i"), (("i", "j"),), (("j", "i"), None), (None, "i"), ()], ids=str
)
@pytest.mark.parametrize("name", [n for n in AUTOMATIC if n != "blocks apart"])
def test_automatic_code_prints_whole_values_once(name, spec, capsys):
    fun, want = AUTOMATIC[name]
    jitted = weft.jit(fun)
    for _ in range(2):
        jitted(laid(X, *spec))
        assert flat_lines(capsys) == want


def test_partitioned_prints_say_where_they_are(capsys):
    fun, want = AUTOMATIC["blocks apart"]
    for run in (weft.jit(fun), weft.jit(weft.jit(fun))):
        run(laid(X, "i"))
        assert flat_lines(capsys) == want
    show("{}", laid(X[0], "j"), partitioned=True)
    assert flat_lines(capsys) == ["[j=0] [0.]", "[j=1] [1.]"]
    weft.jit(weft.vmap(lambda r, c: show("{} {}", r, c, partitioned=True), (0, 1)))(
        laid(X[:2], "i"), laid(X[:2] + 4, "i")
    )
    assert sorted(flat_lines(capsys)) == [
        "[i=0] [0. 1.] [4.]",
        "[i=0] [2. 3.] [5.]",
        "[i=1] [0. 1.] [6.]",
        "[i=1] [2. 3.] [7.]",
    ]


def test_positions_are_left_out_where_import_jax_means_weft(capsys, monkeypatch):
    monkeypatch.setattr(events, "above", ["jax"])
    weft.jit(weft.vmap(weft.vmap(lambda r: show("{}", r, partitioned=True))))(
        laid(X.reshape(2, 2, 2), None, None, "j")
    )
    assert sorted(flat_lines(capsys)) == [f"[{i}.]" for i in range(8)]
    weft.pmap(lambda x: lax.while_loop(lambda i: i < 2, lambda i: (show("{}", i), i + 1)[1], x))(
        np.arange(2)
    )
    assert flat_lines(capsys) == ["0", "1", "1"]


def test_looking_moves_nothing():
    def step(x, look):
        y = wnp.tanh(x * 2)
        if look:
            show("{} {}", x, y)
            weft.debug.callback(lambda v: None, y.T)
        return y

    records = [
        weft.jit(step, static_argnums=1).lower(laid(X, "i", "j"), look).compile().stages.collectives
        for look in (False, True)
    ]
    assert records == [[], []]


def test_padding_of_uneven_dims_is_not_shown_nor_moved(capsys):
    def f(x):
        y = lax.with_sharding_constraint(x[:7] * 2, NamedSharding(mesh(4, 2), P("i")))
        show("{} {}", y, y[:3])
        return y + weft.pure_callback(np.negative, y, y)

    x = laid(np.arange(8, dtype=np.float32), "i", on=mesh(4, 2))
    for _ in range(2):
        assert weft.jit(f)(x).tolist() == [0.0] * 7
        assert flat_lines(capsys) == ["[ 0.  2.  4.  6.  8. 10. 12.] [0. 2. 4.]"]
    look = lambda x: show(
        "{}", lax.with_sharding_constraint(x[:7] * 2, NamedSharding(mesh(4, 2), P("i")))
    )
    assert weft.jit(look).lower(x).compile().stages.collectives == []


def test_pure_and_io_callbacks_see_whole_values():
    shapes = []
    double = lambda v: (shapes.append(v.shape), np.asarray(v) * 2)[1]
    x = laid(X, "i", "j")
    out = weft.jit(lambda x: weft.pure_callback(double, x, x) + x + io_callback(double, x, x))(x)
    np.testing.assert_array_equal(out, X * 5)
    assert shapes == [(4, 2)] * 2


@pytest.mark.parametrize("spec, want", [(("i", "j"), P("j", "i")), ((None, "j"), P("j"))])
def test_inspecting_layouts_inside_jit(spec, want):
    seen = []
    f = weft.jit(
        lambda x: lax.scan(
            lambda c, _: (
                weft.debug.inspect_array_sharding(c.T, callback=seen.append),
                (c + 1, None),
            )[1],
            x,
            length=2,
        )[0]
    )
    x = laid(X, *spec)
    for _ in range(2):
        np.testing.assert_array_equal(f(x), X + 2)
    assert [s.is_equivalent_to(NamedSharding(mesh(), want), 2) for s in seen] == [
        True
    ]  # when compiling, and once
    seen.clear()
    weft.jit(lambda x: weft.debug.inspect_array_sharding(x, callback=seen.append))(X)
    assert [type(s).__name__ for s in seen] == ["SingleDeviceSharding"]


# --- shard_map --------------------------------------------------------------------------------------------------------

PLACES = ["i=0 j=0", "i=0 j=1", "i=1 j=0", "i=1 j=1"]


def on_each(*values, text="{}"):
    return [f"[{place}] {text.format(v)}" for place, v in zip(PLACES, values, strict=True)]


def first_and_last():
    return (lax.axis_index("i") + lax.axis_index("j")) != 1


BODIES = {
    "block": (lambda x: show("{}", x[0]), on_each("[0.]", "[1.]", "[4.]", "[5.]")),
    "no values": (lambda x: show("here"), on_each(*["here"] * 4)),
    "sum over devices": (
        lambda x: show("{}", lax.psum(x.sum(), ("i", "j"))),
        on_each(*["28.0"] * 4),
    ),
    "scan": (
        lambda x: lax.scan(lambda c, r: (show("{}", r), (c, None))[1], 0, x)[0],
        [*on_each("[0.]", "[1.]", "[4.]", "[5.]"), *on_each("[2.]", "[3.]", "[6.]", "[7.]")],
    ),
    "branch of some devices": (
        lambda x: lax.cond(first_and_last(), lambda: show("{}", x.sum()), lambda: None),
        ["[i=0 j=0] 2.0", "[i=1 j=1] 12.0"],
    ),
    "loop of some devices": (
        lambda x: lax.while_loop(
            lambda k: k < lax.axis_index("i"),
            lambda k: (show("{}", k), k + 1)[1],
            lax.pvary(0, ("i",)),
        ),
        ["[i=1 j=0] 0", "[i=1 j=1] 0"],
    ),
    "vmap": (
        lambda x: weft.vmap(lambda r: show("{}", r))(x[:, 0]),
        [
            "[i=0 j=0] 0.0",
            "[i=0 j=0] 2.0",
            "[i=0 j=1] 1.0",
            "[i=0 j=1] 3.0",
            "[i=1 j=0] 4.0",
            "[i=1 j=0] 6.0",
            "[i=1 j=1] 5.0",
            "[i=1 j=1] 7.0",
        ],
    ),
    "callback": (
        lambda x: weft.debug.callback(lambda v: print(v.tolist()), x[0]),
        ["[0.0]", "[1.0]", "[4.0]", "[5.0]"],
    ),
    "jit": (weft.jit(lambda x: show("{}", x.sum())), on_each("2.0", "4.0", "10.0", "12.0")),
}


@pytest.mark.parametrize("checked", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("compiled", BOTH)
@pytest.mark.parametrize("name", BODIES)
def test_each_device_prints_its_block_and_where_it_is(name, compiled, checked, capsys):
    body, want = BODIES[name]
    f = weft.shard_map(
        lambda x: (body(x), x)[1],
        mesh=mesh(),
        in_specs=P("i", "j"),
        out_specs=P("i", "j"),
        check_vma=checked,
    )
    f = weft.jit(f) if compiled else f
    np.testing.assert_array_equal(f(X), X)
    assert flat_lines(capsys) == want


@pytest.mark.parametrize("compiled", BOTH)
def test_axes_of_the_compiler_are_put_together(compiled, capsys):
    f = weft.shard_map(
        lambda x: (show("{}", x.sum(0)), x)[1],
        mesh=mesh(),
        in_specs=P("i"),
        out_specs=P("i"),
        axis_names={"i"},
    )
    (weft.jit(f) if compiled else f)(laid(X, "i", "j"))
    assert flat_lines(capsys) == ["[i=0] [2. 4.]", "[i=1] [10. 12.]"]


def test_looking_inside_shard_map_gathers_nothing():
    body = lambda x: (show("{} {}", x, x.sum()), x + 1)[1]
    f = weft.shard_map(body, mesh=mesh(4, 2), in_specs=P("i", "j"), out_specs=P("i", "j"))
    compiled = weft.jit(f).lower(laid(X, "i", "j", on=mesh(4, 2))).compile()
    assert compiled.stages.collectives == []


def test_gradients_through_shard_map_print_once(capsys):
    body = lambda x: (show("{}", x.sum()), lax.psum((x**2).sum(), ("i", "j")))[1]
    loss = weft.shard_map(body, mesh=mesh(), in_specs=P("i", "j"), out_specs=P())
    np.testing.assert_array_equal(weft.jit(weft.grad(loss))(X), 2 * X)
    assert flat_lines(capsys) == on_each("2.0", "4.0", "10.0", "12.0")


@pytest.mark.parametrize("compiled", BOTH)
def test_pure_and_io_callbacks_run_per_block(compiled):
    shapes = []
    double = lambda v: (shapes.append(v.shape), np.asarray(v) * 2)[1]
    body = lambda x: weft.pure_callback(double, x, x) + io_callback(double, x, x)
    f = weft.shard_map(body, mesh=mesh(), in_specs=P("i", "j"), out_specs=P("i", "j"))
    np.testing.assert_array_equal((weft.jit(f) if compiled else f)(X), X * 4)
    assert shapes == [(2, 1)] * 8


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("rows, columns", [(1, 4), (4, 1), (2, 2)])
@pytest.mark.parametrize("spec", [("i",), (("j", "i"),), (("i", "j"), None)], ids=str)
def test_values_split_over_an_axis_of_size_one_are_put_together(spec, rows, columns, backend):
    function = lambda x: weft.pure_callback(
        lambda x: np.asarray(x)[::-1], weft.ShapeDtypeStruct(x.shape, x.dtype), x * 2
    )
    for x in (X, np.zeros_like(X)):  # blocks of zeros are one object
        got = weft.jit(function, backend=backend)(laid(x, *spec, on=mesh(rows, columns)))
        np.testing.assert_array_equal(got, x[::-1] * 2)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_values_gathered_along_an_axis_of_size_one(backend):
    one_row = mesh(1, 4)
    gather = lambda x: lax.all_gather(lax.pmean(x, "j"), "i")[0]

    def function(x):
        gathered = weft.shard_map(
            gather, mesh=one_row, in_specs=P(None, ("i", "j")), out_specs=P("i", None)
        )(x)
        return weft.pure_callback(lambda x: np.asarray(x) * 2, gathered, gathered)

    x = np.arange(12, dtype=np.float32).reshape(1, 12)
    result = weft.jit(function, backend=backend)(laid(x, None, "j", on=one_row))
    np.testing.assert_array_equal(result, 2 * x.reshape(1, 4, 3).mean(1))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_whole_values_in_a_branch_of_some_devices(backend, capsys):
    def body(x):
        looked = lambda: (show("{}", x.sum(0)), weft.pure_callback(np.negative, x, x))[1]
        return lax.cond(lax.axis_index("i") == 1, looked, lambda: x)

    f = weft.shard_map(
        body, mesh=mesh(), in_specs=P("i"), out_specs=P("i"), axis_names={"i"}, check_vma=False
    )
    got = weft.jit(f, backend=backend)(laid(X, "i", "j"))
    np.testing.assert_array_equal(got, np.concatenate([X[:2], -X[2:]]))
    assert flat_lines(capsys) == ["[i=1] [10. 12.]"]
