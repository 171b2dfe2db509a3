"""Partition a function, run the local program on all devices in step and stacked, compare with the whole."""

from __future__ import annotations

import numpy as np

from tests.spmd.lockstep import Lockstep
from weft._engine.core.interpret import run_reference
from weft._engine.core.stage import stage
from weft._engine.core.trace import extend_axis_env, typeof
from weft._engine.ir.check import check_jaxpr
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.specs import P
from weft._engine.partition.partition import PartitionResult, partition
from weft._engine.partition.stack import stack
from weft._engine.runtime.device import devices


def make(**axes: int) -> Mesh:
    """Return a mesh of the first devices with axes of the given sizes."""
    n = int(np.prod(list(axes.values())))
    return Mesh(np.array(devices()[:n], object).reshape(list(axes.values())), tuple(axes))


def specs_of(specs, atoms):
    return [None if s is None else s.dims(a.aval.ndim) for s, a in zip(specs, atoms)]


def check(
    fun, args, mesh: Mesh, in_specs, out_specs=None, tolerance: float = 1e-5
) -> PartitionResult:
    """Partition flat `fun(*args) -> list` with PartitionSpecs (None: free) and compare with the global program."""
    args = [np.asarray(a) for a in args]
    jaxpr = stage(fun, [typeof(a) for a in args])
    out_specs = out_specs or [None] * len(jaxpr.outvars)
    result = partition(
        jaxpr, mesh, specs_of(in_specs, jaxpr.invars), specs_of(out_specs, jaxpr.outvars)
    )
    expected = run_reference(jaxpr, *args)
    with extend_axis_env(list(result.axes)):
        check_jaxpr(result.jaxpr)
    lockstep = Lockstep(result.axes)
    outs = lockstep.run(
        result.jaxpr, [lockstep.scatter(a, s) for a, s in zip(args, result.in_specs)]
    )
    for got, want, spec in zip(outs, expected, result.out_specs):
        same(lockstep.gather(got, spec), want, tolerance)
    if not any(eqn.primitive.kind == "region" for eqn in jaxpr.eqns):
        stacked = stack(result.jaxpr, result.axes, result.in_specs, result.out_specs)
        outs = run_reference(
            stacked, *(lockstep.block(a, s) for a, s in zip(args, result.in_specs))
        )
        for got, want in zip(outs, expected):
            same(lockstep.whole(got), want, tolerance)
    return result


def same(got, want, tolerance: float) -> None:
    """Assert that floats agree within `tolerance` of the largest one, and other dtypes exactly."""
    if want.dtype.kind in "fc":
        scale = max(1, np.abs(want).max(initial=0))
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * scale)
    else:
        np.testing.assert_array_equal(got, want)


def random(*shape, seed: int = 0, dtype=np.float32):
    return np.random.default_rng(seed + len(shape)).standard_normal(shape).astype(dtype)


__all__ = ["P", "check", "make", "random"]
