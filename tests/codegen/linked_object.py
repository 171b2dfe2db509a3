"""An object with every kind of reference that linkers resolve, and a check of the results of its
functions after linking."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

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
EXPORTS = ("work", "half", "count")


def address(function) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value


def check_linked(link: Callable[[Mapping[str, int]], Mapping[str, int]]) -> None:
    """Link the object with its imports, and call its functions."""
    outside = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 100 * x)
    elsewhere = ctypes.c_int64(1)
    imports = {
        "outside": address(outside),
        "elsewhere": ctypes.addressof(elsewhere),
        "labs": address(ctypes.CDLL(None).labs),
    }
    linked = link(imports)
    work = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(linked["work"])
    assert [work(i) for i in range(4)] == [400 + 1 + 40, 600 + 1 + 41, 1000 + 1 + 42, 1400 + 1 + 43]
    assert ctypes.c_int64.from_address(linked["count"]).value == 44
    half = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64)(linked["half"])
    assert [half(i) for i in range(6)] == [0.5, 1.25, 2.125, 3.0625, 4.03125, -1.0]
