"""Every collective on a mesh: by vmap with axis names, by shard_map at once and compiled, in all dtypes, under all
transformations, against the NumPy model of devices; and on the peer (`-m oracle`)."""

import os
import pathlib
import subprocess

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.ops.collective_programs import CASES, NAMES, SIZES, Case, expected, sample
from weft import lax
from weft._engine.ir.loops_text import print_kernel
from weft.sharding import PartitionSpec as P

bfloat16 = np.dtype(ml_dtypes.bfloat16)
WIDE = {np.dtype(t) for t in (np.int64, np.float64, np.complex128)}


@pytest.fixture(scope="module")
def mesh():
    return weft.make_mesh(tuple(SIZES.values()), NAMES)


def by_vmap(fun, mesh):
    for name in reversed(NAMES):
        fun = weft.vmap(fun, axis_name=name)
    return fun


def by_shard_map(fun, mesh, check_vma=True):
    local = lambda x: weft.tree.map(lambda y: weft.numpy.asarray(y)[None, None], fun(x[0, 0]))
    return weft.shard_map(
        local, mesh=mesh, in_specs=P(*NAMES), out_specs=P(*NAMES), check_vma=check_vma
    )


def unchecked(fun, mesh):
    return by_shard_map(fun, mesh, False)


def compiled(way):
    def compiled_way(fun, mesh):
        return weft.jit(way(fun, mesh))

    compiled_way.__name__ = f"compiled_{way.__name__}"
    return compiled_way


WAYS = [
    by_vmap,
    by_shard_map,
    unchecked,
    compiled(by_vmap),
    compiled(by_shard_map),
    compiled(unchecked),
]


#: one form of each collective
EACH_ONCE = [
    "b psum",
    "b pmean",
    "b pmax",
    "b pmin",
    "b all_gather 0",
    "b psum_scatter tiled 1",
    "b psum in groups",
    "b pmax in groups",
    "b all_gather tiled 1 in groups",
    "b psum_scatter 0 in groups",
    "b all_to_all 1 0",
    "b ppermute some",
    "b pshuffle",
    "b pbroadcast",
    "b all_gather_invariant",
    "b axis_index",
    "b axis_size",
    "b psum with a dim",
]


def of(case: Case):
    return lambda x: case.run(lax, x)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "name",
    ["psum", "pmean", "pmax", "all_gather", "psum_scatter", "all_to_all", "pp", "ps", "axis", "pb"],
)
def test_meaning(name, way, mesh):
    for label, case in CASES.items():
        if label.split()[1].startswith(name) and (
            way in WAYS[3:] or "in groups" not in label or "b" == label.split()[0]
        ):
            x = sample(case, np.float32)
            got, want = np.asarray(way(of(case), mesh)(x)), expected(case, x)
            assert got.shape == want.shape, (label, got.shape, want.shape)
            np.testing.assert_array_equal(got, want, err_msg=label)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", [compiled(by_vmap), compiled(by_shard_map)])
@pytest.mark.parametrize(
    "dtype",
    [
        np.bool_,
        np.int8,
        np.uint8,
        np.int32,
        np.uint32,
        np.int64,
        np.float16,
        bfloat16,
        np.float64,
        np.complex64,
        np.complex128,
    ],
    ids=lambda t: np.dtype(t).name,
)
def test_dtypes(dtype, way, mesh):
    """A program with every collective along b has exactly the model's values and dtypes."""
    dtype = np.dtype(dtype)
    with weft.enable_x64(dtype in WIDE):
        for label in EACH_ONCE:
            case = CASES[label]
            if dtype.kind == "c" and label.split()[1] in ("pmax", "pmin"):
                with pytest.raises(TypeError, match="does not accept dtype complex"):
                    way(of(case), mesh)(sample(case, dtype))
                continue
            if dtype.kind == "b" and label == "b axis_size":
                continue  # it computes with its operand
            x = sample(case, dtype)
            got, want = np.asarray(way(of(case), mesh)(x)), expected(case, x)
            assert got.dtype == want.dtype, (label, got.dtype, want.dtype)
            np.testing.assert_array_equal(got, want, err_msg=label)


def linear(*axes: str) -> list[str]:
    return [name for name, case in CASES.items() if case.linear and name.split()[0] in axes]


