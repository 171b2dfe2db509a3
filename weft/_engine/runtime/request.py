"""A request to compile one program."""

from __future__ import annotations

from collections.abc import Sequence

from weft._engine.backends.array_spec import ArraySpec
from weft._engine.backends.base import Backend
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.shardings import Sharding
from weft._engine.util.record import record


@record
class CompileRequest:
    """A program without constants, for inputs laid out as `in_specs` on the devices `assignment`.

    Layouts may name devices of another backend; those of `backend` have the same ids. Outputs without a sharding get the one that
    propagation finds. On a mesh with explicit axes, outputs without a sharding in their types keep these axes; with a mesh in context
    (`in_context`), such axes are automatic. Uncommitted inputs may be moved; committed ones are read where they are.
    """

    jaxpr: Jaxpr
    in_specs: Sequence[ArraySpec]
    out_shardings: Sequence[Sharding | None]
    donated: Sequence[int]
    name: str
    assignment: tuple
    in_context: bool
    backend: Backend
