"""Count the bytes that compiled programs send between eight devices, on weft and on XLA.

    python benchmarks/communication.py [--write] [--generated 0:300] [--peer PYTHON]

Three lists of programs: the strategies of examples/, operations for which partitioners tend to gather whole arrays, and the
programs of tests/spmd. Both systems compile each; one reader counts the collectives in `compile().as_text()` of both: bytes
that a device sends in ring algorithms, times the trip counts of surrounding loops. `--write` updates
benchmarks/COMMUNICATION.md. The exit status is 1 if weft sends more in any program.

`--generated` compares random programs (`generated_programs`) of a range of seeds instead, in batches of 50, and adds the result
of each to `--results FILE`, a line of JSON by seed; seeds that the file has are not run again.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
STRATEGIES = (
    "data_parallel",
    "fsdp",
    "tensor_parallel",
    "pipeline_parallel",
    "ring_attention",
    "expert_parallel",
    "collective_matmul",
)

# --- reading HLO text

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_COMPUTATION = re.compile(r"^(?:(ENTRY) )?%?([\w.\-]+) \(.*\{$")
_COLLECTIVE = re.compile(rf"^\s*(?:ROOT )?%?\S+ = (.*?) ({'|'.join(KINDS)})\(")
_CALLED = re.compile(
    r"\b(?:body|condition|to_apply|calls|branch_computations)=\{?((?:%[\w.\-]+(?:, )?)+)"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
WIDTHS = {"pred": 1, "u8": 1, "s8": 1, "f16": 2, "bf16": 2, "u16": 2, "s16": 2, "f32": 4, "s32": 4, "u32": 4, "f64": 8, "s64": 8,
          "u64": 8, "c64": 8, "c128": 16}  # fmt: skip


def read(text: str) -> tuple[dict[str, int], int]:
    """Executed collectives by kind, and the bytes that a device sends, in an HLO text.

    >>> read("ENTRY %main (p: f32[4]) -> f32[4] {\\n  %a = f32[4]{0} all-reduce(%p), replica_groups={{0,1},{2,3}}\\n}")
    ({'all-reduce': 1}, 16)
    """
    bodies: dict[str, list[str]] = {}
    entry = name = ""
    for line in text.splitlines():
        found = _COMPUTATION.match(line)
        if found:
            name = found[2]
            bodies[name] = []
            entry = name if found[1] else entry
        elif name:
            bodies[name].append(line)
    counts: dict[str, int] = {}

    def walk(name: str, times: int) -> int:
        total = 0
        for line in bodies.get(name, ()):
            found = _COLLECTIVE.match(line)
            if found:
                counts[found[2]] = counts.get(found[2], 0) + times
                total += times * _sent(found[2], _result_bytes(found[1]), _group_size(line), line)
            trips = _TRIPS.search(line)
            for called in _CALLED.findall(line):
                for inner in re.findall(r"%([\w.\-]+)", called):
                    total += walk(inner, times * (int(trips[1]) if trips else 1))
        return total

    sent = walk(entry, 1)
    return dict(sorted(counts.items())), sent


def _sent(kind: str, size: int, n: int, line: str) -> int:
    """Bytes that a device sends; `size` is the result's."""
    if kind == "collective-permute":
        pairs = re.search(r"source_target_pairs=\{([\d,{}]*)\}", line)
        return (
            size
            if pairs is None or any(s != t for s, t in re.findall(r"(\d+),(\d+)", pairs[1]))
            else 0
        )
    return {"all-reduce": 2 * size * (n - 1) // n, "reduce-scatter": size * (n - 1)}.get(
        kind, size * (n - 1) // n
    )


def _result_bytes(text: str) -> int:
    total = 0
    for kind, dims in re.findall(r"(\w+)\[([\d,]*)\]", text):
        size = WIDTHS[kind]
        for n in dims.split(","):
            size *= int(n or 1)
        total += size
    return total


def _group_size(line: str) -> int:
    """The number of devices in a group; groups are listed, counted, or axes of a mesh."""
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", line)
    if listed:
        return len(listed[1].split(","))
    counted = re.search(r"replica_groups=\[(\d+),(\d+)\]", line)
    if counted:
        return int(counted[2])
    mesh = re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(.*?\))? \{([^}]*)\}", line)
    if mesh is None:
        return 8
    sizes = {name: int(n) for name, n in re.findall(r"'([\w.]+)'=(\d+)", mesh[1])}
    n = 1
    for name in re.findall(r"'([\w.]+)'", mesh[2]):
        n *= sizes[name]
    return n


# --- the programs


