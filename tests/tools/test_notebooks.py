"""Cells of a notebook: values are shown, a computation is interrupted, and cells run again."""

import asyncio
import os

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries that run notebooks

CELLS = {
    "begin": """
import weft, weft.numpy as wnp
from weft.sharding import NamedSharding, PartitionSpec as P, make_mesh
x = weft.device_put(wnp.arange(16.0).reshape(8, 2), NamedSharding(make_mesh((8,), ("x",)), P("x")))
endless = weft.jit(lambda x: weft.lax.fori_loop(0, 10**9, lambda i, y: wnp.tanh(y @ y), x))
big = wnp.ones((500, 500))
""",
    "show": "x[:2]",
    "sharding": "x.sharding",
    "picture": "weft.debug.visualize_array_sharding(x)",
    "endless": "endless(big).block_until_ready()",
    "again": "weft.jit(lambda x: x.sum())(x), endless.__name__",
    "fails": "wnp.ones(3) + wnp.ones(4)",
    "after": "(wnp.ones(3) + 1).sum().item()",
}


@pytest.fixture(scope="module")
def outputs():
    """What each cell shows: texts, or the name of an error."""
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code) for code in CELLS.values()]
    )
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", allow_errors=True
    )

    async def run():
        async with client.async_setup_kernel(
            env={**os.environ, "WEFT_NUM_DEVICES": "8", "PYTHONPATH": os.pathsep.join(["."])}
        ):
            for number, (name, cell) in enumerate(zip(CELLS, notebook.cells)):
                stop = asyncio.create_task(interrupt()) if name == "endless" else None
                await client.async_execute_cell(cell, number)
                if stop is not None:
                    stop.cancel()

    async def interrupt():
        while True:
            await asyncio.sleep(2)
            await client.km.interrupt_kernel()

    asyncio.run(run())
    shown = lambda out: (
        out.get("ename")
        or out.get("text")
        or out["data"].get("text/html")
        or out["data"]["text/plain"]
    )
    return {name: "".join(map(shown, cell.outputs)) for name, cell in zip(CELLS, notebook.cells)}


def test_values_are_shown(outputs):
    assert outputs["begin"] == "" and "CPU 7" in outputs["picture"]
    assert outputs["show"].startswith('<div class="weft"><div>float32[2,2] on 8 devices</div>')
    assert "Array([[0., 1.],\n       [2., 3.]], dtype=float32)" in outputs["show"]
    assert outputs["sharding"].startswith('<div class="weft">')


def test_a_computation_is_interrupted_and_cells_run_on(outputs):
    assert (
        outputs["endless"] == "KeyboardInterrupt"
        and outputs["again"] == "(Array(120., dtype=float32), '<lambda>')"
    )


def test_an_error_ends_its_cell_alone(outputs):
    assert outputs["fails"] == "ShapeError" and outputs["after"] == "6.0"
