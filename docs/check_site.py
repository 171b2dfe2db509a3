"""Check the built site: `python docs/check_site.py docs/_build/html`.

In:  the folder of a built site.
Out: a line for each problem, and exit status 1 if there are any.
Law: links within the site lead to a page and to an anchor on it. A page has at most 150 KB, its code at most 88 columns. Pages for
     users do not name private parts of the package, and the search leaves pages for contributors out.
"""

import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

LARGEST_PAGE = 150_000  # bytes
WIDEST_CODE = 88  # columns
CODE_LANGUAGES = {"python", "py", "py3", "pycon", "console", "default", "bash"}
PRIVATE = re.compile(r'weft\._engine|(?<=notranslate">)_[A-Za-z]\w*')
CONTRIBUTOR_PAGES = re.compile(
    r"adding-a|contributing|design/|how-a-call-works|reading-dumps|tiny-weft|tour|verification"
)


class PageParser(HTMLParser):
    """Collects the links, anchors and code blocks of a page."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.code: list[tuple[str, str]] = []
        self.language = ""
        self.in_code = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the attributes of an element."""
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.links += [values[name] for name in ("href", "src") if name in values]
        language = re.search(r"highlight-([\w.+-]+)", values.get("class", ""))
        if language:
            self.language = language[1]
        if tag == "pre":
            self.in_code = True
            self.code.append((self.language, ""))

    def handle_endtag(self, tag: str) -> None:
        """End a code block."""
        if tag == "pre":
            self.in_code = False

    def handle_data(self, data: str) -> None:
        """Add text to the current code block."""
        if self.in_code:
            language, text = self.code[-1]
            self.code[-1] = (language, text + data)


def code_lines(language: str, text: str) -> list[str]:
    """Return the lines of code of a block, without the output of examples."""
    if language not in CODE_LANGUAGES:
        return []
    lines = text.splitlines()
    if text.lstrip().startswith(">>>"):
        return [line for line in lines if line.lstrip().startswith((">>>", "..."))]
    return lines


def link_problems(folder: Path, name: str, pages: dict[str, PageParser]) -> Iterator[str]:
    """Yield the links of a page that lead nowhere in the site."""
    for link in pages[name].links:
        if re.match(r"[a-z]+:|//", link):
            continue
        address, anchor = urldefrag(unquote(link.partition("?")[0]))
        target = (folder / name).parent / address if address else folder / name
        target = (target / "index.html" if target.is_dir() else target).resolve()
        if not target.exists():
            yield f"{name}: {link} does not exist"
        elif anchor and target.suffix == ".html":
            anchors = pages[str(target.relative_to(folder))].anchors
            if anchor not in anchors:
                yield f"{name}: {link} has no such anchor"


def page_problems(name: str, text: str, page: PageParser) -> Iterator[str]:
    """Yield what is wrong with the size and the code of a page."""
    size = len(text.encode())
    if size > LARGEST_PAGE:
        yield f"{name}: {size:,} bytes; the limit is {LARGEST_PAGE:,}"
    if CONTRIBUTOR_PAGES.match(name):
        return
    for language, block in page.code:
        for line in code_lines(language, block):
            if len(line) > WIDEST_CODE:
                yield f"{name}: code of {len(line)} columns: {line.strip()[:60]}..."
    if name.startswith("api/"):
        for private in sorted(set(PRIVATE.findall(text))):
            yield f"{name}: names {private}"


def search_problems(folder: Path) -> Iterator[str]:
    """Yield the pages for contributors that the search finds."""
    index = folder / "searchindex.js"
    if index.exists():
        names = json.loads(re.sub(r"^[^(]*\(|\)\s*$", "", index.read_text()))["docnames"]
        yield from (f"the search finds {n}" for n in names if CONTRIBUTOR_PAGES.match(n))


def problems(folder: Path) -> list[str]:
    """Return all problems of a site."""
    folder = folder.resolve()
    texts = {str(p.relative_to(folder)): p.read_text() for p in sorted(folder.rglob("*.html"))}
    pages = {name: PageParser(text) for name, text in texts.items()}
    lines = [*search_problems(folder)]
    for name, text in texts.items():
        lines += page_problems(name, text, pages[name])
        lines += link_problems(folder, name, pages)
    return lines


if __name__ == "__main__":
    lines = problems(Path(sys.argv[1]))
    print(*lines, sep="\n") if lines else None
    sys.exit(bool(lines))
