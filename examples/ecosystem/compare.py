"""Run the programs of this folder on weft and on JAX, and compare the numbers that they print.

    python examples/ecosystem/compare.py --weft ENV/bin/python --jax OTHER/bin/python

The first environment has weft in place of jax (`weft shim install`), the second JAX; both have the libraries. Ends with status 1 where a
number differs by more than 0.0002 and one part in ten thousand. Programs that train for many steps magnify the rounding of the first ones;
they may differ by 0.02 and one part in a hundred. A line `first calls N ms` is a time, and is compared as a ratio.
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path


def run(python: str, program: Path) -> tuple[str, float]:
    start = time.perf_counter()
    done = subprocess.run([python, str(program)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{program.name} on {python} ended with status {done.returncode}:\n{done.stderr}")
    return done.stdout, time.perf_counter() - start


#: allowed absolute and relative difference of numbers; long training adds up roundings
TOLERANCE = (0.0002, 0.0001)
LONG_TRAINING = dict.fromkeys(
    ("equinox_ode.py", "linen_classifier.py", "nnx_autoencoder.py"), (0.02, 0.01)
)


def first_calls(output: str) -> int:
    """The milliseconds of all first calls that a program reports."""
    return sum(map(int, re.findall(r"first calls (\d+) ms", output)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--weft", required=True, help="the Python of the environment with weft as jax"
    )
    parser.add_argument("--jax", required=True, help="the Python of the environment with JAX")
    parser.add_argument(
        "programs", nargs="*", type=Path, help="all of this folder if none are named"
    )
    args = parser.parse_args()
    folder = Path(__file__).parent
    wrong = False
    for program in args.programs or sorted(set(folder.glob("*.py")) - {Path(__file__)}):
        ours, seconds = run(args.weft, program)
        theirs, seconds_of_jax = run(args.jax, program)
        pairs = list(
            zip(re.findall(r"-?\d+\.\d+", ours), re.findall(r"-?\d+\.\d+", theirs), strict=True)
        )
        worst = max(abs(float(a) - float(b)) for a, b in pairs)
        absolute, relative = LONG_TRAINING.get(program.name, TOLERANCE)
        agree = all(
            abs(float(a) - float(b)) <= max(absolute, relative * abs(float(b))) for a, b in pairs
        )
        wrong |= not agree
        print(
            f"{program.name}: {len(pairs)} numbers, {'equal to' if agree else 'DIFFERENT by'} {worst:.4f};"
            f" whole process {seconds:.1f} s, on JAX {seconds_of_jax:.1f} s"
        )
        if first_calls(theirs):
            print(
                f"  first calls: {first_calls(ours) / first_calls(theirs):.2f} of the time on JAX"
            )
    sys.exit(wrong)


if __name__ == "__main__":
    main()
