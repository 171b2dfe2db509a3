"""LLVM as a compiler of texts, and what becomes of its objects.

In:   LLVM IR as text, and the target.
Out:  addresses of native functions.
Laws: an object on disk is read only if it is whole and its key matches sources, machine and LLVM's version; LLVM's library is
      loaded only when something has to be compiled.
Next: `target` is the machine, `objects` compiles or finds, `cache` is the disk, `loader` links, `native_library` serves the
      routines that every process has once.
"""
