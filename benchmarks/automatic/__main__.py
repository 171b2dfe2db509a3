"""Compare automatic sharding with the ordinary partitioner and hand-written layouts.

    python -m benchmarks.automatic [--programs mlp,moe] [--meshes 8,4x2,2x2x2] [--machine h100|none] [--drawn]
    python -m benchmarks.automatic --times 12,48,56 --meshes 8,4x2

In:  the programs of `programs.py` on meshes of 8 devices, and the constants of a machine.
Out: a table of prices: by the optimizer's model, of the realized program, of the ordinary partitioner and of the best
     hand-written layout. Exits with 1 if a program costs more than 1.005 times the best of the others, or if bytes of a
     drawn transformer are above 1.02 times the bytes of the best hand-written layout.
How: prices are microseconds with a machine's published constants, and megabytes without.
"""

import argparse
import os
import sys

os.environ.setdefault("WEFT_NUM_DEVICES", "8")

from benchmarks.automatic.measure import BOUND, Comparison, compare, time_optimizer
from benchmarks.automatic.programs import DRAWN, PROGRAMS, transformer

#: how many bytes of the best hand-written layout a drawn transformer may send
DRAWN_BOUND = 1.02
HEADER = (
    "| program | mesh | model | realized | ordinary | best by hand | its layout | ratio | MB sent | by hand | s |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


def show(c: Comparison) -> str:
    """Return the row of a comparison."""
    hand = c.hands[c.best_hand]
    prices = [c.model, c.realized.price, c.ordinary.price, hand.price]
    cells = [c.program, c.mesh, *(f"{p * c.scale:.4g}" for p in prices), c.best_hand]
    cells += [f"{c.ratio:.3f}", f"{c.realized.bytes_sent / 1e6:.4g}"]
    cells += [f"{hand.bytes_sent / 1e6:.4g}", f"{c.seconds:.2g}"]
    return f"| {' | '.join(cells)} |"


def misses(c: Comparison) -> bool:
    """Whether a comparison is above its bound."""
    if c.program in DRAWN and c.realized.bytes_sent > DRAWN_BOUND * c.fewest_bytes:
        return True
    return c.ratio > BOUND


def show_times(layers: list[int], meshes: list[tuple[int, ...]], seconds: float) -> None:
    """Print the processor time of choosing the layouts of transformers, without tracing."""
    print("| layers | equations | mesh | s |\n|---|---|---|---|")
    for count in layers:
        program = transformer(f"transformer-{count}", layers=count)
        for sizes in meshes:
            equations, used = time_optimizer(program, sizes, seconds)
            mesh = "x".join(map(str, sizes))
            print(f"| {count} | {equations} | {mesh} | {used:.2g} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", default="")
    parser.add_argument("--meshes", default="8,4x2,2x2x2")
    parser.add_argument(
        "--machine", default="h100", help="a preset, or none: bytes of virtual devices"
    )
    parser.add_argument(
        "--drawn", action="store_true", help="transformers with shapes drawn by a seed"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="most seconds of a search")
    parser.add_argument("--times", help="numbers of layers: time the optimizer on transformers")
    options = parser.parse_args()
    meshes = [tuple(int(n) for n in mesh.split("x")) for mesh in options.meshes.split(",")]
    if options.times:
        show_times([int(n) for n in options.times.split(",")], meshes, options.seconds)
        return 0
    table = DRAWN if options.drawn else PROGRAMS
    names = options.programs.split(",") if options.programs else list(table)
    machine = None if options.machine == "none" else options.machine
    missed = []
    print(HEADER)
    for name in names:
        for sizes in meshes:
            comparison = compare(table[name](), sizes, machine, options.seconds)
            print(show(comparison), flush=True)
            if misses(comparison):
                missed.append(
                    f"{name} on {comparison.mesh}: {comparison.ratio:.3f} times {comparison.best_hand}"
                )
    for line in missed:
        print(line, file=sys.stderr)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
