"""FFTs of many rows: a native function per kind, type and length.

In:   an `Fft` step.
Out:  `symbol(step)`: a function's name; `ROUTINES`: its code. It is `void name(ptr words, i64 task,
      i64 worker)`; `words(step)` are the numbers after the addresses of source, out and tables;
      `tasks(step)`: the number of tasks.
Laws: rows are independent, so NaN and infinities stay in their row.
How:  each lane of a vector holds a row, so passes have no shuffles and no remainders. Rows are
      transposed into scratch memory, one vector per element, transformed there by the passes, and
      transposed back. In the last vector, the last row fills the remaining lanes.
"""

from __future__ import annotations

from weft._engine.codegen.ir.gemm_types import llvm_type, machine, nbytes
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter
from weft._engine.codegen.ir.writer import Declarations, module_of
from weft._engine.codegen.library import fft_load_store, fft_passes
from weft._engine.codegen.library.fft_passes import float_text
from weft._engine.codegen.runtime.routines import Routines
from weft._engine.codegen.toolchain.native_library import LibraryModule
from weft._engine.ir import fft
from weft._engine.ir.program import Fft

# thresholds, measured on several machines
#: minimum number of elements per task
_FFT_TASK = 1 << 11
#: number of elements at which a draft takes about 2 ms longer than optimized code
_DRAFT_FFT_ELEMENTS = 1 << 21


def symbol(step: Fft) -> str:
    """Return the name of the function for a step."""
    kind = fft.PARTNERS.get(step.kind, step.kind)
    variant = "_convolution" if step.part else "_columns" * (step.inner > 1)
    return f"weft_fft_{kind}{variant}_{step.type}_{step.n}"


def words(step: Fft) -> tuple[int, ...]:
    """Return the arguments of the function after the addresses."""
    own = (
        step.rows,
        step.inner,
        _blocks_per_task(step),
        _blocks(step),
        int(fft.is_crossed(step.kind)),
    )
    part = step.part
    if part is None:
        return own
    number, sides = 2 * nbytes(step.type), []
    for count, times, swaps in (
        (part.in_count, part.times_source, part.swaps_source),
        (part.out_count, part.times_out, part.swaps_out),
    ):
        full, remainder = divmod(count, step.inner)
        sides += [count * number, full, min(remainder, 1), remainder, int(swaps), times]
    return *own, *sides


