"""Lookups and scatters by index on sharded arrays: positions of every type, and updates split over other axes than the rows."""

import numpy as np
import pytest

import weft
from weft import lax, numpy as wnp
from weft._engine.util.config import enable_x64
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

rng = np.random.default_rng(0)


@pytest.mark.parametrize(
    "dtype", [np.uint32, np.int64, np.uint64], ids=["uint32", "int64", "uint64"]
)
@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_indices_that_int32_does_not_hold(dtype, mode):
    """Indices far out of bounds stay out of bounds on every device; as int32 they would wrap around."""
    mesh = Mesh(np.array(weft.devices()), ("x",))
    x, ends = np.arange(16, dtype=np.float32), np.iinfo(dtype)
    indices = np.array([[ends.max], [ends.max // 2 + 4], [3], [ends.min], [15]], dtype)
    gathered, scattered = (
        lax.GatherDimensionNumbers((1,), (), (0,)),
        lax.ScatterDimensionNumbers((1,), (), (0,)),
    )

    def all_of(x, indices):
        start = (indices[1, 0],)
        return [
            lax.gather(x, indices, gathered, (2,), mode=mode),
            lax.dynamic_slice(x, start, (3,)),
            lax.scatter_add(x, indices, lax.full((5, 2), np.float32(1)), scattered, mode=mode),
            lax.dynamic_update_slice(x, lax.full((3,), np.float32(-1)), start),
        ]

    with enable_x64(True):
        laid = weft.device_put(x, NamedSharding(mesh, P("x")))
        places = np.minimum(np.maximum(indices[:, :1].astype(object), 0), 14).astype(
            int
        ) + np.arange(2)
        outside = np.array([not 0 <= int(i) <= 14 for i in indices[:, 0]])[:, None] & (
            mode == "fill"
        )
        added = x.copy()
        np.add.at(added, places, np.where(outside, 0, 1).astype(np.float32))
        expected = [
            np.where(outside, np.nan, x[places]),
            x[13:],
            added,
            np.r_[x[:13], [-1, -1, -1]],
        ]
        for got, want in zip(weft.jit(all_of)(laid, indices), expected):
            np.testing.assert_array_equal(np.asarray(got), want)


@pytest.mark.parametrize(
    "scatter, ufunc",
    [(lax.scatter_min, np.minimum), (lax.scatter_max, np.maximum), (lax.scatter_add, np.add)],
    ids=["min", "max", "add"],
)
def test_scatters_of_split_updates_into_split_rows(scatter, ufunc):
    """Each device has the extremes of its updates; with rows split as well these were never joined."""
    mesh = Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))
    x, updates = (
        rng.integers(-99, 99, (8, 64)).astype(np.int32),
        rng.integers(-99, 99, (96, 64)).astype(np.int32),
    )
    indices = rng.integers(0, 8, (96, 1)).astype(np.int32)
    expected = x.copy()
    ufunc.at(expected, indices[:, 0], updates)
    numbers = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    apply = weft.jit(lambda x, i, u: scatter(x, i, u, numbers))
    lay = lambda a, spec: weft.device_put(a, NamedSharding(mesh, spec))
    for rows, parts in (("x", "y"), ("y", "x")):
        got = apply(lay(x, P(rows)), indices, lay(updates, P(parts)))
        np.testing.assert_array_equal(np.asarray(got), expected)


ZEROS = np.full((16, 2), -0.0, np.float32)


def complex_zeros() -> np.ndarray:
    """Return zeros with all four pairs of signs, an infinity and a NaN: values that no complex product makes."""
    parts = np.array([[-0.0, -0.0], [-0.0, 0.0], [0.0, -0.0], [0.0, 0.0]] * 4, np.float32)
    parts[6], parts[9] = (np.inf, -0.0), (-0.0, np.nan)
    return np.repeat(parts.view(np.complex64), 8, axis=1)


@pytest.mark.parametrize(
    "look_up",
    [
        lambda x: x[wnp.array([0, 15, 6, 9])],
        lambda x: x[6],
        lambda x: x[wnp.array([1, 4, 9]), wnp.array([0, 3, 7])],
        lambda x: lax.dynamic_slice(x, (wnp.argmax(x[:, 0].real < -1) + 5, 0), (5, 8)),
        lambda x: x[3:10],
        lambda x: wnp.take_along_axis(x, wnp.argsort(-x.real, 0), 0),
        lambda x: x.at[wnp.array([1, 40])].get(mode="fill", fill_value=-0.0),
        lambda x: lax.with_sharding_constraint(x[wnp.arange(1, 9)], P(None, "x")),
    ],
)
@pytest.mark.parametrize("layout", [P("x"), P("x", "y"), P(("x", "y")), P(None, "x")], ids=str)
def test_complex_zeros_keep_their_signs(look_up, layout):
    x, mesh = complex_zeros(), Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))
    with mesh:
        split = np.asarray(weft.jit(look_up)(weft.device_put(x, NamedSharding(mesh, layout))))
        whole = np.asarray(weft.jit(look_up)(x))
    np.testing.assert_array_equal(split, whole)
    for part in (np.real, np.imag):
        np.testing.assert_array_equal(np.signbit(part(split)), np.signbit(part(whole)))


@pytest.mark.parametrize(
    "look_up",
    [
        lambda x: x[wnp.array([0, 15, 0])],
        lambda x: x[3],
        lambda x: x[:3].T.reshape(3, 2),
        lambda x: lax.dynamic_slice_in_dim(x, 3, 1),
        lambda x: x.at[wnp.array([1, 40])].get(mode="fill", fill_value=-0.0),
        lambda x: x.at[wnp.array([3, 4])].set(x[:2]),
        lambda x: x[wnp.arange(16)].astype(np.float16),
        lambda x: x[3] + x[4],
    ],
)
def test_negative_zeros_keep_their_sign(look_up):
    """A looked-up value is the sum of the devices' parts, and a sum begins with a positive zero."""
    split = weft.device_put(ZEROS, NamedSharding(Mesh(np.array(weft.devices()), ("x",)), P("x")))
    for backend in ("cpu", "reference"):
        assert np.signbit(np.asarray(weft.jit(look_up, backend=backend)(split))).all()


def test_positions_found_by_comparison_leave_rows_where_they_are():
    """Reading by comparison sums what each device finds in its own rows."""
    x, at = (
        rng.normal(size=(64, 3)).astype(np.float32),
        rng.integers(0, 64, (5, 3)).astype(np.int32),
    )
    split = weft.device_put(x, NamedSharding(Mesh(np.array(weft.devices()), ("x",)), P("x")))
    find = weft.jit(lambda x, i: wnp.take_along_axis(x, i, 0, mode="one_hot"))
    np.testing.assert_array_equal(find(split, at), np.take_along_axis(x, at, 0))
    assert {r.kind for r in find.lower(split, at).compile().stages.collectives} == {"psum"}
