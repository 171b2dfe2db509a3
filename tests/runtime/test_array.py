"""The behavior of `Array`: operators, methods, conversions, printing, lifetime, placement, and
transfers to and from the host.

Expected values were read once from another implementation of the interface, and are literals here.
"""

import copy
import math
import operator
import pickle
import sys

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import random
from weft._engine.backends import array_spec
from weft._engine.runtime.array import Shard
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))


@pytest.fixture
def split(mesh):
    """Return an 8×4 array in eight blocks of 2×2, and its value."""
    value = np.arange(32, dtype=np.float32).reshape(8, 4)
    return weft.device_put(value, NamedSharding(mesh, P("x", "y"))), value


def same(got, want) -> None:
    """Assert equal value and dtype; `got` is an Array."""
    assert type(got) is weft.Array
    want = np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    np.testing.assert_array_equal(np.asarray(got), want)


# ---- operators

A, B = np.array([5, 2, -3], np.int32), np.array([2, 3, 2], np.int32)
F = np.array([0.5, -2.0, 4.0], np.float32)
BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.floordiv,
    operator.mod,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lshift,
    operator.rshift,
]
COMPARE = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("op", BINARY + COMPARE)
def test_binary_operators_mix_arrays_numbers_and_numpy(op):
    same(op(wnp.array(A), wnp.array(B)), op(A, B))
    same(op(wnp.array(A), B), op(A, B))
    same(op(A, wnp.array(B)), op(A, B))
    same(op(wnp.array(A), 2), op(A, np.int32(2)))
    same(op(2, wnp.array(B)), op(np.int32(2), B))


@pytest.mark.parametrize(
    "op",
    [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod],
)
def test_float_operators(op):
    same(op(wnp.array(F), 1.5), op(F, np.float32(1.5)))
    same(op(1.5, wnp.array(F)), op(np.float32(1.5), F))


def test_powers():
    same(wnp.arange(4) ** 2, np.arange(4, dtype=np.int32) ** 2)
    same(2 ** wnp.arange(4), 2 ** np.arange(4, dtype=np.int32))
    same(wnp.array(F) ** -1, 1 / F)
    same(pow(wnp.array(F), 2), F * F)


@pytest.mark.parametrize("op", [operator.neg, operator.pos, operator.abs, operator.invert])
def test_unary_operators(op):
    same(op(wnp.array(A)), op(A))


def test_matmul_operator_on_either_side():
    m = np.arange(6, dtype=np.float32).reshape(2, 3)
    same(wnp.array(m) @ wnp.array(m.T), m @ m.T)
    same(m @ wnp.array(m.T), m @ m.T)
    same(wnp.array(m) @ m.T, m @ m.T)


def test_divmod_gives_two_arrays():
    for got, want in zip(divmod(wnp.array(A), 2), np.divmod(A, np.int32(2))):
        same(got, want)
    for got, want in zip(divmod(7, wnp.array(B)), np.divmod(np.int32(7), B)):
        same(got, want)


def test_augmented_assignment_makes_a_new_array():
    a = b = wnp.arange(3)
    a += 1
    same(a, np.arange(1, 4, dtype=np.int32))
    same(b, np.arange(3, dtype=np.int32))


@pytest.mark.parametrize(
    "other", [None, "a", [1, 2, 3], (1, 2, 3), object()], ids=lambda o: type(o).__name__
)
def test_arithmetic_with_what_is_no_array_is_an_error(other):
    with pytest.raises(TypeError):
        wnp.arange(3) + other
    with pytest.raises(TypeError):
        other + wnp.arange(3)


def test_comparison_with_what_is_no_array_is_by_identity():
    assert (wnp.arange(3) == None) is False  # noqa: E711
    assert (wnp.arange(3) != "a") is True


def test_another_class_may_take_over_an_operator():
    class Other:
        def __radd__(self, x):
            return "mine"

    assert wnp.arange(3) + Other() == "mine"


# ---- methods

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


# ---- iteration and conversion


