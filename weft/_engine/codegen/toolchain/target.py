"""The target machine: CPU, features, vector width, object emission and linking.

In:   the host CPU, or its restriction by WEFT_CPU_FEATURES (`amx`, `avx512`, `avx512-plain`, `avx2`,
      `generic`; `mmla` on aarch64).
Out:  `current()`, one `CpuTarget`; `emit_object` and `assembly` turn LLVM IR into machine code; `link`
      makes it callable.
Laws: LLVM is loaded on first use only: to compile, not to link objects from disk (`llvm_c`,
      `loader`). Kernels are emitted as explicit vectors, so no LLVM pass pipeline runs: compiling a
      kernel is parsing and instruction selection only.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from weft._engine.codegen.toolchain import arm_features, llvm_c, loader, tile_permission
from weft._engine.util import cache, machine
from weft._engine.util.record import field, record
from weft._engine.util.threads import DaemonThread, hold_during_fork
from weft._engine.util.user_code_suspension import suspended

if TYPE_CHECKING:
    from llvmlite.binding import LLJIT, ResourceTracker

#: features of each level (x86-64 only), if it has fewer than the processor; all others are off. Tiles
#: (`amx`, and `mmla` on aarch64) are never chosen by default: no quiet machine has shown their speed yet
_AVX2 = "+avx2,+avx,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,+sse4.2,+sse4.1,+ssse3,+sse3,+sse2,+cx16,+64bit"
_LEVELS = {
    "amx": None,
    "mmla": None,
    "avx512": None,
    "avx512-plain": f"{_AVX2},+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl",  # the features of the first AVX-512 CPUs
    "avx2": _AVX2,
    "generic": "+sse2,+64bit",
}
_LEVEL_CPU = {"avx512-plain": "skylake-avx512", "avx2": "haswell", "generic": "x86-64"}

_AVX512 = {"+avx512f", "+avx512bw", "+avx512vl", "+avx512dq"}
_AMX = {"+amx-tile", "+amx-bf16", "+amx-int8"}
_MMLA = {"bf16": "BFMMLA", "i8mm": "SMMLA"}

#: LLVM code generation level: 1 compiles our kernels 5 to 10 % faster than 2, to the same inner
#: loops
_CODEGEN_LEVEL = 1


@record
class CpuTarget:
    """A CPU with its features. `level` is avx512, avx2, neon or generic; `vector_bytes` is the
    width of its registers."""

    cpu: str
    features: str
    level: str
    vector_bytes: int
    has_fma: bool
    has_f16: bool
    is_x86: bool
    identity: str = field(default="", compare=False)

    @property
    def has_masks(self) -> bool:
        """True if masked loads and stores of every type are single instructions."""
        return self.level == "avx512"

    @property
    def has_bf16(self) -> bool:
        """True if one instruction rounds whole registers to bfloat16."""
        return self.level == "avx512" and "+avx512bf16" in self.features

    @property
    def has_tiles(self) -> bool:
        """True if products may use the tile registers of AMX."""
        return "+amx-tile" in self.features

    def lanes(self, itemsize: int) -> int:
        """Return the number of elements of `itemsize` bytes in one vector register."""
        return max(1, self.vector_bytes // itemsize)


@functools.lru_cache(maxsize=1)
def _host() -> tuple[str, str]:
    """Return LLVM's name of this CPU, and its features; cached on disk to avoid loading LLVM."""
    name = _host_key()
    data = cache.read(name) if name else None
    if data is None:
        data = " ".join(llvm_c.host()).encode()
        if name:
            cache.write(name, data)
    cpu, _, features = data.decode().partition(" ")
    return cpu, features


@functools.lru_cache(maxsize=1)
def _host_key() -> str | None:
    cpu_text = machine.cpu_text()
    has_features = "flags" in cpu_text or "Features" in cpu_text
    return cache.key("host", cpu_text, llvm_c.identity()) if has_features else None


def is_new() -> bool:
    """Return whether nothing was ever compiled on this machine, so that LLVM will be needed."""
    name = _host_key()
    return name is None or not cache.has(name)


