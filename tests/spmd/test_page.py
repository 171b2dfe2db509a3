"""The page on partitioning says what happens: its examples run."""

import doctest
from pathlib import Path

import pytest

import weft

PAGE = Path(weft.__file__).parents[1] / "docs" / "partitioning.md"


@pytest.mark.skipif(not PAGE.exists(), reason="weft is installed without its pages")
def test_page():
    results = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert results.attempted > 10 and not results.failed
