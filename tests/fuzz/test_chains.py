"""Chains of ordinary ops: a sample that changes with every commit, faults detected earlier, the
table.

A failing seed prints the command that reproduces it. Copy its minimized program into
`chain_findings.FINDINGS`, and its name into `OPEN` until its fault is fixed.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import weft.numpy as wnp
from tests.fuzz import campaign, chain_judge, chain_shrink, chains, runner
from tests.fuzz.chain_body import ChainBody
from tests.fuzz.chain_findings import FINDINGS, OPEN
from tests.fuzz.chain_judge import ChainServer, Verdict
from tests.fuzz.chain_ops import OPS
from tests.fuzz.chains import BLOCK, Chain

SLICES = 6  # 750 chains
MOST_EXPLAINED = 3  # of a slice: rounding that op-by-op execution has, too


@pytest.mark.parametrize("part", range(SLICES))
def test_chains_of_this_commit(part):
    """Compiled chains equal op-by-op execution: 750 new ones in each commit."""
    first = campaign.sample_seed(SLICES * BLOCK) + part * BLOCK
    verdicts = campaign.run(first, first + BLOCK, seconds=300.0, what="chains")
    faults = [v for v in verdicts if v.kind != "explained"]
    command = "python -m tests.fuzz.campaign --what chains"
    assert not faults, "\n".join(
        f"{v.kind}: {v.text}\n  show:     {command} --show {v.seed}"
        f"\n  minimize: {command} --minimize {v.seed}"
        for v in faults
    )
    assert len(verdicts) <= MOST_EXPLAINED, verdicts


@pytest.fixture(scope="module")
def verdict_of():
    """Judge chains in a separate process, which may crash."""
    judge = ChainServer("4")

    def verdict_of(chain):
        answer = judge.ask(chain, "judge")
        return Verdict("crash", answer) if isinstance(answer, str) else answer

    yield verdict_of
    judge.close()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.xfail(strict=True)) if name in OPEN else name
        for name in FINDINGS
    ],
)
def test_faults_found_before_stay_fixed(name, verdict_of):
    verdict = verdict_of(FINDINGS[name])
    assert verdict.kind in ("ok", "explained"), verdict.text


def test_pairs_of_families_with_a_permutation(verdict_of):
    """Run every 400th of all op, transpose, op."""
    numbers = range(campaign.sample_seed(SLICES * BLOCK) % 400, chains.count_pairs(), 400)
    pairs = {n: chains.make_pair(n) for n in numbers}
    verdicts = {n: verdict_of(c) for n, c in pairs.items() if c is not None}
    assert len(verdicts) > 60
    assert {n: v for n, v in verdicts.items() if v.kind not in ("ok", "explained")} == {}


# ---- the generator


def test_a_seed_is_one_chain():
    assert [chains.make(seed) for seed in range(50)] == [chains.make(seed) for seed in range(50)]


def test_chains_use_every_op_and_setting():
    sample = [chains.make(seed) for seed in range(4000)]
    assert len(OPS) >= 90
    assert {name for c in sample for name in c.ops} == set(OPS)
    assert {c.transformation for c in sample} == set(chains.TRANSFORMATIONS)
    assert {a.dtype for c in sample for a in c.arguments} >= set(chains.DTYPES)
    assert {c.mesh for c in sample} == {(), *chains.MESHES}
    assert {len(a.shape) for c in sample for a in c.arguments} >= {0, 1, 2, 3, 4, 5}
    assert {a.values for c in sample for a in c.arguments} == {"normal", "whole", "mask"}
    assert max(c.largest for c in sample) > 1 << 18
    assert any(0 in a.shape for c in sample for a in c.arguments)
    assert any(c.donated for c in sample)
    assert any(len(c.results) > 1 for c in sample)


def test_most_pairs_have_a_program():
    numbers = range(0, chains.count_pairs(), 41)
    programs = [chains.make_pair(n) for n in numbers]
    assert sum(p is not None for p in programs) > 0.8 * len(numbers)


# ---- the judge


def _chain(*lines: str, exact: bool = False, shape=(5, 7), **parts) -> Chain:
    """Return a chain of one argument whose ops are given as expressions."""
    body = ChainBody(random.Random(0), 1 << 12)
    x = body.argument(shape, "float32")
    for line in lines:
        x = body.like(line.format(x.name), x, exact)
    return Chain(tuple(body.arguments), tuple(body.statements), (x,), **parts)


@pytest.mark.parametrize("way", ["compiled", "reference", "op by op", "float64"])
@pytest.mark.parametrize("transformation", ["none", "vmap", "grad", "jvp", "scan", "remat"])
def test_ways_agree_on_a_chain(way, transformation):
    axes = (1,) if transformation in ("vmap", "scan") else ()
    chain = _chain(
        "xp.sin({0})", "xp.cumsum({0}, 1)", transformation=transformation, axes=axes, batch=3
    )
    got, want = chain_judge.evaluate(chain, way), chain_judge.evaluate(chain, "reference")
    assert len(got) == len(want) > 0
    for x, y in zip(got, want):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_a_wrong_compiled_value_is_a_fault(monkeypatch):
    chain, evaluate = _chain("xp.sin({0})"), chain_judge.evaluate

    def wrong(chain, way="compiled", **options):
        results = evaluate(chain, way, **options)
        return [x * np.float32(1.001) for x in results] if way == "compiled" else results

    monkeypatch.setattr(chain_judge, "evaluate", wrong)
    assert chain_judge.judge_chain(chain).kind == "fault"


def test_a_wrong_op_alone_is_a_fault(monkeypatch):
    """A native kernel that is wrong op by op, too, is not a rounding effect."""
    chain, evaluate = _chain("xp.sin({0})"), chain_judge.evaluate

    def wrong(chain, way="compiled", **options):
        results = evaluate(chain, way, **options)
        return (
            [x * np.float32(1.001) for x in results] if way in ("compiled", "op by op") else results
        )

    monkeypatch.setattr(chain_judge, "evaluate", wrong)
    verdict = chain_judge.judge_chain(chain)
    assert (verdict.kind, verdict.text[:12]) == ("fault", "one op alone")


def test_rounding_of_a_single_op_is_no_fault():
    assert chain_judge.judge_chain(_chain("xp.sin({0})", "xp.cumsum({0}, 0)")).kind == "ok"


def test_noise_reaches_the_sums_of_repeated_elements():
    """The mean of equal elements is rounded; noise on the argument that was repeated would cancel."""
    chain = _chain("xp.broadcast_to({0}[:1], {0}.shape)", exact=True)
    text = chain.text.replace(
        "    return", "    v9 = near(v0 - xp.mean(v0, 0))\n    return"
    ).replace("[v0, ]", "[v9, ]")
    noisy = {"near": runner.near_of(wnp, 0), "xp": wnp}
    exec(chain_judge._with_noisy_operands(text), noisy)
    (result,) = noisy["main"](*map(wnp.asarray, chain.arrays()))
    assert np.abs(np.asarray(result)).max() > 0


def test_float64_keeps_random_numbers():
    chain = _chain("{0} + api.random.normal(api.random.key(3), (5, 7), xp.float32)")
    (wide,), (narrow,) = (chain_judge.evaluate(chain, way) for way in ("float64", "reference"))
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, narrow, rtol=1e-5, atol=1e-6)


def test_shrinking_keeps_the_op_that_fails(monkeypatch):
    chain = _chain("xp.sin({0})", "xp.sort({0}, 1)", "xp.cos({0})", "-{0}")
    monkeypatch.setattr(
        chain_shrink, "_fails", lambda judge, c: any("sort" in s.text for s in c.statements)
    )
    monkeypatch.setattr(chain_shrink, "_redraw", lambda chain: iter(()))
    small = chain_shrink.shrink(replace(chain, donated=(0,)))
    assert [s.text for s in small.statements] == ["xp.sort(a0, 1)"]
    assert "xp.sort(a0, 1)" in chain_shrink.script(small, "a title")
