"""HTML of arrays, meshes, shardings, programs and structures of trees in notebooks."""

from html.parser import HTMLParser

import numpy as np
import pytest

import weft
from weft import lax, numpy as wnp
from weft._engine.hooks import notebook_html
from weft.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec as P, PositionalSharding

MESH = Mesh(np.array(weft.devices()[:8]).reshape(4, 2), ("data", "model"))
CUBE = Mesh(np.array(weft.devices()[:8]).reshape(2, 2, 2), ("a", "b", "c"))


class Reader(HTMLParser):
    """A reader of HTML that checks the nesting of tags, and collects texts, cells and summaries."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}
        self.cells: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data + "\n"
        if self.open and self.open[-1] == "td":
            self.cells.append(data)


def read(value) -> Reader:
    text = value._repr_html_()
    assert text is not None and "<script" not in text
    return Reader(text)


def place(shape, *spec, mesh=MESH):
    return weft.device_put(wnp.zeros(shape), NamedSharding(mesh, P(*spec)))


def test_an_array_is_shown_as_it_is_sharded():
    shown = read(place((8, 4), "data", "model"))
    assert shown.cells == [f"CPU {i}" for i in range(8)]
    assert "float32[8,4] on 8 devices" in shown.text
    assert "P('data', 'model') on a mesh of 'data': 4, 'model': 2" in shown.text
    assert "Array([[0., 0., 0., 0.]," in shown.text
    assert read(place((8, 4), "data")).cells == ["CPU 0,1", "CPU 2,3", "CPU 4,5", "CPU 6,7"]
    assert len(read(place((2, 2, 2), "a", "b", "c", mesh=CUBE)).cells) == 8


def test_arrays_of_one_device_and_deleted_arrays_are_text():
    x = place((8,), "data")
    x.delete()
    assert x._repr_html_() is wnp.ones(3)._repr_html_() is None
    assert notebook_html(3) is None


@pytest.mark.parametrize(
    "sharding, cells",
    [
        (NamedSharding(MESH, P("data", "model")), [f"CPU {i}" for i in range(8)]),
        (NamedSharding(MESH, P(None, ("data", "model"))), [f"CPU {i}" for i in range(8)]),
        (NamedSharding(MESH, P()), ["CPU 0,1,2,3,4,5,6,7"]),
        (PositionalSharding(weft.devices()[:2]), ["CPU 0", "CPU 1"]),
        (weft.sharding.SingleDeviceSharding(weft.devices()[3]), ["CPU 3"]),
        (NamedSharding(AbstractMesh((4,), ("x",)), P("x")), []),
    ],
    ids=["dims", "axes-of-a-dim", "replicated", "positional", "single", "abstract"],
)
def test_a_sharding_is_shown_as_tiles(sharding, cells):
    assert read(sharding).cells == cells


def test_a_mesh_is_shown_with_axes_and_devices():
    shown = read(MESH)
    assert shown.cells == [
        "data",
        "4",
        "Auto",
        "model",
        "2",
        "Auto",
        *[f"CPU {i}" for i in range(8)],
    ]
    assert read(AbstractMesh((4,), ("x",))).cells == ["x", "4", "Auto"]
    assert "without axes" in read(Mesh(np.array(weft.devices()[0]), ())).text


def test_inner_programs_are_folded():
    def f(x):
        return lax.scan(lambda c, y: (c + y, c), x, wnp.ones((4, 3)))

    program = weft.make_jaxpr(weft.jit(f))(wnp.ones(3))
    shown = read(program)
    assert shown.counts["details"] == shown.counts["summary"] >= 3
    words = " ".join(shown.text.split())
    assert " ".join(str(program).split()) in words
    assert "program of 1 equation" in words


def test_a_structure_is_shown_as_nested_entries():
    shown = read(weft.tree.structure({"params": {"w<b>": [1, 2], "none": None}, "step": 1}))
    assert shown.counts["details"] == 3
    for words in (
        "PyTreeDef with 3 leaves",
        "['w<b>']: list of 2 entries",
        "['none']: None",
        "['step']: *",
    ):
        assert words in shown.text


def test_a_class_that_accepts_no_leaves_is_shown_as_text():
    class Strict:
        def __init__(self, x):
            if type(x) is not int:
                raise TypeError

    weft.tree_util.register_pytree_node(Strict, lambda s: ((1,), None), lambda _, xs: Strict(*xs))
    assert "Strict" in read(weft.tree.structure(Strict(1))).text