def test_iteration():
    x = wnp.arange(6).reshape(2, 3)
    rows = list(x)
    same(rows[1], np.array([3, 4, 5], np.int32))
    assert len(x) == 2 and [int(v) for v in reversed(x[0])] == [2, 1, 0]
    assert 4 in x[1] and 9 not in x[1]
    assert sum(wnp.arange(4)) == 6 and max(wnp.arange(4)) == 3
    _, second = x
    same(second, rows[1])
    same(next(iter(x)), rows[0])


def test_iteration_of_keys_and_of_sharded_arrays(split):
    a, value = split
    for got, want in zip(a, value):
        same(got, want)
    keys = random.split(random.key(0), 3)
    assert [k.shape for k in keys] == [()] * 3
    np.testing.assert_array_equal(random.key_data(keys[1]), random.key_data(keys)[1])


def test_zero_dims_are_no_sequence():
    for use in (len, iter, list):
        with pytest.raises(TypeError, match=r"unsized|0-d"):
            use(wnp.array(1))


@pytest.mark.parametrize(
    "use, want",
    [
        (bool, True),
        (int, 3),
        (float, 3.0),
        (complex, 3 + 0j),
        (operator.index, 3),
        (math.floor, 3),
        (math.ceil, 3),
        (hex, "0x3"),
    ],
)
def test_scalars_convert_to_python(use, want):
    got = use(wnp.array(3))
    assert got == want and type(got) is type(want)


def test_conversions_that_round_or_refuse():
    assert int(wnp.array(3.7)) == 3 and bool(wnp.array([0.0])) is False
    same(round(wnp.array([2.5, 3.5])), np.array([2, 4], np.int32))
    assert round(wnp.float32(2.56), 1) == np.float32(2.6)
    for kind, use, value in [
        (TypeError, int, [3]),
        (TypeError, float, [1.0, 2.0]),
        (TypeError, operator.index, 3.0),
        (TypeError, operator.index, True),
        (TypeError, operator.index, [3]),
        (TypeError, float, 1 + 2j),
        (TypeError, int, 1j),
        (ValueError, bool, [1, 2]),
        (ValueError, bool, []),
    ]:
        with pytest.raises(kind):
            use(wnp.array(value))
    with pytest.raises(ValueError, match=r"ambiguous. Use a\.any\(\) or a\.all\(\)"):
        bool(wnp.array([1, 2]))


def test_item_tolist_tobytes():
    x = wnp.arange(6).reshape(2, 3)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]] and x.item(1, 2) == 5 and x.item(4) == 4
    assert type(wnp.array(3, wnp.bfloat16).item()) is float
    assert x.tobytes() == np.arange(6, dtype=np.int32).tobytes()
    with pytest.raises(ValueError):
        x.item()


def test_arrays_have_no_hash():
    with pytest.raises(TypeError, match="unhashable"):
        hash(wnp.array(1))
    with pytest.raises(TypeError, match="unhashable"):
        {wnp.array(1): 1}


def test_isinstance_and_unknown_attributes():
    assert isinstance(wnp.arange(3), weft.Array) and isinstance(wnp.arange(3), wnp.ndarray)
    assert not isinstance(np.arange(3), weft.Array)
    weft.jit(
        lambda x: None if isinstance(x, weft.Array) else pytest.fail("tracers are arrays too")
    )(wnp.arange(3))
    with pytest.raises(AttributeError, match="'Array' object has no attribute 'flavour'"):
        wnp.arange(3).flavour


def test_type_and_sizes():
    x = wnp.ones((2, 3), wnp.bfloat16)
    assert (x.shape, x.ndim, x.size, x.itemsize, x.nbytes, x.dtype) == (
        (2, 3),
        2,
        6,
        2,
        12,
        np.dtype(ml_dtypes.bfloat16),
    )
    assert not x.weak_type and wnp.asarray(3).weak_type and (wnp.asarray(1) + 1).weak_type
    assert wnp.asarray(1.0).aval.str_short() == "~float32[]"


# ---- printing

