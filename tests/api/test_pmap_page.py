"""The page on collectives: its examples run as they stand."""

import doctest
import re
from pathlib import Path

import weft

PAGE = Path(weft.__file__).parents[1] / "docs" / "collectives.md"


def test_the_examples_run():
    text = "".join(re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
    example = doctest.DocTestParser().get_doctest(text, {}, "collectives", str(PAGE), 0)
    result = doctest.DocTestRunner(verbose=False).run(example)
    assert len(example.examples) > 15 and not result.failed
