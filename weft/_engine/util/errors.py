"""Error classes, and the layout of their messages.

Every class is also a built-in exception class and has a page in docs/errors. `describe` writes a message: the API and what is
wrong, the facts as a small table, the user's line, the rule, and a remedy.
"""

from __future__ import annotations

import copy
import errno
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

from weft._engine.util.events import spell_names

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None


#: the folder of the pages about error classes
PAGES = "https://github.com/weft-dev/weft/blob/main/docs/errors"


class DocumentedError(Exception):
    """The base of the classes of `weft.errors`: a traceback ends with the address of the class's page.

    The address is a note, so the text of the error has only the message. Classes of other modules have the page of their base.

    >>> weft.errors.ShapeError("shapes differ.").__notes__
    ['See https://github.com/.../docs/errors/ShapeError.md']
    """

    page: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            cls.page = cls.__name__

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        error = super().__new__(cls, *args, **kwargs)
        error.add_note(f"See {PAGES}/{cls.page}.md")
        return error


class ShapeError(DocumentedError, ValueError, TypeError):
    """Shapes that do not match an operation's rules; also a TypeError, since shapes are part of types."""


class UnknownBackendError(DocumentedError, RuntimeError):
    """The name of a backend that does not exist."""


class ShardingError(DocumentedError, ValueError):
    """A sharding that is not possible, or shardings that conflict."""


class MissingMeshError(ShardingError, RuntimeError):
    """A PartitionSpec without a mesh that defines its axis names."""


class ShardingTypeError(ShardingError, TypeError):
    """Explicit shardings of operands that conflict, or do not determine the result's sharding."""


class ShardingAssertionError(ShardingTypeError, AssertionError):
    """A sharding constraint that differs from the type of the value on explicit axes."""


class TypePromotionError(DocumentedError, ValueError):
    """Dtypes without a common dtype under implicit promotion."""


class KeyPromotionError(TypePromotionError, TypeError):
    """A random key among numbers whose dtypes are promoted."""


class TracerError(DocumentedError, TypeError):
    """A traced value where a concrete value is required."""


class ConcretizationTypeError(TracerError):
    """A conversion of a tracer to a concrete value."""


class TracerBoolConversionError(ConcretizationTypeError):
    """A tracer in a condition: `if`, `while`, `and`, `or`, `not`, `assert`."""


class TracerIntegerConversionError(TracerError):
    """A tracer where Python needs an integer, such as the index of a list."""


class TracerArrayConversionError(TracerError):
    """A tracer passed to NumPy."""


class UnexpectedTracerError(TracerError):
    """A tracer used after the end of its transformation.

    >>> kept = []
    >>> _ = weft.jit(lambda x: kept.append(x) or x)(1.0)
    >>> try: kept[0] + 1
    ... except weft.errors.UnexpectedTracerError as error: print(type(error).__name__)
    UnexpectedTracerError
    """


class CustomVJPException(UnexpectedTracerError):
    """A derivative with respect to a value that a function with a custom rule closes over; the rule covers arguments only.

    >>> def scaled(c, x):
    ...     f = weft.custom_vjp(lambda x: c * x)
    ...     f.defvjp(lambda x: (c * x, None), lambda _, ct: (c * ct,))
    ...     return f(x)
    >>> try: weft.grad(weft.jit(scaled))(2.0, 3.0)
    ... except weft.errors.CustomVJPException as error: print(type(error).__name__)
    CustomVJPException
    """


class NonConcreteBooleanIndexError(TracerError, IndexError):
    """A traced boolean mask as an index: the shape of the result would depend on values."""


class MissingRuleError(DocumentedError, TypeError, NotImplementedError):
    """A primitive without the rule that a transformation needs."""


class InconclusiveDimensionOperation(DocumentedError, TypeError):
    """A comparison of symbolic sizes that cannot be decided."""


class ProgramTypeError(DocumentedError, TypeError):
    """A program with inconsistent types, which is an error in weft, not in the user's program."""


class UnboundAxisError(DocumentedError, NameError):
    """The name of a mapped axis that is not in scope."""


class DeviceRuntimeError(DocumentedError, RuntimeError):
    """A failure while a compiled program ran."""


