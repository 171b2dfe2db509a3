"""Functions with a custom partitioning for many devices."""

from functools import partial

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.control.custom_partition import parse_rule
from weft.experimental.custom_partitioning import (
    BATCHING,
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    custom_partitioning,
)
from weft.sharding import NamedSharding, PartitionSpec as P

MESH = weft.make_mesh((4, 2), ("x", "y"))
A = np.arange(32, dtype=np.float32).reshape(8, 4)
B = np.ones((4, 6), np.float32)


def put(value, *spec):
    return weft.device_put(value, NamedSharding(MESH, P(*spec)))


def product(calls, rule="i k, k j -> i j,", **options):
    """Return a function for `n a @ b` and the sum of `a`, by rows. `calls` records the arguments of the partition rule."""

    @partial(custom_partitioning, static_argnums=(1,))
    def f(a, n, b):
        return {"product": n * a @ b, "sum": a.sum()}

    def partition(n, mesh, args, results):
        calls.append(
            (n, [s.sharding.spec for s in args], {k: s.sharding.spec for k, s in results.items()})
        )
        rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())

        def blocks(a, b):
            calls.append((a.shape, b.shape))
            return {"product": n * a @ b, "sum": lax.psum(a.sum(), "x")}

        return mesh, blocks, {"product": rows, "sum": whole}, (rows, whole)

    f.def_partition(partition, sharding_rule=rule, **options)
    return f


def check(outs):
    np.testing.assert_array_equal(outs["product"], 3 * A @ B)
    assert outs["sum"] == A.sum()


def test_the_rule_is_told_the_layouts_and_gives_blocks():
    calls = []
    f = product(calls)
    g = weft.jit(lambda a, b: f(a, 3, b))
    outs = g(put(A, "x", "y"), put(B, None, "y"))
    check(outs)
    assert calls[:2] == [
        (3, [P("x", "y"), P(None, "y")], {"product": P("x", "y"), "sum": P()}),
        ((2, 4), (4, 6)),
    ]
    assert outs["product"].sharding.spec == P("x", "y")  # as propagation found
    report = weft.explain(g, put(A, "x", "y"), put(B, None, "y"))
    kinds = [c.kind for c in report.collectives]
    assert (
        kinds.count("psum") == 1
        and "all_gather" in kinds
        and "the partition of f takes it as" in str(report)
    )


@pytest.mark.parametrize(
    "run",
    [
        lambda f: f(A, 3, B),
        lambda f: weft.jit(lambda a, b: f(a, 3, b))(A, B),
        lambda f: weft.jit(lambda a, b: f(a, 3, b), backend="reference")(A, B),
        lambda f: weft.jit(
            lambda a, b: lax.cond(a[0, 0] < 1, lambda: f(a, 3, b), lambda: f(a, 5, b))
        )(A, B),
    ],
)
def test_on_one_device_the_function_runs(run):
    calls = []
    check(run(product(calls)))
    assert not calls


@pytest.mark.parametrize(
    "run",
    [
        lambda f: weft.jit(lambda a, b: f(a, 3, b), backend="reference")(put(A, "x"), put(B)),
        lambda f: weft.jit(lambda a, b: lax.scan(lambda c, _: (c, f(a, 3, b)), 0, length=2)[1])(
            put(A, "x"), put(B)
        ),
        lambda f: weft.jit(
            lambda a, b: lax.cond(a[0, 0] < 1, lambda: f(a, 3, b), lambda: f(a, 5, b))
        )(put(A, "x"), put(B)),
    ],
)
def test_on_many_devices_the_rule_is_asked(run):
    calls = []
    outs = run(product(calls))
    assert calls
    check({k: v[0] if v.ndim > {"product": 2, "sum": 0}[k] else v for k, v in outs.items()})


@pytest.mark.parametrize("rule", ["i k, k j -> i j,", "i, k j -> i j,", None])
@pytest.mark.parametrize("run", [weft.jit, lambda f: f], ids=["jit", "eager"])
def test_inside_of_shard_map_over_all_axes_the_function_runs(rule, run):
    calls = []
    f = product(calls, rule=rule)
    mapped = weft.shard_map(
        lambda a, b: weft.tree.map(
            lambda x: lax.psum(x, ("x", "y")), weft.jit(lambda a, b: f(a, 3, b))(a, b)
        ),
        mesh=MESH,
        in_specs=(P(None, ("x", "y")), P()),
        out_specs=P(),
    )
    outs = run(mapped)(np.tile(A, (1, 8)), B)
    np.testing.assert_array_equal(outs["product"], 8 * 3 * A @ B)
    assert outs["sum"] == 8 * A.sum() and not calls


def test_the_page_of_fft():
    """Leading dims stay as they are; the last is gathered."""

    @custom_partitioning
    def fft(x):
        return wnp.fft.fft(x)

    def kept(shape):
        return NamedSharding(
            shape.sharding.mesh,
            P(*(*shape.sharding.spec, None, None)[: len(shape.shape) - 1], None),
        )

    fft.def_partition(
        lambda mesh, args, result: (mesh, wnp.fft.fft, kept(result), (kept(args[0]),)),
        sharding_rule="... i -> ... i",
        need_replication_factors=("i",),
    )
    x = put(np.ones((8, 4, 6), np.complex64), "x", None, "y")
    out = weft.jit(fft)(x)
    np.testing.assert_allclose(out, np.fft.fft(np.ones((8, 4, 6))), atol=1e-5)
    assert (
        out.sharding.spec[0] == "x"
        and weft.explain(weft.jit(fft), x).collectives[0].kind == "all_gather"
    )


