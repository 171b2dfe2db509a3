"""Consumers of arrays with every dim order: each reads the right values, and none assumes row-major
memory."""

import copy
import ctypes
import pickle
import sys

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.experimental.layout import Format, Layout
from weft.experimental.serialize_executable import deserialize_and_load, serialize
from weft.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding

COLUMNS = Layout((1, 0), ())
SQUARE = np.arange(64.0, dtype="float32").reshape(
    8, 8
)  # a square read in the wrong order has no wrong shape that would reveal it
WIDE = np.arange(32.0, dtype="float32").reshape(4, 8)


def place(name):
    mesh = weft.make_mesh((4, 2), ("a", "b"))
    return (
        SingleDeviceSharding(weft.devices()[0])
        if name == "one device"
        else NamedSharding(mesh, P("b", "a"))
    )


def written(x):
    ref = weft.new_ref(x)
    ref[1] = 0.0
    return ref[...]


def restored(x, folder):
    weft.checkpoint.save(folder, {"x": x}, step=0).wait()
    array = weft.checkpoint.restore(folder, {"x": x})["x"]
    assert array.format == x.format
    return array


def by_shard_map(x, jitted):
    mesh = weft.make_mesh((4, 2), ("a", "b"))
    f = weft.shard_map(
        lambda b: b * 2 + weft.lax.axis_index("a"),
        mesh=mesh,
        in_specs=P("a", "b"),
        out_specs=P("a", "b"),
    )
    return (weft.jit(f) if jitted else f)(weft.device_put(x, NamedSharding(mesh, P("b", "a"))))


def doubled_by_callback(x):
    return weft.pure_callback(
        lambda x: np.asarray(x) * 2, weft.ShapeDtypeStruct(x.shape, x.dtype), x
    )


