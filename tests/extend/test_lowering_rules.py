"""Lowering rules of libraries: partitioning, collectives, StableHLO operations, platforms."""

import numpy as np
import pytest

import weft
from tests.extend.library_primitives import X, bare, matvec
from weft import lax
from weft.extend.core import Primitive
from weft.interpreters import mlir
from weft.sharding import NamedSharding, PartitionSpec as P


def test_lowerings_are_partitioned_like_their_operations():
    p = matvec()
    mesh = weft.make_mesh((4,), ("a",))
    a = weft.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, P("a", None)))
    by_columns = weft.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, P(None, "a")))
    x = np.arange(4, dtype=np.float32)
    assert weft.jit(p.bind)(a, x).sharding.spec == P("a")
    assert weft.explain(weft.jit(p.bind), a, x).collectives == []
    (reduction,) = weft.explain(weft.jit(p.bind), by_columns, x).collectives
    assert "psum" in str(reduction) or "all_reduce" in str(reduction)
    np.testing.assert_array_equal(weft.jit(p.bind)(by_columns, x), np.full(8, 6, np.float32))


def test_collectives_inside_lowerings():
    p = Primitive("total_over_a")
    p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(p, mlir.lower_fun(lambda x: lax.psum(x, "a"), multiple_results=False))
    mesh = weft.make_mesh((4,), ("a",))
    f = weft.shard_map(lambda x: p.bind(x), mesh=mesh, in_specs=P("a"), out_specs=P("a"))
    want = np.tile(X.reshape(4, 2).sum(0), 4)
    np.testing.assert_allclose(weft.jit(f)(X), want, rtol=1e-6)
    np.testing.assert_allclose(f(X), want, rtol=1e-6)


def test_lowering_rules_may_apply_others():
    p = Primitive("doubled_on_the_host")
    p.def_abstract_eval(lambda x: x)

    def rule(ctx, x):
        assert ctx.avals_in[0].shape == ctx.avals_out[0].shape == (8,) and ctx.primitive is p
        (twice,) = mlir.lower_fun(lambda x: x * 2, multiple_results=False)(ctx, x)
        (out,), _, _ = mlir.emit_python_callback(
            ctx,
            lambda v: [v + 1],
            None,
            [twice],
            ctx.avals_in,
            ctx.avals_out,
            has_side_effect=False,
        )
        return [out]

    mlir.register_lowering(p, lambda ctx, x: x, platform="tpu")
    with pytest.raises(NotImplementedError, match="platform cpu"):
        weft.jit(p.bind)(X)
    mlir.register_lowering(p, rule, platform="cpu")
    np.testing.assert_array_equal(weft.jit(lambda x: p.bind(x))(X), X * 2 + 1)
    with pytest.raises(NotImplementedError, match=r"sin is an operation of weft's own"):
        mlir.register_lowering(lax.sin_p, rule)


def test_a_lowering_that_breaks_its_promise():
    p = bare(True)
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x.sum(), multiple_results=False))
    with pytest.raises(
        TypeError,
        match=r"(?s)bare: the lowering rule and .* different types.*promised float32\[8\].*computed float32\[\]",
    ):
        weft.jit(p.bind)(X)


def test_lowering_rules_can_use_stablehlo_operations():
    hlo = mlir.hlo
    p = Primitive("multiply_add")
    p.def_abstract_eval(lambda x, y, z: x)
    mlir.register_lowering(
        p, lambda ctx, x, y, z: [hlo.AddOp(hlo.MulOp(x, y), z).result], platform="cpu"
    )
    np.testing.assert_array_equal(weft.jit(lambda x: p.bind(x, x, x))(X), X * X + X)
    q = Primitive("clipped")
    q.def_abstract_eval(lambda x: x)
    mlir.register_lowering(q, lambda ctx, x: hlo.MaxOp(hlo.sine(x), hlo.negate(x)))
    np.testing.assert_allclose(
        weft.jit(lambda x: q.bind(x))(X), np.maximum(np.sin(X), -X), rtol=1e-6
    )
    with pytest.raises(AttributeError, match="elementwise operations only: there is no GatherOp"):
        hlo.GatherOp


def test_an_unused_operation_needs_no_lowering():
    silent, unread = Primitive("silent"), Primitive("unread")
    silent.multiple_results = True
    silent.def_abstract_eval(list)
    unread.def_abstract_eval(lambda x: x)
    mesh = weft.make_mesh((2,), ("i",), devices=weft.devices()[:2])

    def f(x):
        silent.bind()
        return x + 1

    mapped = weft.shard_map(
        f, mesh=mesh, in_specs=weft.P("i"), out_specs=weft.P("i"), check_vma=False
    )
    for g in (mapped, weft.jit(mapped), weft.jit(lambda x: (unread.bind(x), x + 1)[1])):
        np.testing.assert_array_equal(g(np.arange(4.0)), np.arange(4.0) + 1)
    with pytest.raises(NotImplementedError):
        weft.jit(unread.bind)(np.arange(4.0))


def test_lowerings_for_unknown_platforms_are_refused():
    with pytest.raises(
        NotImplementedError,
        match=r"primitive .* for an unknown platform abacus\. Known platforms are: cpu, ",
    ):
        mlir.register_lowering(Primitive("counted"), mlir.lower_fun(lambda x: x), platform="abacus")
