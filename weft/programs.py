"""Executables: from disk where some process compiled the same program before, else from the pipeline.

In:   a Jaxpr without constants, how its inputs and outputs are laid out, and the devices.
Out:  an `Executable`. One that comes from disk is what the compiler would make: its key holds the structure of the program
      (`ir.structure`), all that was said about layouts, the settings, the machine, and the sources of everything that
      compiles. Its stages are computed again when somebody looks at them.
Laws: what has no key (host functions, operations that are not weft's) is compiled every time. A program on disk that cannot be
      read, or not be placed here, counts as missing. A hit imports neither the partitioner, nor the compiler, nor LLVM.
"""

from __future__ import annotations

import functools
import importlib.util
import marshal
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.codegen.program import native
from weft.codegen.runtime import pool
from weft.codegen.toolchain import cache, loader, target
from weft.core.trace import derived_trace, eval_trace
from weft.ir.jaxpr import Jaxpr
from weft.ir.shardings import Sharding
from weft.ir.structure import Untold, structure
from weft.runtime.array import ArraySpec
from weft.runtime.executable import Executable, Plan
from weft.util import events
from weft.util.collector import paused
from weft.util.config import config

if TYPE_CHECKING:
    from weft.codegen.program.build_record import BuildRecord
    from weft.codegen.program.native import NativeProgram
    from weft.ir.program import Program
    from weft.pipeline import Stages

pool.prewarm()

#: who is told of every executable that is made
watchers: list[Callable[[Executable], None]] = []

#: the rooms whose sources decide what becomes of a program
COMPILER = ("", "util", "ir", "core", "ops", "transforms", "control", "partition", "compiler", "codegen", "runtime")


def executable_of(jaxpr: Jaxpr, in_specs: Sequence[ArraySpec], out_shardings: Sequence[Sharding | None],
                  donated: Sequence[int] = (), name: str = "program", assignment: tuple = ()) -> Executable:
    """A program without constants, made callable for inputs laid out as `in_specs`, on the devices `assignment`."""
    start = time.perf_counter()
    key = _key(jaxpr, in_specs, out_shardings, donated, assignment)
    order = (jaxpr, in_specs, out_shardings, donated, name, assignment)
    found = None if key is None else _read(key, order)
    seconds = {"load": time.perf_counter() - start}
    if found is None:
        pool.defer(1)                # the pool is not what is waited for; but if this takes long, let it come
        with derived_trace(eval_trace):
            found = _pipeline().compile_jaxpr(*order)
        pool.defer()
        seconds = found.stages.seconds
        if key is not None:
            _write(key, found)
    _tell(found, start, seconds)
    return found


def _pipeline() -> Any:
    from weft import pipeline  # all of the compiler

    return pipeline


def _tell(made: Executable, start: float, seconds: dict[str, float]) -> None:
    if config.log_compiles:
        import logging  # takes longer than compiling a small program from disk

        logging.getLogger("weft").warning("Finished compilation of %s in %.6f sec (%d kernels, %d collectives)", made.name,
                                          time.perf_counter() - start, made.kernel_count, made.collective_count)
    for watcher in watchers:
        watcher(made)
    if events.watchers:
        events.tell("compile", made.name, int(start * 1e9), time.perf_counter_ns(),
                    **{title: f"{1000 * taken:.2f} ms" for title, taken in seconds.items()})


# ---- keys

def _key(jaxpr: Jaxpr, in_specs: Sequence[ArraySpec], out_shardings: Sequence[Sharding | None], donated: Sequence[int],
         assignment: tuple) -> str | None:
    """The name of the program on disk; None if it cannot have one, or if every stage is to be seen."""
    if config.engine != "native" or config.verify or config.dump or cache.directory() is None or not loader.works_here():
        return None
    specs = [(s.aval, s.sharding, s.committed) for s in in_specs]
    try:
        with paused:
            told = structure(jaxpr, *specs, tuple(out_shardings), tuple(donated), tuple(assignment), config.trace_key())
    except Untold:
        return None
    return cache.key("program", cache.fingerprint(COMPILER), _versions(), target.current().identity, str(pool.num_threads()), told)


