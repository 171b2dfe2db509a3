"""ragged_all_to_all against a loop over senders and targets; its derivatives, batches and errors;
errors for groups."""

import numpy as np
import pytest

import weft
from weft import lax
from weft.errors import ShapeError
from weft.sharding import PartitionSpec as P

N, ROWS, OUT = 4, 6, 9


def lists(seed, per_target=1):
    """Return offsets and sizes for N positions that all send to all; received slices do not
    overlap."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 3, (N, N, per_target))
    starts = np.array(
        [[[rng.integers(0, ROWS - s + 1) for s in per] for per in row] for row in sizes]
    )
    targets = np.zeros_like(sizes)
    for j in range(N):
        free = OUT
        for i in range(N):
            for u in range(per_target):
                sizes[i, j, u] = min(sizes[i, j, u], free)
                targets[i, j, u] = OUT - free
                free -= sizes[i, j, u]
    flat = lambda x: x.reshape(N, -1).astype(np.int32)
    return flat(starts), flat(sizes), flat(targets), flat(sizes.transpose(1, 0, 2))


def expected(x, out, starts, sizes, targets, received):
    y, k = out.copy(), starts.shape[1] // N
    for i in range(N):
        for t in range(N * k):
            y[t // k, targets[i, t] : targets[i, t] + sizes[i, t]] = x[
                i, starts[i, t] : starts[i, t] + sizes[i, t]
            ]
    return y


def data(seed, *inner):
    rng = np.random.default_rng(seed)
    return (
        rng.integers(1, 9, (N, ROWS, *inner)).astype(np.float32),
        -rng.integers(1, 9, (N, OUT, *inner)).astype(np.float32),
    )


def exchange(*args):
    return lax.ragged_all_to_all(*args, axis_name="i")


MESH = weft.make_mesh((N,), ("i",), devices=weft.devices()[:N])
BOTH = weft.make_mesh((2, 2), ("i", "j"), devices=weft.devices()[:N])


def by_vmap(fun):
    return weft.vmap(fun, axis_name="i")


def by_shard_map(fun):
    return weft.jit(
        weft.shard_map(
            lambda *args: fun(*[x[0] for x in args])[None],
            mesh=MESH,
            in_specs=P("i"),
            out_specs=P("i"),
        )
    )


@pytest.mark.parametrize("way", [by_vmap, by_shard_map])
@pytest.mark.parametrize("inner", [(), (2,)])
@pytest.mark.parametrize("per_target", [1, 2])
def test_meaning_and_derivatives(way, inner, per_target):
    args, more = (*data(1, *inner), *lists(0, per_target)), data(2, *inner)
    f = lambda x, out: way(exchange)(x, out, *args[2:])
    np.testing.assert_array_equal(f(*args[:2]), expected(*args))
    _, tangent = weft.jvp(f, args[:2], more)
    np.testing.assert_array_equal(tangent, expected(*more, *args[2:]))
    v = data(3, *inner)[1]
    pulled = weft.vjp(f, *args[:2])[1](v)
    assert np.vdot(v, expected(*more, *args[2:])) == sum(
        np.vdot(p, t) for p, t in zip(pulled, more)
    )


def test_over_two_axes_and_over_examples():
    args = (*data(1, 2), *lists(0))
    local = lambda *args: lax.ragged_all_to_all(*[x[0] for x in args], axis_name=("i", "j"))[None]
    both = weft.shard_map(local, mesh=BOTH, in_specs=P(("i", "j")), out_specs=P(("i", "j")))
    np.testing.assert_array_equal(weft.jit(both)(*args), expected(*args))
    many = [
        np.stack(xs, 1)
        for xs in zip((*data(1), *lists(0)), (*data(2), *lists(1)), (*data(3), *lists(2)))
    ]
    got = by_vmap(weft.vmap(exchange))(*many)
    np.testing.assert_array_equal(
        got, np.stack([expected(*[x[:, e] for x in many]) for e in range(3)], 1)
    )


def test_refusals():
    x, out = data(1)
    fits = [*lists(0)]
    for change, error, text in [
        ((x[:, :, None], out, *fits), ShapeError, "rows of one type"),
        ((x, out.astype(np.int32), *fits), ShapeError, "rows of one type"),
        ((x, out, *[f[:, :3] for f in fits]), ShapeError, "multiple of the axis size"),
        ((x, out, *[f.astype(np.float32) for f in fits]), TypeError, "must be integers"),
    ]:
        with pytest.raises(error, match=text):
            by_vmap(exchange)(*change)
    with pytest.raises(NotImplementedError, match="axis_index_groups"):
        by_vmap(
            lambda *a: lax.ragged_all_to_all(*a, axis_name="i", axis_index_groups=[[0, 1], [2, 3]])
        )(x, out, *fits)


def along_i(fun, size=4):
    return weft.vmap(fun, axis_name="i")(np.ones((size, 4), np.float32))


GROUPED = {
    "psum": lambda x, g: lax.psum(x, "i", axis_index_groups=g),
    "pmean": lambda x, g: lax.pmean(x, "i", axis_index_groups=g),
    "pmax": lambda x, g: lax.pmax(x, "i", axis_index_groups=g),
    "pmin": lambda x, g: lax.pmin(x, "i", axis_index_groups=g),
    "all_gather": lambda x, g: lax.all_gather(x, "i", axis_index_groups=g),
    "psum_scatter": lambda x, g: lax.psum_scatter(x, "i", axis_index_groups=g, tiled=True),
    "all_to_all": lambda x, g: lax.all_to_all(x, "i", 0, 0, axis_index_groups=g, tiled=True),
}


@pytest.mark.parametrize("name", GROUPED)
def test_groups_that_do_not_fit_are_refused(name):
    for groups, text in [
        ([[0], [1, 2, 3]], r"of one size, got groups of \[1, 3\]"),
        ([[0, 1], [2]], "exactly once"),
        ([[0, 1], [1, 2]], "exactly once"),
        ([[0, 1], [2, 7]], "exactly once"),
    ][name in ("psum", "pmean") :]:
        with pytest.raises(ValueError, match=f"{name}: axis_index_groups must .*{text}"):
            along_i(lambda x, groups=groups: GROUPED[name](x, groups))


@pytest.mark.parametrize(
    "run, error, text",
    [
        (lambda x: lax.psum(x, "z"), NameError, "unbound axis name: z. Axes in scope: 'i'"),
        (lambda x: lax.psum(x, ("i", "i")), ValueError, "name an axis twice"),
        (
            lambda x: lax.psum(x, ("i", 0), axis_index_groups=[[0, 1], [2, 3]]),
            ValueError,
            "named axes only",
        ),
        (lambda x: lax.psum(x, ("i", 3)), ShapeError, "out of bounds"),
        (lambda x: lax.pbroadcast(x, "i", 4), ValueError, r"0\.\.3"),
        (
            lambda x: lax.all_gather(x, "i", to="everywhere"),
            ValueError,
            "'varying', 'invarying', 'reduced'",
        ),
        (
            lambda x: lax.all_gather(x, "i", to="invarying", axis_index_groups=[[0, 1], [2, 3]]),
            ValueError,
            "differs between groups",
        ),
        (lambda x: lax.pcast(x, "z", to="unreduced"), NameError, "unbound axis name: z"),
        (lambda x: lax.pvary(x, "z"), NameError, "unbound axis name: z"),
        (lambda x: lax.pcast(x, ("i", "z"), to="varying"), NameError, "unbound axis name: z"),
        (lambda x: lax.pcast(x, "i", to="elsewhere"), ValueError, "none of 'varying'"),
        (
            lambda x: lax.all_to_all(x[:3], "i", 0, 0, tiled=True),
            ShapeError,
            "cannot be cut into 4",
        ),
        (lambda x: lax.all_to_all(x[:3], "i", 0, 0), ShapeError, "one entry per position"),
        (lambda x: lax.psum_scatter(x[:3], "i", tiled=True), ShapeError, "cannot be cut into 4"),
        (lambda x: lax.pmax(x + 1j, "i"), TypeError, "pmax: does not accept dtype complex64"),
    ],
)
def test_errors_name_the_call_and_the_rule(run, error, text):
    with pytest.raises(error, match=text):
        along_i(run)


def test_pvary_of_a_varying_value_is_refused():
    with pytest.raises(ValueError, match=r"float32\[1\]\{i\} already varies over 'i'"):
        weft.shard_map(lambda x: lax.pvary(x, "i"), mesh=MESH, in_specs=P("i"), out_specs=P("i"))(
            np.ones(4, np.float32)
        )
    with pytest.raises(ValueError, match="pcast: the value"):
        weft.shard_map(
            lambda x: lax.pcast(x, "i", to="varying"), mesh=MESH, in_specs=P("i"), out_specs=P("i")
        )(np.ones(4, np.float32))
    assert along_i(lambda x: lax.pvary(x, "i")).shape == (4, 4)  # types have no axes of vmap


def test_without_axes_nothing_happens():
    x = np.ones(3, np.float32)
    for run in (
        lax.psum,
        lax.pmax,
        lax.pmean,
        lax.all_gather,
        lambda x, axes: lax.psum_scatter(x, axes, tiled=True),
        lambda x, axes: lax.ppermute(x, axes, []),
    ):
        np.testing.assert_array_equal(run(x, ()), x)
    np.testing.assert_array_equal(lax.psum(np.ones((3, 2), np.float32), (1,)), [2, 2, 2])


def test_bytes_count_the_group():
    """A collective in groups of two sends the bytes that two devices exchange."""
    sent = lambda groups: weft.explain(
        weft.jit(
            weft.shard_map(
                lambda x: lax.psum(x, "i", axis_index_groups=groups),
                mesh=MESH,
                in_specs=P("i"),
                out_specs=P("i"),
            )
        ),
        np.ones((4, 256), np.float32),
    )
    assert sum(c.bytes for c in sent([[0, 1], [2, 3]]).collectives) == 1024
    assert sum(c.bytes for c in sent(None).collectives) == 1536
