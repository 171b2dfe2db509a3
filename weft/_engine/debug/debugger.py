"""`breakpoint`: stop a program where it runs and inspect the user's frames.

In:   the Python frames above the call, while tracing; traced values among their variables are read when the program stops.
Out:  a prompt on stdin and stdout (or the given streams), in eager and compiled code, once per iteration of a loop and once
      per example under `vmap`.
"""

from __future__ import annotations

import inspect
import linecache
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pprint import pformat
from types import FrameType
from typing import Any, TextIO

from weft._engine.api.callbacks import HostFunction, bind_observer
from weft._engine.core.trace import Tracer
from weft._engine.ops.callback import debug_callback_p
from weft._engine.util import tree
from weft._engine.util.source import api_boundary, is_internal

_AROUND = 5  # lines shown before and after the current one


@api_boundary
def breakpoint(
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    **kwargs: Any,
) -> None:
    """Stop the program here and read commands: show variables, walk the frames, continue.

    `help` at the prompt lists the commands; any other line is evaluated as Python in the current
    frame. Frames of weft itself are omitted unless `filter_frames` is false; at most `num_frames`
    frames are shown. `quit` ends the program with an error in the caller.

    >>> import io, weft
    >>> def f(x):
    ...     y = x * 2
    ...     weft.debug.breakpoint(stdin=io.StringIO("p y\\nc\\n"))
    ...     return y
    >>> float(weft.jit(f)(3.0))
    Entering weft debugger:
    (wdb) p y
    6.0
    (wdb) c
    6.0
    """
    if backend not in (None, "cli"):
        raise NotImplementedError(
            f"debug.breakpoint: the backend {backend!r} is not supported; only the command line, 'cli', is."
        )
    if kwargs:
        raise TypeError(f"debug.breakpoint: unknown arguments {sorted(kwargs)}.")
    frames = _frames(sys._getframe(1), filter_frames)[:num_frames]
    session = _BreakpointCallback(
        [f.place for f in frames], [f.globals for f in frames], stdin, stdout
    )
    leaves, in_tree = tree.tree_flatten((([f.variables for f in frames],), {}))
    bind_observer(
        debug_callback_p,
        HostFunction("debug.breakpoint", session, leaves, in_tree),
        leaves,
        ordered,
        False,
    )


class BreakpointQuit(Exception):
    """Raised when the user leaves the debugger with `quit`."""


# --- frames -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FrameLocation:
    """The location and source of a frame."""

    file: str
    line: int
    function: str
    source: tuple[str, ...]
    first: int  # number of the first line of `source`

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"

    def format_source(self) -> str:
        """Return the lines around the current one, which is marked."""
        at = self.line - self.first
        lines = [
            f"{'->' if i == at else '  '} {self.first + i:4d} {text}"
            for i, text in enumerate(self.source)
        ]
        return "\n".join(lines[max(0, at - _AROUND) : at + _AROUND + 1])


@dataclass
class _DebuggerFrame:
    place: FrameLocation
    variables: dict[str, Any]
    globals: dict[str, Any]


