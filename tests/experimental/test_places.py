"""`compute_on`, `topologies` and `buffer_callback`."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.experimental import topologies
from weft.experimental.buffer_callback import ExecutionStage, buffer_callback
from weft.experimental.compute_on import compute_on, compute_on2


def test_compute_on_checks_the_place():
    @compute_on("device_host")
    def f(x):
        return x * 2

    assert weft.jit(f)(3).item() == 6
    assert compute_on2(compute_type="device", out_memory_spaces=None)(f)(3) == 6
    for place, error in (
        ("nowhere", ValueError),
        ("gpu_stream:1", NotImplementedError),
        (3, TypeError),
    ):
        with pytest.raises(error, match="compute_on"), compute_on(place):
            pass


def test_attached_devices_make_a_mesh():
    attached = topologies.get_attached_topology()
    assert attached.devices == weft.devices()
    assert dict(topologies.make_mesh(attached, (4, 2), ("a", "b")).shape) == {"a": 4, "b": 2}
    with pytest.raises(
        NotImplementedError, match="CPU devices have no topologies by name, got '2x2'"
    ):
        topologies.get_topology_desc("2x2", "cpu")


def test_buffers_are_written_in_place():
    stages = []

    def add(context, out, x, y):
        stages.append(context.stage)
        np.asarray(out)[...] += np.asarray(x) + np.asarray(y)

    call = buffer_callback(add, weft.ShapeDtypeStruct((3,), wnp.float32))
    assert weft.jit(call)(wnp.arange(3.0), wnp.ones(3)).tolist() == [1, 2, 3]
    assert stages == [ExecutionStage.EXECUTE]
    aliased = buffer_callback(
        add, weft.ShapeDtypeStruct((3,), wnp.float32), input_output_aliases={0: 0}
    )
    assert aliased(wnp.arange(3.0), wnp.ones(3)).tolist() == [1, 3, 5]
    mapped = buffer_callback(
        add, weft.ShapeDtypeStruct((3,), wnp.float32), vmap_method="broadcast_all"
    )
    assert weft.vmap(mapped, in_axes=(0, None))(wnp.ones((2, 3)), wnp.ones(3)).tolist() == [
        [2, 2, 2],
        [2, 2, 2],
    ]


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "bool", "complex64"])
def test_buffers_have_the_dtype_of_their_arrays(dtype):
    def check(context, out, x):
        assert np.asarray(x).dtype == np.asarray(out).dtype == x.dtype == wnp.dtype(dtype)
        np.asarray(out)[...] = np.asarray(x)

    x = wnp.asarray([0, 1, 1], dtype)
    assert buffer_callback(check, weft.ShapeDtypeStruct.like(x))(x).tolist() == x.tolist()


def test_aliased_buffers_are_one():
    def check(context, out, x):
        operand, result = np.asarray(x), np.asarray(out)
        assert operand.ctypes.data == result.ctypes.data and result.tolist() == [0, 1, 2]
        assert out.writeable and not x.writeable
        result += 1

    x = wnp.arange(3.0)
    call = buffer_callback(
        check, weft.ShapeDtypeStruct((3,), wnp.float32), input_output_aliases={0: 0}
    )
    assert weft.jit(call)(x).tolist() == call(x).tolist() == [1, 2, 3]
    assert x.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("aliases", "result", "message"),
    [
        ({1: 0}, (3,), r"'1:0' with input index 1 outside the range \[0, 1\)"),
        ({-1: 0}, (3,), r"'-1:0' with input index -1 outside the range \[0, 1\)"),
        ({0: 1}, (3,), r"'0:1' with output index 1 outside the range \[0, 1\)"),
        (
            {0: 0},
            (4,),
            r"'0:0' referring to an input of type float32\[3\] and an output of type float32\[4\]",
        ),
    ],
)
def test_aliases_that_cannot_be(aliases, result, message):
    call = buffer_callback(
        print, weft.ShapeDtypeStruct(result, wnp.float32), input_output_aliases=aliases
    )
    with pytest.raises(ValueError, match=message):
        call(wnp.arange(3.0))


def test_a_cpu_has_no_stream():
    messages = []

    def callback(context, out, x):
        with pytest.raises(
            weft.errors.JaxRuntimeError, match="XLA FFI GPU context is not available"
        ) as info:
            context.stream
        messages.append(str(info.value))

    weft.block_until_ready(
        buffer_callback(callback, weft.ShapeDtypeStruct((3,), wnp.float32))(wnp.arange(3.0))
    )
    assert len(messages) == 1 and "np.asarray(buffer)" in messages[0]
