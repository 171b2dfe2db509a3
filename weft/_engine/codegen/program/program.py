"""Compilation of programs to callable native code.

In:   a `ScheduledProgram` (kernels, matmuls, copies, host calls and control flow over assigned buffers).
Out:  a `NativeProgram`: the address of its entry and everything that must stay alive with it;
      `image_of` returns all its code as one image, which another process can load.
Laws: a kernel is compiled once per process and shared by programs until caches are cleared;
      programs keep the code that they run. It is compiled once per machine while the disk cache
      lasts. The same holds for unoptimized drafts of kernels, which compute the same bits, and for
      entries. LLVM is not loaded if all objects are on disk (on x86-64 Linux).
"""

from __future__ import annotations

import ctypes
import functools
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from weft._engine.codegen.kernel.vectorization_plan import is_brief, iterations, upper_bound
from weft._engine.codegen.program import program_runner
from weft._engine.codegen.program.build_record import BuildRecord, CompiledKernel, module_ir
from weft._engine.codegen.program.entry import EntryEmitter
from weft._engine.codegen.program.program_runner import NativeProgram
from weft._engine.codegen.runtime import pool, symbols
from weft._engine.codegen.runtime.routines import Routine
from weft._engine.codegen.toolchain import loader, objects, target
from weft._engine.codegen.toolchain.native_library import compile_concurrently
from weft._engine.codegen.toolchain.objects import ObjectRequest
from weft._engine.ir import loops_text
from weft._engine.ir.loops import LoopsKernel
from weft._engine.ir.program import (
    OUTLINED_BYTES,
    OUTLINED_CALL_BYTES,
    Branch,
    Fft,
    Gemm,
    HostCallStep,
    Launch,
    Loop,
    ScheduledProgram,
    Sort,
    Step,
    WhileLoop,
)
from weft._engine.util import cache
from weft._engine.util.dispatch_state import on_clear_caches
from weft._engine.util.errors import ProcessFailureError
from weft._engine.util.threads import hold_during_fork

if TYPE_CHECKING:
    from llvmlite.binding import ResourceTracker

    from weft._engine.codegen.runtime.routines import Routines

# thresholds, measured on several machines
#: number of iterations at which a draft of a kernel takes about 1 ms longer (drafts take up to 1.7
#: times as long)
_DRAFT_ITERATIONS = 1 << 24
#: assumed iterations of a while loop in the estimate of a program's work
_WHILE_LOOP_TRIPS = 64


#: optimization level of a kernel; a brief kernel is never worth optimizing
OptLevel = Literal["optimized", "brief", "draft"]
#: maximum number of kernels in a module
BATCH = 16


_kernels: dict[str, CompiledKernel] = {}
_drafts: dict[str, CompiledKernel] = {}
_lock = hold_during_fork(threading.RLock())


def _link(
    data: bytes, exports: Sequence[str], imports: dict[str, int]
) -> loader.LinkedObject | ResourceTracker:
    """Load an object, which may call the C library and the thread pool; the pool is created if the
    object refers to it."""
    if any(name.encode() in data for name in symbols.POOL_PREFIXES):
        imports = imports | pool.symbols()
    target.define_shared_symbols(symbols.of_c)
    return target.link(data, exports, imports)


def _kernel_name(kernel: LoopsKernel) -> str:
    return cache.key(target.current().identity, loops_text.canonical(kernel))


@on_clear_caches
def _forget_kernels() -> None:
    """Forget compiled kernels: their code then lives as long as the programs that run it."""
    with _lock:
        _kernels.clear()
        _drafts.clear()


def _load_kernels(
    kernels: dict[str, LoopsKernel],
    quick: Collection[str],
    others: Sequence[ObjectRequest],
    meanwhile: Callable[[], object] | None = None,
) -> dict[str, CompiledKernel]:
    """Load kernels and compile missing ones, `quick` kernels as drafts. Prepare the objects of
    `others` at the same time."""
    threads = pool.num_threads()
    with _lock:
        is_loaded = lambda name: name in _kernels or (name in quick and name in _drafts)
        missing = {name: kernel for name, kernel in kernels.items() if not is_loaded(name)}
        for name in list(missing):
            if not is_loaded(name):
                _load_stored_kernels(name, missing)
        uncompiled = [(name, kernel) for name, kernel in missing.items() if not is_loaded(name)]
        kinds: dict[OptLevel, list[tuple[str, LoopsKernel]]] = {
            "optimized": [],
            "brief": [],
            "draft": [],
        }
        for name, kernel in uncompiled:
            kinds[_opt_level(kernel, name in quick)].append((name, kernel))
        batches: list[tuple[dict[str, LoopsKernel], OptLevel]] = [
            (batch, opt_level)
            for opt_level, kernels_ in kinds.items()
            for batch in _batches(kernels_, threads)
        ]
        requests = [_batch_request(batch, opt_level) for batch, opt_level in batches]
        objects.prepare([*requests, *others], threads, meanwhile)
        for (batch, opt_level), request in zip(batches, requests):
            _link_new(batch, request, opt_level == "draft")
        return {name: _kernels.get(name) or _drafts[name] for name in kernels}


