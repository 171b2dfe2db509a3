"""Checks of the arguments that are easily given in the wrong order: paths and numbers of steps.

In:   an argument, and the call as users write it, such as `checkpoint.save(path, tree, step)`.
Out:  an absolute path, or nothing; TypeError or ValueError, which never prints the values of arrays.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np


def absolute_path(call: str, path: Any) -> Path:
    """Return the absolute path; TypeError for an argument that is no path.

    >>> absolute_path("checkpoint.steps(path)", {"w": 1})
    Traceback (most recent call last):
    TypeError: checkpoint.steps: the path is a string or an os.PathLike, got a value of type dict. The order of the arguments is
    steps(path).
    """
    if not isinstance(path, (str, os.PathLike)):
        raise _type_error(call, "the path is a string or an os.PathLike", path)
    return Path(os.path.abspath(os.fspath(path)))


def check_integer(call: str, name: str, value: Any, least: int) -> None:
    """Check an integer argument: TypeError for other types, ValueError for less than `least`.

    >>> check_integer("checkpoint.save(path, tree, step)", "step", -1, 0)
    Traceback (most recent call last):
    ValueError: checkpoint.save: step is at least 0, got -1.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise _type_error(call, f"{name} is an integer of at least {least}", value)
    if value < least:
        raise ValueError(f"{_api(call)}: {name} is at least {least}, got {value}.")


def _api(call: str) -> str:
    return call.partition("(")[0]


def _type_error(call: str, rule: str, value: Any) -> TypeError:
    return TypeError(
        f"{_api(call)}: {rule}, got a value of type {type(value).__name__}. "
        f"The order of the arguments is {call.partition('.')[2]}."
    )
