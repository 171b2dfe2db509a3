"""Joins: the rows of several arrays are concatenated into the rows of one array.

In:   a `JoinStep` step; `table`, the name of a constant array with `numbers(step)`.
Out:  `task(step, name, table)`: the text of `void name(ptr places, i64 task, i64 worker)`, where
      `places` holds the addresses of the result and of the parts; `tasks(step)`: the number of
      tasks.
Laws: rows of parts are copied in the order of the result. If all parts have rows of one width of at
      most a cache line, the result is written in blocks that fit in the L1 cache, part by part, so
      that each part is read sequentially.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft._engine.codegen.ir.gemm_types import machine
from weft._engine.codegen.ir.ir_writer import LLVMFunctionWriter
from weft._engine.codegen.ir.writer import Declarations
from weft._engine.codegen.library.strided_copy import COPY_TASK_BYTES
from weft._engine.ir.program import JoinStep
from weft._engine.util.machine_model import MODEL

# thresholds, measured on several machines
#: bytes of a block that stays in the L1 cache
_JOIN_BLOCK_BYTES = 8 << 10
#: minimum number of rows of a block
_JOIN_BLOCK_ROWS = 16
#: elements per iteration
_JOIN_UNROLLED = 4


def numbers(step: JoinStep) -> list[int]:
    """Return, for each part, the bytes of a row and its offset in a row of the result."""
    return [number for _, width, at in step.parts for number in (width, at)]


def tasks(step: JoinStep) -> int:
    """Return the number of tasks of a join."""
    if _is_narrow(step):
        return -(-step.rows // _narrow_share(step)[1])
    pieces, share = _pieces(step)
    return -(-step.rows * len(step.parts) // share) * pieces


def task(step: JoinStep, name: str, table: str) -> str:
    """Return the text of a function that copies the rows of one task."""
    f = LLVMFunctionWriter(
        f"internal void @{name}(ptr %places, i64 %task, i64 %worker)",
        Declarations(),
        machine(),
        "nounwind",
    )
    if _is_narrow(step):
        _blocks(f, step)
    else:
        _copy_runs(f, step, table)
    return f.end() + "\n"


def _is_narrow(step: JoinStep) -> bool:
    width = step.parts[0][1]
    return (
        width <= MODEL.cache_line
        and width & (width - 1) == 0
        and step.pitch == width * len(step.parts)
        and all(part[1] == width for part in step.parts)
    )


def _pieces(step: JoinStep) -> tuple[int, int]:
    """Return the maximum pieces per row of a part, and the number of part rows per task."""
    widths = [width for _, width, _ in step.parts]
    return -(-max(widths) // COPY_TASK_BYTES), max(COPY_TASK_BYTES * len(widths) // sum(widths), 1)


def _copy_runs(f: LLVMFunctionWriter, step: JoinStep, table: str) -> None:
    (pieces, share), count = _pieces(step), len(step.parts)
    first, piece = f.mul(f.div("%task", pieces), share), f.rem("%task", pieces)

    def run(i: str) -> None:
        row, part = f.div(i, count), f.rem(i, count)
        part_entry = f.byte_address(table, f.mul(part, 16))
        width, place, source = (
            f.load_word(part_entry, 0),
            f.load_word(part_entry, 1),
            f.load_word(f.byte_address("%places", f.mul(part, 8)), 1, "ptr"),
        )
        line = MODEL.cache_line
        size = width if pieces == 1 else f.mul(f.ceil_div(f.ceil_div(width, pieces), line), line)
        start = f.mul(piece, size)
        to = f.byte_address(target, f.add(f.add(f.mul(row, step.pitch), place), start))
        of, nbytes = (
            f.byte_address(source, f.add(f.mul(row, width), start)),
            f.min(f.sub(width, start), size),
        )
        f.branch_without_values(
            f.less(start, width),
            lambda: f.do(
                f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {of}, i64 {nbytes}, i1 false)"
            ),
        )

    target = f.load_word("%places", 0, "ptr")
    f.loop(first, f.min(f.add(first, share), step.rows * count), 1, run)


def _narrow_share(step: JoinStep) -> tuple[int, int]:
    """Return the rows of a block and the rows of a task."""
    block = max(_JOIN_BLOCK_BYTES // step.pitch, _JOIN_BLOCK_ROWS)
    return block, max(COPY_TASK_BYTES // step.pitch // block, 1) * block


def _blocks(f: LLVMFunctionWriter, step: JoinStep) -> None:
    width, (block_rows, share), some = step.parts[0][1], _narrow_share(step), _JOIN_UNROLLED
    kind = f"i{8 * width}" if width <= 8 else f"<{width // 8} x i64>"
    target, first = f.load_word("%places", 0, "ptr"), f.mul("%task", share)

    def move(count: int):
        def rows(_: str, source: str, to: str) -> Sequence[str]:
            values = [f.read(kind, f.byte_address(source, i * width), 1) for i in range(count)]
            for i, value in enumerate(values):
                f.do(f"store {kind} {value}, ptr {f.byte_address(to, i * step.pitch)}, align 1")
            return [f.byte_address(source, count * width), f.byte_address(to, count * step.pitch)]

        return rows

    def block(row: str) -> None:
        count = f.min(f.sub(last, row), block_rows)
        whole = f.mul(f.div(count, some), some)
        start, before = f.byte_address(target, f.mul(row, step.pitch)), f.mul(row, width)

        def part(p: str) -> None:
            source = f.byte_address(
                f.load_word(f.byte_address("%places", f.mul(p, 8)), 1, "ptr"), before
            )
            places = f.loop(
                0,
                whole,
                some,
                move(some),
                [("ptr", source), ("ptr", f.byte_address(start, f.mul(p, width)))],
            )
            f.loop(whole, count, 1, move(1), [("ptr", place) for place in places])

        f.loop(0, len(step.parts), 1, part)

    last = f.min(f.add(first, share), step.rows)
    f.loop(first, last, block_rows, block)