TEXTS = [
    (lambda: wnp.float32(1.5), "Array(1.5, dtype=float32)", "1.5"),
    (lambda: wnp.arange(3), "Array([0, 1, 2], dtype=int32)", "[0 1 2]"),
    (lambda: wnp.array(3), "Array(3, dtype=int32, weak_type=True)", "3"),
    (lambda: wnp.array(True), "Array(True, dtype=bool)", "True"),
    (lambda: wnp.array(1 + 2j), "Array(1.+2.j, dtype=complex64, weak_type=True)", "(1+2j)"),
    (lambda: wnp.bfloat16(1.5), "Array(1.5, dtype=bfloat16)", "1.5"),
    (lambda: wnp.zeros((0, 3)), "Array([], shape=(0, 3), dtype=float32)", "[]"),
    (
        lambda: wnp.array([1.5, np.nan, -np.inf]),
        "Array([ 1.5,  nan, -inf], dtype=float32)",
        "[ 1.5  nan -inf]",
    ),
    (
        lambda: wnp.array([1e-10, 1.0, 1e10]),
        "Array([1.e-10, 1.e+00, 1.e+10], dtype=float32)",
        "[1.e-10 1.e+00 1.e+10]",
    ),
    (
        lambda: wnp.arange(6.0).reshape(2, 3),
        "Array([[0., 1., 2.],\n       [3., 4., 5.]], dtype=float32)",
        "[[0. 1. 2.]\n [3. 4. 5.]]",
    ),
    (
        lambda: wnp.arange(20),
        "Array([ 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15, 16,\n       17, 18, 19], dtype=int32)",
        "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19]",
    ),
    (
        lambda: wnp.arange(2000.0),
        "Array([0.000e+00, 1.000e+00, 2.000e+00, ..., 1.997e+03, 1.998e+03,\n       1.999e+03], dtype=float32)",
        "[0.000e+00 1.000e+00 2.000e+00 ... 1.997e+03 1.998e+03 1.999e+03]",
    ),
    (lambda: wnp.ones(3, wnp.uint8), "Array([1, 1, 1], dtype=uint8)", "[1 1 1]"),
    (lambda: random.key(0), "Array((), dtype=key<fry>) overlaying:\n[0 0]", None),
]


@pytest.mark.parametrize("make, text, short", TEXTS, ids=[str(i) for i in range(len(TEXTS))])
def test_printing(make, text, short):
    x = make()
    assert repr(x) == text
    if short is not None:
        assert str(x) == short


def test_formatting():
    assert (
        f"{wnp.float32(1.5):.3f}|{wnp.array(7):d}|{wnp.arange(3)}|{wnp.array(1.5)}"
        == "1.500|7|[0 1 2]|1.5"
    )
    with pytest.raises(TypeError, match="format string"):
        format(wnp.arange(3), ".2f")


def test_printing_of_sharded_arrays_is_that_of_whole_ones(split):
    a, value = split
    assert repr(a) == repr(wnp.array(value)) and str(a) == str(value)


# ---- NumPy, DLPack, copies


def test_numpy_views_share_memory_and_are_read_only(mesh):
    x = wnp.arange(1024.0)
    view = np.asarray(x)
    assert np.shares_memory(view, np.asarray(x)) and not view.flags.writeable
    assert np.array(x).flags.writeable and not np.shares_memory(np.array(x), view)
    assert np.asarray(x, np.float64).dtype == np.float64
    rows = weft.device_put(wnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, P("x")))
    assert np.shares_memory(
        np.asarray(rows), np.asarray(rows)
    )  # shards of rows lie one after another
    assert np.shares_memory(np.asarray(rows), np.asarray(rows.addressable_shards[3].data))


def test_a_copy_can_be_forbidden(split):
    x = wnp.arange(4.0)
    assert np.shares_memory(np.asarray(x, copy=False), np.asarray(x))
    for array, dtype in ((x, np.float64), (split[0], None)):
        with pytest.raises(
            ValueError, match=r"no NumPy view|avoid copy"
        ):  # NumPy says it where it reads the buffer itself
            np.asarray(array, dtype=dtype, copy=False)


def test_numpy_functions_accept_arrays():
    np.testing.assert_allclose(
        np.sin(wnp.arange(3.0)), np.sin(np.arange(3, dtype=np.float32)), rtol=1e-6
    )
    assert np.concatenate([wnp.arange(2), np.arange(2)]).tolist() == [0, 1, 0, 1]