def gather_prone(jax: Any) -> Iterator[tuple[str, Callable, tuple]]:
    """Programs for which partitioners tend to gather a whole array."""
    import numpy as np

    jnp, lax, linalg = jax.numpy, jax.lax, jax.numpy.linalg
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    square = ((64, 64), ("x",))
    stack = ((64, 8, 8), ("x",))
    index = ((16,), ())
    table = {
        "cumsum along the sharded dim": (lambda x: jnp.cumsum(x, 0), square),
        "x[i], rows by an index array": (lambda x, i: x[i.astype(int)], square, index),
        "x.at[0:3].set(1)": (lambda x: x.at[0:3].set(1.0), square),
        "x.at[i].add(y)": (
            lambda x, i, y: x.at[i.astype(int)].add(y),
            square,
            index,
            ((16, 64), ()),
        ),
        "top_k along the sharded dim": (lambda x: lax.top_k(x.T, 4)[0], square),
        "argmax along the sharded dim": (lambda x: jnp.argmax(x, 0), square),
        "sort along the sharded dim": (lambda x: jnp.sort(x, 0), square),
        "fft along an unsharded dim": (lambda x: jnp.abs(jnp.fft.fft(x, axis=1)), square),
        "cholesky of a sharded batch": (
            lambda x: linalg.cholesky(x @ x.mT + 8 * jnp.eye(8)),
            stack,
        ),
        "solve of a sharded batch": (lambda x: linalg.solve(x @ x.mT + 8 * jnp.eye(8), x), stack),
        "reshape 64 -> (4, 16)": (lambda x: x.reshape(4, 16, 64), square),
        "reshape and back": (lambda x: jnp.sin(x.reshape(4, 16, 64)).reshape(64, 64), square),
        "reverse along the sharded dim": (lambda x: x[::-1], square),
        "roll by one along the sharded dim": (lambda x: jnp.roll(x, 1, 0), square),
        "x[1:] - x[:-1], squared and summed": (lambda x: jnp.sum((x[1:] - x[:-1]) ** 2), square),
        "argsort of an unsharded dim": (lambda x: jnp.argsort(x, 1), square),
        "random.normal, sharded": (
            lambda x: x + jax.random.normal(jax.random.key(0), (64, 64)),
            square,
        ),
        "diagonal": (lambda x: jnp.diagonal(x), square),
        "from row to column sharding": (lambda x: x, square, "out", (None, "x")),
    }
    for name, (fun, *inputs) in table.items():
        options = {}
        if "out" in inputs:
            options["out_shardings"] = jax.sharding.NamedSharding(
                mesh, jax.sharding.PartitionSpec(*inputs.pop())
            )
            inputs.remove("out")
        place = lambda spec: jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        yield (
            name,
            jax.jit(fun, **options),
            tuple(
                jax.ShapeDtypeStruct(shape, np.float32, sharding=place(spec))
                for shape, spec in inputs
            ),
        )


def strategies(jax: Any) -> Iterator[tuple[str, Callable, tuple]]:
    """The programs of examples/strategies."""
    sys.path.insert(0, str(HERE.parent / "examples" / "strategies"))
    for module in STRATEGIES:
        for case in importlib.import_module(module).cases():
            name = module.replace("_", " ")
            yield (
                name if case.name == module else f"{name}: {case.name.replace('_', ' ')}",
                case.step,
                case.arguments,
            )


def partitioned(jax: Any) -> Iterator[tuple[str, Callable, tuple]]:
    """The programs with byte budgets in the partitioner's tests."""
    sys.path.insert(0, str(HERE.parent / "tests" / "spmd"))
    programs = importlib.import_module("byte_programs")
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    for name, (fun, shapes, specs) in programs.programs(
        jax.numpy, jax.grad, jax.lax, jax.checkpoint
    ).items():
        place = lambda spec: jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        arguments = [
            jax.ShapeDtypeStruct(s, programs.DTYPE, sharding=place(spec))
            for s, spec in zip(shapes, specs)
        ]
        yield name.replace("_", " "), jax.jit(programs.flat(fun)), tuple(arguments)


LISTS = {
    "strategies": strategies,
    "operations prone to full gathers": gather_prone,
    "programs of tests/spmd": partitioned,
}


def measure(engine: str) -> dict[str, dict[str, Any]]:
    """Collectives by kind, and bytes, of each program of each list."""
    if engine == "weft":
        from weft.compat import install_as_jax

        install_as_jax()
    import jax

    found: dict[str, dict[str, Any]] = {}
    for title, programs in LISTS.items():
        found[title] = {
            name: read(step.lower(*arguments).compile().as_text())
            for name, step, arguments in programs(jax)
        }
    return found


def measure_generated(
    engine: str, seeds: Sequence[int]
) -> dict[int, tuple[str, dict[str, int], int]]:
    """Name, collectives by kind, and bytes, of the program of each seed."""
    if engine == "weft":
        from weft.compat import install_as_jax

        install_as_jax()
    import jax
    from generated_programs import program

    found: dict[int, tuple[str, dict[str, int], int]] = {}
    for seed in seeds:
        name, step, arguments = program(seed, jax)
        found[seed] = (name, *read(step.lower(*arguments).compile().as_text()))
        if seed % 10 == 0:
            jax.clear_caches()  # keeps memory small
    return found


# --- both systems, side by side


