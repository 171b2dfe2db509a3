"""The machine's limits, measured with hand-written kernels on all cores: memory streams and multiply-adds.

"copy" reads one array and writes another, with plain and with nontemporal stores; "read" only reads, the bound of reductions;
"write" only writes, the bound of broadcasts. The multiply-add rate is that of independent chains in registers. The kernels run
on weft's thread pool, in a process of their own and alternating with the cases, so that a share of the limit compares one and
the same state of the machine.
"""

from __future__ import annotations

import ctypes
import os
import time

import ml_dtypes
import numpy as np

from weft._engine.backends.cpu.buffer import HostBuffer
from weft._engine.codegen.gemm import gemm
from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain import target
from weft._engine.codegen.toolchain.native_library import LibraryModule, link

STREAM_BYTES = 128 << 20
STREAMS = {
    "copy": (True, ("plain", "past")),
    "read": (True, ("none",)),
    "write": (False, ("plain", "past")),
}  # loads?, kinds of stores
CHAINS, ITERATIONS = 12, 20000
CPU_TIME = bool(os.environ.get("BENCH_CPU_TIME"))
clock = time.process_time if CPU_TIME else time.perf_counter
BURNS = 50 if CPU_TIME else 1  # of each thread: processor time has a coarse grain
DOTS = {  # dot-product instructions of narrow types: intrinsic, accumulator, operand, multiply-adds per lane
    "bfloat16": ("llvm.x86.avx512bf16.dpbf16ps.512", "<16 x float>", "<32 x bfloat>", 2),
    "int8": ("llvm.x86.avx512.vpdpbusd.512", "<16 x i32>", "<16 x i32>", 4),
}

#: products of full tiles: intrinsic and multiply-adds
TILE_PRODUCTS = {"bfloat16": ("tdpbf16ps", 16 * 16 * 32), "int8": ("tdpbssd", 16 * 16 * 64)}
_TILES = "tiles of "  # prefix of the names of their rates


def chains(symbol: str, acc: str, step: str, total: str) -> str:
    """IR of CHAINS independent accumulators; `step` and `total` are templates of one operation."""
    loop = [
        f"  %a{j} = phi {acc} [ zeroinitializer, %entry ], [ %b{j}, %loop ]" for j in range(CHAINS)
    ]
    loop += [f"  %b{j} = {step.format(a=f'%a{j}')}" for j in range(CHAINS)]
    sums = [
        f"  %s{j} = {total.format(a=f'%s{j - 1}' if j > 1 else '%b0', b=f'%b{j}')}"
        for j in range(1, CHAINS)
    ]
    return "\n".join(
        [
            f"define void @{symbol}(ptr %out, i64 %task, i64 %wid) {{",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]",
            *loop,
            "  %k1 = add i64 %k, 1",
            f"  %more = icmp ult i64 %k1, {ITERATIONS}",
            "  br i1 %more, label %loop, label %end",
            "end:",
            *sums,
            "  %p = getelementptr [64 x i8], ptr %out, i64 %wid",
            f"  store {acc} %s{CHAINS - 1}, ptr %p, align 4",
            "  ret void",
            "}",
        ]
    )


def burn_ir(symbol: str, rate: str, vector_bytes: int) -> tuple[str, int] | None:
    """The kernel of a type and its multiply-adds per instruction; None if the target has no such instruction."""
    if rate in ("float32", "float64"):
        kind, size = ("float", 4) if rate == "float32" else ("double", 8)
        lanes = vector_bytes // size
        v = f"<{lanes} x {kind}>"
        fma = f"@llvm.fmuladd.v{lanes}f{8 * size}"
        body = chains(
            symbol, v, f"call {v} {fma}({v} {{a}}, {v} {{a}}, {v} {{a}})", f"fadd {v} {{a}}, {{b}}"
        )
        return f"declare {v} {fma}({v}, {v}, {v})\n{body}", lanes
    name, acc, operand, per_lane = DOTS[rate]
    if {"bfloat16": "+avx512bf16", "int8": "+avx512vnni"}[
        rate
    ] not in target.current().features.split(","):
        return None
    step = f"call {acc} @{name}({acc} {{a}}, {operand} zeroinitializer, {operand} zeroinitializer)"
    body = chains(symbol, acc, step, f"{'fadd' if 'float' in acc else 'add'} {acc} {{a}}, {{b}}")
    return f"declare {acc} @{name}({acc}, {operand}, {operand})\n{body}", 16 * per_lane


