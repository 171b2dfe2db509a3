"""`make types-users`: what type checkers report about users' programs.

`python -m tests.types_users.check ENVIRONMENT` runs pyright, mypy, ty and pyrefly with the packages of an environment, which has weft and
its shim. Each must report the planted errors and nothing else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.types_users.programs import planted_errors, reported_errors, write_programs


def commands(environment: Path) -> dict[str, list[str]]:
    """Return the command of each checker; all print one error per line, as `path:line`."""
    binaries, python = environment / "bin", str(environment / "bin" / "python")
    return {
        "pyright": [str(Path(sys.executable).parent / "pyright"), "--pythonpath", python],
        "mypy": [str(binaries / "mypy"), "--python-executable", python, "--explicit-package-bases"],
        "ty": [str(binaries / "ty"), "check", "--output-format", "concise", "--python", python],
        "pyrefly": [
            str(binaries / "pyrefly"),
            "check",
            "--output-format",
            "min-text",
            "--python-interpreter-path",
            python,
        ],
    }


def main() -> int:
    """Run the checkers, print a line for each, and return the number of those with another result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path)
    parser.add_argument("--only", help="one checker")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write_programs(folder)
        planted = planted_errors(folder, paths)
        (folder / "pyrefly.toml").write_text("")  # without one, it reports few kinds of errors
        for checker, command in commands(options.environment.absolute()).items():
            if options.only not in (None, checker):
                continue
            start = time.perf_counter()
            done = subprocess.run([*command, *paths], cwd=folder, capture_output=True, text=True)
            reported = reported_errors(done.stdout)
            failures += reported != planted
            print(
                f"{checker}: {len(planted & reported)} of {len(planted)} planted errors found, "
                f"{len(reported - planted)} false errors, in {len(paths)} programs "
                f"({time.perf_counter() - start:.1f} s)",
                flush=True,
            )
            if reported != planted:
                print("\n".join(sorted(planted ^ reported)), done.stdout, done.stderr, sep="\n")
    return failures


if __name__ == "__main__":
    sys.exit(main())
