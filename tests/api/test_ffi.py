"""`weft.ffi`: native functions with the calling convention of XLA's typed FFI, parsed here by
independent structures."""

import ctypes
import itertools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import ffi
from weft.errors import JaxRuntimeError
from weft.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
numbers = itertools.count()


def words(address: int, n: int) -> list[int]:
    return list((ctypes.c_uint64 * n).from_address(address))


def buffer(address: int) -> np.ndarray:
    """Return the array of a buffer: {size, extension, dtype, data, rank, dims}."""
    size, extension, dtype, data, rank, dims = words(address, 6)
    assert (size, extension) == (48, 0)
    shape = words(dims, rank) if rank else []
    kind = {4: np.int32, 8: np.uint32, 11: np.float32}[dtype & 0xFFFFFFFF]
    count = int(np.prod(shape))
    return np.frombuffer((ctypes.c_char * (count * 4)).from_address(data), kind).reshape(shape)


def read(frame: int) -> dict:
    """Parse a call frame: {size, extension, api, context, stage, args (5), rets (5), attrs (6)}, in
    words of eight bytes."""
    size, extension, api, context, stage, *parts = words(frame, 21)
    assert (size, extension, context, stage & 0xFFFFFFFF) == (168, 0, 0, 3)
    (args, rets), attrs = (parts[:5], parts[5:10]), parts[10:]
    assert args[0] == rets[0] == 40 and attrs[0] == 48
    fields = {}
    for i in range(attrs[2]):
        kind = (ctypes.c_int * attrs[2]).from_address(attrs[3])[i]
        pointer, length = words(words(attrs[4], attrs[2])[i], 2)
        name, value = ctypes.string_at(pointer, length).decode(), words(attrs[5], attrs[2])[i]
        a, b = words(value, 2)
        if kind == 4:
            fields[name] = ctypes.string_at(a, b).decode()
        elif kind == 3:
            fields[name] = (
                {5: ctypes.c_int64, 11: ctypes.c_float, 12: ctypes.c_double, 1: ctypes.c_bool}[
                    a & 0xFF
                ]
                .from_address(b)
                .value
            )
        elif kind == 1:
            fields[name] = list((ctypes.c_int64 * b).from_address(words(value, 3)[2]))
        else:
            fields[name] = words(value, 3)[2]  # a dictionary: the number of entries
    return {
        "api": api,
        "args": [buffer(p) for p in words(args[4], args[2])],
        "rets": [buffer(p) for p in words(rets[4], rets[2])],
        "attrs": fields,
    }


def registered(function) -> str:
    """Register a handler that calls a Python function with the parsed arguments, and return its
    name."""
    name, failures = f"tests.{next(numbers)}", []

    @HANDLER
    def handler(frame):
        try:
            return function(read(frame))
        except Exception as error:
            failures.append(error)

    ffi.register_ffi_target(name, ffi.pycapsule(handler))
    registered.alive.append((handler, failures))
    return name


registered.alive = []


def test_buffers_and_attributes_arrive():
    seen = []

    def f(call):
        x, y = call["args"]
        call["rets"][0][...] = x * 2 + y
        call["rets"][1][...] = y.sum()
        seen.append(call["attrs"])

    name = registered(f)
    types = (weft.ShapeDtypeStruct((2, 3), "float32"), weft.ShapeDtypeStruct((), "int32"))
    x, y = wnp.arange(6.0).reshape(2, 3), wnp.array([1, 2, 3])
    attributes = {
        "zeta": "text",
        "alpha": np.float32(1.5),
        "wide": 2,
        "flag": True,
        "many": np.arange(3),
        "sub": {"a": 1},
    }
    call = lambda x, y: ffi.ffi_call(name, types)(x, y, **attributes)
    for run in (call, weft.jit(call)):
        first, second = run(x, y)
        np.testing.assert_array_equal(first, 2 * np.asarray(x) + [1, 2, 3])
        assert int(second) == 6
    assert not registered.alive[-1][1]
    assert seen[0] == {
        "zeta": "text",
        "alpha": 1.5,
        "wide": 2,
        "flag": True,
        "many": [0, 1, 2],
        "sub": 1,
    }
    assert list(seen[0]) == sorted(seen[0])


def test_of_random_keys_the_data_arrives():
    keys = weft.random.split(weft.random.key(0), 3)

    def f(call):
        call["rets"][0][...] = call["args"][0][::-1]
        call["rets"][1][...] = call["args"][0].shape

    call = ffi.ffi_call(
        registered(f),
        (weft.ShapeDtypeStruct((3,), keys.dtype), weft.ShapeDtypeStruct((2,), "int32")),
    )
    for run in (call, weft.jit(call)):
        turned, shape = run(keys)
        assert (
            turned.dtype == keys.dtype and (turned == keys[::-1]).all() and shape.tolist() == [3, 2]
        )
    assert not registered.alive[-1][1]


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_batches_loops_and_devices(method):
    shapes = []

    def f(call):
        shapes.append(call["args"][0].shape)
        call["rets"][0][...] = call["args"][0] + call["args"][1]

    call = lambda x, y: ffi.ffi_call(
        registered.name, weft.ShapeDtypeStruct((3,), "float32"), vmap_method=method
    )(x, y)
    registered.name = registered(f)
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    np.testing.assert_array_equal(weft.jit(weft.vmap(call, (0, None)))(x, y), x + 1)
    assert shapes[-1] == ((3,) if method == "sequential" else (2, 3))
    total, _ = weft.lax.scan(lambda c, row: (call(c, row), None), wnp.ones(3), x)
    np.testing.assert_array_equal(total, 1 + x.sum(0))


