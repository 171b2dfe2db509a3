"""The HTML page of a sharding plan."""

import html

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.harness.page_tags import Tags
from weft.tools.automatic import plan_page
from weft.tools.automatic.annotations import AnnotatedProgram, Annotation
from weft.tools.automatic.plan_report import PlanReport


def struct(*shape, dtype=np.float32):
    return weft.ShapeDtypeStruct(shape, dtype)


def train(params, x):
    def loss(params):
        h = wnp.where(x @ params["<up>"] < 0, 0, x @ params["<up>"])
        return ((h @ params["down"] - x) ** 2).mean()

    return weft.tree.map(lambda p, g: p - 0.1 * g, params, weft.grad(loss)(params))


train.__name__ = "<b>train</b>"


@pytest.fixture(scope="module")
def plan():
    params = {"<up>": struct(128, 512), "down": struct(512, 128)}
    mesh = weft.make_mesh((8,), ("x",))
    return weft.auto.shardings(train, params, struct(64, 128), mesh=mesh, donate_argnums=0)


@pytest.fixture(scope="module")
def page(plan):
    return plan.html()


def assert_whole(page):
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.loads == []
    assert "script" not in tags.count
    assert not any(word in page for word in ("http", "url(", "@import"))
    return tags


def test_page_has_every_part(page, plan):
    tags = assert_whole(page)
    text = html.unescape(page)
    for part in (
        "Price of a call: ",
        "Each device holds at most ",
        ">arguments<",
        ">intermediate values, largest first<",
        ">results<",
        "<h2>Compared with</h2>",
        "<h2>Annotations</h2>",
        "ordinary partitioner",
        "FSDP",
        "collective",
        "test_plan_page.py:",
        "prefers-color-scheme: dark",
    ):
        assert part in text, part
    assert tags.count["svg"] >= len(plan.inputs) + len(plan.outputs)
    assert f"{plan.inputs[0].name}</td>" in text or f"{plan.inputs[0].name}<div" in text


def test_page_gives_reasons(page, plan):
    sentence = plan.why(plan.inputs[0].path).partition(": ")[2]
    assert sentence in html.unescape(page)
    assert "the next best layout, P(" in html.unescape(page)


def test_page_has_a_bar_for_each_way_to_shard(page, plan):
    comparison = page.partition("<h2>Compared with</h2>")[2].partition("<h2>")[0]
    assert comparison.count('class="bar"') == len(plan.compare().costs)


def test_page_escapes_text_of_the_program(page):
    assert "&lt;b&gt;train&lt;/b&gt;" in page
    assert "<b>" not in page
    assert "<up>" not in page
    assert "&lt;up&gt;" in page


def test_page_has_annotations_as_code(plan):
    report = PlanReport(plan)
    annotation = Annotation("m.py:3 <x>", "add", "f32[8]", (("x",),))
    report.annotated = AnnotatedProgram((annotation,), plan.decision.result, 1.01)
    section = plan_page._annotations(report)
    assert "1 constraint, the ordinary partitioner reproduces the plan within 2 %:" in section
    assert "x = lax.with_sharding_constraint(x, P('x'))" in html.unescape(section)
    assert "# add f32[8] at m.py:3 &lt;x&gt;" in section


def test_price_of_memory_is_a_curve(plan):
    report = PlanReport(plan)
    report.price_of_memory = [(3e9, 1e6), (1e9, 4e6), (2e9, 2e6)]
    section = plan_page._price_of_memory(report)
    assert_whole(section)
    assert section.count("<circle") == 3
    points = section.partition('points="')[2].partition('"')[0].split()
    xs, ys = zip(*(map(float, point.split(",")) for point in points))
    assert list(xs) == sorted(xs)
    assert list(ys) == sorted(ys)  # a price falls, and y grows downwards
    assert "3.00 GB" in section
    report.price_of_memory = [(1e9, 4e6)]
    assert_whole(plan_page._price_of_memory(report))
    report.price_of_memory = []
    assert plan_page._price_of_memory(report) == ""


def test_notebook_shows_the_plan_without_searches(plan, monkeypatch):
    def refuse(*_):
        raise AssertionError("a search")

    monkeypatch.setattr(type(plan.decision.optimizer), "alternative", refuse)
    shown = plan._repr_html_()
    assert_whole(shown)
    assert "Price of a call: " in shown
    assert "test_plan_page.py:" in shown


def test_loaded_plan_has_a_page(plan, tmp_path):
    plan.save(tmp_path / "plan.json")
    page = weft.auto.load(tmp_path / "plan.json").html()
    assert_whole(page)
    assert ">arguments<" in page
    assert "intermediate values" not in page


def transformer_step(params, tokens):
    def loss(params):
        x = params["embed"][tokens]
        for up, down in params["layers"]:
            x = x + wnp.maximum(x @ up, 0) @ down
        return (wnp.log(wnp.exp(x @ params["head"]).sum(-1)) - x.sum(-1)).mean()

    return weft.tree.map(lambda p, g: p - 0.1 * g, params, weft.grad(loss)(params))


def test_page_of_twelve_layers_is_small(monkeypatch):
    monkeypatch.setattr(plan_page, "MOST_REASONS", 1)
    monkeypatch.setattr(plan_page, "MOST_INTERMEDIATE_REASONS", 1)
    params = {
        "embed": struct(512, 128),
        "layers": [(struct(128, 512), struct(512, 128)) for _ in range(12)],
        "head": struct(128, 512),
    }
    mesh = weft.make_mesh((8,), ("x",))
    tokens = struct(16, 64, dtype=np.int32)
    plan = weft.auto.shardings(transformer_step, params, tokens, mesh=mesh, donate_argnums=0)
    report = PlanReport(plan)
    report.price_of_memory = []  # one line of the page, and one search for each of its points
    page = plan_page.plan_page(report)
    assert_whole(page)
    assert 10_000 < len(page) < 2_000_000
