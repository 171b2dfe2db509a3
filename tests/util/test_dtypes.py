"""Dtypes: promotion, weak numbers, the 64-bit switch, families, names, scalar types."""

import copy
import itertools
import json
import os
import pickle
import subprocess
import warnings
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import weft.numpy
from weft._engine.util import dtypes as D
from weft._engine.util.config import Override, enable_x64, numpy_dtype_promotion
from weft._engine.util.errors import TypePromotionError

# One row per dtype or Python number (i*, f*, c*), with one column for each in the same order; no
# common dtype: ---
TABLE = """
      b1  u1  u2  u4  u8  i1  i2  i4  i8  bf  f2  f4  f8  c8  c16 i*  f*  c*
b1    b1  u1  u2  u4  u8  i1  i2  i4  i8  bf  f2  f4  f8  c8  c16 i*  f*  c*
u1    u1  u1  u2  u4  u8  i2  i2  i4  i8  bf  f2  f4  f8  c8  c16 u1  f*  c*
u2    u2  u2  u2  u4  u8  i4  i4  i4  i8  bf  f2  f4  f8  c8  c16 u2  f*  c*
u4    u4  u4  u4  u4  u8  i8  i8  i8  i8  bf  f2  f4  f8  c8  c16 u4  f*  c*
u8    u8  u8  u8  u8  u8  f*  f*  f*  f*  bf  f2  f4  f8  c8  c16 u8  f*  c*
i1    i1  i2  i4  i8  f*  i1  i2  i4  i8  bf  f2  f4  f8  c8  c16 i1  f*  c*
i2    i2  i2  i4  i8  f*  i2  i2  i4  i8  bf  f2  f4  f8  c8  c16 i2  f*  c*
i4    i4  i4  i4  i8  f*  i4  i4  i4  i8  bf  f2  f4  f8  c8  c16 i4  f*  c*
i8    i8  i8  i8  i8  f*  i8  i8  i8  i8  bf  f2  f4  f8  c8  c16 i8  f*  c*
bf    bf  bf  bf  bf  bf  bf  bf  bf  bf  bf  f4  f4  f8  c8  c16 bf  bf  c8
f2    f2  f2  f2  f2  f2  f2  f2  f2  f2  f4  f2  f4  f8  c8  c16 f2  f2  c8
f4    f4  f4  f4  f4  f4  f4  f4  f4  f4  f4  f4  f4  f8  c8  c16 f4  f4  c8
f8    f8  f8  f8  f8  f8  f8  f8  f8  f8  f8  f8  f8  f8  c16 c16 f8  f8  c16
c8    c8  c8  c8  c8  c8  c8  c8  c8  c8  c8  c8  c8  c16 c8  c16 c8  c8  c8
c16   c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16
i*    i*  u1  u2  u4  u8  i1  i2  i4  i8  bf  f2  f4  f8  c8  c16 i*  f*  c*
f*    f*  f*  f*  f*  f*  f*  f*  f*  f*  bf  f2  f4  f8  c8  c16 f*  f*  c*
c*    c*  c*  c*  c*  c*  c*  c*  c*  c*  c8  c8  c8  c16 c8  c16 c*  c*  c*
"""
NAMES = TABLE.split("\n")[1].split()
ROWS = {row.split()[0]: dict(zip(NAMES, row.split()[1:])) for row in TABLE.strip().split("\n")[1:]}
WEAK = {"i*": (1, "i8"), "f*": (1.5, "f8"), "c*": (1j, "c16")}


def dtype(name):
    return D.bfloat16 if name == "bf" else np.dtype(WEAK[name][1] if name in WEAK else name)


def argument(name):
    return WEAK[name][0] if name in WEAK else dtype(name)


@pytest.mark.parametrize("a", NAMES)
def test_promotion_with_64_bit_types(a):
    with enable_x64():
        for b, expected in ROWS[a].items():
            result = D.result_type(argument(a), argument(b), return_weak_type_flag=True)
            assert result == (dtype(expected), expected in WEAK), (a, b)


