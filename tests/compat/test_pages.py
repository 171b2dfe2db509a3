"""`compat_suites/pages.py`: the cells of pages, run on weft in a separate process."""

import json
import sys
from pathlib import Path

import pytest

from tests.harness.scripts import load_script

MARKDOWN = """# A page

```{code-cell}
import jax.numpy as jnp
%matplotlib inline
x = jnp.arange(3)
```

```{code-cell} ipython3
:tags: [raises-exception]

jnp.ones(2) + jnp.ones(3)
```

```python
this is no cell
```

```{code-cell}
---
tags: [hide-input]
---
%time y = x.sum()
undefined
```

```{code-cell}
assert y == 3
while True:
    pass
```

```{code-cell}
y.item()
```
"""
RST = """
Title
=====

>>> a = 1
>>> for i in range(2):
...     a += i
>>> a
2

.. code-block:: python

   b = 3

   c = b

.. code-block:: console

   $ ls
"""


@pytest.fixture(scope="module")
def pages():
    return load_script("compat_suites/pages.py")


def test_cells(pages, tmp_path):
    for name, text in (
        ("page.md", MARKDOWN),
        ("other.rst", RST),
        ("page.ipynb", "{}"),
        ("empty.md", "words"),
    ):
        (tmp_path / name).write_text(text)
    code = {"cell_type": "code", "source": ["a = 1\n", "a"], "metadata": {}}
    (tmp_path / "notes.ipynb").write_text(
        json.dumps({"cells": [{"cell_type": "markdown", "source": ["words"]}, code]})
    )
    assert [page.name for page in pages.pages_of(tmp_path)] == [
        "notes.ipynb",
        "other.rst",
        "page.md",
    ]
    assert [cell.code for cell in pages.cells_of(tmp_path / "notes.ipynb")] == ["a = 1\na"]
    statements = ["a = 1", "for i in range(2):\n    a += i", "a", "b = 3\n\nc = b"]
    assert [cell.code for cell in pages.cells_of(tmp_path / "other.rst")] == statements
    cells = pages.cells_of(tmp_path / "page.md")
    assert [cell.raises for cell in cells] == [False, True, False, False, False]
    assert pages.plain(cells[2].code) == "y = x.sum()\nundefined"
    assert pages.plain("!pip install x\n%timeit -n 3 f()\n%%time") == "pass\nf()"


def test_a_page_on_weft(pages, tmp_path):
    (tmp_path / "page.md").write_text(MARKDOWN)
    results = {}
    pages.run_folder(
        Path(sys.executable), "weft", tmp_path, pages.pages_of(tmp_path), 3.0, results, lambda: None
    )
    assert [row[1] for row in results["page.md"]] == ["ran", "raised", "raised", "timeout", "ran"]
    on_jax = [
        [number, status, "", 0, number == 1]
        for number, status in enumerate(["ran", "raised", "raised", "ran", "ran"])
    ]
    rows, failed = pages.compare({"jax": {"page.md": on_jax}, "weft": results})
    assert rows == ["| page.md | 5 | 4 | 3 |"]
    assert [line.partition(": ")[0] for line in failed] == ["page.md[3] timeout"]
