"""A sample of the random programs, and the faults that their judge detects."""

import os

import numpy as np
import pytest

from tests.fuzz import campaign, judge, runner
from tests.fuzz.programs import make

SLICES = 8  # of 25 programs each


@pytest.mark.parametrize("part", range(SLICES))
def test_programs_of_this_commit(part):
    """Runs 200 new programs in each commit, divided among sharded, whole, on the reference backend,
    op by op and from disk."""
    first = campaign.sample_seed(SLICES * 25) + part * 25
    faults = campaign.run(first, first + 25, seconds=300.0, what="programs")
    command = "python -m tests.fuzz.campaign --what programs --show"
    assert not faults, "\n".join(
        f"{fault.kind}: {fault.text}\n  {command} {fault.seed}" for fault in faults
    )


@pytest.fixture(scope="module", autouse=True)
def servers():
    yield
    judge.close()


@pytest.mark.oracle
def test_a_sample_beside_the_peer():
    assert os.environ.get("WEFT_ORACLE_PYTHON"), "names the peer's Python"
    assert {
        seed: fault for seed in range(100) if (fault := judge.compare_with_peer(make(seed)))
    } == {}


def test_a_seed_is_one_program():
    assert [make(seed) for seed in range(30)] == [make(seed) for seed in range(30)]


def test_programs_are_of_all_kinds():
    programs = [make(seed) for seed in range(400)]
    text = "".join(p.text for p in programs)
    for word in (
        "shard_map",
        "psum_scatter",
        "all_to_all",
        "ppermute",
        "axis_names",
        "api.grad",
        "api.vmap",
        "lax.scan",
        "int8",
        "bfloat16",
        "custom_jvp",
        "custom_vjp",
        "checkpoint_policies",
        "dot_general",
        "batch_group_count",
        "lax.pad",
        "donate_argnums",
        "pure_callback",
        "new_ref",
        "BCOO",
        "pallas_call",
        "deserialize",
    ):
        assert word in text, word
    assert {kind for p in programs for _, _, kind in p.arguments} == {"normal", "special", "tiny"}
    for fact in ("explicit", "x64", "wild", "uneven"):
        assert {getattr(p, fact) for p in programs} == {True, False}, fact
    assert {"float64", "int4", "complex64", "float8_e5m2", "uint16"} <= {
        dtype for p in programs for _, dtype, _ in p.arguments
    }


def _said(got, want, exact):
    return judge.difference(
        [np.asarray(got)],
        [np.asarray(want)],
        (exact,),
        judge.tolerance_of(PLAIN, runner.task_of(PLAIN), [np.asarray(want)]),
    )


PLAIN = make(0)._replace(
    text="def main():\n    return [near(xp.asarray(1, xp.float32))]\n",
    arguments=(),
    specs=(),
    explicit=False,
    x64=False,
)


@pytest.mark.parametrize(
    "got, want, exact, is_fault",
    [
        (1.0, 1.0, True, False),
        (0.0, -0.0, True, True),
        (np.nan, np.nan, True, False),
        (3, 4, False, True),
        (True, False, False, True),
        (np.float32(1.00001), np.float32(1), False, False),
        (np.float32(1.001), np.float32(1), False, True),
        (np.float32(np.inf), np.float32(1), False, True),
        (np.float32(1), np.float16(1), False, True),
        (0.0, -0.0, False, False),
    ],
)
def test_what_differs(got, want, exact, is_fault):
    assert (_said(got, want, exact) is not None) == is_fault


def test_noise_widens_what_may_differ():
    """The error of a difference of nearly equal numbers is the rounding error of its operands."""
    text = "def main():\n    return [near(1e6 * xp.sin(near(xp.asarray(0.5, xp.float32))) - near(xp.asarray(479425.5, xp.float32)))]\n"
    program = PLAIN._replace(text=text)
    task = runner.task_of(program)
    want = judge.runner.results(judge.weft, task)
    assert (
        judge.difference(
            [want[0] + np.float32(0.125)], want, (False,), judge.tolerance_of(program, task, want)
        )
        is None
    )
    assert (
        judge.difference(
            [want[0] + np.float32(9)], want, (False,), judge.tolerance_of(program, task, want)
        )
        is not None
    )
