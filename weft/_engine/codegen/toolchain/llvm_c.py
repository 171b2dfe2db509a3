"""LLVM's code generator, through the C functions of the library that llvmlite ships.

In:   the text of a module and a `LLVMTargetMachine`; every module gets its own context.
Out:  `emit`: an object or assembly; `host`: LLVM's name of this CPU and its features.
Laws: the Python package itself is not imported, which would take five times as long as loading the
      library. The GIL is released while LLVM works. A machine is used by one thread at a time.
      Interpreter exit waits for the modules in progress, and daemon threads begin no more: the
      process destroys LLVM's static data, and code that reads them afterwards aborts.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib.util
import operator
import os
import sys
import threading
import time

from weft._engine.util.errors import is_refusal, refuse
from weft._engine.util.threads import hold_during_fork
from weft._engine.util.user_code_suspension import suspended

_TEXT, _ANY, _INT = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int
_OUT = ctypes.POINTER(ctypes.c_void_p)

#: name without its prefix -> the result type, then the argument types
_SIGNATURES = {
    "InitializeNativeTarget": (None,),
    "InitializeNativeAsmPrinter": (None,),
    "InitializeNativeAsmParser": (None,),
    "ContextCreate": (_ANY,),
    "ContextDispose": (None, _ANY),
    "ParseAssembly": (_ANY, _ANY, _TEXT, _OUT),
    "SetTarget": (None, _ANY, _TEXT),
    "DisposeModule": (None, _ANY),
    "GetDefaultTargetTriple": (None, _OUT),
    "GetProcessTriple": (None, _OUT),
    "GetTargetFromTriple": (_ANY, _TEXT, _OUT),
    "CreateTargetMachine": (_ANY, _ANY, _TEXT, _TEXT, _TEXT, _INT, _TEXT, _TEXT, _INT, _INT, _TEXT),
    "DisposeTargetMachine": (None, _ANY),
    "TargetMachineEmitToMemory": (_ANY, _ANY, _ANY, _INT, _OUT),
    "GetBufferStart": (_ANY, _ANY),
    "GetBufferSize": (ctypes.c_size_t, _ANY),
    "DisposeMemoryBuffer": (None, _ANY),
    "GetHostCPUName": (None, _OUT),
    "GetHostCPUFeatures": (_INT, _OUT),
    "DisposeString": (None, _ANY),
}

#: functions that release the GIL; the others return sooner than a thread can take the GIL back
_LONG = {"ParseAssembly", "TargetMachineEmitToMemory"}

_lock = hold_during_fork(threading.RLock())
_loaded: list[ctypes.CDLL] = []  # empty, or the loaded library
_inside: set[int] = set()  # ids of the threads that are inside LLVM
_ends = False  # True once the interpreter exits
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_inside.clear)


@functools.cache
def place() -> str:
    """Return the path of the library."""
    spec = importlib.util.find_spec("llvmlite")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(
            "weft compiles with LLVM, which is part of the package llvmlite; it is not installed. "
            "Install it with `pip install llvmlite`.",
            name="llvmlite",
        )
    name = {"win32": "llvmlite.dll", "darwin": "libllvmlite.dylib"}.get(
        sys.platform, "libllvmlite.so"
    )
    return os.path.join(spec.submodule_search_locations[0], "binding", name)


@functools.cache
def identity() -> str:
    """Return a text that identifies this build of LLVM, without loading it; the library file
    changes with the package."""
    facts = os.stat(place())
    return f"{facts.st_size}-{facts.st_mtime_ns}"


def library() -> ctypes.CDLL:
    """Return the library with typed functions, ready to compile; load it on first use."""
    if not _loaded:
        with suspended, _lock:
            if not _loaded:
                _loaded.append(_load(place()))
    return _loaded[0]


def is_loaded() -> bool:
    """Return whether `library` returns without loading."""
    return bool(_loaded)


def _load(path: str) -> ctypes.CDLL:
    try:
        loaded = (
            ctypes.PyDLL(path, handle=_open(path))
            if sys.platform == "linux"
            else ctypes.PyDLL(path)
        )
    except OSError as error:
        if not is_refusal(error):
            raise
        raise refuse(os.path.getsize(path), f"LLVM ({path})") from error
    free = ctypes.CDLL(path, handle=loaded._handle)
    for name, (result, *arguments) in _SIGNATURES.items():
        function = getattr(free if name in _LONG else loaded, f"LLVMPY_{name}")
        function.restype, function.argtypes = result, arguments
        setattr(loaded, name, function)
    loaded.InitializeNativeTarget()
    loaded.InitializeNativeAsmPrinter()
    loaded.InitializeNativeAsmParser()
    return loaded


def _open(path: str) -> int | None:
    """Return a handle from `dlopen`, called without the GIL; None on failure: ctypes then repeats
    the load and reports the error."""
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.restype, dlopen.argtypes = _ANY, [_TEXT, _INT]
    return dlopen(os.fsencode(path), os.RTLD_NOW)


class _LLVMString:
    """A string that LLVM allocates: an error message or a result."""

    __slots__ = ("pointer",)

    def __init__(self):
        self.pointer = ctypes.c_void_p(None)

    def take(self) -> str:
        """Return the string and free it; empty if LLVM returned none."""
        if not self.pointer:
            return ""
        text = ctypes.string_at(self.pointer.value or 0).decode()
        library().DisposeString(self.pointer)
        self.pointer = ctypes.c_void_p(None)
        return text


def _query_string(name: str) -> str:
    words = _LLVMString()
    getattr(library(), name)(words.pointer)
    return words.take()


def host() -> tuple[str, str]:
    """Return LLVM's name of this CPU, and its features in alphabetical order, as in
    `+avx,-avx512f`."""
    features = sorted(
        _query_string("GetHostCPUFeatures").split(","), key=operator.itemgetter(slice(1, None))
    )
    return _query_string("GetHostCPUName"), ",".join([feature for feature in features if feature])


class LLVMTargetMachine:
    """A code generator for one CPU and optimization level. It holds its tables of the CPU, 0.7 MiB,
    until it is disposed of."""

    __slots__ = ("pointer",)

    def __init__(self, cpu: str, features: str, level: int):
        triple, error = _query_string("GetDefaultTargetTriple").encode(), _LLVMString()
        target = library().GetTargetFromTriple(triple, error.pointer)
        if not target:
            raise RuntimeError(f"LLVM: {error.take()}")
        model = b"jitdefault"  # the large code model: objects may be at any addresses
        self.pointer = library().CreateTargetMachine(
            target, triple, cpu.encode(), features.encode(), level, b"pic", model, 0, 1, b""
        )
        if not self.pointer:
            raise RuntimeError(f"LLVM: no machine for {cpu!r} with features {features!r}")

    def dispose(self) -> None:
        """Free the machine, which must not be used afterwards."""
        library().DisposeTargetMachine(self.pointer)


@atexit.register
def _finish() -> None:
    global _ends
    _ends = True
    while _inside:
        time.sleep(0.001)


def ends() -> bool:
    """Return whether the interpreter exits, so that only the main thread may compile."""
    return _ends


def emit(ir: str, machine: LLVMTargetMachine, assembly: bool = False) -> bytes:
    """Return the object of a textual module, or its assembly; raise SystemExit in daemon threads at
    interpreter exit."""
    me = threading.get_ident()
    _inside.add(me)  # before the test: `_finish` first sets `_ends`, then reads `_inside`
    try:
        if _ends and threading.current_thread() is not threading.main_thread():
            raise SystemExit
        return _translate(ir, machine, assembly)
    finally:
        _inside.discard(me)


def _translate(ir: str, machine: LLVMTargetMachine, assembly: bool) -> bytes:
    llvm, error = library(), _LLVMString()
    context = llvm.ContextCreate()
    try:
        module = llvm.ParseAssembly(context, ir.encode(), error.pointer)
        message = error.take()
        if message:
            raise RuntimeError(f"LLVM IR parsing error\n{message}")
        try:
            llvm.SetTarget(module, _process_triple())
            return _emit(llvm, machine, module, error, not assembly)
        finally:
            llvm.DisposeModule(module)
    finally:
        llvm.ContextDispose(context)


def _emit(
    llvm: ctypes.CDLL, machine: LLVMTargetMachine, module: int, error: _LLVMString, as_object: bool
) -> bytes:
    buffer = llvm.TargetMachineEmitToMemory(machine.pointer, module, int(as_object), error.pointer)
    if not buffer:
        raise RuntimeError(f"LLVM: {error.take()}")
    try:
        return ctypes.string_at(llvm.GetBufferStart(buffer), llvm.GetBufferSize(buffer))
    finally:
        llvm.DisposeMemoryBuffer(buffer)


@functools.cache
def _process_triple() -> bytes:
    return _query_string("GetProcessTriple").encode()
