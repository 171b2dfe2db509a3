"""Random whole programs: compiled code and the reference backend give the same values, on one device and on eight with random
shardings, and no kernel writes outside its buffers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import weft
from tests.differential.programs import Program, make
from tests.harness.guards import guarded
from weft import lax, nn, numpy as wnp
from weft._engine.util.config import Override
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

MESHES = [((8,), ("x",)), ((4, 2), ("x", "y")), ((2, 2, 2), ("x", "y", "z"))]


def load(program: Program):
    return program.load(api=weft, xp=wnp, lax=lax, nn=nn)


@st.composite
def programs(draw) -> Program:
    return make(lambda options: draw(st.sampled_from(list(options))))


def leaves(tree) -> list[np.ndarray]:
    return [np.asarray(x) for x in weft.tree.leaves(tree)]


def agree(got, want, program: Program, what: str) -> None:
    """Assert equality up to rounding, relative to the largest value of each result."""
    got, want = leaves(got), leaves(want)
    assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want], (
        f"{what}\n{program.text}"
    )
    for g, w in zip(got, want):
        scale = max(1.0, float(np.max(np.abs(w), initial=0)))
        np.testing.assert_allclose(
            g, w, rtol=2e-4, atol=2e-4 * scale, err_msg=f"{what}\n{program.text}"
        )


@settings(max_examples=60)
@given(program=programs())
def test_compiled_and_reference_agree(program):
    main, args = load(program), [wnp.asarray(a) for a in program.arguments()]
    with guarded():
        compiled = main(*args)
    with Override(backend="reference"):
        reference = load(program)(*args)
    agree(compiled, reference, program, "cpu, reference")
    agree(weft.jit(main)(*args), reference, program, "one program, reference")


@settings(max_examples=40)
@given(program=programs(), data=st.data())
def test_sharded_and_whole_agree(program, data):
    main, args = weft.jit(load(program)), [wnp.asarray(a) for a in program.arguments()]
    shape, names = data.draw(st.sampled_from(MESHES))
    mesh = Mesh(np.array(weft.devices()).reshape(shape), names)
    split = [weft.device_put(a, NamedSharding(mesh, _spec(data, a.shape, mesh))) for a in args]
    with guarded():
        sharded = main(*split)
    how = f"sharded as {[str(s.sharding.spec) for s in split]} on {mesh}"
    agree(sharded, main(*args), program, how)
    alone = weft.jit(load(program), backend="reference")(*split)
    assert all(
        x.sharding.device_set <= set(weft.devices("reference")) for x in weft.tree.leaves(alone)
    )
    agree(sharded, alone, program, f"reference, {how}")


def _spec(data, shape, mesh) -> P:
    """Return a random spec whose axes divide the dims."""
    free, entries = list(mesh.axis_names), []
    for n in shape:
        fitting = [a for a in free if n % mesh.shape[a] == 0]
        axis = data.draw(st.sampled_from([None, *fitting]))
        if axis is not None:
            free.remove(axis)
        entries.append(axis)
    return P(*entries)


@pytest.mark.parametrize("seed", range(3))
def test_programs_can_be_replayed(seed):
    import random

    first, second = (make(random.Random(seed).choice) for _ in range(2))
    assert first == second