class _OpaqueValue:
    """An untraced part of a variable."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


def _hide_untraced(x: Any) -> Any:
    """Return a variable with all untraced parts opaque.

    The whole variable is one part if no part is traced.
    """
    try:
        leaves, structure = tree.tree_flatten(x)
    except (TypeError, ValueError):  # such as a dict with keys that cannot be sorted
        return _OpaqueValue(x)
    traced = [isinstance(leaf, Tracer) and not leaf.owning_trace.finished for leaf in leaves]
    if not any(traced):
        return _OpaqueValue(x)
    return tree.tree_unflatten(
        structure, [leaf if t else _OpaqueValue(leaf) for leaf, t in zip(leaves, traced)]
    )


def _frames(frame: FrameType | None, filter_frames: bool) -> list[_DebuggerFrame]:
    """Return the frames from `frame` outwards, innermost first."""
    frames = []
    while frame is not None:
        if not filter_frames or not is_internal(frame.f_code.co_filename):
            # variables of a module frame are globals
            variables = {} if frame.f_code.co_name == "<module>" else frame.f_locals
            frames.append(
                _DebuggerFrame(
                    _place(frame),
                    {k: _hide_untraced(v) for k, v in variables.items()},
                    frame.f_globals,
                )
            )
        frame = frame.f_back
    return frames


def _place(frame: FrameType) -> FrameLocation:
    code = frame.f_code
    try:
        source, first = inspect.getsourcelines(code)
    except (OSError, TypeError):
        source, first = [linecache.getline(code.co_filename, frame.f_lineno)], frame.f_lineno
    first = max(first, 1)
    return FrameLocation(
        code.co_filename,
        frame.f_lineno,
        code.co_name,
        tuple(line.rstrip("\n") for line in source),
        first,
    )


# --- the prompt -------------------------------------------------------------------------------------------------------


class _BreakpointCallback:
    """The callback of a breakpoint, which runs a prompt over its frames."""

    __name__ = "breakpoint"

    def __init__(
        self,
        places: Sequence[FrameLocation],
        scopes: Sequence[dict],
        stdin: TextIO | None,
        stdout: TextIO | None,
    ):
        self.places, self.scopes, self.stdin, self.stdout = places, scopes, stdin, stdout

    def __call__(self, variables: list[dict[str, Any]]) -> None:
        values = [{k: _unwrap_opaque(v) for k, v in frame.items()} for frame in variables]
        Prompt(
            self.places,
            values,
            self.scopes,
            self.stdin or sys.stdin,
            self.stdout or sys.stdout,
            self.stdin is not None,
        ).run()


def _unwrap_opaque(x: Any) -> Any:
    return tree.tree_map(lambda leaf: leaf.value if isinstance(leaf, _OpaqueValue) else leaf, x)


_HELP = """p, pp EXPR   print a value (pp: over several lines)
a            print the variables of the frame
l            list the source around the current line
w, bt        print the frames
u, d         go to the caller, back to the callee
c            continue
q            stop the program
h            this list; anything else is evaluated as Python"""


class Prompt:
    """Commands over frames, innermost first; `scopes` are their global variables."""

    def __init__(
        self,
        places: Sequence[FrameLocation],
        variables: Sequence[dict],
        scopes: Sequence[dict],
        stdin: TextIO,
        stdout: TextIO,
        echo: bool = False,
    ):
        self.places, self.variables, self.scopes = places, variables, scopes
        self.stdin, self.stdout, self.echo = stdin, stdout, echo
        self.at = 0

    def run(self) -> None:
        """Read commands until one continues the program; the end of the input continues it too."""
        self.say("Entering weft debugger:")
        while True:
            self.stdout.write("(wdb) ")
            self.stdout.flush()
            line = self.stdin.readline()
            if self.echo or not line:
                self.say(line.strip())
            if not line or not self.command(line.strip()):
                return

    def say(self, text: str) -> None:
        self.stdout.write(text + "\n")

    def command(self, line: str) -> bool:
        """Execute one line. Return False if the program continues."""
        word, _, arguments = line.partition(" ")
        action = _COMMANDS.get(word)
        if not line:
            return True
        if action is None or (arguments and word not in ("p", "pp")):
            self.evaluate(line, repr)
            return True
        return action(self, arguments) is not False

    def evaluate(self, text: str, show: Any) -> None:
        """Print the value of an expression, or run a statement, in the current frame."""
        try:
            mine = self.variables[self.at]
            everything = {**self.scopes[self.at], **mine}
            try:
                value = eval(text, everything)
            except SyntaxError:
                exec(text, everything, mine)
                return
            self.say(show(value))
        except Exception:
            self.say(traceback.format_exc(limit=0).strip())

    def move(self, step: int) -> None:
        """Move by `step` frames."""
        if 0 <= self.at + step < len(self.places):
            self.at += step
            self.show_place()
        else:
            self.say("There is no frame beyond this one.")

    def show_place(self) -> None:
        place = self.places[self.at]
        self.say(f"> {place}\n{place.format_source()}")

    def show_frames(self) -> None:
        for i, place in reversed(list(enumerate(self.places))):
            self.say(f"{'>' if i == self.at else ' '} {place}")

    def show_variables(self) -> None:
        for name, value in self.variables[self.at].items():
            self.say(f"{name} = {value!r}")

    def leave(self) -> None:
        raise BreakpointQuit("the program was stopped at a breakpoint")


_COMMANDS: dict[str, Any] = {
    **dict.fromkeys(("c", "continue", "cont"), lambda prompt, _: False),
    **dict.fromkeys(("q", "quit", "exit"), lambda prompt, _: prompt.leave()),
    **dict.fromkeys(("u", "up"), lambda prompt, _: prompt.move(1)),
    **dict.fromkeys(("d", "down"), lambda prompt, _: prompt.move(-1)),
    **dict.fromkeys(("l", "list", "ll"), lambda prompt, _: prompt.show_place()),
    **dict.fromkeys(("w", "bt", "where"), lambda prompt, _: prompt.show_frames()),
    **dict.fromkeys(("a", "args", "locals"), lambda prompt, _: prompt.show_variables()),
    **dict.fromkeys(("h", "help", "?"), lambda prompt, _: prompt.say(_HELP)),
    "p": lambda prompt, text: prompt.evaluate(text, str),
    "pp": lambda prompt, text: prompt.evaluate(text, pformat),
}
