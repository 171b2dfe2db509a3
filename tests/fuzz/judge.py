"""Compare the ways of running a random program.

In:   a `Program`.
Out:  what was wrong, in a line, or None.
Laws: exact results are equal, signs of zeros included; others differ by rounding, which is estimated: where they differ by more than
      200 units of the coarsest type in the program, it runs again with every argument and rounded value moved by one unit up or down,
      and may differ by 20 times what that changes. An error is a fault in each way that others do not refuse with it.
How:  `weft._engine.verification.tolerance` has the model of rounding, which the setting `check` uses too.
Next: `campaign` calls `fault_of` in worker processes.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import tempfile
from collections.abc import Callable

import numpy as np

import weft
from tests.fuzz import runner
from tests.fuzz.programs import Program
from weft._engine.util import cache
from weft._engine.verification.tolerance import (
    EPSILON,
    UNITS,
    ResultPrecision,
    ResultTolerance,
    difference as tolerance_difference,
    epsilon_of,
    wide,
)
from weft.errors import ShardingTypeError

#: environments of other processes of this system
OTHERS = {"one thread": {"WEFT_NUM_THREADS": "1"}, "plain code": {"WEFT_CPU_FEATURES": "generic"}}
_servers: dict[str, runner.Server] = {}


def others(name: str) -> runner.Server:
    if name not in _servers:
        _servers[name] = (
            runner.Server(OTHERS[name])
            if name in OTHERS
            else runner.Server({}, os.environ["WEFT_ORACLE_PYTHON"])
        )
    return _servers[name]


def close() -> None:
    while _servers:
        _servers.popitem()[1].close()


def fault_of(program: Program, *, thorough: bool = False) -> str | None:
    """Run a program sharded and whole, compiled and on the reference backend, and in some of the
    other ways (all, if `thorough`); return its fault, or None."""
    task, r = runner.task_of(program), random.Random(program.seed)
    chosen = lambda chance: r.random() < chance or thorough
    whole = lambda **how: runner.results(weft, task, **how)
    want = whole(backend="reference")
    ways: dict[str, Callable[[], list[np.ndarray] | str]] = {
        "compiled": whole,
        "sharded": lambda: whole(way="split"),
        "sharded, on the reference backend": lambda: whole(way="split", backend="reference"),
    }
    if not chosen(0.5):
        del ways["sharded, on the reference backend"]
    if chosen(0.2):
        ways["eager"] = lambda: whole(way="eager")
    if chosen(0.1):
        ways["eager, sharded"] = lambda: whole(way="eager split")
    if chosen(0.25):
        ways["from the cache on disk"] = lambda: _from_disk(task)
    for name in OTHERS:
        if chosen(0.2):
            ways[name] = lambda name=name: others(name).ask(task, "split")
    wide = tolerance_of(program, task, want)
    for name, run in ways.items():
        try:
            got = run()
        except ShardingTypeError:
            if not program.explicit:
                raise
            continue  # an operation that does not say what its result's layout is
        except Exception as error:
            return f"{name}: {_said(error)}"
        if isinstance(got, str):
            if got.startswith("ShardingTypeError") and program.explicit:
                continue
            return f"{name}: {got}"
        wrong = difference(got, want, program.exact, wide)
        if wrong:
            return f"{name}: {wrong}"
    return None


def compare_with_peer(program: Program) -> str | None:
    """Compare with the peer, sharded; if the peer refuses the layout, whole."""
    if any(values == "tiny" for _, _, values in program.arguments):
        return None  # the peer takes subnormal numbers for zero
    task = runner.task_of(program)
    for way in ("split", "whole")[
        "pure_callback" in program.text :
    ]:  # the peer's loses signs of zeros on a mesh
        peer = others("the peer").ask(task, way)
        if not isinstance(peer, str):
            break
    else:
        return None  # it has no answer, or crashed
    try:
        got = runner.results(weft, task, way)
    except Exception as error:
        return f"the peer answers ({way}), here: {_said(error)}"
    peer = _mask_peer_nans(program, got, peer)
    wrong = difference(got, peer, program.exact, tolerance_of(program, task, got))
    if (
        wrong and "xp.float16" in program.text
    ):  # the peer's derivatives of hypot and others overflow halves: float32 has the range
        wider = others("the peer").ask(
            task._replace(text=task.text.replace("xp.float16", "xp.float32")), way
        )
        if not isinstance(wider, str) and [x.shape for x in wider] == [x.shape for x in got]:
            peer = [
                np.where(
                    ~np.isfinite(wide(y)) & np.isfinite(wide(x)) & np.isfinite(wide(w)), x, y
                ).astype(y.dtype)
                for x, y, w in zip(got, peer, wider)
            ]
            wrong = difference(got, peer, program.exact, tolerance_of(program, task, got))
    if (
        wrong and way == "split"
    ):  # the peer may disagree with itself: the whole is what both are held to
        peer = others("the peer").ask(task, "whole")
        if not isinstance(peer, str):
            wrong = difference(
                got,
                _mask_peer_nans(program, got, peer),
                program.exact,
                tolerance_of(program, task, got),
            )
    return wrong and f"beside the peer, {way}: {wrong}"


def _mask_peer_nans(
    program: Program, got: list[np.ndarray], peer: list[np.ndarray]
) -> list[np.ndarray]:
    """Return the peer's results, with NaN where weft has NaN if they may be minima or maxima over
    devices, for which the peer ignores NaN."""
    if [x.shape for x in got] != [x.shape for x in peer]:
        return peer
    if (
        program.wild and "linalg.norm(" in program.text
    ):  # the norm of one element is its absolute value there, also where squares overflow
        peer = [
            np.where(np.isinf(wide(x)) & (np.abs(wide(y)) > 1e19), x, y).astype(y.dtype)
            for x, y in zip(got, peer)
        ]
    if not re.search(r"\.p?(min|max)\(", program.text):
        return peer
    return [
        np.where(np.isnan(wide(x)), x, y).astype(y.dtype)
        if x.dtype.kind not in "biu" and "int" not in x.dtype.name
        else y
        for x, y in zip(got, peer)
    ]


def _said(error: Exception) -> str:
    return re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:300]


def _from_disk(task: runner.Task) -> list[np.ndarray] | str:
    """Return the results of a program that is compiled, stored on disk, dropped from memory and
    loaded again; their bits must be equal."""
    before, folder = os.environ.get("WEFT_CACHE_DIR"), tempfile.mkdtemp()
    os.environ["WEFT_CACHE_DIR"] = folder
    try:
        found = []
        for _ in range(2):
            weft.clear_caches()
            found.append(runner.results(weft, task, "split"))
            cache.flush()
        cold, warm = found
        if [x.tobytes() for x in cold] != [x.tobytes() for x in warm]:
            return f"other bits from disk: {difference(warm, cold, (True,) * len(cold), None)}"
        return warm
    finally:
        if before is None:
            del os.environ["WEFT_CACHE_DIR"]
        else:
            os.environ["WEFT_CACHE_DIR"] = before
        shutil.rmtree(folder, ignore_errors=True)


# ---- equality


def tolerance_of(program: Program, task: runner.Task, want: list[np.ndarray]) -> ResultTolerance:
    """Return the allowed difference of the rounded results of a program; noise changes its
    arguments and the values that it marks."""
    text = f"{program.text} {program.arguments}".replace("xp.", "")
    coarse = [
        epsilon
        for name, epsilon in EPSILON.items()
        if epsilon > 2.0**-23 and re.search(rf"(?<!\w){name}", text)
    ]
    # cases that docs/accuracy.md leaves open: the sign of a zero extremum, and half floats that
    # overflow only between kernels
    overflows = program.wild and re.search(r"(?<!b)float16", text) is not None
    rounded = ResultPrecision(max([2.0**-23, *coarse]), 1, overflows)
    precision = [rounded if epsilon_of(x.dtype) else ResultPrecision() for x in want]
    return ResultTolerance(
        want, precision, lambda k: runner.results(weft, task, noise=k, backend="reference"), min_magnitude=1.0,
        either_zero=re.search(r"max|min|clip|relu", program.text) is not None, wild=program.wild, coarse_units=UNITS)  # fmt: skip


def difference(
    got: list[np.ndarray],
    want: list[np.ndarray],
    exact: tuple[bool, ...],
    tolerance: ResultTolerance | None,
) -> str | None:
    """Return the first difference as a line of text, or None."""
    if [(x.shape, x.dtype.name) for x in got] != [(x.shape, x.dtype.name) for x in want]:
        return f"results are {[(x.dtype.name, x.shape) for x in got]}, not {[(x.dtype.name, x.shape) for x in want]}"
    text = tolerance_difference(got, want, tolerance, exact)
    return text and str(text)
