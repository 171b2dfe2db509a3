"""The API reference of the site has every public name, and no docstring can break it."""

import importlib
import pkgutil
import re

import pytest

import weft
from tests.harness.scripts import load_script

groups = load_script("docs/api_groups.py")
reference = load_script("docs/reference.py")
examples = load_script("docs/api_examples.py")
docstrings = load_script("docs/docstrings.py")
parameters = load_script("docs/parameters.py")
LISTED = [name for names in groups.MODULES.values() for name in names]
#: importable parts of the package without public names of their own
INSIDE = {
    "weft._engine.api",
    "weft._engine.ops",
    "weft._engine.scipy.matrix_functions",
    "weft._engine.scipy.spectral",
    "weft._engine.scipy.structured",
}


def test_every_public_module_is_listed():
    loaded = {f"weft.{name}" for name in dir(weft) if importlib.util.find_spec(f"weft.{name}")}
    loaded |= {
        f"weft.scipy.{module.name}"
        for module in pkgutil.iter_modules(importlib.import_module("weft.scipy").__path__)
    }
    assert {
        name
        for name in loaded - INSIDE
        if not any(f"{listed}.".startswith(f"{name}.") for listed in LISTED)
    } == set()


@pytest.fixture(scope="module")
def pages():
    return reference.ApiReference().pages


@pytest.mark.parametrize("name", LISTED)
def test_every_public_name_has_an_entry_and_a_sentence(name, pages):
    module = importlib.import_module(name)
    stems = re.compile(rf"api/{re.escape(name)}(-.*)?\.rst")
    text = "".join(text for page, text in pages.items() if stems.fullmatch(page))
    for public in reference.public_names(module):
        assert re.search(rf"^\.\. py:\w+:: {public}(\(|$)", text, re.MULTILINE), public
        assert reference.documentation(getattr(module, public)).strip(), (
            f"{name}.{public} has no docstring"
        )


@pytest.mark.parametrize(
    "text, shown",
    [
        ("the `a`s of x_ and *y*", r"the ``a``\ s of x\_ and \*y\*"),
        ("`sin(x)` of |x|", r"``sin(x)`` of \|x\|"),
        ("- 1 where x < 0:", r"\ - 1 where x \< 0:"),
        ("1. is a number::", r"\ 1. is a number:"),
        ("see `jit`", "see :py:obj:`jit <weft.jit>`"),
        ("one ` alone", r"one \` alone"),
    ],
)
def test_text_means_itself_but_for_backticks(text, shown):
    assert docstrings.inline(text, {"jit": "weft.jit"}) == shown


def test_a_docstring_becomes_paragraphs_lists_and_code():
    doc = "Adds.\n\nTwo lines\nof text:\n- one\n  item\n- two\n\n    verbatim *x*\n\n>>> 1 + 1\n2"
    assert docstrings.paragraphs(doc, {}) == [
        "Adds.",
        "",
        "Two lines of text:",
        "",
        "- one item",
        "",
        "- two",
        "",
        ".. code-block:: text",
        "",
        "   verbatim *x*",
        "",
        ".. code-block:: pycon",
        "",
        "   >>> 1 + 1",
        "   2",
        "",
    ]


def test_a_signature_shows_names_and_plain_defaults():
    marker = object()

    def f(x, /, *, out=None, how="a", fun=len, _hidden=1, kind=marker):
        """Nothing."""

    assert reference.signature(f) == "(x, /, *, out=None, how='a', fun=len, kind=...)"


def test_examples_are_split_to_the_width_of_pages():
    call = "f(" + ", ".join(f"argument_{i}" for i in range(9)) + ")"
    page = f"   >>> @f\n   ... def g(x): return {call}\n   1\n   >>> g(1)\n"
    (text,) = reference.narrow_examples({"page": page}).values()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 3 + reference.WIDTH
    assert [line for line in lines if ">>>" in line] == ["   >>> @f", "   >>> g(1)"]
    assert lines[1] == "   ... def g(x):" and "   1" in lines


def test_sentences_about_parameters_move_to_their_list():
    def f(x, scale: float = 1, _hidden=0):
        """Nothing."""

    doc = "Scale `x`.\n\nThe dtype stays. `scale` is a factor, e.g. `2`. With `x` it is lazy."
    text, meanings = parameters.split_sentences(doc, parameters.parameter_names(f))
    assert text == "Scale `x`.\n\nThe dtype stays."
    assert meanings == {"scale": "`scale` is a factor, e.g. `2`.", "x": "With `x` it is lazy."}
    assert [line for line in parameters.parameter_items(f, meanings, {}) if line][1:] == [
        "   - ``x``: With ``x`` it is lazy.",
        "   - ``scale`` (``float``): ``scale`` is a factor, e.g. ``2``\\ .",
    ]


def test_private_parts_are_left_out_of_public_pages():
    doc = "Public.\n\nUses `_private` names.\n\nNext: `codegen`."
    assert reference.public_text(doc) == "Public."


def test_calls_are_of_functions_without_examples():
    for module, templates in examples.CALLS.items():
        names = " ".join(templates.values()).split()
        assert len(names) == len(set(names)), module
        functions = {name: getattr(importlib.import_module(module), name) for name in names}
        assert [n for n, value in functions.items() if ">>>" in (value.__doc__ or "")] == []


def test_calls_show_their_value():
    names = {}
    exec(examples.SETUP, names)
    call = examples.calls("weft.numpy")["tril_indices"].replace("3", "1")
    assert examples.run_call(call, names) == [
        ">>> wnp.tril_indices(1)",
        "(Array([0], dtype=int32), Array([0], dtype=int32))",
    ]