def test_on_axes_that_are_cut():
    """A reshape may split a dim between the devices of one axis; the rule still gets the user's mesh."""
    calls = []
    f = product(calls)
    g = weft.jit(lambda a, b: f(a.reshape(2, 4, 4).transpose(1, 0, 2).reshape(8, 4), 3, b))
    outs = g(put(A, "x"), put(B))
    moved = A.reshape(2, 4, 4).transpose(1, 0, 2).reshape(8, 4)
    np.testing.assert_array_equal(outs["product"], 3 * moved @ B)
    assert outs["sum"] == A.sum()


def test_results_as_inferred_from_operands():
    f = custom_partitioning(lambda x: 2 * x)
    same = lambda mesh, args, result: args[0].sharding
    f.def_partition(
        lambda mesh, args, result: (mesh, lambda x: 2 * x, result.sharding, (args[0].sharding,)),
        same,
    )
    assert weft.jit(f)(put(A, "x")).sharding.spec == P("x")


def test_without_a_rule_results_are_replicated():
    f = custom_partitioning(lambda x: 2 * x)
    f.def_partition(
        lambda mesh, args, result: (mesh, lambda x: 2 * x, result.sharding, (result.sharding,))
    )
    x = put(A, "x")
    assert weft.jit(f)(x).sharding.spec == P()
    (gather,) = weft.explain(weft.jit(f), x).collectives
    assert gather.kind == "all_gather"


def test_derivatives_and_maps_are_those_of_a_function_around_it():
    inner = product([])
    with pytest.raises(
        NotImplementedError, match="Differentiation rule for 'custom_partitioning' not implemented"
    ):
        weft.grad(lambda a: inner(a, 3, B)["sum"])(A)
    with pytest.raises(
        NotImplementedError, match="Batching rule for 'custom_partitioning' not implemented"
    ):
        weft.vmap(lambda a: inner(a, 3, B))(A[None])
    f = weft.custom_vjp(lambda a: inner(a, 3, B)["sum"])
    f.defvjp(lambda a: (f(a), None), lambda _, ct: (wnp.full((8, 4), ct),))
    np.testing.assert_array_equal(weft.jit(weft.grad(f))(put(A, "x")), np.ones((8, 4)))


def test_rules_from_parts():
    rule = SdyShardingRule(
        (ArrayMapping(BATCHING, "k"), ArrayMapping("k", CompoundFactor("i", "j"))),
        (ArrayMapping(BATCHING, CompoundFactor("i", "j")),),
        i=2,
    )
    types = [weft.typeof(A), weft.typeof(B)], [weft.typeof(A @ B)]
    with pytest.raises(ValueError, match="size of factor 'j' is not known"):
        rule._einsum().factors(*types)
    text = parse_rule("... k, k (i j) -> ... (i j)", {"i": 2, "j": 3})
    factors = text.factors(*types)
    assert factors.sizes == (8, 4, 2, 3) and factors.outs == (((0,), (2, 3)),)


@pytest.mark.parametrize(
    "rule, why",
    [
        ("i j", "There is no ->"),
        ("i j, k l -> i", "Sharding rule has 1 results"),
        ("i, k l -> i l,", "0th operand has rank 1"),
        ("i i2, k k -> i k,", "factor 'k' of the sharding rule has size 4, and size 6"),
        ("(i j, k l -> i l,", "a parenthesis is not closed"),
        ("i 1, k l -> i l,", "'1' has no meaning"),
    ],
)
def test_rules_that_do_not_fit(rule, why):
    with pytest.raises(ValueError, match=why):
        weft.jit(lambda a, b: product([], rule)(a, 3, b))(A, B)


def test_partitions_that_do_not_fit():
    def of(partition):
        f = custom_partitioning(lambda x: 2 * x)
        f.def_partition(partition, sharding_rule="... -> ...")
        return weft.jit(f)

    rows = NamedSharding(MESH, P("x"))
    with pytest.raises(ValueError, match="blocks of another type than its result shardings say"):
        of(lambda mesh, args, result: (mesh, lambda x: x[:1], rows, (rows,)))(put(A, "x"))
    with pytest.raises(ValueError, match="asks for a layout of argument 0 that cannot be made"):
        of(
            lambda mesh, args, result: (
                mesh,
                lambda x: x,
                rows,
                (NamedSharding(mesh, P(None, ("x", "y"))),),
            )
        )(put(A, "x"))
    with pytest.raises(ValueError, match="the partition rule of <lambda> gives None"):
        of(lambda mesh, args, result: None)(put(A, "x"))
    with pytest.raises(AttributeError, match="has no partition rule"):
        custom_partitioning(lambda x: x)(A)
    with pytest.raises(weft.errors.UnexpectedTracerError, match="closes over a traced value"):
        f = custom_partitioning(lambda x: x)
        f.def_partition(lambda *_: None)
        weft.jit(lambda y: custom_partitioning_over(y)(y))(A)


def custom_partitioning_over(value):
    f = custom_partitioning(lambda x: x + value)
    f.def_partition(lambda *_: None)
    return f
