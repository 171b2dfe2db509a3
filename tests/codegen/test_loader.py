"""The linker for our own objects: the same results as LLVM's, and errors where it does not know."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from weft.codegen.toolchain import loader, target

pytestmark = pytest.mark.skipif(not loader.works_here(), reason="a linker for x86-64 Linux")

TEXT = """
@table = internal constant [4 x i64] [i64 2, i64 3, i64 5, i64 7]
@pointers = internal constant [2 x ptr] [ptr @twice, ptr @outside]
@count = global i64 40
@zero = internal global [3000 x i64] zeroinitializer
@elsewhere = external global i64
declare i64 @outside(i64)
declare i64 @labs(i64)

define internal i64 @twice(i64 %x) noinline {
  %y = mul i64 %x, 2
  ret i64 %y
}

define i64 @work(i64 %i) {
  %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %i
  %a = load i64, ptr %at
  %b = call i64 @twice(i64 %a)
  %c = call i64 @labs(i64 %b)
  %slot = getelementptr [2 x ptr], ptr @pointers, i64 0, i64 1
  %f = load ptr, ptr %slot
  %d = call i64 %f(i64 %c)
  %n = load i64, ptr @count
  %m = add i64 %n, 1
  store i64 %m, ptr @count
  %z = getelementptr [3000 x i64], ptr @zero, i64 0, i64 2999
  store i64 %m, ptr %z
  %e = load i64, ptr @elsewhere
  %s = add i64 %d, %e
  %r = add i64 %s, %n
  ret i64 %r
}

define double @half(i64 %kind) {
  switch i64 %kind, label %other [i64 0, label %a i64 1, label %b i64 2, label %c i64 3, label %d i64 4, label %e]
a:
  ret double 0.5
b:
  ret double 1.25
c:
  ret double 2.125
d:
  ret double 3.0625
e:
  ret double 4.03125
other:
  ret double -1.0
}
"""
LINKERS = {"ours": lambda data, imports: loader.load(data, imports, {}),
           "LLVM's": lambda data, imports: target.link_by_llvm(data, ["work", "half", "count"], imports)}


@pytest.fixture(scope="module")
def data() -> bytes:
    return target.emit_object(TEXT, target.current())


def address(function) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value


@pytest.mark.parametrize("linker", LINKERS)
def test_code_and_data(linker, data):
    outside = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 100 * x)
    elsewhere = ctypes.c_int64(1)
    imports = {"outside": address(outside), "elsewhere": ctypes.addressof(elsewhere),
               "labs": address(ctypes.CDLL(None).labs)}
    linked = LINKERS[linker](data, imports)
    work = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(linked["work"])
    assert [work(i) for i in range(4)] == [400 + 1 + 40, 600 + 1 + 41, 1000 + 1 + 42, 1400 + 1 + 43]
    assert ctypes.c_int64.from_address(linked["count"]).value == 44
    half = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(linked["half"])
    assert [half(i) for i in range(6)] == [0.5, 1.25, 2.125, 3.0625, 4.03125, -1.0]


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


@pytest.mark.parametrize("damage", [lambda d: b"", lambda d: b"\x7fELF" + bytes(60), lambda d: d[:18] + b"\xb7" + d[19:]])
def test_what_is_not_ours_is_left_to_llvm(damage, data):
    with pytest.raises(loader.Unsupported):
        loader.load(damage(data), {}, {})


def test_llvm_is_loaded_to_compile_only_and_never_through_its_package(tmp_path):
    script = ("import sys, weft, weft.numpy as wnp\n"
              "from weft.codegen.toolchain import llvm_c\n"
              "value = float(weft.jit(lambda x: wnp.sin(x) @ x)(wnp.ones((70, 70))).sum())\n"
              "print(value, len(llvm_c._loaded) == 1, 'llvmlite' in sys.modules)")
    env = dict(os.environ, WEFT_CACHE_DIR=str(tmp_path))
    runs = [subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True).stdout.split()
            for _ in range(2)]
    assert [run[1:] for run in runs] == [["True", "False"], ["False", "False"]] and runs[0][0] == runs[1][0]


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


def test_images_without_variables_share_mappings_and_pages_are_used_again():
    count = lambda: Path("/proc/self/maps").read_text().count("\n")
    images = [loader.link([target.emit_object(CONSTANT.replace("NUMBER", str(i)), target.current())]) for i in range(3)]
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
    """What the parent places where it gave pages back does not change what the child runs."""
    images = [loader.link([target.emit_object(CONSTANT.replace("NUMBER", str(i)), target.current())]) for i in (7, 8)]
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
