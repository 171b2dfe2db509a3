"""The first page of the site: its program, output, picture and numbers."""

import contextlib
import io
import json
import statistics
from typing import Any

from tests.harness.pages import blocks, needs_pages, page
from tests.harness.processes import ROOT
from tests.harness.scripts import load_script

pytestmark = needs_pages


def run_landing() -> tuple[dict[str, Any], str]:
    """Run the program of the first page; return its variables and its output."""
    (program,) = blocks("docs/index.md")
    session: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(program, session)
    return session, printed.getvalue()


def test_landing_program_prints_and_draws_what_is_shown():
    pictures = load_script("docs/make_pictures.py")
    session, printed = run_landing()
    assert blocks("docs/index.md", "text") == [printed]
    for name, picture in pictures.draw_landing(session).items():
        assert (pictures.PICTURES / name).read_text() == picture


def test_landing_numbers_are_those_of_the_records():
    rows = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    ratios = [row["ratio"] for row in rows if row.get("ratio")]
    (start,) = [row["best"] for row in rows if row["name"] == "start to jit grad"]
    peaks = [
        max(row["process_mib"]["weft"], 1) / max(row["process_mib"]["peer"], 1)
        for row in rows
        if "process_mib" in row
    ]
    text = " ".join(page("docs/index.md").read_text().split())
    mean, memory = (f"{statistics.geometric_mean(values):.2f}" for values in (ratios, peaks))
    assert f"{mean} of JAX's time: the geometric mean of {len(ratios)} cases" in text
    assert f"{memory} of JAX's peak memory: the geometric mean of {len(peaks)} cases" in text
    assert f"{start['weft']:.2f} s from the start" in text
    assert f"{start['peer']:.2f} s with JAX" in text


def test_site_check_finds_each_kind_of_problem(tmp_path):
    check = load_script("docs/check_site.py")
    (tmp_path / "api").mkdir()
    (tmp_path / "good.html").write_text('<h1 id="top">x</h1><a href="good.html#top">x</a>')
    assert check.problems(tmp_path) == []
    wide = "x" * 89
    (tmp_path / "api" / "bad.html").write_text(
        '<a href="../none.html">x</a><a href="../good.html#none">x</a><p>weft._engine</p><code class="notranslate">_Private</code>'
        f'<div class="highlight-python"><pre>&gt;&gt;&gt; f()\n{wide}\n</pre></div>'
        f'<div class="highlight-python"><pre>{wide}</pre></div>' + " " * 150_000
    )
    (tmp_path / "searchindex.js").write_text('Search.setIndex({"docnames": ["index", "tour"]})')
    assert len(check.problems(tmp_path)) == 7
    text = "\n".join(check.problems(tmp_path))
    for problem in (
        "../none.html does not exist",
        "../good.html#none has no such anchor",
        "code of 89 columns",
        "the limit is 150,000",
        "names weft._engine",
        "names _Private",
        "the search finds tour",
    ):
        assert problem in text