class ProcessFailureError(DeviceRuntimeError):
    """A failure of another process, or a timeout while waiting for it; `ranks` has the numbers of these processes."""

    def __init__(self, message: str = "", ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


class VerificationError(DeviceRuntimeError):
    """A wrong result of a compiled program, which is an error in the compiler, found by the setting `check`.

    `program` and `arguments` hold the program and the values it was called with; `result` and `index` locate the first wrong element.
    """

    def __init__(
        self,
        message: str = "",
        program: Any = None,
        arguments: Sequence[Any] = (),
        result: int = -1,
        index: tuple[int, ...] = (),
        stage: str = "",
    ) -> None:
        super().__init__(message)
        self.program, self.arguments, self.result, self.index, self.stage = (
            program,
            tuple(arguments),
            result,
            index,
            stage,
        )


class OutOfMemoryError(DeviceRuntimeError, MemoryError):
    """Not enough memory for an array, or for the other data of a program."""


class CallbackError(DeviceRuntimeError):
    """An exception in a Python function that a compiled program called; the exception is its cause."""


class CheckpointError(DocumentedError, OSError):
    """A checkpoint that cannot be written or read, as for a full disk, a damaged or missing file, or processes that disagree."""


class CheckpointSupersededError(CheckpointError):
    """A save into a folder of checkpoints that another group of processes has claimed since this group began to save there."""


class KeyReuseError(DocumentedError, RuntimeError):
    """A second use of a random key while `debug_key_reuse` is set.

    >>> key = weft.random.key(0)
    >>> with weft.debug_key_reuse(True):
    ...     _ = weft.random.normal(key)
    ...     try: weft.random.uniform(key)
    ...     except weft.errors.KeyReuseError as error: print(str(error).splitlines()[0])
    jit(uniform): a random key is used for a second time...
    """


def _set_public_module(names: dict[str, object]) -> None:
    """Set the module of the exceptions to the public one, which tracebacks print."""
    for value in names.values():
        if isinstance(value, type) and issubclass(value, Exception):
            value.__module__ = "weft.errors"


_set_public_module(globals())


def describe(
    api: str,
    fact_line: str,
    table: Iterable[Sequence[Any] | str] = (),
    where: Any = None,
    rule: str = "",
    remedy: str = "",
) -> str:
    """Return an error message: the API and what is wrong, facts, the user's line, the rule and a remedy.

    >>> print(describe('dot_general', 'contracted dims differ in size.',
    ...                [('lhs', 'f32[128,64]', 'contracts dim 1, size 64'), ('rhs', 'f32[32,64]', 'contracts dim 0')],
    ...                where='train.py:41 in attend', rule='Contracted dims must have equal size.'))
    dot_general: contracted dims differ in size.
        lhs  f32[128,64]  contracts dim 1, size 64
        rhs  f32[32,64]   contracts dim 0
      at train.py:41 in attend
      Contracted dims must have equal size.
    """
    lines = [f"{api}: {fact_line}" if api else fact_line]
    lines += align(table, indent="    ")
    if where is not None and str(where):
        lines.append(f"  at {where}")
    advice = " ".join(part for part in (rule, remedy) if part)
    if advice:
        lines.append(f"  {advice}")
    return spell_names("\n".join(lines))


def without_frames(error: BaseException) -> BaseException:
    """Return a copy of an error without tracebacks, whose frames may hold arrays; a RuntimeError if it cannot be copied."""
    try:
        copied = copy.copy(error)
        if type(copied) is not type(error) or not isinstance(copied, Exception):
            raise TypeError
    except Exception:
        text = (
            f"The program that computes this array was stopped by {type(error).__name__}: {error}"
        )
        copied = RuntimeError(text.rstrip(": "))
    for name in ("__cause__", "__context__"):
        other = getattr(error, name)
        setattr(copied, name, other and without_frames(other))
    copied.__suppress_context__ = error.__suppress_context__
    return copied


def align(rows: Iterable[Sequence[Any] | str], indent: str = "", gap: str = "  ") -> list[str]:
    """Return rows of cells as lines with aligned columns; a row that is a string is unchanged.

    >>> align([('x', 'f32[8]', 'small'), ('weights', 'f32[8,128]', 'large')])
    ['x        f32[8]      small', 'weights  f32[8,128]  large']
    """
    rows = [row if isinstance(row, str) else [str(cell) for cell in row] for row in rows]
    widths: list[int] = []
    for row in rows:
        if not isinstance(row, str):
            widths += [0] * (len(row) - len(widths))
            widths[: len(row)] = [
                max(width, len(cell)) for width, cell in zip(widths, row, strict=False)
            ]
    lines = []
    for row in rows:
        text = (
            row
            if isinstance(row, str)
            else gap.join(f"{cell:{width}}" for cell, width in zip(row, widths))
        )
        lines.append(f"{indent}{text}".rstrip())
    return lines


# ---- memory that the system refuses

_REFUSALS = (
    "failed to map segment",
    "cannot allocate memory",
    "cannot create cache",
    "cannot map zero-fill pages",
)


def address_limit() -> list[int]:
    """Return the limit of the address space in bytes, in a list; [] if there is none."""
    if resource is None:
        return []
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return [] if limit == resource.RLIM_INFINITY else [limit]


def limit_text() -> str:
    """Return a sentence about the limit of the address space; empty if there is none."""
    limits = address_limit()
    if not limits:
        return ""
    return f" The process may have {limits[0]} bytes of addresses (ulimit -v); raise that limit."


def refuse(nbytes: int, purpose: str) -> OutOfMemoryError:
    """Return the error for `nbytes` bytes of memory that the system did not allocate."""
    advice = limit_text() or " Free memory, or use a machine with more."
    return OutOfMemoryError(f"cannot allocate {nbytes} bytes for {purpose}.{advice}")


def is_refusal(error: OSError) -> bool:
    """Return whether an error of the system or of the dynamic loader is caused by a lack of memory."""
    return error.errno == errno.ENOMEM or any(text in str(error).lower() for text in _REFUSALS)