def test_errors_of_the_function_are_raised():
    def f(call):
        table = call["api"]  # {size, extension, version (24), internal, error_create, ...}
        create = HANDLER(words(table, 7)[6])
        message = ctypes.c_char_p(b"the operand is too small")
        asked = (ctypes.c_uint64 * 4)(32, 0, ctypes.cast(message, ctypes.c_void_p).value, 3)
        return create(ctypes.addressof(asked))

    call = ffi.ffi_call(registered(f), weft.ShapeDtypeStruct((), "float32"))
    for run in (call, weft.jit(call)):
        with pytest.raises(JaxRuntimeError, match="INVALID_ARGUMENT: the operand is too small"):
            np.asarray(run(wnp.ones(2)))


def test_aliases_and_effects():
    def f(call):
        call["rets"][0][0] = 7

    name, x = registered(f), wnp.ones(3)
    out = ffi.ffi_call(
        name,
        weft.ShapeDtypeStruct((3,), "float32"),
        input_output_aliases={0: 0},
        has_side_effect=True,
    )(x)
    np.testing.assert_array_equal(out, [7, 1, 1])
    np.testing.assert_array_equal(x, np.ones(3))


def test_functions_of_other_platforms_are_lowered_by_name():
    f = weft.jit(lambda x: ffi.ffi_call("tests.on_gpu", weft.ShapeDtypeStruct((3,), "float32"))(x))
    mesh = AbstractMesh((4,), ("x",), abstract_device=AbstractDevice("gpu", 1, "cuda"))
    with use_abstract_mesh(mesh):
        assert "@tests.on_gpu" in f.lower(wnp.ones(3)).as_text()
        with pytest.raises(RuntimeError, match=r"no function is registered as 'tests\.on_gpu'"):
            np.asarray(f(wnp.ones(3)))


def test_no_results():
    counts = []
    call = ffi.ffi_call(
        registered(lambda call: counts.append(len(call["args"]))), (), has_side_effect=True
    )
    assert weft.jit(lambda x: call(x))(1.0) == () and counts == [1]


def test_misuse():
    one = weft.ShapeDtypeStruct((), "float32")
    name = registered(lambda call: None)
    with pytest.raises(ValueError, match=r"no function is registered as 'tests\.none'"):
        ffi.ffi_call("tests.none", one)(1.0)
    with pytest.raises(ValueError, match=r"no function is registered as 'tests\.none'"):
        weft.make_jaxpr(lambda x: ffi.ffi_call("tests.none", one)(x))(1.0)
    with pytest.raises(ValueError, match="is registered already"):
        ffi.register_ffi_target(name, ffi.pycapsule(HANDLER(lambda frame: None)))
    with pytest.raises(TypeError, match="fn is a capsule"):
        ffi.register_ffi_target("tests.other", print)
    with pytest.raises(NotImplementedError, match="platform 'CUDA'"):
        ffi.register_ffi_target("tests.other", None, platform="CUDA")
    with pytest.raises(NotImplementedError, match="api_version=0"):
        ffi.register_ffi_target("tests.other", None, api_version=0)
    with pytest.raises(NotImplementedError, match="row-major"):
        ffi.ffi_call(name, one, input_layouts=[(1, 0)])
    with pytest.raises((TypeError, RuntimeError), match="attribute 'x' is a number"):
        np.asarray(ffi.ffi_call(name, one)(x=object()))


def test_arrays_say_the_types_of_results():
    name = registered(lambda frame: np.copyto(frame["rets"][0], 3))
    assert ffi.ffi_call(name, [wnp.zeros(2)])()[0].tolist() == [3, 3]
    assert ffi.ffi_call(name, np.zeros(2, np.float32))().tolist() == [3, 3]


@pytest.mark.parametrize(
    "types, position",
    [
        (None, 0),
        ((weft.ShapeDtypeStruct((), "float32"), ()), 1),
        (3.0, 0),
        ([weft.ShapeDtypeStruct((), "float32"), None], 1),
    ],
)
def test_results_are_types(types, position):
    with pytest.raises(
        ValueError,
        match=f"result_shape_dtypes must have a shape and a dtype; at position {position}",
    ):
        ffi.ffi_call("tests.none", types)


@pytest.mark.parametrize("has_side_effect", [False, True])
@pytest.mark.parametrize(
    "derive",
    [
        lambda f: weft.jvp(f, (0.5,), (0.5,)),
        lambda f: weft.grad(f)(0.5),
        lambda f: weft.jit(weft.jacfwd(f))(0.5),
    ],
    ids=["jvp", "grad", "jit"],
)
def test_calls_have_no_derivative(derive, has_side_effect):
    call = ffi.ffi_call(
        "tests.none", weft.ShapeDtypeStruct((), "float32"), has_side_effect=has_side_effect
    )
    with pytest.raises(ValueError, match=r"the call to `tests\.none` cannot be differentiated"):
        derive(lambda x: call(x, scale={"by": 2}))
