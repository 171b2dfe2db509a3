"""Executables: from disk where some process compiled the same program before, else from the pipeline.

In:   a request: a Jaxpr without constants, how its inputs and outputs are laid out, the devices, and a backend.
Out:  an `Executable`. One that comes from disk is what the compiler would make: its key holds the structure of the program
      (`ir.structure`), all layouts that were given, the settings, the sources of everything that compiles, and what the backend
      depends on. Its stages are computed again when they are asked for.
Laws: what has no key (host functions, operations that are not weft's, a backend that keeps nothing) is compiled every time. A program on
      disk that cannot be read, or not be placed here, counts as missing. A hit imports neither the partitioner, nor the compiler, nor LLVM.
"""

from __future__ import annotations

import functools
import importlib.util
import marshal
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft._engine import backends, hooks, processes
from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.base import Backend, _device_of_id, is_elsewhere
from weft._engine.core.trace import derived_trace, eval_trace
from weft._engine.ir.jaxpr import Literal
from weft._engine.ir.mesh import AbstractMesh, AxisType, _make_mesh_object
from weft._engine.ir.shardings import _make_named, _make_positional, _make_single
from weft._engine.ir.specs import UNCONSTRAINED, PartitionSpec, UnreducedKind, _make_spec
from weft._engine.ir.structure import Unserializable, structure
from weft._engine.runtime.executable import CompileRequest, Executable
from weft._engine.util import cache, events
from weft._engine.util.config import config
from weft._engine.util.errors import ProcessFailureError
from weft._engine.util.events import report
from weft._engine.util.user_code import paused, suspended

if TYPE_CHECKING:
    from weft._engine.pipeline import Stages

backends.prepare()

#: the rooms whose sources decide what becomes of a program
COMPILER = (
    "",
    "cpython",
    "util",
    "processes",
    "ir",
    "core",
    "ops",
    "transforms",
    "control",
    "partition",
    "compiler",
    "codegen",
    "backends",
    "runtime",
)


def executable_of(request: CompileRequest) -> Executable:
    """Return the executable for a request: from disk, or compiled."""
    start = time.perf_counter()
    _check_request(request)
    ranks = _ranks_of(request.assignment)
    key = None if is_elsewhere(request.assignment) else _key(request)
    executable = None if key is None else _read(key, request)
    if ranks is not None:
        executable = _agreed(request, ranks, key, executable)
    if key is not None:
        report(
            "compilation",
            config.explain_cache_misses if executable is None else config.log_compiles,
            "Compiled program of %s %s on disk: %s",
            request.name,
            "not found" if executable is None else "found",
            key,
        )
    seconds = {"load": time.perf_counter() - start}
    if executable is None:
        executable = _compile(request, key)
        seconds = executable.stages.seconds
    executable.request = request
    _report(executable, start, seconds)
    return executable


def _check_request(request: CompileRequest) -> None:
    """Raise for programs that cannot be compiled, for devices that are gone, and where a hook forbids compilation."""
    if "check" in request.jaxpr.effects:
        raise ValueError(
            f"{request.name}: Cannot abstractly evaluate a checkify.check which was not functionalized: compiled code cannot raise.\n"
            "  Transform the function first, as in jit(checkify.checkify(f)), and look at the error that it returns."
        )
    for check in hooks.before_compilation:
        check(request.backend)
    if lost := [d.id for d in request.assignment if d.process_index < 0]:
        raise ValueError(
            f"{request.name}: devices {', '.join(map(str, lost))} are from before weft.distributed.shrink().\n"
            "  Move the arrays to a mesh of weft.devices(), by weft.device_put."
        )


def _compile(request: CompileRequest, key: str | None) -> Executable:
    with request.backend.compiling(), derived_trace(eval_trace):
        executable = _pipeline().compile_request(request)
    if key is not None:
        _write(key, executable)
    return executable


# ---- several processes


def _ranks_of(assignment: tuple) -> list[int] | None:
    """The processes that run a program on these devices, if they are several and this is one of them."""
    if processes.current() is None or is_elsewhere(assignment):
        return None
    ranks = sorted({d.process_index for d in assignment})
    return ranks if len(ranks) > 1 else None


def _agreed(
    request: CompileRequest, ranks: list[int], key: str | None, found: Executable | None
) -> Executable | None:
    """The executable, or None if this process is to compile it, once all processes have come here with the same program.

    Where none of those that share a folder for compiled programs found it there, the first of them compiles it for the others.
    """
    from weft._engine.processes import agreement

    place = None if key is None else (key, cache.token())
    brought = agreement.check_program(
        ranks, _fingerprint(request), lambda: _lines(request), [place, found is not None]
    )
    if found is not None or key is None or place is None:
        return found
    sharing = [rank for rank, (other, _) in zip(ranks, brought) if other == list(place)]
    if not any(has for other, has in brought if other == list(place)):
        with agreement.compiled_by(sharing[0], "/".join(map(str, place))) as is_mine:
            if is_mine:
                with agreement.busy(f"compiling {request.name}"):
                    made = _compile(request, key)
                    cache.flush()
                return made
    return _read(key, request)


