"""Sorting of dense rows: native functions per kind and element type, generic in sizes.

In:   a `Sort` step.
Out:  `symbol(step)`: a function's name; `ROUTINES`: its code. It is `void name(ptr words, i64 row,
      i64 worker)` with the `words` (addresses of the operands, then n, k and whether the order
      descends) that `Sort` defines.
Laws: elements are compared as unsigned words: integers, and floats by sign and magnitude, -0 equal
      to 0, NaN last. Sorts are stable. Rows are independent; one task is one row.
How:  LSD radix sort (Knuth, TAOCP vol. 3, 5.2.5) with digits of 8 bits for short rows and 11 for
      long ones; insertion sort for the shortest rows. The k greatest elements are found in one pass
      that compares each element with the least of the k greatest so far.
"""

from __future__ import annotations

from collections.abc import Callable

from weft._engine.codegen.ir.gemm_types import machine
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter, splat_constant
from weft._engine.codegen.ir.writer import Declarations
from weft._engine.codegen.runtime.routines import Routines
from weft._engine.codegen.toolchain.native_library import LibraryModule
from weft._engine.ir.program import Sort, SortKind

# thresholds, measured on several machines
#: rows of at most this many elements are sorted by insertion
SORT_INSERTION = 32
#: rows of at least this many elements are sorted by wide digits
SORT_LONG = 2048
#: bits of a digit in long rows
_SORT_WIDE_DIGIT = 11
#: bits of a digit in short rows
_SORT_NARROW_DIGIT = 8
#: number of elements at which a draft takes about 2 ms longer (drafts take up to 3.5 times as long)
_DRAFT_SORT_ELEMENTS = 1 << 18


_BITS = {
    "bool": 8,
    "i8": 8,
    "u8": 8,
    "i16": 16,
    "u16": 16,
    "f16": 16,
    "bf16": 16,
    "i32": 32,
    "u32": 32,
    "f32": 32,
    "i64": 64,
    "u64": 64,
    "f64": 64,
}
#: magnitude bits of infinity; greater magnitudes are NaN
_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}


def symbol(step: Sort) -> str:
    """Return the name of the function for a step."""
    return f"weft_sort_{step.kind}_{step.type}"


def is_worth_optimizing(step: Sort) -> bool:
    """Return whether the optimized function should run: it exists, or a draft would be too slow."""
    return ROUTINES.is_ready(symbol(step)) or step.rows * step.n > _DRAFT_SORT_ELEMENTS


def parts(name: str, draft: bool = False) -> list[LibraryModule]:
    """Return the modules of a sorting function; a draft's modules are not optimized.

    >>> "define void @weft_sort_values_i32(ptr %words" in parts("weft_sort_values_i32")[-1].text()
    True
    """
    _, _, kind_text, type_ = name.split("_")
    kind = SortKind(kind_text)
    if kind is SortKind.TOP:
        modules = [
            LibraryModule(
                name, lambda: _text(lambda decls: _Top(type_, decls).parts(name)), (name,)
            )
        ]
    else:
        radix_text = lambda write: lambda: _text(lambda decls: write(_Radix(kind, type_, decls)))
        modules = [
            LibraryModule(
                f"{name} order",
                radix_text(lambda radix: [radix.insertion(), radix.digits()]),
                ("insertion", "radix"),
            ),
            LibraryModule(
                f"{name} ends",
                radix_text(lambda radix: [radix.fill(), radix.finish()]),
                ("fill", "finish"),
            ),
            LibraryModule(name, radix_text(lambda radix: [radix.row(name)]), (name,), quick=True),
        ]
    return [part.as_draft() for part in modules] if draft else modules


ROUTINES = Routines(parts, libc=("memset",))


def _text(write: Callable[[Declarations], list[str]]) -> str:
    """Return the text of a module of the functions returned by `write`."""
    decls = Declarations()
    for line in (
        "declare ptr @weft_scratch_take(i64)",
        "declare void @weft_scratch_give(ptr)",
        "declare ptr @memset(ptr, i32, i64)",
    ):
        decls.use(line)
    functions = write(decls)
    return str(decls) + "\n".join(functions)


