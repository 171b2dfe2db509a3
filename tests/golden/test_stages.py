"""The text of each compiler stage for small programs, by CHECK comments (see `tests.harness.golden`)."""

import importlib
import pkgutil

import pytest

import tests.golden
import weft
from tests.harness.golden import check_text, checks_of, programs_of
from weft._engine.util.config import Override

STAGES = [m.name for m in pkgutil.iter_modules(tests.golden.__path__) if "test_" not in m.name]
PROGRAMS = [
    pytest.param(stage, golden, id=f"{stage}-{golden.function.__name__}")
    for stage in STAGES
    for golden in programs_of(importlib.import_module(f"tests.golden.{stage}"))
]


def dumped_text(stage, golden, folder):
    """Return the text that the dump of a compilation has of one stage."""
    with Override(dump=str(folder)):
        weft.jit(golden.function, **golden.options).lower(*golden.args).compile()
    (path,) = folder.glob(f"*_jit_{golden.function.__name__}_/*_{stage}.txt")
    return path.read_text()


@pytest.mark.parametrize(("stage", "golden"), PROGRAMS)
def test_text_of_the_stage(stage, golden, tmp_path):
    check_text(dumped_text(stage, golden, tmp_path), checks_of(golden))


def test_every_stage_has_a_golden_file(tmp_path):
    mesh = weft.make_mesh((8,), ("x",))
    rows = weft.sharding.NamedSharding(mesh, weft.sharding.PartitionSpec("x"))
    with Override(dump=str(tmp_path)):
        weft.jit(lambda x: x.sum()).lower(
            weft.ShapeDtypeStruct((8,), "float32", sharding=rows)
        ).compile()
    stages = {path.stem[3:] for path in tmp_path.glob("*_jit_*/*.txt")}
    assert stages == set(STAGES)


def test_wrong_texts_are_refused():
    golden = programs_of(importlib.import_module("tests.golden.simplify"))[0]
    with pytest.raises(AssertionError, match="CHECK: no line after line 0"):
        check_text("{ lambda ; a:f32[4]. let in (a,) }", checks_of(golden))
