"""LLVM as a compiler of text, and the objects it emits.

In:   LLVM IR as text, and the target.
Out:  addresses of native functions.
Laws: an object on disk is used only if it is intact and its key matches sources, machine and LLVM's
      version; LLVM's library is loaded only when a module must be compiled.
Next: `target` describes the machine, `objects` finds or compiles, `util.cache` is the disk cache,
      `loader` links, `native_library` links routines that every process loads once.
"""
