"""Native programs: what is needed to run one, and no more.

In:   the address of an entry that `codegen.program.program` compiled in this process, or an image linked by an earlier process.
Out:  a `NativeProgram`: its entry, and everything that must stay alive with it.
Laws: loading an image needs nothing of the code generator except the thread pool. The stages of such a program are recomputed
      when they are asked for.
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
    from weft._engine.ir.program import HostCall


class HostCalls:
    """The Python side of a program's host calls: native code calls `runner`, which this keeps alive."""

    def __init__(self, calls: list[HostCall]):
        self.calls = calls
        self.errors: dict[int, BaseException] = {}  # by thread
        self.runner = self.run if calls else None

    def run(self, number: int, pointers: int) -> int:
        """Call host function `number` on views of its operands."""
        try:
            call = self.calls[number]
            operands = (*call.ins, *call.outs)
            addresses = (ctypes.c_void_p * len(operands)).from_address(pointers) if operands else ()
            views = [_view(at, shape, dtype) for at, (_, shape, dtype) in zip(addresses, operands)]
            for view in views[: len(call.ins)]:
                view.flags.writeable = False
            call.fn(*views)
        except BaseException as error:  # `reraise` raises it, in the thread that called
            self.errors[_thread.get_ident()] = error
            return 1
        return 0

    def reraise(self) -> None:
        """Raise what the last failed call of this thread raised, or what the handler of a signal raised, or why an exchange failed."""
        error = self.errors.pop(_thread.get_ident(), None)
        if error is not None:
            try:
                raise error
            finally:
                del error  # no cycle through this frame: what its frames hold is freed with it
        if symbols.signal_error[0]:
            raised = tuple(map(ctypes.c_void_p, symbols.signal_error))
            symbols.signal_error[:] = (None, None, None)
            ctypes.pythonapi.PyErr_Restore(
                *raised
            )  # ctypes raises it, and takes over the references
        if (here := processes.current()) is not None:
            here.raise_failure()
        raise RuntimeError("codegen: a program stopped without saying why")


def _view(address: int | None, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """A NumPy view of `shape` elements at an address."""
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
    """A program in memory. `entry` is the address of `i32 entry(ptr slots)`: 0, or nonzero when a host call raised. `short_call` is
    `call` with the GIL held. A thread that asks for the GIL has Python give it up after 5 ms in which nobody else did: who gives it up
    in every call, and has it back before another thread wakes up, keeps it for good."""

    __slots__ = (
        "entry",
        "call",
        "short_call",
        "host",
        "keepalive",
        "kernel_count",
        "from_disk",
        "takes_long",
        "work",
        "is_draft",
        "draft",
        "_made",
    )

    def __init__(
        self,
        entry: int,
        host: HostCalls,
        keepalive: object,
        kernel_count: int,
        from_disk: int,
        made: Callable[[], BuildRecord],
        calls_library: bool = False,
    ):
        self.entry = entry
        self.call, self.short_call = _ENTRY_TYPE(entry), _SHORT_ENTRY_TYPE(entry)
        self.host = host
        self.keepalive = keepalive
        self.kernel_count = kernel_count  # distinct kernels
        self.from_disk = from_disk  # how many of them were not compiled now
        self.takes_long = (
            bool(host.calls) or calls_library
        )  # calls Python or a library: for how long, no count of bytes says
        self.work = 0  # roughly what a call costs, in bytes of memory traffic
        self.is_draft = False  # some of its code is not optimized yet
        self.draft: Any = None  # the `tiered_compilation.Draft` that has it optimized
        self._made = made

    @property
    def made(self) -> BuildRecord:
        """What the program was made of."""
        return self._made()

    def __call__(self, pointers: Iterable[int]) -> None:
        """Run on the addresses of ins, outs, consts and the arena; raises what a host call raised."""
        slots = list(pointers)
        if self.call((ctypes.c_void_p * max(1, len(slots)))(*slots)):
            self.host.reraise()

    def text(self) -> str:
        """LLVM IR of the kernels and the entry: what dumps show."""
        return self.made.ir_text()


def load(image: loader.Image, kernel_count: int, made: Callable[[], BuildRecord]) -> NativeProgram:
    """A program that an earlier process linked; an error where this process cannot run it."""
    code = loader.place(image, symbols.address)
    calls_library = any(name.startswith(symbols.LIBRARY_PREFIX) for name in image.imports)
    return NativeProgram(
        code[ENTRY], HostCalls([]), code, kernel_count, kernel_count, made, calls_library
    )


#: the symbol of the entry of every program
ENTRY = "weft_entry"
