"""The page on shard_map: its examples run as they stand."""

import doctest
from pathlib import Path

import weft

PAGE = Path(weft.__file__).parents[1] / "docs" / "shard-map.md"


def test_the_examples_run():
    text = PAGE.read_text().replace("```python\n", "").replace("```", "")
    example = doctest.DocTestParser().get_doctest(text, {}, "shard-map", str(PAGE), 0)
    result = doctest.DocTestRunner(verbose=False).run(example)
    assert len(example.examples) > 15 and not result.failed
