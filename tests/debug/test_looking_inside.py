"""The page on looking inside shows what happens."""

import doctest
from pathlib import Path

import pytest

import weft

PAGE = Path(weft.__file__).parents[1] / "docs" / "looking-inside.md"


@pytest.mark.skipif(not PAGE.exists(), reason="weft is installed without its documentation")
def test_the_examples_of_the_page():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 10 and not failed
