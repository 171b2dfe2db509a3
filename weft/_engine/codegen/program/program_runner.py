"""Native programs: loaded code with the minimum that is needed to run it.

In:   the address of an entry that `codegen.program.program` compiled in this process, or an image
      linked by an earlier process.
Out:  a `NativeProgram`: its entry, and everything that must stay alive with it.
Laws: loading an image needs no part of the code generator except the thread pool. The compiler
      stages of such a program are recomputed on demand.
"""

from __future__ import annotations

import _thread
import ctypes
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine import processes
from weft._engine.codegen.runtime import symbols
from weft._engine.codegen.toolchain import loader

if TYPE_CHECKING:
    from weft._engine.codegen.program.build_record import BuildRecord
    from weft._engine.ir.program import HostCallStep


class HostCallRunner:
    """The Python side of a program's host calls: native code calls `runner`, which this object
    keeps alive."""

    def __init__(self, calls: list[HostCallStep]):
        self.calls = calls
        self.errors: dict[int, BaseException] = {}  # by thread id
        self.runner = self.run if calls else None

    def run(self, number: int, pointers: int) -> int:
        """Call host function `number` on views of its operands; return 1 if it raised."""
        try:
            call = self.calls[number]
            operands = (*call.ins, *call.outs)
            addresses = (ctypes.c_void_p * len(operands)).from_address(pointers) if operands else ()
            views = [_view(at, shape, dtype) for at, (_, shape, dtype) in zip(addresses, operands)]
            for view in views[: len(call.ins)]:
                view.flags.writeable = False
            call.fn(*views)
        except BaseException as error:  # raised again by `reraise`, in the calling thread
            self.errors[_thread.get_ident()] = error
            return 1
        return 0

    def reraise(self) -> None:
        """Raise the error of this thread's host call, of a signal handler, or of an exchange."""
        error = self.errors.pop(_thread.get_ident(), None)
        if error is not None:
            try:
                raise error
            finally:
                del error  # break the reference cycle through this frame
        if symbols.signal_error[0]:
            raised = tuple(map(ctypes.c_void_p, symbols.signal_error))
            symbols.signal_error[:] = (None, None, None)
            # ctypes then raises the error; it owns the references
            ctypes.pythonapi.PyErr_Restore(*raised)
        if (here := processes.current()) is not None:
            here.raise_failure()
        raise RuntimeError("codegen: a program failed without recording an error")


def _view(address: int | None, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return a NumPy view of the elements at an address."""
    kind = _dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0 or not address:
        return np.zeros(shape, kind)
    raw = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
    return np.ndarray(shape, kind, memoryview(raw))


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


_ENTRY_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)
_SHORT_ENTRY_TYPE = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


class NativeProgram:
    """A program in memory.

    `entry` is the address of `i32 entry(ptr slots)`, which returns nonzero if the program failed.
    `short_call` is `call` with the GIL held, for short programs. A call that released the GIL would
    take it back before another thread wakes up; Python forces a handover only if the GIL was not
    released for 5 ms, so frequent short calls would starve the other threads.
    """

    __slots__ = (
        "entry",
        "call",
        "short_call",
        "host",
        "keepalive",
        "kernel_count",
        "from_disk",
        "may_take_long",
        "work",
        "is_draft",
        "draft",
        "_build_record",
    )

    def __init__(
        self,
        entry: int,
        host: HostCallRunner,
        keepalive: object,
        kernel_count: int,
        from_disk: int,
        build_record: Callable[[], BuildRecord],
        calls_library: bool = False,
    ):
        self.entry = entry
        self.call, self.short_call = _ENTRY_TYPE(entry), _SHORT_ENTRY_TYPE(entry)
        self.host = host
        self.keepalive = keepalive
        self.kernel_count = kernel_count  # number of distinct kernels
        self.from_disk = from_disk  # number of kernels that were loaded instead of compiled
        # calls Python or a library, which may take longer than `work` indicates
        self.may_take_long = bool(host.calls) or calls_library
        self.work = 0  # approximate cost of a call in bytes of memory traffic
        self.is_draft = False  # True if some code is not optimized yet
        self.draft: Any = None  # the `tiered_compilation.Draft` that replaces it
        self._build_record = build_record

    @property
    def build_record(self) -> BuildRecord:
        """The record of the program's build."""
        return self._build_record()

    def __call__(self, pointers: Iterable[int]) -> None:
        """Run on the addresses of ins, outs, consts and the arena; raise an error if it fails."""
        slots = list(pointers)
        if self.call((ctypes.c_void_p * max(1, len(slots)))(*slots)):
            self.host.reraise()

    def text(self) -> str:
        """Return the LLVM IR of the kernels and the entry, for dumps."""
        return self.build_record.ir_text()


def load(
    image: loader.Image, kernel_count: int, build_record: Callable[[], BuildRecord]
) -> NativeProgram:
    """Load a program that an earlier process linked; raise an error if that is impossible."""
    code = loader.place(image, symbols.address)
    calls_library = any(name.startswith(symbols.LIBRARY_PREFIX) for name in image.imports)
    return NativeProgram(
        code[ENTRY],
        HostCallRunner([]),
        code,
        kernel_count,
        kernel_count,
        build_record,
        calls_library,
    )


#: the symbol of every program's entry
ENTRY = "weft_entry"
