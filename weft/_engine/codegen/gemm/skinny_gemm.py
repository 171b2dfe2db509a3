"""Products of few rows of A, read along the rows of B in place: memory-bound, and long runs of rows are read fastest.

`@along(ptr a, i64 as, i64 rows, ptr b, i64 bs, i64 steps, i64 cols, ptr sums, i64 ss)`:
sums[row, col] += sum over steps of a[row, step] * b[step, col]. Rows of A, of packed steps, are `as` bytes apart, rows of B `bs` and
rows of sums `ss`. It visits several rows of B side by side: loaded values stay in registers while all rows of A use them, and the
few sums stay in the first-level cache. `@along_row` is the same for a single row. For AVX-512 both are assembled
(`gemm_asm_skinny`).
"""

from __future__ import annotations

from collections.abc import Callable

from weft._engine.codegen.gemm.gemm_micro import broadcast, multiply_add, sign_bits
from weft._engine.codegen.gemm.gemm_pack import interleave, to_unit
from weft._engine.codegen.ir.gemm_types import Recipe, llvm_type
from weft._engine.codegen.ir.ir_writer import FunctionWriter
from weft._engine.codegen.ir.writer import Declarations
from weft._engine.util.machine_model import MODEL


def along(recipe: Recipe, decls: Declarations, name: str) -> str:
    """Return `@along`, or `@along_row` for a single row."""
    arguments = "ptr noalias %a, i64 %as, i64 %rows, ptr noalias %b, i64 %bs, i64 %steps, i64 %cols, ptr noalias %sums, i64 %ss"
    f = FunctionWriter(f"void @{name}({arguments})", decls, recipe.machine, "noinline nounwind")
    lanes, per, vectors, wide = (
        recipe.lanes,
        recipe.k_per_step,
        recipe.along_vectors,
        recipe.along_cols,
    )
    acc, size, per_line = (
        llvm_type(recipe.acc),
        recipe.acc_bytes,
        max(MODEL.cache_line // (wide * recipe.in_bytes), 1),
    )
    whole, visit = f.mul(f.div("%cols", wide), wide), f.mul("%bs", MODEL.gemm_along_streams)
    distance = f.mul(visit, f.ceil_div(MODEL.gemm_ahead, visit))

    def load_step(
        rows: list[str], offset: str, inside: Callable[[int, int], str | None]
    ) -> list[str]:
        """The vectors of one step, of which each row of B has a part."""
        made = []
        for v in range(vectors):
            at = f.add(offset, v * lanes * recipe.in_bytes)
            parts = [
                f.load(llvm_type(recipe.in_type), lanes, f.at(row, at), inside(v, lanes))
                for row in rows
            ]
            made.append(to_unit(f, recipe, interleave(f, recipe, parts, lanes), lanes))
        return made

    def multiplied(x: str, of_b: list[str], sums: list[str]) -> list[str]:
        return [multiply_add(f, recipe, x, y, sum, lanes) for y, sum in zip(of_b, sums)]

    def steps(count: int):
        def body(step: str) -> None:
            rows = [
                f.at("%b", f.mul(f.add(f.mul(step, per), i), "%bs")) for i in range(count * per)
            ]
            a = f.at("%a", f.mul(step, recipe.step_bytes))

            def stretch(j: str, left: str | None = None, fetches: bool = True) -> None:
                offset, at = f.mul(j, recipe.in_bytes), f.mul(j, size)

                def inside(v: int, width: int) -> str | None:
                    if left is None:
                        return None
                    return f.first_lanes(
                        f.pick(f.less(v * width, left), f.sub(left, v * width), 0), width
                    )

                if (
                    count > 1 and left is None and fetches
                ):  # parts of rows are short: the hardware would find each stream anew
                    for row in rows:
                        for line in range(0, wide * recipe.in_bytes, MODEL.cache_line):
                            f.prefetch(f.at(f.at(row, f.add(offset, distance)), line))
                of_b = [
                    load_step(rows[s * per : (s + 1) * per], offset, inside) for s in range(count)
                ]
                masks = [inside(v, lanes) for v in range(vectors)]
                too_much = ["zeroinitializer"] * vectors  # that flipped sign bits add to every row
                for step_of_b in of_b if recipe.flips else ():
                    too_much = multiplied(sign_bits(lanes), step_of_b, too_much)

                def row(_: str, a: str, sums: str) -> list[str]:
                    places = [f.at(sums, v * lanes * size) for v in range(vectors)]
                    made = [f.load(acc, lanes, place, mask) for place, mask in zip(places, masks)]
                    if recipe.flips:
                        made = [
                            f.let(f"sub <{lanes} x {acc}> {sum}, {x}")
                            for sum, x in zip(made, too_much)
                        ]
                    for s in range(count):
                        made = multiplied(
                            broadcast(f, recipe, f.at(a, s * recipe.step_bytes), lanes),
                            of_b[s],
                            made,
                        )
                    for place, sum, mask in zip(places, made, masks):
                        f.store(acc, lanes, sum, place, mask)
                    return [f.at(a, "%as"), f.at(sums, "%ss")]

                sums = f.at("%sums", at)
                row("0", a, sums) if name == "along_row" else f.loop(
                    0, "%rows", 1, row, [("ptr", a), ("ptr", sums)]
                )

            def line_of_stretches(j: str) -> None:
                for i in range(per_line):
                    stretch(f.add(j, i * wide), fetches=i == 0)

            lines = (
                f.mul(f.div("%cols", wide * per_line), wide * per_line) if per_line > 1 else whole
            )
            f.loop(0, lines, wide * per_line, line_of_stretches)
            if per_line > 1:
                f.loop(lines, whole, wide, stretch)
            if recipe.machine.masks:  # without them the planner leaves no odd columns
                left = f.sub("%cols", whole)
                f.when(f.less(0, left), lambda: stretch(whole, left))

        return body

    count = max(MODEL.gemm_along_streams // per, 1)
    most = f.mul(f.div("%steps", count), count)
    f.loop(0, most, count, steps(count))
    f.loop(most, "%steps", 1, steps(1))
    return f.end()
