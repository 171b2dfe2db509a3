"""The command `weft`: run a program that says `import jax` on weft, and tell what weft finds on this machine.

    weft run [--devices N] SCRIPT [ARGUMENTS] [--devices N] [-- MORE]
    weft run [--devices N] -m MODULE [ARGUMENTS]
    weft explain [--devices N] [--html FILE] SCRIPT [ARGUMENTS]
    weft info
    weft --version

The script runs as `__main__` with its own `sys.argv` and its own folder first on `sys.path`, as under `python SCRIPT`;
its exit status, and the traceback of an error, are its own.
"""

import argparse
import sys
from collections.abc import Sequence

from weft._version import __version__

MOST_DEVICES = 512


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: that of the process) and return the exit status."""
    options = parse(list(sys.argv[1:] if argv is None else argv))
    if options.command == "run":
        from weft.tools.run import run_program

        return run_program(options.program, options.arguments, as_module=options.as_module, devices=options.devices)
    if options.command == "explain":
        from weft.tools.told import explain_program

        return explain_program(options.program, options.arguments, options.html, as_module=options.as_module, devices=options.devices)
    from weft.tools.info import describe

    print(describe())
    return 0


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line.

    What follows the program belongs to it, but for `--devices`, which may stand behind it too, as far as a `--`.

    >>> parse(["run", "train.py", "--epochs", "3", "--devices", "8"])
    Namespace(command='run', devices=8, as_module=False, program='train.py', arguments=['--epochs', '3'])
    """
    parser = argparse.ArgumentParser(prog="weft", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"weft {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run a program that says `import jax` (or `import weft`)",
        usage="weft run [-h] [--devices N] [-m] PROGRAM [ARGUMENTS] [-- ARGUMENTS]",
        allow_abbrev=False,
    )
    told = commands.add_parser(
        "explain",
        help="run a program and tell what its compiled functions communicate",
        usage="weft explain [-h] [--devices N] [--html FILE] [-m] PROGRAM [ARGUMENTS] [-- ARGUMENTS]",
        allow_abbrev=False,
    )
    told.add_argument("--html", metavar="FILE", help="write it as a page")
    for command in (run, told):
        command.add_argument("--devices", type=_device_count, metavar="N", help="how many virtual devices there are")
        command.add_argument("-m", dest="as_module", action="store_true", help="PROGRAM names a module, as in python -m")
        command.add_argument("program", metavar="PROGRAM", help="a Python file")
    commands.add_parser("info", help="devices, processor and caches that weft finds here")

    if argv[:1] not in (["run"], ["explain"]):
        return parser.parse_args(argv)
    own, theirs = _split_at_program(argv[1:])
    trailing = argparse.ArgumentParser(prog=f"weft {argv[0]}", add_help=False, allow_abbrev=False)
    trailing.add_argument("--devices", type=_device_count)
    theirs, verbatim = _split_at_dashes(theirs)
    late, arguments = trailing.parse_known_args(theirs)
    options = parser.parse_args([argv[0], *own])
    options.arguments = [*arguments, *verbatim]
    if late.devices is not None:
        options.devices = late.devices
    return options


_DESCRIPTION = "NumPy-like programs on arrays sharded over devices, compiled to native code."


def _split_at_program(argv: list[str]) -> tuple[list[str], list[str]]:
    """The words up to and including the program, and the words after it."""
    takes_value = False
    for i, word in enumerate(argv):
        if takes_value or (word.startswith("-") and word != "-"):
            takes_value = word in ("--devices", "--html")
        else:
            return argv[: i + 1], argv[i + 1 :]
    return argv, []


def _split_at_dashes(words: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _device_count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= MOST_DEVICES:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to {MOST_DEVICES}, got {text!r}")
    return int(text)
