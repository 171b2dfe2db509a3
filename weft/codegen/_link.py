"""Compile textual LLVM IR and link it into this process, for the library parts of native code.

In:   IR text, the names to export, and addresses for what the text declares beyond libc.
Out:  addresses that stay valid for the life of the process.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm

_lock = threading.Lock()
_serial = itertools.count()


@functools.cache
def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=2, reloc="pic", codemodel="jitdefault", jit=True
    )


@functools.cache
def _lljit() -> llvm.LLJIT:
    return llvm.create_lljit_compiler(_machine(), use_jit_link=False)


def link(text: str, exports: Sequence[str], imports: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the addresses of `exports` after compiling `text`; nothing is ever unloaded."""
    with _lock:
        module = llvm.parse_assembly(text)
        module.triple = _machine().triple
        builder = llvm.JITLibraryBuilder().add_object_img(_machine().emit_object(module)).add_current_process()
        for name in exports:
            builder.export_symbol(name)
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        tracker = builder.link(_lljit(), f"weft{next(_serial)}")
        # Workers may still run this code while the interpreter shuts down: keep it mapped to the very end.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(tracker))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_lljit()))
        return {name: tracker[name] for name in exports}


@functools.cache
def host_features() -> frozenset[str]:
    """Return the names of the features that this CPU has."""
    return frozenset(name for name, on in llvm.get_host_cpu_features().items() if on)
