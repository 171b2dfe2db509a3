"""Executables: loaded from the disk cache if it contains the program, else compiled by the pipeline.

In:   a `CompileRequest`: a Jaxpr without constants, the shardings of its inputs and outputs, the devices, and a backend.
Out:  an `Executable`. An executable from disk equals the one that the compiler would create: its key contains the structure of the
      program (`ir.program_structure`), the requested shardings, the settings, the sources of the compiler, and the backend's own key. Its
      stages are computed when they are read.
Laws: a program without a key (with host functions or operations of other packages, or for a backend without serialization) is
      compiled every time. A program on disk that cannot be read or placed here counts as missing. Loading a program from disk
      imports neither the partitioner, nor the compiler, nor LLVM.
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
from weft._engine.backends.base import Backend, _device_of_id, are_all_remote
from weft._engine.core.trace import derived_trace, eval_trace
from weft._engine.ir.jaxpr import Literal
from weft._engine.ir.mesh import AbstractMesh, AxisType, _make_mesh_object
from weft._engine.ir.program_structure import Unserializable, serialize_structure
from weft._engine.ir.shardings import _make_named, _make_positional, _make_single
from weft._engine.ir.specs import UNCONSTRAINED, PartitionSpec, UnreducedKind, _make_spec
from weft._engine.runtime.executable import CompileRequest, Executable
from weft._engine.util import cache, events
from weft._engine.util.config import config
from weft._engine.util.errors import ProcessFailureError
from weft._engine.util.events import report
from weft._engine.util.messages.progress import show_progress
from weft._engine.util.user_code_suspension import paused, suspended

if TYPE_CHECKING:
    from weft._engine.pipeline import Stages

backends.prepare()

#: the packages whose sources affect compiled programs
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


def get_executable(request: CompileRequest) -> Executable:
    """Return the executable for a request: from disk, or compiled."""
    start = time.perf_counter()
    _check_request(request)
    ranks = _ranks_of(request.assignment)
    key = None if are_all_remote(request.assignment) else _key(request)
    executable = None if key is None else _read(key, request)
    if ranks is not None:
        executable = _agree_on_executable(request, ranks, key, executable)
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
    """Raise ValueError for a program that cannot be compiled or uses lost devices. Call the hooks `before_compilation`."""
    if "check" in request.jaxpr.effects:
        raise ValueError(
            f"{request.name}: Cannot abstractly evaluate a checkify.check which was not functionalized: compiled code cannot raise.\n"
            "  Transform the function first, as in jit(checkify.checkify(f)), and read the error that it returns."
        )
    for check in hooks.before_compilation:
        check(request.backend)
    if lost := [d.id for d in request.assignment if d.process_index < 0]:
        raise ValueError(
            f"{request.name}: devices {', '.join(map(str, lost))} were removed by weft.distributed.shrink().\n"
            "  Move the arrays to a mesh of weft.devices() with weft.device_put."
        )


def _compile(request: CompileRequest, key: str | None) -> Executable:
    with (
        show_progress(f"compiling {request.name}"),
        request.backend.enter_compilation(),
        derived_trace(eval_trace),
    ):
        executable = _pipeline().compile_request(request)
    if key is not None:
        _write(key, executable)
    return executable


# ---- several processes


def _ranks_of(assignment: tuple) -> list[int] | None:
    """Return the ranks of the processes that run a program on these devices, or None if it is one process or not this one."""
    if processes.current() is None or are_all_remote(assignment):
        return None
    ranks = sorted({d.process_index for d in assignment})
    return ranks if len(ranks) > 1 else None


def _agree_on_executable(
    request: CompileRequest, ranks: list[int], key: str | None, loaded: Executable | None
) -> Executable | None:
    """Wait until all processes request the same program; return its executable, or None if this process must compile it.

    `loaded` is the executable that this process has loaded from disk, or None. If no process with the same cache folder has
    found the program there, the first of them compiles it, and the others load it.
    """
    from weft._engine.processes import agreement

    place = None if key is None else (key, cache.token())
    answers = agreement.check_program(
        ranks, _fingerprint(request), lambda: _lines(request), [place, loaded is not None]
    )
    if loaded is not None or key is None or place is None:
        return loaded
    sharing = [rank for rank, (other, _) in zip(ranks, answers) if other == list(place)]
    if not any(has for other, has in answers if other == list(place)):
        with agreement.elect_compiler(sharing[0], "/".join(map(str, place))) as is_mine:
            if is_mine:
                with agreement.report_progress(f"compiling {request.name}"):
                    executable = _compile(request, key)
                    cache.flush()
                return executable
    return _read(key, request)


def _fingerprint(request: CompileRequest) -> str:
    """Return a digest that equal programs have in all processes: of the structure, or of the text if that has no bytes."""
    try:
        body = _structure(request)
    except Unserializable:
        body = "\n".join([text for text, _ in _lines(request)]).encode()
    return cache.digest(body)


def _lines(request: CompileRequest) -> list[tuple[str, str]]:
    """Return pairs (text, source line) that describe the arguments, equations and results of a program.

    Processes compare the texts; addresses are removed from them.
    """
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
        from weft._engine import pipeline  # loads the whole compiler

    return pipeline


def _report(executable: Executable, start: float, seconds: dict[str, float]) -> None:
    report(
        "compilation",
        config.log_compiles,
        "Finished compilation of %s in %.9f sec (kernels: %d, collectives: %d)",
        executable.name,
        time.perf_counter() - start,
        executable.kernel_count,
        executable.collective_count,
    )
    for listener in hooks.after_compilation:
        listener(executable)
    if events.listeners:
        events.emit(
            "compile",
            executable.name,
            int(start * 1e9),
            time.perf_counter_ns(),
            **{title: f"{1000 * taken:.2f} ms" for title, taken in seconds.items()},
        )


# ---- keys


def _key(request: CompileRequest) -> str | None:
    """Return the key of the program on disk; None if it has no key, or if `config.check` or `config.dump` needs every stage to run."""
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
    """Return the bytes of all facts that determine the compiled program.

    Uncommitted arguments are on different devices in each process, which does not affect the program. So with several processes they
    count as placed on the first device.
    """
    assignment = request.assignment
    first_device = None if _ranks_of(assignment) is None else _make_single(assignment[0], "device")
    specs = [
        (s.aval, s.sharding if s.committed or first_device is None else first_device, s.committed)
        for s in request.in_specs
    ]
    with paused:
        return serialize_structure(
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
    """Return the versions of the libraries used at compile time. ml_dtypes is identified by its file, so that it is not imported."""
    small = importlib.util.find_spec("ml_dtypes")
    facts = os.stat(small.origin) if small is not None and small.origin else None
    return f"{sys.version} numpy {np.__version__} ml_dtypes {facts and (facts.st_size, facts.st_mtime_ns)}"


# ---- values


def _write(key: str, executable: Executable) -> None:
    """Write an executable to disk, if its backend can serialize it."""
    try:
        layouts = _to_plain_data(
            (
                tuple([s.sharding for s in executable.in_specs]),
                tuple([(s.sharding, s.committed) for s in executable.out_specs]),
            )
        )
    except Unserializable:
        return
    executable.loaded.store(_disk_writer(key, executable.collective_count, layouts))


def _disk_writer(
    key: str, collective_count: int, layouts: Any
) -> Callable[[Callable[[], bytes | None]], None]:
    """Return a function that takes `make`, which returns the code of a program or None, and writes the program to disk later."""

    def stored(make: Callable[[], bytes | None]) -> bytes | None:
        code = make()
        return None if code is None else marshal.dumps((collective_count, layouts, code))

    return lambda make: cache.write_later(key, lambda: stored(make))


def _read(key: str, request: CompileRequest) -> Executable | None:
    data = cache.read(key)
    try:
        return None if data is None else _load(key, data, request)
    except ProcessFailureError:
        raise  # another process has failed in the meantime
    except Exception:  # a file that cannot be loaded counts as missing
        return None


def _load(key: str, data: bytes, request: CompileRequest) -> Executable:
    collective_count, layouts, code = marshal.loads(data)
    shardings, results = _from_plain_data(layouts)
    write = _disk_writer(key, collective_count, layouts)
    return _load_executable(code, request, shardings, results, collective_count, write)


def _load_executable(
    code: bytes,
    request: CompileRequest,
    shardings: tuple,
    results: tuple,
    collective_count: int,
    write: Callable[[Callable[[], bytes | None]], None],
) -> Executable:
    """Return the executable of code that a backend has serialized.

    `shardings` are the shardings of arguments, `results` the pairs (sharding, committed) of results.
    """
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


# ---- executables that users serialize


def serialize_executable(executable: Executable) -> dict[str, Any]:
    """Return the keyword arguments with which `restore_executable` recreates an executable in another process.

    The code is None if the backend cannot serialize it.
    """
    codes: list[bytes | None] = []
    executable.loaded.store(lambda make: codes.append(make()))
    return {
        "code": codes[0] if codes else None,
        "made_by": _compiler_fingerprint(executable.request.backend),
        "collective_count": executable.collective_count,
        "shardings": tuple([s.row_major.sharding for s in executable.in_specs]),
        "results": tuple([(s.row_major.sharding, s.committed) for s in executable.out_specs]),
    }


def restore_executable(
    request: CompileRequest, code: bytes | None, made_by: tuple, **layouts: Any
) -> Executable:
    """Return the executable described by `serialize_executable`. Compile it again if the code is None or of another machine or version."""
    if code is not None and made_by == _compiler_fingerprint(request.backend):
        executable = _load_executable(code, request, **layouts, write=lambda make: None)
        executable.request = request
        return executable
    return get_executable(request)


def _compiler_fingerprint(backend: Backend) -> tuple:
    """Return what code depends on in addition to the program: the compiler's sources, library versions, and the backend's key."""
    return cache.fingerprint(COMPILER), _versions(), backend.cache_key()


#: name of a function in `__reduce__` of shardings -> the function; reading a file calls no other function
_CONSTRUCTORS: dict[str, Callable] = {
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


def _to_plain_data(x: Any) -> Any:
    """Return shardings as plain data: numbers, strings, and tuples of a name in `_CONSTRUCTORS` and
    its arguments."""
    if x is None or type(x) in (bool, int, str):
        return x
    if isinstance(x, (tuple, frozenset)):
        title, args = type(x).__name__, x
    elif isinstance(x, np.ndarray):
        title, args = "ndarray", (x.shape, *x.flat)
    elif isinstance(x, (AxisType, UnreducedKind)):
        title, args = type(x).__name__, (x.name,)
    else:
        reduced = (
            x.__reduce__() if type(x).__module__.partition(".")[0] == "weft" else type(x).__name__
        )
        title, args = (
            (reduced, ()) if isinstance(reduced, str) else (reduced[0].__name__, reduced[1])
        )
    if title not in _CONSTRUCTORS:
        raise Unserializable(f"a sharding with a {title}")
    return title, *map(_to_plain_data, args)


def _from_plain_data(x: Any) -> Any:
    """Return the shardings that `_to_plain_data` converted to `x`."""
    return _CONSTRUCTORS[x[0]](*map(_from_plain_data, x[1:])) if type(x) is tuple else x


def _grid(shape: tuple[int, ...], values: Sequence[Any]) -> np.ndarray:
    grid = np.empty(shape, object)
    for index, value in zip(np.ndindex(*shape), values, strict=True):
        grid[index] = value
    return grid


class LazyStages:
    """A callable that computes the stages of a program that was loaded from disk, from its traced program."""

    def __init__(self, request: CompileRequest):
        self.request = request
        self.settings = config.trace_key()

    def __call__(self) -> Stages:
        with derived_trace(eval_trace), config.as_traced(self.settings):
            return _pipeline().lower(self.request)[0]