def test_torch_and_weft_share_memory():
    torch = pytest.importorskip("torch")
    x = wnp.arange(12.0).reshape(3, 4)
    theirs = torch.from_dlpack(x)
    assert theirs.data_ptr() == x.unsafe_buffer_pointer() and theirs.tolist() == x.tolist()
    for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.bool):
        y = torch.ones((2, 3), dtype=dtype)
        ours = wnp.from_dlpack(y)
        assert (
            ours.unsafe_buffer_pointer() == y.data_ptr()
            and ours.tolist() == y.tolist()
            and str(ours.dtype) in str(y.dtype)
        )
        assert torch.from_dlpack(ours).dtype == dtype
    assert wnp.from_dlpack(torch.arange(6).reshape(2, 3).T).shape == (3, 2)  # of another order


def test_dlpack_shares_memory():
    x = wnp.arange(1024.0)
    assert x.__dlpack_device__() == (1, 0)
    assert (
        np.shares_memory(np.from_dlpack(x), np.asarray(x)) and not np.from_dlpack(x).flags.writeable
    )
    same(wnp.from_dlpack(np.arange(3, dtype=np.float32)), np.arange(3, dtype=np.float32))
    same(
        wnp.from_dlpack(wnp.ones(2, "bfloat16")), np.ones(2, wnp.bfloat16)
    )  # which NumPy cannot pass on
    with pytest.raises(TypeError, match="key_data"):
        np.from_dlpack(random.key(0))


def test_keys_are_no_numbers():
    with pytest.raises(TypeError, match="key_data"):
        np.asarray(random.key(0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: wnp.arange(6).reshape(2, 3),
        lambda: wnp.asarray(3.0),
        lambda: wnp.ones(3, wnp.bfloat16),
        lambda: random.split(random.key(1)),
    ],
    ids=["i32", "weak", "bf16", "keys"],
)
@pytest.mark.parametrize(
    "clone",
    [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy, lambda x: x.copy()],
    ids=["pickle", "copy", "deepcopy", "method"],
)
def test_copies_keep_value_and_type(make, clone):
    x = make()
    y = clone(x)
    assert (
        type(y) is weft.Array
        and repr(x) == repr(y)
        and x.aval == y.aval
        and x.sharding == y.sharding
    )


def blocks(a):
    """The memory of `a`."""
    return a._spec.backend.get_blocks(a._live(), a._spec)


def test_copies_of_sharded_arrays(split):
    a, value = split
    same(pickle.loads(pickle.dumps(a)), value)
    for clone in (copy.copy(a), copy.deepcopy(a)):
        same(clone, value)
        assert clone.sharding == a.sharding and clone.committed
    assert not np.shares_memory(blocks(copy.deepcopy(a)), blocks(a))


# ---- life and death


def test_values_are_ready():
    x = wnp.arange(3)
    assert x.is_ready() and x.block_until_ready() is x and not x.is_deleted()
    tree = {"a": x, "b": 1}
    assert weft.block_until_ready(tree) == tree


@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: x,
        lambda x: [1, (x,)],
        lambda x: {"b": None, "a": [x]},
        lambda x: weft.tree_util.Partial(max, x),
    ],
)
def test_waiting_for_a_tree_finds_deleted_arrays(wrap):
    x = wnp.arange(3)
    tree = wrap(x)
    assert weft.block_until_ready(tree) is tree
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        weft.block_until_ready(tree)


@pytest.mark.parametrize(
    "dtype",
    [
        "bool",
        "int8",
        "uint8",
        "int16",
        "uint16",
        "int32",
        "uint32",
        "float16",
        "bfloat16",
        "float32",
    ],
)
@pytest.mark.parametrize("value", [0, 1, 100])
def test_scalars_as_python_numbers(dtype, value):
    by_python = wnp.asarray(np.asarray(value, wnp.dtype(dtype)))
    by_native = weft.jit(lambda x: x | x if dtype == "bool" else x * 1)
    want = np.asarray(value, wnp.dtype(dtype))
    for x in (by_python, *(by_native(by_python) for _ in range(4))):
        for convert in (bool, int, float, complex, lambda x: x.item()):
            found = convert(x)
            assert found == convert(want) and type(found) is type(convert(want))
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        float(x)