def _fingerprint(request: CompileRequest) -> str:
    """A name that equal programs have in all processes, by their structure or else by their text."""
    try:
        body = _structure(request)
    except Unserializable:
        body = "\n".join([text for text, _ in _lines(request)]).encode()
    return cache.digest(body)


def _lines(request: CompileRequest) -> list[tuple[str, str]]:
    """The program, what it takes and what it gives, line by line: what is compared between processes, and where it comes from."""
    jaxpr = request.jaxpr
    plain = lambda text: re.sub(r"0x[0-9a-f]+", "0x", text)
    numbers: dict = {}
    names = lambda atoms: " ".join(
        [
            f"{a.val}:{a.aval.str_short()}"
            if type(a) is Literal
            else f"v{numbers.setdefault(a, len(numbers))}:{a.aval.str_short()}"
            for a in atoms
        ]
    )
    lines = [(request.name, "")]
    lines += [
        (
            plain(
                f"argument {i}: {s.aval.str_short()} as {s.sharding if s.committed else 'not placed'}"
            ),
            "",
        )
        for i, s in enumerate(request.in_specs)
    ]
    names(jaxpr.invars)
    for eqn in jaxpr.eqns:
        params = " ".join([f"{key}={value}" for key, value in eqn.params.items()])
        lines.append(
            (
                plain(f"{names(eqn.outvars)} = {eqn.primitive.name} {names(eqn.invars)} {params}"),
                str(eqn.source or ""),
            )
        )
    lines.append(
        (
            plain(
                f"results {names(jaxpr.outvars)} as {list(map(str, request.out_shardings))}, "
                f"donated {list(request.donated)}"
            ),
            "",
        )
    )
    return lines


def _pipeline() -> Any:
    with suspended:
        from weft._engine import pipeline  # all of the compiler

    return pipeline


def _report(made: Executable, start: float, seconds: dict[str, float]) -> None:
    report(
        "compilation",
        config.log_compiles,
        "Finished compilation of %s in %.9f sec (%d kernels, %d collectives)",
        made.name,
        time.perf_counter() - start,
        made.kernel_count,
        made.collective_count,
    )
    for listener in hooks.after_compilation:
        listener(made)
    if events.listeners:
        events.emit(
            "compile",
            made.name,
            int(start * 1e9),
            time.perf_counter_ns(),
            **{title: f"{1000 * taken:.2f} ms" for title, taken in seconds.items()},
        )


# ---- keys


def _key(request: CompileRequest) -> str | None:
    """The name of the program on disk; None if it cannot have one, or if every stage is to be seen."""
    if (
        config.check
        or config.dump
        or cache.directory() is None
        or (code := request.backend.cache_key()) is None
    ):
        return None
    try:
        body = _structure(request)
    except Unserializable:
        return None
    return cache.key("program", cache.fingerprint(COMPILER), _versions(), code, body)


def _structure(request: CompileRequest) -> bytes:
    """All that says how to compile a program. Where it runs on several processes, what nobody placed is elsewhere in each, which is
    the same to the compiler."""
    assignment = request.assignment
    anywhere = None if _ranks_of(assignment) is None else _make_single(assignment[0], "device")
    specs = [
        (s.aval, s.sharding if s.committed or anywhere is None else anywhere, s.committed)
        for s in request.in_specs
    ]
    with paused:
        return structure(
            request.jaxpr,
            *specs,
            tuple(request.out_shardings),
            tuple(request.donated),
            tuple(assignment),
            request.in_context,
            request.automatic,
            config.trace_key(),
        )


@functools.cache
def _versions() -> str:
    """What else computes while a program is compiled. Whether ml_dtypes is loaded makes no difference, so its file is asked."""
    small = importlib.util.find_spec("ml_dtypes")
    facts = os.stat(small.origin) if small is not None and small.origin else None
    return f"{sys.version} numpy {np.__version__} ml_dtypes {facts and (facts.st_size, facts.st_mtime_ns)}"


# ---- values


def _write(key: str, made: Executable) -> None:
    """Keep an executable, if its backend can."""
    try:
        layouts = _plain(
            (
                tuple([s.sharding for s in made.in_specs]),
                tuple([(s.sharding, s.committed) for s in made.out_specs]),
            )
        )
    except Unserializable:
        return
    made.loaded.keep(_writer(key, made.collective_count, layouts))


def _writer(
    key: str, collective_count: int, layouts: Any
) -> Callable[[Callable[[], bytes | None]], None]:
    """What keeps a program on disk, given what makes its code."""

    def stored(make: Callable[[], bytes | None]) -> bytes | None:
        code = make()
        return None if code is None else marshal.dumps((collective_count, layouts, code))

    return lambda make: cache.later(key, lambda: stored(make))


