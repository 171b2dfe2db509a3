"""The machine model: the known machines, the fields, and the use of every field by a pass."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.processes import run_python
from weft._engine.codegen.ir import gemm_types
from weft._engine.codegen.toolchain import target
from weft._engine.util import machine
from weft._engine.util.machine_model import MachineModel, find_model, machine_model, measured
from weft._engine.util.record import replace

ENGINE = Path(__file__).parents[2] / "weft" / "_engine"
FACTS = {"name", "l1_bytes", "l2_bytes", "l3_bytes", "vector_bytes", "vector_registers"}
#: thresholds that differ from other machines because of a measurement
MEASURED = {
    "neoverse": {"pool_spin_hints"},
    "intel-avx512": {"matrix_units"},
    "sapphire-rapids": {"matrix_units", "stream_bytes"},
    "zen3": {"gemm_pack_copy", "gemm_pack_far"},
}
#: limits that depend on the machine, although they are equal on all known machines
SHARED = {
    "buffer_alignment",
    "cache_line",
    "cache_ways",
    "huge_page",
    "most_tasks",
    "parallel_bytes",
    "parallel_work",
    "serial_elements",
    "task_bytes",
}
PACKAGES = ("backends", "codegen", "compiler", "partition", "processes", "runtime")


def numbers(tree: ast.Module) -> Iterator[str]:
    """Return the uppercase names to which a module assigns numbers, alone or in tuples, lists or
    tables."""
    for node in tree.body:
        if (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and node.value is not None
            and is_number(node.value)
        ):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (
                    name.id
                    for name in ast.walk(target)
                    if isinstance(name, ast.Name) and name.id.isupper()
                )


def is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.UnaryOp(_, operand):
            return is_number(operand)
        case ast.BinOp(left, _, right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elements) | ast.List(elements) | ast.Dict(_, elements):
            return bool(elements) and all(map(is_number, elements))
    return False


def test_numbers_are_found():
    text = (
        "A = 1 << 20\n_B, C = 2, -3 / 4\nD: int = 5\nE = 'text'\nF = {'a': 1}\ng = 3\nH = (1, 'a')\nI = True\n"
        "K = {'a': (1, 2)}\nL = {}\ndef f():\n    J = 1"
    )
    assert [*numbers(ast.parse(text))] == ["A", "_B", "C", "D", "F", "K"]


def test_the_model_holds_what_differs_between_machines():
    fields = {*MachineModel.__slots__}
    assert fields == FACTS | SHARED | set().union(*MEASURED.values())
    assert len(fields) <= 20, "a number that one pass reads is a constant of that pass"


def test_each_threshold_is_defined_once():
    """The pass that uses a constant defines it; other modules import it from there."""
    places: dict[str, set[str]] = {}
    for path in [path for name in PACKAGES for path in (ENGINE / name).rglob("*.py")]:
        _, _, thresholds = path.read_text().partition(
            "# thresholds, measured on several machines\n"
        )
        for name in numbers(ast.parse(thresholds.partition("\n\n")[0])):
            places.setdefault(name.strip("_"), set()).add(path.name)
    assert len(places) > 150
    fields = {name.upper() for name in MachineModel.__slots__}
    assert not fields & {*places} and all(len(paths) == 1 for paths in places.values()), places


def test_every_field_is_read():
    read = {
        node.attr
        for name in (*PACKAGES, "api")
        for path in (ENGINE / name).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert FACTS < {*MachineModel.__slots__} and {*MachineModel.__slots__} - FACTS - read == set()


def test_a_model_is_frozen():
    with pytest.raises(AttributeError, match="frozen"):
        machine_model().cache_line = 128  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "name",
    ["zen3", "zen4", "zen5", "intel-avx512", "sapphire-rapids", "avx2", "neoverse", "generic"],
)
def test_known_machines(name):
    model = find_model(name)
    assert model.name == name and model.l1_bytes < model.l2_bytes < model.l3_bytes
    others = {
        field: getattr(find_model("generic"), field) for field in FACTS | MEASURED.get(name, set())
    }
    assert replace(model, **others) == find_model("generic"), (
        "thresholds differ where measurements differ: record them above"
    )


@pytest.mark.parametrize(
    "text, name",
    [
        (
            "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 33\nflags\t\t: sse2 avx avx2",
            "zen3",
        ),
        (
            "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nflags\t\t: avx avx2 avx512f avx512dq",
            "zen4",
        ),
        (
            "vendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nflags\t\t: avx2 avx512f",
            "zen5",
        ),
        ("vendor_id\t: AuthenticAMD\ncpu family\t: 23\nmodel\t\t: 49\nflags\t\t: avx2", "avx2"),
        (
            "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 106\nflags\t\t: avx2 avx512f",
            "intel-avx512",
        ),
        (
            "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nflags\t\t: avx2 avx512f",
            "sapphire-rapids",
        ),
        (
            "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\nflags\t\t: avx2 avx512f",
            "sapphire-rapids",
        ),
        ("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 94\nflags\t\t: avx2", "avx2"),
        ("vendor_id\t: GenuineIntel\nflags\t\t: sse2", "generic"),
        ("", "generic"),
    ],
)
def test_names_of_machines(text, name):
    assert machine.name_of(text, "x86_64") == name
    assert machine.name_of(text, "riscv64") == "generic"


@pytest.mark.parametrize(
    "text",
    [
        "CPU implementer\t: 0x41\nCPU part\t: 0xd40",
        "",
        "vendor_id\t: AuthenticAMD\ncpu family\t: 26\nflags\t\t: avx2 avx512f",
    ],
)
def test_aarch64_has_neon_whatever_cpuinfo_shows(text):
    model = find_model(machine.name_of(text, "aarch64"))
    assert (model.vector_bytes, model.vector_registers) == (16, 32)


def test_widths_are_those_of_the_code_generator():
    current = target.current()
    assert "WEFT_CPU_FEATURES" in os.environ or machine_model().vector_bytes == current.vector_bytes
    assert gemm_types.machine().vector_bytes == current.vector_bytes


def test_caches_of_this_machine_are_facts_only():
    facts = {field: getattr(machine_model(), field) for field in FACTS}
    assert min(measured().l1_bytes, measured().l2_bytes, measured().l3_bytes) > 0
    assert replace(measured(), **facts) == machine_model()


def test_a_model_may_be_named():
    code = (
        "from weft._engine.util.machine_model import machine_model as m; from weft._engine.codegen.toolchain import target as t; "
        "print(m().name, '|zen3|' in t.current().identity)"
    )
    assert run_python("-c", code, WEFT_MACHINE_MODEL="zen3").stdout.split() == ["zen3", "True"]
    assert (
        "WEFT_MACHINE_MODEL: 'abacus' is not one of zen3, zen4"
        in run_python("-c", code, WEFT_MACHINE_MODEL="abacus").stderr
    )
