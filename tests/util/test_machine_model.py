"""The machine model: which machines it knows, that passes read all of it, and that they hold no such number themselves."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.processes import run_python
from weft._engine.codegen.ir import gemm_types
from weft._engine.codegen.toolchain import target
from weft._engine.util import machine
from weft._engine.util.machine_model import MachineModel, known, machine_model, measured
from weft._engine.util.record import replace

ENGINE = Path(__file__).parents[2] / "weft" / "_engine"
FACTS = {"name", "l1_bytes", "l2_bytes", "l3_bytes", "vector_bytes", "vector_registers"}
#: thresholds that differ from those of other machines, because somebody measured that they should
MEASURED = {
    "neoverse": {"pool_spin_hints"},
    "intel-avx512": {"gemm_bf16_dots"},
    "zen3": {"gemm_pack_copy", "gemm_pack_far"},
}
#: numbers in the packages below that are not thresholds of a machine, and what they are instead
OTHER_NUMBERS: dict[str, set[str]] = {
    "backends/array_spec.py": {"_MAX_NDIM"},  # of NumPy
    "backends/cpu/buffer.py": {
        "ALIGNMENT",
        "_HUGE_PAGE",
        "_LARGE",
    },  # what the native heap and compiled code agree on
    "backends/cpu/calls.py": {"_MOST_ENTRIES"},  # entries of a cache
    "backends/targets.py": {"_GPUS_PER_HOST"},  # of machines that are compiled for
    "backends/pjrt/backend.py": {"_DLPACK_DEVICES"},  # numbers of DLPack
    "backends/host_calls.py": {"_KEPT_FAILURES"},  # exceptions that are kept
    "backends/pjrt/callbacks.py": {
        "_EXECUTE",
        "_INTERNAL",
        "_METADATA",
        "_PLACES",
    },  # of an interface
    "backends/pjrt/c_api.py": {"FFI_EXTENSION", "OLDEST"},  # of an interface
    "backends/pjrt/client.py": {"_IMMUTABLE_ONLY_DURING_CALL"},  # the same
    "backends/pjrt/compile_options.py": {  # numbers of fields
        "_BUILD_OPTIONS",
        "_DEVICE_ASSIGNMENT",
        "_DEVICE_ORDINAL",
        "_ENV_OPTION_OVERRIDES",
        "_NUM_PARTITIONS",
        "_NUM_REPLICAS",
    },
    "codegen/gemm/descriptor.py": {"BAND_ZERO", "IN_RUNS"},  # words of a descriptor
    "codegen/gemm/gemm_dot.py": {"_ROW_COUNTS"},  # which functions there are
    "codegen/ir/builder.py": {"BITS"},  # of types
    "codegen/ir/gemm_types.py": {"INTEGERS"},  # the same
    "codegen/ir/microkernels.py": {
        "SPARE_ROWS",
        "STREAMS",
    },  # which kernels there are; words of a descriptor
    "codegen/kernel/complex.py": {"_HUGE", "_LARGE"},  # floats near the ends of their range
    "codegen/kernel/emission.py": {"_SHORT_SIZE"},  # what 32-bit indices reach
    "codegen/kernel/expressions.py": {"_FARTHEST"},  # beyond any place
    "codegen/kernel/kernel_emitter.py": {"_FIRST_METADATA"},  # a number in LLVM's text
    "codegen/kernel/precision_demand.py": {"_KEEPS"},  # operands, by number
    "codegen/kernel/register_transpose.py": {"WIDEST"},  # bytes of the largest type
    "codegen/library/combine.py": {"_BLOCK"},  # a multiple of any register
    "codegen/library/process_calls.py": {"_HINTS_OF_POLL"},  # pauses between polls of a network
    "codegen/library/sort.py": {"_BITS", "_INFINITY"},  # of types
    "codegen/program/entry.py": {
        "FACTORIZATION",
        "PART",
        "TABLE",
    },  # operations of an algorithm; lengths of functions
    "codegen/program/program.py": {"BATCH"},  # kernels of a module
    "codegen/program/tiered_compilation.py": {
        "FROM_DISK_S",
        "_PATIENCE_S",
    },  # seconds that nobody notices
    "codegen/runtime/dispatch.py": {
        "ENTRY_CODE",
        "ENTRY_WORDS",
        "_FASTCALL_KEYWORDS",
    },  # places in objects
    "codegen/runtime/heap.py": {
        "_DISALLOW_INSTANTIATION",
        "_TP_DEALLOC",
    },  # numbers of the stable ABI
    "codegen/runtime/pool.py": {
        "PAUSE_S",
        "_MAX_THREADS",
    },  # seconds that nobody notices; length of a table
    "codegen/toolchain/loader.py": {
        "_ABS64",
        "_ALLOC",
        "_ARENA",
        "_EXECUTE",
        "_GOT64",
        "_GOTOFF64",
        "_GOTPC64",
        "_MADV_DONTNEED",
        "_NOBITS",
        "_PC64",
        "_PROGBITS",
        "_RELA",
        "_SYMTAB",
        "_WRITE",
    },  # of ELF; how far a call reaches
    "codegen/toolchain/target.py": {"_CODEGEN_LEVEL"},  # a level of LLVM
    "codegen/vector/math_piecewise.py": {"PIECEWISE"},  # coefficients
    "codegen/vector/math_real.py": {
        "_ANSWERS",
        "_KINDS",
        "_LONG",
        "_MANTISSA_FROM_THREE_QUARTERS",
        "_NAN_STAYS",
    },  # of instructions; what results depend on
    "codegen/vector/math_tables.py": {"TABLE"},  # coefficients
    "compiler/fusion/band_analysis.py": {
        "MOST",
        "MOST_EQUATIONS",
    },  # beyond any sum of integers; how far a proof looks
    "compiler/fusion/graph.py": {"_MOST_COST"},  # beyond any limit
    "compiler/kernels/fft_plan.py": {
        "OPERAND",
        "RESULT",
        "_SIDES",
    },  # names of memory; lengths that have few radices
    "compiler/loops/loop_nest.py": {"_SUM_BLOCK", "_SUM_TERMS"},  # accuracy
    "compiler/loops/loop_splitting.py": {"OPEN"},  # beyond any index
    "compiler/rewrite/simplify.py": {"MOST_JOINED"},  # how far a pattern is looked for
    "compiler/rewrite/variance_rewrite.py": {"FARTHEST"},  # the same
    "compiler/schedule/arena.py": {"GUARD"},  # bytes of a check
    "compiler/schedule/schedule.py": {
        "MOST_LOWERED",
        "_ORDER_OF_SLOTS",
    },  # entries of a cache; an order
    "partition/alternatives.py": {"EQUATIONS", "TRIES"},  # how far alternatives are looked for
    "partition/partition.py": {
        "LEAD",
        "SLICES_LEAD",
    },  # two ways whose bytes differ by more are not both searched
    "partition/combine.py": {
        "MOST_BYTES"
    },  # equal for all processes of a program, whatever their machines
    "partition/exchanges.py": {"MOST_COMBINED_BYTES"},  # the same
    "processes/client.py": {"_CONNECT_S", "_MAX_REPORT", "_SLACK_S"},  # of deadlines; of a message
    "processes/connections.py": {"MAX_STRANGERS", "STRANGER_S", "TICK_S"},  # limits of a protocol
    "processes/coordinator.py": {"EXPECTED_S", "LEFT_S", "PROOF_S"},  # of deadlines
    "processes/job_secret.py": {"_MIN_LENGTH"},  # of a text
    "processes/launchers.py": {
        "PREEMPTED",
        "_FIRST_PORT",
        "_KUBERNETES_PORT",
        "_PORTS",
    },  # an exit status; of sockets
    "processes/liveness.py": {"PROBE_S"},  # of deadlines
    "processes/mpi.py": {  # counts of MPI, deadlines, blocks on a network
        "_MOST",
        "_NEVER_SENT",
        "_PROGRESS_US",
        "_QUIET_S",
        "_RING_BLOCK",
        "_RING_SEGMENT",
        "_STUCK_S",
    },
    "processes/preemption.py": {"_WAIT_S"},  # of deadlines
    "processes/shared_memory.py": {"_CHANNELS", "_LINE", "_WORDS"},  # places in a window
    "processes/state.py": {"_UNSEEN_S"},  # of deadlines
    "processes/transport.py": {"DONE", "FAILED"},  # answers to native code
    "processes/wire.py": {  # limits of a protocol
        "MAX_FRAME_BYTES",
        "MAX_UNAUTHENTICATED_BYTES",
        "_CODE_BYTES",
        "_MAX_DEPTH",
        "_MAX_INTEGER",
        "_MAX_TEXT",
        "_MAX_VALUES",
    },
    "runtime/dlpack.py": {"_CODES", "_KINDS", "_TENSOR", "_TYPE", "_UNSIGNED"},  # of dlpack.h
    "runtime/torus.py": {"_TRAY"},  # how chips with coordinates are built
}
ROOMS = ("backends", "codegen", "compiler", "partition", "processes", "runtime")


def numbers(tree: ast.Module) -> Iterator[str]:
    """Names in capitals that a module gives numbers, alone or in tuples, lists or tables of them."""
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


def test_no_other_module_holds_numbers_of_the_machine():
    found = {}
    for path in sorted(path for room in ROOMS for path in (ENGINE / room).rglob("*.py")):
        if path.parent.name == "avx512":  # texts of assembly, whose numbers are those of registers
            continue
        here = {*numbers(ast.parse(path.read_text()))}
        if here:
            found[path.relative_to(ENGINE).as_posix()] = here
    assert found == OTHER_NUMBERS, (
        "a number that depends on the machine is a field of weft._engine.util.machine_model.MachineModel"
    )


def test_every_threshold_is_read():
    read = {
        node.attr
        for room in (*ROOMS, "api")
        for path in (ENGINE / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    assert FACTS < {*MachineModel.__slots__} and {*MachineModel.__slots__} - FACTS - read == set()


def test_a_model_is_frozen():
    with pytest.raises(AttributeError, match="frozen"):
        machine_model().cache_line = 128  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    "name", ["zen3", "zen4", "zen5", "intel-avx512", "avx2", "neoverse", "generic"]
)
def test_known_machines(name):
    model = known(name)
    assert model.name == name and model.l1_bytes < model.l2_bytes < model.l3_bytes
    others = {
        field: getattr(known("generic"), field) for field in FACTS | MEASURED.get(name, set())
    }
    assert replace(model, **others) == known("generic"), (
        "thresholds differ where somebody measured that they should: say so above"
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
            "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nflags\t\t: avx2 avx512f",
            "intel-avx512",
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
    model = known(machine.name_of(text, "aarch64"))
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