def test_the_ends_of_number_types_as_python_numbers():
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32"):
        for end in (np.iinfo(dtype).min, np.iinfo(dtype).max):
            assert int(wnp.asarray(np.asarray(end, dtype))) == end
    for x in (math.inf, -math.inf, -0.0, 1e-45, float(np.finfo(np.float32).max)):
        assert str(float(wnp.asarray(np.float32(x)))) == str(float(np.float32(x)))
    assert math.isnan(float(wnp.asarray(np.float32(math.nan))))
    with pytest.raises(ValueError, match="NaN"):
        int(wnp.asarray(np.float32(math.nan)))


USES = {
    "operator": lambda x: x + 1,
    "numpy": np.asarray,
    "jit": weft.jit(lambda x: x * 2),
    "device_put": lambda x: weft.device_put(x, weft.devices()[1]),
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "shard": lambda x: x.addressable_shards[0].data,
    "tolist": lambda x: x.tolist(),
    "index": lambda x: x[0],
    "iterate": list,
    "update": lambda x: x.at[0].set(1),
    "device_get": weft.device_get,
    "wait": lambda x: x.block_until_ready(),
    "grad": weft.grad(lambda x: x.sum()),
    "vmap": weft.vmap(lambda x: x + 1),
    "dlpack": np.from_dlpack,
}


@pytest.mark.parametrize("name", USES)
def test_deleted_arrays_refuse_use(name):
    x = wnp.ones(16)
    x.delete()
    with pytest.raises(RuntimeError, match=r"deleted with shape=float32\[16\].*donate"):
        USES[name](x)


def test_deleted_arrays_still_know_their_type():
    x = wnp.ones((2, 3))
    x.delete()
    x.delete()  # again: nothing happens
    assert x.is_deleted() and x.shape == (2, 3) and len(x) == 2 and x.sharding.num_devices == 1
    for show in (repr, str, print):
        with pytest.raises(RuntimeError, match=r"deleted with shape=float32\[2,3\]"):
            show(x)


def test_donated_arrays_are_deleted_and_others_are_not():
    double = weft.jit(lambda x, y: (x * 2, y + 1), donate_argnums=0)
    x, y = wnp.ones(64), wnp.ones(64)
    double(x, y)
    assert x.is_deleted() and not y.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        double(x, y)


def test_a_shard_survives_its_array(split):
    a, value = split
    shard = a.addressable_shards[0].data
    a.delete()
    same(shard, value[:2, :2])


def test_views_that_were_asked_for_do_not_outlive_their_array(split):
    step = weft.jit(lambda x: x + 1, donate_argnums=0)
    x = wnp.zeros(1 << 16)
    for turn in range(3):
        seen = np.asarray(x)
        assert (
            np.shares_memory(seen, np.asarray(x))
            and x.addressable_shards[0].data is x.addressable_shards[0].data
        )
        later = step(x)
        assert (seen == turn).all() and x.is_deleted()
        for ask in (np.asarray, weft.Array.addressable_shards.fget):
            with pytest.raises(RuntimeError, match="deleted"):
                ask(x)
        x = later


# ---- placement


def test_where_a_new_array_lies():
    x, device = wnp.arange(3), weft.devices()[0]
    assert (
        x.devices() == {device}
        and x.device == device
        and x.sharding == SingleDeviceSharding(device)
    )
    assert x.is_fully_replicated and x.is_fully_addressable and not x.committed
    [shard] = x.addressable_shards
    assert (shard.device, shard.index, shard.replica_id) == (device, (slice(None),), 0)
    same(shard.data, np.arange(3, dtype=np.int32))


def test_the_value_is_known_by_a_second_name(split):
    a, value = split
    np.testing.assert_array_equal(a._value, value)
    assert (
        type(a._value) is np.ndarray
        and not a._value.flags.writeable
        and type(wnp.float32(2)._value) is np.ndarray
    )
    a = a + 1
    a.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        a._value


