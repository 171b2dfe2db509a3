"""The tutorial on distributed arrays, run cell by cell on eight devices: layouts, errors and values.

The document is in ../shared/seeds, outside of the project. These tests are skipped if it is absent. At full size:

    WEFT_NUM_DEVICES=8 python tests/document/driver.py DOCUMENT record.json
"""

import json
from pathlib import Path

import pytest

from tests.document.driver import cells_of, rewrite
from tests.document.notebook import platform
from tests.harness.processes import run_python

DOCUMENT = Path(__file__).parents[2].parent / "shared" / "seeds" / "000_2cdfe1bffc1a2e32.txt"
SIZE = 256

CELLS = cells_of(DOCUMENT.read_text()) if DOCUMENT.exists() else []

ONE = "0"
GRID_42 = "0 1/2 3/4 5/6 7"
GRID_24 = "0 1 2 3/4 5 6 7"
ROWS_8 = "0/1/2/3/4/5/6/7"
ROWS_4 = "0,1/2,3/4,5/6,7"
COLUMNS_2 = "0,2,4,6 1,3,5,7"
EVERYWHERE = "0,1,2,3,4,5,6,7"

# In the order of the document: (a piece of the cell's text, an expression to evaluate after the cell, its value). An
# entry refers to the first cell with the text at or after the previous entry's cell.
CHECKS = [
    ("jax.config.update('jax_array', True)", "jax.__name__", "jax"),
    ("# Create an array of random values", "layout_of(y)", GRID_42),
    ("# Create an array of random values", "layout_of(x)", ONE),
    ("# Create an array of random values", "y.is_fully_replicated", False),
    ("# Create an array of random values", "bool((np.asarray(x) == np.asarray(y)).all())", True),
    ("# Create an array of random values", "float(x[0, 0])", 1.622642159461975),
    ("# Create an array of random values", "float(x[255, 255])", 0.6103212833404541),
    (
        "# Create an array of random values",
        "float(np.asarray(x, np.float64).sum())",
        -235.25902498608048,
    ),
    ("z = jnp.sin(y)", "layout_of(z)", GRID_42),
    ("z = jnp.sin(y)", "np.allclose(z, np.sin(np.asarray(y)), atol=1e-6)", True),
    ("import jax\nx = jax.random.normal", "layout_of(x)", ONE),
    ("devices = mesh_utils.create_device_mesh((8,))", "devices.shape", [8]),
    ("x = jax.device_put(x, sharding.reshape(8, 1))", "layout_of(x)", ROWS_8),
    ("sharding = sharding.reshape(4, 2)\nprint(sharding)", "sharding.shape", [4, 2]),
    ("y = jax.device_put(x, sharding)", "layout_of(y)", GRID_42),
    ("sharding = sharding.reshape(1, 8)", "sharding.shape", [1, 8]),
    ("y = jax.device_put(x, sharding)", "layout_of(y)", "0 1 2 3 4 5 6 7"),
    ("y = jax.device_put(x, sharding.replicate(axis=0", "layout_of(y)", COLUMNS_2),
    (
        "print(sharding.replicate(0).shape)",
        "[sharding.replicate(0).shape, sharding.replicate(1).shape]",
        [[1, 2], [4, 1]],
    ),
    ("y = jax.device_put(x, sharding.replicate(1))", "layout_of(y)", ROWS_4),
    ("mesh = maps.Mesh(devices, axis_names=('a', 'b'))", "layout_of(y)", GRID_42),
    ("mesh_sharding(P('a', 'b'))", "layout_of(y)", GRID_42),
    ("mesh_sharding(P('b', 'a'))", "layout_of(y)", "0 2 4 6/1 3 5 7"),
    ("mesh_sharding(P('a', None))", "layout_of(y)", ROWS_4),
    ("mesh_sharding(P(None, 'b'))", "layout_of(y)", COLUMNS_2),
    ("mesh_sharding(P(None, 'a'))", "layout_of(y)", "0,1 2,3 4,5 6,7"),
    ("mesh_sharding(P(('a', 'b'), None))", "layout_of(y)", ROWS_8),
    ("print('output sharding:')", "[layout_of(x), layout_of(y)]", [GRID_42, GRID_42]),
    (
        "w = jnp.dot(y, z)",
        "[layout_of(y), layout_of(z), layout_of(w)]",
        [ROWS_4, COLUMNS_2, GRID_42],
    ),
    ("w = jnp.dot(y, z)", "np.allclose(w, np.asarray(y) @ np.asarray(z), atol=1e-3)", True),
    ("x_single = jax.device_put(x, jax.devices()[0])", "layout_of(x_single)", ONE),
    ("w_copy = jnp.copy(w)", "layout_of(w_copy)", GRID_42),
    ("w_copy = jnp.copy(w)", "bool((np.asarray(w_copy) == np.asarray(w)).all())", True),
    (
        "sharding1 = PositionalSharding(jax.devices()[:4])",
        "[layout_of(y), layout_of(z)]",
        ["0 1/2 3", "4 5/6 7"],
    ),
    (
        "sharding2 = PositionalSharding(permuted_devices)",
        "[layout_of(y), layout_of(z)]",
        [GRID_42, "0 1/2 3/6 7/4 5"],
    ),
    ("print('no error!')", "layout_of(y + jnp.ones_like(y))", GRID_42),
    (
        "jax.lax.with_sharding_constraint = ",
        "jax.lax.with_sharding_constraint.__name__",
        "with_sharding_constraint",
    ),
    ("y = f(x)", "[layout_of(x), layout_of(y)]", [GRID_42, GRID_24]),
    ("y = f(x)", "bool((np.asarray(y) == np.asarray(x) + 1).all())", True),
    ("y = jax.lax.with_sharding_constraint(x, sharding.replicate())", "1", 1),
    ("y = f(x)", "layout_of(y)", EVERYWHERE),
    ("y = f(x)", "y.is_fully_replicated", True),
    ("params = jax.device_put(params, sharding.replicate())", "layout_of(batch[0])", ROWS_8),
    (
        "params = jax.device_put(params, sharding.replicate())",
        "layout_of(params[0][0])",
        EVERYWHERE,
    ),
    ("loss_jit(params, batch)", "float(loss_jit(params, batch))", 34.840706),
    ("step_size = 1e-5", "float(loss_jit(params, batch))", 25.32485),
    ("step_size = 1e-5", "[layout_of(W) for W, _ in params]", [EVERYWHERE] * 4),
    ("params_single = ", "float(loss_jit(params_single, batch_single))", 25.32485),
    ("batch = jax.device_put(batch, sharding.replicate(1))", "layout_of(batch[0])", ROWS_4),
    (
        "W1 = jax.device_put(W1, sharding.replicate())",
        "[layout_of(W2), layout_of(b2)]",
        [COLUMNS_2, COLUMNS_2],
    ),
    ("W1 = jax.device_put(W1, sharding.replicate())", "layout_of(W3)", "0,2,4,6/1,3,5,7"),
    ("print(loss_jit(params, batch))", "float(loss_jit(params, batch))", 25.32485),
    (
        "step_size = 1e-5\n\nfor _ in range(30):\n    grads",
        "float(loss_jit(params, batch))",
        19.685806,
    ),
    (
        "(W1, b1), (W2, b2), (W3, b3), (W4, b4) = params",
        "[layout_of(W2), layout_of(W3)]",
        [COLUMNS_2, "0,2,4,6/1,3,5,7"],
    ),
    ("x_sharding = ", "layout_of(x)", "0 1 2 3 4 5 6 7"),
    ("visualize_array_sharding(f(key, x))", "layout_of(f(key, x))", "0 1 2 3 4 5 6 7"),
    (
        "jax.config.update('jax_threefry_partitionable', True)",
        "layout_of(f(key, x))",
        "0 1 2 3 4 5 6 7",
    ),
]

