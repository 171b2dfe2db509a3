"""Rows of which every second, third, ... is computed in another way: the ways stand one after the other in a loop's body.

In:   `Lowered` scalar code that asks what an index leaves when divided by a small number, as what is padded between its
      elements does: the gradient of a strided slice, of a pool, of a strided window.
Out:  for each such dim, how many of its rows one turn of the loops computes. With the remainder known the questions are
      answered while the code is made, and what the rows of a turn have in common is computed once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from weft.compiler.classify import MOST_APART
from weft.compiler.lower import Lowered, reachable
from weft.ir.loops import Const, Op

if TYPE_CHECKING:
    from weft.compiler.survey import Dim

MOST_WORK = 2048               # of a turn, in simple vector instructions, counted before anything is decided


def phases_of(low: Lowered, dims: list[Dim], price: int) -> dict[int, int]:
    """For dims of which only the remainder of the index decides what is computed: id of Dim -> rows of a turn."""
    if low.reductions or low.parts:
        return {}
    asked = _asked(low)
    found = {id(dim): n for dim in dims if (n := asked.get(id(low.vars[dim.dims[-1]]), 1)) > 1 and len(dim.dims) == 1
             and dim.extent % n == 0}
    count = math.prod(found.values())
    return found if count <= MOST_APART and price * count <= MOST_WORK else {}


def _asked(low: Lowered) -> dict[int, int]:
    """The common multiple of what each index is divided by where a remainder is compared: id of Index -> multiple."""
    found: dict[int, int] = {}
    for x in reachable([x for out in low.outputs for x in (out.index, out.value)]):
        if type(x) is Op and x.op == "eq":
            rest = next((a for a in x.args if type(a) is Op and a.op == "rem" and type(a.args[1]) is Const), None)
            if rest is not None:
                form = low.builder.affine(rest.args[0])
                for key in form[0] if form is not None else ():
                    found[key] = math.lcm(found.get(key, 1), rest.args[1].value)
    return found
