"""`weft.export`: exported programs agree with their functions, for every size, also in other
processes; unsuitable arguments are refused."""

import collections
import subprocess
import sys

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.harness.processes import ROOT
from weft import export, lax
from weft._engine.util.config import Override
from weft.errors import InconclusiveDimensionOperation
from weft.export import SymbolicScope, symbolic_shape
from weft.extend.core import max_dim, min_dim

struct = lambda *shape, dtype="float32": weft.ShapeDtypeStruct(shape, dtype)
RNG = np.random.default_rng(0)


def same(ours, theirs) -> None:
    for x, y in zip(weft.tree.leaves(ours), weft.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def net(params, x):
    h = weft.nn.relu(lax.conv_general_dilated(x, params["kernel"], (2, 2), "SAME"))
    h = h.reshape(h.shape[0], -1)
    score = weft.nn.softmax(h @ wnp.ones((h.shape[1], 3)) / h.shape[1])
    return {
        "score": score,
        "sums": lax.scan(lambda c, y: (c + y.sum(), c), 0.0, x)[1],
        "count": x.size,
    }


def padded(x):
    grown = wnp.concatenate([x, wnp.arange(2 * x.shape[0] * 3).reshape(-1, 3)])
    return (
        wnp.sort(grown, axis=0)[: x.shape[0]],
        grown.mean(),
        x[x.shape[0] // 2],
        wnp.cumsum(x, axis=0),
    )


def test_symbolic_size_programs_agree_with_the_function():
    b, c = symbolic_shape("b, c", constraints=["mod(b, 8) == 0", "c <= 64"])
    params = {"kernel": wnp.asarray(RNG.normal(size=(4, 2, 3, 3)).astype(np.float32))}
    exported = export.export(weft.jit(net))(params, struct(b, 2, c, c))
    assert str(exported.out_avals[1].shape) == "(b, 3)" and exported.fun_name == "net"
    again = export.deserialize(exported.serialize())
    for n, m in ((8, 10), (16, 1), (8, 64)):
        x = RNG.normal(size=(n, 2, m, m)).astype(np.float32)
        same(exported.call(params, x), net(params, x))
        same(again.call(params, x), net(params, x))
    with pytest.raises(ValueError, match=r"violate the constraint mod\(b, 8\) == 0"):
        exported.call(params, np.ones((4, 2, 3, 3), np.float32))


def test_sizes_of_intermediate_values_are_expressions():
    (b,) = symbolic_shape("b")
    exported = export.export(weft.jit(padded))(struct(b, 3))
    assert [str(a.shape) for a in exported.out_avals] == ["(b, 3)", "()", "(3,)", "(b, 3)"]
    for n in (1, 2, 7, 64):
        x = RNG.normal(size=(n, 3)).astype(np.float32)
        same(exported.call(x), padded(x))


def test_derivatives_are_exported_with_the_rules_of_the_function():
    @weft.custom_vjp
    def doubled(x):
        return x

    doubled.defvjp(lambda x: (x, None), lambda _, ct: (2 * ct,))
    f = lambda x, n: (wnp.sin(doubled(x)) * n, n + 1)
    (b,) = symbolic_shape("b")
    exported = export.export(weft.jit(f))(struct(b), struct(dtype="int32"))
    x = wnp.arange(4.0)
    loss = lambda call: lambda x: call(x, 3)[0].sum()
    for one in (exported, export.deserialize(exported.serialize(vjp_order=2))):
        same(weft.grad(loss(one.call))(x), weft.grad(loss(f))(x))
        same(weft.jit(weft.grad(loss(one.call)))(x), weft.grad(loss(f))(x))
        assert one.has_vjp() and [str(a.shape) for a in one.vjp().out_avals] == ["(b,)"]
        assert one.vjp().has_vjp()
    bare = export.deserialize(exported.serialize())
    assert not bare.has_vjp()
    with pytest.raises(ValueError, match="No VJP is available"):
        weft.grad(loss(bare.call))(x)


def test_exported_programs_are_called_in_other_programs():
    (b,) = symbolic_shape("b")
    inner = export.export(weft.jit(lambda x: wnp.tanh(x).sum(axis=1)))(struct(b, 3))
    x = RNG.normal(size=(5, 4, 3)).astype(np.float32)
    same(weft.vmap(inner.call)(x), np.tanh(x).sum(2))
    same(weft.jit(lambda x: inner.call(x) * 2)(x[0]), 2 * np.tanh(x[0]).sum(1))
    outer = export.export(weft.jit(lambda x: inner.call(x[: x.shape[0] // 2])))(struct(2 * b, 3))
    assert str(outer.out_avals[0].shape) == "(b,)"
    same(export.deserialize(outer.serialize()).call(x[0]), np.tanh(x[0, :2]).sum(1))


Pair = collections.namedtuple("Pair", "first second")
PROGRAM = """
import collections, sys
import numpy as np
from weft import export
Pair = export.register_namedtuple_serialization(collections.namedtuple("Pair", "first second"), serialized_name="tests.pair")
exported = export.deserialize(open(sys.argv[1], "rb").read())
out = exported.call({"key": np.arange(2, dtype=np.uint32)}, Pair(np.ones(3, np.float32), 2))
assert type(out["pair"]) is Pair
print(float(out["pair"].first.sum()), out["pair"].second.shape)
"""


def test_another_process_runs_the_bytes(tmp_path):
    f = lambda state, pair: {
        "pair": Pair(pair.first * pair.second, weft.random.normal(state["key"], (4,)))
    }
    state, pair = {"key": wnp.arange(2, dtype="uint32")}, Pair(wnp.ones(3), 2)
    exported = export.export(weft.jit(f))(state, pair)
    with pytest.raises(ValueError, match="cannot serialize a tree with nodes of type"):
        exported.serialize()
    export.register_namedtuple_serialization(Pair, serialized_name="tests.pair")
    with pytest.raises(ValueError, match="Duplicate serialization registration for type"):
        export.register_namedtuple_serialization(Pair, serialized_name="tests.other")
    (tmp_path / "program").write_bytes(exported.serialize())
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "program"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout.split() == ["6.0", "(4,)"], done.stderr


def test_facts_of_an_exported_program():
    exported = export.export(weft.jit(wnp.sin))(wnp.ones(3))
    assert (exported.platforms, exported.nr_devices, exported.uses_global_constants) == (
        ("cpu",),
        1,
        False,
    )
    assert "stablehlo.sine" in exported.mlir_module() and repr(exported).startswith(
        "Exported(fun_name='sin'"
    )
    assert weft.tree.structure(((1,), {})) == exported.in_tree
    away = export.export(weft.jit(wnp.sin), platforms=["tpu"])
    with pytest.raises(ValueError, match=r"was exported for platforms '\('tpu',\)'"):
        away(wnp.ones(3)).call(wnp.ones(3))
    allowed = export.export(
        weft.jit(wnp.sin),
        platforms=["tpu"],
        disabled_checks=[export.DisabledSafetyCheck.platform()],
    )
    same(allowed(wnp.ones(3)).call(wnp.ones(3)), np.sin(np.ones(3)))


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((np.ones((2, 4), np.float32), 1.0), r"Shape mismatch for args\[0\].shape\[1\]"),
        ((np.ones((2, 3), np.int32), 1.0), r"Dtype mismatch for args\[0\]: expected float32"),
        ((np.ones(3, np.float32), 1.0), r"Rank mismatch for args\[0\]"),
        (
            (np.ones((3, 3), np.float32), 1.0),
            r"Division had remainder 1 when computing the value of 'b'",
        ),
        ((np.ones((2, 3), np.float32),), "must have the same pytree structure"),
    ],
)
def test_arguments_that_do_not_fit(args, text):
    (b,) = symbolic_shape("b")
    exported = export.export(weft.jit(lambda x, s: x * s))(struct(2 * b, 3), 1.0)
    with pytest.raises(ValueError, match=text):
        exported.call(*args)


@pytest.mark.parametrize(
    ("dims", "shape", "text"),
    [
        (
            "a + 2*b, a, a + b + c",
            (3, 2, 6),
            r"Input shapes do not match.*Division had remainder 1 when computing the value of 'b'.*"
            r"args\[0\]\.shape = \(2\*b \+ a, a, c \+ b \+ a\).*'a' = 2 from specification 'a' for dimension args\[0\]\.shape\[1\] \(= 2\)",
        ),
        (
            "a + 2*b, a, a + b",
            (8, 2, 6),
            r"Found inconsistency between dimension size args\[0\]\.shape\[0\] \(= 8\) and the specification "
            r"'2\*b \+ a' \(= 10\).*args\[0\]\.shape = \(2\*b \+ a, a, b \+ a\).*'a' = 2 .*'b' = 4 from specification 'b \+ a'",
        ),
        (
            "2*a + b, a, c*c",
            (7, 2, 36),
            r"^Cannot solve for values of dimension variables \{'c'\}.*args\[0\]\.shape = \(b \+ 2\*a, a, c\^2\)",
        ),
    ],
)
def test_size_mismatches_report_the_actual_sizes(dims, shape, text):
    exported = export.export(weft.jit(lambda x: x.sum()))(struct(*symbolic_shape(dims)))
    with pytest.raises(ValueError, match=text):
        exported.call(np.ones(shape, np.float32))


def test_functions_that_cannot_be_exported():
    (b,) = symbolic_shape("b")
    with pytest.raises(ValueError, match="must be the result of `jit`"):
        export.export(lambda x: x)
    with pytest.raises(InconclusiveDimensionOperation, match="'b' > '3' is inconclusive"):
        export.export(weft.jit(lambda x: x if x.shape[0] > 3 else 2 * x))(struct(b))
    with pytest.raises(TypeError, match="sqrt"):
        export.export(weft.jit(lambda x: x * float(np.sqrt(x.shape[0]))))(struct(b))
    with pytest.raises(TypeError, match="does not divide"):
        export.export(weft.jit(lambda x: x.reshape(2, -1)))(struct(b))
    with pytest.raises(ValueError, match="different scopes"):
        export.export(weft.jit(lambda x, y: x.sum() + y.sum()))(
            struct(b), struct(*symbolic_shape("b"))
        )
    called = export.export(weft.jit(lambda x: weft.pure_callback(np.sin, x, x)))(wnp.ones(3))
    same(called.call(wnp.ones(3)), np.sin(np.ones(3)))
    with pytest.raises(ValueError, match=r"holds a Python function"):
        called.serialize()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d[:40],
        lambda d: b"x" + d[1:],
        lambda d: d[:14] + b"\x07" + d[15:],
        lambda d: d.replace(b"weft.extend.core", b"weft.extend.mlir"),
        lambda d: d.replace(b"_jaxpr", b"system"),
    ],
)
def test_damaged_bytes_are_refused(change):
    data = bytes(export.export(weft.jit(wnp.sin))(wnp.ones(3)).serialize())
    with pytest.raises(ValueError, match="deserialize"):
        export.deserialize(change(data))


# ---- sizes


def test_expressions_are_simplified_printed_and_parsed():
    sizes = symbolic_shape(
        "b, 3, 2*b + c - 1, floordiv(b, 2), mod(b, 3), max(a, b), b^2, (4*b + 3)//2, _, ...",
        like=[None] * 8 + [7, 9],
    )
    assert (
        str(sizes)
        == "(b, 3, c + 2*b - 1, floordiv(b, 2), mod(b, 3), max(a, b), b^2, 2*b + 1, 7, 9)"
    )
    b, scope = sizes[0], sizes[0].scope
    for x in sizes:
        assert export.is_symbolic_dim(x) != isinstance(x, int)
        assert isinstance(x, int) or symbolic_shape(str(x), scope=scope)[0] == x
    assert (
        b + b == 2 * b
        and b - b == 0
        and type(b - b) is int
        and (6 * b) // 3 == 2 * b
        and (b * b) // b == b
        and (4 * b) % 2 == 0
    )
    assert (
        hash(b + 1) == hash(1 + b)
        and b != 3
        and 0 - (-b) == b
        and (b + 3) - b == 3
        and f"{b:>3}" == "  b"
    )
    assert (
        divmod(7 * b, 7) == (b, 0) and str(sum([b, 1, b])) == "2*b + 1" and str(3 - b) == "- b + 3"
    )


def test_comparisons_follow_from_bounds_and_constraints():
    scope = SymbolicScope(["b >= 4", "c <= 10", "d == 2*b", "mod(b, 4) == 0"])
    b, c, d = symbolic_shape("b, c, d", scope=scope)
    assert (
        b >= 4
        and b > 3
        and not b < 4
        and c < 11
        and c >= 1
        and str(d) == "2*b"
        and b % 4 == 0
        and (b % 3) < 3
        and b + c > 4
    )
    assert (b // 2) >= 2 and 2 * b - 8 >= 0 and b * c >= 4
    for undecided in (lambda: b > 4, lambda: c >= b, lambda: b - c > 0):
        with pytest.raises(InconclusiveDimensionOperation, match="is inconclusive"):
            undecided()


@pytest.mark.parametrize(
    ("spec", "kwargs", "text"),
    [
        ("b, c+", {}, "not an expression of sizes"),
        ("b, f(c)", {}, "not an expression of sizes"),
        ("b", {"constraints": ["b > 4"]}, "a constraint is"),
        ("_, b", {}, "need like="),
        ("..., b", {"like": (1, 2)}, "comes last"),
        ("b, 3", {"like": (1, 2)}, "different size 2"),
        ("b", {"like": (1, 2)}, "has 1 dim,"),
        (3, {}, "is a string"),
    ],
)
def test_texts_that_are_no_shapes(spec, kwargs, text):
    with pytest.raises(ValueError, match=text):
        symbolic_shape(spec, **kwargs)


def test_types_of_arguments_from_texts():
    specs = export.symbolic_args_specs(
        ({"x": wnp.ones((2, 3)), "y": wnp.ones(4)}, 1), ({"x": "b, ...", "y": "b"}, None)
    )
    assert (
        str(specs[0]["x"].shape) == "(b, 3)"
        and specs[0]["x"].shape[0] == specs[0]["y"].shape[0]
        and specs[1].shape == ()
    )
    with pytest.raises(ValueError, match="belong to different scopes"):
        symbolic_shape("b")[0] + symbolic_shape("b")[0]


def test_constants_at_large_sizes_may_vary_at_small_sizes():
    (b,) = export.symbolic_shape("b")
    shape = lambda n: ((n + 13) // n, (n + 13) % n, n * n)
    exported = export.export(weft.jit(lambda x: wnp.ones(shape(x.shape[0]))))(
        weft.ShapeDtypeStruct((b,), np.float32)
    )
    for n in (1, 4, 5, 13, 14, 20, 1009):
        assert exported.call(wnp.ones(n)).shape == shape(n)


def test_sizes_are_divided_by_sums():
    (c,) = export.symbolic_shape("c")
    assert (
        (36 * c + 144) // (c + 4),
        (c * c - 16) // (c + 4) == c - 4,
        (c * c - 16) % (c + 4),
    ) == (36, True, 0)
    assert str((c * c - 15) // (c + 4)) == "floordiv(c^2 - 15, c + 4)"
    exported = export.export(weft.jit(lambda x: wnp.reshape(x, (-1, x.shape[1]))))(
        weft.ShapeDtypeStruct((3, c + 4, 12), np.float32)
    )
    assert exported.call(np.ones((3, 9, 12), np.float32)).shape == (36, 9)
    with pytest.raises(
        ValueError,
        match=r"Expected value >= 1 for dimension variable 'c'.*args\[0\]\.shape = \(3, c \+ 4, 12\).*'c' = 0",
    ):
        exported.call(np.ones((3, 4, 12), np.float32))


def test_sizes_that_callers_leave_open_are_at_least_one():
    inner = export.export(weft.jit(lambda x: wnp.reshape(x, (-1, x.shape[1]))))(
        weft.ShapeDtypeStruct(export.symbolic_shape("3, a, a + b"), np.float32)
    )
    outer = lambda shape, *constraints: export.export(weft.jit(inner.call))(
        weft.ShapeDtypeStruct(export.symbolic_shape(shape, constraints=constraints), np.float32)
    )
    with pytest.raises(
        ValueError, match=r"Expected value >= 1 for dimension variable 'b'.*'b' = c - 4"
    ):
        outer("3, 4, c")
    assert outer("3, 4, c", "c >= 5").call(np.ones((3, 4, 5), np.float32)).shape == (15, 4)
    assert outer("3, 4, c + 4").call(np.ones((3, 4, 6), np.float32)).shape == (18, 4)


def test_versions_of_the_calling_convention_have_bounds():
    least, most = (
        export.minimum_supported_calling_convention_version,
        export.maximum_supported_calling_convention_version,
    )
    for version in (least, most):
        with Override(export_calling_convention_version=version):
            assert (
                export.export(weft.jit(wnp.sin))(struct(3)).calling_convention_version == most
            )  # there is one format
    for version in (least - 1, most + 1):
        with (
            Override(export_calling_convention_version=version),
            pytest.raises(ValueError, match="outside the range of supported"),
        ):
            export.export(weft.jit(wnp.sin))(struct(3))


def test_programs_with_shardings_are_called_on_as_many_devices():
    mesh = weft.make_mesh((2,), ("x",), devices=weft.devices()[:2])
    rows = weft.NamedSharding(mesh, weft.P("x"))
    exported = export.export(weft.jit(lambda x: lax.with_sharding_constraint(x * 2, rows)))(
        struct(4)
    )
    x = wnp.arange(4.0)
    for program in (exported, export.deserialize(exported.serialize())):
        assert program.nr_devices == 2
        out = program.call(weft.device_put(x, weft.NamedSharding(mesh, weft.P())))
        assert out.sharding.is_equivalent_to(rows, 1) and out.tolist() == [0, 2, 4, 6]
        assert weft.jit(program.call)(x).tolist() == [0, 2, 4, 6]
        with pytest.raises(
            ValueError,
            match=r"was exported for 2 devices and is called in a context with 1 device\.",
        ):
            program.call(x)


def on(n, *spec, names=("x",), shape=None, reverse=False, **kind):
    devices = np.array(weft.devices()[:n][::-1] if reverse else weft.devices()[:n]).reshape(
        shape or (n,)
    )
    return weft.NamedSharding(weft.sharding.Mesh(devices, names), weft.P(*spec), **kind)


@pytest.mark.parametrize(
    "fun",
    [
        lambda rows: weft.jit(
            lambda x, y: wnp.sin(x), in_shardings=(rows, None), out_shardings=rows
        ),
        lambda rows: weft.jit(lambda x, y: lax.with_sharding_constraint(wnp.sin(x), rows)),
        lambda rows: weft.jit(
            lambda x, y: weft.shard_map(
                wnp.sin, mesh=rows.mesh, in_specs=weft.P("x"), out_specs=weft.P("x")
            )(x)
        ),
    ],
    ids=["in_shardings", "constraint", "shard_map"],
)
def test_programs_run_on_other_devices_than_those_of_the_export(fun):
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    exported = export.export(fun(on(2, "x")))(x, x)
    for program in (exported, export.deserialize(exported.serialize())):
        assert program.nr_devices == 2
        there = on(2, "y", names=("y",), reverse=True)
        out = program.call(weft.device_put(x, there), x)
        np.testing.assert_allclose(out, np.sin(x), rtol=1e-6)
        assert [s.device for s in out.addressable_shards] == weft.devices()[:2][::-1]
        (g,) = weft.vjp(lambda x: exported.call(x, wnp.zeros_like(x)), weft.device_put(x, there))[
            1
        ](wnp.ones_like(x))
        np.testing.assert_allclose(g, np.cos(x), rtol=1e-6)
        with pytest.raises(
            ValueError, match="was exported for 2 devices and is called in a context with 4 devices"
        ):
            program.call(weft.device_put(x, on(4, "x")), x)


@pytest.mark.parametrize(
    "fun",
    [
        lambda one: weft.jit(lambda x: (x**2).sum(0), in_shardings=one),
        lambda one: weft.jit(lambda x: (x**2).sum(0), out_shardings=one),
        lambda one: weft.jit(lambda x: (lax.with_sharding_constraint(x, one) ** 2).sum(0)),
    ],
    ids=["in", "out", "constraint"],
)
@pytest.mark.parametrize("place", ["mesh", "device"])
def test_programs_for_one_device_run_on_any_number(fun, place):
    x = np.arange(80, dtype=np.float32).reshape(8, 10)
    exported = export.export(
        fun(
            on(1, *(() if place == "device" else ("x",)))
            if place == "mesh"
            else weft.sharding.SingleDeviceSharding(weft.devices()[0])
        )
    )(x)
    assert exported.nr_devices == 1
    for n in (1, 4, 8):
        spread = weft.device_put(x, on(n, "x"))
        np.testing.assert_allclose(exported.call(spread), (x**2).sum(0))
        np.testing.assert_allclose(weft.jit(exported.call)(spread), (x**2).sum(0))


def test_shardings_are_told_over_other_meshes():
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    rows, columns = on(4, "x"), on(4, None, "x")
    exported = export.export(
        weft.jit(
            lambda x, y, z: (x + y, z),
            in_shardings=(rows, None, None),
            out_shardings=(columns, None),
        )
    )(x, x, weft.device_put(x, columns))
    for program in (exported, export.deserialize(exported.serialize())):
        same, other = on(4, reverse=True).mesh, on(4, names=("a", "b"), shape=(2, 2)).mesh
        assert program.in_shardings_jax(same) == (
            weft.NamedSharding(same, rows.spec),
            None,
            weft.NamedSharding(same, columns.spec),
        )
        assert program.out_shardings_jax(same) == (weft.NamedSharding(same, columns.spec), None)
        assert program.in_shardings_jax(other)[0] == weft.NamedSharding(other, weft.P(("a", "b")))
        abstract = program.in_shardings_jax(other.abstract_mesh)[2]
        assert abstract == weft.NamedSharding(
            other.abstract_mesh, weft.P(None, ("a", "b")), memory_kind="device"
        )
        for bad in (on(2).mesh, on(8).mesh):
            with pytest.raises(ValueError, match="has no equivalent over"):
                program.in_shardings_jax(bad)


def test_types_say_in_which_memory_arguments_were():
    host = weft.sharding.SingleDeviceSharding(weft.devices()[0], memory_kind="pinned_host")
    x, empty = np.ones((2, 3), np.float32), weft.sharding.AbstractMesh((), ())
    exported = export.export(
        weft.jit(lambda a, b: (a, a + b, b), out_shardings=(None, None, host))
    )(weft.device_put(x, host), x)
    for program in (exported, export.deserialize(exported.serialize())):
        assert [a.memory_space.name for a in program.in_avals] == ["Host", "Device"]
        assert [a.memory_space.name for a in program.out_avals] == ["Host", "Device", "Host"]
        there = weft.NamedSharding(empty, weft.P(None, None), memory_kind="pinned_host")
        assert program.in_shardings_jax(empty) == (there, None) and program.out_shardings_jax(
            empty
        ) == (None, None, there)
        np.testing.assert_array_equal(program.call(x, x)[1], x + x)


def test_static_arguments_are_fixed_by_the_export():
    x = np.arange(4, dtype=np.float32)
    by_name = export.export(weft.jit(lambda x, *, c: c * wnp.sin(x), static_argnames="c"))(x, c=0.5)
    by_number = export.export(
        weft.jit(lambda c, x, kind="sin": c * getattr(wnp, kind)(x), static_argnums=(0, 2))
    )(0.5, x, "cos")
    for exported, want in ((by_name, np.sin(x)), (by_number, np.cos(x))):
        for program in (exported, export.deserialize(exported.serialize(1))):
            assert len(program.in_avals) == 1
            np.testing.assert_allclose(program.call(x), 0.5 * want, rtol=1e-6)
            with pytest.raises(ValueError, match="same pytree structure"):
                program.call(0.5, x)
    assert weft.grad(lambda x: by_name.call(x).sum())(x).shape == (4,)


def test_a_list_of_specs_fits_a_tuple_of_arguments():
    spread = weft.ShapeDtypeStruct((4, 6), np.float32, sharding=on(2, "x"))
    a, b = export.symbolic_args_specs((spread, np.ones(6)), ["4, n", "n"])
    assert str(a.shape) == "(4, n)" and a.sharding == spread.sharding and a.shape[1] == b.shape[0]
    exported = export.export(weft.jit(lambda a, b: a * b))(a, b)
    assert (
        exported.nr_devices == 2
        and exported.in_shardings_jax(spread.sharding.mesh)[0] == spread.sharding
    )


def test_ranges_have_symbolic_lengths_and_fit_small_sizes_too():
    def ranges(x):
        n = x.shape[0]
        return (
            wnp.arange(n).reshape(n, 1),
            wnp.arange(2, n),
            wnp.arange(0, n, 3),
            wnp.arange(n, 0, -2),
            wnp.arange(0.0, n),
            wnp.zeros(max_dim(n - 4, min_dim(n, 2))),
        )

    exported = export.export(weft.jit(ranges))(
        weft.ShapeDtypeStruct(symbolic_shape("n"), np.float32)
    )
    shapes = [str(a.shape) for a in exported.out_avals[:4]]
    assert shapes == [
        "(n, 1)",
        "(max(0, n - 2),)",
        "(floordiv(n + 2, 3),)",
        "(floordiv(n + 1, 2),)",
    ]
    for n in (1, 2, 3, 7, 10):
        x = np.ones(n, np.float32)
        for result, want in zip(exported.call(x), ranges(x), strict=True):
            np.testing.assert_array_equal(result, want)


def test_small_arrays_of_sizes_follow_the_sizes():
    def sizes(x):
        return lax.shape_as_value(x.shape), x + wnp.array(
            [[x.shape[0] * 2.0, 1], [7, x.size]], np.float32
        )[0, 0] * wnp.asarray([x.shape[1]], np.float32)

    exported = export.export(weft.jit(sizes))(
        weft.ShapeDtypeStruct(symbolic_shape("a, b"), np.float32)
    )
    for shape in ((1, 2), (3, 4)):
        x = np.ones(shape, np.float32)
        for program in (exported, export.deserialize(exported.serialize())):
            for result, want in zip(program.call(x), sizes(x), strict=True):
                np.testing.assert_array_equal(result, want)
    with pytest.raises(TypeError):
        export.export(weft.jit(lambda x: x[0] + wnp.asarray(np.full(3, x.size / 7, np.float32))))(
            weft.ShapeDtypeStruct(symbolic_shape("a"), np.float32)
        )


def test_small_sizes_need_no_constraint():
    def spread(x):
        return wnp.linspace(0.0, 1.0, x.shape[0]), wnp.arange(2, x.shape[0])

    exported = export.export(weft.jit(spread))(
        weft.ShapeDtypeStruct(symbolic_shape("n"), np.float32)
    )
    for n in (1, 2, 5):
        for result, want in zip(
            exported.call(np.ones(n, np.float32)), spread(np.ones(n)), strict=True
        ):
            np.testing.assert_allclose(result, want, rtol=1e-6)


def test_constraints_name_sizes_of_arguments():
    (m,) = symbolic_shape("m", constraints=["m >= m1"])
    with pytest.raises(
        ValueError, match=r"'m1' in the constraint 'm >= m1'.*Argument shapes: \(m,\)"
    ):
        export.export(weft.jit(lambda x: x))(weft.ShapeDtypeStruct((m,), np.float32))


def test_programs_for_all_sizes_run_in_pmap():
    exported = export.export(
        weft.jit(lambda x: x + wnp.arange(x.shape[0], dtype=x.dtype).reshape(x.shape[0], 1))
    )(weft.ShapeDtypeStruct(symbolic_shape("a, 4"), np.float32))
    x = np.ones((2, 3, 4), np.float32)
    np.testing.assert_array_equal(weft.pmap(exported.call)(x), x + np.arange(3)[:, None])


@pytest.mark.parametrize("platforms", [("cpu",), ("cpu", "tpu")])
def test_calls_of_exported_programs_depend_on_what_these_do(platforms):
    inner = export.export(weft.jit(wnp.sin), platforms=platforms)(wnp.ones(3))
    outer = export.export(weft.jit(lambda x: inner.call(x) * 2))(wnp.ones(3))
    assert outer.uses_global_constants == inner.uses_global_constants == (len(platforms) > 1)
    for exported in (outer, export.deserialize(outer.serialize())):
        flag = str(len(platforms) > 1).lower()
        assert f"jax.uses_shape_polymorphism = {flag}" in exported.mlir_module()
        np.testing.assert_allclose(exported.call(wnp.ones(3)), 2 * np.sin(np.ones(3)), rtol=1e-6)
    assert "func.call @call_exported_sin" in weft.jit(inner.call).lower(wnp.ones(3)).as_text()
