"""The cost of one call in Python frames and calls, counted instead of timed.

python -m benchmarks.calls [--functions N]

A new process with an empty disk cache makes the first call of `jit(lambda x, w, b: tanh(x @ w + b).sum(1))`.
Only functions of the package count. Libraries, comprehensions and module execution do not: the profile function is
suspended while a module is executed.
`--functions N` lists the N functions that are called most.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = f"{ROOT / 'weft'}{os.sep}"
#: metric -> its title in the table
TITLES = {
    "record_op": "frames from user code to recording one op (deepest of the 4)",
    "record_stack": "frames from the call of the jitted function to recording its first op",
    "compile": "frames from user code to the start of compilation",
    "calls": "Python calls in the first call",
    "files": "files in which these calls run",
}


def is_function(code: CodeType) -> bool:
    """Return whether `code` belongs to a function of the package."""
    return (
        code.co_filename.startswith(PACKAGE)
        and bool(code.co_flags & inspect.CO_OPTIMIZED)
        and not code.co_name.endswith(("comp>", "genexpr>"))
    )


class CallCounter:
    """Count calls, and frames when an op is recorded and when compilation starts."""

    def __init__(self) -> None:
        self.functions: Counter[tuple[str, str]] = Counter()
        self.record_stacks: list[
            tuple[int, int]
        ] = []  # (to the nearest user frame, to the outermost)
        self.compile_depth = 0

    def profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event != "call" or not is_function(frame.f_code):
            return
        name = frame.f_code.co_qualname
        self.functions[frame.f_code.co_filename.removeprefix(PACKAGE), name] += 1
        if name == "StageTrace.process":
            near, total = depths(frame)
            if near < total:  # inside the traced function
                self.record_stacks.append((near, total))
        elif name == "compile_request" and not self.compile_depth:
            self.compile_depth = depths(frame)[1]

    def summary(self) -> dict[str, int]:
        """Return the value of every metric."""
        return {
            "record_op": max(near for near, _ in self.record_stacks),
            "record_stack": self.record_stacks[0][1],
            "compile": self.compile_depth,
            "calls": sum(self.functions.values()),
            "files": len({file for file, _ in self.functions}),
        }


def depths(frame: FrameType | None) -> tuple[int, int]:
    """Return the number of the package's frames above the nearest frame of this file, and of all."""
    near = total = 0
    seen_user = False
    while frame is not None:
        if frame.f_code.co_filename == __file__:
            seen_user = True
        elif frame.f_code.co_filename.startswith(PACKAGE):
            total += 1
            near += not seen_user
        frame = frame.f_back
    return near, total


def count_first_call() -> CallCounter:
    """Make the first call of the sample function in this process and count."""
    import numpy as np

    import weft
    import weft.numpy as wnp

    f = weft.jit(lambda x, w, b: wnp.tanh(x @ w + b).sum(1))
    args = [np.ones(shape, np.float32) for shape in ((8, 4), (4, 16), (16,))]
    counter = CallCounter()
    sys.setprofile(counter.profile)
    try:
        f(*args)
    finally:
        sys.setprofile(None)
    return counter


def measure(functions: int = 0) -> tuple[dict[str, int], list[tuple[int, str]]]:
    """Count in a new process; return the metrics, and the most called functions."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "WEFT_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, __file__, "--child", "--functions", str(functions)]
        output = subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout
    metrics, most = json.loads(output.splitlines()[-1])
    return metrics, [(count, name) for count, name in most]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--functions", type=int, default=0, metavar="N")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        counter = count_first_call()
        most = [
            (count, f"{file}: {name}")
            for (file, name), count in counter.functions.most_common(options.functions)
        ]
        print(json.dumps([counter.summary(), most]))
        return
    metrics, most = measure(options.functions)
    width = max(map(len, TITLES.values()))
    for key, title in TITLES.items():
        print(f"{title:{width}} {metrics[key]:7}")
    for count, name in most:
        print(f"{count:7} {name}")


if __name__ == "__main__":
    main()
