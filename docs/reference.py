"""The pages of the site that are made from the package: the API reference, and one page for each example.

In:  the public modules and what their docstrings say; the programs under `examples`.
Out: `docs/api/*.rst` and `docs/examples/*.rst`, which git ignores.
Law: every public name has an entry with its signature. Docstrings are plain text with backticks, paragraphs, lists, doctests and
     indented blocks; whatever else is in them means itself, so no docstring can break the site.
"""

import functools
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from types import ModuleType

#: heading -> public modules
MODULES = {
    "Programs": [
        "weft",
        "weft.stages",
        "weft.sharding",
        "weft.debug",
        "weft.profiler",
        "weft.auto",
        "weft.tools.explain",
    ],
    "Arrays": [
        "weft.numpy",
        "weft.numpy.fft",
        "weft.numpy.linalg",
        "weft.lax",
        "weft.lax.linalg",
        "weft.random",
        "weft.segment_ops",
        "weft.ops",
        "weft.image",
    ],
    "Rules of your own": ["weft.custom_derivatives", "weft.custom_batching"],
    "Mutable arrays": ["weft.ref", "weft.ad"],
    "For libraries": [
        "weft.core",
        "weft.extend.core",
        "weft.interpreters.ad",
        "weft.interpreters.batching",
        "weft.interpreters.mlir",
        "weft.interpreters.partial_eval",
        "weft.extend.linear_util",
        "weft.api_util",
        "weft.extend.backend",
        "weft.extend.random",
        "weft.extend.source_info_util",
        "weft.experimental.custom_partitioning",
    ],
    "Models": [
        "weft.nn",
        "weft.nn.initializers",
        "weft.example_libraries.optimizers",
        "weft.example_libraries.stax",
    ],
    "SciPy": [
        "weft.scipy.cluster.vq",
        "weft.scipy.fft",
        "weft.scipy.integrate",
        "weft.scipy.interpolate",
        "weft.scipy.linalg",
        "weft.scipy.ndimage",
        "weft.scipy.optimize",
        "weft.scipy.signal",
        "weft.scipy.sparse.linalg",
        "weft.scipy.spatial.transform",
        "weft.scipy.special",
        "weft.scipy.stats",
    ],
    "More than one process": ["weft.distributed"],
    "Checkpoints and data": ["weft.checkpoint", "weft.data"],
    "Trees and types": [
        "weft.tree",
        "weft.tree_util",
        "weft.flatten_util",
        "weft.dtypes",
        "weft.typing",
        "weft.errors",
    ],
    "Around it": [
        "weft.compat",
        "weft.export",
        "weft.ffi",
        "weft.monitoring",
        "weft.experimental",
        "weft.experimental.checkify",
        "weft.experimental.colocated_python",
        "weft.experimental.hijax",
        "weft.experimental.key_reuse",
        "weft.experimental.mesh_utils",
        "weft.experimental.multihost_utils",
        "weft.experimental.ode",
        "weft.experimental.pallas",
        "weft.experimental.roofline",
        "weft.experimental.shard_alike",
        "weft.experimental.pallas.tpu",
        "weft.experimental.pallas.triton",
        "weft.test_util",
    ],
}


TOGETHER = {"weft.scipy.stats"}
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


# docstrings as reStructuredText

CODE = re.compile(r"(``[^`]+``|`[^`]+`)")


def _escaped(text: str) -> str:
    return re.sub(r"([\\*|_`<])", r"\\\1", text)


def inline(text: str, known: dict[str, str]) -> str:
    """One paragraph: code in backticks, linked where it is a public name, and nothing else that means anything."""
    parts = CODE.split(text)
    out = []
    for i, part in enumerate(parts):
        if i % 2 == 0:
            out.append(_escaped(part))
            continue
        code = part.strip("`").strip()
        before, after = parts[i - 1][-1:], parts[i + 1][:1]
        target = known.get(code.removesuffix("()"))
        marked = f":py:obj:`{code} <{target}>`" if target else f"``{code}``"
        out.append(
            ("\\ " if before and not before.isspace() else "")
            + marked
            + ("\\ " if after and not after.isspace() else "")
        )
    done = "".join(out).replace("\\ \\ ", "\\ ").strip()
    if done.endswith("::"):
        done = done[:-1]
    plain = re.match(r"[^\W\d_]|[`\\]", done) and not re.match(r"\w{1,5}[.)] ", done)
    return done if plain or not done else "\\ " + done


