"""Fusion rules: each list covers all cases, each rule decides some case, and the page about new
rules is correct."""

import functools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.machine import check
from tests.harness.pages import needs_pages, page, run_examples
from weft import lax, nn
from weft._engine.compiler.fusion import fuse, graph, groups
from weft._engine.compiler.fusion.epilogue_fusion import EPILOGUE_RULES
from weft._engine.compiler.fusion.groups import GROUP_RULES, MOST_ROOTS
from weft._engine.compiler.fusion.inline_rules import INLINE_RULES
from weft._engine.compiler.rewrite.decompose import expand
from weft._engine.compiler.rewrite.simplify import simplify

X, ROWS = (
    np.linspace(-1, 1, 64 * 48, dtype=np.float32).reshape(64, 48),
    np.array([3, 60, 3], np.int32),
)
LISTS = {"inline": INLINE_RULES, "group": GROUP_RULES, "epilogue": EPILOGUE_RULES}


def program(function, *args):
    return simplify(weft.make_jaxpr(function)(*args))


def pooled(x):
    return lax.reduce_window(x, -np.inf, lax.max, (1, 3), (1, 2), "SAME").sum()


def long_chain(x):
    for _ in range(60):
        x = x[:, ::-1] * 1.5
    return x


LOOKED_UP = program(lambda x, rows: (wnp.exp(x)[rows], x[rows][:, ::-1]), X, ROWS)
PROGRAMS = {
    "gathers": LOOKED_UP,
    "softmax": program(nn.softmax, X),
    "sum of rows": program(lambda x: wnp.exp(x).sum(1), X),
    "sum of columns": program(
        lambda x: (wnp.exp(x), wnp.exp(x).sum(0)), np.zeros((1024, 64), np.float32)
    ),
    "bias and gelu": program(lambda x, w, b: nn.gelu(x @ w + b), X, X.T, np.ones(64, np.float32)),
    "long chain": program(long_chain, X),
    "a matmul's operand": program(lambda x, w: (wnp.exp(x) @ w, wnp.exp(x)[::-1]), X, X.T),
    "gradient of pooling": program(weft.grad(pooled), np.zeros((256, 1024), np.float32)),
    "pairs of pairs": program(
        lambda x: functools.reduce(lambda y, _: y[::2] + y[1::2], range(12), x),
        np.zeros(4096, np.float32),
    ),
    "many operands": program(
        lambda *xs: wnp.concatenate([wnp.concatenate(xs), xs[0]]), *[X[:2]] * 70
    ),
    "joined rows": program(
        lambda x, y: wnp.concatenate([x * 2, y + 1], -1), *[np.zeros((1024, 512), np.float32)] * 2
    ),
}


@pytest.mark.parametrize("rules", LISTS.values(), ids=LISTS)
def test_fusion_rules_are_named_and_the_last_always_applies(rules):
    names = [rule.name for rule in rules]
    assert len(set(names)) == len(names) and all(len(rule.why.split()) > 3 for rule in rules)
    assert rules[-1].applies(None)


def test_where_no_rule_applies_is_an_error():
    with pytest.raises(ValueError, match="no rule of fusion applies to 3"):
        graph.decide(
            [graph.FusionRule("none", "for this test alone", lambda candidate: False, True)], 3
        )


def test_every_rule_of_inlining_decides_something(monkeypatch):
    used = set()

    def decide(rules, candidate):
        used.update([next(rule.name for rule in rules if rule.applies(candidate))])
        return real(rules, candidate)

    real = graph.decide
    monkeypatch.setattr(graph, "decide", decide)
    for jaxpr in PROGRAMS.values():
        fuse.Fusion(jaxpr)
    rare = {
        "dilated operands"
    }  # a threshold, which `tests/budgets/test_kernels.py` checks by counts
    assert {rule.name for rule in INLINE_RULES} - used <= rare


@needs_pages
@pytest.mark.parametrize("native", [False, True])
def test_the_page_adds_a_rule_that_changes_kernels_and_no_values(native):
    def run():
        return check(LOOKED_UP, X, ROWS, native=native).kernel_count

    rules = list(INLINE_RULES)
    before = run()
    try:
        assert run_examples("adding-a-fusion-rule.md") >= 15
        assert len(INLINE_RULES) == len(rules) + 1
        assert (before, run()) == (3, 1)
    finally:
        INLINE_RULES[:] = rules
    assert run() == before


@needs_pages
def test_the_page_names_the_lists_where_they_are():
    text = page("adding-a-fusion-rule.md").read_text()
    for name, module in (
        ("INLINE_RULES", "inline_rules"),
        ("GROUP_RULES", "groups"),
        ("EPILOGUE_RULES", "epilogue_fusion"),
    ):
        assert f"| `{name}` | `weft/_engine/compiler/fusion/{module}.py` |" in text


def test_a_group_takes_no_more_roots_than_it_may():
    sums = program(lambda x: [x + float(k) for k in range(MOST_ROOTS + 1)], X)
    assert (
        len([item for item in fuse.Fusion(sums).items if isinstance(item, groups.KernelGroup)]) == 2
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "complex64"])
def test_products_that_nothing_sums_are_made_where_they_are_read(dtype):
    def function(total, a, b, column):
        outer = lax.dot_general(a, b, (((), ()), ((0,), (0,))))
        return total + outer, lax.dot_general(column, column, (((1,), (1,)), ((), ())))

    whole = lambda *shape: (np.arange(np.prod(shape)).reshape(shape) % 7 - 3).astype(
        wnp.dtype(dtype)
    )
    args = whole(3, 5, 4), whole(3, 5), whole(3, 4), whole(6, 1)
    program = expand(simplify(weft.make_jaxpr(function)(*args)))
    assert not any(eqn.primitive.kind in ("contract", "reduction") for eqn in program.eqns)
    total, a, b, column = (x.astype("complex64") for x in args)
    for got, want in zip(
        weft.jit(function)(*args), (total + a[:, :, None] * b[:, None, :], column @ column.T)
    ):
        assert got.dtype == dtype
        np.testing.assert_array_equal(np.asarray(got).astype("complex64"), want)
