"""Run a chain in several ways and compare the results.

In:   a `Chain`.
Out:  a `Verdict` with a line of text: "ok", "fault", "explained" (a rounding effect that op-by-op
      execution has, too) or "refused" (no backend takes the program).
Laws: the compiled program is compared with op-by-op execution of the same jaxpr in NumPy, on the
      reference backend. Where they differ by more than rounding, each op runs as a compiled program
      of its own, and both errors are measured against float64.
Next: `campaign` judges ranges of seeds in worker processes; `chain_shrink` minimizes a fault.
"""

from __future__ import annotations

import importlib
import os
import pickle
import re
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import weft
from tests.fuzz import judge, runner
from tests.fuzz.chains import BLOCK, Chain, numpy_dtype
from weft._engine.codegen.program.program import compile_program
from weft._engine.verification.tolerance import (
    COARSE_UNITS,
    EPSILON,
    ResultPrecision,
    ResultTolerance,
    epsilon_of,
    same_ends,
    wide,
)

FROM_THREADS = 1 << 14  # elements from which a chain also runs with another number of threads
MAY_CHANGE_ZEROS = "max|min|clip|relu|sort|top_k|median|clamp"
WIDER = {
    "float32": "float64",
    "float16": "float64",
    "bfloat16": "float64",
    "complex64": "complex128",
}
_RANDOM = r"api\.random\.\w+\(api\.random\.key\(\d+\), \([^()]*\), xp\.\w+\)|xp\.float32\(0\.7\)"
_servers: dict[str, ChainServer] = {}


@dataclass(frozen=True)
class Verdict:
    """The result of judging a chain."""

    kind: str
    text: str = ""


# ---- evaluation


def widen(chain: Chain) -> Chain:
    """Return the chain with its floats in float64; random numbers keep their dtype and bits."""

    def change(match: re.Match) -> str:
        return match[0] if "(" in match[0] else WIDER[match[0]]

    pattern = re.compile(rf"{_RANDOM}|\b(?:{'|'.join(WIDER)})\b")
    statements = tuple(replace(s, text=pattern.sub(change, s.text)) for s in chain.statements)
    return replace(chain, statements=statements, x64=True)


def evaluate(
    chain: Chain, way: str = "compiled", noise: int | None = None, repeat: int = 1
) -> list:
    """Return the results: "compiled", on the "reference" backend, "op by op" or in "float64"."""
    arrays = chain.arrays()
    if way == "float64":
        chain = widen(chain)
        arrays = [x.astype(numpy_dtype(WIDER.get(x.dtype.name, x.dtype.name))) for x in arrays]
    weft.config.update("jax_enable_x64", chain.x64)
    try:
        main, near = _main(chain, way, noise)
        for _ in range(repeat - 1):
            weft.block_until_ready(main(*_place(chain, arrays, way, near)))
        results = main(*_place(chain, arrays, way, near))
        leaves = [np.asarray(x) for x in weft.tree.leaves(results)]
        return [x for x in leaves if x.dtype != weft.float0]  # tangents of integers
    finally:
        weft.config.update("jax_enable_x64", False)


def _main(chain: Chain, way: str, noise: int | None) -> tuple[Any, Any]:
    near = runner.near_of(weft.numpy, noise)
    scope = {"api": weft, "xp": weft.numpy, "lax": weft.lax, "nn": weft.nn, "near": near}
    exec(chain.text if noise is None else _with_noisy_operands(chain.text), scope)
    main: Any = scope["main"]
    if way == "op by op":

        def run_one_at_a_time(*arguments: Any) -> Any:
            with weft.disable_jit():
                return main(*arguments)

        return run_one_at_a_time, near
    if way == "compiled":
        return weft.jit(main, donate_argnums=chain.donated), near
    return weft.jit(main, backend="reference"), near