def paragraphs(doc: str, known: dict[str, str]) -> list[str]:
    """A docstring as lines of reStructuredText."""
    lines, out, i = doc.expandtabs().splitlines(), [], 0
    while i < len(lines):
        line = lines[i]
        if not line.strip():
            i += 1
        elif line.lstrip().startswith(">>>") or line.startswith("  "):
            block = _taken(lines, i, lambda text: bool(text.strip()))
            if not line.lstrip().startswith(">>>"):
                block = _taken(
                    lines,
                    i,
                    lambda text: text.startswith("  ") and not text.lstrip().startswith(">>>"),
                )
            language = "pycon" if line.lstrip().startswith(">>>") else "text"
            out += [
                f".. code-block:: {language}",
                "",
                *textwrap.indent(textwrap.dedent("\n".join(block)), "   ").splitlines(),
                "",
            ]
            i += len(block)
        elif re.match(r"- ", line):
            block = _taken(
                lines,
                i,
                lambda text: text.startswith(("- ", "  ")) and not text.lstrip().startswith(">>>"),
            )
            for item in re.split(r"\n(?=- )", "\n".join(block)):
                out += ["- " + inline(" ".join(item[2:].split()), known), ""]
            i += len(block)
        else:
            block = _taken(
                lines, i, lambda text: bool(text.strip()) and not re.match(r"- |\s*>>>|  ", text)
            )
            labelled = [re.match(r"\w[\w ,`]{0,40}: ", text) for text in block]
            if len(block) > 1 and all(labelled):
                out += [line for text in block for line in ("- " + inline(text, known), "")]
            else:
                out += [inline(" ".join(text.strip() for text in block), known), ""]
            i += len(block)
    return out


def _taken(lines: list[str], start: int, fits) -> list[str]:
    end = start
    while end < len(lines) and (end == start or fits(lines[end])):
        end += 1
    return lines[start:end]


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
        if p.kind is not keyword or p.name[0] != "_"
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


def sentence(doc: str, known: dict[str, str]) -> str:
    """The first sentence of a docstring."""
    first = " ".join(doc.strip().partition("\n\n")[0].split())
    return inline(re.split(r"(?<=[.!?])\s+(?=[A-Z`])", first)[0], known)


def documentation(value) -> str:
    """What a value's own docstring says, or what can be said of it."""
    kind = type(value)
    if kind.__name__ == "Primitive":
        return f"The primitive `{value.name}`, of kind {value.kind}."
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


def entry(module: str, name: str, value, known: dict[str, str]) -> list[str]:
    """The directive of one public name."""
    if inspect.isclass(value):
        directive = "py:exception" if issubclass(value, BaseException) else "py:class"
    else:
        directive = (
            "py:function"
            if callable(value) and type(value).__name__ != "GenericAlias"
            else "py:data"
        )
    shown = (
        "" if directive == "py:data" or type(value).__name__ == "UnionType" else signature(value)
    )
    if directive == "py:exception":
        shown = ""
    lines = [f".. {directive}:: {name}{shown}", f"   :module: {module}", ""]
    body = paragraphs(documentation(value), known if directive != "py:data" else {})
    if (
        inspect.isclass(value)
        and directive == "py:class"
        and not issubclass(value, (int, float, str, tuple))
    ):
        for attribute in sorted(_members(value)):
            body += _member(value, attribute, known)
    return lines + [f"   {line}" if line else "" for line in body] + [""]


def _members(owner: type) -> list[str]:
    bases = [base for base in owner.__mro__ if base.__module__.startswith("weft")]
    return list({name for base in bases for name in vars(base) if not name.startswith("_")})


def _member(owner: type, name: str, known: dict[str, str]) -> list[str]:
    getattr(owner, name)  # methods of arrays are made when they are first asked for
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
    return [head, "", *(f"   {line}" if line else "" for line in paragraphs(text, known)), ""]


