"""The pages of the API reference, made from the public modules and their docstrings.

In:  the public modules and their docstrings; the groups in `api_groups`.
Out: `docs/api/*.rst`, which git ignores.
Law: every public name has an entry with its signature. An object with several public names is documented under one of them; the
     other names refer to it.
Next: `docstrings`, `parameters`.
"""

import ast
import functools
import importlib
import inspect
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType

from api_examples import run_calls
from api_groups import FIRST, GROUPS, MODULES, TOGETHER
from docstrings import paragraphs, sentence
from parameters import parameter_items, parameter_names, split_sentences

MANY = 9  # names that get a table before their entries


def public_names(module: ModuleType) -> list[str]:
    """The public names of a module but for its submodules: what `__all__` lists, else what it defines or re-exports as `x as x`."""
    listed = getattr(module, "__all__", None)
    if module.__name__ == "weft":
        listed = dir(module)
    if listed is None:
        exported = re.findall(r"import .*?\b(\w+) as \1\b", inspect.getsource(module))
        listed = [
            n
            for n, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__ or n in exported
        ]
    names = [name for name in listed if not name.startswith("_") and hasattr(module, name)]
    return sorted(
        (name for name in names if not inspect.ismodule(getattr(module, name))), key=str.lower
    )


# entries


def signature(value) -> str:
    """The signature of something callable: its parameters with those defaults that are plain values."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return "(...)"
    empty, keyword = inspect.Parameter.empty, inspect.Parameter.KEYWORD_ONLY
    shown = [
        p.replace(annotation=empty, default=_default(p.default))
        for p in parameters
        if p.name[0] != "_" or (p.default is empty and p.kind is not keyword)
    ]
    return str(inspect.Signature(shown))


def _default(value):
    plain = value is inspect.Parameter.empty or isinstance(
        value, (int, float, str, type(None), tuple)
    )
    return value if plain else _Named(getattr(value, "__name__", "..."))


class _Named:
    """A default that prints as a name."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name if self.name.isidentifier() else "..."


def documentation(value) -> str:
    """What a value's own docstring says, or what can be said of it."""
    kind = type(value)
    if is_primitive(value):
        return f"The primitive `{value.name}`."
    if (isinstance(value, type) and value.__module__ == "numpy") or (
        kind.__module__.startswith("numpy.") and "0x" in repr(value)
    ):
        return f"NumPy's `{getattr(value, '__name__', kind.__name__)}`."
    if inspect.isclass(value) or inspect.isroutine(value):
        return inspect.getdoc(value) or ""
    own = getattr(value, "__dict__", {}).get("__doc__") or (
        inspect.getdoc(value) if kind.__module__.startswith("weft") else ""
    )
    if isinstance(own, str) and own:
        return own
    if kind.__name__ == "SimpleNamespace":
        return "Holds " + ", ".join(f"`{name}`" for name in vars(value)) + "."
    return f"`{_short(value)}`"


def _short(value) -> str:
    return re.sub(r"\b(?:weft|numpy)\.(?:\w+\.)*(?=\w)", "", repr(value)).replace("`", "'")


def directive_of(value) -> str:
    """Return the kind of a name's entry."""
    if inspect.isclass(value):
        return "py:exception" if issubclass(value, BaseException) else "py:class"
    is_function = callable(value) and type(value).__name__ != "GenericAlias"
    return "py:function" if is_function else "py:data"


def heading(module: str, name: str, value) -> list[str]:
    """Return the first lines of a name's entry."""
    directive = directive_of(value)
    plain = directive in ("py:data", "py:exception") or type(value).__name__ == "UnionType"
    shown = "" if plain else signature(value)
    return [f".. {directive}:: {name}{shown}", f"   :module: {module}", ""]


