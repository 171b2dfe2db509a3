"""The pool is compiled in advance on a machine without compiled code."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np, threading
import weft, weft._engine.programs
from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain import llvm_c
known = bool(pool._prewarmers)
for thread in pool._prewarmers:
    thread.join()
texts = []
emit = llvm_c.emit
llvm_c.emit = lambda ir, *rest: (texts.append(ir), emit(ir, *rest))[1]
x = np.ones((512, 512), np.float32)
assert weft.jit(lambda x: x + 1)(x)[3, 4] == 2
print(known, sum("define void @weft_parallel_for" in text for text in texts))
"""


@pytest.mark.parametrize("times", [1, 2])
def test_the_pool_is_compiled_once_and_by_another_thread(tmp_path, times):
    env = dict(os.environ, WEFT_CACHE_DIR=str(tmp_path))
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(times)
    ]
    assert outputs == [["True", "0"], ["False", "0"]][:times]


RESTING = """
import time
import weft._engine.programs
from weft._engine.codegen.runtime import pool
while not pool._Prewarming.resting and pool._prewarmers[0].is_alive():
    time.sleep(0.001)
pool.postpone_background_work(300)
"""


def test_a_process_does_not_end_later_because_the_thread_rests(tmp_path):
    env = dict(os.environ, WEFT_CACHE_DIR=str(tmp_path))
    subprocess.run([sys.executable, "-c", RESTING], env=env, check=True, timeout=100)
