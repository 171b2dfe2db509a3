"""Golden tests of compiler stages: programs with `# CHECK` comments for the dumped text of one stage.

In:   functions marked with `program(*args)`; comments in their source.
Out:  `programs_of` lists them; `check_text` compares the comments with the text.
How:  `# CHECK: text` is the next line that contains `text`; `# CHECK-NEXT:` the line right after it; `# CHECK-NOT:` may occur
      nowhere in the text; `# CHECK-COUNT-2:` occurs in exactly two lines. Spaces count as one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import weft

_COMMENT = re.compile(r"# CHECK(?:-(NEXT|NOT|COUNT)(?:-(\d+))?)?: *(.*)")


class GoldenProgram(NamedTuple):
    """A function, its arguments, and the options of `jit` with which it is compiled."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    options: dict[str, Any]


class CheckLine(NamedTuple):
    """A comment: its kind ("", "NEXT", "NOT" or "COUNT"), the number of lines of a COUNT, and the text."""

    kind: str
    lines: int
    text: str


def program(*args: Any, **options: Any) -> Callable[[Callable[..., Any]], GoldenProgram]:
    """Return a decorator that marks a function as a golden program for these arguments."""
    return lambda function: GoldenProgram(function, args, options)


def f32(*shape: int, sharding: Any = None) -> Any:
    """Return the description of a float32 array."""
    return weft.ShapeDtypeStruct(shape, np.float32, sharding=sharding)


def programs_of(module: ModuleType) -> list[GoldenProgram]:
    """Return the golden programs of a module, in the order of their definition."""
    return [value for value in vars(module).values() if isinstance(value, GoldenProgram)]


def check_lines(source: str) -> list[CheckLine]:
    """Return the comments in a source.

    >>> check_lines("# CHECK: a\\n# CHECK-COUNT-2:  b  c")
    [CheckLine(kind='', lines=0, text='a'), CheckLine(kind='COUNT', lines=2, text='b c')]
    """
    return [
        CheckLine(kind, int(count or 0), " ".join(text.split()))
        for kind, count, text in _COMMENT.findall(source)
    ]


def check_text(text: str, checks: Sequence[CheckLine]) -> None:
    """Raise AssertionError for the first comment with which a text does not agree.

    >>> check_text("a\\nb\\nc", check_lines("# CHECK: a\\n# CHECK-NEXT: b\\n# CHECK-NOT: d"))
    >>> check_text("a\\nb\\nc", check_lines("# CHECK: b\\n# CHECK: a"))
    Traceback (most recent call last):
    AssertionError: CHECK: no line after line 2 contains 'a'
    """
    _expect(bool(checks), "the program has no CHECK comments")
    lines, position = [" ".join(line.split()) for line in text.splitlines()], 0
    for kind, count, expected in checks:
        matching = [i for i, line in enumerate(lines) if expected in line]
        later = [i for i in matching if i >= position]
        if kind == "NOT":
            _expect(not matching, f"CHECK-NOT: a line contains {expected!r}")
        elif kind == "COUNT":
            _expect(
                len(matching) == count,
                f"CHECK-COUNT-{count}: {len(matching)} lines contain {expected!r}",
            )
        elif kind == "NEXT":
            _expect(
                position in matching,
                f"CHECK-NEXT: line {position + 1} does not contain {expected!r}",
            )
            position += 1
        else:
            _expect(bool(later), f"CHECK: no line after line {position} contains {expected!r}")
            position = later[0] + 1


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def checks_of(golden: GoldenProgram) -> list[CheckLine]:
    """Return the comments of a program."""
    return check_lines(inspect.getsource(golden.function))