@pytest.mark.parametrize("a", NAMES)
def test_promotion_without_64_bit_types(a):
    narrow = {"u8": "u4", "i8": "i4", "f8": "f4", "c16": "c8"}
    for b in NAMES:
        expected = ROWS[narrow.get(a, a)][narrow.get(b, b)]
        result = D.result_type(argument(a), argument(b), return_weak_type_flag=True)
        assert result == (D.canonicalize_dtype(dtype(expected)), expected in WEAK), (a, b)


def test_comparisons_of_weak_numbers_promote_as_booleans():
    def dtypes_of(t):
        small = t < 1  # its type is weak, as is the type of t
        rows.append(
            [
                D.result_type(small),
                D.result_type(small, t < 2),
                D.result_type(small, t),
                D.result_type(small, np.int8(1)),
            ]
        )
        assert D.result_type(small, small, return_weak_type_flag=True) == (np.bool_, False)
        return small

    rows = []
    weft.jit(dtypes_of)(0)
    assert rows == [[np.bool_, np.bool_, np.int32, np.int8]]
    assert D.join_dtypes(((np.dtype(bool), True), (np.dtype(bool), True))) == (np.bool_, False)


def test_promotion_is_associative():
    names = ["b1", "u1", "u4", "i1", "i4", "bf", "f2", "f4", "c8"]
    for a, b, c in itertools.product(map(dtype, names), repeat=3):
        left = D.promote_types(D.promote_types(a, b), c)
        right = D.promote_types(a, D.promote_types(b, c))
        assert left == right == D.result_type(a, b, c)


@pytest.mark.parametrize("x64", [False, True])
def test_promote_types_names_dtypes_as_they_are(x64):
    with enable_x64(x64):
        assert D.promote_types("int64", "int8") == np.int64
        assert D.promote_types("uint64", "int8") == np.float64
        assert D.promote_types(float, int) == np.float64
        assert D.promote_types("float32", float) == np.float32
        assert D.promote_types("uint32", "int32") == (np.int64 if x64 else np.int32)


SMALL = ["float8_e4m3fn", "float8_e5m2", "int4", "uint4"]


@pytest.mark.parametrize("name", SMALL)
def test_small_types_meet_only_weak_numbers_and_what_is_below(name):
    is_float = name.startswith("float")
    assert D.result_type(D.as_dtype(name), 1) == name
    assert D.promote_types(name, "bool") == name
    if is_float:
        assert D.result_type(D.as_dtype(name), 1.5) == name
        assert D.promote_types(name, "int32") == name
    for other in {
        "float16",
        "bfloat16",
        "float32",
        *SMALL,
        *([] if is_float else ["int8", "uint8"]),
    } - {name}:
        with pytest.raises(TypePromotionError, match=r"not promoted together.*astype"):
            D.promote_types(name, other)


def test_strict_promotion():
    with numpy_dtype_promotion("strict"):
        assert D.result_type(np.float32(1), 1) == np.float32
        assert D.result_type(np.int8(1), 1) == np.int8
        assert D.result_type(1, 2.0) == np.float32
        assert D.result_type(np.float32(1), np.float32(1)) == np.float32
        for a, b in [
            (np.int32(1), np.float32(1)),
            (np.int32(1), 1.0),
            (np.int8(1), np.int32(1)),
            (True, 1),
        ]:
            with pytest.raises(TypePromotionError, match="strict"):
                D.result_type(a, b)
    assert D.result_type(np.int32(1), 1.0) == np.float32


def weak_array(name):
    return SimpleNamespace(dtype=D.as_dtype(name), weak_type=True)


WEAK_JOINS = [
    ("int8", "int8", "int64"), ("uint8", "uint8", "uint64"), ("int8", "uint8", "int64"),
    ("float16", "int32", "float64"), ("bfloat16", "float32", "float64"), ("int32", "complex64", "complex128"),
]  # fmt: skip


@pytest.mark.parametrize("a, b, expected", WEAK_JOINS)
@pytest.mark.parametrize("x64", [False, True])
def test_weak_arrays_among_themselves_take_the_widest_dtype(a, b, expected, x64):
    with enable_x64(x64):
        result = D.result_type(weak_array(a), weak_array(b), return_weak_type_flag=True)
        assert result == (D.canonicalize_dtype(expected), True)