@functools.cache
def _versions() -> str:
    """What else computes while a program is compiled. Whether ml_dtypes is loaded makes no difference, so its file is asked."""
    small = importlib.util.find_spec("ml_dtypes")
    facts = os.stat(small.origin) if small is not None and small.origin else None
    return f"{sys.version} numpy {np.__version__} ml_dtypes {facts and (facts.st_size, facts.st_mtime_ns)}"


# ---- values

def _write(key: str, made: Executable) -> None:
    """Keep an executable whose code is all on disk, and which calls nothing of this process."""
    if made.native.host.calls:
        return
    layouts = [[s.sharding for s in made.in_specs], [(s.sharding, s.committed) for s in made.out_specs]]
    facts = (made.arena_bytes, made.kernel_count, made.collective_count, tuple(made.aliases.items()), made.native.kernel_count)
    _keep(key, made.native, facts, made.stages.scheduled.consts, pickle.dumps(layouts))


def _keep(key: str, code: NativeProgram, facts: tuple, consts: Sequence[np.ndarray], layouts: bytes) -> None:
    """Keep a program, and what becomes of it if it is a draft."""
    parts, draft = code.made, code.draft
    cache.later(key, lambda: _said(parts, draft is not None, facts, consts, layouts))
    if draft is not None:
        draft.then.append(lambda better: _keep(key, better, facts, consts, layouts))


def _said(parts: BuildRecord, is_draft: bool, facts: tuple, consts: Sequence[np.ndarray], layouts: bytes) -> bytes | None:
    """All that `_load` wants."""
    from weft.codegen.program.program import image_of

    image = image_of(parts)
    values = [np.ascontiguousarray(c).tobytes() for c in consts]
    return None if image is None else marshal.dumps((tuple(image), is_draft, facts, values, layouts))


def _read(key: str, order: tuple) -> Executable | None:
    data = cache.read(key)
    try:
        return None if data is None else _load(key, data, order)
    except Exception:         # whatever is wrong with it, the compiler can do without
        return None


def _load(key: str, data: bytes, order: tuple) -> Executable:
    image, is_draft, facts, consts, layouts = marshal.loads(data)
    arena_bytes, kernel_count, collective_count, aliases, distinct = facts
    jaxpr, in_specs, _, donated, name, _ = order
    shardings, results = pickle.loads(layouts)
    ins = [ArraySpec(s.aval, sharding, s.committed) for s, sharding in zip(in_specs, shardings, strict=True)]
    outs = [ArraySpec(aval, *result) for aval, result in zip(jaxpr.out_avals, results, strict=True)]
    stages = _Again(order)
    code = native.load(loader.Image(*image), distinct, stages.made)
    values = [np.frombuffer(value, np.uint8) for value in consts]
    if is_draft:
        from weft.codegen.program.tiered_compilation import FROM_DISK_S, Draft

        code.draft = Draft(stages.program, FROM_DISK_S)
        code.draft.then.append(lambda better: _keep(key, better, facts, values, layouts))
    plan = Plan(values, dict(aliases), arena_bytes, kernel_count, collective_count)
    return Executable(name, code, plan, ins, outs, donated, stages)


class _Again:
    """The stages of a program that came from disk: called, they are computed from what was traced."""

    def __init__(self, order: tuple):
        self.order = order
        self.settings = config.trace_key()

    def __call__(self) -> Stages:
        with derived_trace(eval_trace), config.as_traced(self.settings):
            return _pipeline().stages_of(*self.order)[0]

    def made(self) -> Any:
        """What its code is made of."""
        from weft.codegen.program.program import compile_program

        return compile_program(self.program()).made

    def program(self) -> Program:
        """The program of its last stage."""
        return self().scheduled.program
