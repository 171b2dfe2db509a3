"""Ranges, evenly spaced values, filled arrays, and arrays of nested lists."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.numpy.comparison import compare
from weft.sharding import AxisType, NamedSharding, PartitionSpec


@pytest.mark.parametrize("full_like", [wnp.full_like, weft.lax.full_like])
def test_filled_arrays_are_where_their_example_is(full_like):
    x = weft.device_put(wnp.ones((4, 2)), weft.devices()[1])
    for shape in (None, (), (5,)):
        y = full_like(x, 3.0, shape=shape)
        assert (
            y.shape == (x.shape if shape is None else shape)
            and y.sharding == x.sharding
            and float(y.sum()) == 3 * y.size
        )


def test_filled_arrays_are_where_a_holder_or_a_type_says():
    rows = NamedSharding(
        weft.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,), devices=weft.devices()[:2]),
        PartitionSpec("i"),
    )

    class Holder:
        """An array that is exposed as libraries expose variables."""

        shape, dtype, sharding = (4, 2), np.dtype("float32"), rows

    for example in (Holder(), weft.ShapeDtypeStruct((4, 2), "float32", sharding=rows)):
        assert wnp.zeros_like(example).sharding == rows
        assert wnp.ones_like(example, shape=(3,)).sharding != rows
    traced = weft.jit(lambda x: wnp.zeros_like(x))(weft.device_put(wnp.ones((4, 2)), rows))
    assert traced.tolist() == [[0, 0]] * 4


@pytest.mark.parametrize("ends", [(0, 25), (0, 1), (1, 10), (-3, 7), (0.5, 2)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_evenly_spaced_values_are_rounded_once(ends, dtype):
    for num in range(2, 40):
        np.testing.assert_array_equal(
            wnp.linspace(*ends, num, dtype=dtype), np.linspace(*ends, num).astype(dtype)
        )
    assert weft.jit(lambda a, b: wnp.linspace(a, b, 6))(0.0, 25.0).tolist() == [
        0,
        5,
        10,
        15,
        20,
        25,
    ]


@pytest.mark.parametrize(
    "ends", [(-3e38, 3e38), (1e38, 3.4e38), (0, 3e38), (1e-38, 3e-38), (2 + 1j, -4 + 3j)]
)
def test_evenly_spaced_values_near_the_ends_of_a_type(ends):
    np.testing.assert_allclose(wnp.linspace(*ends, 7), np.linspace(*ends, 7), rtol=3e-7)


def test_geometric_progressions_have_exact_ends():
    for start, stop, num in ((1, 1000, 4), (3, 1e-5, 9), (-2, -64, 6), (5, 7, 1)):
        got = np.asarray(wnp.geomspace(start, stop, num))
        np.testing.assert_allclose(got, np.geomspace(start, stop, num), rtol=1e-6)
        assert got[0] == np.float32(start) and (num == 1 or got[-1] == np.float32(stop))


def test_functions_of_indices_are_mapped_over_elements():
    seen = []

    def of_one(i, j, scale=1):
        seen.append((i.shape, j.shape))
        return {"sum": i + j, "row": scale * i * wnp.arange(4)}

    result = wnp.fromfunction(of_one, (2, 3), dtype=int, scale=3)
    assert (
        seen == [((), ())]
        and result["sum"].tolist() == [[0, 1, 2], [1, 2, 3]]
        and result["row"].shape == (2, 3, 4)
    )
    assert result["row"][1, 2].tolist() == [0, 3, 6, 9] and wnp.fromfunction(
        lambda: wnp.ones(2), ()
    ).shape == (2,)
    assert wnp.fromfunction(lambda i: i, (0,)).shape == (0,)


@pytest.mark.parametrize(
    "arguments", [(0, 5, 0.5), (1.5, 5, 1.2), (5, 0, -0.7), (0.5, 3), (2.7,), (3, 3, 0.5)]
)
def test_integer_ranges_of_floats_step_as_numpy_does(arguments):
    compare(wnp.arange(*arguments, dtype="int32"), np.arange(*arguments, dtype="int32"))


@pytest.mark.parametrize(
    "values",
    [
        [1, 2.5],
        [[1, 2], [3, 4.5]],
        [True, 1],
        [1, 2j],
        [[True], [False]],
        [],
        [[], []],
        [(1, 2), [3, 4]],
    ],
)
def test_nested_lists_of_numbers(values):
    want = np.asarray(values)
    narrow = {"i": np.int32, "f": np.float32, "c": np.complex64, "b": np.bool_}[want.dtype.kind]
    compare(wnp.array(values), want.astype(narrow))


@pytest.mark.parametrize(
    "values", [[1, [2]], [[1, 2], [3]], [1, None], ["a"], [1, "a"], [[1], 2.0]]
)
def test_lists_that_are_no_arrays(values):
    with pytest.raises((TypeError, ValueError), match="array"):
        wnp.array(values)


@pytest.mark.parametrize(
    "arguments", [(5, None, 2), (-4, None, -1), (5.0, None, 2), (3.5e9, None, 2.0**50), (1, 5, 3)]
)
def test_ranges_that_end_by_their_first_argument(arguments):
    start, stop, step = arguments
    compare(
        wnp.arange(start, stop, step),
        np.arange(0 if stop is None else start, start if stop is None else stop, step),
        exact_dtype=False,
    )