def entry(module: str, name: str, value, known: dict[str, str], example: list[str]) -> list[str]:
    """Return the entry of one public name; `example` is for documentation without examples."""
    directive, doc = directive_of(value), documentation(value)
    if ">>>" not in doc:
        doc = "\n".join([doc, "", *example])
    if directive == "py:data":
        known = {}
    text, prompt, examples = doc.partition(">>>")
    text = public_text(text)
    if directive == "py:function":
        known = without_parameters(value, known)
        text, meanings = split_sentences(text, parameter_names(value))
        body = paragraphs(text, known) + parameter_items(value, meanings, known)
    else:
        body = paragraphs(text, known)
    body += paragraphs(prompt + examples, known)
    if directive == "py:class" and not issubclass(value, (int, float, str, tuple)):
        for attribute in sorted(_members(value)):
            body += _member(value, attribute, known)
    return [*heading(module, name, value), *indented(body), ""]


def without_parameters(value, known: dict[str, str]) -> dict[str, str]:
    """Return the public names that are not parameter names of a function."""
    names = parameter_names(value)
    return {name: target for name, target in known.items() if name not in names}


def indented(lines: list[str]) -> list[str]:
    """Return the lines as the content of a directive."""
    return [f"   {line}" if line else "" for line in lines]


def public_text(doc: str) -> str:
    """Return a docstring without the paragraphs that name private parts of the package."""
    private = re.compile(r"`_[A-Za-z]|_engine|`\w+/\w|^(?:In|Out|Law|Next): ", re.MULTILINE)
    return "\n\n".join(text for text in doc.split("\n\n") if not private.search(text))


def _members(owner: type) -> list[str]:
    bases = [base for base in owner.__mro__ if base.__module__.startswith("weft")]
    return list({name for base in bases for name in vars(base) if not name.startswith("_")})


def _member(owner: type, name: str, known: dict[str, str]) -> list[str]:
    """Return the entry of a method or attribute; nothing for one without documentation."""
    getattr(owner, name)  # methods of arrays are made on first access
    value = inspect.getattr_static(owner, name)
    inner = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    head, text = f".. py:attribute:: {name}", ""
    if inspect.isroutine(inner):
        head, text = f".. py:method:: {name}{_bound(value, inner)}", inspect.getdoc(inner) or ""
    elif isinstance(inner, (property, functools.cached_property)):
        text = inspect.getdoc(inner) or ""
    of_numpy = known.get(f"weft.numpy.{name}")
    if (
        of_numpy
        and owner.__name__ == "Array"
        and text in ("", inspect.getdoc(getattr(importlib.import_module("weft.numpy"), name)))
    ):
        text = f"See `weft.numpy.{name}`."
    shown = paragraphs(public_text(text), known)
    return [head, "", *indented(shown), ""] if shown else []


def _bound(value, inner) -> str:
    shown = signature(inner)
    return (
        shown
        if isinstance(value, staticmethod)
        else re.sub(r"^\((?:self|cls)(?:, /)?(?:, )?", "(", shown)
    )


#: titles of the groups of names that no function group lists, in their order on a page
KINDS = ("Functions", "Classes", "Dtypes", "Exceptions", "Values", "Primitives")


def is_primitive(value) -> bool:
    """Return whether a value is a primitive."""
    return isinstance(value, importlib.import_module("weft.extend.core").Primitive)


def kind_of(value) -> str:
    """Return the group of a name that no function group lists."""
    if is_primitive(value):
        return "Primitives"
    if inspect.isclass(value):
        dtype = isinstance(value, type(importlib.import_module("weft.numpy").float32))
        return (
            "Exceptions" if issubclass(value, BaseException) else "Dtypes" if dtype else "Classes"
        )
    return (
        "Functions"
        if callable(value) and type(value).__name__ not in ("GenericAlias", "UnionType")
        else "Values"
    )


def groups_of(module: ModuleType) -> dict[str, list[str]]:
    """Return the names of a module by the title of their group."""
    listed = {t: names.split() for t, names in GROUPS.get(module.__name__, {}).items()}
    placed = {name for names in listed.values() for name in names}
    others: dict[str, list[str]] = {}
    for name in public_names(module):
        if name not in placed:
            others.setdefault(kind_of(getattr(module, name)), []).append(name)
    unlisted = [*others.get("Functions", ()), *others.get("Classes", ())]
    if listed and unlisted:
        raise ValueError(
            f"docs/api_groups.py: these names of {module.__name__} are in no group: {unlisted}"
        )
    return listed | {title: others[title] for title in KINDS if title in others}


