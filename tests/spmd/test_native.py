"""Random programs through the whole compiler on eight devices, on each backend, against the reference interpreter."""

import numpy as np
import pytest

import weft
from tests.spmd.harness import same
from tests.spmd.test_random_programs import MESHES, Program, random_spec
from tests.spmd.test_uneven import random_program
from weft._engine.core.interpret import run_reference
from weft._engine.core.stage import stage
from weft._engine.core.trace import typeof
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import P


@pytest.mark.parametrize("seed", range(200, 240))
def test_random_program(seed):
    rng = np.random.default_rng(seed)
    program = Program(rng)
    mesh = MESHES[int(rng.integers(len(MESHES)))]
    args = [rng.standard_normal(s).astype(np.float32) for s in program.shapes]
    specs = [random_spec(rng, mesh, s) for s in program.shapes]
    specs[0] = specs[0] or P()  # at least one argument is committed to the mesh
    expected = run_reference(stage(program.run, [typeof(a) for a in args]), *args)
    outs = [random_spec(rng, mesh, w.shape) for w in expected]
    placed = [
        a if s is None else weft.device_put(a, NamedSharding(mesh, s)) for a, s in zip(args, specs)
    ]
    asked = [None if s is None else NamedSharding(mesh, s) for s in outs]
    got = weft.jit(program.run, out_shardings=asked)(*placed)
    on_reference = weft.jit(program.run, out_shardings=asked, backend="reference")(*placed)
    for x, y, want, sharding in zip(got, on_reference, expected, asked):
        same(np.asarray(x), want, 1e-3)
        same(np.asarray(y), want, 1e-4)
        assert sharding is None or x.sharding.is_equivalent_to(sharding, want.ndim)
        assert x._spec.splits == y._spec.splits and [s.index for s in x.global_shards] == [
            s.index for s in y.global_shards
        ]


@pytest.mark.parametrize("seed", range(30))
def test_random_program_with_uneven_dims(seed):
    rng = np.random.default_rng(2000 + seed)
    mesh = MESHES[int(rng.integers(len(MESHES)))]
    shape = tuple(int(s) for s in rng.integers(2, 24, 2))
    program = random_program(rng, mesh)
    x = rng.standard_normal(shape).astype(np.float32)
    expected = run_reference(stage(program, [typeof(x)]), x)
    placed = weft.device_put(x, NamedSharding(mesh, P()))
    for backend in ("cpu", "reference"):
        for y, want in zip(weft.jit(program, backend=backend)(placed), expected):
            same(np.asarray(y), want, 1e-3)