class _Keys:
    """Conversion of elements of one type to unsigned words with the same order, and back."""

    def __init__(self, type_: str, decls: Declarations):
        self.type, self.bits, self.decls = type_, _BITS[type_], decls
        self.word = f"i{self.bits}"
        self.floating = type_ in _INFINITY
        self.sign = 1 << (self.bits - 1)

    def function(self, signature: str) -> LLVMFunctionWriter:
        return LLVMFunctionWriter(signature, self.decls, machine(), "noinline nounwind")

    def of(self, f: LLVMFunctionWriter, raw: str, lanes: int = 0) -> str:
        """Return the key of an element, whose bits are `raw`."""
        word = f"<{lanes} x {self.word}>" if lanes else self.word
        c = lambda value: splat_constant(
            self.word, value - (1 << self.bits) if value >= self.sign else value, lanes
        )
        if self.type in ("bool", "u8", "u16", "u32", "u64"):
            return raw
        if not self.floating:
            return f.let(f"xor {word} {raw}, {c(self.sign)}")
        flag = f"<{lanes} x i1>" if lanes else "i1"
        magnitude = f.let(f"and {word} {raw}, {c(self.sign - 1)}")
        nan = f.let(f"icmp ugt {word} {magnitude}, {c(_INFINITY[self.type])}")
        zero = f.let(f"icmp eq {word} {magnitude}, {c(0)}")
        plain = f.let(f"select {flag} {zero}, {word} {c(0)}, {word} {raw}")
        spread = f.let(f"ashr {word} {plain}, {c(self.bits - 1)}")
        flips = f.let(f"or {word} {spread}, {c(self.sign)}")
        key = f.let(f"xor {word} {plain}, {flips}")
        return f.let(f"select {flag} {nan}, {word} {c((1 << self.bits) - 1)}, {word} {key}")

    def element_of_key(self, f: LLVMFunctionWriter, key: str) -> str:
        """Return the bits of the element with a key; 0 for both zeros, a quiet NaN for all NaNs."""
        word = self.word
        if self.type in ("bool", "u8", "u16", "u32", "u64"):
            return key
        if not self.floating:
            return f.let(f"xor {word} {key}, {-self.sign}")
        high = f.let(f"ashr {word} {key}, {self.bits - 1}")  # all ones if the element was positive
        low = f.let(f"xor {word} {high}, -1")
        flips = f.let(f"or {word} {low}, {-self.sign}")
        raw = f.let(f"xor {word} {key}, {flips}")
        nan = f.let(f"icmp eq {word} {key}, -1")
        infinity = _INFINITY[self.type]
        return f.let(
            f"select i1 {nan}, {word} {infinity | (infinity >> 1 & ~infinity)}, {word} {raw}"
        )

    def element(self, f: LLVMFunctionWriter, base: str, index: str) -> str:
        return f.read(self.word, f.byte_address(base, f.mul(index, self.bits // 8)), self.bits // 8)

    def put(self, f: LLVMFunctionWriter, base: str, index: str, value: str) -> None:
        f.do(
            f"store {self.word} {value}, ptr {f.byte_address(base, f.mul(index, self.bits // 8))}, align {self.bits // 8}"
        )


def _words(f: LLVMFunctionWriter) -> dict[str, str]:
    """Load the arguments of the function; `Sort` documents them."""
    names = ("source", "previous", "out", "places")
    return {
        **{name: f.load_word("%words", i, "ptr") for i, name in enumerate(names)},
        **{name: f.load_word("%words", 4 + i) for i, name in enumerate(("n", "k", "descending"))},
    }


class _Radix:
    """Radix sort of a row, least significant digit first. Items are keys, or keys in the upper half
    and positions in the lower."""

    def __init__(self, kind: SortKind, type_: str, decls: Declarations):
        self.keys = _Keys(type_, decls)
        self.ordering = kind is SortKind.ORDER
        self.half = (64 if self.keys.bits == 64 else 32) if self.ordering else 0
        self.item = f"i{(2 * self.half) if self.ordering else self.keys.bits}"
        self.bytes = int(self.item[1:]) // 8
        # the part that digits and comparisons read
        self.head = f"i{self.half}" if self.ordering else self.item

    def _at(self, f: LLVMFunctionWriter, base: str, index: str) -> str:
        return f.byte_address(base, f.mul(index, self.bytes))

    def _load(self, f: LLVMFunctionWriter, base: str, index: str) -> str:
        return f.read(self.item, self._at(f, base, index), min(self.bytes, 8))

    def _head(self, f: LLVMFunctionWriter, base: str, index: str) -> str:
        """Load the key of an item, which is in the upper half of its bits."""
        return f.read(
            self.head, f.byte_address(self._at(f, base, index), self.half // 8), min(self.bytes, 8)
        )

    def _put(self, f: LLVMFunctionWriter, base: str, index: str, item: str) -> None:
        f.do(
            f"store {self.item} {item}, ptr {self._at(f, base, index)}, align {min(self.bytes, 8)}"
        )

    def fill(self) -> str:
        """Emit the function that writes the items of a row."""
        keys, item = self.keys, self.item
        f = keys.function(
            "void @fill(ptr %items, ptr %source, ptr %previous, i64 %n, i64 %descending)"
        )
        flip = f.let("sub i64 0, %descending")
        flips = flip if keys.word == "i64" else f.let(f"trunc i64 {flip} to {keys.word}")

        def emit_element(j: str) -> None:
            if not self.ordering:
                self._put(
                    f,
                    "%items",
                    j,
                    f.let(f"xor {keys.word} {keys.of(f, keys.element(f, '%source', j))}, {flips}"),
                )
                return
            has_previous = f.let("icmp ne ptr %previous, null")

            def placed() -> list[str]:
                here = f.read("i32", f.byte_address("%previous", f.mul(j, 4)), 4)
                return [f.let(f"zext i32 {here} to i64")]

            (at,) = f.branch_with_values(has_previous, placed, [j], "i64")
            key = f.let(f"xor {keys.word} {keys.of(f, keys.element(f, '%source', at))}, {flips}")
            upper = f.let(f"shl {item} {f.let(f'zext {keys.word} {key} to {item}')}, {self.half}")
            lower = f.let(f"zext i64 {at} to {item}") if item != "i64" else at
            self._put(f, "%items", j, f.let(f"or {item} {upper}, {lower}"))

        f.loop(0, "%n", 1, emit_element)
        return f.end()

    def insertion(self) -> str:
        """Emit the function that sorts a short row in place."""
        f = self.keys.function("void @insertion(ptr %items, i64 %n)")

        def emit_element(j: str) -> None:
            item, head = self._load(f, "%items", j), self._head(f, "%items", j)
            before = lambda at: f.sub(at, 1)
            greater = lambda at: f.let(
                f"icmp ugt {self.head} {self._head(f, '%items', before(at))}, {head}"
            )

            def move(at: str) -> list[str]:
                one_before = before(at)
                self._put(f, "%items", at, self._load(f, "%items", one_before))
                return [one_before]

            [at] = f.loop_while([f.is_nonzero, greater], move, [("i64", j)])
            self._put(f, "%items", at, item)

        f.loop(1, "%n", 1, emit_element)
        return f.end()

    def digits(self) -> str:
        """Emit the function that sorts a row by digits of `%bits`, moving between `%items` and
        `%spare`; `%result` receives the final place."""
        f = self.keys.function(
            "void @radix(ptr %items, ptr %spare, ptr %counts, i64 %n, i64 %bits, ptr %result)"
        )
        size = f.let("shl i64 1, %bits")
        mask, bytes_ = f.sub(size, 1), f.mul(size, 8)
        other = f.slot("ptr")
        f.do("store ptr %items, ptr %result")
        f.do(f"store ptr %spare, ptr {other}")

        def one_pass(shift: str) -> None:
            source, target_ = f.let("load ptr, ptr %result"), f.let(f"load ptr, ptr {other}")

            def counter(index: str) -> str:
                head = self._head(f, source, index)
                wide = head if self.head == "i64" else f.let(f"zext {self.head} {head} to i64")
                return f.byte_address(
                    "%counts",
                    f.mul(f.let(f"and i64 {f.let(f'lshr i64 {wide}, {shift}')}, {mask}"), 8),
                )

            def count(j: str) -> None:
                at = counter(j)
                before = f.let(f"load i64, ptr {at}")
                f.do(f"store i64 {f.add(before, 1)}, ptr {at}")

            def start(value: str, sum_: str) -> list[str]:
                at = f.byte_address("%counts", f.mul(value, 8))
                here = f.let(f"load i64, ptr {at}")
                f.do(f"store i64 {sum_}, ptr {at}")
                return [f.add(sum_, here)]

            def move(j: str) -> None:
                at = counter(j)
                place = f.let(f"load i64, ptr {at}")
                f.do(f"store i64 {f.add(place, 1)}, ptr {at}")
                self._put(f, target_, place, self._load(f, source, j))

            def spread() -> None:
                f.loop(0, size, 1, start, [("i64", "0")])
                f.loop(0, "%n", 1, move)
                f.do(f"store ptr {target_}, ptr %result")
                f.do(f"store ptr {source}, ptr {other}")

            f.do(f"call ptr @memset(ptr %counts, i32 0, i64 {bytes_})")
            f.loop(0, "%n", 1, count)
            # if all items have the same digit, the pass moves nothing
            same = f.equal(f.let(f"load i64, ptr {counter('0')}"), "%n")
            f.branch_without_values(f.let(f"xor i1 {same}, true"), spread)

        f.loop(0, self.keys.bits, "%bits", one_pass)
        return f.end()

    def finish(self) -> str:
        """Emit the function that writes the values of the sorted items."""
        keys = self.keys
        f = keys.function(
            "void @finish(ptr %items, ptr %source, ptr %out, i64 %n, i64 %descending)"
        )
        if self.ordering:

            def place(j: str) -> None:
                at = f.let(f"trunc {self.item} {self._load(f, '%items', j)} to i32")
                f.do(f"store i32 {at}, ptr {f.byte_address('%out', f.mul(j, 4))}, align 4")

            f.loop(0, "%n", 1, place)
            return f.end()
        flip = f.let("sub i64 0, %descending")
        flips = flip if keys.word == "i64" else f.let(f"trunc i64 {flip} to {keys.word}")

        def value(j: str) -> None:
            keys.put(
                f,
                "%out",
                j,
                keys.element_of_key(
                    f, f.let(f"xor {keys.word} {self._load(f, '%items', j)}, {flips}")
                ),
            )

        f.loop(0, "%n", 1, value)
        if keys.floating:
            self._signed_zeros(f)
        return f.end()

    def _signed_zeros(self, f: LLVMFunctionWriter) -> None:
        """If the row has a -0, write its zeros again in their original order."""
        keys = self.keys

        def search(j: str, has_minus_zero: str, first: str) -> list[str]:
            raw, sorted_value = keys.element(f, "%source", j), keys.element(f, "%out", j)
            minus = f.let(f"icmp eq {keys.word} {raw}, {-keys.sign}")
            zero = f.let(f"icmp eq {keys.word} {sorted_value}, 0")
            earliest = f.let(f"and i1 {zero}, {f.let(f'icmp ugt i64 {first}, {j}')}")
            return [f.let(f"or i1 {has_minus_zero}, {minus}"), f.select(earliest, j, first)]

        has_minus_zero, first = f.loop(0, "%n", 1, search, [("i1", "false"), ("i64", "-1")])

        def emit_pass() -> None:
            def zero(j: str, at: str) -> list[str]:
                raw = keys.element(f, "%source", j)
                is_zero = f.let(
                    f"icmp eq {keys.word} {f.let(f'and {keys.word} {raw}, {keys.sign - 1}')}, 0"
                )
                f.branch_without_values(is_zero, lambda: keys.put(f, "%out", at, raw))
                return [f.add(at, f.let(f"zext i1 {is_zero} to i64"))]

            f.loop(0, "%n", 1, zero, [("i64", first)])

        f.branch_without_values(has_minus_zero, emit_pass)

    def row(self, name: str) -> str:
        """The function itself."""
        keys = self.keys
        f = keys.function(f"void @{name}(ptr %words, i64 %row, i64 %worker)")
        for line in (
            "fill(ptr, ptr, ptr, i64, i64)",
            "insertion(ptr, i64)",
            "radix(ptr, ptr, ptr, i64, i64, ptr)",
            "finish(ptr, ptr, ptr, i64, i64)",
        ):
            f.decls.use(f"declare void @{line}")
        w = _words(f)
        n, descending = w["n"], w["descending"]
        begin = f.mul("%row", n)
        source = f.byte_address(w["source"], f.mul(begin, keys.bits // 8))
        size = 4 if self.ordering else keys.bits // 8
        out = f.byte_address(w["out"], f.mul(begin, size))
        none = f.let(f"icmp eq ptr {w['previous']}, null")
        previous = f.select(none, "null", f.byte_address(w["previous"], f.mul(begin, 4)), "ptr")
        counters = 8 << _SORT_WIDE_DIGIT
        items_bytes = f.let(f"and i64 {f.add(f.mul(n, self.bytes), 63)}, -64")
        scratch = f.let(
            f"call ptr @weft_scratch_take(i64 {f.add(f.mul(items_bytes, 2), counters)})"
        )
        items, spare = (
            f.byte_address(scratch, counters),
            f.byte_address(scratch, f.add(items_bytes, counters)),
        )
        f.do(
            f"call void @fill(ptr {items}, ptr {source}, ptr {previous}, i64 {n}, i64 {descending})"
        )
        result = f.slot("ptr")
        f.do(f"store ptr {items}, ptr {result}")

        def by_digits() -> None:
            short = "true" if keys.bits <= 2 * _SORT_NARROW_DIGIT else f.less(n, SORT_LONG)
            bits = f.select(short, _SORT_NARROW_DIGIT, _SORT_WIDE_DIGIT)
            f.do(
                f"call void @radix(ptr {items}, ptr {spare}, ptr {scratch}, i64 {n}, i64 {bits}, ptr {result})"
            )

        f.branch_without_values(
            f.less(n, SORT_INSERTION + 1),
            lambda: f.do(f"call void @insertion(ptr {items}, i64 {n})"),
            by_digits,
        )
        f.do(
            f"call void @finish(ptr {f.let(f'load ptr, ptr {result}')}, ptr {source}, ptr {out}, i64 {n}, i64 {descending})"
        )
        f.do(f"call void @weft_scratch_give(ptr {scratch})")
        return f.end()


class _Top:
    """The k greatest elements of a row and their positions; of equal elements, earlier positions
    come first.

    The current items are in descending order. An item is a key above the complement of a position,
    so that no two items are equal.
    """

    def __init__(self, type_: str, decls: Declarations):
        self.keys = _Keys(type_, decls)
        self.half = 64 if self.keys.bits == 64 else 32
        self.item = f"i{2 * self.half}"
        self.bytes = self.half // 4

    def parts(self, name: str) -> list[str]:
        return [self._insert(), self._row(name)]

    def _at(self, f: LLVMFunctionWriter, index: str) -> str:
        return f.byte_address("%kept", f.mul(index, self.bytes))

    def _insert(self) -> str:
        """Emit the function that inserts an element into the sorted items `%kept`; the item at `%last`
        is dropped."""
        keys, item = self.keys, self.item
        f = keys.function(
            f"internal void @insert(ptr %kept, {keys.word} %key, i64 %position, i64 %last)"
        )
        upper = f.let(f"shl {item} {f.let(f'zext {keys.word} %key to {item}')}, {self.half}")
        complement = (
            f.let("xor i64 %position, -1")
            if self.half == 64
            else f.let("xor i64 %position, 4294967295")
        )
        lower = complement if item == "i64" else f.let(f"zext i64 {complement} to {item}")
        new = f.let(f"or {item} {upper}, {lower}")
        before = lambda at: self._at(f, f.sub(at, 1))
        less = lambda at: f.let(f"icmp ult {item} {f.read(item, before(at))}, {new}")

        def move(at: str) -> list[str]:
            there = f.read(item, before(at))
            f.do(f"store {item} {there}, ptr {self._at(f, at)}, align 8")
            return [f.sub(at, 1)]

        [at] = f.loop_while([f.is_nonzero, less], move, [("i64", "%last")])
        f.do(f"store {item} {new}, ptr {self._at(f, at)}, align 8")
        return f.end()

    def _row(self, name: str) -> str:
        keys = self.keys
        f = keys.function(f"void @{name}(ptr %words, i64 %row, i64 %worker)")
        w = _words(f)
        n, k = w["n"], w["k"]
        source = f.byte_address(w["source"], f.mul(f.mul("%row", n), keys.bits // 8))
        begin = f.mul("%row", k)
        out, places = (
            f.byte_address(w["out"], f.mul(begin, keys.bits // 8)),
            f.byte_address(w["places"], f.mul(begin, 4)),
        )
        items = f.let(f"call ptr @weft_scratch_take(i64 {f.mul(k, self.bytes)})")
        least = f.slot(keys.word)
        last = f.sub(k, 1)

        def insert(position: str, key: str, at: str) -> None:
            f.do(f"call void @insert(ptr {items}, {keys.word} {key}, i64 {position}, i64 {at})")

        def refresh() -> None:
            end = f.byte_address(items, f.add(f.mul(last, self.bytes), self.half // 8))
            top = f.let(f"load i{self.half}, ptr {end}, align 4")
            f.do(
                f"store {keys.word} {top if keys.bits == self.half else f.let(f'trunc i{self.half} {top} to {keys.word}')}, ptr {least}"
            )

        f.loop(0, k, 1, lambda j: insert(j, keys.of(f, keys.element(f, source, j)), j))
        refresh()
        lanes = machine().vector_bytes * 8 // keys.bits
        whole = f.add(k, f.mul(f.div(f.sub(n, k), lanes), lanes))

        def offer(position: str, key: str) -> None:
            def take() -> None:
                insert(position, key, last)
                refresh()

            f.branch_without_values(
                f.let(f"icmp ugt {keys.word} {key}, {f.let(f'load {keys.word}, ptr {least}')}"),
                take,
            )

        def block(j: str) -> None:
            raw = f.load(keys.word, lanes, f.byte_address(source, f.mul(j, keys.bits // 8)))
            vector = f"<{lanes} x {keys.word}>"
            bound = f.splat(f.let(f"load {keys.word}, ptr {least}"), keys.word, lanes)
            greater = f.let(f"icmp ugt {vector} {keys.of(f, raw, lanes)}, {bound}")
            some = f.let(
                f"icmp ne i{lanes} {f.let(f'bitcast <{lanes} x i1> {greater} to i{lanes}')}, 0"
            )
            f.branch_without_values(
                some,
                lambda: (
                    f.loop(
                        j,
                        f.add(j, lanes),
                        1,
                        lambda i: offer(i, keys.of(f, keys.element(f, source, i))),
                    )
                    and None
                ),
            )

        f.loop(k, whole, lanes, block)
        f.loop(whole, n, 1, lambda i: offer(i, keys.of(f, keys.element(f, source, i))))

        def write(j: str) -> None:
            item = f.read(self.item, f.byte_address(items, f.mul(j, self.bytes)))
            position = f.let(f"xor i32 {f.let(f'trunc {self.item} {item} to i32')}, -1")
            f.do(f"store i32 {position}, ptr {f.byte_address(places, f.mul(j, 4))}, align 4")
            keys.put(f, out, j, keys.element(f, source, f.let(f"zext i32 {position} to i64")))

        f.loop(0, k, 1, write)
        f.do(f"call void @weft_scratch_give(ptr {items})")
        return f.end()