def _read(key: str, request: CompileRequest) -> Executable | None:
    data = cache.read(key)
    try:
        return None if data is None else _load(key, data, request)
    except ProcessFailureError:
        raise  # of another process: it came while this one was reading
    except Exception:  # whatever is wrong with it, the compiler can do without
        return None


def _load(key: str, data: bytes, request: CompileRequest) -> Executable:
    collective_count, layouts, code = marshal.loads(data)
    shardings, results = _made(layouts)
    write = _writer(key, collective_count, layouts)
    return _placed(code, request, shardings, results, collective_count, write)


def _placed(
    code: bytes,
    request: CompileRequest,
    shardings: tuple,
    results: tuple,
    collective_count: int,
    write: Callable[[Callable[[], bytes | None]], None],
) -> Executable:
    """The executable of code that a backend kept, for arguments laid out as `shardings` and results as (sharding, committed)."""
    ins = [
        ArraySpec(s.aval, sharding, s.committed)
        for s, sharding in zip(request.in_specs, shardings, strict=True)
    ]
    outs = [
        ArraySpec(aval, *result)
        for aval, result in zip(request.jaxpr.out_avals, results, strict=True)
    ]
    stages = LazyStages(request)
    return Executable(
        request.name,
        request.backend.load(code, lambda: stages().lowered, write),
        ins,
        outs,
        request.donated,
        collective_count,
        stages,
    )


# ---- values that programs keep themselves


def kept(made: Executable) -> dict[str, Any]:
    """What `restored` makes an executable of in another process: layouts, and the code if its backend can keep it."""
    found: list[bytes | None] = []
    made.loaded.keep(lambda make: found.append(make()))
    return {
        "code": found[0] if found else None,
        "made_by": _makers_of(made.request.backend),
        "collective_count": made.collective_count,
        "shardings": tuple([s.row_major.sharding for s in made.in_specs]),
        "results": tuple([(s.row_major.sharding, s.committed) for s in made.out_specs]),
    }


def restored(
    request: CompileRequest, code: bytes | None, made_by: tuple, **layouts: Any
) -> Executable:
    """The executable that `kept` described. Where its code is missing, or is another machine's or version's, it is compiled again."""
    if code is not None and made_by == _makers_of(request.backend):
        found = _placed(code, request, **layouts, write=lambda make: None)
        found.request = request
        return found
    return executable_of(request)


def _makers_of(backend: Backend) -> tuple:
    """What code depends on besides the program: the sources of the compiler, what else computes, and the machine."""
    return cache.fingerprint(COMPILER), _versions(), backend.cache_key()


#: what layouts are made of, by the names in what their `__reduce__` gives: nothing else is called when a file is read
_MAKERS: dict[str, Callable] = {
    "tuple": lambda *xs: xs,
    "frozenset": lambda *xs: frozenset(xs),
    "UNCONSTRAINED": lambda: UNCONSTRAINED,
    "ndarray": lambda shape, *xs: _grid(shape, xs),
    "AxisType": lambda name: AxisType[name],
    "UnreducedKind": lambda name: UnreducedKind[name],
    **{
        make.__name__: make
        for make in (
            PartitionSpec,
            AbstractMesh,
            _make_mesh_object,
            _make_named,
            _make_single,
            _make_positional,
            _make_spec,
            _device_of_id,
        )
    },
}


def _plain(x: Any) -> Any:
    """Layouts as plain data: numbers, strings, and tuples of a name in `_MAKERS` and its arguments."""
    if x is None or type(x) in (bool, int, str):
        return x
    if isinstance(x, (tuple, frozenset)):
        title, args = type(x).__name__, x
    elif isinstance(x, np.ndarray):
        title, args = "ndarray", (x.shape, *x.flat)
    elif isinstance(x, (AxisType, UnreducedKind)):
        title, args = type(x).__name__, (x.name,)
    else:
        made = (
            x.__reduce__() if type(x).__module__.partition(".")[0] == "weft" else type(x).__name__
        )
        title, args = (made, ()) if isinstance(made, str) else (made[0].__name__, made[1])
    if title not in _MAKERS:
        raise Unserializable(f"a layout with a {title}")
    return title, *map(_plain, args)


def _made(x: Any) -> Any:
    """What `_plain` was given."""
    return _MAKERS[x[0]](*map(_made, x[1:])) if type(x) is tuple else x


def _grid(shape: tuple[int, ...], values: Sequence[Any]) -> np.ndarray:
    made = np.empty(shape, object)
    for place, value in zip(np.ndindex(*shape), values, strict=True):
        made[place] = value
    return made


class LazyStages:
    """The stages of a program that came from disk: called, they are computed from what was traced."""

    def __init__(self, request: CompileRequest):
        self.request = request
        self.settings = config.trace_key()

    def __call__(self) -> Stages:
        with derived_trace(eval_trace), config.as_traced(self.settings):
            return _pipeline().lower(self.request)[0]