def tasks(step: Fft) -> int:
    """Return the number of tasks of a step."""
    return -(-_blocks(step) // _blocks_per_task(step))


def _lanes(type_: str) -> int:
    return machine().vector_bytes // nbytes(type_)


def _blocks(step: Fft) -> int:
    """Return the number of vectors of rows, or of columns."""
    lanes = _lanes(step.type)
    return step.rows * -(-step.inner // lanes) if step.inner > 1 else -(-step.rows // lanes)


def _blocks_per_task(step: Fft) -> int:
    """Return the number of blocks per task."""
    return max(1, _FFT_TASK // (step.n * _lanes(step.type)))


def is_worth_optimizing(step: Fft) -> bool:
    """Return whether the optimized function should run: it exists, or a draft would be too slow."""
    return ROUTINES.is_ready(symbol(step)) or step.rows * step.n * step.inner > _DRAFT_FFT_ELEMENTS


def parts(name: str, draft: bool = False) -> list[LibraryModule]:
    """Return the modules of a transform; all but the last are shared with other lengths.

    The modules of a draft are not optimized, and all functions that it calls, except passes, are in
    one
    module, since each module costs LLVM 0.2 ms.
    >>> [part.name for part in parts("weft_fft_half_f32_1024")]
    ['fft_transpose_f32', 'fft_part_f32', 'fft_pass_8_f32', 'weft_fft_half_f32_1024']
    """
    kind, *variant, type_, n = name.removeprefix("weft_fft_").split("_")
    whole = _Transform(kind, "".join(variant), type_, int(n))
    plan, ends, passes = whole.plan, list(dict.fromkeys(whole.helper_names())), {}
    for place, (r, _, _) in enumerate(plan.passes):
        real = plan.real_first and place == 0
        passes[fft_passes.name(r, type_, real)] = lambda decls, r=r, real=real: fft_passes.function(
            r, type_, real, decls
        )
    shared = []
    for some in [ends] if draft else [[end] for end in ends]:
        symbols = [fft_load_store.symbol(end, type_) for end in some]
        write = lambda decls, some=some: [
            fft_load_store.function(end, type_, decls, draft) for end in some
        ]
        shared.append(
            LibraryModule(" ".join(symbols), lambda write=write: module_of(write), symbols)
        )
    shared += [
        LibraryModule(part, lambda write=write: module_of(write), (part,))
        for part, write in passes.items()
    ]
    if draft:
        shared = [part.as_draft() for part in shared]
    return [
        *shared,
        LibraryModule(
            name, lambda: module_of(lambda decls: whole.function(name, decls)), (name,), quick=True
        ),
    ]


ROUTINES = Routines(parts)


class _Transform:
    """The function of one transform: it moves rows of its length through the shared functions."""

    def __init__(self, kind: str, variant: str, type_: str, n: int):
        self.kind, self.variant, self.type, self.n = kind, variant, type_, n
        self.crossed, self.to_real = fft.is_crossed(kind), kind == "real"
        self.plan = plan = fft.plan_fft(kind, n)
        half = n // 2 + 1
        #: real numbers per row of the input and of the output
        self.in_count = {"half": n, "all": n, "real": 2 * half}.get(kind, 2 * n)
        self.out_count = {"half": 2 * half, "real": n}.get(kind, 2 * n)
        self.scale = 1 / n if kind in ("inverse", "uncross", "real") else 1.0
        # Exchanging real and imaginary parts on input and output turns a forward transform into an
        # inverse one.
        odd = ([], []) if plan.convolution else (["extend"], ["gather"])
        self.before = {"real": ["join"] if plan.halves else odd[0]}.get(kind, [])
        self.swapped = int(kind in ("inverse", "uncross") or (kind == "real" and not self.before))
        self.after = (["part"] if plan.halves else odd[1]) if kind in ("half", "all") else []
        self.after += ["mirror"] * (kind == "all")
        self.product = "product_real" if kind in ("half", "all") and not plan.halves else "product"

    def helper_names(self) -> list[str]:
        """Return the names of the functions that the transform calls, except passes."""
        lanes = _lanes(self.type)
        if self.crossed:
            return ["columns", "transpose", "twist", "uncolumns"]
        if self.variant == "convolution":
            return ["columns", "twist", "uncolumns"]
        moves = (
            ["columns", "uncolumns"]
            if self.variant
            else {self._move(self.in_count, lanes), self._move(self.out_count, lanes)}
        )
        return [
            *sorted(moves),
            *self.before,
            *({"product", self.product} if self.plan.convolution else ()),
            *self.after,
        ]

    @staticmethod
    def _move(numbers: int, lanes: int) -> str:
        """Return the name of the function that transposes rows of a given length."""
        return "transpose" if numbers >= lanes else "short"

    def function(self, name: str, decls: Declarations) -> str:
        """Return the text of the function."""
        f = self.f = LLVMFunctionWriter(
            f"void @{name}(ptr %words, i64 %task, i64 %worker)",
            decls,
            machine(),
            "noinline nounwind",
        )
        f.optimized = False
        self.callees: dict[str, str] = {}
        lanes, register = _lanes(self.type), machine().vector_bytes
        take, give = (
            self._callee("ptr", "weft_scratch_take", "i64"),
            self._callee("void", "weft_scratch_give", "ptr"),
        )
        source, out, tables = (f.load_word("%words", i, "ptr") for i in range(3))
        convolved = self.variant == "convolution"
        products = f.load_word("%words", 3, "ptr") if convolved else ""
        rows, inner, share, blocks, crossed, *sides = (
            f.load_word("%words", 3 + convolved + i) for i in range(5 + 12 * convolved)
        )
        buffer_bytes = 2 * register * max(self.n + 1, self.plan.length, lanes)
        one = f.let(f"call ptr {take}(i64 {2 * buffer_bytes})")
        other = f.byte_address(one, buffer_bytes)
        size = nbytes(self.type)

        def row_block(block: str) -> None:
            begin = f.mul(block, lanes)
            last = f.sub(f.sub(rows, begin), 1)
            side = lambda base, numbers: (
                f.byte_address(base, f.mul(begin, numbers * size)),
                numbers * size,
                last,
                0,
                size,
            )
            counts = [(self.in_count, lanes), (lanes, self.out_count)]
            moves = [self._move(numbers, lanes) for numbers in (self.in_count, self.out_count)]
            extra = [pair if move == "short" else () for move, pair in zip(moves, counts)]
            there = one, register, lanes, self.swapped, register
            self._call(
                moves[0], self.in_count, "1.0", *side(source, self.in_count), *there, *extra[0]
            )
            transformed = self._passes(one, other, tables)
            if self.to_real and not self.plan.halves:  # imaginary parts are where real parts belong
                back = f.byte_address(transformed, register), 2 * register, lanes, 0, 2 * register
            else:
                back = transformed, register, lanes, self.swapped or int(self.to_real), register
            self._call(
                moves[1], self.out_count, self.scale, *back, *side(out, self.out_count), *extra[1]
            )

        def column_block(block: str) -> None:
            across = f.ceil_div(inner, lanes)
            row, column = f.div(block, across), f.mul(f.rem(block, across), lanes)
            pitch = f.mul(inner, 2 * size)
            begin = f.add(f.mul(f.mul(row, self.n), pitch), f.mul(column, 2 * size))
            here = pitch, f.min(f.sub(inner, column), lanes), self.swapped
            bring = lambda: self._call("columns", f.byte_address(source, begin), *here, one, self.n)
            if self.crossed:
                f.branch_without_values(
                    f.is_nonzero(crossed), lambda: swapped_rows(row, column), bring
                )
            else:
                bring()
            self._call(
                "uncolumns",
                self._passes(one, other, tables),
                f.byte_address(out, begin),
                *here,
                self.n,
                self.scale,
            )

        def swapped_rows(row: str, column: str) -> None:
            pitch = self.in_count * size
            begin = f.byte_address(source, f.mul(f.add(f.mul(row, inner), column), pitch))
            self._call(
                "transpose",
                self.in_count,
                "1.0",
                begin,
                pitch,
                lanes - 1,
                0,
                size,
                one,
                register,
                lanes,
                self.swapped,
                register,
            )
            factors = f.byte_address(
                f.byte_address(tables, fft.offsets(self.kind, self.n)[-1] * size),
                f.mul(column, size),
            )
            self._call("twist", one, factors, inner, self.n)

        def convolved_block(block: str) -> None:
            across = f.ceil_div(inner, lanes)
            row, column = f.div(block, across), f.mul(f.rem(block, across), lanes)
            pitch, count = f.mul(inner, 2 * size), f.min(f.sub(inner, column), lanes)
            factors = f.byte_address(products, f.mul(column, size))
            ends = []
            for base, (row_bytes, full, some, extra_columns, swap, times) in (
                (source, sides[:6]),
                (out, sides[6:]),
            ):
                at = f.byte_address(base, f.add(f.mul(row, row_bytes), f.mul(column, 2 * size)))
                # columns with one number more than the others
                last = f.min(f.sub(f.max(extra_columns, column), column), lanes)
                ends.append(
                    (at, f.byte_address(at, f.mul(full, pitch)), last, full, some, swap, times)
                )

            def bring() -> None:
                at, more, last, full, some, swap, times = ends[0]
                there = f.byte_address(one, f.mul(full, 2 * register))
                self._call("columns", at, pitch, count, swap, one, full)
                self._call("columns", more, pitch, last, swap, there, some)
                zeros = f.sub(self.n, f.add(full, some))
                self._call(
                    "columns",
                    source,
                    0,
                    0,
                    0,
                    f.byte_address(there, f.mul(some, 2 * register)),
                    zeros,
                )
                self._call("twist", one, factors, inner, times)

            if self.crossed:
                f.branch_without_values(
                    f.is_nonzero(crossed), lambda: swapped_rows(row, column), bring
                )
            else:
                bring()
            transformed = self._passes(one, other, tables)
            at, more, last, full, some, swap, times = ends[1]
            self._call("twist", transformed, factors, inner, times)
            self._call("uncolumns", transformed, at, pitch, count, swap, full, "1.0")
            self._call(
                "uncolumns",
                f.byte_address(transformed, f.mul(full, 2 * register)),
                more,
                pitch,
                last,
                swap,
                some,
                "1.0",
            )

        body = {"": row_block, "columns": column_block, "convolution": convolved_block}[
            self.variant
        ]
        first = f.mul("%task", share)
        f.loop(first, f.min(f.add(first, share), blocks), 1, body)
        f.do(f"call void {give}(ptr {one})")
        return f.end()

    def _call(self, end: str, *arguments: str | float) -> None:
        types = fft_load_store.types(end)
        callee = self._callee("void", fft_load_store.symbol(end, self.type), types)
        typed_arguments = [
            f"{kind} {float_text(value) if kind == 'double' else value}"
            for kind, value in zip(types.split(", "), arguments, strict=True)
        ]
        self.f.do(f"call void {callee}({', '.join(typed_arguments)})")

    def _callee(self, result: str, name: str, types: str) -> str:
        """Return the address of a function in a register; used directly in each call, it would
        double LLVM's compile time."""
        if name not in self.callees:
            self.f.decls.use(f"declare {result} @{name}({types})")
            self.callees[name] = self.f.let_first(f"bitcast ptr @{name} to ptr")
        return self.callees[name]

    def _passes(self, here: str, there: str, tables: str) -> str:
        """Transform the elements at `here`; return the address of the result, `here` or `there`."""
        f, n, plan, lanes = self.f, self.n, self.plan, _lanes(self.type)
        *starts, halves = [
            f.byte_address(tables, offset * nbytes(self.type))
            for offset in fft.offsets(self.kind, n)
        ]
        arguments = {"join": (plan.points, halves), "part": (plan.points, halves)}

        def passes(here: str, there: str) -> tuple[str, str]:
            for place, ((radix, m, s), factors) in enumerate(zip(plan.passes, starts)):
                name = fft_passes.name(radix, self.type, plan.real_first and place == 0)
                pass_ = self._callee("void", name, "ptr, ptr, i64, i64, i64, ptr")
                f.do(
                    f"call void {pass_}(ptr {here}, ptr {there}, i64 {radix}, i64 {m}, i64 {s}, ptr {factors})"
                )
                here, there = there, here
            return here, there

        for end in self.before:
            self._call(end, here, *arguments.get(end, (n,)))
        if plan.convolution is None:
            here, there = passes(here, there)
        else:
            input_length, m, output_length = plan.convolution
            before, between, after = starts[len(plan.passes) :]
            self._call(self.product, here, there, input_length, before, 1, m)
            here, there = passes(there, here)
            self._call("product", here, here, m, between, 1, m)
            here, there = passes(here, there)
            self._call("product", here, here, output_length, after, 0, output_length)
            if self.product == "product_real":  # frequency 0 of real values is real
                f.store(
                    llvm_type(self.type),
                    lanes,
                    "zeroinitializer",
                    f.byte_address(here, machine().vector_bytes),
                )
        for end in self.after:
            if end == "gather":
                self._call(end, here, there, n, plan.passes[0][0])
                here, there = there, here
            else:
                self._call(end, here, *arguments.get(end, (n,)))
        return here
