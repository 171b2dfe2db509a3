"""Pages in headless Chromium: too wide pages and errors of the browser are reported."""

import shutil

import pytest

from tests.harness.scripts import load_script

look = load_script("docs/look.py")
pytestmark = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="there is no chromium on the path"
)


def test_wide_pages_and_errors_are_reported(tmp_path):
    pages = {
        "good": "<p>text</p>",
        "wide": '<div style="width:700px">x</div>',
        "error": "<script>undefined_function()</script>",
        "log": '<script>console.error("went wrong")</script>',
        "missing": '<script src="none.js"></script>',
    }
    for name, body in pages.items():
        (tmp_path / f"{name}.html").write_text(f"<html><head></head><body>{body}</body></html>")
    reports = look.reports(tmp_path, [f"{name}.html" for name in pages], (1000, 400))
    lines = [line for report in reports for line in report.lines()]
    assert [report.window for report in reports] == [1000, 400] * len(pages)
    assert len(lines) == 7
    assert lines[0].startswith("wide.html: 7") and lines[0].endswith("in a window of 400 px")
    assert all("undefined_function is not defined" in line for line in lines[1:3])
    assert lines[3:5] == [f"log.html at {width} px: went wrong" for width in (1000, 400)]
    assert all("cannot load" in line and "none.js" in line for line in lines[5:])
