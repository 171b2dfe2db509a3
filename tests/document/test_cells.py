"""The cells of lessons and of pages about errors, questions and other systems: their output is the output shown."""

import importlib.util
import re

import pytest

import weft
from tests.harness.cells import WIDTH, cells, is_pasteable, run_cells, wrapped
from tests.harness.pages import needs_pages
from tests.harness.processes import ROOT, run_python
from tests.harness.scripts import load_script
from weft._engine.util.errors import PAGES as PAGES_ADDRESS, DocumentedError

DOCS = ROOT / "docs"
LESSONS = {path.stem: path for path in sorted((DOCS / "learn").glob("*.md"))}
INDEX = LESSONS.pop("index", None)
PAGES = {f"learn/{name}": path for name, path in LESSONS.items()}
PAGES |= {
    str(path.relative_to(DOCS).with_suffix("")): path
    for pattern in ("from-*.md", "faq.md", "getting-help.md", "sharp-bits.md", "errors/*.md")
    for path in sorted(DOCS.glob(pattern))
}
#: a base class, and classes whose errors need several processes or a fault of the compiler
NOT_RAISED = {"TracerError", "ProcessFailureError", "VerificationError"}
#: page -> the package that its cells import
REQUIRED = {"learn/training": "optax"}
SECTIONS = (
    "**Goal:**",
    "**Time:**",
    "**You need:**",
    "## Pitfalls",
    "## Exercises",
    "## What next",
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

pytestmark = needs_pages


@pytest.mark.parametrize("name", PAGES)
def test_cells_print_what_the_page_shows(name):
    if name in REQUIRED and importlib.util.find_spec(REQUIRED[name]) is None:
        pytest.skip(f"the page needs {REQUIRED[name]}")
    session: dict[str, object] = {}
    page = run_cells(PAGES[name], session)
    differ = [cell for cell in page if not cell.is_as_shown()]
    assert differ == [], f"{differ[0].code}printed\n{differ[0].printed}"
    if name == "learn/sharding":
        pictures = load_script("docs/lesson_pictures.py").sharding_pictures(session)
        stored = {path.name: path.read_text() for path in DOCS.glob("pictures/lesson-*.svg")}
        assert pictures == stored


@pytest.mark.parametrize("name", PAGES)
def test_blocks_are_narrow_and_can_be_pasted(name):
    blocks = BLOCK.findall(PAGES[name].read_text())
    assert {language for language, _ in blocks} <= {"python", "text", "console", "bibtex"}
    assert [line for _, body in blocks for line in body.splitlines() if len(line) > WIDTH] == []
    page = cells(PAGES[name])
    assert [cell.code for cell in page if not is_pasteable(cell.code)] == []
    num_outputs = sum(language == "text" for language, _ in blocks)
    assert num_outputs == sum(bool(cell.shown) for cell in page)


def test_there_are_ten_lessons_in_the_index():
    table, tree = INDEX.read_text().split("```{toctree}")
    linked = re.findall(r"^\| \[\d+\. [^]]*\]\((.*?)\.md\)", table, re.MULTILINE)
    assert len(linked) == 10
    assert sorted(linked) == sorted(LESSONS)
    assert tree.split()[-11:-1] == linked  # the last word is the fence


def test_each_error_class_has_a_page_that_raises_it():
    classes = {
        error.__name__
        for error in map(weft.errors.__getattr__, dir(weft.errors))
        if issubclass(error, DocumentedError)
    }
    assert classes == {path.stem for path in DOCS.glob("errors/*.md")} - {"index"}
    index = (DOCS / "errors" / "index.md").read_text()
    assert sorted(re.findall(r"^\| \[(\w+)\]\(\1\.md\)", index, re.MULTILINE)) == sorted(classes)
    for name in classes - NOT_RAISED:
        shown = [cell.shown for cell in cells(PAGES[f"errors/{name}"])]
        raising = next(output for output in shown if output.startswith("weft.errors."))
        assert raising.startswith(f"weft.errors.{name}: ")
        assert " ".join(raising.split()).endswith(f"See {PAGES_ADDRESS}/{name}.md")


@pytest.mark.slow
def test_a_lost_process_raises_the_error_of_its_page(tmp_path):
    program, handled = (cell.code for cell in cells(PAGES["errors/ProcessFailureError"]))
    for name, text in {
        "fails": program,
        "handles": program.replace("print(step())", "") + handled,
    }.items():
        (tmp_path / f"{name}.py").write_text(text)
    fails, handles = (
        run_python("-m", "weft", "launch", "-n", "2", tmp_path / script, WEFT_NUM_DEVICES="1")
        for script in ("fails.py", "handles.py")
    )
    assert "ProcessFailureError: distributed: process 1 has ended" in fails.stderr
    assert "lost processes (1,)" in handles.stdout


@pytest.mark.parametrize("name", LESSONS)
def test_lessons_have_their_sections(name):
    text = LESSONS[name].read_text()
    assert [section for section in SECTIONS if section not in text] == []
    assert text.count("<summary>Answer</summary>") == 2
    assert 600 <= len(text.split()) <= 2200
    minutes = int(re.search(r"\*\*Time:\*\* (\d+) minutes", text)[1])
    assert 5 <= minutes <= 10


def test_settings_of_a_page_do_not_outlive_it(tmp_path):
    page = tmp_path / "page.md"
    page.write_text('```python\nimport weft\nweft.config.update("check", "maps")\n```\n')
    before = weft.config.values
    session: dict[str, object] = {}
    run_cells(page, session)
    assert weft.config.values == before and "weft" in session


def test_outputs_are_wrapped_at_words():
    line = "error: " + "word " * 30
    assert all(len(part) <= WIDTH for part in wrapped(line).splitlines())
    assert wrapped(line).split() == line.split()
    assert wrapped("<f at 0x7f00>\n") == "<f at ...>\n"


@pytest.mark.parametrize(
    "code, expected",
    [
        ("x = 1\nprint(x)\n", True),
        ("def f():\n    return 1\n\nprint(f())\n", True),
        ("def f():\n    return 1\nprint(f())\n", False),
        ("def f():\n    x = 1\n\n    return x\n", False),
        ("for i in range(2):\n    print(i)\n", True),
    ],
)
def test_blocks_that_the_shell_accepts(code, expected):
    assert is_pasteable(code) == expected
