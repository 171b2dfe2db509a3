"""Programs to callable native code.

In:   a `Program` (kernels, matmuls, copies, host calls and control flow over planned buffers).
Out:  a `NativeProgram`: the address of its entry and everything that must stay alive with it.
Laws: a kernel is compiled once per process, whatever programs use it, and once per machine while the disk cache lasts.
      The entry is cached the same way. Nothing of LLVM is loaded when everything is found on disk (on x86-64 Linux).
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weft.codegen import cache, loader, objects, pool, target
from weft.codegen.entry import EntryEmitter
from weft.codegen.objects import Order
from weft.ir import loops_text
from weft.ir.loops import Kernel, check
from weft.ir.program import Branch, Gemm, HostCall, Launch, Loop, Program, Sort, Step, WhileLoop
from weft.util.record import field, record

if TYPE_CHECKING:
    from llvmlite.binding import ResourceTracker

#: names of the C library's functions that kernels may call
_LIBM = ("exp", "exp2", "expm1", "log", "log1p", "log2", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
         "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma", "pow", "atan2", "fmod", "fma", "fmaf",
         "round",
         "roundf", "roundeven", "roundevenf", "floor", "floorf", "ceil", "ceilf", "trunc", "truncf", "rint", "rintf",
         "fmodf", "nearbyint", "nearbyintf")
_LIBC = ("memcpy", "memset", "memmove")


#: kernels of one module, at most
BATCH = 16


@record(frozen=False)
class CompiledKernel:
    """A kernel in memory: the address of its function, and what it was made from."""
    symbol: str
    address: int
    kernel: Kernel
    from_disk: bool
    keepalive: object


_kernels: dict[str, CompiledKernel] = {}
_lock = threading.RLock()


@functools.cache
def _library_symbols() -> dict[str, int]:
    """Addresses of the C functions that generated code may call."""
    found = {}
    process = ctypes.CDLL(None)
    for wanted in (*_LIBM, *_LIBC):
        function = getattr(process, wanted, None) or getattr(_libm(), wanted, None)
        if function is not None:
            found[wanted] = ctypes.cast(function, ctypes.c_void_p).value
    return found


@functools.cache
def _libm() -> ctypes.CDLL:
    """The C library's mathematics, where the interpreter does not bring it along."""
    import ctypes.util  # starts processes to find libraries

    return ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")


#: what all symbols of the thread pool begin with
_POOL_SYMBOLS = (b"weft_parallel_for", b"weft_scratch_")


def _link(data: bytes, exports: Sequence[str], imports: dict[str, int]) -> loader.Loaded | ResourceTracker:
    """Load an object that may call the C library, and the thread pool: that is made when the first object names it."""
    if any(name in data for name in _POOL_SYMBOLS):
        imports = imports | pool.symbols()
    target.share(_library_symbols)
    return target.link(data, exports, imports)


def compile_kernel(kernel: Kernel) -> CompiledKernel:
    """The native function of a kernel, from memory, from disk, or compiled now."""
    return compile_kernels([kernel])[0]


def compile_kernels(kernels: Sequence[Kernel]) -> list[CompiledKernel]:
    """The native functions of kernels; those found nowhere are compiled together."""
    names = [_kernel_name(kernel) for kernel in kernels]
    _provide(dict(zip(names, kernels)), ())
    return [_kernels[name] for name in names]


def _kernel_name(kernel: Kernel) -> str:
    return cache.key(target.current().identity, loops_text.canonical(kernel))


