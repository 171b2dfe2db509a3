"""Square float32 matmuls of weft and JAX as fractions of the multiply-add rate that is measured between them.

    python benchmarks/fma_rate.py [--sizes N ...] [--rounds N] [--seconds S] [--avx2 | --avx512] [--cpu-time] [--peer PYTHON]

Both engines and the loop of multiply-adds on registers (`limits.py`, all cores) take turns in processes of their own. The best
time of each counts, since other programs on the machine only ever add to it; what they add is told by the medians, which are
compared with each other alone. `--avx2` restricts both engines to AVX2 and FMA, the peer's libraries too, `--avx512` to AVX-512 without
its newer instructions. `--cpu-time` takes the processor time of one thread on one CPU.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile

from run import Process, add_restrictions, peer_python, restrict

SIZES = (512, 1024, 2048, 4096)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=SIZES,
        help="of those that the suite has: 32 to 4096",
    )
    parser.add_argument("--rounds", type=int, default=10, help="turns of each")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a turn, or one call")
    add_restrictions(parser)
    parser.add_argument("--cpu-time", action="store_true", help="one thread, by processor time")
    parser.add_argument(
        "--peer", default=os.environ.get("WEFT_PEER_PYTHON"), help="a Python that has jax"
    )
    args = parser.parse_args()
    restrict(args.restriction)
    if args.cpu_time:
        os.environ.update(BENCH_CPU_TIME="1", WEFT_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as cache:
        engines = {
            "weft": Process(sys.executable, "weft", cache=cache),
            "JAX": Process(peer_python(args.peer), "peer"),
        }
        limits = Process(sys.executable, "limits", cache=cache)
        try:
            race(engines, limits, args)
        finally:
            for process in (*engines.values(), limits):
                process.stop()


def race(engines: dict[str, Process], limits: Process, args: argparse.Namespace) -> None:
    best: dict[tuple[str, int], float] = {}
    medians: dict[tuple[str, int], float] = {}
    rate = 0.0
    for size in args.sizes:
        for engine in engines.values():
            engine.ask("setup", case=f"matmul float32 {size}")
        times: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(args.rounds):
            for name, engine in engines.items():
                rate = max(rate, limits.ask("round", what="float32", seconds=0.05)["rate"])
                times[name] += engine.ask("round", seconds=args.seconds)["times"]
        for name, values in times.items():
            best[name, size], medians[name, size] = min(values), statistics.median(values)
    print(f"multiply-add rate of {'one core' if args.cpu_time else 'all cores'}: {rate:.1f} GF/s")
    print(f"{'size':>6} {'weft':>16} {'JAX':>16} {'ratio':>7} {'of medians':>11}")
    shares: dict[str, list[float]] = {name: [] for name in engines}
    for size in args.sizes:
        text = f"{size:>6}"
        for name in engines:
            done = 2e-9 * size**3 / best[name, size]
            shares[name].append(done / rate)
            text += f" {done:6.1f} ({100 * done / rate:5.1f} %)"
        ratios = [kind["weft", size] / kind["JAX", size] for kind in (best, medians)]
        print(f"{text} {ratios[0]:7.3f} {ratios[1]:11.3f}")
    for name, values in shares.items():
        print(
            f"{name}: geometric mean {100 * statistics.geometric_mean(values):.1f} %, least {100 * min(values):.1f} %"
        )


if __name__ == "__main__":
    main()