def _bound(value, inner) -> str:
    shown = signature(inner)
    return (
        shown
        if isinstance(value, staticmethod)
        else re.sub(r"^\((?:self|cls)(?:, /)?(?:, )?", "(", shown)
    )


def page(name: str, places: dict[str, str]) -> str:
    """The page of one module; the distributions of `scipy.stats`, a module each, are on one."""
    lines = section(name, places, "=", "-")
    for inner in (
        getattr(importlib.import_module(name), "_SUBMODULES", ()) if name in TOGETHER else ()
    ):
        lines += section(f"{name}.{inner}", places, "-", "~")
    return "\n".join(lines) + "\n"


def section(name: str, places: dict[str, str], over: str, under: str) -> list[str]:
    """A module: what it says of itself, a table of its names, and their entries."""
    module = importlib.import_module(name)
    names = public_names(module)
    known = places | {n: f"{name}.{n}" for n in names}
    lines = [
        name,
        over * len(name),
        "",
        f".. py:module:: {name}",
        "",
        *paragraphs(inspect.cleandoc(module.__doc__ or ""), known),
    ]
    groups: dict[str, list[str]] = {}
    for n in names:
        groups.setdefault(_group(getattr(module, n)), []).append(n)
    for title in sorted(groups, key=GROUPS.index):
        if len(groups) > 1:
            lines += [title, under * len(title), ""]
        if len(groups[title]) > MANY:
            lines += [".. list-table::", "   :widths: 30 70", ""]
            for n in groups[title]:
                summary = sentence(
                    documentation(getattr(module, n)), known if title != "Values" else {}
                )
                lines += [f"   * - :py:obj:`{n} <{name}.{n}>`", f"     - {summary}"]
            lines += [""]
        for n in groups[title]:
            lines += entry(name, n, getattr(module, n), known)
    return lines


GROUPS = ["Functions", "Classes", "Dtypes", "Exceptions", "Values", "Primitives"]


def _group(value) -> str:
    if type(value).__name__ == "Primitive":
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


def example(path: Path, root: Path, known: dict[str, str]) -> str:
    """The page of one example: what its docstring says, how to run it, and the program."""
    place = path.relative_to(root)
    doc = inspect.cleandoc(re.search(r'\A(?:#.*\n)*"""(.*?)"""', path.read_text(), re.DOTALL)[1])
    title = path.stem.replace("_", " ").capitalize()
    return "\n".join(
        [
            title,
            "=" * len(title),
            "",
            *paragraphs(doc, known),
            ".. code-block:: console",
            "",
            f"   $ weft run {place} --devices 8",
            "",
            f".. literalinclude:: /../{place}",
            "   :language: python",
            "",
        ]
    )


def write(root: Path, folder: Path) -> None:
    """Write all pages below `folder`; a page that is as it was is left alone, so that it is not read again."""
    places = {name: name for names in MODULES.values() for name in names}
    for name in places.copy():
        module = importlib.import_module(name)
        places |= {f"{name}.{n}": f"{name}.{n}" for n in public_names(module)}
    pages = {f"api/{name}.rst": page(name, places) for names in MODULES.values() for name in names}
    index = [
        "API reference",
        "=" * 13,
        "",
        "Every public name of the package, from its docstrings.",
        "",
    ]
    for title, names in MODULES.items():
        index += [
            ".. toctree::",
            "   :maxdepth: 1",
            f"   :caption: {title}",
            "",
            *(f"   {name}" for name in names),
            "",
        ]
    pages["api/index.rst"] = "\n".join(index)
    programs = sorted((root / "examples").rglob("*.py"))
    pages |= {f"examples/{path.stem}.rst": example(path, root, places) for path in programs}
    pages["examples/index.rst"] = "\n".join(
        [
            "Examples",
            "=" * 8,
            "",
            "Whole programs, as they are in the folder ``examples``.",
            "",
            ".. toctree::",
            "   :maxdepth: 1",
            "",
            *(f"   {path.stem}" for path in programs),
            "",
        ]
    )
    for old in {*folder.glob("api/*.rst"), *folder.glob("examples/*.rst")} - {
        folder / name for name in pages
    }:
        old.unlink()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
