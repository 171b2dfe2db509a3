"""The structure of the package: documents name files that exist, files and functions are small, and imports form no cycles."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.counts import (
    MAX_COMPLEXITY,
    MAX_PARAMETERS,
    all_comparisons,
    all_functions,
    parse,
)

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")])
SOURCES = sorted(ROOT.glob("weft/**/*.py"))
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCES
}
#: a file or a folder of this repository, as text names it: from the root, or from the package
NAMED = re.compile(r"`((?:\w+/)+[\w.]+\.(?:py|pyi|ll|txt|md))`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
MOST_LINES = 800
MAX_COMPARISONS = 44
MOST_MODULES = 22
#: folders whose modules are a family of equal things, one for each group of functions or each distribution
FAMILIES = {"weft/_engine/numpy", "weft/_engine/ops", "weft/scipy/stats"}
#: package -> number of its import cycles that remain to be removed; never raise a number
KNOWN_CIRCLES: dict[str, int] = {}


def missing(text: str, folder: Path) -> list[str]:
    """Return the files that a document in `folder` names or links to and that are not there."""
    named = [
        name
        for name in NAMED.findall(text)
        if not any(
            (root / name).exists()
            for root in (ROOT, ROOT / "weft", ROOT / "weft" / "_engine", folder)
        )
    ]
    return named + [link for link in LINK.findall(text) if not (folder / link).exists()]


def test_a_file_that_is_not_there_is_found_missing():
    text = "`weft/_engine/numpy/ufuncs.py`, `partition/rules/halo.py`, `ops/hallo.py`, [a note](docs/tour.md#top), [none](docs/detour.md)"
    assert missing(text, ROOT) == ["ops/hallo.py", "docs/detour.md"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_name_files_that_are_there(path):
    assert (
        missing(path.read_text().replace("docs/design/NNNN-title.md", "docs/tour.md"), path.parent)
        == []
    )


def test_what_to_read_next_is_there():
    exists = {}
    for path in SOURCES:
        docstring = ast.get_docstring(parse(path)) or ""
        for name in re.findall(r"`([a-z_][\w.]*)`", docstring.partition("\nNext:")[2]):
            exists[path.name, name] = any(
                module == f"weft.{name}" or module.endswith(f".{name}") for module in MODULES
            )
    assert exists and [key for key, there in exists.items() if not there] == []


def test_files_have_at_most_800_lines():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in [*SOURCES, *ROOT.glob("tests/**/*.py")]
    }
    assert {path for path, lines in lengths.items() if lines > MOST_LINES} == set()


def test_no_folder_is_crowded():
    modules = Counter(str(path.parent.relative_to(ROOT)) for path in SOURCES)
    assert FAMILIES < set(modules)
    assert {
        folder: count
        for folder, count in modules.items()
        if count > MOST_MODULES and folder not in FAMILIES
    } == {}


def listed(name: str) -> set[str]:
    """Return the exceptions listed in a text file of this folder, one per line."""
    return set((Path(__file__).parent / name).read_text().split())


def test_no_new_function_is_complex():
    """Split a function along its subject. The list of exceptions only shrinks."""
    names = {entry.name for entry in all_functions() if entry.complexity > MAX_COMPLEXITY}
    assert names == listed("complex_functions.txt")


def test_no_new_function_has_many_parameters():
    """Parameters that belong together are a record. Functions with JAX's signatures are exceptions."""
    names = {entry.name for entry in all_functions() if entry.parameters > MAX_PARAMETERS}
    assert names == listed("long_signatures.txt")


def test_passes_do_not_compare_names():
    """Dispatch on classes. Printing and compatibility may compare names; the bound only falls."""
    assert all_comparisons() <= MAX_COMPARISONS


def imported(module: str, is_package: bool, tree: ast.Module, modules: set[str]) -> Iterator[str]:
    """Yield the modules of the package that `module` imports anywhere: at the top, in functions, and for type checkers only."""
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
                target = f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules else base
                if target in modules:
                    yield target


