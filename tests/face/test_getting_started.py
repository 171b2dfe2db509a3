"""The code of the page for newcomers runs as it stands there."""

import doctest
import re
from pathlib import Path

import pytest

import weft

PAGE = Path(weft.__file__).parents[1] / "docs" / "getting-started.md"


@pytest.mark.skipif(not PAGE.exists(), reason="weft is installed without its pages")
def test_the_examples_of_the_page():
    text = "".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
    test = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0)
    results = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
    assert results.attempted > 30 and not results.failed