@functools.lru_cache(maxsize=4)
def _make(level: str | None) -> CpuTarget:
    cpu, features = _host()
    if loader.architecture().lower() not in ("x86_64", "amd64"):
        neon = loader.architecture().lower() in ("arm64", "aarch64")
        if neon and level == "mmla":
            extra = [f"+{name}" for name in arm_features.matrix_features()]
            features = ",".join([*filter(None, [features]), *extra])
        properties = (
            ("neon", 16, True, True, False) if neon else ("generic", 16, False, False, False)
        )
        return CpuTarget(
            cpu,
            features,
            *properties,
            identity=f"{cpu}|{features}|{machine.name()}|{llvm_c.identity()}",
        )
    have = set(features.split(","))
    best = (
        "avx512" if _AVX512 <= have else "avx2" if {"+avx2", "+fma", "+f16c"} <= have else "generic"
    )
    order = ("generic", "avx2", "avx512-plain", "avx512", "amx")
    if level != "amx" or not _AMX <= have or not tile_permission.request():
        features = features.replace("+amx-", "-amx-")
    if level not in order or order.index(level) >= order.index(best):
        level = best
        if best == "generic":
            cpu, features = _LEVEL_CPU["generic"], _LEVELS["generic"]
    elif level != best:
        cpu, features = _LEVEL_CPU[level], _LEVELS[level]
    level = level.removesuffix("-plain")
    if level == "avx512":
        features += ",-prefer-256-bit"
    width = {"avx512": 64, "avx2": 32, "generic": 16}[level]
    has_vectors = level != "generic"
    return CpuTarget(
        cpu,
        features,
        level,
        width,
        has_vectors,
        has_vectors,
        True,
        identity=f"{cpu}|{features}|{machine.name()}|{llvm_c.identity()}",
    )


def tile_unit() -> str:
    """Return the matrix unit of this processor, and whether products use it, in words for people."""
    features = current().features.split(",")
    if loader.architecture().lower() in ("arm64", "aarch64"):
        units = [_MMLA[name] for name in arm_features.matrix_features()]
        state = (
            "in use"
            if {"+bf16", "+i8mm"} & {*features}
            else "not in use (choose with WEFT_CPU_FEATURES=mmla)"
        )
        return f"{' and '.join(units)}, {state}" if units else "none"
    if not _AMX <= {*_host()[1].split(",")}:
        return "none"
    if "+amx-tile" in features:
        return "AMX, in use"
    if not tile_permission.request():
        return "AMX, which the system refuses to this process"
    return "AMX, not in use (choose with WEFT_CPU_FEATURES=amx)"


def current() -> CpuTarget:
    """Return the target of this process; WEFT_CPU_FEATURES may restrict it to one of `_LEVELS`."""
    level = os.environ.get("WEFT_CPU_FEATURES") or None
    if level is not None and level not in _LEVELS:
        raise ValueError(f"WEFT_CPU_FEATURES: {level!r} is not one of {', '.join(_LEVELS)}.")
    return _make(level)


@functools.lru_cache(maxsize=64)
def _machine(
    target: CpuTarget, level: int = _CODEGEN_LEVEL, number: int = 0
) -> llvm_c.LLVMTargetMachine:
    """Return machine number `number` of several equal machines; concurrent threads need different
    numbers."""
    return llvm_c.LLVMTargetMachine(target.cpu, target.features, level)


# locks of LLVM's foreground and background compilations
_lock, _apart = (
    hold_during_fork(threading.RLock()),
    hold_during_fork(threading.RLock()),
)


class _Compilations:
    """Count of nested compilations by the thread that holds `_lock`; a signal handler may begin one
    within another."""

    count = 0
    most_machines = 1024

    @classmethod
    def enter(cls) -> int:
        """Begin a compilation and return the number of its first machine."""
        cls.count += 1
        return (cls.count - 1) * cls.most_machines


def emit_object(ir: str, target: CpuTarget, quick: bool = False) -> bytes:
    """Return the machine code (a relocatable object) of one textual LLVM module; `quick` as in
    `objects.ObjectRequest`.

    It does not take `_lock`: the caller may hold locks that user code needs while another thread
    holds `_lock`.
    """
    with suspended:
        return _emit_by_new_machine(ir, target, quick)


def emit_in_background(ir: str, quick: bool = False) -> bytes:
    """Like `emit_object` for the current target, in the background, one module at a time."""
    with _apart:
        return _emit_by_new_machine(ir, current(), quick)


def _emit_by_new_machine(ir: str, target: CpuTarget, quick: bool) -> bytes:
    machine = llvm_c.LLVMTargetMachine(target.cpu, target.features, 0 if quick else _CODEGEN_LEVEL)
    try:
        return llvm_c.emit(ir, machine)
    finally:
        machine.dispose()


