"""Values whose dtype no array can hold are refused by every entry point, before their memory is
read."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec as P

VALUES = {
    "object": np.array([1, "a", None], object),
    "object scalar": np.array(None, object),
    "str": np.array(["a", "b"]),
    "str scalar": np.str_("a"),
    "bytes": np.array([b"a", b"bb"]),
    "datetime": np.array(["2020-01-01"], "datetime64[D]"),
    "datetime scalar": np.datetime64("2020-01-01"),
    "timedelta": np.array([1, 2], "timedelta64[s]"),
    "structured": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    "structured scalar": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")])[0],
    "void": np.array([b"abc"], "V3"),
    "big-endian dates": np.array([1, 2], ">m8[s]"),
}
if np.dtype(np.longdouble).itemsize > 8:  # on other systems it is an alias of float64
    VALUES |= {
        "longdouble": np.ones(3, np.longdouble),
        "longdouble scalar": np.longdouble(1),
        "clongdouble": np.ones(3, np.clongdouble),
    }


def _sharding():
    return NamedSharding(weft.make_mesh((2,), ("x",)), P())


def _same(x):
    return x


ENTRIES = {
    "device_put": weft.device_put,
    "device_put with a sharding": lambda v: weft.device_put(v, _sharding()),
    "device_put_sharded": lambda v: weft.device_put_sharded([v], weft.devices()[:1]),
    "device_put_replicated": lambda v: weft.device_put_replicated(v, weft.devices()[:2]),
    "asarray": wnp.asarray,
    "array of a list": lambda v: wnp.array([v, v]),
    "copy": wnp.copy,
    "full": lambda v: wnp.full(3, v),
    "stack": lambda v: wnp.stack([v, v]),
    "add": lambda v: wnp.add(v, 1),
    "operator": lambda v: wnp.ones(3) + v,
    "set": lambda v: wnp.zeros(3).at[0].set(v),
    "index": lambda v: wnp.zeros(3)[v],
    "lax": lambda v: lax.add(v, v),
    "bitcast": lambda v: lax.bitcast_convert_type(v, np.int32),
    "make_array_from_callback": lambda v: weft.make_array_from_callback(
        np.shape(v), _sharding(), lambda index: v
    ),
    "make_array_from_process_local_data": lambda v: weft.make_array_from_process_local_data(
        _sharding(), v
    ),
    "jit": lambda v: weft.jit(_same)(v),
    "lower": lambda v: weft.jit(_same).lower(v),
    "result of jit": lambda v: weft.jit(lambda: v)(),
    "grad": lambda v: weft.grad(_same)(v),
    "jvp": lambda v: weft.jvp(_same, (wnp.ones(3),), (v,)),
    "cotangent": lambda v: weft.vjp(_same, wnp.ones(3))[1](v),
    "vmap": lambda v: weft.vmap(_same)(np.stack([v, v])),
    "pmap": lambda v: weft.pmap(_same)(np.stack([v, v])),
    "eval_shape": lambda v: weft.eval_shape(_same, v),
    "make_jaxpr": lambda v: weft.make_jaxpr(_same)(v),
    "cond": lambda v: lax.cond(True, _same, _same, v),
    "while_loop": lambda v: lax.while_loop(lambda x: False, _same, v),
    "scan": lambda v: lax.scan(lambda c, x: (c, x), 0, np.stack([v, v])),
    "shard_map": lambda v: weft.shard_map(
        _same, mesh=_sharding().mesh, in_specs=P(), out_specs=P()
    )(v),
    "dtype of zeros": lambda v: wnp.zeros(3, v.dtype),
    "astype": lambda v: wnp.ones(3).astype(v.dtype),
    "view": lambda v: wnp.ones(3).view(v.dtype),
    "convert_element_type": lambda v: lax.convert_element_type(1.0, v.dtype),
    "result_type": lambda v: wnp.result_type(v),
    "lower of a struct": lambda v: weft.jit(_same).lower(weft.ShapeDtypeStruct((3,), v.dtype)),
    "frombuffer": lambda v: wnp.frombuffer(b"a" * 4 * v.dtype.itemsize, v.dtype),
}


@pytest.mark.parametrize("enter", ENTRIES.values(), ids=ENTRIES)
def test_foreign_dtypes_are_refused(enter):
    for name, value in VALUES.items():
        with pytest.raises((TypeError, ValueError)) as caught:
            enter(value)
        # NumPy itself refuses a buffer of Python objects
        assert isinstance(caught.value, TypeError) or value.dtype.hasobject, (
            f"{name}: {caught.value!r}"
        )


def test_callback_result_of_a_foreign_dtype():
    with pytest.raises(weft.errors.CallbackError, match="TypeError: dtype object"):
        weft.pure_callback(
            lambda: np.array([None], object), weft.ShapeDtypeStruct((1,), np.float32)
        ).block_until_ready()


def test_dtypes_in_another_byte_order_are_converted():
    value = np.arange(3, dtype=">f4")
    for make in (weft.device_put, wnp.asarray, weft.jit(lambda x: x)):
        assert np.array_equal(make(value), [0, 1, 2])
