"""Run-time checks of values: `check` adds a check, `checkify` makes a function return the first check that failed.

In:  a function with calls of `check`, and the categories of errors to check automatically.
Out: the function that returns an `Error` before its result. An `Error` is a tree of arrays, which jit, vmap, scan and shard_map support.
How: `control/checks.py` threads the state of the checks through the program.

>>> from weft.experimental import checkify
>>> def root(x):
...     checkify.check(x >= 0, "x is {x}, and has no real root", x=x)
...     return wnp.sqrt(x)
>>> error, result = weft.jit(checkify.checkify(root))(wnp.float32(-4.0))
>>> error.get()
'x is -4.0, and has no real root (`check` failed)'
>>> error.throw()
Traceback (most recent call last):
...
weft._engine.control.checks.JaxRuntimeError: x is -4.0, and has no real root (`check` failed)
...
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from weft._engine.api.execute import to_array
from weft._engine.control import checks
from weft._engine.control.checks import (
    BatchedError,
    CheckSite,
    DivisionByZeroError,
    FailedCheckError,
    JaxException,
    JaxRuntimeError,
    NaNError,
    OOBError,
    Slot,
)
from weft._engine.core.sealed_classes import Sealed
from weft._engine.core.stage import hoist_tracers, stage
from weft._engine.core.trace import Tracer, any_tracers, typeof
from weft._engine.ops.comparison import select_n
from weft._engine.ops.keys import random_unwrap
from weft._engine.util import dtypes, tree
from weft._engine.util.source import api_boundary, function_name, user_frame

__all__ = [
    "Error", "ErrorCategory", "JaxRuntimeError", "all_checks", "automatic_checks", "check", "check_error", "checkify", "debug_check",
    "div_checks", "float_checks", "index_checks", "init_error", "nan_checks", "user_checks",
]  # fmt: skip

Out = TypeVar("Out")
ErrorCategory = type[JaxException]

user_checks: frozenset[ErrorCategory] = frozenset({FailedCheckError})
nan_checks: frozenset[ErrorCategory] = frozenset({NaNError})
index_checks: frozenset[ErrorCategory] = frozenset({OOBError})
div_checks: frozenset[ErrorCategory] = frozenset({DivisionByZeroError})
float_checks: frozenset[ErrorCategory] = nan_checks | div_checks
automatic_checks: frozenset[ErrorCategory] = float_checks | index_checks
all_checks: frozenset[ErrorCategory] = automatic_checks | user_checks


_NONE = np.int32(0)  # the code for "no error"


@tree.register_pytree_node_class
class Error(metaclass=Sealed):
    """The first error of a checked function, or no error.

    A tree of arrays: the code of the failed check, and the values in its message. After `vmap` it contains one error per example.
    """

    _created_by = "functions of weft.experimental.checkify.checkify"

    def __init__(
        self,
        code: Any = _NONE,
        values: Sequence[Any] = (),
        sites: Sequence[CheckSite] = (),
        slots: Sequence[Slot] = (),
    ):
        self._code = code
        self._values = tuple(values)
        self._sites = tuple(sites)
        self._slots = tuple(slots)

    def tree_flatten(self) -> tuple[tuple, tuple]:
        return (self._code, self._values), (self._sites, self._slots)

    @classmethod
    def tree_unflatten(cls, aux: tuple, children: tuple) -> Error:
        return cls.make(*children, *aux)

    def get(self) -> str | None:
        """Return the message of the error, or None. For a batch, return one line per example with an error.

        >>> init_error.get() is None
        True
        """
        exception = self.get_exception()
        return None if exception is None else str(exception)

    def get_exception(self) -> JaxException | None:
        """Return the error as an exception of its category, or None."""
        codes = np.asarray(self._code)
        values = [np.asarray(x) for x in self._values]
        failed = [tuple(int(i) for i in index) for index in np.argwhere(codes)]
        if not failed:
            return None
        if codes.ndim == 0:
            return self._exception(int(codes), values)
        lines = [
            f"at mapped index {', '.join(map(str, index))}: {self._exception(int(codes[index]), [x[index] for x in values])}"
            for index in failed
        ]
        return BatchedError("\n".join(lines))

    def _exception(self, code: int, values: Sequence[np.ndarray]) -> JaxException:
        site = self._sites[code - 1]
        exception = site.category(
            site.text([to_array(x) for x in checks.values_of(site, self._slots, values)])
        )
        if site.line:
            exception.add_note(f"at {site.line}")
        return exception

    def throw(self) -> None:
        """Raise JaxRuntimeError if there is an error."""
        check_error(self)

    def __repr__(self) -> str:
        return f"Error({'traced' if isinstance(self._code, Tracer) else self.get()})"


#: the error of a function without checks: no error
init_error = Error.make()


@api_boundary
def check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """Check that the boolean scalar `pred` is true. The message of the error is `msg.format(*fmt_args, **fmt_kwargs)`.

    On concrete values it raises JaxRuntimeError immediately. Inside of `checkify` the check becomes part of the program. Compilation of a
    program with checks raises ValueError unless `checkify` has transformed it.
    Raise TypeError if `pred` is not a boolean scalar, or if a format argument is not a tree of arrays. Raise KeyError or IndexError if the
    format refers to an argument that was not passed.

    >>> check(wnp.array(True), "never raised")
    """
    _check(pred, msg, fmt_args, fmt_kwargs, False)


@api_boundary
def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """Do the same as `check` inside of `checkify`, and nothing elsewhere.

    >>> debug_check(wnp.array(False), "not raised here")
    """
    _check(pred, msg, fmt_args, fmt_kwargs, True)


def _check_format(name: str, msg: str, values: list, structure: Any) -> None:
    """Raise KeyError or IndexError for a format that refers to missing arguments, before the check can fail."""
    zeros = [np.zeros(typeof(x).shape, typeof(x).dtype)[()] for x in values]
    args, kwargs = tree.tree_unflatten(structure, zeros)
    try:
        str.format(msg, *args, **kwargs)
    except (KeyError, IndexError) as error:
        raise type(error)(
            f"{name}: the format {msg!r} refers to {error.args[0]!r}, which was not passed."
        ) from None


def _check(pred: Any, msg: str, fmt_args: tuple, fmt_kwargs: dict[str, Any], debug: bool) -> None:
    name = "debug_check" if debug else "check"
    if not isinstance(msg, str):
        raise TypeError(f"{name}: msg is a format, a string, got {msg!r} of type {type(msg)}.")
    is_array = isinstance(pred, (bool, np.bool_, np.ndarray, Tracer)) or hasattr(type(pred), "aval")
    if not is_array or typeof(pred).shape or typeof(pred).dtype != np.bool_:
        raise TypeError(
            f"{name} takes a scalar pred as argument, got {pred if not is_array else typeof(pred).str_short()}.\n"
            "  Reduce an array of conditions with .all(). Pass the values as format arguments to show them in the message."
        )
    values, structure = tree.tree_flatten((fmt_args, fmt_kwargs))
    for x in values:
        if not isinstance(x, (bool, int, float, complex, np.generic, np.ndarray)) and not hasattr(
            type(x), "aval"
        ):
            raise TypeError(
                f"Formatting arguments to checkify.{name} need to be PyTrees of arrays, but got {x!r} of type {type(x)}."
            )
    # messages show the data of random keys
    values = [random_unwrap(x) if dtypes.is_extended(typeof(x).dtype) else x for x in values]
    _check_format(name, msg, values, structure)
    site = CheckSite(FailedCheckError, msg, 0, structure, str(user_frame() or ""))
    code = (
        np.int32(0 if pred else 1)
        if isinstance(pred, (bool, np.bool_))
        else select_n(pred, np.int32(1), np.int32(0))
    )
    checks.check_p.bind(code, *values, sites=(site,), slots=(checks.slot_of(values),), debug=debug)


def check_error(error: Error) -> None:
    """Raise JaxRuntimeError if `error` contains an error. Inside of `checkify`, add it to the errors of the program.

    Raise TypeError if `error` is not an `Error`.
    """
    if not isinstance(error, Error):
        raise TypeError(f"check_error takes an Error as argument, got type {type(error)} instead.")
    leaves = [error._code, *error._values]
    if not any_tracers(leaves):
        exception = error.get_exception()
        if exception is not None:
            runtime_error = JaxRuntimeError(str(exception))
            for note in getattr(exception, "__notes__", ()):
                runtime_error.add_note(note)
            raise runtime_error
    if error._sites:
        checks.check_p.bind(*leaves, sites=error._sites, slots=error._slots, debug=False)


@api_boundary
def checkify(
    f: Callable[..., Out], errors: frozenset[ErrorCategory] = user_checks
) -> Callable[..., tuple[Error, Out]]:
    """Return the function that returns an `Error` and the result of `f`: the first failed `check` or the first error of `errors`.

    `errors` is a set of categories such as `user_checks`, `nan_checks`, `div_checks`, `index_checks`, or a union of such sets. Checks do not
    change the result of `f`. Inner programs of jit, cond, scan, while_loop, remat, custom derivatives, vmap and shard_map are checked too.
    Raise TypeError if `f` is not callable or `errors` contains a value that is not a category.

    >>> error, y = checkify(lambda x: wnp.log(x), errors=float_checks)(wnp.array(-1.0))
    >>> error.get(), float(y)
    ('nan generated by primitive: log.', nan)
    """
    if not callable(f):
        raise TypeError(f"checkify: f must be callable, got {f!r}.")
    categories = frozenset(errors)
    for category in categories:
        if not (isinstance(category, type) and issubclass(category, JaxException)):
            raise TypeError(
                f"checkify: errors must be a set of error categories such as checkify.user_checks. It contains {category!r}."
            )

    @functools.wraps(f)
    @functools.partial(api_boundary, name="checkify")
    def checked(*args: Any, **kwargs: Any) -> tuple[Error, Out]:
        structure: list = []
        leaves, in_tree = tree.tree_flatten((args, kwargs))
        # Python numbers are not traced
        traced = [
            i for i, x in enumerate(leaves) if isinstance(x, np.ndarray) or hasattr(type(x), "aval")
        ]

        def flat(*values: Any) -> list:
            full = list(leaves)
            for i, x in zip(traced, values):
                full[i] = x
            positional, named = tree.tree_unflatten(in_tree, full)
            outs, out_tree = tree.tree_flatten(f(*positional, **named))
            structure.append(out_tree)
            return outs

        operands = [leaves[i] for i in traced]
        program, consts = hoist_tracers(
            stage(flat, [typeof(x) for x in operands], function_name(f))
        )
        sites, run = checks.functionalize_checks(program, categories)
        state, outs = run(*consts, *operands)
        return Error.make(state[0], state[1:], sites.sites, sites.slots), tree.tree_unflatten(
            structure[0], outs
        )

    return checked