# The numbers of the document's last cell, float32: arange(24) + uniform(PRNGKey(42), (24,)) in either layout.
STABLE = [
    0.7250368595123291, 1.8532514572143555, 2.9834160804748535, 3.0832529067993164, 4.033224582672119,
    5.4782867431640625, 6.172060489654541, 7.690027713775635, 8.602835655212402, 9.810046195983887,
]  # fmt: skip
PARTITIONABLE = [
    0.48870956897735596, 1.6797971725463867, 2.616271495819092, 3.561016082763672, 4.450644493103027,
    5.5858659744262695, 6.074809551239014, 7.77513313293457, 8.698959350585938, 9.818634033203125,
]  # fmt: skip

needs_document = pytest.mark.skipif(not CELLS, reason="the document is absent (../shared/seeds)")


def placed_checks():
    """Return the checks, each with the number of its cell."""
    placed, at = [], 0
    for position, (text, expression, expected) in enumerate(CHECKS):
        if position and CHECKS[position - 1][0] != text:
            at += 1
        while text not in CELLS[at] + "\n":
            at += 1
        placed.append((at, expression, expected))
    return placed


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """Return the records of all cells, run in one process."""
    folder = tmp_path_factory.mktemp("document")
    checks = folder / "checks.json"
    checks.write_text(json.dumps([[at, expression] for at, expression, _ in placed_checks()]))
    command = [
        Path(__file__).with_name("driver.py"),
        DOCUMENT,
        folder / "record.json",
        "--size",
        SIZE,
        "--checks",
        checks,
    ]
    done = run_python(*command, timeout=300, WEFT_NUM_DEVICES="8")
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "record.json").read_text())


