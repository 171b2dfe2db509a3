"""The command `weft`: run programs that import jax, explain their communication, time their
steps, check their compiled functions, compile them for devices that are not attached, find shardings, plan a training
run on a cluster, install weft as jax, describe this machine.

    weft run [--devices N] SCRIPT [ARGUMENTS] [--devices N] [-- ARGUMENTS]
    weft run [--devices N] -m MODULE [ARGUMENTS]
    weft launch -n N [--devices-per-process N] [--min N] [--max N] [--restarts N] [--grace S] [--log-dir DIR] SCRIPT [ARGUMENTS]
    weft explain [--devices N] [--html FILE] SCRIPT [ARGUMENTS] [--html FILE] [-- ARGUMENTS]
    weft profile [--devices N] [--html FILE] [--save FILE] [--compare FILE] SCRIPT [ARGUMENTS] [-- ARGUMENTS]
    weft check [--devices N] SCRIPT [ARGUMENTS] [-- ARGUMENTS]
    weft compile --target NAME [--json FILE] SCRIPT [ARGUMENTS] [--json FILE] [-- ARGUMENTS]
    weft auto --mesh SIZES [--machine NAME] [--memory GB] [--html FILE] [--save FILE] SCRIPT [ARGUMENTS] [-- ARGUMENTS]
    weft plan --model NAME --cluster MACHINE:DEVICES [--batch N] [--seq N] [--memory GB] [--top N] [--verify]
    weft shim install [--version VERSION]
    weft shim uninstall
    weft cache [size | list [--top N] | clear [--older DAYS] | limit [SIZE]]
    weft info [--settings]
    weft --version

The script runs as `__main__` with its own `sys.argv` and its own folder first on `sys.path`, as under `python SCRIPT`;
its exit status and the traceback of an error are the same as well.
"""