def homes(modules: list[str]) -> dict[int, str]:
    """Return, for each function and class with several public names, the name that documents it."""
    places: dict[int, str] = {}
    repeated = set()
    for name in sorted(modules, key=lambda name: name not in FIRST):
        module = importlib.import_module(name)
        own = lambda n: getattr(getattr(module, n), "__name__", "") != n  # noqa: B023
        for public in sorted(public_names(module), key=own):
            value = getattr(module, public)
            if directive_of(value) == "py:data":
                continue
            if id(value) in places:
                repeated.add(id(value))
            places.setdefault(id(value), f"{name}.{public}")
    return {key: places[key] for key in repeated}


class ApiReference:
    """The API reference of a list of modules: `pages` has the text of each page by file name.

    `examples` has lines for functions without examples in their documentation, by full name.
    """

    def __init__(
        self,
        modules: Mapping[str, list[str]] = MODULES,
        examples: Mapping[str, list[str]] | None = None,
    ):
        self.modules = modules
        self.examples = examples or {}
        names = [name for listed in modules.values() for name in listed]
        self.homes = homes(names)
        self.known = {name: name for name in names}
        for name in names:
            module = importlib.import_module(name)
            self.known |= {f"{name}.{n}": f"{name}.{n}" for n in public_names(module)}
        self.pages: dict[str, str] = {}
        for name in names:
            self._add_module(name)
        libraries = "For libraries"
        users = {title: listed for title, listed in modules.items() if title != libraries}
        self._add_index(
            "index",
            "API reference",
            "Every public name, by subject. Examples assume ``import numpy as np``, "
            "``import weft``, ``import weft.numpy as wnp`` and ``from weft import lax``.",
            users,
        )
        if libraries in modules:
            self._add_index(
                "libraries",
                "API for libraries",
                "Names for libraries with transformations, primitives or interpreters of their own.",
                {"Modules": modules[libraries]},
            )

    def _add_module(self, name: str) -> None:
        """Add the page of a module, and a page for each of its function groups."""
        module = importlib.import_module(name)
        doc = paragraphs(public_text(inspect.cleandoc(module.__doc__ or "")), self._links(module))
        lines = [*title_lines(name, "="), f".. py:module:: {name}", "", *doc]
        if name not in GROUPS:
            lines += self._sections(module, "-")
            for inner in getattr(module, "_SUBMODULES", ()) if name in TOGETHER else ():
                part = importlib.import_module(f"{name}.{inner}")
                lines += [*title_lines(part.__name__, "-"), f".. py:module:: {part.__name__}", ""]
                lines += self._sections(part, "~")
        else:
            groups = groups_of(module)
            stems = {title: f"{name}-{slug(title)}" for title in groups}
            for title, stem in stems.items():
                links = ", ".join(f":py:obj:`{n} <{name}.{n}>`" for n in groups[title])
                linked = f":doc:`{title} </api/{stem}>`"
                lines += [*title_lines(linked, "-"), f"{links}.", ""]
                page = [*title_lines(f"{name}: {title}", "="), f".. py:currentmodule:: {name}", ""]
                page += self._names(module, groups[title])
                self.pages[f"api/{stem}.rst"] = "\n".join(page) + "\n"
            lines += [".. toctree::", "   :hidden:", ""]
            lines += [f"   {title} <{stem}>" for title, stem in stems.items()]
        self.pages[f"api/{name}.rst"] = "\n".join(lines) + "\n"

    def _links(self, module: ModuleType) -> dict[str, str]:
        return self.known | {n: f"{module.__name__}.{n}" for n in public_names(module)}

    def _sections(self, module: ModuleType, underline: str) -> Iterator[str]:
        """Yield the names of a small module, by kind."""
        groups = groups_of(module)
        for title, names in groups.items():
            if len(groups) > 1:
                yield from title_lines(title, underline)
            yield from self._names(module, names)

    def _names(self, module: ModuleType, names: list[str]) -> Iterator[str]:
        """Yield a table of names if there are many, and their entries; primitives have entries only."""
        known = self._links(module)
        values = {name: getattr(module, name) for name in names}
        if len(names) > MANY and not all(map(is_primitive, values.values())):
            yield from (".. list-table::", "   :widths: 30 70", "")
            for name, value in values.items():
                is_data = directive_of(value) == "py:data"
                links = {} if is_data else without_parameters(value, known)
                summary = sentence(documentation(value), links)
                yield f"   * - :py:obj:`{name} <{module.__name__}.{name}>`"
                yield f"     - {summary}"
            yield ""
        for name, value in values.items():
            place = f"{module.__name__}.{name}"
            home = self.homes.get(id(value), place)
            if home != place:
                yield from heading(module.__name__, name, value)
                yield from (f"   The same object as :py:obj:`{home}`.", "")
            else:
                example = self.examples.get(place, [])
                yield from entry(module.__name__, name, value, known, example)

    def _add_index(self, stem: str, title: str, text: str, modules: Mapping[str, list[str]]):
        lines = [*title_lines(title, "="), text, ""]
        for caption, names in modules.items():
            lines += [".. toctree::", "   :maxdepth: 1", f"   :caption: {caption}", ""]
            lines += [*(f"   {name}" for name in names), ""]
        self.pages[f"api/{stem}.rst"] = "\n".join(lines)


