"""LLVM through its C API: objects, diagnostics and errors."""

import subprocess
import sys
import threading
import time

import pytest

from tests.harness.processes import run_python
from weft._engine.codegen.toolchain import llvm_c, target
from weft._engine.util import threads

ADD = "define i32 @add(i32 %x, i32 %y) {\n  %sum = add i32 %x, %y\n  ret i32 %sum\n}"


def machine(level: int = 1) -> llvm_c.LLVMTargetMachine:
    return llvm_c.LLVMTargetMachine(*llvm_c.host(), level)


def test_the_host_is_what_the_package_says():
    import llvmlite.binding as binding

    assert llvm_c.host() == (binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())


def test_modules_become_objects_and_assembly():
    assert b"add" in llvm_c.emit(ADD, machine())
    assert "add:" in llvm_c.emit(ADD, machine(), assembly=True).decode()


def test_errors_say_what_llvm_says():
    with pytest.raises(RuntimeError, match="use of undefined value '%y'"):
        llvm_c.emit("define i32 @f(i32 %x) {\n  ret i32 %y\n}", machine())


def test_threads_compile_side_by_side():
    objects: list[bytes] = []
    started = [
        threading.Thread(target=lambda: objects.append(llvm_c.emit(ADD, machine())))
        for _ in range(4)
    ]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert objects == [llvm_c.emit(ADD, machine())] * 4


@pytest.mark.parametrize("count", [1, 2, 3])
def test_objects_come_in_the_order_of_their_modules(count):
    texts = [
        ADD.replace("@add", f"@f{i}")
        + f"\ndefine void @g{i}() {{\n"
        + "  fence seq_cst\n" * (7 * i % 5)
        + "  ret void\n}"
        for i in range(6)
    ]
    objects = target.emit_objects(
        [(lambda text=text: text, i % 2 == 0) for i, text in enumerate(texts)],
        target.current(),
        count,
    )
    assert objects == [
        target.emit_object(text, target.current(), quick=i % 2 == 0) for i, text in enumerate(texts)
    ]


@pytest.fixture
def beside(monkeypatch):
    """Return the threads that compile in addition to the caller."""
    started: list[threads.DaemonThread] = []

    class Noted(threads.DaemonThread):
        def __init__(self, *args):
            started.append(self)
            super().__init__(*args)

    monkeypatch.setattr(target, "DaemonThread", Noted)
    return started


def test_a_text_that_cannot_be_written_stops_the_threads(beside):
    def broken() -> str:
        raise ValueError("no text")

    with pytest.raises(ValueError, match="no text"):
        target.emit_objects([(lambda: ADD, False), (broken, False)], target.current(), 2)
    assert [thread.is_alive() for thread in beside] == [False]


def test_an_error_meanwhile_leaves_no_thread_at_work(beside):
    def slow() -> str:
        time.sleep(0.1)
        return ADD

    def broken() -> None:
        raise ValueError("meanwhile")

    with pytest.raises(ValueError, match="meanwhile"):
        target.emit_objects(
            [(lambda: ADD, False), (slow, False), (slow, False)], target.current(), 3, broken
        )
    assert [thread.is_alive() for thread in beside] == [False, False]


def test_llvm_is_preloaded_only_without_cached_code(tmp_path):
    script = (
        "import weft.numpy\nfrom weft._engine.codegen.runtime import pool\n[t.join() for t in pool._prewarmers]\n"
        "from weft._engine.codegen.toolchain import llvm_c; print(len(llvm_c._loaded))"
    )
    env = {"WEFT_CACHE_DIR": str(tmp_path)}
    run = lambda more="": (
        subprocess.run(
            [sys.executable, "-c", script + more],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    assert run("; import weft; float(weft.numpy.ones(3).sum())") == "1\n"
    assert run() == "0\n"


def test_the_end_waits_for_modules_in_work():
    """LLVM's static data are destroyed at exit; a thread that compiles then would abort the process
    (SIGABRT, one time in ten)."""
    done = run_python(
        "-c",
        "import threading, time\n"
        "from weft._engine.codegen.toolchain import llvm_c\n"
        "def slow(*_):\n"
        "    time.sleep(0.2)\n"
        "    print('made', flush=True)\n"
        "    return b''\n"
        "llvm_c._translate = slow\n"
        "def forever():\n"
        "    while True: llvm_c.emit('', None)\n"
        "threading.Thread(target=forever, daemon=True).start()\n"
        "while not llvm_c._inside: time.sleep(0.001)\n"
        "print('leaving', flush=True)\n",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\nmade\n", "")


def test_programs_compile_at_exit():
    done = run_python(
        "-c",
        "import atexit\n"
        "atexit.register(lambda: print(float(weft.jit(lambda x: (x @ x).sum())(wnp.ones((8, 8))))))\n"  # runs last
        "import weft, weft.numpy as wnp\n"
        "weft.jit(lambda x: wnp.sort(x) + 1)(wnp.ones(4))\n",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "512.0\n", "")