import argparse
import functools
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from weft._engine.processes.wire import host_and_port
from weft._engine.util.config import MAX_DEVICES
from weft._engine.util.messages.quantities import quantity
from weft._version import __version__
from weft.compat import JAX_VERSION
from weft.tools.launch.host_list import DEFAULT_SSH, parse_hosts
from weft.tools.output import CLOSED_OUTPUT, drop_output, is_output_closed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (default: `sys.argv[1:]`) and return the exit status.

    If the reader of the output has closed it, as in `weft info | head`, the command ends without a
    message.
    """
    try:
        status = _run(argv)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        if not is_output_closed():
            raise
        drop_output()
        return CLOSED_OUTPUT


def _run(argv: Sequence[str] | None) -> int:
    options = parse(list(sys.argv[1:] if argv is None else argv))
    if options.command == "run":
        from weft.tools.run import run_program

        return run_program(
            options.program, options.arguments, as_module=options.as_module, devices=options.devices
        )
    if options.command == "launch":
        return _launch(options)
    if options.command == "explain":
        from weft.tools.explain_command import explain_program

        return explain_program(
            options.program,
            options.arguments,
            options.html,
            as_module=options.as_module,
            devices=options.devices,
        )
    if options.command == "profile":
        from weft.tools.profile.command import profile_program

        return profile_program(options)
    if options.command == "check":
        from weft.tools.check import check_program

        return check_program(
            options.program, options.arguments, as_module=options.as_module, devices=options.devices
        )
    if options.command == "compile":
        from weft.tools.compile_command import compile_program

        return compile_program(
            options.program,
            options.arguments,
            options.target,
            options.json,
            as_module=options.as_module,
        )
    if options.command == "auto":
        from weft.tools.auto_command import AutoOptions, plan_program

        return plan_program(
            AutoOptions(
                options.program,
                options.arguments,
                options.mesh,
                options.machine,
                options.memory,
                options.html,
                options.save,
                options.as_module,
            )
        )
    if options.command == "plan":
        from weft.tools.plan_command import PlanOptions, print_plans

        return print_plans(
            PlanOptions(
                options.model,
                options.cluster,
                options.batch,
                options.seq,
                options.memory,
                options.top,
                options.verify,
            )
        )
    if options.command == "shim":
        from weft.tools.shim import run

        return run(options)
    if options.command == "cache":
        from weft.tools.cache_command import run_cache_command

        return run_cache_command(options)
    from weft.tools.info import describe, settings

    print(settings() if options.settings else describe())
    return 0


def _launch(options: argparse.Namespace) -> int:
    from weft.tools.launch.job import DEFAULT_GRACE_S, LaunchOptions, launch

    launched = LaunchOptions(
        options.program,
        tuple(options.arguments),
        options.as_module,
        size=options.processes,
        devices=options.devices,
        least=options.least,
        restarts=options.restarts,
        grace=DEFAULT_GRACE_S if options.grace is None else options.grace,
        prefix=options.prefix,
        log_dir=options.log_dir,
    )
    if options.nodes is not None:
        from weft.tools.launch.node_hosts import NodeOptions, NodePool, serve_node

        node = NodeOptions(
            options.nodes, options.node_rank, options.rendezvous, options.processes // options.nodes
        )
        return (
            serve_node(node, launched)
            if node.number
            else launch(launched, functools.partial(NodePool, node))
        )
    if options.hosts is None:
        return launch(launched)
    from weft.tools.launch.ssh_hosts import SshPool

    ssh = shlex.split(options.ssh or os.environ.get("WEFT_SSH") or DEFAULT_SSH)
    return launch(launched, functools.partial(SshPool, options.hosts, ssh, options.variables))


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line.

    Weft's long options are accepted before and after the program, up to a `--`; all other arguments
    belong to the program.

    >>> parse(["run", "train.py", "--epochs", "3", "--devices", "8"])
    Namespace(command='run', devices=8, as_module=False, program='train.py', arguments=['--epochs', '3'])
    """
    parser = argparse.ArgumentParser(
        prog="weft",
        description="Run NumPy-like programs on sharded arrays, compiled to native code.",
    )
    parser.add_argument("--version", action="version", version=f"weft {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, purpose in _RUNNERS.items():
        command = commands.add_parser(
            name,
            parents=[_long_options(name)],
            help=purpose,
            description=purpose[0].upper() + purpose[1:] + ".",
            epilog=_epilog(name),
            usage=_usage(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_argument(
            "-m",
            dest="as_module",
            action="store_true",
            help="PROGRAM names a module, as in python -m",
        )
        command.add_argument("program", metavar="PROGRAM", help="a Python file")
    _add_launch(commands)
    _add_plan(commands)
    _add_cache(commands)
    info = commands.add_parser(
        "info", help="describe this machine: devices, processor, caches and settings"
    )
    info.add_argument("--settings", action="store_true", help="list all settings")

    shim = commands.add_parser(
        "shim", help="make `import jax` mean weft in this Python environment, or undo that"
    )
    actions = shim.add_subparsers(dest="action", required=True, metavar="ACTION")
    install = actions.add_parser(
        "install",
        help="install distributions jax and jaxlib that import weft",
        description=_SHIM,
    )
    install.add_argument(
        "--version",
        default=f"{JAX_VERSION}+weft",
        help="the version of JAX to report and follow (default: %(default)s)",
    )
    actions.add_parser("uninstall", help="remove them")

    if not argv:
        parser.print_help()
        parser.exit()
    if argv[0] not in _RUNNERS:
        options = parser.parse_args(argv)
        return _checked_launch(parser, options) if options.command == "launch" else options
    own, after, verbatim = _split(argv[1:])
    options = parser.parse_args([argv[0], *own])
    options, arguments = _long_options(argv[0]).parse_known_args(after, options)
    options.arguments = [*arguments, *verbatim]
    if argv[0] == "compile" and options.target is None:
        parser.error(
            "weft compile: give the devices to compile for, as in --target v5p:8x8x8 or --target h100:8"
        )
    if argv[0] == "auto" and options.mesh is None:
        parser.error("weft auto: give the mesh to shard over, as in --mesh 8 or --mesh 4x2")
    return options


_RUNNERS = {
    "run": "run a program that imports jax (or weft)",
    "explain": "run a program, then print what its compiled functions communicate",
    "profile": "run a program, then print where the time of its compiled functions goes",
    "check": "run a program and compare its compiled functions with op-by-op execution",
    "compile": "compile the functions of a program for devices that are not attached, and report memory and costs",
    "auto": "run a program, then find shardings for its largest jitted function",
}
#: the long options of each command, with placeholders for their values
_OPTIONS = {
    "run": {"--devices": "N"},
    "explain": {"--devices": "N", "--html": "FILE"},
    "profile": {"--devices": "N", "--html": "FILE", "--save": "FILE", "--compare": "FILE"},
    "check": {"--devices": "N"},
    "compile": {"--target": "NAME", "--json": "FILE"},
    "auto": {
        "--mesh": "SIZES",
        "--machine": "NAME",
        "--memory": "GB",
        "--html": "FILE",
        "--save": "FILE",
    },
}
_SHIM = (
    "Put distributions jax and jaxlib into the environment of this Python, whose modules are weft's: libraries that require jax can "
    "then be installed, and import weft. Nothing is written where another jax is installed."
)
_EPILOG = """\
{options} may also follow PROGRAM.
All other arguments after PROGRAM, -h and -m included, are passed on to it.
All arguments after -- are passed on too, if the program has options of the same
names:

{examples}
"""
_EXAMPLES = {
    "compile": (
        ("train.py --target v5p:8x8x8 --epochs 3", "--epochs 3 goes to train.py"),
        ("--target h100:8 train.py -- --json 3", "--json 3 goes to train.py"),
    ),
    "profile": (
        ("train.py --html page.html", "a page with the timeline"),
        ("--compare before.json train.py", "the steps of two runs"),
        ("train.py -- --save 3", "--save 3 goes to train.py"),
    ),
    "auto": (
        ("train.py --mesh 4x2 --epochs 3", "--epochs 3 goes to train.py"),
        ("--mesh data=4,model=2 train.py -- --mesh 3", "--mesh 3 goes to train.py"),
    ),
    "explain": (
        ("train.py --epochs 3 --html page.html", "--epochs 3 goes to train.py"),
        ("train.py -- --devices 3", "--devices 3 goes to train.py"),
    ),
}


def _epilog(name: str) -> str:
    *others, last = _OPTIONS[name]
    options = f"{', '.join(others)} and {last}" if others else last
    examples = _EXAMPLES.get(
        name,
        (
            ("train.py --epochs 3 --devices 8", "--epochs 3 goes to train.py"),
            _EXAMPLES["explain"][1],
        ),
    )
    lines = [f"    weft {name} {words:44}{what}" for words, what in examples]
    return _EPILOG.format(options=options, examples="\n".join(lines))


_LAUNCH = """\
Everything after PROGRAM is passed on to it. The processes connect before the program begins: weft.devices() lists the devices of
all processes. If a process fails, the others raise weft.errors.ProcessFailureError; processes that still run after --grace seconds
are killed. SIGINT and SIGTERM are passed on, with the same time to end.

The exit status is 0, 75 if the processes were preempted (they saved their state first), or the status of the first process that failed.

    weft launch -n 4 --devices-per-process 2 train.py --epochs 3
    weft launch --min 2 --max 4 --restarts 10 train.py      after a failure, start again with the remaining hosts
    weft launch -n 4 --nodes 2 --rendezvous a:29500 --node-rank 0 train.py      and with --node-rank 1 on the second node
    weft launch --hosts a:4,b:4 train.py                    four processes on each of two hosts, started by ssh
"""


_PLAN = """\
MODEL is the name of a model, the path of a Hugging Face config.json, or FILE.py:FUNCTION. FUNCTION takes no
arguments and returns a loss function, its parameters and its data, as arrays or weft.ShapeDtypeStruct.

  weft plan --model llama3-70b --cluster h100:64
  weft plan --model config.json --cluster tpu-v5p:16x256 --batch 2048 --seq 4096
"""


def _add_plan(commands: Any) -> None:
    purpose = "find the fastest ways to train a model on a cluster, by a model of the machine"
    command = commands.add_parser(
        "plan",
        help=purpose,
        description=purpose[0].upper() + purpose[1:] + ".",
        epilog=_PLAN,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument("--model", required=True, help="the model to train")
    command.add_argument(
        "--cluster",
        required=True,
        metavar="MACHINE:DEVICES",
        help="the devices, as in h100:64 or, nodes times devices, h100:8x8",
    )
    command.add_argument(
        "--batch",
        type=_positive,
        metavar="N",
        help="sequences of a step (default: 4 million tokens, at least one sequence for 8 devices)",
    )
    command.add_argument(
        "--seq", type=_positive, metavar="N", help="tokens of a sequence (default: the model's)"
    )
    command.add_argument(
        "--memory",
        type=float,
        metavar="GB",
        help="memory of a device that plans may use (default: 92 percent)",
    )
    command.add_argument(
        "--top", type=_positive, default=5, metavar="N", help="number of plans (default: 5)"
    )
    command.add_argument(
        "--verify",
        action="store_true",
        help="compile the first plan for the devices, without them, and compare its memory",
    )


def _add_cache(commands: Any) -> None:
    command = commands.add_parser(
        "cache",
        help="show, limit or clear the compiled programs on disk",
        description="Show, limit or clear the compiled programs on disk (folder: WEFT_CACHE_DIR).",
    )
    actions = command.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("size", help="print the folder, its size and its limit (default)")
    listed = actions.add_parser("list", help="print the newest files with times and sizes")
    listed.add_argument(
        "--top", type=_positive, default=20, metavar="N", help="number of files (default: 20)"
    )
    clear = actions.add_parser("clear", help="delete all files")
    clear.add_argument(
        "--older", type=_natural, metavar="DAYS", help="only files that are older than DAYS days"
    )
    limit = actions.add_parser("limit", help="print or set the maximal size")
    limit.add_argument(
        "size",
        nargs="?",
        type=_byte_size,
        metavar="SIZE",
        help="bytes, or a number with K, M or G; stored in the folder",
    )


def _add_launch(commands: Any) -> None:
    command = commands.add_parser(
        "launch",
        help="run a program on several processes of this machine or others",
        epilog=_LAUNCH,
        allow_abbrev=False,
        description="Run a program on several processes of this machine or others.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument(
        "-n", dest="processes", type=_positive, metavar="N", help="number of processes"
    )
    command.add_argument(
        "--devices-per-process",
        dest="devices",
        type=_device_count,
        metavar="N",
        help="number of virtual devices of each",
    )
    command.add_argument(
        "--min",
        dest="least",
        type=_positive,
        metavar="N",
        help="minimal number of processes for a restart",
    )
    command.add_argument(
        "--max",
        dest="most",
        type=_positive,
        metavar="N",
        help="number of processes at the start, instead of -n",
    )
    command.add_argument(
        "--restarts",
        type=_natural,
        default=0,
        metavar="N",
        help="number of restarts after failures",
    )
    command.add_argument(
        "--grace",
        type=_seconds,
        metavar="SECONDS",
        help="how long processes may run after a failure or a signal (default: 30)",
    )
    command.add_argument(
        "--hosts",
        type=_hosts,
        metavar="A:4,B:4",
        help="start processes on these hosts by ssh; a:4 means four on host a",
    )
    command.add_argument(
        "--ssh",
        metavar="COMMAND",
        help=f"command that connects to a host (default: WEFT_SSH, or '{DEFAULT_SSH}')",
    )
    command.add_argument(
        "--env",
        dest="variables",
        action="append",
        default=[],
        metavar="NAME",
        help="forward a variable to the hosts, in addition to WEFT_*, JAX_* and PYTHONPATH; NAME=VALUE sets one",
    )
    command.add_argument(
        "--nodes",
        type=_positive,
        metavar="N",
        help="the same command is run on N nodes, each with -n processes",
    )
    command.add_argument(
        "--rendezvous",
        metavar="HOST:PORT",
        help="where the launcher of node 0 waits for the others",
    )
    command.add_argument(
        "--node-rank",
        type=_natural,
        metavar="I",
        help="the number of this node (default: SLURM_NODEID or JOB_COMPLETION_INDEX)",
    )
    command.add_argument(
        "--no-prefix",
        dest="prefix",
        action="store_false",
        help="do not begin each line of output with its process: [3]",
    )
    command.add_argument(
        "--log-dir", metavar="DIR", help="write the output of each process to DIR/rank-3.log, too"
    )
    command.add_argument(
        "-m", dest="as_module", action="store_true", help="PROGRAM names a module, as in python -m"
    )
    command.add_argument("program", metavar="PROGRAM", help="a Python file")
    command.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS")


def _checked_launch(
    parser: argparse.ArgumentParser, options: argparse.Namespace
) -> argparse.Namespace:
    if options.nodes is not None:
        _check_nodes(parser, options)
    slots = sum(host.slots for host in options.hosts or ())
    if (options.processes is not None and options.most is not None) or not (
        options.processes or options.most or slots
    ):
        parser.error("weft launch: give the number of processes, as -n N or as --max N")
    options.processes = options.processes or options.most or slots
    if slots and options.processes > slots:
        parser.error(
            f"weft launch: {quantity(options.processes, 'process')} do not fit on the hosts, which take {slots}"
        )
    if options.least is not None and options.least > options.processes:
        parser.error(
            f"weft launch: --min {options.least} is more than the {quantity(options.processes, 'process')} to begin with"
        )
    if options.arguments[:1] == ["--"]:
        options.arguments = options.arguments[1:]
    return options


def _check_nodes(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    from weft.tools.launch.node_hosts import node_number

    if options.hosts is not None or options.most is not None:
        parser.error(
            "weft launch: --nodes excludes --hosts and --max: each node starts -n processes"
        )
    if options.rendezvous is None:
        parser.error("weft launch: --nodes needs --rendezvous HOST:PORT, an address of node 0")
    try:
        host_and_port(options.rendezvous)
    except ValueError as error:
        parser.error(f"weft launch: --rendezvous: {error}")
    if options.node_rank is None:
        options.node_rank = node_number()
    if options.node_rank is None or options.node_rank >= options.nodes:
        parser.error(
            f"weft launch: give the number of this node, as --node-rank I, from 0 to {options.nodes - 1}"
        )
    options.processes = (options.processes or 1) * options.nodes


def _usage(name: str) -> str:
    options = (
        " ".join(f"[{option} {value}]" for option, value in _OPTIONS[name].items())
        .replace("[--target NAME]", "--target NAME")
        .replace("[--mesh SIZES]", "--mesh SIZES")
    )
    return f"weft {name} [-h] {options} [-m] PROGRAM [ARGUMENTS] [-- ARGUMENTS]"


def _long_options(name: str) -> argparse.ArgumentParser:
    """Return the parser of the long options of the command `name`, which may precede or follow the
    program."""
    parser = argparse.ArgumentParser(
        prog=f"weft {name}", usage=_usage(name), add_help=False, allow_abbrev=False
    )
    if "--devices" in _OPTIONS[name]:
        parser.add_argument(
            "--devices", type=_device_count, metavar="N", help="number of virtual devices"
        )
    if name == "compile":
        parser.add_argument(
            "--target", metavar="NAME", help="the devices, such as v5e:2x4, v5p:8x8x8 or h100:8"
        )
        parser.add_argument("--json", metavar="FILE", help="write the reports to FILE as JSON, too")
    if name == "auto":
        _add_auto_options(parser)
    elif name == "profile":
        _add_profile_options(parser)
    elif name == "explain":
        parser.add_argument(
            "--html", metavar="FILE", help="write the explanations to FILE as an HTML page, too"
        )
    else:
        parser.add_argument(
            "--html",
            nargs="?",
            action=_RejectExplainOption,
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )
    return parser


def _add_profile_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--html", metavar="FILE", help="write the profile to FILE as an HTML page, too"
    )
    parser.add_argument(
        "--save", metavar="FILE", help="write the profile to FILE, for Perfetto and --compare, too"
    )
    parser.add_argument(
        "--compare", metavar="FILE", help="compare with the profile that --save wrote to FILE"
    )


def _add_auto_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mesh",
        metavar="SIZES",
        help="the mesh to shard over, as in 8, 4x2 or data=4,model=2",
    )
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help="the machine whose step time is minimized, such as h100, or measure for this one (default: minimize bytes sent)",
    )
    parser.add_argument(
        "--memory", type=_gigabytes, metavar="GB", help="most memory that a device may hold"
    )
    parser.add_argument(
        "--html", metavar="FILE", help="write the report to FILE as an HTML page, too"
    )
    parser.add_argument(
        "--save", metavar="FILE", help="write the plan to FILE, for weft.auto.load, too"
    )


class _RejectExplainOption(argparse.Action):
    """An action that rejects another command's option: most programs would silently ignore it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        option = self.option_strings[0]
        parser.error(
            f"{option} is an option of 'weft explain'; if the program has one of this name, put -- before it"
        )


_WITH_VALUE = frozenset([option for options in _OPTIONS.values() for option in options])


def _split(words: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the words up to and including the program, the words after it, and the words after a
    `--`."""
    takes_value = False
    for i, word in enumerate(words):
        if word == "--":
            return [*words[:i], *words[i + 1 : i + 2]], [], words[i + 2 :]
        if takes_value or (word.startswith("-") and word != "-"):
            takes_value = word in _WITH_VALUE
            continue
        after = words[i + 1 :]
        end = after.index("--") if "--" in after else len(after)
        return words[: i + 1], after[:end], after[end + 1 :]
    return words, [], []


def _natural(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}")
    return int(text)


def _hosts(text: str) -> Any:
    try:
        return parse_hosts(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds, got {text!r}")
    return seconds


def _gigabytes(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0 < size < float("inf"):
        raise argparse.ArgumentTypeError(f"expected gigabytes above 0, got {text!r}")
    return size


def _byte_size(text: str) -> int:
    """Return a number of bytes.

    >>> _byte_size("500M"), _byte_size("1.5g"), _byte_size("0")
    (524288000, 1610612736, 0)
    """
    exponent = "kmg".find(text[-1:].lower()) + 1
    try:
        size = float(text[:-1] if exponent else text) * 1024**exponent
    except ValueError:
        size = -1.0
    if not 0 <= size < float("inf"):
        raise argparse.ArgumentTypeError(
            f"expected a number of bytes such as 500M or 2G, got {text!r}"
        )
    return int(size)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, got {text!r}")
    return int(text)


def _device_count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= MAX_DEVICES:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to {MAX_DEVICES}, got {text!r}")
    return int(text)