def printed_by(record, text):
    return "\n".join(cell["printed"] for cell in record["cells"] if text in cell["code"])


@needs_document
def test_every_cell_runs(record):
    errors = [
        f"cell {i}: {cell['error']}" for i, cell in enumerate(record["cells"]) if cell["error"]
    ]
    assert not errors, "\n".join(errors)


@needs_document
@pytest.mark.parametrize(
    "number", range(len(CHECKS)), ids=[text.split("\n")[0][:40] for text, _, _ in CHECKS]
)
def test_layouts_and_values(record, number):
    at, expression, expected = placed_checks()[number]
    result = record["cells"][at]["checks"][expression]
    assert "error" not in result, result["error"]
    assert result["value"] == (
        pytest.approx(expected, rel=1e-4) if isinstance(expected, float) else expected
    )


@needs_document
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sharding1 = PositionalSharding(jax.devices()[:4])", ["ValueError", "device"]),
        ("sharding2 = PositionalSharding(permuted_devices)", ["ValueError", "device"]),
    ],
)
def test_disagreeing_devices_are_value_errors(record, text, words):
    printed = printed_by(record, text)
    assert all(word in printed for word in words), printed


@needs_document
def test_arrays_without_a_place_follow_the_others(record):
    assert printed_by(record, "y + jnp.ones_like(y)") == "no error!\n"


@needs_document
def test_positional_shardings_show_their_devices(record):
    shown = [cell["value"] for cell in record["cells"] if cell["code"] == "sharding"]
    assert (
        len(shown) == 1
        and shown[0].startswith("PositionalSharding(")
        and shown[0].count(platform()) == 8
    )
    printed = printed_by(record, "print(sharding.replicate(axis=0, keepdims=True))")
    assert printed.count("{") == 2 and all(str(i) in printed for i in range(8))


@needs_document
def test_sharded_and_single_products_agree(record):
    (cell,) = [cell for cell in record["cells"] if cell["code"].startswith("np.allclose")]
    assert cell["value"] in ("True", "np.True_", "Array(True, dtype=bool)")


@needs_document
def test_pictures_are_drawn(record):
    drawn = [cell for cell in record["cells"] if "visualize_array_sharding(" in cell["code"]]
    assert len(drawn) > 20 and all(
        "┌" in cell["printed"] and f"{platform()} 0" in cell["printed"] for cell in drawn
    )


@needs_document
def test_partitionable_random_numbers_need_no_communication(record):
    assert (
        printed_by(record, "jax_threefry_partitionable', True)\nf_exe") == "Communicating? False\n"
    )


@needs_document
def test_both_layouts_of_random_numbers(record):
    stable, partitionable = printed_by(record, "print('Stable:')").split("Partitionable:")
    for text, expected in (
        (stable.removeprefix("Stable:"), STABLE),
        (partitionable, PARTITIONABLE),
    ):
        numbers = [float(word) for word in text.replace("[", " ").replace("]", " ").split()]
        assert len(numbers) == 24
        assert numbers[:10] == pytest.approx(expected, rel=1e-5)


def test_timed_lines_become_plain_runs():
    code = "# a comment\n%timeit -n 5 -r 5 f(x).block_until_ready()"
    assert rewrite(code, 4) == "# a comment\nfor _ in range(3): f(x).block_until_ready()"


def test_the_documents_size_is_replaced():
    assert rewrite("zeros((8192, 8192))", 256) == "zeros((256, 256))"


def test_cells_are_found_between_prose():
    text = "+++\n\n```{code-cell}\na = 1\n```\n\n```python\nno\n```\n\n```{code-cell}\nb = 2\n\nc\n```\n"
    assert cells_of(text) == ["a = 1", "b = 2\n\nc"]
