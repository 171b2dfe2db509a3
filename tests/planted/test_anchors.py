"""Planted faults fit the sources, and the harness distinguishes caught from missed faults."""

import ast
import shutil
import sys

import pytest

from tests.planted import battery, mutants, tree
from tests.planted.faults import FAULTS, PlantedFault
from tests.planted.tree import ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_an_anchor_is_there_once_and_the_fault_is_valid(fault):
    original = (ROOT / fault.path).read_text()
    text = fault.apply(original)
    assert text != original
    if fault.path.endswith(".py"):
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(original))


def test_there_are_twenty_faults_with_names():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == 20


@pytest.mark.parametrize("text", ["b = 1", "a = 1\na = 1"], ids=["gone", "twice"])
def test_a_missing_or_doubled_anchor_is_an_error(text):
    fault = PlantedFault("example", "", "example.py", "a = 1", "a = 2")
    with pytest.raises(ValueError, match=r"its anchor is [02] times in example\.py"):
        fault.apply(text)


def test_a_file_is_as_before_after_its_fault(tmp_path):
    fault = PlantedFault("example", "", "example.py", "a = 1", "a = 2")
    file = tmp_path / "example.py"
    file.write_text("a = 1\n")
    with tree.plant(tmp_path, fault):
        assert file.read_text() == "a = 2\n"
    assert file.read_text() == "a = 1\n"


SOURCE = '''
def f(x, shape):
    """A docstring: 1 + 2."""
    if shape[0] < 3:
        raise ValueError(f"{x - 1} is wrong" + str(4 + 5))
    x.update(shape, 7)
    total = x.a - x.b
    for i in range(3):
        total += i if x else 0
    return g(total, shape)
'''


def test_mutants_of_a_file(tmp_path):
    (tmp_path / "m.py").write_text(SOURCE)
    mutations = mutants.MutantSource(tmp_path, "m.py").mutants()
    kinds = {(m.kind, m.new) for m in mutations}
    assert {
        ("swapped axes", "(shape[1])"),
        ("changed bound", "(shape[0] <= 3)"),
        ("negated condition", "(not (shape[0] < 3))"),
        ("dropped statement", "pass"),
        ("swapped operands", "(x.b - x.a)"),
        ("changed bound", "(range(3 - 1))"),
        ("negated condition", "(i if not x else 0)"),
        ("swapped arguments", "(g(shape, total))"),
    } <= kinds
    assert all(mutants.is_valid(tmp_path, m) for m in mutations)
    assert not [m for m in mutations if "wrong" in m.old or "4 + 5" in m.old]


def test_a_mutant_of_a_changed_file_is_an_error(tmp_path):
    (tmp_path / "m.py").write_text(SOURCE)
    mutant = mutants.MutantSource(tmp_path, "m.py").mutants()[0]
    with pytest.raises(ValueError, match="has changed"):
        mutant.apply("# a line more" + SOURCE)


def test_checks_of_the_faulty_package_come_first():
    names = [check.name for check in battery.order_checks("weft/_engine/partition/reshard.py")]
    assert names[0] == "spmd" and set(names) <= {check.name for check in battery.CHECKS}


@pytest.mark.parametrize(
    "new, expected",
    [
        ({"results": "a", "values": [[1.0, 2.0]]}, "other code"),
        ({"results": "b", "values": [[1.0, 2.0001]]}, "other rounding"),
        ({"results": "b", "values": [[1.0, 2.5]]}, "other values"),
        ({"results": "b", "values": [[1.0, float("nan")]]}, "other values"),
        ({"results": "died: exit -11"}, "other values"),
    ],
    ids=["code", "rounding", "values", "nan", "death"],
)
def test_differences_of_results(new, expected):
    assert battery.classify({"results": "a", "values": [[1.0, 2.0]]}, new) == expected


def test_a_failing_check_is_a_catch(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text("def test_two():\n    assert 1 + 1 == 2\n")
    check = battery.BatteryCheck("example", ("tests/test_it.py",))
    clean = tmp_path / "clean"
    shutil.copytree(tmp_path / "tests", clean / "tests")
    runner = battery.Battery(tmp_path, clean, {}, workers=1)
    assert runner.run([check]) is None and runner.baseline["example"]["failed"] == []
    fault = PlantedFault("example", "", "tests/test_it.py", "== 2", "== 3")
    with tree.plant(tmp_path, fault):
        catch = runner.run([check])
    assert catch is not None and catch.test == "tests/test_it.py::test_two"


def test_a_check_without_end_is_a_catch(tmp_path):
    with (tmp_path / "output").open("w+") as output:
        command = [sys.executable, "-c", "while True: pass"]
        assert battery.run_group(command, tmp_path, {}, output, 0.5) is None