@pytest.mark.parametrize("way", [compiled(by_vmap), compiled(by_shard_map), compiled(unchecked)])
def test_derivatives(way, mesh):
    """Linear in exact numbers: jvp(f)(x, t) is f(t), and <v, f(t)> is <pullback(v), t> over all devices."""
    for name in linear("ba") if "shard" in way.__name__ else linear("b"):
        case = CASES[name]
        x, t = sample(case, np.float32, 1), sample(case, np.float32, 2)
        f = way(of(case), mesh)
        want = expected(case, t)
        out, out_t = weft.jvp(f, (x,), (t,))
        np.testing.assert_array_equal(out, expected(case, x), err_msg=name)
        np.testing.assert_array_equal(out_t, want, err_msg=name)
        v = np.random.default_rng(3).integers(-2, 3, want.shape).astype(np.float32)
        (pulled,) = weft.vjp(f, x)[1](v)
        assert np.vdot(v, want) == np.vdot(pulled, t), name


@pytest.mark.parametrize("way, in_axis", [(compiled(by_vmap), 0), (compiled(by_shard_map), -1)])
def test_batches_of_local_values(way, in_axis, mesh):
    """vmap of a collective over a dim that is not one of its axes maps the meaning."""
    for name, case in CASES.items():
        if name.split()[0] == "b" and case.shape:
            xs = np.stack(
                [sample(case, np.float32, seed) for seed in range(3)],
                axis=2 if in_axis == 0 else -1,
            )
            got = np.asarray(way(weft.vmap(of(case), in_axes=in_axis), mesh)(xs))
            want = np.stack(
                [expected(case, sample(case, np.float32, seed)) for seed in range(3)], 2
            )
            np.testing.assert_array_equal(got, np.broadcast_to(want, got.shape), err_msg=name)


def test_results_vary_as_the_model_says(mesh):
    """Types inside shard_map: a result varies over the axes of its collective unless all positions get one value."""
    for name, case in CASES.items():
        seen = []

        def local(x, case=case, seen=seen):
            y = case.run(lax, x[0, 0])
            seen.append(weft.typeof(y).vma)
            return weft.numpy.zeros(())

        weft.make_jaxpr(weft.shard_map(local, mesh=mesh, in_specs=P(*NAMES), out_specs=P()))(
            sample(case, np.float32)
        )
        varies = set(case.axes if name.split()[1] == "axis_index" else NAMES) - (
            set(case.axes) if case.same else set()
        )
        assert seen == [varies], name


def test_operands_are_cast_to_vary(mesh):
    """An invariant value is cast before a collective: the sum counts it once per device, and so
    does the gradient."""

    def local(x):
        return (
            lax.psum(x, NAMES),
            lax.psum(x, "b"),
            lax.all_gather(x, "b"),
            lax.ppermute(x, "a", [(0, 1), (1, 0)]),
        )

    f = weft.shard_map(local, mesh=mesh, in_specs=P(), out_specs=(P(), P(), P("a", "b"), P("a")))
    x = np.arange(2.0, dtype=np.float32)
    whole, part, gathered, swapped = weft.jit(f)(x)
    np.testing.assert_array_equal(whole, 8 * x)
    np.testing.assert_array_equal(part, 4 * x)
    assert gathered.shape == (8, 8) and swapped.shape == (4,)
    grad = weft.grad(lambda x: f(x)[0].sum() + f(x)[1].sum())(x)
    np.testing.assert_array_equal(grad, np.full(2, 12.0))


