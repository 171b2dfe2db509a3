"""Resharding plans: correct by simulation, cheap by the cost of their steps."""

import itertools

import numpy as np
import pytest

from weft._engine.ir.collective_spec import collective_bytes
from weft._engine.ir.specs import grid_of_dims
from weft._engine.ops import collectives  # noqa: F401  (defines the collectives)
from weft._engine.partition.reshard import Placement, local_shape, permutation, plan, plan_cost

SIZES = {"a": 4, "b": 2, "c": 2}


def place(*dims: str, partial: str = "") -> Placement:
    return Placement(tuple(tuple(d) for d in dims), frozenset(partial))


@pytest.mark.parametrize(
    "source, target, kinds",
    [
        (place("a", ""), place("", "a"), ["all_to_all"]),
        (place("ab", ""), place("ba", ""), ["ppermute"]),
        (place("a", ""), place("ba", ""), ["own_slice", "ppermute"]),
        (place("b", ""), place("c", ""), ["ppermute"]),
        (place("", ""), place("a", "b"), ["own_slice", "own_slice"]),
        (place("a", "b"), place("a", ""), ["all_gather"]),
        (place("ab", ""), place("", ""), ["all_gather"]),
        (place("ab", ""), place("a", "b"), ["all_to_all"]),
        (place("", "", partial="a"), place("", ""), ["psum"]),
        (place("", "", partial="a"), place("a", ""), ["reduce_scatter"]),
        (place("", "", partial="ab"), place("", ""), ["psum"]),
        (place("b", "", partial="a"), place("b", "a"), ["reduce_scatter"]),
        (place("", "", partial="a"), place("b", ""), ["own_slice", "psum"]),
    ],
)
def test_cheapest_steps(source, target, kinds):
    assert [step.kind for step, _ in plan(source, target, (64, 64), 4, SIZES)] == kinds


def test_swapping_axes_never_gathers_everything():
    whole = collective_bytes("all_gather", 64 * 64 * 4 // 8, 8)
    for source, target in [
        (place("a", "b"), place("b", "a")),
        (place("ab", "c"), place("c", "ba")),
        (place("abc", ""), place("", "cba")),
    ]:
        assert plan_cost(source, target, (64, 64), 4, SIZES) < whole


def _all_placements(axes):
    for assignment in itertools.product((None, 0, 1), repeat=len(axes)):
        for order in itertools.permutations(range(len(axes))):
            dims = [tuple(axes[i] for i in order if assignment[i] == d) for d in (0, 1)]
            yield Placement(tuple(dims))


def test_every_plan_ends_at_its_target():
    places = list(dict.fromkeys(_all_placements("ab")))
    for source, target in itertools.product(places, places):
        steps = plan(source, target, (16, 16), 4, SIZES)
        assert (steps[-1][1] if steps else source) == target


def test_permutation_brings_every_device_its_block():
    for source, target in [
        (place("ab"), place("ba")),
        (place("b"), place("c")),
        (place("ab"), place("bca")),
    ]:
        if len(source.dims[0]) != len(target.dims[0]) and source.dims != target.dims:
            source = place("abc")
        axes, perm = permutation(source.dims, target.dims, SIZES)
        counts = tuple(SIZES[a] for a in axes)
        have = grid_of_dims(source.dims, axes, counts)[1]
        want = grid_of_dims(target.dims, axes, counts)[1]
        assert (
            sorted(s for s, _ in perm) == sorted(t for _, t in perm) == list(range(np.prod(counts)))
        )
        assert all(have[s] == want[t] for s, t in perm)


def test_dims_that_do_not_divide_are_left_alone():
    steps = plan(place("a", ""), place("", "a"), (8, 6), 4, {"a": 2})
    assert [s.kind for s, _ in steps] == ["all_to_all"]
    steps = plan(place("a", ""), place("", "b"), (8, 6), 4, SIZES)
    assert local_shape((8, 6), steps[-1][1].dims, SIZES) == (8, 3)


def test_costs():
    kinds = ("all_gather", "reduce_scatter", "all_to_all", "ppermute", "psum")
    assert [collective_bytes(k, 800, 4) for k in kinds] == [2400, 600, 600, 800, 1200]
    assert collective_bytes("psum", 800, 1) == 0
    with pytest.raises(ValueError, match="unknown collective"):
        collective_bytes("gossip", 1, 2)