def _with_noisy_operands(text: str) -> str:
    """Return the text of a chain with noise on the operands of every rounded op.

    The roundings inside a composite op, such as the mean of a normalization, act like separate
    roundings of its operands. Noise on the arguments alone misses them where exact ops repeat an
    argument: equal elements stay equal.
    """
    statement = re.compile(r"^( +v\d+ = near\()(.*)$", re.MULTILINE)
    return statement.sub(
        lambda match: match[1] + re.sub(r"\b[av]\d+\b", r"near(\g<0>)", match[2]), text
    )


def _place(chain: Chain, arrays: list[np.ndarray], way: str, near: Any) -> list:
    """Return new arrays for one call, sharded where the compiled chain has a mesh."""
    if way != "compiled" or not chain.mesh:
        return [near(weft.numpy.asarray(x)) for x in arrays]
    sharding = weft.sharding
    devices = weft.devices()[: int(np.prod(chain.mesh))]
    kinds = (sharding.AxisType.Auto,) * len(chain.mesh)
    mesh = weft.make_mesh(
        chain.mesh, tuple("xyz"[: len(chain.mesh)]), axis_types=kinds, devices=devices
    )
    place = lambda x, s: weft.device_put(
        x, sharding.NamedSharding(mesh, sharding.PartitionSpec(*s))
    )
    return [place(x, s) for x, s in zip(arrays, chain.specs)]


# ---- comparison


class ChainTolerance(ResultTolerance):
    """The differences that rounding explains: few units of the coarsest dtype, or what noise does."""

    def __init__(self, chain: Chain, want: list[np.ndarray]):
        text = f"{chain.text} {[a.dtype for a in chain.arguments]}".replace("xp.", "")
        names = [name for name in ("float16", "bfloat16") if re.search(rf"(?<!\w){name}", text)]
        if "float32" in text or "complex64" in text or not chain.x64:
            names.append("float32")
        epsilon = max([2.0**-52, *(EPSILON[name] for name in names)])
        rounded = ResultPrecision(epsilon, 1, "float16" in names)
        super().__init__(
            want,
            [rounded if epsilon_of(x.dtype) else ResultPrecision() for x in want],
            lambda number: evaluate(chain, "reference", noise=number),
            min_magnitude=0.05 if chain.keeps_exactness else 0.5,
            either_zero=bool(chain.mesh) or re.search(MAY_CHANGE_ZEROS, text) is not None,
            wild=any(a.values == "mask" for a in chain.arguments),
        )

    def at(self, i: int) -> float:
        """Return the distance allowed without noise."""
        finite = np.abs(wide(self.want[i]))
        largest = float(np.max(finite, initial=0, where=np.isfinite(finite)))
        epsilon = max(self.precision[i].epsilon, epsilon_of(self.want[i].dtype))
        return COARSE_UNITS * epsilon * max(self.min_magnitude, largest)


def compare(chain: Chain, got: list, want: list, tolerance: ChainTolerance) -> str | None:
    """Return what differs by more than rounding, or None."""
    values = chain.results if chain.keeps_exactness else ()
    exact = [
        epsilon_of(x.dtype) == 0 or (i < len(values) and values[i].exact)
        for i, x in enumerate(want)
    ]
    with np.errstate(all="ignore"):
        return judge.difference(got, want, tuple(exact), tolerance)


def errors_of(got: list, truth: list) -> list[tuple[float, int]]:
    """Return each result's largest error and its number of wrong infinities and NaN."""
    errors = []
    for x, y in zip(got, truth):
        a, b = wide(x), wide(y)
        with np.errstate(all="ignore"):
            ends = ~same_ends(a, b)
            distance = np.where(np.isfinite(a) & np.isfinite(b), np.abs(a - b), 0)
        errors.append((float(np.max(distance, initial=0)), int(ends.sum())))
    return errors


