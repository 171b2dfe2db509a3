"""Methods, indexing and updates of `Array`.

Expected values were read once from another implementation of the interface, and are literals here.
"""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.runtime.array_checks import same

M = np.array([[3.0, 1.0, 2.0], [0.5, -1.0, 4.0]], np.float32)
METHODS = {
    "sum": lambda x: x.sum(),
    "sum over a dim": lambda x: x.sum(axis=0),
    "keepdims": lambda x: x.sum(1, keepdims=True),
    "mean": lambda x: x.mean(0),
    "var": lambda x: x.var(ddof=1),
    "std": lambda x: x.std(axis=1),
    "prod": lambda x: x.prod(),
    "min": lambda x: x.min(1),
    "max": lambda x: x.max(),
    "ptp": lambda x: np.ptp(x, 0) if isinstance(x, np.ndarray) else x.ptp(0),
    "all": lambda x: (x > 0).all(1),
    "any": lambda x: (x > 0).any(1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(0),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "real": lambda x: x.real,
    "imag": lambda x: (x + np.complex64(2j)).imag,
    "conj": lambda x: (x * np.complex64(1j)).conj(),
    "reshape": lambda x: x.reshape(3, 2),
    "reshape tuple": lambda x: x.reshape((3, -1)),
    "flatten": lambda x: x.flatten(),
    "ravel": lambda x: x.ravel(),
    "ravel F": lambda x: x.ravel(order="F"),
    "transpose": lambda x: x.transpose(1, 0),
    "transpose tuple": lambda x: x.transpose((1, 0)),
    "transpose array": lambda x: x.transpose(np.array([1, 0])),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "squeeze": lambda x: x.reshape(2, 1, 3).squeeze(1),
    "diagonal": lambda x: x.diagonal(),
    "trace": lambda x: x.trace(),
    "dot": lambda x: x.dot(x.T),
    "take": lambda x: x.take(np.array([0, 2]), axis=1),
    "repeat": lambda x: x.repeat(2, axis=0),
    "clip": lambda x: x.clip(0, 2),
    "round": lambda x: x.round(),
    "sort": lambda x: np.sort(x) if isinstance(x, np.ndarray) else x.sort(),
    "astype": lambda x: x.astype(np.float16),
    "copy": lambda x: x.copy(),
    "view": lambda x: x.view(np.int32),
    "compress": lambda x: x.compress(np.array([True, False, True]), axis=1),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    got, want = METHODS[name](wnp.array(M)), np.asarray(METHODS[name](M))
    assert type(got) is weft.Array and got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)


@pytest.mark.parametrize(
    "name, want", [("argmax", [0, 2]), ("argmin", [1, 1]), ("argsort", [[1, 2, 0], [1, 0, 2]])]
)
def test_methods_that_give_positions(name, want):
    same(getattr(wnp.array(M), name)(axis=1), np.array(want, np.int32))


def test_nonzero_and_searchsorted():
    same(wnp.array([0, 3, 0, 4]).nonzero()[0], np.array([1, 3], np.int32))
    same(wnp.arange(4).searchsorted(2), np.int32(2))


def test_reshape_to_another_size_names_both_shapes():
    with pytest.raises(TypeError, match=r"\(6,\) \(size 6\) into shape \(4, 2\)"):
        wnp.arange(6).reshape(4, 2)


UPDATES = {
    "set": [0, 9, 9, 3],
    "add": [0, 10, 11, 3],
    "subtract": [0, -8, -7, 3],
    "multiply": [0, 9, 18, 3],
    "min": [0, 1, 2, 3],
    "max": [0, 9, 9, 3],
    "power": [0, 1, 512, 3],
}


@pytest.mark.parametrize("name", UPDATES)
def test_updates_give_a_new_array(name):
    x = wnp.arange(4)
    same(getattr(x.at[1:3], name)(9), np.array(UPDATES[name], np.int32))
    same(x, np.arange(4, dtype=np.int32))


def test_updates_beside_set():
    x = wnp.arange(4.0)
    same(x.at[1:].divide(2), np.array([0, 0.5, 1, 1.5], np.float32))
    same(x.at[1].apply(lambda v: v + 10), np.array([0, 11, 2, 3], np.float32))
    same(x.at[np.array([0, 0])].add(1), np.array([2, 1, 2, 3], np.float32))
    assert repr(x.at[1]) == "_At(Array([0., 1., 2., 3.], dtype=float32), 1)"


def test_positions_out_of_bounds():
    x = wnp.arange(4.0)
    same(x[7], np.float32(3))  # read: clipped
    same(x.at[7].set(1), np.asarray(x))  # written: dropped
    same(x.at[7].get(mode="clip"), np.float32(3))
    same(x.at[7].get(mode="fill", fill_value=-1), np.float32(-1))
    same(x.at[-5].get(mode="fill", fill_value=-1), np.float32(-1))
    assert np.isnan(x.at[7].get(mode="fill"))
    assert np.isnan(np.asarray(wnp.ones((2, 3)).at[7, 1:].get(mode="fill"))).all()


INDEXES = [
    1,
    -1,
    np.int64(2),
    slice(1, None),
    slice(None, None, -1),
    slice(0, 3, 2),
    None,
    Ellipsis,
    (0, 1),
    (slice(None), 2),
    (Ellipsis, None),
    (slice(None), [0, 2]),
    ((0, 1),),
    ([0, 1], [True, False, True, False]),
    np.array([2, 0]),
    np.array([True, False, True]),
    (np.array([0, 1]), np.array([2, 3])),
    (slice(None), []),
    (np.array([[0], [1]]), [1, 2]),
]


@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_indexing_is_that_of_numpy(index):
    value = np.arange(12, dtype=np.int32).reshape(3, 4)
    expected = (
        tuple(np.array(i, int) if isinstance(i, list) and not i else i for i in index)
        if isinstance(index, tuple)
        else index
    )
    same(wnp.array(value)[index], value[expected])


def test_an_array_is_an_index():
    assert [10, 20, 30][wnp.array(1)] == 20
    assert list(range(wnp.array(3))) == [0, 1, 2]
    same(wnp.arange(4)[wnp.array([3, 1])], np.array([3, 1], np.int32))


@pytest.mark.parametrize(
    "index, kind, words",
    [
        (1.0, TypeError, "integer or boolean"),
        ("a", TypeError, "integer or boolean"),
        ([0, 1], TypeError, "non-tuple sequence"),
        ((0, 0), IndexError, "Too many indices"),
        ((slice(None), [1.0]), TypeError, "integer or boolean"),
        (np.array([True, False]), IndexError, "boolean index did not match"),
        ((Ellipsis, Ellipsis), IndexError, "single ellipsis"),
    ],
)
def test_wrong_indexes(index, kind, words):
    x = (
        wnp.arange(4)
        if not (isinstance(index, tuple) and index and index[0] == slice(None))
        else wnp.ones((2, 2))
    )
    with pytest.raises(kind, match=words):
        x[index]


def test_assignment_is_refused_with_a_way_out():
    x = wnp.arange(3)
    with pytest.raises(TypeError, match=r"immutable.*x\.at\[index\]\.set"):
        x[0] = 1
