"""The API reference of the site has every public name, and no docstring can break it."""

import importlib
import pkgutil
import re

import pytest

import weft
from tests.harness.scripts import load_script

reference = load_script("docs/reference.py")
LISTED = [name for names in reference.MODULES.values() for name in names]
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


@pytest.mark.parametrize("name", LISTED)
def test_every_public_name_has_an_entry_and_a_sentence(name):
    module, text = importlib.import_module(name), reference.page(name, {})
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
    assert reference.inline(text, {"jit": "weft.jit"}) == shown


def test_a_docstring_becomes_paragraphs_lists_and_code():
    doc = "Adds.\n\nTwo lines\nof text:\n- one\n  item\n- two\n\n    verbatim *x*\n\n>>> 1 + 1\n2"
    assert reference.paragraphs(doc, {}) == [
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
