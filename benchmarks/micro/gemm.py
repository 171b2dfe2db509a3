"""Matmul alone: GFLOP/s of weft's generated kernels and of NumPy's BLAS.

    python benchmarks/micro/gemm.py [--quick]

Each line is the best of a few rounds of at least a millisecond; both write into existing memory. NumPy has no fast matmul of
narrow types, so only weft's figure is printed there. The first line is the peak rate of the vector units. Run it on an idle
machine: a BLAS with spinning threads loses far more than weft when other processes take the cores.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np

from weft._engine.backends.cpu.buffer import HostBuffer
from weft._engine.codegen.gemm import gemm
from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain.native_library import LibraryModule, link
from weft._engine.ir.program import BufRef, Gemm

DTYPES = {
    "f32": np.float32,
    "f64": np.float64,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "i32": np.int32,
}
SQUARE = (32, 64, 96, 128, 256, 512, 1024)
SHAPES = [
    *((n, n, n, "f32", "mk kn mn") for n in SQUARE),
    *((n, n, n, "bf16", "mk kn mn") for n in (128, 512, 1024)),
    (512, 512, 512, "f64", "mk kn mn"),
    (512, 512, 512, "f16", "mk kn mn"),
    (512, 512, 512, "i32", "mk kn mn"),
    (512, 512, 512, "f32", "km kn mn"),
    (512, 512, 512, "f32", "mk nk mn"),
    (128, 10, 784, "f32", "mk kn mn"),
    (10000, 8, 512, "f32", "mk kn mn"),
    (1, 4096, 4096, "f32", "mk kn mn"),
    (4096, 1, 4096, "f32", "mk kn mn"),
    (16, 4096, 4096, "f32", "mk kn mn"),
]
_REPEAT = """
define void @repeat(ptr %f, ptr %words, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  call void %f(ptr %words)
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}
"""


def best_s(run: Callable[[int], None], once_s: float, rounds: int) -> float:
    """Return the least time of one call, over rounds of about a millisecond or one call."""
    count = max(int(1e-3 / once_s), 1)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run(count)
        times.append((time.perf_counter() - start) / count)
    return min(times)


def matrix(rows: int, cols: int, type: str, swapped: bool) -> np.ndarray:
    """Return a random matrix in array memory (huge pages), stored by columns where `swapped`."""
    shape = (cols, rows) if swapped else (rows, cols)
    x = HostBuffer(rows * cols * np.dtype(DTYPES[type]).itemsize).view(DTYPES[type], shape)
    x[...] = np.random.default_rng(0).standard_normal(shape)
    return x.T if swapped else x


def measure(m: int, n: int, k: int, type: str, orders: str, rounds: int) -> str:
    order = orders.split()
    a, b = matrix(m, k, type, order[0] == "km"), matrix(k, n, type, order[1] == "nk")
    c = matrix(m, n, type, order[2] == "nm")
    strides = [tuple(s // x.itemsize for s in x.strides) for x in (a, b, c)]
    acc = "f32" if type in ("bf16", "f16") else type
    step = Gemm(m, n, k, BufRef(0), BufRef(1), BufRef(2), *strides, type, acc, type)
    symbol, constants = gemm.describe(step)
    words = (ctypes.c_int64 * len(constants))(*constants)
    for index, x in zip(gemm.POINTERS, (a, b, c)):
        words[index] = x.ctypes.data
    repeat = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        link([LibraryModule("bench_repeat", lambda: _REPEAT, ("repeat",))])["repeat"]
    )
    address = gemm.ensure(symbol)
    flops = 2 * m * n * k
    weft_s = best_s(lambda count: repeat(address, words, count), flops / 1e11, rounds)
    line = f"{m:>6} {n:>5} {k:>5}  {type:<5} {orders:<9} {flops / weft_s / 1e9:8.1f}"
    if type not in ("f32", "f64"):
        return line

    def blas(count: int) -> None:
        for _ in range(count):
            np.dot(a, b, out=c)

    blas(1)
    blas_s = best_s(blas, flops / 1e11, rounds)
    return f"{line} {flops / blas_s / 1e9:8.1f} {blas_s / weft_s:6.2f}x"


def peak_gflops(rounds: int) -> float:
    """Return the multiply-add rate of all threads, f32, from independent chains in registers."""
    lanes, chains, iterations = gemm.machine().vector_bytes // 4, 12, 50000
    v = f"<{lanes} x float>"
    fma = f"@llvm.fmuladd.v{lanes}f32"
    lines = [
        f"declare {v} {fma}({v}, {v}, {v})",
        "define void @burn(ptr %out, i64 %task, i64 %wid) {",
        "entry:",
    ]
    lines += ["  br label %loop", "loop:", "  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]"]
    lines += [
        f"  %a{j} = phi {v} [ zeroinitializer, %entry ], [ %b{j}, %loop ]" for j in range(chains)
    ]
    lines += [f"  %b{j} = call {v} {fma}({v} %a{j}, {v} %a{j}, {v} %a{j})" for j in range(chains)]
    lines += [
        "  %k1 = add i64 %k, 1",
        f"  %m = icmp ult i64 %k1, {iterations}",
        "  br i1 %m, label %loop, label %end",
        "end:",
    ]
    for j in range(1, chains):
        lines.append(f"  %s{j} = fadd {v} {f'%s{j - 1}' if j > 1 else '%b0'}, %b{j}")
    lines += ["  %p = getelementptr [64 x i8], ptr %out, i64 %wid"]
    lines += [f"  store {v} %s{chains - 1}, ptr %p, align 4", "  ret void", "}"]
    burn = link([LibraryModule(f"bench_burn_{lanes}", lambda: "\n".join(lines), ("burn",))])["burn"]
    threads = pool.num_threads()
    out = (ctypes.c_char * (64 * threads))()
    work = 2 * lanes * chains * iterations * threads
    seconds = best_s(
        lambda n: pool.parallel_for(burn, ctypes.addressof(out), threads), 1.0, rounds * 2
    )
    return work / seconds / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 3 if parser.parse_args().quick else 10
    print(f"threads {pool.num_threads()}, f32 multiply-add peak {peak_gflops(rounds):.0f} GFLOP/s")
    print("     m     n     k  type  storage       weft    numpy  ratio")
    for shape in SHAPES:
        print(measure(*shape, rounds), flush=True)


if __name__ == "__main__":
    main()
