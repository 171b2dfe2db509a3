"""Run the code cells of an exported notebook in order in this process, and record what each printed.

    python notebook.py DOCUMENT RECORD

In:  a text whose cells start with a line `In [number]:`, followed by code, printed output, and prose.
Out: RECORD, a JSON list with the code, the text that the document shows after it, what was printed (the value that the cell
     ends in included), and the error if any. `%timeit` lines become a few plain runs.

Nothing marks where the code of a cell ends: it is the longest run of paragraphs that is Python.
"""

import ast
import contextlib
import io
import json
import re
import sys
import traceback
from pathlib import Path

import weft

_START = re.compile(r"^In \[[^\]\n]*\]:\n", re.MULTILINE)
_TIMEIT = re.compile(r"^%timeit(?: -\w+ \d+)* (.*)$")


def cells_of(text):
    """Return the (code, text after it) of every cell; shell lines become `pass`, timings a loop."""
    return [_divide(part.split("\n")) for part in _START.split(text)[1:]]


def _divide(lines):
    code = [
        "pass" if line.startswith("!") else _TIMEIT.sub(r"for _ in range(3): \1", line)
        for line in lines
    ]
    shown = next(
        (k for k, line in enumerate(lines) if line.startswith("Array(")), len(lines)
    )  # a value, not code
    ends = [k for k in range(1, shown + 1) if k == len(lines) or not lines[k]]
    end = max((k for k in ends if _is_python(code[:k])), default=0)
    return "\n".join(code[:end]), "\n".join(lines[end:])


def _is_python(lines):
    try:
        ast.parse("\n".join(lines))
        return True
    except SyntaxError:
        return False


def run_cell(code, number, scope):
    """Execute a cell as a notebook would: the value that it ends in is shown."""
    tree = ast.parse(code, f"<cell {number}>")
    last = (
        ast.Expression(tree.body.pop().value)
        if tree.body and isinstance(tree.body[-1], ast.Expr)
        else None
    )
    exec(compile(tree, f"<cell {number}>", "exec"), scope)
    value = None if last is None else eval(compile(last, f"<cell {number}>", "eval"), scope)
    if value is not None:
        print(repr(value))


def run(text):
    """Return the record of every cell."""
    from weft.compat import install_as_jax

    install_as_jax()
    scope = {"__name__": "__main__"}
    records = []
    for number, (code, shown) in enumerate(cells_of(text)):
        printed, error = io.StringIO(), None
        try:
            with contextlib.redirect_stdout(printed):
                run_cell(code, number, scope)
        except Exception:
            error = traceback.format_exc()
        records.append(
            {"code": code, "shown": shown, "printed": printed.getvalue(), "error": error}
        )
    return records


def platform() -> str:
    """Return the platform of the devices that cells run on, as pictures of shardings name it."""
    return weft.default_backend().upper()


def run_apart(document, target):
    """Run every cell in a separate process on eight devices; return the records and the process's error output."""
    from tests.harness.processes import run_python

    done = run_python(__file__, document, target, timeout=300, WEFT_NUM_DEVICES="8")
    assert done.returncode == 0, done.stderr
    return json.loads(target.read_text()), done.stderr


if __name__ == "__main__":
    document, target = map(Path, sys.argv[1:])
    target.write_text(json.dumps(run(document.read_text()), indent=1))
