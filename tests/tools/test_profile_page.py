"""The page of a profile: its sections as text, and its timeline in headless Chromium."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.profiler import record
from weft.sharding import NamedSharding, PartitionSpec as P
from weft.tools.profile.page import profile_page
from weft.tools.profile.program_sections import stage_texts
from weft.tools.profile.timeline_data import timeline_data
from weft.tools.svg import COLORS

X = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)


def program(x):
    y = wnp.tanh(x @ x)
    return weft.lax.scan(lambda c, row: (c @ x + row, c.sum()), y, wnp.stack([x, y, x]))


@pytest.fixture(scope="module")
def profile():
    with record() as recorded, weft.profiler.TraceAnnotation("train </script><b>step"):
        for _ in range(2):
            weft.jit(program)(X)
    return recorded


@pytest.fixture(scope="module")
def page(profile):
    return profile_page(profile, profile)


def text_of(page: str) -> str:
    """Return the visible text, without scripts and styles."""
    body = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)
    return html.unescape(re.sub(r"<[^>]+>", " ", body))


# --- the text


def test_page_has_all_sections(profile, page):
    text = text_of(page)
    for title in (
        "Timeline",
        "Cost by source line",
        "Comparison with the earlier profile",
        "Steps",
        "Memory over the schedule",
        "Collectives",
        "Shardings",
        "Program text by stage",
    ):
        assert title in text
    facts = profile.programs[-1]
    peak = facts.steps[facts.peak_step]
    assert (
        f"Peak: {facts.peak_bytes:,} B in step {peak.number}, {peak.name} at {peak.line}." in text
    )
    assert facts.steps[0].text in text
    for _, stage in stage_texts(profile.executables[-1]):
        assert stage[:200] in html.unescape(page)


def test_page_needs_no_network(page):
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=|url\(|@import|fetch\(|XMLHttpRequest", page)


def test_timeline_has_each_event_once(profile):
    data = timeline_data(profile)
    shown = sum(len(track.get("events", ())) for track in data["tracks"])
    whole = sum(len(call.records.rows) for call in profile.calls)
    assert shown == whole + len(profile.calls) + len(profile.host) and data["hidden"] == 0
    assert [track["name"] for track in data["tracks"]][-1] == "device 0"
    facts = profile.programs[-1]
    assert max(nbytes for _, nbytes in data["memory"]) == facts.peak_bytes


def test_events_beyond_the_limit_are_counted(profile, monkeypatch):
    monkeypatch.setattr("weft.tools.profile.timeline_data.MOST_EVENTS", 5)
    data = timeline_data(profile)
    assert data["hidden"] == sum(len(call.records.rows) for call in profile.calls) - 5


def test_collectives_and_shardings_are_on_the_page():
    mesh = weft.make_mesh((8,), ("x",))
    put = lambda *spec: weft.device_put(X, NamedSharding(mesh, P(*spec)))
    with record() as recorded:
        weft.jit(lambda a, b: a @ b)(put(None, "x"), put("x"))
    text = text_of(profile_page(recorded))
    assert "1 collective, " in text and "psum over x" in text
    assert "sums over a dim that is split over x" in text  # the reason
    assert "mesh: x 8" in text


def test_searches_for_shardings_are_on_the_page():
    mesh = weft.make_mesh((8,), ("x",))
    automatic = weft.jit(lambda a, b: a @ b, in_shardings=weft.AUTO(mesh))
    with record() as recorded:
        automatic(X, X)
    text = text_of(profile_page(recorded))
    assert "Automatic sharding" in text and re.search(r"Chosen by \w+: each device sends", text)
    assert len(re.findall(r"\bchosen\b", text)) == 2


def test_explain_page_shows_programs_without_collectives():
    explanation = weft.explain(program, X)
    text = text_of(explanation.to_html())
    assert "0 collectives" in text and "Steps" in text and "Memory over the schedule" in text
    assert "matmul 64x64x64 f32" in text and "test_profile_page.py" in text


# --- in a browser

REPORT = """
<script>
window.errors = [];
window.addEventListener("error", (event) => window.errors.push(event.message));
window.addEventListener("load", () => {
  const $ = (id) => document.getElementById(id);
  const key = (target, key) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const report = {}, box = $("timeline"), area = box.querySelector("canvas").getBoundingClientRect();
  const clickAt = (x, y) => {
    const hit = document.elementFromPoint(area.left + x, area.top + y);
    hit.dispatchEvent(new MouseEvent("click", { bubbles: true, clientX: area.left + x, clientY: area.top + y }));
    return hit.tagName;
  };
  report.whole = $("range").textContent;
  report.hit = clickAt(area.width - 40, 29);
  report.clicked = $("details").textContent;
  clickAt(area.width - 40, 10);
  report.nothing = $("details").textContent;
  $("zoom-in").click();
  report.zoomed = $("range").textContent;
  key(box, "ArrowLeft");
  report.moved = $("range").textContent;
  key(box, "0");
  report.fit = $("range").textContent;
  key(document.body, "/");
  report.focus = document.activeElement.id;
  $("search").value = "matmul";
  $("search").dispatchEvent(new Event("input"));
  report.matches = $("matches").textContent;
  key($("search"), "Enter");
  report.match = $("details").textContent;
  key(box, "]");
  report.next = $("details").textContent;
  key($("search"), "Escape");
  report.back = document.activeElement.id;
  report.resources = performance.getEntriesByType("resource").length;
  report.background = getComputedStyle(document.body).backgroundColor;
  report.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  report.errors = window.errors;
  const shown = document.body.appendChild(document.createElement("pre"));
  shown.id = "report";
  shown.textContent = JSON.stringify(report);
});
</script>
"""


def report_of(page: str, folder, *options: str) -> dict:
    """Open the page in Chromium, use it, and return what it showed."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs Chromium: there is no `chromium` on the path")
    path = folder / "page.html"
    path.write_text(page.replace("<body>", f"<body>{REPORT}"))
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"]
    done = subprocess.run(
        [*command, *options, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    report = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, re.S)
    assert report, done.stderr[-2000:]
    return json.loads(html.unescape(report[1]))


def test_timeline_answers_clicks_keys_and_searches(profile, page, tmp_path):
    report = report_of(page, tmp_path, "--window-size=1200,900")
    assert report["errors"] == [] and report["resources"] == 0
    assert report["hit"] == "CANVAS"
    assert (
        report["clicked"].startswith("eventtrain </script><b>step")
        and "annotation" in report["clicked"]
    )
    assert report["nothing"] == ""
    ranges = [report[name] for name in ("whole", "zoomed", "moved")]
    assert len({*ranges}) == 3 and report["fit"] == report["whole"]
    assert report["focus"] == "search" and report["back"] == "timeline"
    matmuls = [e for e in profile.events() if e.facts.kind == "matmul"]
    assert report["matches"] == f"{len(matmuls) + len([e for e in matmuls if not e.tasks])} events"
    assert "matmul 64x64x64 f32" in report["match"] and "y = wnp.tanh(x @ x)" in report["match"]
    assert report["next"] not in ("", report["match"])


@pytest.mark.parametrize(("scheme", "mode"), [(0, 1), (1, 0)], ids=["dark", "light"])
def test_page_follows_the_color_scheme_on_small_screens(page, tmp_path, scheme, mode):
    report = report_of(
        page, tmp_path, "--window-size=500,800", f"--blink-settings=preferredColorScheme={scheme}"
    )
    rgb = tuple(bytes.fromhex(COLORS["paper"][mode][1:]))
    assert report["background"] == f"rgb{rgb}"
    assert report["errors"] == [] and report["overflow"] == 0