def test_shards_are_placed_as_their_array(mesh):
    for x, committed, kind in (
        (wnp.arange(4), False, "device"),
        (weft.device_put(wnp.arange(4), weft.devices()[1]), True, "device"),
        (weft.device_put(wnp.arange(4), NamedSharding(mesh, P())), True, "device"),
        (
            weft.device_put(wnp.arange(4), NamedSharding(mesh, P(), memory_kind="pinned_host")),
            True,
            "pinned_host",
        ),
    ):
        assert x.committed is committed
        for shard in x.addressable_shards:
            assert shard.data.committed is committed
            assert shard.data.sharding == SingleDeviceSharding(shard.device, memory_kind=kind)
    assert (
        wnp.arange(4).addressable_data(0) + weft.device_put(wnp.ones(4), weft.devices()[1])
    ).devices() == {weft.devices()[1]}


@pytest.mark.parametrize(
    "make",
    [
        lambda: wnp.arange(8 * 31, dtype=wnp.float32).reshape(8, 31),
        lambda: wnp.ones((8, 31), wnp.bfloat16),
        lambda: random.split(random.key(0), (8, 31)),
    ],
)
@pytest.mark.parametrize("kind", ["device", "pinned_host"])
def test_shard_data_has_the_type_and_placement_of_device_put(make, kind, mesh, monkeypatch):
    value = make()
    for shard in weft.device_put(
        value, NamedSharding(mesh, P("x"), memory_kind=kind)
    ).addressable_shards:
        put = weft.device_put(
            value[shard.index], SingleDeviceSharding(shard.device, memory_kind=kind)
        )
        assert shard.data._spec is put._spec
        made = shard.data._spec
        monkeypatch.delitem(array_spec._specs, (made.aval, made.sharding, True))
        fresh = array_spec.ArraySpec(made.aval, made.sharding, True)
        fields = [
            name for name in array_spec.ArraySpec.__slots__ if name not in ("__weakref__", "stored")
        ]
        assert fresh is not made and [getattr(made, name) for name in fields] == [
            getattr(fresh, name) for name in fields
        ]
        assert made.stored is made and fresh.stored is fresh


def test_shards_of_a_split_array(split, mesh):
    a, value = split
    assert (
        a.devices() == set(weft.devices())
        and a.device == a.sharding
        and not a.is_fully_replicated
        and a.committed
    )
    shards = a.addressable_shards
    assert [s.device.id for s in shards] == list(range(8)) and {s.replica_id for s in shards} == {0}
    for i, shard in enumerate(shards):
        same(shard.data, value[shard.index])
        assert shard.data.shape == (2, 2) and shard.data.devices() == {shard.device}
        same(a.addressable_data(i), value[shard.index])
    assert repr(shards[1]).startswith(
        "Shard(device=CpuDevice(id=1), index=(slice(0, 2, None), slice(2, 4, None)), replica_id=0"
    )
    assert a.on_device_size_in_bytes() == 128


def test_replicas_are_numbered_and_stored_once(mesh):
    value = np.arange(8, dtype=np.float32)
    b = weft.device_put(value, NamedSharding(mesh, P("y")))
    assert [s.replica_id for s in b.addressable_shards] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [s.index for s in b.addressable_shards][:2] == [(slice(0, 4),), (slice(4, 8),)]
    assert np.shares_memory(np.asarray(b.addressable_data(0)), np.asarray(b.addressable_data(2)))
    whole = weft.device_put(value, NamedSharding(mesh, P()))
    assert whole.is_fully_replicated and len(whole.addressable_shards) == 8 and whole.nbytes == 32


def test_committed_arrays_take_others_along(split):
    a, _ = split
    one = weft.devices()[1]
    x = weft.device_put(1.0, one)
    assert x.committed and (x + 1).devices() == {one} and (x + wnp.ones(3)).committed
    assert (x + wnp.ones(3)).devices() == {one}
    assert not (wnp.ones(3) + wnp.ones(3)).committed
    assert (a + wnp.ones(4)).sharding == a.sharding
    assert not weft.device_put(1.0).committed


