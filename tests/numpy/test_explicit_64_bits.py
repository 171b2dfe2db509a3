"""64-bit dtypes requested by name while `enable_x64` is off and `explicit_x64_dtypes` is "allow"."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.util.config import Override

X = np.arange(8, dtype=np.float32)


@pytest.fixture(autouse=True)
def allowed():
    with Override(explicit_x64_dtypes="allow"):
        yield


def dtypes(*values):
    return [x.dtype.name for x in values]


def test_functions_that_take_a_dtype_give_it():
    f64, i64, c128 = np.float64, np.int64, np.complex128
    arrays = [
        wnp.zeros(3, f64),
        wnp.arange(3, dtype=i64),
        wnp.array([1.0], "float64"),
        wnp.asarray(X, dtype=f64),
        wnp.asarray(X).astype(f64),
        wnp.linspace(0, 1, 3, dtype=f64),
        wnp.eye(3, dtype=f64),
        wnp.full_like(X, 1, f64),
        wnp.float64(3),
        wnp.int64(3),
        wnp.sum(X, dtype=f64),
        wnp.cumsum(X, dtype=f64),
        wnp.mean(X, dtype=f64),
        wnp.zeros(2, c128),
        abs(wnp.zeros(2, c128)),
        weft.lax.full((2,), 1, f64),
        weft.lax.iota(i64, 3),
        weft.lax.convert_element_type(X, f64),
        wnp.einsum("i,i", X, X, preferred_element_type=f64),
        wnp.asarray(X).view(f64),
        weft.nn.one_hot(wnp.arange(3), 3, dtype=f64),
        weft.random.uniform(weft.random.key(0), (3,), dtype=f64),
        weft.random.bits(weft.random.key(0), (3,), np.uint64),
    ]
    assert dtypes(*arrays) == [
        "float64",
        "int64",
        *["float64"] * 7,
        "int64",
        *["float64"] * 3,
        "complex128",
        "float64",
        "float64",
        "int64",
        *["float64"] * 5,
        "uint64",
    ]
    np.testing.assert_array_equal(arrays[5], [0, 0.5, 1])
    assert weft.jit(lambda x: x.astype(f64) * 2)(X).dtype == f64


def test_what_no_one_asked_for_is_cut():
    whole = np.arange(3.0)
    arrays = [
        wnp.asarray(whole),
        weft.jit(lambda x: x + 1)(whole),
        weft.device_put(whole),
        wnp.zeros(3),
        wnp.asarray(1.5),
        wnp.zeros(3, float),
        wnp.asarray(X).astype(float),
        wnp.zeros(3) + np.float64(1),
    ]
    assert {*dtypes(*arrays)} == {"float32"} and wnp.arange(3).dtype == np.int32


def test_operations_keep_the_dtype():
    a, i = wnp.zeros(8, np.float64), wnp.arange(8, dtype=np.int64)
    results = [
        a + 1,
        a + X,
        wnp.sin(a),
        a.sum(),
        a * 2.0,
        a + np.float64(1),
        a.std(),
        a @ a,
        wnp.where(a > 0, a, 1.0),
        wnp.maximum(a, 0),
        a / 2,
        -a,
        a[0],
        a.at[0].set(1),
        wnp.concatenate([a, a]),
        wnp.linalg.norm(a),
        i.mean(),
        weft.grad(lambda x: (x**2).sum())(a),
        weft.vmap(lambda x: x * 2)(a),
        weft.lax.scan(lambda c, x: (c + x, c), wnp.float64(0), a)[1],
        *weft.jit(lambda a: (a + 1, a * a))(a),
    ]
    assert {*dtypes(*results)} == {"float64"}, dtypes(*results)
    assert {*dtypes(i // 2, i % 3, i << 1, i + np.int32(1), i.astype(np.int32) + i, i.sum())} == {
        "int64"
    }
    assert (wnp.array([2**40, 1], np.int64) * 3).tolist() == [3 * 2**40, 3] and (
        i * 2.0
    ).dtype == np.float32
    assert float(wnp.array([0.1], np.float64)[0]) == 0.1


def test_a_program_is_traced_again_for_another_choice():
    f = weft.jit(lambda x: x.astype("float64"))
    assert f(X).dtype == np.float64
    with (
        Override(explicit_x64_dtypes="warn"),
        pytest.warns(UserWarning, match="Explicitly requested dtype float64"),
    ):
        assert f(X).dtype == np.float32
    with (
        Override(explicit_x64_dtypes="error"),
        pytest.raises(ValueError, match="Explicitly requested dtype float64"),
    ):
        f(X)