def test_weak_arrays_give_way_like_python_numbers():
    assert D.result_type(weak_array("float32"), np.float16(1), return_weak_type_flag=True) == (
        np.float16,
        False,
    )
    assert D.result_type(weak_array("int32"), np.int8(1)) == np.int8
    assert D.result_type(weak_array("float32"), np.int8(1), return_weak_type_flag=True) == (
        np.float32,
        True,
    )


def test_what_result_type_takes():
    assert D.result_type(np.zeros(3)) == np.float32
    assert D.result_type("int64") == np.int32
    assert D.result_type(int, np.int8) == np.int8
    assert D.result_type(np.int64, np.int8) == np.int32  # a NumPy type is not a weak number
    assert D.result_type(np.dtype("int64"), np.int8(1)) == np.int32
    assert D.result_type(None) == np.float32
    assert D.result_type(np.float64(2), 1) == np.float32
    assert D.result_type(True, return_weak_type_flag=True) == (np.bool_, False)
    with pytest.raises(ValueError, match="at least one"):
        D.result_type()
    with pytest.raises(TypeError, match="has no dtype"):
        D.result_type(object())
    with pytest.raises(TypeError, match="not one that arrays hold"):
        D.result_type(np.dtype("U3"), 1)
    with pytest.raises(TypeError, match="float0s do not support any operations"):
        D.promote_types(D.float0, "int32")


def test_the_64_bit_switch():
    pairs = {"float64": "float32", "int64": "int32", "uint64": "uint32", "complex128": "complex64"}
    for wide, narrow in pairs.items():
        for spelling in (wide, np.dtype(wide), np.dtype(wide).type, D.scalar_types[wide]):
            assert D.canonicalize_dtype(spelling) == np.dtype(narrow)
            with enable_x64():
                assert D.canonicalize_dtype(spelling) == np.dtype(wide)
            assert D.canonicalize_dtype(spelling) == np.dtype(narrow)
    for name in ("float32", "bfloat16", "int4", "bool", "float8_e5m2"):
        assert D.canonicalize_dtype(name) == D.as_dtype(name)
    assert D.canonicalize_dtype(float) == np.float32
    assert D.canonicalize_dtype(">f4") == np.float32
    assert D.result_type(np.arange(3, dtype=">i2"), np.int8) == np.int16
    assert isinstance(D.canonicalize_dtype(D.scalar_types["float64"]), np.dtype)


def test_the_warning_of_a_cut_dtype_is_at_the_users_line():
    x = weft.numpy.ones(3)
    with pytest.warns(UserWarning, match="requested dtype float64") as caught:
        x.astype(np.float64)
    assert [w.filename for w in caught] == [__file__]


