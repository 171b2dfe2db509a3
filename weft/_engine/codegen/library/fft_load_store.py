"""Functions before and after the passes of an FFT: transposes, and frequencies of real values.

In:   the name of a function, as used by `codegen.library.fft`.
Out:  `function(name, type, decls)`: its text. An element in scratch memory is a vector of real
      parts and one of imaginary parts.
Laws: sizes are arguments, so that the functions work for all lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from weft._engine.codegen.ir.ir_writer import splat_constant
from weft._engine.codegen.ir.writer import Declarations, Operand
from weft._engine.codegen.library.fft_passes import Vectors

# thresholds, measured on several machines
#: blocks of sixteen columns that are transposed at a time
_FFT_TRANSPOSED_BLOCKS = 4


_SIDE = "ptr %{0}, i64 %{0}_step, i64 %{0}_last, i64 %{0}_swap, i64 %{0}_move"
_TRANSPOSE = f"i64 %total, double %scale, {_SIDE.format('from')}, {_SIDE.format('to')}"
#: the parameters of each function
ARGUMENTS = {
    "transpose": _TRANSPOSE,
    "short": f"{_TRANSPOSE}, i64 %from_count, i64 %to_count",
    "columns": "ptr %from, i64 %pitch, i64 %count, i64 %swap, ptr %to, i64 %n",
    "uncolumns": "ptr %from, ptr %to, i64 %pitch, i64 %count, i64 %swap, i64 %n, double %scale",
    "twist": "ptr %at, ptr %factors, i64 %rows, i64 %n",
    "part": "ptr %at, i64 %h, ptr %factors",
    "join": "ptr %at, i64 %h, ptr %factors",
    "gather": "ptr %from, ptr %to, i64 %n, i64 %r",
    "mirror": "ptr %at, i64 %n",
    "extend": "ptr %at, i64 %n",
    "product": "ptr %from, ptr %to, i64 %n, ptr %factors, i64 %swap, i64 %length",
    "product_real": "ptr %from, ptr %to, i64 %n, ptr %factors, i64 %swap, i64 %length",
}


def symbol(name: str, type_: str) -> str:
    """Return the symbol of a function.

    >>> symbol("part", "f32")
    'fft_part_f32'
    """
    return f"fft_{name}_{type_}"


def types(name: str) -> str:
    """Return the types of a function's parameters.

    >>> types("part")
    'ptr, i64, ptr'
    """
    return ", ".join([argument.split()[0] for argument in ARGUMENTS[name].split(", ")])


def function(name: str, type_: str, decls: Declarations, draft: bool = False) -> str:
    """Return the text of a function; a draft prefers short code to fast code."""
    v = Vectors(f"void @{symbol(name, type_)}({ARGUMENTS[name]})", type_, decls)
    v.f.optimized = not draft
    _WRITE[name](v)
    return v.f.end()


# --- rows and columns


def _scale(v: Vectors) -> str:
    scale = v.f.let(f"fptrunc double %scale to {v.part}") if v.part != "double" else "%scale"
    return v.f.splat(scale, v.part, v.lanes)


def _transpose(v: Vectors, short: bool = False) -> None:
    """Transpose `total` columns of a vector's worth of rows, and multiply them by `scale`.

    On either side, row i begins at `step` * min(i, `last`) bytes, where `swap` exchanges
    neighboring rows, and a column is `move` bytes after the previous column. A vector's worth of
    columns moves at a time; the last such block overlaps the previous one if fewer columns remain.
    With `short`, rows are shorter than a vector, and masks limit each access to `count` numbers.

    Rows are interleaved pairwise in log2(n) rounds. For sixteen lanes, two rounds of a few blocks
    go through memory: the code is shorter, and only four rows are accessed at a time, which matters
    if all rows map to one cache set.
    """
    f, lanes = v.f, v.lanes
    scale = _scale(v)
    masks = [
        f.mask_of_first_lanes(f"%{side}_count", lanes) if short else None for side in ("from", "to")
    ]

    def rows(side: str, start: str) -> Callable[[str], str]:
        base = f.byte_address(f"%{side}", f.mul(start, f"%{side}_move"))
        row = lambda i: f.min(f.let(f"xor i64 {i}, %{side}_swap"), f"%{side}_last")
        return lambda i: f.byte_address(base, f.mul(row(i), f"%{side}_step"))

    def reader(start: str) -> Callable[[str], str]:
        at = rows("from", start)
        return lambda i: f.load(v.part, lanes, at(i), masks[0])

    def writer(start: str) -> Callable[[str, str], None]:
        at = rows("to", start)
        return lambda i, x: f.store(v.part, lanes, v.mul(x, scale), at(i), masks[1])

    last, blocks = f.sub(f.max("%total", lanes), lanes), f.ceil_div("%total", lanes)
    place = lambda number: f.min(f.mul(number, lanes), last)
    if lanes < 16:

        def block(number: str) -> None:
            start = place(number)
            read, write = reader(start), writer(start)
            for i, column in enumerate(f.transpose([read(str(i)) for i in range(lanes)], v.part)):
                write(str(i), column)

        f.loop(0, blocks, 1, block)
        return

    def quarter(read: Callable, write: Callable, i: str) -> None:
        low = [j // 2 + lanes * (j % 2) for j in range(lanes)]
        picks = low, [lanes // 2 + p for p in low]
        a, b, c, d = (read(f.add(i, lanes // 4 * t)) for t in range(4))
        pairs = [(f.shuffle(a, c, v.vector, p), f.shuffle(b, d, v.vector, p)) for p in picks]
        for t, column in enumerate([f.shuffle(x, y, v.vector, p) for x, y in pairs for p in picks]):
            write(f.add(f.mul(i, 4), t), column)

    between = f.slot(f"[{_FFT_TRANSPOSED_BLOCKS * lanes} x {v.vector}]")

    def group(first: str) -> None:
        count = f.min(_FFT_TRANSPOSED_BLOCKS, f.sub(blocks, first))

        def half(step: Callable[[str, str, str], None]) -> None:
            def emit_iteration(_: str, i: str, c: str) -> list[str]:
                step(place(f.add(first, c)), f.byte_address(between, f.mul(c, lanes * v.bytes)), i)
                over = f.equal(f.add(c, 1), count)
                return [f.select(over, f.add(i, 1), i), f.select(over, 0, f.add(c, 1))]

            f.loop(0, f.mul(count, lanes // 4), 1, emit_iteration, [("i64", "0"), ("i64", "0")])

        half(lambda start, there, i: quarter(reader(start), lambda j, x: v.store(x, there, j), i))
        half(lambda start, there, i: quarter(lambda j: v.load(there, j), writer(start), i))

    f.loop(0, blocks, _FFT_TRANSPOSED_BLOCKS, group)


def _loop_with_masks(v: Vectors, loop: Callable[[Sequence[str | None]], None]) -> None:
    """Emit `loop` over vectors of `count` complex numbers; masks of its two vectors are passed for
    partial vectors and in drafts."""
    f, parts = v.f, v.f.mul("%count", 2)
    short = lambda: [
        f.mask_of_first_lanes(parts, v.lanes),
        f.mask_of_first_lanes(f.sub(f.max(parts, v.lanes), v.lanes), v.lanes),
    ]
    f.branch_without_values(
        f.equal("%count", v.lanes) if f.optimized else "false",
        lambda: loop((None, None)),
        lambda: loop(short()),
    )


def _columns(v: Vectors) -> None:
    """Load up to a vector's worth of adjacent columns as elements; consecutive numbers of a column
    are `pitch` bytes stride."""
    f = v.f

    def loop(masks: Sequence[str | None]) -> None:
        def element(j: str) -> None:
            at = f.byte_address("%from", f.mul(j, "%pitch"))
            low, high = (
                f.load(v.part, v.lanes, f.byte_address(at, i * v.bytes), mask)
                for i, mask in enumerate(masks)
            )
            for part in (0, 1):
                picked = f.shuffle(low, high, v.vector, range(part, 2 * v.lanes, 2))
                v.store(picked, "%to", f.add(f.mul(j, 2), f.let(f"xor i64 %swap, {part}")))

        f.loop(0, "%n", 1, element)

    _loop_with_masks(v, loop)


def _uncolumns(v: Vectors) -> None:
    """Store elements as adjacent columns, multiplied by a factor."""
    f, scale = v.f, _scale(v)
    picks = [i // 2 + v.lanes * (i % 2) for i in range(2 * v.lanes)]

    def loop(masks: Sequence[str | None]) -> None:
        def element(j: str) -> None:
            at = f.byte_address("%to", f.mul(j, "%pitch"))
            parts = [
                v.mul(v.load("%from", f.add(f.mul(j, 2), f.let(f"xor i64 %swap, {part}"))), scale)
                for part in (0, 1)
            ]
            for i, mask in enumerate(masks):
                vector = f.shuffle(
                    parts[0], parts[1], v.vector, picks[i * v.lanes : (i + 1) * v.lanes]
                )
                f.store(v.part, v.lanes, vector, f.byte_address(at, i * v.bytes), mask)

        f.loop(0, "%n", 1, element)

    _loop_with_masks(v, loop)


def _twist(v: Vectors) -> None:
    """Multiply the elements of a vector of rows by the factors of each row."""
    f = v.f

    def element(j: str) -> None:
        at = f.byte_address("%factors", f.mul(f.mul(j, "%rows"), 2 * v.size))
        cos, sin = v.load(at, 0), v.load(f.byte_address(at, f.mul("%rows", v.size)), 0)
        _put(v, *v.times(_get(v, "%at", j), cos, sin), "%at", j)

    f.loop(0, "%n", 1, element)


# --- frequencies of real values

#: the real and the imaginary part of an element
_Parts: TypeAlias = tuple[str, str]


def _put(v: Vectors, re: str, im: str, base: str, element: Operand) -> None:
    at = v.f.byte_address(base, v.f.mul(element, 2 * v.bytes))
    v.store(re, at, 0)
    v.store(im, at, 1)


def _get(v: Vectors, base: str, element: Operand) -> _Parts:
    at = v.f.byte_address(base, v.f.mul(element, 2 * v.bytes))
    return v.load(at, 0), v.load(at, 1)


def _pairs(
    v: Vectors,
    read: Callable[[str], Sequence[str]],
    sign: Callable[[str], str],
    body: Callable[[_Parts, _Parts], tuple[_Parts, _Parts]],
) -> None:
    """Combine elements k and h - k for k = 1 .. h/2.

    `read` loads Z[k]. `body` maps E = Z[k] + conj Z[h-k] and w^k O, with O = Z[k] - conj Z[h-k], to
    the new elements k and h - k; `sign` changes the sign of k in w^k.
    """
    f = v.f

    def emit_iteration(k: str) -> None:
        other = f.sub("%h", k)
        (a, b), (c, d) = read(k), read(other)
        cos, sin = v.factor("%factors", f.mul(k, 2)), v.factor("%factors", f.add(f.mul(k, 2), 1))
        low, high = body(
            (v.add(a, c), v.sub(b, d)), v.times((v.sub(a, c), v.add(b, d)), cos, sign(sin))
        )
        _put(v, *low, "%at", k)
        _put(v, *high, "%at", other)

    f.loop(1, f.add(f.div("%h", 2), 1), 1, emit_iteration)


def _part(v: Vectors) -> None:
    """Compute the frequencies 0 .. h of 2h real values from the transform Z of z = even values + i
    odd values.

    Frequencies k and h - k are E + t and conj(E - t), with t = -i w^k O, of half of Z. Z is halved
    first, because the unhalved sums may overflow where the frequencies do not.
    """
    half, zero = v.number(0.5), splat_constant(v.part, "0.0", v.lanes)
    re, im = _get(v, "%at", 0)
    _put(v, v.add(re, im), zero, "%at", 0)
    _put(v, v.sub(re, im), zero, "%at", "%h")

    def body(even: _Parts, odd: _Parts) -> tuple[_Parts, _Parts]:
        return (v.add(even[0], odd[1]), v.sub(even[1], odd[0])), (
            v.sub(even[0], odd[1]),
            v.sub(v.neg(even[1]), odd[0]),
        )

    _pairs(v, lambda k: [v.mul(part, half) for part in _get(v, "%at", k)], lambda sin: sin, body)


def _join(v: Vectors) -> None:
    """Invert `_part`, times 2 and with real and imaginary parts exchanged: Z[k] = E + t and Z[h-k]
    = conj(E - t), t = i w^-k O."""
    (first, _), (last, _) = _get(v, "%at", 0), _get(v, "%at", "%h")
    _put(v, v.sub(first, last), v.add(first, last), "%at", 0)

    def body(even: _Parts, odd: _Parts) -> tuple[_Parts, _Parts]:
        return (v.add(even[1], odd[0]), v.sub(even[0], odd[1])), (
            v.sub(odd[0], even[1]),
            v.add(even[0], odd[1]),
        )

    _pairs(v, lambda k: _get(v, "%at", k), v.neg, body)


def _gather(v: Vectors) -> None:
    """Put frequencies 0 .. n/2 in order after passes whose first, of radix r, wrote only half of
    each r frequencies."""
    f = v.f
    wide, groups = f.div(f.add("%r", 1), 2), f.div("%n", "%r")

    def emit_iteration(i: str, k: str, q: str) -> list[str]:
        # Frequency k*r + q is the conjugate of frequency n - k*r - q = (n/r - 1 - k)*r + r - q.
        there = f.less(q, wide)
        group, number = (
            f.select(there, k, f.sub(f.sub(groups, 1), k)),
            f.select(there, q, f.sub("%r", q)),
        )
        re, im = _get(v, "%from", f.add(f.mul(group, wide), number))
        sign = f.splat(f.select(there, "1.0", "-1.0", v.part), v.part, v.lanes)
        _put(v, re, v.mul(im, sign), "%to", i)
        next_ = f.add(q, 1)
        over = f.equal(next_, "%r")
        return [f.select(over, f.add(k, 1), k), f.select(over, 0, next_)]

    f.loop(0, f.add(f.div("%n", 2), 1), 1, emit_iteration, [("i64", "0"), ("i64", "0")])


def _mirror(v: Vectors) -> None:
    """Frequency n - k from k, its conjugate."""

    def emit_iteration(k: str) -> None:
        re, im = _get(v, "%at", k)
        _put(v, re, v.neg(im), "%at", v.f.sub("%n", k))

    v.f.loop(1, v.f.div(v.f.add("%n", 1), 2), 1, emit_iteration)


def _extend(v: Vectors) -> None:
    """Compute all n frequencies from the first half, for odd n, and exchange real and imaginary
    parts."""
    _put(v, splat_constant(v.part, "0.0", v.lanes), _get(v, "%at", 0)[0], "%at", 0)

    def emit_iteration(k: str) -> None:
        re, im = _get(v, "%at", k)
        _put(v, im, re, "%at", k)
        _put(v, v.neg(im), re, "%at", v.f.sub("%n", k))

    v.f.loop(1, v.f.add(v.f.div("%n", 2), 1), 1, emit_iteration)


def _product(v: Vectors, real: bool = False) -> None:
    """Multiply n elements by factors, exchange real and imaginary parts if `swap` is 1, and append
    zeros up to `length`."""
    f, zero = v.f, splat_constant(v.part, "0.0", v.lanes)
    own, other = (f.let(f"xor i64 %swap, {part}") for part in (0, 1))

    def put(j: str, re: str, im: str) -> None:
        at = f.byte_address("%to", f.mul(j, 2 * v.bytes))
        v.store(re, at, own)
        v.store(im, at, other)

    def element(j: str) -> None:
        x = (v.load("%from", j), None) if real else _get(v, "%from", j)
        re, im = v.times(
            x, v.factor("%factors", f.mul(j, 2)), v.factor("%factors", f.add(f.mul(j, 2), 1))
        )
        put(j, re, str(im))

    f.loop(0, "%n", 1, element)
    f.loop("%n", "%length", 1, lambda j: put(j, zero, zero))


_WRITE = {
    "transpose": _transpose,
    "short": lambda v: _transpose(v, True),
    "columns": _columns,
    "uncolumns": _uncolumns,
    "twist": _twist,
    "part": _part,
    "join": _join,
    "gather": _gather,
    "mirror": _mirror,
    "extend": _extend,
    "product": _product,
    "product_real": lambda v: _product(v, True),
}