def _opt_level(kernel: LoopsKernel, is_draft: bool) -> OptLevel:
    return "brief" if is_brief(kernel) else "draft" if is_draft else "optimized"


def _batch_request(batch: dict[str, LoopsKernel], opt_level: OptLevel) -> ObjectRequest:
    key = cache.key("batch", *batch, *["draft"] * (opt_level == "draft"))
    return ObjectRequest(key, functools.partial(_batch_ir, batch), opt_level != "optimized")


def _link_new(
    batch: dict[str, LoopsKernel], request: ObjectRequest, is_draft: bool = False
) -> None:
    """Link newly compiled kernels; kernels that are not drafts are indexed on disk by name."""
    _link_batch(batch, request.key, objects.take(request), False, is_draft)
    where = f"{request.key} {' '.join(batch)}".encode()
    for name in () if is_draft else batch:
        cache.write_later(name, lambda: where)


def _batches(kernels: list[tuple[str, LoopsKernel]], threads: int) -> list[dict[str, LoopsKernel]]:
    """Divide kernels into modules, since a module of one kernel is mostly fixed cost."""
    count = max(-(-len(kernels) // BATCH), min(threads, len(kernels) // 2))
    return [dict(kernels[i::count]) for i in range(count)]


def _load_stored_kernels(name: str, kernels: dict[str, LoopsKernel]) -> None:
    """Load the object on disk that contains kernel `name`, with all its kernels in `kernels`."""
    where, *contained = (cache.read(name) or b"").decode(errors="replace").split(" ")
    code = cache.read(where) if where else None
    if code is not None:
        try:
            _link_batch(
                {one: kernels[one] for one in contained if one in kernels}, where, code, True
            )
        except ProcessFailureError:
            raise  # another process failed during the read
        except Exception:  # an unreadable object counts as missing
            return


def _batch_ir(batch: dict[str, LoopsKernel]) -> str:
    """Return the text of kernels as one module; the fixed cost of a module is a third of the cost
    of a small kernel."""
    return module_ir([(kernel, _symbol(name)) for name, kernel in batch.items()], target.current())


def _link_batch(
    batch: dict[str, LoopsKernel], stored: str, code: bytes, from_disk: bool, is_draft: bool = False
) -> None:
    tracker = _link(code, [_symbol(name) for name in batch], {})
    if not isinstance(tracker, loader.LinkedObject):
        # LLVM would unload the code at exit, while threads may run it
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(tracker))
    for name, kernel in batch.items():
        compiled = CompiledKernel(
            _symbol(name), tracker[_symbol(name)], kernel, from_disk, tracker, stored, is_draft
        )
        (_drafts if is_draft else _kernels).setdefault(name, compiled)


def _symbol(name: str) -> str:
    return f"weft_k_{name}"


def compile_program(
    program: ScheduledProgram,
    draft: bool = False,
    emitter_type: type[EntryEmitter] = EntryEmitter,
) -> NativeProgram:
    """Compile a program; a `draft` skips optimizations that take long and gain little. `emitter_type` emits its entry."""
    return _ProgramBuild(program, draft, emitter_type).link()


class _ProgramBuild:
    """The build of one program: its kernels, library routines, and the modules of its entry."""

    def __init__(
        self,
        program: ScheduledProgram,
        draft: bool,
        emitter_type: type[EntryEmitter] = EntryEmitter,
    ) -> None:
        self.program, self.steps = program, [*_iterate_steps(program.steps)]
        kernels = {
            id(k): k for k in _collect_launched_kernels(program.steps) if k.parallel_extent > 0
        }
        self.names = {number: _kernel_name(kernel) for number, kernel in kernels.items()}
        self.kernels = {self.names[number]: kernel for number, kernel in kernels.items()}
        draft = draft and not any(isinstance(step, HostCallStep) for step, _ in self.steps)
        drafted = _select_draft_kernels(self.steps) if draft else []
        self.quick = frozenset([self.names[number] for number in drafted if number in self.names])
        routines = _ProgramRoutines(draft and all(times == 1 for _, times in self.steps))
        self.emitter = emitter_type(program, self._kernel_symbol, routines.symbol)
        self.modules = self.emitter.modules(program_runner.ENTRY)
        identity = target.current().identity
        self.entry_requests = [
            ObjectRequest(cache.key(identity, "entry", text), functools.partial(str, text), True)
            for _, text in self.modules
        ]
        self.used = routines.all_routines()

    def _kernel_symbol(self, kernel: LoopsKernel) -> str:
        return _symbol(self.names[id(kernel)])

    def link(self) -> NativeProgram:
        """Compile missing objects, link everything and return the program."""
        kernels = self._compiled_kernels()
        host = program_runner.HostCallRunner(self.emitter.host_calls)
        imports = self._imports(kernels, host)
        trackers = []
        for (symbol, _), request in zip(self.modules, self.entry_requests):
            trackers.append(_link(objects.take(request), [symbol], imports))
            imports[symbol] = trackers[-1][symbol]
        record = self._record(kernels)
        native_program = NativeProgram(
            imports[program_runner.ENTRY],
            host,
            [trackers, record],
            len(kernels),
            sum(kernel.from_disk for kernel in kernels),
            lambda: record,
            bool(self.emitter.routines),
        )
        traffic = self.emitter.traffic
        native_program.work = round(
            sum([_work(traffic(step), times) for step, times in self.steps])
        )
        if any(kernel.is_draft for kernel in kernels) or any(r.draft for r in self.used):
            native_program.is_draft = True
        return native_program

    def _compiled_kernels(self) -> list[CompiledKernel]:
        """Compile the kernels, and prepare the objects of routines and the entry."""
        requests = [part for routine in self.used for part in routine.requests()]
        parallel = bool(self.used or self.emitter.routines or self.emitter.has_tasks) or any(
            kernel.parallel_extent > 1 for kernel in self.kernels.values()
        )
        if parallel:
            requests += pool.requests()
        meanwhile = pool.make_if_compiled if parallel else None
        compiled = _load_kernels(
            self.kernels, self.quick, [*requests, *self.entry_requests], meanwhile
        )
        return [compiled[name] for name in self.kernels]

    def _imports(
        self, kernels: list[CompiledKernel], host: program_runner.HostCallRunner
    ) -> dict[str, int]:
        """Return the addresses of the symbols that the entry refers to."""
        emitter = self.emitter
        imports = {kernel.symbol: kernel.address for kernel in kernels}
        imports |= emitter.imports(self.used)
        library = [*map(symbols.routine, emitter.routines)]
        imports |= symbols.addresses(
            [
                *library,
                *(symbols.LIBRARY_THREAD_SYMBOLS if emitter.restricts_library_threads else ()),
            ]
        )
        if emitter.host_calls:
            imports["weft_host_run"] = id(host.runner)
            imports |= symbols.addresses(symbols.PYTHON_CALL_SYMBOLS)
        if emitter.checks_signals:
            imports |= symbols.addresses(symbols.SIGNAL_SYMBOLS)
        return imports

    def _record(self, kernels: list[CompiledKernel]) -> BuildRecord:
        stored = list(dict.fromkeys([kernel.stored for kernel in kernels]))
        stored += [key for routine in self.used for key in routine.stored_object_keys()]
        stored += [request.key for request in self.entry_requests]
        texts = tuple([text for _, text in self.modules])
        return BuildRecord(self.program, tuple(kernels), texts, tuple(stored))


class _ProgramRoutines:
    """The native routines that the steps of a program call."""

    def __init__(self, draft_ok: bool = False):
        self.draft_ok = draft_ok
        # matmul -> the optional functions that it needs
        self.matmuls: dict[str, frozenset[str]] = {}
        self.large: set[str] = set()  # matmuls that must be optimized
        # sorts and Fourier transforms, with their maker and True if a draft suffices
        self.others: dict[str, tuple[Routines, bool]] = {}

    def symbol(self, step: Gemm | Sort | Fft) -> str:
        """Return the symbol of the function for a step, and register the routine as used."""
        if isinstance(step, Gemm):
            from weft._engine.codegen.gemm import gemm

            symbol, _ = gemm.describe(step)
            self.matmuls[symbol] = self.matmuls.get(symbol, frozenset()) | gemm.features(step)
            if not gemm.is_small(step):
                self.large.add(symbol)
            return symbol
        if isinstance(step, Sort):
            from weft._engine.codegen.library import sort

            symbol, routines = sort.symbol(step), sort.ROUTINES
            is_draft_enough = self.draft_ok and not sort.is_worth_optimizing(step)
        else:
            from weft._engine.codegen.library import fft

            symbol, routines = fft.symbol(step), fft.ROUTINES
            is_draft_enough = self.draft_ok and not fft.is_worth_optimizing(step)
        _, rough = self.others.get(symbol, (None, True))
        self.others[symbol] = routines, rough and is_draft_enough
        return symbol

    def all_routines(self) -> list[Routine]:
        """Return all routines, matmuls first, because they take longest to compile."""
        matmuls = []
        for symbol, matmul in self.matmuls.items():
            from weft._engine.codegen.gemm import gemm

            draft = (
                self.draft_ok and symbol not in self.large and gemm.is_slow_to_make(symbol, matmul)
            )
            matmuls.append(Routine(symbol, gemm, matmul, draft))
        return matmuls + [
            Routine(symbol, routines, None, rough)
            for symbol, (routines, rough) in self.others.items()
        ]


def _select_draft_kernels(steps: Iterable[tuple[Step, float]]) -> list[int]:
    """Return the ids of kernels that may run as drafts, because their total work is small."""
    work: dict[int, float] = {}
    for step, times in steps:
        if isinstance(step, Launch):
            work[id(step.kernel)] = work.get(id(step.kernel), 0) + times * iterations(
                step.kernel.body, upper_bound
            )
        elif isinstance(step, Gemm) and step.epilogue is not None:
            elements = step.m * step.n * math.prod([extent for extent, *_ in step.batch])
            work[id(step.epilogue)] = work.get(id(step.epilogue), 0) + times * elements
    return [number for number, most in work.items() if most <= _DRAFT_ITERATIONS]


def _iterate_steps(steps: Iterable[Step], times: float = 1) -> Iterator[tuple[Step, float]]:
    """Yield all steps, including nested steps, each with its maximum number of runs."""
    for step in steps:
        yield step, times
        if isinstance(step, Branch):
            for branch in step.branches:
                yield from _iterate_steps(branch, times)
        elif isinstance(step, Loop):
            yield from _iterate_steps(step.body, times * step.extent)
        elif isinstance(step, WhileLoop):
            yield from _iterate_steps((*step.cond_body, *step.body), math.inf)


def _work(traffic: int, times: float) -> float:
    """Return the estimated total cost of a step.

    The traffic of a kernel that contains an uncounted loop is the maximum possible; in an uncounted
    loop it is replaced by the typical traffic of such a kernel.
    """
    if times < math.inf:
        return times * traffic
    return _WHILE_LOOP_TRIPS * (traffic if traffic < OUTLINED_CALL_BYTES else OUTLINED_BYTES)


def improve(program: ScheduledProgram, is_over: Callable[[], bool]) -> NativeProgram | None:
    """Compile a program that was a draft, optimized; return None if `is_over` becomes true.

    Modules are compiled one by one, in parallel to compilations of other threads.
    """
    for request in _library_requests(program):
        if not is_over() and not objects.is_there(request):
            compile_concurrently(request)
    for kernel in _collect_launched_kernels(program.steps):
        if is_over():
            return None
        name = _kernel_name(kernel)
        if kernel.parallel_extent > 0 and name not in _kernels:
            request = _batch_request({name: kernel}, _opt_level(kernel, False))
            if not objects.is_there(request):
                compile_concurrently(request)
            with _lock:
                _link_new({name: kernel}, request)
    return None if is_over() else compile_program(program)


def _library_requests(program: ScheduledProgram) -> list[ObjectRequest]:
    """Return the objects of the optimized matmuls, sorts and Fourier transforms of a program."""
    routines = _ProgramRoutines()
    for step, _ in _iterate_steps(program.steps):
        if isinstance(step, (Gemm, Sort, Fft)):
            routines.symbol(step)
    return [request for routine in routines.all_routines() for request in routine.requests()]


def image_of(build_record: BuildRecord) -> loader.Image | None:
    """Return all code of a program, linked; None if an object is not on disk or `loader` does not
    support it."""
    codes = (
        [cache.read(key) for key in build_record.stored] if loader.supports_machine() else [None]
    )
    try:
        return (
            loader.link([data for data in codes if data is not None]) if None not in codes else None
        )
    except loader.UnsupportedObjectError:
        return None


def _collect_launched_kernels(steps: Iterable[Step]) -> list[LoopsKernel]:
    """Return all kernels that steps launch, directly or as an epilogue."""
    kernels = [
        step.kernel
        if isinstance(step, Launch)
        else step.epilogue
        if isinstance(step, Gemm)
        else None
        for step, _ in _iterate_steps(steps)
    ]
    return [kernel for kernel in kernels if kernel is not None]
