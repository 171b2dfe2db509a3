"""The examples of the users' page run as they stand there."""

import doctest
import re
from pathlib import Path

import pytest

import weft

PAGE = Path(weft.__file__).parents[1] / "docs" / "explicit-sharding.md"


@pytest.mark.skipif(not PAGE.exists(), reason="weft is installed without its pages")
def test_the_examples_of_the_page():
    text = "".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
    try:
        runner = doctest.DocTestRunner(verbose=False)
        results = runner.run(doctest.DocTestParser().get_doctest(text, {}, PAGE.name, str(PAGE), 0))
    finally:
        weft.set_mesh(None)
    assert results.attempted > 10 and not results.failed
