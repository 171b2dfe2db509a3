"""SVG pictures of sharding plans and training plans."""

from xml.etree import ElementTree

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.tools.automatic.training_picture import training_picture

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def plan():
    struct = lambda *shape: weft.ShapeDtypeStruct(shape, np.float32)
    mesh = weft.make_mesh((8,), ("x",))
    layer = lambda w, x: wnp.tanh(x @ w["<w>"])
    return weft.auto.shardings(layer, {"<w>": struct(512, 4096)}, struct(64, 512), mesh=mesh)


def texts(picture):
    return [element.text for element in ElementTree.fromstring(picture).iter(f"{SVG}text")]


def test_picture_shows_mesh_and_layouts(plan):
    written = texts(plan.svg())
    assert [v.spec for v in plan.inputs] == [((), ("x",)), ((), ())]
    assert "w['<w>']" in written
    assert {"P(None, 'x')", "P()", "x 8", "arguments", "results"} <= set(written)
    assert written.count("0-7") == 1  # the replicated argument
    assert all(written.count(str(device)) == 3 for device in range(8))  # mesh, weight, result
    assert "prefers-color-scheme: dark" in plan.svg()
    assert plan.svg() == plan.svg()


def test_training_picture_has_bars_of_each_stage():
    best = weft.auto.plan("llama3-70b", cluster="h100:64", batch=512, top=1)[0]
    drawn = training_picture(best)
    written = texts(drawn)
    stages = best.mesh_shape["pipeline"]
    assert [t for t in written if t.startswith("stage ")] == [f"stage {i}" for i in range(stages)]
    paths = ElementTree.fromstring(drawn).iter(f"{SVG}path")
    bars = sum(path.get("d").count("M") for path in paths)
    assert bars == sum(map(len, best.timelines()))
    assert "0" in written and any("micro batches" in t for t in written)