def _provide(kernels: dict[str, Kernel], others: Sequence[Order]) -> None:
    """Load kernels, compiling what is missing; objects that will be wanted next are prepared at the same time."""
    threads = pool.num_threads()
    with _lock:
        missing = {name: kernel for name, kernel in kernels.items() if name not in _kernels}
        for name in list(missing):
            if name not in _kernels:
                _adopt(name, missing)
        rest = [(name, kernel) for name, kernel in missing.items() if name not in _kernels]
        count = max(-(-len(rest) // BATCH), min(threads, len(rest) // 2))   # a module of one kernel is mostly fixed cost
        batches = [dict(rest[i::count]) for i in range(count)]
        orders = [Order(cache.key("batch", *batch), functools.partial(_batch_ir, batch)) for batch in batches]
        objects.prepare([*orders, *others], threads)
        for batch, order in zip(batches, orders):
            _link_batch(batch, objects.take(order), False)
            for name in batch:
                cache.write(name, f"{order.key} {' '.join(batch)}".encode())


def _adopt(name: str, wanted: dict[str, Kernel]) -> None:
    """Load the object on disk that holds kernel `name`, and with it the other wanted kernels that it holds."""
    data = cache.read(name)
    where, *held = data.decode().split(" ") if data is not None else ("",)
    code = cache.read(where) if where else None
    if code is not None:
        _link_batch({one: wanted[one] for one in held if one in wanted}, code, True)


def _batch_ir(batch: dict[str, Kernel]) -> str:
    """Kernels as one module: the fixed cost of a module is a third of a small kernel's."""
    return _ir([(kernel, _symbol(name)) for name, kernel in batch.items()], target.current())


def _link_batch(batch: dict[str, Kernel], code: bytes, from_disk: bool) -> None:
    tracker = _link(code, [_symbol(name) for name in batch], {})
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(tracker))  # kernels are never unloaded, not even at exit
    for name, kernel in batch.items():
        address = tracker[_symbol(name)]
        _kernels.setdefault(name, CompiledKernel(_symbol(name), address, kernel, from_disk, tracker))


def _symbol(name: str) -> str:
    return f"weft_k_{name}"


def kernel_ir(kernel: Kernel, symbol: str = "kernel", machine: target.Target | None = None) -> str:
    """LLVM IR of a kernel."""
    return _ir([(kernel, symbol)], machine or target.current())


def _ir(kernels: Sequence[tuple[Kernel, str]], machine: target.Target) -> str:
    from weft.codegen import llvm

    if os.environ.get("WEFT_VERIFY") == "1":
        for kernel, _ in kernels:
            check(kernel)
    return llvm.module_ir(kernels, machine)


class _HostCalls:
    """The Python side of a program's host calls; one trampoline serves them all."""

    def __init__(self, calls: list[HostCall]):
        self.calls = calls
        self.local = threading.local()
        self.trampoline = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)(self.run)

    @property
    def address(self) -> int:
        return ctypes.cast(self.trampoline, ctypes.c_void_p).value

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
        except BaseException as error:  # must not unwind through native code; `reraise` brings it back
            self.local.error = error
            return 1
        return 0

    def reraise(self) -> None:
        """Raise what the last failed call of this thread raised, or what the handler of a signal raised."""
        error, self.local.error = getattr(self.local, "error", None), None
        if error is not None:
            try:
                raise error
            finally:
                del error                    # no cycle through this frame: what its frames hold is freed with it
        if _signal_error[0]:
            raised = tuple(map(ctypes.c_void_p, _signal_error))
            _signal_error[:] = (None, None, None)
            ctypes.pythonapi.PyErr_Restore(*raised)      # ctypes raises it, and takes over the references
        raise RuntimeError("codegen: a program stopped without saying why")


#: what the handler of a signal raised while a program ran (only the main thread runs handlers): type, value, traceback
_signal_error = (ctypes.c_void_p * 3)()


def _signal_symbols() -> dict[str, int]:
    """What programs need to look for signals."""
    api = ("PyGILState_Ensure", "PyGILState_Release", "PyErr_CheckSignals", "PyErr_Fetch")
    found = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in api}
    return {**found, "weft_signal_error": ctypes.addressof(_signal_error)}