def _explain(chain: Chain, got: list, want: list, difference: str) -> Verdict:
    """Decide a difference: the op-by-op result must have an error of the same size."""
    try:
        steps = evaluate(replace(chain, mesh=(), specs=()), "op by op")
        truth = evaluate(chain, "float64")
    except Exception as error:
        return Verdict("fault", f"{difference}; op by op: {describe(error)}")
    ours, apart, reference = (errors_of(x, truth) for x in (got, steps, want))
    text = f"{difference}; errors {ours}, op by op {apart}, in NumPy {reference}"
    if ", exact)" in difference:  # no rounding explains it
        return Verdict("fault", text if ours != apart else f"one op alone: {text}")
    for (error, ends), (error_apart, ends_apart), (error_numpy, _) in zip(ours, apart, reference):
        if error > 4 * error_apart or ends > 2 * ends_apart:
            return Verdict("fault", text)
        if error_apart > 50 * error_numpy and error_numpy > 0:
            return Verdict("fault", f"one op alone: {text}")
    return Verdict("explained", text)


def judge_chain(chain: Chain, thorough: bool = False) -> Verdict:
    """Run a chain compiled, in NumPy and, where it is large, with other threads; compare them."""
    try:
        want = evaluate(chain, "reference")
    except Exception as error:
        try:
            evaluate(chain)
        except Exception as second:
            if type(second) is type(error):
                return Verdict("refused", describe(error))
        return Verdict("fault", f"the reference backend: {describe(error)}")
    threads = thorough or chain.largest >= FROM_THREADS or chain.seed % 40 == 0
    try:
        got = evaluate(chain, repeat=2 if threads else 1)
    except Exception as error:
        return Verdict("fault", describe(error))
    tolerance = ChainTolerance(chain, want)
    difference = compare(chain, got, want, tolerance)
    if difference:
        return _explain(chain, got, want, difference)
    return _judge_threads(chain, got, want, tolerance) if threads else Verdict("ok")


def _judge_threads(chain: Chain, got: list, want: list, tolerance: ChainTolerance) -> Verdict:
    other = server("1").ask(chain)
    if isinstance(other, str):
        return Verdict("fault", f"one thread: {other}")
    if chain.is_bitwise:
        for i, (x, y) in enumerate(zip(got, other)):
            if not np.array_equal(_bits(x), _bits(y)):
                return Verdict("fault", f"one thread: result {i} has other bits")
        return Verdict("ok")
    difference = compare(chain, other, want, tolerance)
    return (
        _explain(chain, other, want, f"one thread: {difference}") if difference else Verdict("ok")
    )


def _bits(x: np.ndarray) -> np.ndarray:
    """Return the bytes of the elements, with all NaNs equal."""
    if x.dtype.kind not in "biu":
        x = np.where(np.isnan(wide(x)), np.asarray(np.nan, x.dtype), x)
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def describe(error: Exception) -> str:
    return re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")[:300]


# ---- a process with another number of threads


class ChainServer(runner.Server):
    """A process that evaluates chains with a fixed number of threads."""

    def __init__(self, threads: str):
        super().__init__({"WEFT_NUM_THREADS": threads})
        self.command = [sys.executable, "-m", "tests.fuzz.chain_judge"]

    def ask(self, chain: Chain, way: str = "compiled") -> Any:  # type: ignore[override]
        """Return the results of a chain, its verdict with the way "judge", or the error's text."""
        return super().ask(chain, way)  # type: ignore[arg-type]

    def question(self, task: Any, way: str) -> Any:
        return task, way


def server(threads: str) -> ChainServer:
    if threads not in _servers:
        _servers[threads] = ChainServer(threads)
    return _servers[threads]


def close() -> None:
    """End the processes."""
    while _servers:
        _servers.popitem()[1].close()


def forget(seed: int) -> None:
    """Drop compiled programs from time to time; a worker runs hundreds."""
    if seed % (BLOCK // 2) == 0:
        weft.clear_caches()


def _serve() -> None:
    """Answer requests; programs are compiled without drafts, so that optimized kernels run, too."""
    compile_module = importlib.import_module("weft._engine.backends.cpu.compile")
    compile_module.compile_draft = compile_program  # type: ignore[attr-defined]
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    while True:
        try:
            chain, way = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer: Any = judge_chain(chain) if way == "judge" else evaluate(chain)
        except Exception as error:
            answer = describe(error)
        forget(chain.seed)
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    from tests.fuzz import chain_judge  # verdicts pickle by this module's name

    chain_judge._serve()