def test_shardings_of_results(split, mesh):
    a, value = split
    for result, spec, want in [
        (a + 1, P("x", "y"), value + 1),
        (wnp.sin(a), P("x", "y"), np.sin(value)),
        (a.T, P("y", "x"), value.T),
        (a.sum(), P(), value.sum()),
        (a.sum(0), P("y"), value.sum(0)),
        (a[0], P("y"), value[0]),
    ]:
        assert result.sharding == NamedSharding(mesh, spec)
        np.testing.assert_allclose(np.asarray(result), want, rtol=1e-6)


def test_device_put_of_trees(mesh):
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "y"))
    tree = {"a": np.ones((8, 4), np.float32), "b": (wnp.ones(8), 2.0), "c": None}
    one = weft.device_put(tree, weft.devices()[3])
    assert {x.device.id for x in (one["a"], *one["b"])} == {3} and one["c"] is None
    put = weft.device_put([tree["a"], tree["b"][0]], [columns, rows])
    assert [x.sharding for x in put] == [columns, rows]
    prefix = weft.device_put([tree["a"], [wnp.ones(8), wnp.ones((4, 3))]], [columns, rows])
    assert [x.sharding for x in prefix[1]] == [rows, rows]
    same(put[0], tree["a"])


def test_device_put_where_it_already_lies_shares_memory(split):
    a, _ = split
    assert np.shares_memory(blocks(weft.device_put(a, a.sharding)), blocks(a))


def test_device_put_of_a_large_array_again_and_again(mesh):
    """NumPy copies it at first, then a compiled copy."""
    value = np.arange(1 << 19, dtype=np.float32).reshape(512, 1024)
    x = weft.device_put(value, NamedSharding(mesh, P("x", "y")))
    for _ in range(3):
        for spec in (P("y", "x"), P(None, ("x", "y")), P()):
            same(weft.device_put(x, NamedSharding(mesh, spec)), value)


def test_device_put_does_not_share_with_numpy():
    value = np.ones(1024, np.float32)
    x = weft.device_put(value)
    value[:] = 7
    same(x, np.ones(1024, np.float32))


def test_device_put_with_a_spec_and_a_mesh_in_context(mesh):
    with mesh:
        assert weft.device_put(wnp.ones(8), P("x")).sharding == NamedSharding(mesh, P("x"))


def test_device_get_of_trees(split):
    a, value = split
    got = weft.device_get({"a": a, "n": 1, "b": (wnp.arange(3), None)})
    assert type(got["a"]) is np.ndarray and got["n"] == 1 and got["b"][1] is None
    np.testing.assert_array_equal(got["a"], value)


def test_make_array_from_callback_asks_once_per_distinct_shard(mesh):
    value, asked = np.arange(8, dtype=np.float32), []
    x = weft.make_array_from_callback(
        (8,), NamedSharding(mesh, P("y")), lambda i: asked.append(i) or value[i]
    )
    same(x, value)
    assert sorted(i[0].start for i in asked) == [0, 4]
    with pytest.raises(ValueError, match=r"shard shape \(4,\).*shape \(1,\)"):
        weft.make_array_from_callback(
            (8,), NamedSharding(mesh, P("y")), lambda i: np.zeros(1, np.float32)
        )


def test_make_array_from_single_device_arrays(split):
    a, value = split
    parts = [s.data for s in a.addressable_shards]
    same(weft.make_array_from_single_device_arrays((8, 4), a.sharding, parts), value)
    with pytest.raises(ValueError, match="no array is on"):
        weft.make_array_from_single_device_arrays((8, 4), a.sharding, parts[:3])
    with pytest.raises(ValueError, match="Expected shard shape"):
        weft.make_array_from_single_device_arrays((16, 4), a.sharding, parts)


def test_make_array_from_process_local_data(split):
    a, value = split
    x = weft.make_array_from_process_local_data(a.sharding, value)
    assert x.sharding == a.sharding
    same(x, value)


def test_parameters_that_are_equal_but_not_the_same():
    x = wnp.arange(2.0)
    signs = [
        np.signbit(np.asarray(x.at[wnp.array([5])].get(mode="fill", fill_value=fill)))[0]
        for fill in (0.0, -0.0)
    ]
    assert signs == [False, True]