def _view(address: int | None, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """A NumPy view of `shape` elements at an address."""
    kind = _dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    if count == 0 or not address:
        return np.zeros(shape, kind)
    raw = (ctypes.c_uint8 * (count * kind.itemsize)).from_address(address)
    return np.frombuffer(raw, dtype=kind).reshape(shape)


def _dtype(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


@record(frozen=False)
class NativeProgram:
    """A program in memory. `entry` is the address of `i32 entry(ptr slots)`: 0, or nonzero when a host call raised."""
    program: Program
    entry: int
    arena_bytes: int
    compiled_kernels: tuple[CompiledKernel, ...]
    host: _HostCalls
    keepalive: object
    entry_texts: tuple[str, ...] = ()
    from_disk: int = 0
    routines: tuple[str, ...] = ()
    call: Callable = field(default=None, repr=False)

    @property
    def takes_long(self) -> bool:
        """Whether the program calls Python or a library while it runs: for how long, no count of bytes tells."""
        return bool(self.host.calls or self.routines)

    @property
    def kernel_count(self) -> int:
        """Number of distinct kernels."""
        return len(self.compiled_kernels)

    def __call__(self, pointers: Iterable[int]) -> None:
        """Run on the addresses of ins, outs, consts and the arena; raises what a host call raised."""
        slots = list(pointers)
        if self.call((ctypes.c_void_p * max(1, len(slots)))(*slots)):
            self.host.reraise()

    def raise_error(self) -> None:
        """Raise the error behind a nonzero result of `entry`, in the thread that called it."""
        self.host.reraise()

    def ir_text(self) -> str:
        """LLVM IR of the kernels and the entry."""
        texts = [f"; kernel {made.kernel.name}\n{kernel_ir(made.kernel, made.symbol)}"
                 for made in self.compiled_kernels]
        return "\n".join([*texts, *[f"; entry\n{text}" for text in self.entry_texts]])

    text = ir_text  # what dumps show

    def loops_text(self) -> str:
        """The kernels as Loops text."""
        return "\n\n".join([loops_text.print_kernel(made.kernel) for made in self.compiled_kernels])

    def assembly(self) -> str:
        """Assembly of the kernels and the entry."""
        machine = target.current()
        texts = [target.assembly(kernel_ir(made.kernel, made.symbol), machine) for made in self.compiled_kernels]
        return "\n".join([*texts, *[target.assembly(text, machine) for text in self.entry_texts]])


def compile_program(program: Program) -> NativeProgram:
    """Make a program callable."""
    launched = {id(kernel): kernel for kernel in _launched(program.steps) if kernel.parallel_extent > 0}
    names = {number: _kernel_name(kernel) for number, kernel in launched.items()}
    matmuls: dict[str, frozenset[str]] = {}
    sorts: list[str] = []

    def kernel_symbol(kernel: Kernel) -> str:
        return _symbol(names[id(kernel)])

    def library_symbol(step: Gemm | Sort) -> str:
        if isinstance(step, Sort):
            from weft.codegen import sort

            sorts.append(sort.symbol(step))
            return sorts[-1]
        from weft.codegen import gemm

        symbol, _ = gemm.describe(step)
        matmuls[symbol] = matmuls.get(symbol, frozenset()) | gemm.pieces(step)
        return symbol

    emitter = EntryEmitter(program, kernel_symbol, library_symbol)
    modules = emitter.modules("weft_entry")
    orders = entry_orders = [Order(cache.key(target.current().identity, "entry", text), functools.partial(str, text), True)
                             for _, text in modules]
    if emitter.routines or any(kernel.parallel_extent > 1 for kernel in launched.values()):
        orders = [*orders, *pool.orders()]
    if matmuls:
        from weft.codegen import gemm

        orders = [*orders, *(part for symbol, wanted in matmuls.items() for part in gemm.orders(symbol, wanted))]
    if sorts:
        from weft.codegen import sort

        orders = [*orders, *(part for symbol in dict.fromkeys(sorts) for part in sort.orders(symbol))]
    _provide({names[number]: kernel for number, kernel in launched.items()}, orders)
    distinct = {_symbol(name): _kernels[name] for name in names.values()}
    imports = {symbol: made.address for symbol, made in distinct.items()}
    imports |= {symbol: gemm.ensure(symbol, wanted) for symbol, wanted in matmuls.items()}
    imports |= {symbol: sort.ensure(symbol) for symbol in dict.fromkeys(sorts)}
    host = _HostCalls(emitter.host_calls)
    if emitter.routines:
        from weft.codegen import lapack

        imports |= lapack.imports(list(emitter.routines), emitter.rules_library)
    if emitter.host_calls:
        imports["weft_host_call"] = host.address
    if emitter.checks_signals:
        imports |= _signal_symbols()
    trackers = []
    for (symbol, _), order in zip(modules, entry_orders):
        trackers.append(_link(objects.take(order), [symbol], imports))
        imports[symbol] = trackers[-1][symbol]
    keepalive, entry = [trackers, host, list(distinct.values()), program], imports["weft_entry"]
    texts = tuple([text for _, text in modules])
    made = NativeProgram(program, entry, program.arena_bytes, tuple(distinct.values()), host, keepalive, texts,
                         routines=tuple(emitter.routines))
    made.call = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(entry)
    made.from_disk = sum(kernel.from_disk for kernel in made.compiled_kernels)
    return made


def _launched(steps: Iterable[Step]) -> Iterator[Kernel]:
    """Every kernel that some step launches, on its own or as a tail."""
    for step in steps:
        if isinstance(step, Launch):
            yield step.kernel
        elif isinstance(step, Gemm) and step.tail is not None:
            yield step.tail
        elif isinstance(step, Loop):
            yield from _launched(step.body)
        elif isinstance(step, WhileLoop):
            yield from _launched((*step.cond_body, *step.body))
        elif isinstance(step, Branch):
            for branch in step.branches:
                yield from _launched(branch)
