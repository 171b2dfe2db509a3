"""Python functions that programs of a plugin call, through the FFI extension of PJRT.

In:   equations that the host computes: callbacks, and primitives that have no form on a plugin.
Out:  `HostCall`s, whose numbers the custom calls of the program have.
Laws: one handler, in a thread of the plugin, takes the calls of all programs.
Next: `ffi` has the structs, `backends.host_calls` what calls mean.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.backends.host_calls import HostCall, HostCalls
from weft.backends.pjrt.c_api import FFI_EXTENSION, PluginLibrary
from weft.backends.pjrt.ffi import HandlerFrame, HandlerType, register_handler
from weft.hlo.replicas import HOST_TARGET
from weft.ir.jaxpr import Eqn
from weft.ir.types import ShapedArray
from weft.util import dtypes
from weft.util.errors import describe


class HostMemory:
    """Operands and results in memory of the host."""

    def read(self, address: int | None, aval: ShapedArray, frame: HandlerFrame) -> np.ndarray:
        """Return a view, which is valid while the device waits."""
        if not aval.size:
            return np.empty(aval.shape, aval.dtype)
        memory = (ctypes.c_char * (aval.size * aval.dtype.itemsize)).from_address(address)
        return np.frombuffer(memory, aval.dtype).reshape(aval.shape)

    def write(self, address: int | None, value: np.ndarray, frame: HandlerFrame) -> None:
        """Copy a value to an address."""
        self.read(address, ShapedArray(value.shape, value.dtype), frame)[...] = value


class CudaMemory:
    """Operands and results on NVIDIA GPUs. This has never run on hardware."""

    def __init__(self) -> None:
        try:  # `plugins.preload_nvidia_libraries` has loaded one of these
            self._runtime = ctypes.CDLL("libcudart.so.13")
        except OSError:
            self._runtime = ctypes.CDLL("libcudart.so.12")

    def read(self, address: int | None, aval: ShapedArray, frame: HandlerFrame) -> np.ndarray:
        """Return a copy, once the stream of the device has computed the value."""
        value = np.empty(aval.shape, aval.dtype)
        self._copy(value.ctypes.data, address, value.nbytes, frame)
        return value

    def write(self, address: int | None, value: np.ndarray, frame: HandlerFrame) -> None:
        """Copy a value to an address."""
        value = np.ascontiguousarray(value)
        self._copy(address, value.ctypes.data, value.nbytes, frame)

    def _copy(self, to: int | None, source: int | None, size: int, frame: HandlerFrame) -> None:
        pointer, stream, any_to_any = ctypes.c_void_p, ctypes.c_void_p(frame.stream), 4
        operands = pointer(to), pointer(source), ctypes.c_size_t(size)
        failed = self._runtime.cudaMemcpyAsync(*operands, any_to_any, stream)
        failed = failed or self._runtime.cudaStreamSynchronize(stream)
        if failed:
            raise RuntimeError(f"A copy of {size} bytes for a callback failed: CUDA error {failed}.")


#: names of platforms in the FFI, and their memory
_PLATFORMS: dict[str, tuple[str, type]] = {
    "cpu": ("Host", HostMemory),
    "cuda": ("CUDA", CudaMemory),
}


class FfiVisit:
    """A device in the handler."""

    def __init__(self, call: Any, frame: HandlerFrame) -> None:
        self.call: HostCall = call
        self.run_id, self.wait, self.complete = frame.run_id, frame.wait, frame.complete
        self._memory, self._frame = call.calls.memory, frame
        types = [_POSITION] * call.has_position
        self._results = frame.addresses("results", len([*types, *call.result_types]))
        types += call.operand_types
        addresses = frame.addresses("operands", len(types))
        values = [self._memory.read(x, aval, frame) for x, aval in zip(addresses, types)]
        self._before, self.operands = values[: call.has_position], values[call.has_position :]
        self.position = int(self._before[0]) if call.has_position else 0

    def write(self, results: Sequence[np.ndarray]) -> None:
        """Write the results of the call, after the position."""
        for address, value in zip(self._results, [*self._before, *results]):
            self._memory.write(address, value, self._frame)


_POSITION = ShapedArray((), np.dtype(np.uint32))


class PluginCalls(HostCalls):
    """The calls of the programs of one plugin."""

    def __init__(self, library: PluginLibrary, platform: str) -> None:
        super().__init__()
        self.memory: Any = None
        self._library, self._platform = library, platform
        library.find_exception = self.find_exception

    def add(self, eqn: Eqn, mesh: Sequence[tuple[Any, int]]) -> HostCall:
        """Return the call of an equation; NotImplementedError if the plugin cannot make it."""
        call = HostCall(self, eqn, mesh)
        self._check(eqn, [*call.operand_types, *call.result_types])
        name, memory = _PLATFORMS[self._platform]
        if self.memory is None:
            self.memory = memory()
            if self._library.path not in _registered:
                register_handler(self._library, HOST_TARGET, name, _handler)
                _registered.add(self._library.path)
        _calls[call.number] = call
        return call

    def _check(self, eqn: Eqn, types: Sequence[ShapedArray]) -> None:
        """Raise NotImplementedError for an equation that cannot call the host."""
        plugin = f"PJRT plugin {self._library.name!r}"
        narrow = [aval.dtype for aval in types if dtypes.itemsize_bits(aval.dtype) < 8]
        if FFI_EXTENSION not in self._library.extensions:
            reason = f"{plugin} has no FFI extension"
        elif self._platform not in _PLATFORMS:
            reason = f"{plugin} is for {self._platform}, whose memory weft does not read"
        elif narrow:
            reason = f"{plugin} packs numbers of {narrow[0]}, which weft does not unpack"
        else:
            return
        callback = eqn.params.get("callback")
        name = getattr(callback, "api", eqn.primitive.name)
        subject = "it" if callback is None else repr(callback)
        fact = f"{subject} runs on the host, which the program cannot call: {reason}."
        remedy = "Compute it on the CPU: jit(f, backend='cpu')."
        raise NotImplementedError(describe(name, fact, (), eqn.source, "", remedy))


_calls: weakref.WeakValueDictionary[int, HostCall] = weakref.WeakValueDictionary()
#: paths of plugins that have the handler
_registered: set[str] = set()


@HandlerType
def _handler(address: int) -> int | None:
    """The handler of all calls."""
    frame = HandlerFrame(address)
    if frame.answer_metadata() or not frame.is_execution:
        return None
    try:
        call = _calls[frame.attribute]
        failure = call.calls.visit(FfiVisit(call, frame))
    except BaseException as error:  # a fault of weft or the plugin; it may not leave
        failure = f"{type(error).__name__}: {error}"
    return failure and frame.error(failure)