def title_lines(title: str, underline: str) -> list[str]:
    """Return a heading."""
    return [title, underline * len(title), ""]


def slug(title: str) -> str:
    """Return a title as a part of a file name."""
    return re.sub(r"\W+", "-", title.lower())


# examples of limited width

WIDTH = 88
EXAMPLE = re.compile(r"^( *)>>> .*(?:\n\1\.\.\. ?.*)*", re.MULTILINE)


def narrow_examples(pages: dict[str, str]) -> dict[str, str]:
    """Return the pages with the statements of examples split to `WIDTH` columns."""
    wide: dict[str, str] = {}
    for text in pages.values():
        for match in EXAMPLE.finditer(text):
            source = statement(match[0])
            if max(map(len, source.splitlines())) + 4 > WIDTH:
                wide[source] = source
    if wide:
        with tempfile.TemporaryDirectory() as folder:
            files = {source: Path(folder) / f"{i}.py" for i, source in enumerate(wide)}
            for source, file in files.items():
                file.write_text(source)
            command = [sys.executable, "-m", "ruff", "format", "--isolated", "--quiet"]
            subprocess.run([*command, "--line-length", str(WIDTH - 4), folder], check=True)
            wide = {source: file.read_text() for source, file in files.items()}

    def replace(match: re.Match) -> str:
        formatted = wide.get(statement(match[0]))
        if formatted is None:
            return match[0]
        return "\n".join(match[1] + line.rstrip() for line in prompts(formatted))

    return {name: EXAMPLE.sub(replace, text) for name, text in pages.items()}


def statement(example: str) -> str:
    """Return the source of an example with prompts."""
    lines = [line.strip(" ") for line in example.splitlines()]
    return "\n".join(line[4:] for line in lines) + "\n"


def prompts(source: str) -> list[str]:
    """Return the lines of statements, with prompts."""
    starts = set()
    for node in ast.parse(source).body:
        decorators = getattr(node, "decorator_list", ())
        starts.add(min(part.lineno for part in (node, *decorators)))
    lines = enumerate(source.splitlines(), 1)
    return [(">>> " if i in starts else "... ") + line for i, line in lines]


def write(folder: Path) -> None:
    """Write all pages below `folder`; an unchanged page is left alone, so that it is not read again."""
    pages = narrow_examples(ApiReference(examples=run_calls()).pages)
    for old in {*folder.glob("api/*.rst")} - {folder / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