def test_the_pointer_of_an_array_is_that_of_its_numpy_view():
    x = wnp.arange(5.0)
    assert x.unsafe_buffer_pointer() == np.asarray(x).ctypes.data
    over = weft.device_put(
        wnp.zeros(2), weft.sharding.NamedSharding(weft.make_mesh((2,), ("a",)), weft.P("a"))
    )
    with pytest.raises(ValueError, match="several devices"):
        over.unsafe_buffer_pointer()


def test_names_that_libraries_know(split, mesh):
    a, value = split
    whole = weft.device_put(value, NamedSharding(mesh, P()))
    same(whole._fully_replicated_shard(), value)
    assert len(whole._fully_replicated_shard().devices()) == 1
    assert a._check_if_deleted() is None
    a.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        a._check_if_deleted()


def test_values_as_buffers(split):
    x = wnp.arange(6, dtype=np.float32).reshape(2, 3)
    view = x.__buffer__(0)
    assert view.readonly and view.shape == (2, 3) and view.tobytes() == np.asarray(x).tobytes()
    for y, flags in ((x, 1), (x.astype(wnp.bfloat16), 0), (random.key(0), 0)):
        with pytest.raises(BufferError, match=r"not supported|are immutable"):
            y.__buffer__(flags)
    with pytest.raises(
        BufferError,
        match=r"memoryview: float32.* is not in one memory\. Copy it with numpy\.asarray\.",
    ):
        split[0].__buffer__(0)
    if sys.version_info >= (3, 12):
        assert memoryview(x).tolist() == np.asarray(x).tolist()


def test_a_layout_that_is_left_open_is_no_place():
    from weft.experimental.layout import Format, Layout

    for given in (
        Format(Layout.AUTO),
        Format(Layout.AUTO, SingleDeviceSharding(weft.devices()[1])),
    ):
        with pytest.raises(ValueError, match=r"sharding and layout.*should be concrete"):
            weft.device_put(np.ones(3), given)
    assert weft.device_put(
        np.ones(3), Format(None, SingleDeviceSharding(weft.devices()[1]))
    ).committed


def test_rows_of_an_array_that_a_mesh_of_one_device_splits():
    mesh = weft.make_mesh((1,), ("i",), devices=weft.devices()[:1])
    for shape in [(3,), (3, 2)]:
        x = weft.device_put(
            np.arange(np.prod(shape), dtype=np.float32).reshape(shape), NamedSharding(mesh, P("i"))
        )
        rows = list(x)
        np.testing.assert_array_equal(rows, np.asarray(x))
        assert rows[0].shape == shape[1:] and rows[0].sharding.spec == P()


def test_pickled_arrays_have_64_bits_where_those_are_on():
    with weft.enable_x64(True):
        data = pickle.dumps(wnp.array([1.5, 2.5], "float64"))
        assert pickle.loads(data).dtype == np.float64
    x = pickle.loads(data)
    assert x.dtype == x.aval.dtype == np.float32 and x.tolist() == [1.5, 2.5]


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.4.0",
    reason="NumPy asks for the dtype of a value by name since 2.4",
)
def test_an_array_in_place_of_a_dtype_is_deprecated():
    with pytest.warns(DeprecationWarning, match="array to a dtype is deprecated"):
        assert np.dtype(wnp.arange(3)) == np.int32


@pytest.mark.parametrize("spec", [P(), P("x"), P("y", "x"), P(("x", "y")), P(None, "y")], ids=str)
def test_shards_from_a_sharding_and_a_shape(mesh, spec):
    x = weft.device_put(wnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, spec))
    for shard in x.addressable_shards:
        same = Shard(shard.device, x.sharding, x.shape, shard.data)
        assert (same.device, same.index, same.replica_id) == (
            shard.device,
            shard.index,
            shard.replica_id,
        )
        assert same.data is shard.data and Shard(shard.device, x.sharding, x.shape).data is None
    with pytest.raises(weft.errors.ShardingError, match="has no block on"):
        Shard(weft.devices()[1], SingleDeviceSharding(weft.devices()[0]), (2,))