def test_moves_that_depend_on_both_axes_look_each_row_up_once(mesh):
    """Devices numbered by rows of the mesh send to devices numbered by columns: one kernel that
    reads its operand in one place."""
    perm = [(i, i % 4 * 2 + i // 4) for i in range(8)]
    f = weft.jit(
        weft.shard_map(
            lambda x: lax.ppermute(x, NAMES, perm), mesh=mesh, in_specs=P(NAMES), out_specs=P(NAMES)
        )
    )
    x = np.arange(8 * 100, dtype=np.float32)
    np.testing.assert_array_equal(f(x), x.reshape(2, 4, 100).transpose(1, 0, 2).ravel())
    (kernel,) = f.lower(x).compile().stages.scheduled.kernels
    assert print_kernel(kernel).count("x1[") == 1


def test_a_reduction_is_one_collective_and_its_gradient_none(mesh):
    """psum of a varying value transposes to a cast, a cast to a psum: no unnecessary bytes are
    sent."""
    loss = weft.shard_map(
        lambda w, x: lax.psum((w * x).sum(), NAMES),
        mesh=mesh,
        in_specs=(P(), P(NAMES)),
        out_specs=P(),
    )
    text = str(weft.make_jaxpr(weft.grad(loss))(np.float32(2), np.ones(8, np.float32)))
    assert (
        text.count("psum_invariant[") == 2 and "all_gather" not in text
    )  # the loss, and the gradient of the shared w


# --- identities -------------------------------------------------------------------------------------------------------


def ring_all_gather(x, name, n):
    """Gather all values by n - 1 hops along a ring, in order of position."""
    here, rows = lax.axis_index(name), [x]
    for _ in range(n - 1):
        rows.append(lax.ppermute(rows[-1], name, [(i, (i + 1) % n) for i in range(n)]))
    return weft.numpy.stack(rows)[(here - weft.numpy.arange(n)) % n]


def ring_psum_scatter(x, name, n):
    """Return this device's block of the sum; each block collects terms on its way around the ring."""
    here = lax.axis_index(name)
    part = lambda k: lax.dynamic_index_in_dim(x, k % n, keepdims=False)
    total = part(here - 1)
    for hop in range(1, n):
        total = lax.ppermute(total, name, [(i, (i + 1) % n) for i in range(n)]) + part(
            here - 1 - hop
        )
    return total


IDENTITIES = {
    "psum is all_gather of psum_scatter": (
        lambda x: lax.psum(x, "b"),
        lambda x: lax.all_gather(lax.psum_scatter(x, "b", tiled=True), "b", tiled=True),
    ),
    "psum over two axes is two psums": (
        lambda x: lax.psum(x, ("a", "b")),
        lambda x: lax.psum(lax.psum(x, "b"), "a"),
    ),
    "psum is a sum of all_gather": (
        lambda x: lax.psum(x, "b"),
        lambda x: lax.all_gather(x, "b").sum(0),
    ),
    "all_to_all twice": (
        lambda x: x,
        lambda x: lax.all_to_all(lax.all_to_all(x, "b", 0, 1, tiled=True), "b", 1, 0, tiled=True),
    ),
    "all_to_all is a choice from all_gather": (
        lambda x: lax.all_to_all(x, "b", 0, 0),
        lambda x: lax.all_gather(x, "b")[:, lax.axis_index("b")],
    ),
    "ring all_gather": (lambda x: lax.all_gather(x, "b"), lambda x: ring_all_gather(x, "b", 4)),
    "ring psum_scatter": (
        lambda x: lax.psum_scatter(x, "b"),
        lambda x: ring_psum_scatter(x, "b", 4),
    ),
    "psum_scatter is a sum of all_to_all": (
        lambda x: lax.psum_scatter(x, "b", tiled=True),
        lambda x: lax.all_to_all(x, "b", 0, 0).sum(0, keepdims=True),
    ),
    "pmean is psum by size": (
        lambda x: lax.pmean(x, "b"),
        lambda x: lax.psum(x, "b") / lax.axis_size("b"),
    ),
    "pmax is -pmin of -x": (lambda x: lax.pmax(x, "b"), lambda x: -lax.pmin(-x, "b")),
    "ppermute there and back": (
        lambda x: x,
        lambda x: lax.ppermute(
            lax.ppermute(x, "b", [(0, 3), (1, 0), (2, 1), (3, 2)]),
            "b",
            [(3, 0), (0, 1), (1, 2), (2, 3)],
        ),
    ),
    "pbroadcast is a masked psum": (
        lambda x: lax.pbroadcast(x, "b", 2),
        lambda x: lax.psum(weft.numpy.where(lax.axis_index("b") == 2, x, 0), "b"),
    ),
    "groups of rows are an axis": (
        lambda x: lax.psum(x, ("a", "b"), axis_index_groups=[[0, 1, 2, 3], [4, 5, 6, 7]]),
        lambda x: lax.psum(x, "b"),
    ),
    "groups of columns are an axis": (
        lambda x: lax.all_gather(x, ("a", "b"), axis_index_groups=[[0, 4], [1, 5], [2, 6], [3, 7]]),
        lambda x: lax.all_gather(x, "a"),
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", [by_vmap, compiled(by_vmap), compiled(by_shard_map)])
@pytest.mark.parametrize("name", IDENTITIES)
def test_identity(name, way, mesh):
    left, right = IDENTITIES[name]
    x = np.random.default_rng(5).integers(-4, 5, (2, 4, 4, 4)).astype(np.float32)
    np.testing.assert_array_equal(way(left, mesh)(x), way(right, mesh)(x))
    weight = (
        np.random.default_rng(6).integers(-2, 3, np.shape(way(left, mesh)(x))).astype(np.float32)
    )
    if "pmax" not in name:
        grads = [
            weft.grad(lambda x, f=f: (way(f, mesh)(x) * weight).sum())(x) for f in (left, right)
        ]
        np.testing.assert_array_equal(*grads)


@pytest.mark.oracle
def test_the_peer_gives_the_same(mesh, tmp_path):
    python = os.environ.get("WEFT_ORACLE_PYTHON")
    if not python:
        pytest.skip("WEFT_ORACLE_PYTHON is not set")
    script = pathlib.Path(__file__).with_name("collective_programs.py")
    env = dict(
        os.environ,
        PYTHONPATH="",
        JAX_PLATFORMS="cpu",
        XLA_FLAGS="--xla_force_host_platform_device_count=8",
    )
    subprocess.run([python, script, tmp_path / "results.npz"], check=True, env=env, timeout=600)
    theirs = np.load(tmp_path / "results.npz")
    assert len(theirs.files) > 100
    for name in theirs.files:
        x = sample(CASES[name], np.float32)
        np.testing.assert_array_equal(
            compiled(unchecked)(of(CASES[name]), mesh)(x), theirs[name], err_msg=name
        )


# --- among other axes -------------------------------------------------------------------------------------------------

#: collectives over a on local values [8, 8], and the dims that they keep unchanged
OVER_A = {
    "psum": (lambda x: lax.psum(x, "a"), (0, 1)),
    "pmax": (lambda x: lax.pmax(x, "a"), (0, 1)),
    "ppermute": (lambda x: lax.ppermute(x, "a", [(0, 1)]), (0, 1)),
    "pbroadcast": (lambda x: lax.pbroadcast(x, "a", 1), (0, 1)),
    "psum in groups": (lambda x: lax.psum(x, "a", axis_index_groups=[[0], [1]]), (0, 1)),
    "all_gather": (lambda x: lax.all_gather(x, "a", axis=1), (0, 1)),
    "all_gather tiled": (lambda x: lax.all_gather(x, "a", axis=1, tiled=True), (0,)),
    "psum_scatter": (lambda x: lax.psum_scatter(x[:2], "a"), (1,)),
    "psum_scatter tiled": (lambda x: lax.psum_scatter(x, "a", tiled=True), (1,)),
    "all_to_all same": (lambda x: lax.all_to_all(x, "a", 0, 0, tiled=True), (1,)),
    "all_to_all": (lambda x: lax.all_to_all(x, "a", 0, 1, tiled=True), ()),
    "pswapaxes": (lambda x: lax.pswapaxes(x[:2], "a", 0), (1,)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OVER_A)
def test_dims_that_the_compiler_splits_over_other_axes(name, mesh):
    """In a shard_map over a, values also split over b have equal results; dims that the collective
    keeps stay split."""
    run, spec = OVER_A[name]
    fun = weft.jit(
        weft.shard_map(
            lambda x: run(x[0])[None],
            mesh=mesh,
            in_specs=P("a"),
            out_specs=P("a"),
            axis_names={"a"},
        )
    )
    x = np.random.default_rng(7).integers(-4, 5, (2, 8, 8)).astype(np.float32)
    want = np.asarray(fun(x))
    for dim in (0, 1):
        split = weft.device_put(x, weft.sharding.NamedSharding(mesh, P("a", *[None] * dim, "b")))
        np.testing.assert_array_equal(fun(split), want, err_msg=f"dim {dim}")
        if dim in spec:
            sent = {c.axes for c in weft.explain(fun, split).collectives}
            assert sent <= {("a",)}, (dim, sent)


def test_in_loops_and_branches(mesh):
    """A ring in a scan, a sum until convergence in a while, a branch of collectives."""

    def ring(x):
        step = lambda c, _: (
            (lax.ppermute(c[0], "b", [(i, (i + 1) % 4) for i in range(4)]), c[1] + c[0]),
            None,
        )
        return lax.scan(step, (x, weft.numpy.zeros_like(x)), None, length=4)[0][1]

    def until(x):
        return lax.while_loop(
            lambda c: lax.pmax(c.max(), ("a", "b")) < 100, lambda c: c + lax.psum(c, "b") + 1, x
        )

    def branch(x):
        return lax.cond(
            lax.axis_size("b") + weft.numpy.int32(0) > 3,
            lambda x: x + lax.psum(x, "b"),
            lambda x: x,
            x,
        )

    x = np.abs(sample(CASES["b psum"], np.float32))
    for fun in (ring, until, branch):
        outs = [
            np.asarray(way(fun, mesh)(x))
            for way in (by_vmap, by_shard_map, compiled(by_shard_map), compiled(unchecked))
        ]
        for out in outs[1:]:
            np.testing.assert_array_equal(out, outs[0], err_msg=fun.__name__)
    np.testing.assert_array_equal(
        by_vmap(ring, mesh)(x), np.broadcast_to(x.sum(1, keepdims=True), x.shape)
    )


def test_axes_of_vmap_around_and_inside(mesh):
    """Sums over a device axis and an example axis together, in either nesting."""
    x = np.arange(24.0, dtype=np.float32).reshape(3, 8)
    both = lambda x: (
        lax.psum(x, ("i", "k")) + 10 * lax.axis_index(("k", "i")) + lax.all_gather(x, "k").sum()
    )
    want = np.asarray(weft.vmap(weft.vmap(both, axis_name="i"), axis_name="k")(x))
    np.testing.assert_array_equal(weft.vmap(weft.pmap(both, axis_name="i"), axis_name="k")(x), want)
    np.testing.assert_array_equal(
        weft.pmap(weft.vmap(both, axis_name="k"), axis_name="i", in_axes=1, out_axes=1)(x), want
    )


def test_arrays_like_others_vary_as_they_do(mesh):
    """A carry that starts as zeros_like a varying value needs no cast."""

    def local(x):
        values = [
            weft.numpy.zeros_like(x),
            weft.numpy.ones_like(x, shape=(2,)),
            weft.numpy.full_like(x, 2, dtype=int),
            lax.full_like(x, 3),
        ]
        assert [weft.typeof(y).vma for y in values] == [{"a"}] * 4
        return (
            sum(y.sum() for y in values)[None]
            + lax.scan(lambda c, _: (c + x, None), weft.numpy.zeros_like(x), None, length=2)[0]
        )

    f = weft.shard_map(local, mesh=mesh, in_specs=P("a"), out_specs=P("a"))
    np.testing.assert_array_equal(weft.jit(f)(np.ones(2, np.float32)), f(np.ones(2, np.float32)))


@pytest.mark.parametrize(
    ("axes", "groups"), [(("a",), [[0, 2], [1]]), (("a", "b"), [[4, 1], [0, 5, 2], [3]])]
)
@pytest.mark.parametrize("fun", ["psum", "pmean"])
def test_sums_in_groups_of_different_sizes(fun, axes, groups):
    n = sum(map(len, groups))
    shape, x = (3,) if n == 3 else (2, 3), np.arange(1.0, n + 1, dtype=np.float32)
    reduce = np.sum if fun == "psum" else np.mean
    want = [reduce(x[next(g for g in groups if i in g)]) for i in range(n)]
    body = lambda v: getattr(weft.lax, fun)(v, axes, axis_index_groups=groups)
    mapped = body
    for name in reversed(axes):
        mapped = weft.vmap(mapped, axis_name=name)
    np.testing.assert_allclose(np.ravel(mapped(x.reshape(shape))), want)
    mesh = weft.make_mesh(shape, axes, devices=weft.devices()[:n])
    spread = weft.shard_map(body, mesh=mesh, in_specs=weft.P(axes), out_specs=weft.P(axes))
    for wrap in (weft.jit, lambda f: f):
        np.testing.assert_allclose(wrap(spread)(x), want)
    weights = np.arange(n, dtype=np.float32)
    slope = weft.grad(lambda x: (spread(x) * weights).sum())(x)
    scale = lambda g: 1 if fun == "psum" else 1 / len(g)
    np.testing.assert_allclose(
        slope,
        [sum(weights[j] for j in g) * scale(g) for i in range(n) for g in groups if i in g],
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match="exactly once"):
        weft.vmap(lambda v: weft.lax.psum(v, "a", axis_index_groups=[[0], [0, 1]]), axis_name="a")(
            x
        )
    with pytest.raises(ValueError, match="one size"):
        weft.vmap(lambda v: weft.lax.pmax(v, "a", axis_index_groups=[[0], [1, 2]]), axis_name="a")(
            x[:3]
        )
