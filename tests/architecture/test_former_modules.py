"""Pickles of earlier versions, which name modules that have moved since."""

import importlib
import pickle
import sys

import numpy as np
import pytest

import weft
from tests.harness.processes import run_python
from weft.sharding import NamedSharding, PartitionSpec as P

#: former module and name -> the class of today
CLASSES = {
    ("weft.ir.mesh", "Mesh"): weft.sharding.Mesh,
    ("weft.ir.specs", "PartitionSpec"): P,
    ("weft.ir.shardings", "NamedSharding"): NamedSharding,
    ("weft.core.trace", "Tracer"): weft.core.Tracer,
    ("weft.ops.contraction", "Precision"): weft.lax.Precision,
    ("weft.util.trees.keypath", "DictKey"): weft.tree_util.DictKey,
}


@pytest.mark.parametrize(
    ("former", "today"), CLASSES.items(), ids=lambda x: ".".join(x) if isinstance(x, tuple) else ""
)
def test_former_names_give_the_classes_of_today(former, today):
    module, name = former
    assert pickle.loads(f"c{module}\n{name}\n.".encode()) is today


def test_pickles_load_in_a_fresh_process():
    text = b"cweft.ir.specs\nPartitionSpec\n(S'a'\ntR."  # a call with one text
    done = run_python("-c", f"import pickle; print(pickle.loads({text!r}))")
    assert done.stdout == "P('a',)\n", done.stderr


def test_former_names_are_no_second_modules():
    importlib.import_module("weft.ir.mesh")
    assert sys.modules["weft.ir.mesh"] is sys.modules["weft._engine.ir.mesh"]
    assert sys.modules["weft._engine.ir.mesh"].__spec__.name == "weft._engine.ir.mesh"


def test_unknown_modules_are_still_missing():
    with pytest.raises(ModuleNotFoundError, match=r"weft\.no_such_module"):
        import weft.no_such_module  # noqa: F401
    with pytest.raises(ModuleNotFoundError, match=r"weft\.ir\.no_such_module"):
        import weft.ir.no_such_module  # noqa: F401


def test_arrays_survive_pickling():
    x = weft.numpy.arange(6.0)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(x)), x)
