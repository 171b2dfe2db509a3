"""Open pages of the built site in headless Chromium: `python docs/look.py docs/_build/html [FOLDER]`.

In:  the folder of a built site; the folder for screenshots, `look` next to the site by default.
Out: a screenshot of each page at each width; a line for each problem, and exit status 1 if there are any.
Law: a page is not wider than its window, and the browser reports no error on it.
"""

import contextlib
import functools
import html
import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

PAGES = {
    "landing": "index.html",
    "lesson": "learn/jit.html",
    "gallery": "gallery/index.html",
    "program": "gallery/gpt.html",
    "reference": "api/weft.numpy-shapes.html",
}
WIDTHS = (1400, 400)
HEIGHT = 1000
MILLISECONDS = 20_000  # virtual time for a page to load

#: put first into each page: errors are collected and posted to the frame's owner
PROBE = """<script>
const problems = [];
addEventListener("error", event => problems.push(
  event.message || "cannot load " + (event.target.src || event.target.href)), true);
addEventListener("unhandledrejection", event => problems.push(String(event.reason)));
console.error = (...words) => problems.push(words.join(" "));
addEventListener("load", () => setTimeout(() => parent.postMessage({
  name: window.name, problems, wide: document.documentElement.scrollWidth, window: innerWidth,
}, "*"), 500));
</script>"""

#: shows pages in frames of given widths, and collects their reports in an element
FRAMES = """<!doctype html><title>frames</title><body style="margin:0">
<pre id="reports" hidden>[]</pre>{frames}
<script>
const reports = [];
addEventListener("message", event => {{
  reports.push(event.data);
  document.getElementById("reports").textContent = JSON.stringify(reports);
}});
for (const frame of document.querySelectorAll("iframe")) frame.src = frame.dataset.src;
</script>"""


class Report(NamedTuple):
    """The report of one page in a window of one width."""

    page: str
    width: int
    window: int
    wide: int
    problems: list[str]

    def lines(self) -> Iterator[str]:
        """Yield what is wrong."""
        if self.window != self.width:
            yield f"{self.page}: the window has {self.window} px instead of {self.width}"
        if self.wide > self.width:
            yield f"{self.page}: {self.wide} px wide in a window of {self.width} px"
        for problem in self.problems:
            yield f"{self.page} at {self.width} px: {problem}"


class SiteHandler(SimpleHTTPRequestHandler):
    """Serves a site with the probe in each page, and `/frames?WIDTH=PAGE&...`."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """Serve frames, a page or another file."""
        address, _, query = self.path.partition("?")
        file = Path(self.translate_path(address))
        if address == "/frames":
            frames = (part.split("=") for part in query.split("&"))
            self.send_html(FRAMES.format(frames="".join(frame(*part) for part in frames)))
        elif file.suffix == ".html" and file.exists():
            self.send_html(re.sub("<head>", f"<head>{PROBE}", file.read_text(), count=1))
        else:
            super().do_GET()

    def send_html(self, text: str) -> None:
        """Send a page."""
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def frame(width: str, page: str) -> str:
    """Return a frame of the given width, which shows a page."""
    style = f"border:0;width:{width}px;height:{HEIGHT}px"
    return f'<iframe name="{width}={page}" data-src="/{page}" style="{style}"></iframe>'


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a free local port; yield the address."""
    handler = functools.partial(SiteHandler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def chromium(address: str, width: int, *options: str) -> str:
    """Open a page in headless Chromium; return the standard output."""
    program = shutil.which("chromium")
    if program is None:
        raise FileNotFoundError("There is no chromium on the path; install Debian's package.")
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--window-size={width},{HEIGHT}", f"--virtual-time-budget={MILLISECONDS}"]
    done = subprocess.run(
        [*command, *options, address], capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        raise RuntimeError(f"chromium ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def reports(site: Path, pages: list[str], widths: tuple[int, ...] = WIDTHS) -> list[Report]:
    """Return a report for each page and width."""
    query = "&".join(f"{width}={page}" for page in pages for width in widths)
    with served(site) as address:
        text = chromium(f"{address}/frames?{query}", max(widths), "--dump-dom")
    (element,) = re.findall(r'<pre id="reports"[^>]*>(.*?)</pre>', text, re.DOTALL)
    received = {report["name"]: report for report in json.loads(html.unescape(element))}
    results = []
    for part in query.split("&"):
        width, page = part.split("=")
        report = received.get(part, {"window": 0, "wide": 0, "problems": ["it does not load"]})
        results.append(
            Report(page, int(width), report["window"], report["wide"], report["problems"])
        )
    return results


def take_screenshots(site: Path, pages: dict[str, str], target: Path) -> None:
    """Write a picture of each page at each width."""
    target.mkdir(parents=True, exist_ok=True)
    with served(site) as address:
        for name, page in pages.items():
            for width in WIDTHS:
                picture = f"--screenshot={target / f'{name}-{width}.png'}"
                chromium(f"{address}/frames?{width}={page}", width, picture)


if __name__ == "__main__":
    built = Path(sys.argv[1])
    pictures = Path(sys.argv[2]) if len(sys.argv) > 2 else built.parent / "look"
    take_screenshots(built, PAGES, pictures)
    lines = [line for report in reports(built, [*PAGES.values()]) for line in report.lines()]
    print(*lines, f"screenshots: {pictures}", sep="\n")
    sys.exit(bool(lines))
