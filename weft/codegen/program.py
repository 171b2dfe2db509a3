"""Programs to callable native code.

In:   a `Program` (kernels, matmuls, copies, host calls and control flow over planned buffers).
Out:  a `NativeProgram`: the address of its entry and everything that must stay alive with it; `image_of` gives all its code
      as one image, which another process can load.
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

from weft.codegen import cache, loader, native, objects, pool, symbols, target
from weft.codegen.entry import EntryEmitter
from weft.codegen.loopshape import is_brief
from weft.codegen.native import NativeProgram
from weft.codegen.objects import Order
from weft.ir import loops_text
from weft.ir.loops import Kernel, check
from weft.ir.program import Branch, Gemm, Launch, Loop, Program, Sort, Step, WhileLoop
from weft.util.record import record

if TYPE_CHECKING:
    from llvmlite.binding import ResourceTracker

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
    stored: str                 # the key of the object that holds it


_kernels: dict[str, CompiledKernel] = {}
_lock = threading.RLock()


def _link(data: bytes, exports: Sequence[str], imports: dict[str, int]) -> loader.Loaded | ResourceTracker:
    """Load an object that may call the C library, and the thread pool: that is made when the first object names it."""
    if any(name.encode() in data for name in symbols.POOL_PREFIXES):
        imports = imports | pool.symbols()
    target.share(symbols.of_c)
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


def _provide(kernels: dict[str, Kernel], others: Sequence[Order], meanwhile: Callable[[], object] | None = None) -> None:
    """Load kernels, compiling what is missing; objects that will be wanted next are prepared at the same time."""
    threads = pool.num_threads()
    with _lock:
        missing = {name: kernel for name, kernel in kernels.items() if name not in _kernels}
        for name in list(missing):
            if name not in _kernels:
                _adopt(name, missing)
        rest = [(name, kernel) for name, kernel in missing.items() if name not in _kernels]
        batches = [(batch, brief) for brief in (False, True) for batch in _batches([k for k in rest if is_brief(k[1]) == brief], threads)]
        orders = [Order(cache.key("batch", *batch), functools.partial(_batch_ir, batch), brief) for batch, brief in batches]
        objects.prepare([*orders, *others], threads, meanwhile)
        for (batch, _), order in zip(batches, orders):
            _link_batch(batch, order.key, objects.take(order), False)
            where = f"{order.key} {' '.join(batch)}".encode()
            for name in batch:
                cache.later(name, lambda where=where: where)


def _batches(kernels: list[tuple[str, Kernel]], threads: int) -> list[dict[str, Kernel]]:
    """Kernels divided into modules: one of a single kernel is mostly fixed cost."""
    count = max(-(-len(kernels) // BATCH), min(threads, len(kernels) // 2))
    return [dict(kernels[i::count]) for i in range(count)]


def _adopt(name: str, wanted: dict[str, Kernel]) -> None:
    """Load the object on disk that holds kernel `name`, and with it the other wanted kernels that it holds."""
    data = cache.read(name)
    where, *held = data.decode().split(" ") if data is not None else ("",)
    code = cache.read(where) if where else None
    if code is not None:
        _link_batch({one: wanted[one] for one in held if one in wanted}, where, code, True)


def _batch_ir(batch: dict[str, Kernel]) -> str:
    """Kernels as one module: the fixed cost of a module is a third of a small kernel's."""
    return _ir([(kernel, _symbol(name)) for name, kernel in batch.items()], target.current())


def _link_batch(batch: dict[str, Kernel], stored: str, code: bytes, from_disk: bool) -> None:
    tracker = _link(code, [_symbol(name) for name in batch], {})
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(tracker))  # kernels are never unloaded, not even at exit
    for name, kernel in batch.items():
        address = tracker[_symbol(name)]
        _kernels.setdefault(name, CompiledKernel(_symbol(name), address, kernel, from_disk, tracker, stored))


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


@record
class Made:
    """What a native program was made of. `stored` are the keys of its objects, each after those that it names."""
    program: Program
    compiled_kernels: tuple[CompiledKernel, ...]
    entry_texts: tuple[str, ...]
    stored: tuple[str, ...]

    def ir_text(self) -> str:
        """LLVM IR of the kernels and the entry."""
        texts = [f"; kernel {made.kernel.name}\n{kernel_ir(made.kernel, made.symbol)}"
                 for made in self.compiled_kernels]
        return "\n".join([*texts, *[f"; entry\n{text}" for text in self.entry_texts]])

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
    modules = emitter.modules(native.ENTRY)
    entry_orders = [Order(cache.key(target.current().identity, "entry", text), functools.partial(str, text), True) for _, text in modules]
    orders: list[Order] = []
    if matmuls:
        from weft.codegen import gemm

        orders += [part for symbol, wanted in matmuls.items() for part in gemm.orders(symbol, wanted)]
    if sorts:
        from weft.codegen import sort

        orders += [part for symbol in dict.fromkeys(sorts) for part in sort.orders(symbol)]
    parallel = bool(matmuls or sorts or emitter.routines) or any(kernel.parallel_extent > 1 for kernel in launched.values())
    if parallel:
        orders += pool.orders()
    kernels = {names[number]: kernel for number, kernel in launched.items()}
    _provide(kernels, [*orders, *entry_orders], pool.make_of_what_is_there if parallel else None)
    distinct = {_symbol(name): _kernels[name] for name in names.values()}
    imports = {symbol: made.address for symbol, made in distinct.items()}
    imports |= {symbol: gemm.ensure(symbol, wanted) for symbol, wanted in matmuls.items()}
    imports |= {symbol: sort.ensure(symbol) for symbol in dict.fromkeys(sorts)}
    host = native.HostCalls(emitter.host_calls)
    imports |= symbols.addresses([*map(symbols.routine, emitter.routines), *(symbols.RULE if emitter.rules_library else ())])
    if emitter.host_calls:
        imports["weft_host_run"] = id(host.runner)
        imports |= symbols.addresses(symbols.CALLS)
    if emitter.checks_signals:
        imports |= symbols.addresses(symbols.SIGNALS)
    trackers = []
    for (symbol, _), order in zip(modules, entry_orders):
        trackers.append(_link(objects.take(order), [symbol], imports))
        imports[symbol] = trackers[-1][symbol]
    stored = list(dict.fromkeys([kernel.stored for kernel in distinct.values()]))
    stored += [key for symbol in matmuls for key in gemm.stored(symbol)]
    stored += [key for symbol in dict.fromkeys(sorts) for key in sort.stored(symbol)]
    stored += [order.key for order in entry_orders]
    made = Made(program, tuple(distinct.values()), tuple([text for _, text in modules]), tuple(stored))
    from_disk = sum(kernel.from_disk for kernel in made.compiled_kernels)
    return NativeProgram(imports[native.ENTRY], host, [trackers, made], len(distinct), from_disk, lambda: made, bool(emitter.routines))


def image_of(made: Made) -> loader.Image | None:
    """All code of a program, linked; None where an object is not on disk or not for our linker."""
    found = [cache.read(key) for key in made.stored] if loader.works_here() else [None]
    try:
        return loader.link([data for data in found if data is not None]) if None not in found else None
    except loader.Unsupported:
        return None


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
