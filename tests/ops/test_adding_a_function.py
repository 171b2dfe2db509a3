"""docs/adding-an-op.md, followed exactly in a copy of the package: one file is edited, and all
features of the function work."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "adding-an-op.md").read_text()
FILE, BLOCK = re.findall(r"append this to\n`([\w/.]+)`:\n\n```python\n(.*?)```", PAGE, re.DOTALL)[0]
#: the op composed of scalar operations, and the tables with its names: file, row, names
COMPOSED = re.search(r"^```py\n(cube_p = .*?)^```", PAGE, re.DOTALL | re.MULTILINE)[1]
TABLES = (("weft/_engine/ops/elementwise.py", "cube"), ("weft/lax/__init__.py", "cube cube_p"))
(NAME,) = [node.name for node in ast.parse(BLOCK).body if isinstance(node, ast.FunctionDef)]

SCRIPT = """
import sys
import numpy as np
import weft, weft.numpy as wnp
from weft import lax
from weft._engine.ir.loops_eval import evaluate
from weft._engine.ir.loops_text import parse_kernel

name = sys.argv[1]
x = np.linspace(-3, 3, 992, dtype=np.float32)
wide = x.astype(np.float64)
exact, slope = -2 * np.sin(wide / 2)**2, -np.sin(wide)

def close(got, want):
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=2e-6, atol=1e-7)

# Loops find the function by its name without imports
y = np.zeros(992, np.float32)
evaluate(parse_kernel(f"kernel k(in x: f32[992], out y: f32[992]) {{ vector i in 992 {{ y[@i] = {name}.f32(x[@i]) }} }}"), x, y)
close(y, exact)

# the function of weft.numpy promotes, the function of lax does not
function = getattr(wnp, name)
close(function(x), exact)
close(function(np.arange(3)), [0, np.cos(1) - 1, np.cos(2) - 1])
close(getattr(lax, name)(x), exact)
assert getattr(lax, name + "_p").name == name and function.__name__ == name

# compiled, differentiated, mapped, sharded
close(weft.jit(function)(x), exact)
close(weft.vmap(weft.grad(function))(x), slope)
close(weft.jvp(weft.vmap(function), (x.reshape(8, 124),), (np.ones((8, 124), np.float32),))[1], slope.reshape(8, 124))
mesh = weft.make_mesh((8,), ("i",))
sharding = weft.sharding.NamedSharding(mesh, weft.sharding.PartitionSpec("i"))
sharded = weft.jit(function)(weft.device_put(x, sharding))
assert sharded.sharding.is_equivalent_to(sharding, 1)
np.testing.assert_array_equal(np.asarray(sharded), np.asarray(weft.jit(function)(x)))
compiled = weft.jit(function).lower(x).compile()
assert f"to_apply=%{name}." in compiled.as_text() and compiled.cost_analysis()["transcendentals"] == 992

# the composed op
close(weft.jit(lax.cube)(x) * 1e-2, wide**3 * 1e-2)
close(weft.vmap(weft.grad(lax.cube))(x), 3 * wide**2)
cubes = weft.jit(lax.cube)(weft.device_put(x, sharding))
assert cubes.sharding.is_equivalent_to(sharding, 1)
np.testing.assert_array_equal(np.asarray(cubes), np.asarray(weft.jit(lax.cube)(x)))

# the tests have it
from tests.harness.laws import check_all
from tests.ops.test_elementwise import CASES
[case] = [case for case in CASES if case.name == name]
check_all(case)
from tests.codegen.accuracy import PAGE, TYPES, bound, measure, write_page
assert all(measure(name, type_)[0] <= bound(name, type_) for type_ in TYPES)
before = PAGE.read_text()
write_page(PAGE, [name])
added = set(PAGE.read_text().splitlines()) - set(before.splitlines())
assert len(added) == 1 and added.pop().startswith(f"| `{name}` | ")
"""


def test_the_page_can_be_followed(tmp_path):
    for folder in ("weft", "tests/harness", "tests/ops", "tests/codegen"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "accuracy.md", tmp_path / "docs")
    with (tmp_path / FILE).open("a") as file:
        file.write("\n\n" + BLOCK)
    with (tmp_path / "weft/_engine/ops/arithmetic.py").open("a") as file:
        file.write("\n\n" + COMPOSED)
    for path, names in TABLES:
        assert f"`{names}`" in PAGE and f"`{path}`" in PAGE
        table = tmp_path / path
        row = '"weft._engine.ops.arithmetic": """\n'
        assert row in table.read_text()
        table.write_text(table.read_text().replace(row, f"{row}        {names}\n"))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, NAME],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(tmp_path), "WEFT_NUM_DEVICES": "8"},
    )
    assert done.returncode == 0, done.stderr


def test_the_record_is_short():
    function = next(node for node in ast.parse(BLOCK).body if isinstance(node, ast.FunctionDef))
    formula = [
        line for node in function.body[1:] for line in range(node.lineno, node.end_lineno + 1)
    ]
    assert len(BLOCK.splitlines()) - len(formula) <= 10
