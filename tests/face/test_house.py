"""The shape of the package: documents name files that exist, no file is too long, no folder too full, and no imports go in circles."""

import ast
import functools
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
DOCUMENTS = sorted(
    [*HOUSE.glob("*.md"), *HOUSE.glob("docs/**/*.md"), *HOUSE.glob("benchmarks/*.md")]
)
SOURCES = sorted(HOUSE.glob("weft/**/*.py"))
MODULES = {
    ".".join(path.relative_to(HOUSE).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCES
}
#: a file or a folder of this repository, as text names it: from the root, or from the package
NAMED = re.compile(r"`((?:\w+/)+[\w.]+\.(?:py|pyi|ll|txt|md))`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
MOST_LINES = 800
MOST_MODULES = 22
#: folders whose modules are a family of equal things, one for each group of functions or each distribution
FAMILIES = {"weft/numpy", "weft/ops", "weft/scipy/stats"}
#: package -> import circles in it that still wait to be taken apart; a number here is never raised
KNOWN_CIRCLES: dict[str, int] = {}


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def missing(text: str, folder: Path) -> list[str]:
    """The files that a document in `folder` names or links to and that are not there."""
    named = [
        name
        for name in NAMED.findall(text)
        if not any((root / name).exists() for root in (HOUSE, HOUSE / "weft", folder))
    ]
    return named + [link for link in LINK.findall(text) if not (folder / link).exists()]


def test_a_file_that_is_not_there_is_found_missing():
    text = "`weft/numpy/ufuncs.py`, `ops/halo.py`, `ops/hallo.py`, [a note](docs/tour.md#top), [none](docs/detour.md)"
    assert missing(text, HOUSE) == ["ops/hallo.py", "docs/detour.md"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(HOUSE)))
def test_documents_name_files_that_are_there(path):
    assert (
        missing(path.read_text().replace("docs/design/NNNN-title.md", "docs/tour.md"), path.parent)
        == []
    )


def test_what_to_read_next_is_there():
    found = {}
    for path in SOURCES:
        said = ast.get_docstring(parsed(path)) or ""
        for name in re.findall(r"`([a-z_][\w.]*)`", said.partition("\nNext:")[2]):
            found[path.name, name] = any(
                module == f"weft.{name}" or module.endswith(f".{name}") for module in MODULES
            )
    assert found and [key for key, there in found.items() if not there] == []


def test_a_file_is_one_room():
    lengths = {str(path.relative_to(HOUSE)): len(path.read_text().splitlines()) for path in SOURCES}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_folder_is_crowded():
    modules = Counter(str(path.parent.relative_to(HOUSE)) for path in SOURCES)
    assert FAMILIES < set(modules)
    assert {
        folder: count
        for folder, count in modules.items()
        if count > MOST_MODULES and folder not in FAMILIES
    } == {}


def imported(module: str, is_package: bool, tree: ast.Module, modules: set[str]) -> Iterator[str]:
    """The modules of the package that `module` imports anywhere: at the top, in functions, and for type checkers only."""
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            above = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                found = f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base
                if found in modules:
                    yield found


def floors() -> dict[str, int]:
    """The packages of the house, as the import linter has them, and how far down they are."""
    contract = tomllib.loads((HOUSE / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ][0]
    return {
        name: floor
        for floor, layer in enumerate(contract["layers"])
        for name in re.findall(r"\w+", layer)
    }


def loaded_above(package: str, tree: ast.Module, floor_of: dict[str, int]) -> Iterator[str]:
    """Modules above `package` that a module of it loads where the linter cannot see: given to a call by name, or asked of `weft`."""
    nodes = [*ast.walk(tree)]
    given = {text for node in nodes if isinstance(node, ast.Call) for text in ast.walk(node)}
    asks = any(
        isinstance(node, ast.Import) and any(alias.name == "weft" for alias in node.names)
        for node in nodes
    )
    for node in nodes:
        match node:
            case ast.Constant(str(text)) if node in given and text.startswith("weft."):
                name = text.split(".")[1]
            case ast.Attribute(ast.Name("weft"), name) if asks:
                pass
            case _:
                continue
        if floor_of.get(name, len(floor_of)) < floor_of[package]:
            yield name


def test_what_is_loaded_above_is_found():
    text = 'import weft\nload("weft.numpy.fft")\nload(f"weft.ops.{x}")\nweft.segment_ops\nweft.util\n"weft.ops"\n"weft.numpy"'
    assert sorted(loaded_above("api", ast.parse(text), floors())) == ["numpy", "segment_ops"]
    assert [*loaded_above("ops", ast.parse("import numpy\nweft = 3\nweft.numpy"), floors())] == []


def test_one_hook_loads_modules_above():
    """The other hook of docs/tour.md, how an operation is computed, is set from above and loads nothing."""
    floor_of, found = floors(), []
    for path in SOURCES:
        package, *below = path.relative_to(HOUSE / "weft").with_suffix("").parts
        if package in floor_of:
            found += [
                (package, *below, name) for name in loaded_above(package, parsed(path), floor_of)
            ]
    assert found == [
        ("api", "__init__", "numpy"),
        ("lax", "__init__", "numpy"),
        ("ops", "__init__", "segment_ops"),
        ("util", "dtypes", "numpy"),
    ]


def circles(edges: dict[str, set[str]]) -> set[frozenset[str]]:
    """Groups of modules that import each other, directly or through others in the group."""
    reached = {module: reachable(edges, module) for module in edges}
    return {
        frozenset(m for m in reached[module] if module in reached[m])
        for module in edges
        if module in reached[module]
    }


def reachable(edges: dict[str, set[str]], start: str) -> set[str]:
    """The modules that `start` imports, itself or through others."""
    seen, rest = set(), [start]
    while rest:
        new = edges[rest.pop()] - seen
        seen |= new
        rest += new
    return seen


def test_a_circle_is_found():
    late = {
        "a": "def f():\n    from p.b import x",
        "b": "if TYPE_CHECKING:\n    from .c import y",
        "c": "import p.a",
        "d": "from p import a, b",
    }
    modules = {f"p.{name}" for name in late} | {"p"}
    edges = {
        f"p.{name}": set(imported(f"p.{name}", False, ast.parse(text), modules))
        for name, text in late.items()
    }
    assert edges["p.d"] == {"p.a", "p.b"}
    assert circles({**edges, "p": set()}) == {frozenset({"p.a", "p.b", "p.c"})}
    assert circles({"a": {"b"}, "b": {"c"}, "c": set()}) == set()


def test_imports_do_not_go_in_circles():
    """Where two modules want each other, move what they share below both. When you take apart a known circle, lower its number."""
    edges = {}
    for path in SOURCES:
        module = ".".join(path.relative_to(HOUSE).with_suffix("").parts)
        name = module.removesuffix(".__init__")
        edges[name] = set(imported(name, name != module, parsed(path), MODULES)) - {name}
        if name != "weft" and path.with_suffix(".pyi").exists():  # what a module loads lazily, too
            edges[name] |= set(
                imported(name, name != module, parsed(path.with_suffix(".pyi")), MODULES)
            ) - {name}
    found = circles(edges)
    counts = Counter(".".join(min(group).split(".")[:2]) for group in found)
    assert counts == KNOWN_CIRCLES, "\n".join(" ".join(sorted(group)) for group in found)