def emit_objects(
    modules: Sequence[tuple[Callable[[], str], bool]],
    target: CpuTarget,
    threads: int,
    meanwhile: Callable[[], object] | None = None,
) -> list[bytes]:
    """Return the machine code of several modules, (function that writes the text, quick), compiled
    on up to `threads` threads.

    The slowest modules should come first: the caller compiles the first one, since a new thread may
    wait for a CPU on which other threads spin. While one thread compiles, another writes the next
    text. If LLVM is not loaded, one thread loads it while the caller writes texts. When no module
    is left for the caller, it calls `meanwhile`.
    """
    results: list[bytes | BaseException] = [b""] * len(modules)
    unwritten = iter(range(len(modules)))
    written: deque[tuple[int, str]] = deque()

    def work(number: int, item: tuple[int, str] | None = None) -> None:
        while (item := item or _next_text(modules, unwritten, written, results)) is not None:
            i, text = item
            item = None
            try:
                level = 0 if modules[i][1] else _CODEGEN_LEVEL
                results[i] = llvm_c.emit(text, _machine(target, level, first_machine + number))
            except BaseException as error:
                results[i] = error

    others: list[DaemonThread] = []
    with _lock:
        first_machine = _Compilations.enter()
        try:
            longest = (
                _next_text(modules, unwritten, written, results) if llvm_c.is_loaded() else None
            )
            for i in range(1, 1 if llvm_c.ends() else min(threads, len(modules))):
                others.append(DaemonThread(_load_then_work, work, i))
            work(0, longest)
            if meanwhile is not None:
                meanwhile()
        finally:  # the threads' machines are free for the next compilation
            for other in others:
                other.join()
            _Compilations.count -= 1
    codes: list[bytes] = []
    for code in results:
        if isinstance(code, BaseException):
            raise code
        codes.append(code)
    return codes


def _next_text(
    modules: Sequence[tuple[Callable[[], str], bool]],
    unwritten: Iterator[int],
    written: deque[tuple[int, str]],
    results: list[bytes | BaseException],
) -> tuple[int, str] | None:
    """Return the next text to compile; write it now if none is ready, or several while LLVM is
    being loaded."""
    while not written or not llvm_c.is_loaded():
        i = next(unwritten, None)
        if i is None:
            break
        try:
            written.append((i, modules[i][0]()))
        except BaseException as error:
            results[i] = error
    try:
        return written.popleft()
    except IndexError:
        return None


def load() -> None:
    """Load LLVM ahead of the first compilation."""
    llvm_c.library()


def _load_then_work(work: Callable[[int], None], number: int) -> None:
    """Load LLVM, then work. No finalizers run here: they might need locks of the caller, which
    waits for this thread."""
    with suspended:
        with contextlib.suppress(ImportError, OSError):
            # the next compilation raises the error again
            load()
        work(number)


def assembly(ir: str, target: CpuTarget) -> str:
    """Return the assembly of one textual LLVM module."""
    with _lock:
        return llvm_c.emit(ir, _machine(target), assembly=True).decode()


@functools.lru_cache(maxsize=1)
def _jit() -> LLJIT:
    """Return LLVM's linker, for objects and machines that `loader` does not support.

    It is JITLink, because RuntimeDyld aborts the process on relocations between the sections of an
    aarch64 object.
    """
    import llvmlite.binding as binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    target = _make(None)
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=target.cpu,
        features=target.features,
        opt=_CODEGEN_LEVEL,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )
    return binding.create_lljit_compiler(machine, use_jit_link=True)


@functools.lru_cache(maxsize=1)
def _stay_loaded() -> None:
    """Keep the linker alive until the process ends: pool threads may run its code during
    interpreter shutdown."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_jit()))


_library_numbers = itertools.count()


_SHARED = "weft.shared"
_shared: dict[str, int] = {}
_shared_in_llvm: list[ResourceTracker] = []


def define_shared_symbols(symbols: Callable[[], Mapping[str, int]]) -> None:
    """Define the symbols that every linked object may use; only the first call has an effect."""
    with suspended, _lock:
        if not _shared:
            _shared.update(symbols())


def link(
    data: bytes, exports: Iterable[str], imports: Mapping[str, int]
) -> loader.LinkedObject | ResourceTracker:
    """Load an object; the result maps exported names to addresses and must be kept alive."""
    if loader.supports_machine():
        try:
            return loader.load(data, imports, _shared)
        except loader.UnsupportedObjectError:
            pass
    return link_by_llvm(data, exports, imports)


def link_by_llvm(
    data: bytes, exports: Iterable[str], imports: Mapping[str, int]
) -> ResourceTracker:
    """Like `link`, by LLVM's linker: for every machine and every object."""
    from llvmlite.binding import JITLibraryBuilder

    builder = JITLibraryBuilder().add_object_img(data)
    for name, address in imports.items():
        builder.import_symbol(name, address)
    for name in exports:
        builder.export_symbol(name)
    with suspended, _lock:
        _stay_loaded()
        if _shared and not _shared_in_llvm:
            common = JITLibraryBuilder()
            for name, address in _shared.items():
                common.import_symbol(name, address)
            _shared_in_llvm.append(common.link(_jit(), _SHARED))
        if _shared_in_llvm:
            builder.add_jit_library(_SHARED)
        return builder.link(_jit(), f"weft{next(_library_numbers)}")
