"""One pass of an FFT, on vectors that hold one element of each of several rows.

In:   a radix, and the type of a part.
Out:  `function(radix, type, real, decls)`: the text of `void name(ptr source, ptr target, i64
      radix, i64 m, i64 s, ptr factors)`; `ir.fft` defines a pass and its factors. An element is a
      vector of real parts followed by a vector of imaginary parts. With `real`, elements have no
      imaginary parts, and only the first half of their frequencies is written.
How:  small radices are unrolled. Radices from 11 on, which are odd, are loops that add up cosines
      times x[j] + x[r-j] and sines times x[j] - x[r-j] over j, for several frequencies at a time.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence

from weft._engine.codegen.ir.gemm_types import llvm_type, machine, nbytes
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter, splat_constant
from weft._engine.codegen.ir.scalar_types import mangle
from weft._engine.codegen.ir.writer import Declarations, Operand
from weft._engine.ir.fft import MOST_PRIME, WRITTEN_OUT, twiddle

ARGUMENTS = "ptr %source, ptr %target, i64 %radix, i64 %m, i64 %s, ptr %factors"
#: a complex number: the names of its parts; a missing imaginary part is 0
Number = tuple[str, str | None]


def name(radix: int, type_: str, real: bool) -> str:
    """Return the name of a pass.

    >>> name(8, "f32", False), name(13, "f32", False).startswith("fft_pass_sums_by_")
    ('fft_pass_8_f32', True)
    """
    what = radix if radix < WRITTEN_OUT else f"sums_by_{_block(radix, real)}"
    return f"fft_pass_{what}_{type_}" + "_real" * real


def _block(radix: int, real: bool) -> int:
    """Return the number of frequencies that are summed at a time.

    Twice as many registers hold complex numbers. The number balances few loops over the pairs
    against few sums that are computed twice.
    """
    half, most = radix // 2, 5 if real or machine().registers >= 32 else 2
    return min(
        range(2, min(half, most) + 1), key=lambda size: (-(-half // size) * (size + 1), -size)
    )


class Vectors:
    """Arithmetic on vectors in a function."""

    def __init__(self, signature: str, type_: str, decls: Declarations):
        self.f = LLVMFunctionWriter(signature, decls, machine(), "noinline nounwind")
        self.part, self.size = llvm_type(type_), nbytes(type_)
        self.lanes = machine().vector_bytes // self.size
        self.bytes = machine().vector_bytes
        self.vector = f"<{self.lanes} x {self.part}>"

    def load(self, base: str, vectors: Operand) -> str:
        return self.f.load(
            self.part, self.lanes, self.f.byte_address(base, self.f.mul(vectors, self.bytes))
        )

    def store(self, value: str, base: str, vectors: Operand) -> None:
        self.f.store(
            self.part, self.lanes, value, self.f.byte_address(base, self.f.mul(vectors, self.bytes))
        )

    def factor(self, base: str, index: Operand) -> str:
        """Load a number of a table into all lanes."""
        one = self.f.read(
            self.part, self.f.byte_address(base, self.f.mul(index, self.size)), self.size
        )
        return self.f.splat(one, self.part, self.lanes)

    def number(self, value: float) -> str:
        """Return a constant in all lanes, rounded to the type if necessary."""
        if self.part == "float":
            (value,) = struct.unpack("f", struct.pack("f", value))
        return splat_constant(self.part, float_text(value), self.lanes)

    def add(self, a: str, b: str) -> str:
        return self.f.let(f"fadd {self.vector} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.f.let(f"fsub {self.vector} {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        return self.f.let(f"fmul {self.vector} {a}, {b}")

    def neg(self, a: str) -> str:
        return self.f.let(f"fneg {self.vector} {a}")

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c."""
        intrinsic, v = f"@llvm.fmuladd.v{self.lanes}{mangle(self.part)}", self.vector
        self.f.decls.use(f"declare {v} {intrinsic}({v}, {v}, {v})")
        return self.f.let(f"call {v} {intrinsic}({v} {a}, {v} {b}, {v} {c})")

    def times(self, x: Number, re: str, im: str) -> tuple[str, str]:
        """Return the product with a complex number."""
        a, b = x
        if b is None:
            return self.mul(a, re), self.mul(a, im)
        return self.fma(a, re, self.neg(self.mul(b, im))), self.fma(a, im, self.mul(b, re))

    def plus(self, x: Number, y: Number) -> Number:
        if x[1] is None or y[1] is None:
            return self.add(x[0], y[0]), x[1] or y[1]
        return self.add(x[0], y[0]), self.add(x[1], y[1])

    def minus(self, x: Number, y: Number) -> Number:
        if x[1] is None and y[1] is None:
            return self.sub(x[0], y[0]), None
        assert x[1] and y[1]
        return self.sub(x[0], y[0]), self.sub(x[1], y[1])

    def butterfly_pair(self, x: Number, y: Number) -> tuple[Number, Number]:
        """x - iy and x + iy."""
        if x[1] is None or y[1] is None:
            return (x[0], self.neg(y[0])), (x[0], y[0])
        return (self.add(x[0], y[1]), self.sub(x[1], y[0])), (
            self.sub(x[0], y[1]),
            self.add(x[1], y[0]),
        )

    # --- small transforms

    def multiply_by_twiddle(self, x: Number, k: int, n: int) -> Number:
        """x times exp(-2 pi i k / n)."""
        a, b = x
        assert b is not None
        k %= n
        if 8 * k % n or k == 0:
            if k == 0:
                return x
            return self.times(x, *map(self.number, twiddle(k, n)))
        eighth = 8 * k // n
        if eighth == 2:
            return b, self.neg(a)
        if eighth == 6:
            return self.neg(b), a
        if eighth == 4:
            return self.neg(a), self.neg(b)
        c = self.number(math.sqrt(0.5) if eighth in (1, 7) else -math.sqrt(0.5))
        total, difference = self.add(a, b), self.sub(b, a)
        # (a + ib)(1 - i) = a + b + i(b - a), and (a + ib)(1 + i) = a - b + i(a + b).
        return (
            (self.mul(total, c), self.mul(difference, c))
            if eighth in (1, 5)
            else (self.mul(self.neg(difference), c), self.mul(total, c))
        )

    def transform(self, xs: Sequence[Number]) -> list[Number]:
        """Return the transform of a few numbers; the first half if they are real."""
        n = len(xs)
        if n == 1:
            return list(xs)
        if n == 2:
            return [self.plus(*xs), self.minus(*xs)]
        first = next((a for a in range(math.isqrt(n), 1, -1) if n % a == 0), n)
        if first == n:
            return self._prime(xs)
        cofactor = n // first
        if n == 8:
            first, cofactor = 4, 2
        columns = [self.transform(xs[j::cofactor]) for j in range(cofactor)]
        rows = [
            self.transform(
                [self.multiply_by_twiddle(columns[j][k], j * k, n) for j in range(cofactor)]
            )
            for k in range(first)
        ]
        return [rows[k % first][k // first] for k in range(n)]

    def _prime(self, xs: Sequence[Number]) -> list[Number]:
        p = len(xs)
        sums = [self.plus(xs[j], xs[p - j]) for j in range(1, p // 2 + 1)]
        differences = [self.minus(xs[j], xs[p - j]) for j in range(1, p // 2 + 1)]
        results = [functools.reduce(self.plus, sums, xs[0])] + [xs[0]] * (p - 1)
        for k in range(1, p // 2 + 1):
            even, odd = xs[0], None
            for j, (total, difference) in enumerate(zip(sums, differences), 1):
                cos, minus_sin = twiddle(j * k, p)
                even = self._more(even, total, self.number(cos))
                odd = self._more(odd, difference, self.number(-minus_sin))
            assert odd is not None
            results[k], results[p - k] = self.butterfly_pair(even, odd)
        return results if xs[0][1] is not None else results[: p // 2 + 1]

    def _more(self, x: Number | None, y: Number, c: str) -> Number:
        """x + y * c."""
        one = lambda a, b: None if b is None else self.mul(b, c) if a is None else self.fma(b, c, a)
        re = one(x and x[0], y[0])
        assert re is not None
        return re, one(x and x[1], y[1])


def float_text(value: float | str) -> str:
    """Return a number as LLVM text that reads back exactly."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"


def function(radix: int, type_: str, real: bool, decls: Declarations) -> str:
    """Return the text of a pass."""
    v = Vectors(f"void @{name(radix, type_, real)}({ARGUMENTS})", type_, decls)
    f, place = v.f, _ElementAddresses(v, radix, real)
    write = _emit_small_radix if radix < WRITTEN_OUT else _emit_odd_radix

    def group(p: str) -> None:
        place.enter(p)
        f.loop(0, "%s", 1, lambda q: write(v, place.at(q), radix))

    def element(number: str) -> None:
        place.enter(f.div(number, "%s"))
        write(v, place.at(f.rem(number, "%s")), radix)

    if write is _emit_odd_radix:
        f.loop(0, f.mul("%m", "%s"), 1, element)  # every further loop costs LLVM a millisecond
    else:
        f.loop(0, "%m", 1, group)
    return f.end()


class _ElementAddresses:
    """Addresses of the elements of a group: p is the number of the group, q the number of the
    element in it."""

    def __init__(self, v: Vectors, radix: int, real: bool):
        self.v, self.real, f = v, real, v.f
        self.radix: Operand = radix if radix < WRITTEN_OUT else "%radix"
        self.bytes = v.bytes if real else 2 * v.bytes
        self.wide = f.div(f.add(self.radix, 1), 2) if real else self.radix
        self.stride = f.mul(f.mul("%m", "%s"), self.bytes)
        self.result_stride = f.mul("%s", 2 * v.bytes)

    def enter(self, p: str) -> None:
        """Set the current group."""
        f, self.p = self.v.f, p
        self.first = f.byte_address("%source", f.mul(f.mul(p, "%s"), self.bytes))
        self.first_result = f.byte_address(
            "%target", f.mul(f.mul(p, self.wide), self.result_stride)
        )
        self.factors = f.byte_address(
            "%factors", f.mul(f.mul(p, f.sub(self.radix, 1)), 2 * self.v.size)
        )

    def at(self, q: str) -> _ElementAddresses:
        """Set the current element of the group and return self."""
        self.element = self.v.f.byte_address(self.first, self.v.f.mul(q, self.bytes))
        self.element_result = self.v.f.byte_address(
            self.first_result, self.v.f.mul(q, 2 * self.v.bytes)
        )
        self.steps = {self.stride: [self.element], self.result_stride: [self.element_result]}
        return self

    def _step(self, base: str, stride: str, number: Operand) -> str:
        """Return `base` plus a number of strides `stride`; a constant number is reached from the
        previous address."""
        if isinstance(number, int):
            addresses = self.steps[stride]
            while len(addresses) <= number:
                addresses.append(self.v.f.byte_address(addresses[-1], stride))
            return addresses[number]
        return self.v.f.byte_address(base, self.v.f.mul(number, stride))

    def read(self, j: Operand) -> Number:
        """Load element j."""
        at = self._step(self.element, self.stride, j)
        return self.v.load(at, 0), None if self.real else self.v.load(at, 1)

    def result(self, k: Operand) -> str:
        """Return the address of frequency k of the result."""
        return self._step(self.element_result, self.result_stride, k)

    def write(self, value: Number, k: Operand) -> None:
        at = self.result(k)
        self.v.store(value[0], at, 0)
        self.v.store(value[1] or splat_constant(self.v.part, "0.0", self.v.lanes), at, 1)

    def twiddle(self, value: Number, k: Operand, skipped: Operand = 0) -> Number:
        """Multiply frequency k by its twiddle factor, `skipped` numbers further in the table."""
        v, f = self.v, self.v.f
        at = f.add(f.mul(f.sub(k, 1), 2), skipped)
        return v.times(value, v.factor(self.factors, at), v.factor(self.factors, f.add(at, 1)))


def _emit_small_radix(v: Vectors, place: _ElementAddresses, radix: int) -> None:
    """Emit a small radix as straight-line code."""
    values = v.transform([place.read(j) for j in range(radix)])
    place.write(values[0], 0)
    flat = [
        part
        for value in values[1:]
        for part in (value[0], value[1] or splat_constant(v.part, "0.0", v.lanes))
    ]

    def apply_twiddles() -> list[str]:
        return [
            str(part) for k, value in enumerate(values[1:], 1) for part in place.twiddle(value, k)
        ]

    # the factors of group 0 are 1
    flat = v.f.branch_with_values(v.f.is_nonzero(place.p), apply_twiddles, flat, v.vector)
    for k, value in enumerate(zip(flat[::2], flat[1::2]), 1):
        place.write(value, k)


def _number(parts: Sequence[str]) -> Number:
    """Return a number with the given real part and imaginary part, if there is one."""
    return parts[0], parts[1] if len(parts) == 2 else None


def _emit_odd_radix(v: Vectors, place: _ElementAddresses, radix: int) -> None:
    """Emit an odd radix as a loop over blocks of frequencies around a loop over pairs.

    Radices with the same block size have the same text.
    """
    f, real = v.f, place.real
    parts, zero = 1 if real else 2, splat_constant(v.part, "0.0", v.lanes)
    block = _block(radix, real)
    half = f.div("%radix", 2)
    pairs = f.slot(f"[{2 * parts * (MOST_PRIME // 2)} x {v.vector}]")
    first = place.read("0")

    def pair(j: str, *total: str) -> list[str]:
        x, y = place.read(j), place.read(f.sub("%radix", j))
        both, difference = v.plus(x, y), v.minus(x, y)
        at = f.byte_address(pairs, f.mul(f.sub(j, 1), 2 * parts * v.bytes))
        for i, part in enumerate([*both[:parts], *difference[:parts]]):
            v.store(str(part), at, i)
        return [v.add(a, str(b)) for a, b in zip(total, both)]

    total = f.loop(1, f.add(half, 1), 1, pair, [(v.vector, str(part)) for part in first[:parts]])
    place.write(_number(total), 0)

    def some(begin: str) -> None:
        begin = f.min(begin, f.sub(half, block))

        def more(j: str, *sums: str) -> list[str]:
            at = f.byte_address(pairs, f.mul(j, 2 * parts * v.bytes))
            loaded = [v.load(at, i) for i in range(2 * parts)]
            row = f.byte_address("%factors", f.mul(f.add(f.mul(j, half), begin), 2 * v.size))
            renewed = []
            for k in range(block):
                both = v.factor(row, 2 * k), v.factor(row, 2 * k + 1)
                renewed += [
                    v.fma(loaded[i], both[i // parts], sums[2 * parts * k + i])
                    for i in range(2 * parts)
                ]
            return renewed

        start = [(v.vector, str(part)) for part in [*first[:parts], *[zero] * parts]] * block
        sums = f.loop(0, half, 1, more, start)
        for i in range(block):
            own = sums[2 * parts * i : 2 * parts * (i + 1)]
            k = f.add(f.add(begin, i), 1)
            results = v.butterfly_pair(_number(own[:parts]), _number(own[parts:]))
            mirrored = f.sub("%radix", k)
            for value, frequency in list(zip(results, (k, mirrored)))[:parts]:
                place.write(value, frequency)

    f.loop(0, half, block, some)

    def apply_twiddles(k: str) -> None:
        at = place.result(k)
        value = place.twiddle((v.load(at, 0), v.load(at, 1)), k, f.mul(f.mul(half, half), 2))
        for i, part in enumerate(value):
            v.store(str(part), at, i)

    f.branch_without_values(
        f.is_nonzero(place.p),
        lambda: f.loop(1, f.add(half, 1) if real else "%radix", 1, apply_twiddles),
    )
