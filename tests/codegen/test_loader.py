"""The linker for weft's own objects: results equal LLVM's, and unsupported objects raise errors."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.codegen.linked_object import TEXT, check_linked
from weft._engine.codegen.toolchain import loader, target

pytestmark = pytest.mark.skipif(not loader.supports_machine(), reason="a linker for x86-64 Linux")


@pytest.fixture(scope="module")
def data() -> bytes:
    return target.emit_object(TEXT, target.current())


def test_code_and_data(data):
    check_linked(lambda imports: loader.load(data, imports, {}))


def test_an_unknown_name_is_told(data):
    with pytest.raises(RuntimeError, match=r"'(outside|labs|elsewhere)'"):
        loader.load(data, {}, {})


def test_code_is_not_writable(data):
    linked = loader.load(data, dict.fromkeys(("outside", "labs", "elsewhere"), 1), {})
    rights = {}
    with open("/proc/self/maps") as file:
        for line in file:
            span, right = line.split()[:2]
            low, high = (int(x, 16) for x in span.split("-"))
            rights |= {name: right for name in ("work", "count") if low <= linked[name] < high}
    assert rights == {"work": "r-xp", "count": "rw-p"}


@pytest.mark.parametrize(
    "damage", [lambda d: b"", lambda d: b"\x7fELF" + bytes(60), lambda d: d[:18] + b"\xb7" + d[19:]]
)
def test_what_is_not_ours_is_left_to_llvm(damage, data):
    with pytest.raises(loader.UnsupportedObjectError):
        loader.load(damage(data), {}, {})


def test_llvm_loads_only_to_compile_and_not_by_its_package(tmp_path):
    script = (
        "import sys, weft, weft.numpy as wnp\n"
        "from weft._engine.codegen.toolchain import llvm_c\n"
        "value = float(weft.jit(lambda x: wnp.sin(x) @ x)(wnp.ones((70, 70))).sum())\n"
        "print(value, len(llvm_c._loaded) == 1, 'llvmlite' in sys.modules)"
    )
    env = dict(os.environ, WEFT_CACHE_DIR=str(tmp_path))
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    assert [run[1:] for run in runs] == [["True", "False"], ["False", "False"]] and runs[0][
        0
    ] == runs[1][0]


CONSTANT = """
@table = internal constant [2 x ptr] [ptr @one, ptr @two]
define internal i64 @one() {
  ret i64 NUMBER
}
define internal i64 @two() {
  ret i64 -1
}
define i64 @answer(i64 %i) {
  %slot = getelementptr [2 x ptr], ptr @table, i64 0, i64 %i
  %f = load ptr, ptr %slot
  %r = call i64 %f()
  ret i64 %r
}
"""


def answers(linked):
    return [ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(linked["answer"])(i) for i in (0, 1)]


def rights_at(address):
    with open("/proc/self/maps") as file:
        for line in file:
            span, right = line.split()[:2]
            low, high = (int(x, 16) for x in span.split("-"))
            if low <= address < high:
                return right


def test_images_without_data_share_mappings_and_reuse_pages():
    count = lambda: Path("/proc/self/maps").read_text().count("\n")
    images = [
        loader.link([target.emit_object(CONSTANT.replace("NUMBER", str(i)), target.current())])
        for i in range(3)
    ]
    loader.place(images[0], {}.get)
    before = count()
    live = [loader.place(images[i % 3], {}.get) for i in range(120)]
    assert count() - before <= 3
    for i, linked in enumerate(live):
        assert answers(linked) == [i % 3, -1] and rights_at(linked["answer"]) == "r-xp"
    held, gone = live[::2], {linked["answer"] for linked in live[1::2]}
    del live, linked
    again = [loader.place(images[2], {}.get) for _ in range(60)]
    assert {linked["answer"] for linked in again} == gone, "and no other"
    assert [answers(linked) for linked in held] == [[2 * i % 3, -1] for i in range(60)]
    assert all(answers(linked) == [2, -1] for linked in again) and count() - before <= 3


def test_large_images_have_room():
    size = 3 * loader._ARENA // 2
    image = loader.link([target.emit_object(CONSTANT.replace("NUMBER", "5"), target.current())])
    large = image._replace(size=size, code_size=size)
    before = len(loader._unused.get(size, ()))
    assert answers(loader.place(large, {}.get)) == [5, -1]
    assert len(loader._unused[size]) == before + 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_code_of_a_child_is_its_own():
    """Code that the parent loads into reused pages does not change the child's code."""
    images = [
        loader.link([target.emit_object(CONSTANT.replace("NUMBER", str(i)), target.current())])
        for i in (7, 8)
    ]
    linked = loader.place(images[0], {}.get)
    go = os.pipe()
    child = os.fork()
    if not child:
        os.read(go[0], 1)
        os._exit(0 if answers(linked) == [7, -1] else 1)
    del linked
    others = [loader.place(images[1], {}.get) for _ in range(3)]
    os.write(go[1], b"x")
    assert os.waitpid(child, 0)[1] == 0 and answers(others[0]) == [8, -1]
    for end in go:
        os.close(end)
