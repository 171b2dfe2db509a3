"""Padding with zeros by copying long runs, without a kernel.

In:   a `pad` equation, its padding value if it is constant, and the strides of its operand.
Out:  `rows_of(eqn, strides)`: the fields of a `Pad` step except buffers; None if a kernel must compute the padding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from weft._engine.compiler.fusion.classify import computes
from weft._engine.ir.jaxpr import Atom, Eqn, Literal, Var

# thresholds, measured on several machines
#: minimal size of the result of a padding that is copied in runs
PAD_BYTES = 1 << 15
#: minimal size of a run
PAD_RUN_BYTES = 1 << 8


def is_zero(atom: Atom, producer: Mapping[Var, Eqn], consts: Mapping[Var, object]) -> bool:
    """Return whether a scalar is a constant positive zero, possibly converted to another dtype."""
    if type(atom) is not Literal and (eqn := producer.get(atom)) is not None:
        return computes(eqn) == "cast" and is_zero(eqn.invars[0], producer, consts)
    value = atom.val if type(atom) is Literal else consts.get(atom)
    return value is not None and not np.asarray(value).tobytes().strip(b"\0")


def rows_of(eqn: Eqn, strides: Sequence[int]) -> dict | None:
    """Return the sizes, in bytes, of a padding with zeros that has long enough runs; otherwise None. `strides` are in elements."""
    operand, aval, config = eqn.invars[0].aval, eqn.outvars[0].aval, eqn.params["padding_config"]
    if (
        not operand.size
        or aval.nbytes < PAD_BYTES
        or any(lo < 0 or hi < 0 or interior for lo, hi, interior in config)
    ):
        return None
    row = run = size = aval.dtype.itemsize
    lead, dims = 0, []
    for extent, stride, (lo, hi, _) in reversed([*zip(operand.shape, strides, config)]):
        padded = lo + extent + hi
        if not dims and row == run and (stride * size == run or extent == 1):
            # all inner dims are one run
            row, lead, run = row * padded, lo * run, run * extent
        elif padded > 1:
            dims.append((padded, lo, extent, stride * size))
    if run < PAD_RUN_BYTES:
        return None
    return {
        "row": row,
        "lead": lead,
        "run": run,
        "rows": math.prod(padded for padded, *_ in dims),
        "dims": tuple(dims),
    }
