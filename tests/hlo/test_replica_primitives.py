"""Every primitive as a plugin compiles it, or refused by name."""

import re

import pytest

import weft
from tests.hlo.programs import PROGRAMS, Program
from tests.ops.test_completeness import PRIMITIVES
from weft._engine.hlo.replica_program import replica_program_text
from weft._engine.hlo.replicas import HOST_TARGET, PLUGIN_RULES, ReplicaLowering

#: custom calls that XLA's compilers expand on all platforms
EXPANDED = {"Qr", "ProductOfElementaryHouseholderReflectors"}
#: primitives that are computed on the host
ON_HOST = {
    p.name
    for p in PRIMITIVES
    if getattr(PLUGIN_RULES.of_primitive(p), "__name__", "") == "_on_host"
}


def program_of(p: Program):
    options = {"backend": "reference", "keep_unused": True, **p.placement()}
    return weft.jit(p.fn, **options).lower(*p.args).compile().stages.program


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_every_primitive_of_local_programs_has_a_rule(primitive):
    before = {"random_wrap", "random_unwrap", "custom_lin", "custom_partitioning", "terms"}
    rule = ReplicaLowering("f", ()).rule_for(primitive)
    assert (rule is None) == (primitive.name in before)


@pytest.mark.parametrize("p", PROGRAMS, ids=lambda p: p.name)
def test_programs_have_operations_that_plugins_know(p: Program):
    with weft.enable_x64(p.x64):
        program = program_of(p)
        text = replica_program_text(program, host=lambda eqn: 7)
    assert text.startswith(f"module @jit_{p.name} attributes {{mhlo.num_partitions = 1 : i32")
    assert text.count("{") == text.count("}") and text.count("(") == text.count(")")
    custom = set(re.findall(r"custom_call @(\w+)", text))
    assert custom <= {*EXPANDED, HOST_TARGET}
    assert text.count(f"@{HOST_TARGET}(") == text.count("{number = 7 : i64}")
    assert not re.search(r"sdy|mhlo.sharding|channel|partition_id|weft_(?!host)", text)
    assert f"%arg{len(program.ins)}" not in text.split("{", 2)[1]


@pytest.mark.parametrize("p", PROGRAMS, ids=lambda p: p.name)
def test_without_a_host_programs_print_or_are_refused_by_name(p: Program):
    with weft.enable_x64(p.x64):
        program = program_of(p)
        try:
            assert HOST_TARGET not in replica_program_text(program)
        except NotImplementedError as error:
            (name,) = re.findall(r"^(\w+): is computed on the host", str(error))
            assert name in ON_HOST or name.endswith(("callback", "print"))
            assert "programs.py" in str(error) and "jit(f, backend=" in str(error)
