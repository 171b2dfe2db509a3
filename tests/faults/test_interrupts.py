"""Interrupts of programs that would run for hours: KeyboardInterrupt at the call of the program,
after which the process continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

PROGRAMS = {
    "loop": "weft.jit(lambda x: lax.fori_loop(0, 10**12, lambda i, x: wnp.sin(x) + 0.1, x)), (x,)",
    "tiny steps": "weft.jit(lambda x: lax.scan(lambda c, _: (c * 1.01 + 1, None), x, length=10**15)[0]), (1.0,)",
    "condition": "weft.jit(lambda x: lax.while_loop(lambda v: v[0, 0] < 2, lambda v: wnp.cos(v), x)), (x,)",
    "scalars": "weft.jit(lambda x: lax.while_loop(lambda v: v < 2, lambda v: wnp.cos(v), x)), (1.0,)",
    "matmuls": "weft.jit(lambda x: lax.fori_loop(0, 10**12, lambda i, x: x @ x * 0.01, x)), (x,)",
    "sorts": "weft.jit(lambda x: lax.fori_loop(0, 10**12, lambda i, x: wnp.sort(x), x)), (x,)",
    "callbacks": "weft.jit(lambda x: lax.fori_loop(0, 10**12, lambda i, x: (weft.debug.callback(lambda v: None, x), x)[1], x)), (x,)",
    "nested, on a mesh": """weft.jit(lambda x: lax.fori_loop(0, 10**9, lambda i, x: lax.scan(
        lambda c, r: (c + r.sum(), r), 0.0, x)[1] + 1, x)), (weft.device_put(x, NamedSharding(weft.make_mesh((8,), 'i'), P('i'))),)""",
}
SCRIPT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)         # which a shell may have children ignore
import weft, weft.numpy as wnp
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec as P
x = wnp.ones((128, 128))
f, args = {program}
f.lower(*args).compile()
for _ in range(2):
    print("ready", flush=True)
    try:
        weft.block_until_ready(f(*args))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print(float(weft.jit(lambda x: lax.fori_loop(0, 3, lambda i, v: wnp.sort(v) + 1, x))(x).sum()), flush=True)
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_interrupt_ends_a_long_program(name):
    script = textwrap.dedent(SCRIPT).format(program=PROGRAMS[name])
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "WEFT_VERIFY": "0"},
    ) as process:
        try:
            for _ in range(2):
                assert process.stdout.readline() == "ready\n"
                with pytest.raises(subprocess.TimeoutExpired):  # it runs
                    process.wait(0.2)
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "interrupted\n"
            out, err = (
                process.stdout.read(),
                process.stderr.read(),
            )  # `communicate` forgets what `readline` has read ahead
            process.wait(60)
        finally:
            process.kill()
    assert process.returncode == 0, err
    assert float(out) == 128 * 128 * 4.0 and not err


def test_no_interrupt_of_a_host_call_is_lost():
    """Wherever it comes: in the callback, where Python is entered and left, where operands are made and freed."""
    script = (
        textwrap.dedent(SCRIPT)
        .format(program=PROGRAMS["callbacks"])
        .replace("range(2)", "range(60)")
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "WEFT_VERIFY": "0"},
    ) as process:
        watch = threading.Timer(120, process.kill)
        watch.start()
        try:
            for i in range(60):
                assert process.stdout.readline() == "ready\n"
                time.sleep(0.004 + 1e-5 * (37 * i % 100))
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "interrupted\n"
            out, err = process.stdout.read(), process.stderr.read()
        finally:
            watch.cancel()
            process.kill()
    assert float(out) == 128 * 128 * 4.0 and not err
