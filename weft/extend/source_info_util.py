"""Source lines and scope names of operations: the names of `jax.extend.source_info_util`.

In:   the Python stack and the names in scope (`weft.named_scope`).
Out:  records of them, and contexts that set them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from weft._engine.core.trace import with_source
from weft._engine.util.source import SourceLine, hide, scope, user_frame
from weft.extend.context_block import ContextBlock


@dataclass(frozen=True)
class NameStack:
    """The names of scopes, outermost first.

    >>> str(new_name_stack("layer").extend("norm"))
    'layer/norm'
    """

    stack: tuple[str, ...] = ()

    def extend(self, name: str) -> "NameStack":
        return NameStack((*self.stack, name))

    def transform(self, name: str) -> "NameStack":
        """Return the names inside a transformation, such as `jvp(layer)`."""
        return NameStack((f"{name}({'/'.join(self.stack)})",))

    def __add__(self, other: "NameStack") -> "NameStack":
        return NameStack(self.stack + other.stack)

    def __len__(self) -> int:
        return len(self.stack)

    def __str__(self) -> str:
        return "/".join(self.stack)


@dataclass(frozen=True)
class SourceInfo:
    """A line of the user's program, and the names in scope there."""

    traceback: SourceLine | None
    name_stack: NameStack = NameStack()

    def replace(
        self, *, traceback: SourceLine | None = None, name_stack: NameStack | None = None
    ) -> "SourceInfo":
        return SourceInfo(
            traceback or self.traceback, self.name_stack if name_stack is None else name_stack
        )


def new_name_stack(name: str = "") -> NameStack:
    """Return a name stack with one scope, or an empty one."""
    return NameStack((name,) if name else ())


def current_name_stack() -> NameStack:
    """Return the names in scope.

    >>> with weft.named_scope("layer"): str(current_name_stack())
    'layer'
    """
    return NameStack(tuple(scope.name.split("/")) if scope.name else ())


def new_source_info() -> SourceInfo:
    """Return source info without a line or names."""
    return SourceInfo(None)


def current() -> SourceInfo:
    """Return the current line and the names in scope."""
    return SourceInfo(user_frame(), current_name_stack())


def summarize(source_info: Any, num_frames: int = 1) -> str:
    """Return a source line as text; also accepts the source line of an equation (`eqn.source_info`)."""
    line = source_info.traceback if isinstance(source_info, SourceInfo) else source_info
    return "unknown" if line is None else f"{line.file}:{line.line} ({line.function})"


def register_exclusion(path: str) -> None:
    """Treat a file as library code: errors and programs report the lines that call it."""
    hide(path)


class set_name_stack(ContextBlock[None]):
    """A context with exactly these names in scope."""

    def __init__(self, name_stack: NameStack):
        self.name_stack = name_stack

    def _block(self) -> Iterator[None]:
        outer, scope.name = scope.name, str(self.name_stack)
        try:
            yield
        finally:
            scope.name = outer


@contextmanager
def reset_name_stack() -> Iterator[None]:
    """A context without names in scope."""
    with set_name_stack(NameStack()):
        yield


class extend_name_stack(ContextBlock[NameStack]):
    """A context with one more name in scope."""

    def __init__(self, name: str):
        self.name = name

    def _block(self) -> Iterator[NameStack]:
        with set_name_stack(current_name_stack().extend(self.name)):
            yield current_name_stack()


class transform_name_stack(ContextBlock[NameStack]):
    """A context whose names are inside a transformation."""

    def __init__(self, name: str):
        self.name = name

    def _block(self) -> Iterator[NameStack]:
        with set_name_stack(current_name_stack().transform(self.name)):
            yield current_name_stack()


class user_context(ContextBlock[None]):
    """A context whose operations have the source line of a SourceInfo or of an equation."""

    def __init__(self, traceback: Any, *, name_stack: NameStack | None = None):
        self.traceback, self.name_stack = traceback, name_stack

    def _block(self) -> Iterator[None]:
        line = (
            self.traceback.traceback if isinstance(self.traceback, SourceInfo) else self.traceback
        )
        with (
            with_source(line),
            set_name_stack(current_name_stack() if self.name_stack is None else self.name_stack),
        ):
            yield