def times_rows(v):
    return v * 2 + np.repeat(np.arange(4, dtype="float32"), len(v) // 4)[:, None]


def with_row(v, row):
    v = v.copy()
    v[1] = row
    return v


#: the uses of an array: a function of the array (and a folder), and the function from the array's
#: value to the result; None: the blocks of shards
CONSUMERS = {
    "asarray": (np.asarray, lambda v: v),
    "array of a dtype": (lambda x: np.array(x, dtype="int32"), lambda v: v.astype("int32")),
    "tolist": (lambda x: np.array(x.tolist()), lambda v: v),
    "item": (lambda x: x.item(9), lambda v: v.item(9)),
    "items": (lambda x: x.item(1, 2), lambda v: v[1, 2]),
    "tobytes": (lambda x: np.frombuffer(x.tobytes(), "f4"), np.ravel),
    "flat": (lambda x: list(x.flat)[5], lambda v: v.flat[5]),
    "iteration": (list, list),
    "device_get": (weft.device_get, lambda v: v),
    "pickle": (lambda x: pickle.loads(pickle.dumps(x)), lambda v: v),
    "copy": (copy.copy, lambda v: v),
    "deepcopy": (copy.deepcopy, lambda v: v),
    "x.copy": (lambda x: x.copy(), lambda v: v),
    "dlpack": (lambda x: np.from_dlpack(weft.device_put(x, weft.devices()[0])), lambda v: v),
    "checkpoint": (restored, lambda v: v),
    "row": (lambda x: x[1], lambda v: v[1]),
    "element": (lambda x: x[1, 2], lambda v: v[1, 2]),
    "block": (lambda x: x[1:3, 2:], lambda v: v[1:3, 2:]),
    "gather": (lambda x: x[np.array([2, 0])], lambda v: v[[2, 0]]),
    "mask": (lambda x: x[x > 9], lambda v: v[v > 9]),
    "set": (lambda x: x.at[1].set(0.0), lambda v: with_row(v, 0)),
    "ref": (written, lambda v: with_row(v, 0)),
    "add": (lambda x: x + x, lambda v: v + v),
    "add NumPy": (lambda x: x + np.asarray(x), lambda v: v + v),
    "transpose": (lambda x: x.T, lambda v: v.T),
    "ravel": (wnp.ravel, np.ravel),
    "sum": (lambda x: x.sum(0), lambda v: v.sum(0)),
    "product": (lambda x: x @ x.T, lambda v: v @ v.T),
    "cumsum": (lambda x: wnp.cumsum(x, 0), lambda v: np.cumsum(v, 0)),
    "sort": (lambda x: wnp.sort(-x, axis=0), lambda v: np.sort(-v, axis=0)),
    "cast": (lambda x: x.astype("int8"), lambda v: v.astype("int8")),
    "stack": (lambda x: wnp.array([x, x]), lambda v: np.stack([v, v])),
    "nonzero": (lambda x: wnp.nonzero(x)[1], lambda v: np.nonzero(v)[1]),
    "norm": (wnp.linalg.norm, np.linalg.norm),
    "fft": (wnp.fft.fft, np.fft.fft),
    "jit": (lambda x: weft.jit(lambda x: x[1] * x)(x), lambda v: v[1] * v),
    "closed over": (lambda x: weft.jit(lambda y: x * y)(2.0), lambda v: v * 2),
    "scan": (
        lambda x: weft.lax.scan(lambda c, r: (c + r, c), 0 * x[0], x)[1],
        lambda v: np.cumsum(v, 0) - v,
    ),
    "cond": (
        weft.jit(lambda x: weft.lax.cond(x[0, 1] > 0, lambda x: x.T, lambda x: 2 * x.T, x)),
        lambda v: v.T,
    ),
    "grad": (weft.grad(lambda x: (x**3).sum()), lambda v: 3 * v**2),
    "jvp": (lambda x: weft.jvp(wnp.square, (x,), (x,))[1], lambda v: 2 * v * v),
    "vmap": (weft.vmap(lambda r: r * r[1]), lambda v: v * v[:, 1:2]),
    "vmap of columns": (weft.vmap(lambda r: r * r[1], 1, 1), lambda v: v * v[1:2]),
    "pmap": (
        lambda x: weft.pmap(lambda r: r * r[1], devices=weft.devices()[: len(x)])(x),
        lambda v: v * v[:, 1:2],
    ),
    "shard_map": (lambda x: by_shard_map(x, False), times_rows),
    "jitted shard_map": (lambda x: by_shard_map(x, True), times_rows),
    "callback": (doubled_by_callback, lambda v: v * 2),
    "jitted callback": (weft.jit(doubled_by_callback), lambda v: v * 2),
    "to a device": (lambda x: weft.device_put(x, weft.devices()[1]), lambda v: v),
    "to row-major": (lambda x: weft.device_put(x, Format(None, x.sharding)), lambda v: v),
    "shards": (lambda x: [s.data for s in x.addressable_shards], lambda v: None),
    "all shards": (lambda x: [s.data for s in x.global_shards], lambda v: None),
    "of shards": (
        lambda x: weft.make_array_from_single_device_arrays(
            x.shape, x.format, [s.data for s in x.addressable_shards]
        ),
        lambda v: v,
    ),
    "of this process": (
        lambda x: weft.make_array_from_process_local_data(x.sharding, x),
        lambda v: v,
    ),
}


@pytest.fixture(params=["one device", "split"])
def array(request):
    value = SQUARE if request.param == "one device" else WIDE
    x = weft.device_put(value, Format(COLUMNS, place(request.param)))
    assert x.format.layout == COLUMNS
    return x, value


@pytest.mark.parametrize("name", CONSUMERS)
def test_consumers_read_the_value(name, array, tmp_path):
    x, value = array
    use, meaning = CONSUMERS[name]
    result, expected = use(x, tmp_path) if use is restored else use(x), meaning(value)
    if expected is None:
        expected = [value[s.index] for s in x.addressable_shards]
    for one, other in (
        zip(result, expected, strict=True) if isinstance(result, list) else [(result, expected)]
    ):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_prints(array):
    x, value = array
    same = wnp.asarray(value)
    assert (repr(x), str(x), f"{x:}") == (repr(same), str(same), f"{same:}")
    plain = weft.device_put(value, x.sharding)
    assert repr(x.addressable_shards) == repr(plain.addressable_shards)
    assert x.nbytes == x.on_device_size_in_bytes() == same.nbytes


def test_memory_is_seen_as_it_is():
    x = weft.device_put(SQUARE, Format(COLUMNS, place("one device")))
    assert np.asarray(x).strides == (4, 32) and not np.asarray(x).flags.writeable
    memory = (ctypes.c_float * 64).from_address(x.unsafe_buffer_pointer())
    np.testing.assert_array_equal(np.frombuffer(memory, "f4"), SQUARE.T.ravel())
    if sys.version_info >= (3, 12):
        np.testing.assert_array_equal(np.asarray(memoryview(x)), SQUARE)
    shared = weft.device_put(x, x.format)
    assert shared.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    assert (
        weft.device_put(x, x.format, may_alias=False).unsafe_buffer_pointer()
        != x.unsafe_buffer_pointer()
    )


def test_life(array):
    x, value = array
    assert x.block_until_ready() is x and x.is_ready() and any(y is x for y in weft.live_arrays())
    y = copy.copy(x)
    assert y.format == x.format
    x.delete()
    assert x.is_deleted() and not y.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(x)
    np.testing.assert_array_equal(y, value)


def test_programs_are_kept_and_exported(array):
    x, value = array
    f = weft.jit(lambda x: (x * 2, x.T), out_shardings=(x.format, None))
    compiled = f.lower(x).compile()
    loaded = deserialize_and_load(*serialize(compiled))
    for run in (compiled, loaded):
        double, turned = run(x)
        np.testing.assert_array_equal(double, value * 2)
        np.testing.assert_array_equal(turned, value.T)
        assert double.format == x.format
    assert (loaded.input_formats, loaded.output_formats) == (
        compiled.input_formats,
        compiled.output_formats,
    )
    assert (
        loaded._lowered.as_text()
        and compiled.as_text()
        and compiled.memory_analysis().output_size_in_bytes
    )
    exported = weft.export.export(weft.jit(lambda x: x * x[1]))(
        weft.ShapeDtypeStruct(value.shape, "float32")
    )
    np.testing.assert_array_equal(
        exported.call(weft.device_put(x, weft.devices()[0])), value * value[1]
    )
    assert "1 matmul," in str(
        weft.explain(lambda x: wnp.tile(x, (4, 4)) @ wnp.tile(x, (4, 4)).T, x)
    )


def test_checks_of_results(array):
    x, value = array
    with weft.debug_nans(True):
        np.testing.assert_array_equal(
            weft.jit(lambda x: x * 2, out_shardings=x.format)(x), value * 2
        )
        with pytest.raises(FloatingPointError, match="log"):
            weft.jit(lambda x: wnp.log(x - 9), out_shardings=x.format)(x)


def test_other_dtypes_and_sizes():
    here = place("one device")
    for dtype in ("bool", "int8", "bfloat16", "complex64"):
        value = np.asarray(wnp.arange(12).reshape(3, 4).astype(dtype))
        x = weft.device_put(value, Format(COLUMNS, here))
        np.testing.assert_array_equal(np.asarray(x[1:].T), value[1:].T)
    for shape in ((0, 3), (8, 1), (1,), ()):
        x = weft.device_put(
            np.ones(shape, "float32"), Format(Layout(tuple(range(len(shape)))[::-1]), here)
        )
        np.testing.assert_array_equal(x + 1, np.full(shape, 2))
        assert x.format.layout.major_to_minor == tuple(range(len(shape)))[::-1]


def test_random_keys():
    keys = weft.random.split(weft.random.key(0), (4, 2))
    data = np.asarray(weft.random.key_data(keys))
    for where in (place("one device"), NamedSharding(weft.make_mesh((4, 2), ("a", "b")), P("a"))):
        x = weft.device_put(keys, Format(COLUMNS, where))
        for y in (x, copy.copy(x), weft.jit(lambda x: x.T, out_shardings=Format(Layout.AUTO))(x).T):
            np.testing.assert_array_equal(weft.random.key_data(y), data)
        np.testing.assert_array_equal(
            weft.random.key_data(x.addressable_shards[0].data), data[x.addressable_shards[0].index]
        )
        assert repr(x) == repr(keys) and x.format.layout == COLUMNS


def test_the_reference_backend():
    devices = weft.devices("reference")
    mesh = weft.sharding.Mesh(np.array(devices[:4]).reshape(2, 2), ("a", "b"))
    for where in (SingleDeviceSharding(devices[0]), NamedSharding(mesh, P("a", "b"))):
        x = weft.device_put(WIDE, Format(COLUMNS, where))
        np.testing.assert_array_equal(x, WIDE)
        np.testing.assert_array_equal(
            weft.jit(lambda x: x[1] + x, out_shardings=x.format)(x), WIDE[1] + WIDE
        )
        for shard in x.addressable_shards:
            np.testing.assert_array_equal(shard.data, WIDE[shard.index])
        np.testing.assert_array_equal(weft.device_put(x, place("split")), WIDE)