def ask(python: str, engine: str, *options: str) -> dict[str, dict[str, Any]]:
    """`measure`, or `measure_generated`, in a separate process."""
    variables = {"WEFT_NUM_DEVICES": "8", "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu",
                 "PYTHONPATH": str(HERE.parent)}  # fmt: skip
    done = subprocess.run(
        [python, __file__, "--measure", engine, *options],
        env=os.environ | variables,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{engine}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def spell(counts: dict[str, int]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in counts.items()) or "none"


def table(ours: dict, theirs: dict) -> str:
    """Both measurements as Markdown tables."""
    lines = [
        "# Communication", "",
        "Bytes that each of eight devices sends in one call, and the collectives of the program: weft beside XLA's partitioner. One",
        "reader counts both in the text of the compiled program (ring algorithms; collectives in loops times the trip count).",
        "Generated by `python benchmarks/communication.py --write`, which fails if weft sends more in any program.", "",
        "| list | programs | weft sends less | equal | more |", "|---|--:|--:|--:|--:|",
    ]  # fmt: skip
    for title, programs in ours.items():
        pairs = [(programs[name][1], theirs[title][name][1]) for name in programs]
        less, same = sum(a < b for a, b in pairs), sum(a == b for a, b in pairs)
        lines.append(f"| {title} | {len(pairs)} | {less} | {same} | {len(pairs) - less - same} |")
    for title, programs in ours.items():
        lines += [
            "",
            f"## {title.capitalize()}",
            "",
            "| program | weft, B | XLA, B | weft | XLA |",
            "|---|--:|--:|---|---|",
        ]
        for name, (counts, sent) in programs.items():
            other_counts, other = theirs[title][name]
            lines.append(
                f"| {name} | {sent:,} | {other:,} | {spell(counts)} | {spell(other_counts)} |"
            )
    return "\n".join(lines) + "\n"


def compare_generated(seeds: range, peer: str, results: Path) -> list[str]:
    """Programs of `seeds` in which weft sends more; what both send is added to the file `results`."""
    known = (
        [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    )
    rows = {row["seed"]: row for row in known}
    left = [seed for seed in seeds if seed not in rows]
    for first in range(0, len(left), 50):
        batch = ",".join(map(str, left[first : first + 50]))
        ours, theirs = (
            ask(python, engine, "--seeds", batch)
            for python, engine in ((sys.executable, "weft"), (peer, "jax"))
        )
        with results.open("a") as file:
            for seed, (name, counts, sent) in ours.items():
                _, other_counts, other = theirs[seed]
                row = {
                    "seed": int(seed),
                    "program": name,
                    "weft": sent,
                    "xla": other,
                    "by weft": counts,
                    "by xla": other_counts,
                }
                rows[int(seed)] = row
                file.write(json.dumps(row) + "\n")
    found = [rows[seed] for seed in seeds]
    less, same = sum(r["weft"] < r["xla"] for r in found), sum(r["weft"] == r["xla"] for r in found)
    print(
        f"{len(found)} programs: weft sends less in {less}, equally much in {same}, more in {len(found) - less - same}"
    )
    return [
        f"{r['seed']} ({r['program']}): {r['weft']:,} B by {spell(r['by weft'])}; XLA {r['xla']:,} B by {spell(r['by xla'])}"
        for r in found
        if r["weft"] > r["xla"]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Count the bytes that compiled programs send between devices."
    )
    parser.add_argument("--write", action="store_true", help="update benchmarks/COMMUNICATION.md")
    parser.add_argument("--peer", metavar="PYTHON", help="a Python that has jax")
    parser.add_argument("--measure", choices=("weft", "jax"), help=argparse.SUPPRESS)
    parser.add_argument(
        "--generated", metavar="FROM:TO", help="compare the generated programs of these seeds"
    )
    parser.add_argument(
        "--results",
        metavar="FILE",
        type=Path,
        default=Path("generated_programs.jsonl"),
        help="keeps their results",
    )
    parser.add_argument("--seeds", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure and options.seeds:
        json.dump(
            measure_generated(options.measure, [int(seed) for seed in options.seeds.split(",")]),
            sys.stdout,
        )
        return
    if options.measure:
        json.dump(measure(options.measure), sys.stdout)
        return
    sys.path.insert(0, str(HERE))
    from run import peer_python

    if options.generated:
        more = compare_generated(
            range(*map(int, options.generated.split(":"))),
            peer_python(options.peer),
            options.results,
        )
        sys.exit("weft sends more in:\n" + "\n".join(more) if more else 0)
    ours, theirs = ask(sys.executable, "weft"), ask(peer_python(options.peer), "jax")
    text = table(ours, theirs)
    print(text)
    if options.write:
        (HERE / "COMMUNICATION.md").write_text(text)
    more = [
        name
        for title, programs in ours.items()
        for name in programs
        if programs[name][1] > theirs[title][name][1]
    ]
    if more:
        sys.exit(f"weft sends more in: {', '.join(more)}")


if __name__ == "__main__":
    main()
