"""Run the code cells of a document in one process or several, and record the output and arrays of
each cell.

    python document_programs.py DOCUMENT RECORD [SIZE]

In:  a document with ```{code-cell} blocks or `In [number]:` cells; SIZE replaces the sizes of the
      former.
Out: RECORD, a JSON list with one entry per cell: its output, its error if any, and the sharding and
      some values of each array.
      Cells that read a whole array with shards in other processes use `process_allgather`, or run in the
      process that has the shards.
"""

import ast
import contextlib
import io
import json
import re
import sys
from pathlib import Path

import numpy as np


def read_through_collectives():
    """Make reads of arrays with remote shards gather them, in all processes."""
    import weft
    from weft._engine.runtime.array import Array, from_numpy
    from weft.experimental.multihost_utils import broadcast_one_to_all, process_allgather

    numpy_value, text, reading = (
        Array._numpy,
        {name: getattr(Array, name) for name in ("__repr__", "__str__")},
        [],
    )

    def is_own(x):
        return x.is_deleted() or reading or (x.is_fully_addressable and not x.committed)

    def read(x):
        if is_own(x):
            return numpy_value(x)
        reading.append(x)
        try:
            owners = {d.process_index for d in x.sharding.device_set}
            if len(owners) > 1:
                return process_allgather(x, tiled=True)
            mine = weft.process_index() in owners
            return broadcast_one_to_all(
                numpy_value(x) if mine else np.zeros(x.shape, x.dtype), is_source=mine
            )
        finally:
            reading.clear()

    def shown(name):
        return lambda x: text[name](
            x if is_own(x) else from_numpy(read(x), x.aval.update(sharding=None))
        )

    Array._numpy, Array._number = read, lambda x: None
    for name in text:
        setattr(Array, name, shown(name))


def of_one_process(text):
    """Adapt code that assumes that all devices are local, or that an array is placed on the first
    device."""
    text = text.replace("jax.local_devices()", "jax.devices()")
    return re.sub(
        r"jax.device_put\((\w+), jax.devices\(\)\[0\]\)",
        r"jax.tree.map(lambda _x: jnp.asarray(np.asarray(_x)), \1)",
        text,
    )


def cells_of(text, size):
    from tests.document import driver, notebook

    if "{code-cell}" in text:
        return [driver.rewrite(code, size) for code in driver.cells_of(text)]
    return [code for code, _ in notebook.cells_of(text)]


def run_cell(code, scope):
    tree = ast.parse(code)
    last = (
        ast.Expression(tree.body.pop().value)
        if tree.body and isinstance(tree.body[-1], ast.Expr)
        else None
    )
    exec(compile(tree, "<cell>", "exec"), scope)
    value = None if last is None else eval(compile(last, "<cell>", "eval"), scope)
    if value is not None:
        print(repr(value))


def arrays_of(code, scope):
    """Return the shardings and values of the arrays assigned at the top level of a cell."""
    import weft

    names = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    arrays = {}
    for name in sorted(names):
        x = scope.get(name)
        if type(x) is weft.Array and not x.is_deleted():
            value = np.asarray(x, np.float64).ravel()
            arrays[name] = {
                "sharding": str(x.sharding),
                "values": [*value[:: max(1, value.size // 40)].tolist(), float(value.sum())],
            }
    return arrays


def run(text, size):
    from weft.compat import install_as_jax

    install_as_jax()
    import weft

    if weft.process_count() > 1:
        read_through_collectives()
        text = of_one_process(text)
    scope, records = {"__name__": "__main__"}, []
    for code in cells_of(text, size):
        printed, error = io.StringIO(), None
        try:
            with contextlib.redirect_stdout(printed):
                run_cell(code, scope)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
        records.append(
            {
                "code": code,
                "printed": printed.getvalue(),
                "error": error,
                "arrays": {} if error else arrays_of(code, scope),
            }
        )
    return records


if __name__ == "__main__":
    document, target, *size = sys.argv[1:]
    import weft

    records = run(Path(document).read_text(), int((size or [0])[0]))
    if weft.process_index() == 0:
        Path(target).write_text(json.dumps(records))
