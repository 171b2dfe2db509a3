"""What bounds the memory-bound cases, elementwise and by rows: memory or instructions.

    python benchmarks/roofline.py [--only TEXT ...]

Columns, in ps per element on all cores:

- memory: the time of memory streams for reading the arguments once and writing the results once
- bound: a lower bound by instruction counts (elementwise cases only)
- cached: the kernels on at most 65536 elements, which stay in the caches; measured on one core, divided by the number of cores
- full: the case at full size

For elementwise cases the last columns count the instructions per vector of the loop: all, multiplications and the like, divisions,
square roots. A core starts two vector instructions in the time of one multiply-add, at most one of them a multiplication; how long
a division or a square root occupies the divider is measured. The bound ignores latency: `cached` is larger where dependence chains
exceed the CPU's out-of-order window.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence

from limits import CHAINS, ITERATIONS, Limits, chains

from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain.native_library import LibraryModule, link

GROUPS = ("elementwise", "reductions", "norms", "scans and sorts", "convolution")
SIDE = 256  # of arrays that stay in the caches
LANES = 16  # of float32, in which half precision is computed too
_NOTHING = "define void @bench_nothing(ptr %words, i64 %task, i64 %worker) {\n  ret void\n}"
_MULTIPLIES = re.compile(
    r"v(fn?m(add|sub)|mul|div|sqrt|rcp|rsqrt|getexp|getmant|scalef|rndscale|reduce|fixup|cvt)"
)
_VECTOR = re.compile(r"[xyz]mm\d")


def best(run: Callable[[], object], seconds: float) -> float:
    """The minimum time of one call, measured for `seconds`."""
    run()
    least, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        least = min(least, time.perf_counter() - start)
    return least


def loop_of(assembly: str) -> list[str]:
    """The instructions of the innermost loop with the most vector instructions."""
    lines, labels, found = assembly.splitlines(), {}, []
    for number, line in enumerate(lines):
        if match := re.match(r"(\.L\w+):", line):
            labels[match[1]] = number
        elif (match := re.match(r"\s+j(?!mp)\w+\s+(\.L\w+)", line)) and match[1] in labels:
            body = [
                text.strip()
                for text in lines[labels.pop(match[1]) : number]
                if re.match(r"\s+[a-z]", text)
            ]
            found.append((sum([1 for text in body if _VECTOR.search(text)]), body))
    return max(found, default=(0, []))[1]


def counts(kernel) -> tuple[float, float, float, float]:
    """Instructions in a kernel's loop per 16 elements: all, multiplications, divisions, square roots."""
    from weft._engine.codegen.kernel.kernel_emitter import module_ir
    from weft._engine.codegen.toolchain import target

    body = loop_of(target.assembly(module_ir([(kernel, "k")], target.current()), target.current()))
    steps = [
        int(match[1]) for text in body if (match := re.match(r"addq\s+\$(\d+), %r(?!sp)\w+$", text))
    ]
    vectors = max(1, min(steps, default=LANES) // LANES)
    vector = [text for text in body if _VECTOR.search(text) and not text.startswith("vmov")]
    kinds = (
        vector,
        [t for t in vector if _MULTIPLIES.match(t)],
        [t for t in vector if t.startswith("vdiv")],
        [t for t in vector if t.startswith("vsqrt")],
    )
    return tuple([len(kind) / vectors for kind in kinds])


def alone_s(compiled, args: Sequence) -> float:
    """The minimum time of a kernel on this thread, with its program's arguments."""
    import numpy as np

    from weft._engine.ir.loops_eval import DTYPES

    given, arrays = [np.array(x) for x in _leaves(args)], []
    for buf in compiled.kernel.bufs:
        fit = next(
            (
                i
                for i, x in enumerate(given)
                if buf.mode == "in" and (x.size, x.dtype) == (buf.size, DTYPES[buf.type])
            ),
            None,
        )
        arrays.append(
            np.ones(buf.size, DTYPES[buf.type]) if fit is None else given.pop(fit).ravel()
        )
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    empty = link([LibraryModule("bench_nothing", lambda: _NOTHING, ("bench_nothing",))])[
        "bench_nothing"
    ]
    call, nothing = kernel(compiled.address), kernel(empty)
    words = (ctypes.c_void_p * len(arrays))(*[x.ctypes.data for x in arrays])

    def run(function: Callable) -> None:
        for task in range(compiled.kernel.parallel_extent):
            function(ctypes.addressof(words), task, 0)

    return best(lambda: run(call), 0.05) - best(lambda: run(nothing), 0.01)


class Machine:
    """Measured rates of this machine."""

    def __init__(self) -> None:
        self.limits = Limits()
        self.fma_s = (
            2 * LANES * self.limits.threads / (1e9 * self.limits.round("float32", 0.1)["rate"])
        )
        v = f"<{LANES} x float>"
        root = f"@llvm.sqrt.v{LANES}f32"
        self.div_s = self._chain("div", "", f"fdiv {v} {{a}}, splat (float 3.0)")
        self.sqrt_s = self._chain(
            "sqrt", f"declare {v} {root}({v})\n", f"call {v} {root}({v} {{a}})"
        )

    def _chain(self, name: str, declaration: str, step: str) -> float:
        """Seconds per instruction on one core (throughput)."""
        v, symbol = f"<{LANES} x float>", f"bench_roof_{name}"
        text = declaration + chains(symbol, v, step, f"fadd {v} {{a}}, {{b}}")
        address = link([LibraryModule(symbol, lambda: text, (symbol,))])[symbol]
        out = (ctypes.c_char * 1024)()
        return (
            best(lambda: pool.parallel_for(address, ctypes.addressof(out), 1), 0.05)
            / CHAINS
            / ITERATIONS
        )

    def memory_s(self, read: int, written: int) -> float:
        """The minimum seconds to read and write that many bytes, at this moment."""
        amounts = {"copy": read + written, "read": read, "write": written}
        return max(
            [
                amount / (1e9 * self.limits.round(what, 0.03)["rate"])
                for what, amount in amounts.items()
            ]
        )

    def bound_s(
        self, everything: float, multiplies: float, divisions: float, roots: float
    ) -> float:
        """Lower bound in seconds of one vector's instructions on one core."""
        return max(
            multiplies * self.fma_s,
            everything / 2 * self.fma_s,
            divisions * self.div_s + roots * self.sqrt_s,
        )


def optimized(thunk: Callable) -> object:
    """A result, once all kernels are optimized: the second call compiles what the first one ran as drafts."""
    from weft._engine.codegen.program import program

    thunk()
    result, end = thunk(), time.perf_counter() + 5
    while not program._drafts.keys() <= program._kernels.keys() and time.perf_counter() < end:
        time.sleep(0.01)
    return result


def near(shape: Sequence[int]) -> tuple[int, ...]:
    """A similar shape of at most 65536 elements: dims keep up to 256, inner ones first; a single long row keeps all 65536."""
    side = SIDE * SIDE if len(shape) == 1 and shape[0] > SIDE * SIDE else SIDE
    found: list[int] = []
    for n in reversed(shape):
        found.insert(0, max(1, min(n, side, SIDE * SIDE // math.prod(found))))
    return tuple(found)


def row(case, machine: Machine, full_input) -> str:
    """One line of the table."""
    import suite
    from worker import nbytes

    from weft._engine.codegen.program import program

    threads = machine.limits.threads
    suite.Input.make = lambda self: full_input(dataclasses.replace(self, shape=near(self.shape)))
    thunk = case.setup()
    known = {*program._kernels, *program._drafts}
    size = max([x.size for x in _leaves((thunk.args, optimized(thunk)))])
    made = [kernel for name, kernel in program._kernels.items() if name not in known]
    cached_ps = 1e12 * sum([alone_s(kernel, thunk.args) for kernel in made]) / size / threads
    suite.Input.make = full_input
    thunk = case.setup()
    result = optimized(thunk)
    size = max([x.size for x in _leaves((thunk.args, result))])
    memory_ps = 1e12 * machine.memory_s(nbytes(thunk.args), nbytes(result)) / size
    del result
    full_ps = 1e12 * best(thunk, 0.15) / size
    bound = counted = ""
    if case.group == "elementwise":
        found = max([counts(kernel.kernel) for kernel in made], default=(0.0, 0.0, 0.0, 0.0))
        bound = f"{1e12 * machine.bound_s(*found) / LANES / threads:.0f}"
        counted = " ".join([f"{value:5.1f}" for value in found])
    return (
        f"{case.name:32s} {memory_ps:8.0f} {bound:>8s} {cached_ps:8.0f} {full_ps:8.0f}   {counted:23s}   "
        + ("memory" if memory_ps >= cached_ps else "instructions")
    )


def _leaves(tree) -> list:
    import jax

    return jax.tree_util.tree_leaves(tree)


def main(only: Sequence[str]) -> None:
    with (
        tempfile.TemporaryDirectory() as cache
    ):  # empty: the kernels of programs loaded from disk would not be listed
        os.environ |= {"WEFT_NUM_DEVICES": "1", "WEFT_CACHE_DIR": cache}
        import weft.compat

        weft.compat.install_as_jax()
        _table(only)


def _table(only: Sequence[str]) -> None:
    import suite

    machine, full_input = Machine(), suite.Input.make
    print(
        f"ns on one core: a multiply-add of {LANES} {1e9 * machine.fma_s:.2f}, a division {1e9 * machine.div_s:.2f}, "
        f"a square root {1e9 * machine.sqrt_s:.2f}"
    )
    print(
        "".join(
            [
                f"{'ps per element':32s}",
                *[f" {word:>8s}" for word in ("memory", "bound", "cached", "full")],
                "  ",
                *[f" {word:>5s}" for word in ("all", "mul", "div", "root")],
            ]
        )
    )
    for case in suite.load().values():
        if case.group in GROUPS and case.memory and case.devices == 1 and not case.x64:
            if not only or case.name in only:
                print(row(case, machine, full_input), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", action="append", default=[], help="only the case of this name")
    main(parser.parse_args().only)