def layers() -> dict[str, int]:
    """Return the level of each package in the import contract, from the top down."""
    text = (ROOT / "pyproject.toml").read_text()
    contract = tomllib.loads(text)["tool"]["importlinter"]["contracts"][0]
    return {
        name.removeprefix("weft."): level
        for level, layer in enumerate(contract["layers"])
        for name in layer.split(" | ")
    }


def package_of(name: str) -> str:
    """Return the package in `layers` that holds a module.

    >>> package_of("weft._engine.ir.types"), package_of("weft.numpy.fft")
    ('_engine.ir', 'numpy')
    """
    parts = name.split(".")[1:] or [""]
    return ".".join(parts[: 2 if parts[0] == "_engine" else 1])


def test_every_package_has_a_layer():
    modules = {package_of(module) for module in MODULES if module != "weft"}
    assert modules - {"_engine", "_former_modules", "_version", "__main__"} == {*layers()}


def loaded_above(package: str, tree: ast.Module, level_of: dict[str, int]) -> Iterator[str]:
    """Yield modules above `package` that its modules load by name, in a call or from `weft`, which the linter does not see."""
    nodes = [*ast.walk(tree)]
    arguments = {text for node in nodes if isinstance(node, ast.Call) for text in ast.walk(node)}
    asks = any(
        isinstance(node, ast.Import) and any(alias.name == "weft" for alias in node.names)
        for node in nodes
    )
    for node in nodes:
        match node:
            case ast.Constant(str(text)) if node in arguments and text.startswith("weft."):
                name = package_of(text)
            case ast.Attribute(ast.Name("weft"), name) if asks:
                pass
            case _:
                continue
        if level_of.get(name, len(level_of)) < level_of[package]:
            yield name


def test_what_is_loaded_above_is_found():
    text = (
        'import weft\nload("weft.numpy.fft")\nload(f"weft._engine.ops.{x}")\nweft.segment_ops\n'
        'weft.util\n"weft._engine.ops"\n"weft.numpy"'
    )
    assert sorted(loaded_above("_engine.api", ast.parse(text), layers())) == [
        "numpy",
        "segment_ops",
    ]
    assert [
        *loaded_above("_engine.ops", ast.parse("import numpy\nweft = 3\nweft.numpy"), layers())
    ] == []


def test_modules_above_are_loaded_by_hooks_alone():
    """Hooks stand in `weft._engine.hooks`; the other three forward public names."""
    level_of, violations = layers(), []
    for path in SOURCES:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        package = package_of(module)
        if package in level_of and module != "weft._engine.hooks":
            above = loaded_above(package, parse(path), level_of)
            violations += [(module.removesuffix(".__init__"), name) for name in above]
    assert violations == [
        ("weft._engine.api", "numpy"),
        ("weft._engine.debug.printing", "debug"),
        ("weft._engine.numpy.ufunc_type", "numpy"),
        ("weft._engine.util.dtypes", "numpy"),
        ("weft.lax", "numpy"),
    ]


def circles(edges: dict[str, set[str]]) -> set[frozenset[str]]:
    """Return groups of modules that import each other, directly or through others in the group."""
    reached = {module: reachable(edges, module) for module in edges}
    return {
        frozenset(m for m in reached[module] if module in reached[m])
        for module in edges
        if module in reached[module]
    }


def reachable(edges: dict[str, set[str]], start: str) -> set[str]:
    """Return the modules that `start` imports, itself or through others."""
    seen, pending = set(), [start]
    while pending:
        new = edges[pending.pop()] - seen
        seen |= new
        pending += new
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
    """If two modules need each other, move their shared code below both. Lower the number of a known cycle that you remove."""
    edges = {}
    for path in SOURCES:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        name = module.removesuffix(".__init__")
        edges[name] = set(imported(name, name != module, parse(path), MODULES)) - {name}
        if name != "weft" and path.with_suffix(".pyi").exists():  # lazily loaded modules, too
            edges[name] |= set(
                imported(name, name != module, parse(path.with_suffix(".pyi")), MODULES)
            ) - {name}
    cycles = circles(edges)
    counts = Counter(package_of(min(group)) for group in cycles)
    assert counts == KNOWN_CIRCLES, "\n".join(" ".join(sorted(group)) for group in cycles)
