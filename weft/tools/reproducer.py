"""Reproducers: Python files that run one wrong program again.

In:   a program, its arguments as NumPy arrays, and the error.
Out:  a file with the text of the program. It contains small arguments; others are in a `.npz` file
      next to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft._engine.api import execute
from weft._engine.api.calls.build import ProgramOptions
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.text.jaxpr import jaxpr_text
from weft._engine.ir.text.parse import JaxprSyntaxError, parse_jaxpr
from weft._engine.runtime.array import Array
from weft._engine.util.config import Override
from weft._engine.util.errors import VerificationError

#: the maximal number of elements of all arguments in the file itself
INLINE_ELEMENTS = 64

_TEMPLATE = '''"""{title}

Written by `weft check`. Run it with Python: it raises the error again, or says that the program is right.

{details}
"""
from pathlib import Path

import numpy as np
from numpy import array, inf, nan

from weft.tools.reproducer import reproduce

PROGRAM = """
{program}
"""

{arguments}

if __name__ == "__main__":
    reproduce(PROGRAM, ARGUMENTS)
'''


def mismatch_of(
    program: Jaxpr, args: Sequence[np.ndarray], check: str = "values"
) -> VerificationError | None:
    """Compile and run a program. Return the mismatch of its results, or None."""
    named_program = program.replace(name=program.name or "program")
    with Override(check=check):
        arrays: list[Array] = [execute.to_array(np.array(x)) for x in args]
        try:
            execute.run(named_program, arrays, ProgramOptions(f"jit({named_program.name})"))
        except VerificationError as error:
            return error
    return None


def reproduce(text: str, arguments: Sequence[np.ndarray]) -> None:
    """Run the program with the text `text` under the checks of stages and of values. Raise the
    error, if any."""
    program = parse_jaxpr(text)
    with Override(enable_x64=True):
        typed_arguments = [
            x.view(v.aval.dtype).reshape(v.aval.shape)
            for x, v in zip(arguments, program.invars, strict=True)
        ]
        error = mismatch_of(program, typed_arguments, "stages") or mismatch_of(
            program, typed_arguments
        )
    if error is not None:
        raise error
    print("The compiled program gives the results of its operations.")


def readable_text(program: Jaxpr) -> str:
    """Return the text of a program. Raise JaxprSyntaxError if the parser cannot read it."""
    text = jaxpr_text(program)
    try:
        parsed = parse_jaxpr(text)
    except (TypeError, AttributeError, KeyError) as error:
        raise JaxprSyntaxError(
            f"the program has a parameter that cannot be written as text ({error})"
        ) from error
    if len(parsed.invars) != len(program.invars):
        raise JaxprSyntaxError("the text has other arguments than the program")
    return text


def write_reproducer(path: Path, program: Jaxpr, args: Sequence[np.ndarray], error: str) -> None:
    """Write the file `path`, and large arguments next to it. Raise JaxprSyntaxError if the program
    has no readable text."""
    text = readable_text(program)
    title, _, details = error.replace("\\", "\\\\").replace('"""', "'''").partition("\n")
    values = [_plain(np.asarray(x)) for x in args]
    if sum(x.size for x in values) <= INLINE_ELEMENTS:
        lines = [f"    array({x.tolist()!r}, np.{x.dtype.name})," for x in values]
        arguments = "\n".join(["ARGUMENTS = [", *lines, "]"])
    else:
        data = path.with_suffix(".npz")
        np.savez(data, *values)
        arguments = (
            f'with np.load(Path(__file__).with_name("{data.name}")) as file:\n    DATA = dict(file)\n'
            'ARGUMENTS = [DATA[f"arr_{i}"] for i in range(len(DATA))]'
        )
    path.write_text(
        _TEMPLATE.format(
            title=title, details=details, program=text.replace("\\", "\\\\"), arguments=arguments
        )
    )


def _plain(x: np.ndarray) -> np.ndarray:
    """Return an array with a dtype of NumPy: extended floats become integers."""
    is_own: Any = x.dtype.kind in "biufc" and x.dtype.isbuiltin == 1
    return x if is_own else x.view(np.dtype(f"u{x.dtype.itemsize}"))
