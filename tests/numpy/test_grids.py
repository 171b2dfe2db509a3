"""Grids and concatenations by indexing syntax: mgrid, ogrid, r_, c_."""

import contextlib

import numpy as np
import pytest

import weft
import weft.numpy as wnp

V, W, M = [1, 2, 3], [4, 5, 6], np.arange(6).reshape(2, 3)


@pytest.mark.parametrize("name", ["r_", "c_"])
@pytest.mark.parametrize(
    "key",
    [
        (V, W),
        (V, slice(1, 4)),
        (V, slice(0, 1, 3j)),
        ("-1", M, M),
        ("0,2", V, W),
        ("0,2,0", V, W),
        ("1,2,0", V, W),
        ("0,4,-1", V, W),
        ("0,4,-2", V, W),
        ("0,3,1", V, W),
        ("0,3,-3", V, W),
        ("0,3,2", V, W),
        ("0,3,1", 7, 8),
        ("0,4,1", M, M),
        ("r", V, W),
        ("c", V, W),
        ("r", M, M),
        ("c", M),
    ],
    ids=str,
)
def test_joins_are_those_of_numpy(name, key):
    matrix = isinstance(key[0], str) and key[0] in ("r", "c")
    with pytest.warns(PendingDeprecationWarning) if matrix else contextlib.nullcontext():
        expected = np.asarray(getattr(np, name)[key])
    result = getattr(wnp, name)[key]
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    "key, fact",
    [
        (("asdf", V), "could not understand directive 'asdf'"),
        (("", V), "could not understand directive ''"),
        (("0,2,1,3", V), "'axis,ndim,place'"),
        (("0,1.5", V), "'0,1.5'"),
        ((V, "0", W), "must stand at the beginning"),
        (("0,3,3", V), "place 3 among 3 dims"),
        (("0,2,-3", V), "place -3 among 2 dims"),
        (("r", np.ones((1, 1, 1))), "a matrix"),
    ],
    ids=str,
)
def test_directives_that_name_no_join(key, fact):
    with pytest.raises(ValueError, match=fact) as raised:
        wnp.r_[key]
    assert str(raised.value).startswith("r_: ")


def test_no_slices_make_empty_grids():
    assert wnp.mgrid[()].shape == (0,) and wnp.mgrid[()].dtype == np.int32
    assert wnp.ogrid[()] == []


@pytest.mark.parametrize("name", ["mgrid", "ogrid", "r_", "c_"])
@pytest.mark.parametrize("part", ["start", "stop", "step"])
def test_traced_bounds_are_named(name, part):
    place = ("start", "stop", "step").index(part)
    grid = getattr(wnp, name)
    f = lambda n: grid[slice(*[n if k == place else c for k, c in enumerate((0, 4, 1))])]
    with pytest.raises(weft.errors.ConcretizationTypeError, match=f"slice {part} of wnp.{name}"):
        weft.jit(f)(2)
    if name in ("mgrid", "ogrid"):
        with pytest.raises(
            weft.errors.ConcretizationTypeError, match=f"slice {part} of wnp.{name}"
        ):
            weft.jit(
                lambda n: grid[
                    :2, slice(*[n if k == place else c for k, c in enumerate((0, 4, 1))])
                ]
            )(2)
    _, tangent = weft.jvp(lambda x: x * grid[0:3].sum(), (2.0,), (1.0,))
    assert tangent == 3.0
