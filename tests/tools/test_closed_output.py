"""Commands whose output is a pipe that nothing reads any more, as in `weft info | head`: they end without a message."""

import os
import subprocess
import sys

import pytest

PRINTS = "import weft\nfor i in range(20000):\n    print('line', i)\n"
FAILS = "raise BrokenPipeError('of a socket')\n"


def piped(arguments, lines):
    """Run `weft` with `arguments`, read `lines` lines of its output, close the pipe, and return the status and standard error."""
    with subprocess.Popen(
        [sys.executable, "-m", "weft", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    ) as process:
        for _ in range(lines):
            process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read().decode()
        return process.wait(300), errors


@pytest.mark.parametrize("lines", [0, 1])
@pytest.mark.parametrize(
    "command",
    [
        "info",
        "info --settings",
        "run SCRIPT",
        "explain SCRIPT",
        "check SCRIPT",
        "launch -n 1 SCRIPT",
        "launch -n 2 SCRIPT",
        "--help",
        "run --help",
        "--version",
    ],
)
def test_commands_end_quietly(tmp_path, command, lines):
    script = tmp_path / "prints.py"
    script.write_text(PRINTS)
    status, errors = piped(command.replace("SCRIPT", str(script)).split(), lines)
    assert (
        "Traceback" not in errors
        and "BrokenPipe" not in errors
        and "Exception ignored" not in errors
    )
    assert "exit status" not in errors
    assert status in (0, 141)


def test_other_broken_pipes_are_shown(tmp_path):
    script = tmp_path / "fails.py"
    script.write_text(FAILS)
    done = subprocess.run(
        [sys.executable, "-m", "weft", "run", str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 1 and "of a socket" in done.stderr
