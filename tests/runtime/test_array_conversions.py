"""Iteration, conversion and printing of `Array`; exchange with NumPy and DLPack; copies.

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
from tests.runtime.array_checks import blocks, same
from weft import random
from weft.sharding import NamedSharding, PartitionSpec as P


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


def test_numpy_views_share_memory_and_are_read_only(mesh):
    x = wnp.arange(1024.0)
    view = np.asarray(x)
    assert np.shares_memory(view, np.asarray(x)) and not view.flags.writeable
    assert np.array(x).flags.writeable and not np.shares_memory(np.array(x), view)
    assert np.asarray(x, np.float64).dtype == np.float64
    rows = weft.device_put(wnp.arange(64.0).reshape(8, 8), NamedSharding(mesh, P("x")))
    assert np.shares_memory(np.asarray(rows), np.asarray(rows))  # shards of rows are contiguous
    assert np.shares_memory(np.asarray(rows), np.asarray(rows.addressable_shards[3].data))


def test_a_copy_can_be_forbidden(split):
    x = wnp.arange(4.0)
    assert np.shares_memory(np.asarray(x, copy=False), np.asarray(x))
    for array, dtype in ((x, np.float64), (split[0], None)):
        with pytest.raises(
            ValueError, match=r"no NumPy view|avoid copy"
        ):  # NumPy raises the error if it reads the buffer itself
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


def test_copies_of_sharded_arrays(split):
    a, value = split
    same(pickle.loads(pickle.dumps(a)), value)
    for clone in (copy.copy(a), copy.deepcopy(a)):
        same(clone, value)
        assert clone.sharding == a.sharding and clone.committed
    assert not np.shares_memory(blocks(copy.deepcopy(a)), blocks(a))


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
            number = convert(x)
            assert number == convert(want) and type(number) is type(convert(want))
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