def _stream_ir(symbol: str, load: bool, store: str, task_bytes: int) -> str:
    """IR of one task on (source, target); `store` is "plain", "past" (nontemporal) or "none"; without `load` it stores ones."""
    step, lines = 512, []
    for j in range(step // 64):
        lines += [f"  %o{j} = add i64 %k, {64 * j}"]
        if load:
            lines += [
                f"  %p{j} = getelementptr i8, ptr %x, i64 %o{j}",
                f"  %v{j} = load <16 x float>, ptr %p{j}, align 64",
            ]
        if store == "none":
            lines += [f"  %m{j} = fadd <16 x float> %a{j}, %v{j}"]
        else:
            lines += [
                f"  %q{j} = getelementptr i8, ptr %y, i64 %o{j}",
                f"  store <16 x float> {f'%v{j}' if load else 'splat (float 1.0)'}, ptr %q{j}, align 64"
                + (", !nontemporal !0" if store == "past" else ""),
            ]
    count = step // 64 if store == "none" else 0
    phis = [
        f"  %a{j} = phi <16 x float> [ zeroinitializer, %entry ], [ %m{j}, %loop ]"
        for j in range(count)
    ]
    sums = [
        f"  %s{j} = fadd <16 x float> {f'%s{j - 1}' if j > 1 else '%m0'}, %m{j}"
        for j in range(1, count)
    ]
    keep = (
        [
            "  %r = getelementptr i8, ptr %y, i64 %begin",
            f"  store <16 x float> %s{count - 1}, ptr %r, align 64",
        ]
        if count
        else []
    )
    return "\n".join(
        [
            f"define void @{symbol}(ptr %words, i64 %task, i64 %wid) {{",
            "entry:",
            "  %x = load ptr, ptr %words",
            "  %w1 = getelementptr ptr, ptr %words, i64 1",
            "  %y = load ptr, ptr %w1",
            f"  %begin = mul i64 %task, {task_bytes}",
            f"  %end = add i64 %begin, {task_bytes}",
            "  br label %loop",
            "loop:",
            "  %k = phi i64 [ %begin, %entry ], [ %k1, %loop ]",
            *phis,
            *lines,
            f"  %k1 = add i64 %k, {step}",
            "  %more = icmp ult i64 %k1, %end",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *sums,
            *keep,
            "  ret void",
            "}",
            "!0 = !{i32 1}",
        ]
    )


def tile_ir(symbol: str, rate: str) -> str:
    """Return the IR of one task on (configuration, A, B, sums): products of two tiles of A and two of B.

    The operands stay in registers. A and B are random: the power that products of zeros save makes
    them a quarter faster.
    """
    multiply, _ = TILE_PRODUCTS[rate]
    tile = lambda name, *arguments: f"  call void @llvm.x86.{name}({', '.join(arguments)})"
    loads = [tile("tileloadd64", f"i8 {4 + i}", f"ptr %x{i}", "i64 64") for i in range(4)]
    sums = [(i, j) for i in range(2) for j in range(2)]
    return "\n".join(
        [
            "declare void @llvm.x86.ldtilecfg(ptr)",
            "declare void @llvm.x86.tilerelease()",
            "declare void @llvm.x86.tilezero(i8)",
            "declare void @llvm.x86.tileloadd64(i8, ptr, i64)",
            "declare void @llvm.x86.tilestored64(i8, ptr, i64)",
            f"declare void @llvm.x86.{multiply}(i8, i8, i8)",
            f"define void @{symbol}(ptr %words, i64 %task, i64 %wid) {{",
            "entry:",
            tile("ldtilecfg", "ptr %words"),
            *[f"  %x{i} = getelementptr i8, ptr %words, i64 {64 + 1024 * i}" for i in range(4)],
            *loads,
            *[tile("tilezero", f"i8 {i}") for i in range(4)],
            "  br label %loop",
            "loop:",
            "  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]",
            *[tile(multiply, f"i8 {2 * i + j}", f"i8 {4 + i}", f"i8 {6 + j}") for i, j in sums],
            "  %k1 = add i64 %k, 1",
            f"  %more = icmp ult i64 %k1, {ITERATIONS}",
            "  br i1 %more, label %loop, label %end",
            "end:",
            f"  %s = mul i64 %wid, {len(sums) * 1024}",
            f"  %o = add i64 %s, {64 + 4 * 1024}",
            "  %p = getelementptr i8, ptr %words, i64 %o",
            *[f"  %p{i} = getelementptr i8, ptr %p, i64 {1024 * i}" for i in range(len(sums))],
            *[tile("tilestored64", f"i8 {i}", f"ptr %p{i}", "i64 64") for i in range(len(sums))],
            tile("tilerelease"),
            "  ret void",
            "}",
        ]
    )


def tile_operands(rate: str, threads: int) -> np.ndarray:
    """Return the memory of `tile_ir`'s tasks: 8 full tiles, random operands, space for sums."""
    size = 64 + 4096 * (1 + threads)
    memory = HostBuffer(size).view(np.uint8, (size,))
    memory[:64] = 0
    memory[0] = 1  # the palette
    memory[16:32:2] = 64  # bytes of a row
    memory[48:56] = 16  # rows
    random = np.random.default_rng(0)
    if rate == "int8":
        values = random.integers(-128, 128, 4096).astype(np.int8)
    else:
        values = random.standard_normal(2048).astype(ml_dtypes.bfloat16)
    memory[64 : 64 + 4096] = values.view(np.uint8)
    return memory


class Limits:
    """Answers `round what` with a rate: GB/s of a stream, GF/s of a type or of tiles of a type."""

    def __init__(self) -> None:
        self.threads = pool.num_threads()
        self.kernels: dict[str, tuple[int, int] | None] = {}
        self.streams: dict[tuple[str, int], list[int]] = {}
        self.arrays: list[np.ndarray] = []
        self.operands: dict[str, np.ndarray] = {}
        self.tasks = 8 * self.threads

    def ready(self) -> dict:
        """Return the number of threads and the unit of narrow matrix products."""
        current = target.current()
        return {"threads": self.threads, "unit": "amx" if current.has_tiles else current.level}

    def round(self, what: str, seconds: float = 0.02, nbytes: int = STREAM_BYTES) -> dict:
        """Return the best rate; streams visit the first `nbytes` of their arrays."""
        if what in STREAMS:
            run = lambda: self._stream(what, nbytes)
        elif what.startswith(_TILES):
            run = lambda: self._multiply_tiles(what.removeprefix(_TILES))
        else:
            run = lambda: self._burn(what)
        rates, end = [run()], time.perf_counter() + seconds
        while time.perf_counter() < end:
            rates.append(run())
        return {"rate": max(rates)}

    def _multiply_tiles(self, rate: str) -> float:
        symbol = f"bench_tiles_{rate}"
        if symbol not in self.kernels:
            module = LibraryModule(symbol, lambda: tile_ir(symbol, rate), (symbol,))
            self.kernels[symbol] = link([module])[symbol], TILE_PRODUCTS[rate][1]
            self.operands[rate] = tile_operands(rate, self.threads)
        kernel = self.kernels[symbol]
        assert kernel is not None
        start = clock()
        pool.parallel_for(kernel[0], self.operands[rate].ctypes.data, BURNS * self.threads)
        return 2e-9 * BURNS * kernel[1] * 4 * ITERATIONS * self.threads / (clock() - start)

    def _burn(self, rate: str) -> float:
        if rate not in self.kernels:
            symbol = f"bench_burn_{rate}"
            made = burn_ir(symbol, rate, gemm.machine().vector_bytes)
            self.kernels[rate] = made and (
                link([LibraryModule(symbol, lambda: made[0], (symbol,))])[symbol],
                made[1],
            )
        kernel = self.kernels[rate]
        if kernel is None:
            return self._burn("float32")
        out = (ctypes.c_char * (64 * self.threads + 64))()
        start = clock()
        pool.parallel_for(kernel[0], ctypes.addressof(out), BURNS * self.threads)
        return 2e-9 * BURNS * kernel[1] * CHAINS * ITERATIONS * self.threads / (clock() - start)

    def _stream(self, what: str, nbytes: int) -> float:
        task_bytes = nbytes // self.tasks // 512 * 512
        if not self.arrays:
            self.arrays = [
                HostBuffer(STREAM_BYTES).view(np.uint8, (STREAM_BYTES,)) for _ in range(2)
            ]
            for x in self.arrays:
                x[...] = 1  # some machines move lines of zeros several times as fast as others
        if (what, nbytes) not in self.streams:
            load, stores = STREAMS[what]
            addresses = []
            for store in stores:
                symbol = f"bench_stream_{what}_{store}_{task_bytes}"
                write = lambda s=symbol, b=store, load=load: _stream_ir(s, load, b, task_bytes)
                addresses.append(link([LibraryModule(symbol, write, (symbol,))])[symbol])
            self.streams[what, nbytes] = addresses
        words = (ctypes.c_void_p * 2)(*(x.ctypes.data for x in self.arrays))
        best = 0.0
        moved = 1e-9 * task_bytes * self.tasks * (2 if what == "copy" else 1)
        for address in self.streams[what, nbytes]:
            start = clock()
            pool.parallel_for(address, ctypes.addressof(words), self.tasks)
            best = max(best, moved / (clock() - start))
        return best