def test_a_64_bit_dtype_asked_for_by_name_is_cut_with_a_warning():
    with pytest.warns(
        UserWarning,
        match="zeros: Explicitly requested dtype float64 is not available and float32 is used",
    ):
        assert D.check_dtype(np.float64, "zeros") == np.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert D.check_dtype(float) == np.float32  # no width was requested
        assert D.check_dtype("int8") == np.int8
        with enable_x64():
            assert D.check_dtype("float64") == np.float64
    with Override(explicit_x64_dtypes="error"), pytest.raises(ValueError, match="enable_x64"):
        D.check_dtype("int64")
    with Override(explicit_x64_dtypes="allow"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert D.check_dtype("int64") == np.int64 and D.named_dtype(np.float64) == np.float64
        assert D.check_dtype(float) == D.canonicalize_dtype(np.float64) == np.float32
    with pytest.raises(TypeError, match="asarray: dtype object is not one that arrays hold"):
        D.check_dtype(object, "asarray")


def test_dtype_and_weakness_of_values():
    import enum

    class Level(enum.IntEnum):
        LOW = 1

    class Half(float):
        pass

    for value, name, weak in [
        (1, "int32", True), (1.5, "float32", True), (1j, "complex64", True), (True, "bool", False),
        (np.float64(1), "float32", False), (np.int8(1), "int8", False), (np.zeros(2, D.bfloat16), "bfloat16", False),
        (np.bool_(True), "bool", False), (Level.LOW, "int32", True), (Half(1), "float32", True),
        (weak_array("int8"), "int8", True), ([1.0, 2], "float32", False),
    ]:  # fmt: skip
        assert (D.dtype_of(value), D.is_weak(value)) == (D.as_dtype(name), weak), value


FAMILIES = {
    np.signedinteger: ["int4", "int8", "int64"],
    np.unsignedinteger: ["uint4", "uint8", "uint64"],
    np.integer: ["int4", "uint4", "int8", "uint64"],
    np.floating: ["bfloat16", "float8_e4m3fn", "float16", "float64"],
    np.complexfloating: ["complex64", "complex128"],
    np.inexact: ["bfloat16", "float8_e5m2", "float32", "complex64"],
    np.number: ["int4", "int8", "bfloat16", "float32", "complex64"],
    np.bool_: ["bool"],
    np.generic: ["bool", "int4", "bfloat16", "float32"],
}
SAMPLES = ["bool", "int4", "uint4", "int8", "uint8", "int64", "uint64", "bfloat16", "float8_e4m3fn", "float8_e5m2",
           "float16", "float32", "float64", "complex64", "complex128"]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_families(family):
    kinds = {np.bool_: "b", np.signedinteger: "i", np.unsignedinteger: "u", np.integer: "iu", np.floating: "f",
             np.complexfloating: "c", np.inexact: "fc", np.number: "iufc", np.generic: "biufc"}[family]  # fmt: skip
    for name in SAMPLES:
        letter = "f" if name.startswith("bfloat") else name[0]
        assert D.issubdtype(name, family) == (letter in kinds)
        assert D.issubdtype(D.as_dtype(name), family) == (letter in kinds)
    assert all(D.issubdtype(name, family) for name in FAMILIES[family])


def test_issubdtype_between_types():
    assert D.issubdtype(np.floating, np.inexact)
    assert not D.issubdtype(np.inexact, np.floating)
    assert D.issubdtype("float32", np.float32)
    assert not D.issubdtype("float32", "float64")
    assert not D.issubdtype(np.float32, float)
    assert D.issubdtype(int, np.integer)
    assert not D.issubdtype(np.floating, np.float32)
    assert D.issubdtype(D.scalar_types["bfloat16"], np.floating)
    assert D.issubdtype("float32", D.scalar_types["float32"])
    assert not D.issubdtype(D.float0, np.bool_)
    assert D.issubdtype(D.float0, np.generic)
    with pytest.raises(TypeError):
        D.issubdtype("float32", "no such thing")


def test_isdtype():
    assert D.isdtype("bfloat16", "real floating")
    assert D.isdtype("uint4", "integral")
    assert not D.isdtype("bool", "numeric")
    assert D.isdtype("complex64", ("bool", "complex floating"))
    assert D.isdtype("int8", np.int8)
    with pytest.raises(ValueError, match="'floating'"):
        D.isdtype("int8", "floating")


def test_key_dtypes():
    fry = D.KeyDType(SimpleNamespace(tag="fry", key_shape=(2,)))
    other = D.KeyDType(SimpleNamespace(tag="rbg", key_shape=(4,)))
    assert (repr(fry), fry.name, fry.itemsize, D.short_name(fry)) == (
        "key<fry>",
        "key<fry>",
        8,
        "key<fry>",
    )
    assert fry == D.KeyDType(fry.impl)
    assert hash(fry) == hash(D.KeyDType(fry.impl))
    assert fry != other
    assert fry != np.dtype("float32")
    assert D.is_extended(fry)
    assert not D.is_extended(np.dtype("float32"))
    assert D.issubdtype(fry, D.prng_key)
    assert D.issubdtype(fry, D.extended)
    assert D.issubdtype(fry, np.generic)
    assert not D.issubdtype(fry, np.number)
    assert not D.issubdtype("float32", D.extended)
    assert D.issubdtype(D.prng_key, D.extended)
    assert D.canonicalize_dtype(fry) is fry
    with pytest.raises(ValueError, match="not a dtype of numbers"):
        D.canonicalize_dtype(fry, allow_extended_dtype=False)
    key = SimpleNamespace(dtype=fry)
    assert D.result_type(key, key) == fry
    assert D.promote_types(fry, fry) == fry
    for a, b in [(key, 1), (fry, other), (fry, np.dtype("int32"))]:
        with pytest.raises(TypePromotionError, match="a key is not a number"):
            D.result_type(a, b)
    with pytest.raises(TypePromotionError, match="a key is not a number"):
        D.promote_types(fry, "int32")


def test_limits():
    assert D.finfo("float32").eps == np.finfo(np.float32).eps
    assert float(D.finfo("float8_e4m3fn").max) == 448.0
    assert D.finfo("complex64").dtype == np.float32
    assert (D.iinfo("int4").min, D.iinfo("int4").max) == (-8, 7)
    assert D.iinfo(np.uint16).max == 65535
    with pytest.raises(ValueError, match="int32 is not a floating"):
        D.finfo("int32")
    with pytest.raises(ValueError, match="bfloat16 is not an integer"):
        D.iinfo("bfloat16")
    assert [D.itemsize_bits(name) for name in ("bool", "int4", "bfloat16", "complex128")] == [
        8,
        4,
        16,
        128,
    ]


def test_limits_are_classes_of_their_objects():
    assert all(
        isinstance(D.finfo(name), D.finfo)
        for name in ("float32", "bfloat16", "float8_e5m2", "complex64")
    )
    assert all(isinstance(D.iinfo(name), D.iinfo) for name in ("int8", "int4", "uint64"))
    assert not isinstance(D.iinfo("int8"), D.finfo) and not isinstance(1.0, D.finfo)
    assert D.finfo | None


def test_no_dtype_is_float64_as_in_numpy():
    assert D.promote_types("int8", None) == D.promote_types(None, None) == np.float64
    assert (
        D.finfo(None).bits == 64
        and D.issubdtype(None, np.floating)
        and D.isdtype(None, "real floating")
    )
    with pytest.raises(ValueError, match="float64 is not an integer"):
        D.iinfo(None)


NEIGHBOURS = [  # dtype, inexact, complex, real
    ("bool", "float32", "complex64", "bool"),
    ("int4", "float32", "complex64", "int4"),
    ("int32", "float32", "complex64", "int32"),
    ("int64", "float64", "complex128", "int64"),
    ("bfloat16", "bfloat16", "complex64", "bfloat16"),
    ("float16", "float16", "complex64", "float16"),
    ("float64", "float64", "complex128", "float64"),
    ("complex64", "complex64", "complex64", "float32"),
    ("complex128", "complex128", "complex128", "float64"),
]


@pytest.mark.parametrize("name, inexact, complex_, real", NEIGHBOURS)
def test_neighbours(name, inexact, complex_, real):
    with enable_x64():
        assert D.to_inexact_dtype(name) == D.as_dtype(inexact)
        assert D.to_complex_dtype(name) == D.as_dtype(complex_)
        assert D.to_real_dtype(name) == D.as_dtype(real)
    assert D.to_inexact_dtype("int64") == np.float32


def test_defaults_follow_the_switch():
    defaults = [D.default_int_dtype(), D.default_uint_dtype(), D.default_float_dtype()]
    assert defaults == ["int32", "uint32", "float32"]
    with enable_x64():
        assert D.default_float_dtype() == np.float64


def test_short_names_are_unique():
    names = {dtype: D.short_name(dtype) for dtype in D.all_dtypes}
    assert len(set(names.values())) == len(names)
    assert names[D.bfloat16] == "bf16"
    assert names[np.dtype("bool")] == "bool"
    assert D.short_name(D.as_dtype("float8_e4m3fn")) == "f8_e4m3fn"
    assert D.short_name(D.float0) == "float0"


def test_scalar_type_of():
    assert [D.scalar_type_of(x) for x in (True, np.int8(1), D.bfloat16.type(1), 1j)] == [
        bool,
        int,
        float,
        complex,
    ]
    assert D.scalar_type_of(np.zeros(2, "uint8")) is int


# ---- scalar types


@pytest.mark.parametrize("name", [dtype.name for dtype in D.all_dtypes])
def test_scalar_types_stand_for_their_dtype(name):
    scalar, dtype = D.scalar_types[name], D.as_dtype(name)
    assert scalar == dtype
    assert dtype == scalar
    assert scalar == dtype.type
    assert hash(scalar) == hash(dtype.type)
    assert np.dtype(scalar) == dtype
    assert np.zeros(3, scalar).dtype == dtype
    assert np.ones(2).astype(scalar).dtype == dtype
    assert D.as_dtype(scalar) is dtype
    assert isinstance(dtype.type(1), scalar)
    assert not isinstance("text", scalar)
    assert repr(scalar) == f"<class 'weft.numpy.{name}'>"
    assert scalar.dtype is dtype
    assert scalar != "no such dtype"
    assert {dtype.type: 1}[scalar] == 1 and {scalar: 1}[dtype.type] == 1
    assert pickle.loads(pickle.dumps(scalar)) is scalar
    assert copy.deepcopy(scalar) is scalar


def test_scalar_types_differ():
    types = list(D.scalar_types.values())
    assert len(set(types)) == len(types)
    assert D.scalar_types["float32"] != D.scalar_types["float64"]


def test_scalar_types_make_arrays():
    scalar = D.scalar_types["bfloat16"](2)
    assert isinstance(scalar, weft.Array) and scalar.dtype == D.bfloat16 and scalar == 2


def test_float0_has_no_bytes():
    assert D.float0.itemsize == 0
    assert np.zeros(3, D.float0).nbytes == 0


def test_dtypes_survive_pickling():
    assert pickle.loads(pickle.dumps(D.bfloat16)) == D.bfloat16
    assert D.canonicalize_dtype(pickle.loads(pickle.dumps(np.dtype("float64")))) == np.float32
    assert D.bfloat16.type is ml_dtypes.bfloat16


# ---- the whole table against the peer

_PEER = """
import itertools, json, sys, warnings
warnings.simplefilter("ignore")
import jax, numpy as np
names, numbers = json.loads(sys.argv[1]), {"i*": 1, "f*": 1.5, "c*": 1j}
read = lambda name: numbers[name] if name in numbers else np.dtype(name)
table = {}
for x64, mode in itertools.product((False, True), ("standard", "strict")):
    jax.config.update("jax_enable_x64", x64)
    jax.config.update("jax_numpy_dtype_promotion", mode)
    for a, b in itertools.product(names, names):
        try:
            result = jax.dtypes.result_type(read(a), read(b), return_weak_type_flag=True)
            table[f"{x64} {mode} {a} {b}"] = [str(result[0]), bool(result[1])]
        except jax.dtypes.TypePromotionError:
            table[f"{x64} {mode} {a} {b}"] = None
print(json.dumps(table))
"""


@pytest.mark.oracle
def test_the_whole_table_against_the_peer():
    python = os.environ.get("WEFT_ORACLE_PYTHON")
    if not python:
        pytest.skip("WEFT_ORACLE_PYTHON names no Python that has the peer")
    names = [dtype.name for dtype in D.all_dtypes if not dtype.name.startswith("float6")] + list(
        WEAK
    )
    run = subprocess.run(
        [python, "-c", _PEER, json.dumps(names)], capture_output=True, text=True, check=True
    )
    expected = json.loads(run.stdout)
    assert len(expected) == 4 * len(names) ** 2
    for case, peer in expected.items():
        x64, mode, a, b = case.split()
        with Override(enable_x64=x64 == "True", numpy_dtype_promotion=mode):
            try:
                result, weak = D.result_type(*(WEAK[x][0] if x in WEAK else D.as_dtype(x) for x in (a, b)),
                                            return_weak_type_flag=True)  # fmt: skip
                result = [result.name, weak]
            except TypePromotionError:
                result = None
        assert result == peer, case


def test_no_dtype_is_numpys_default():
    assert D.canonicalize_dtype(None) == np.float32
    with enable_x64(True):
        assert D.canonicalize_dtype(None) == np.float64
