"""The native functions that write the records of profiled programs compile for each architecture."""

import pytest
from llvmlite import binding

from weft._engine.codegen.runtime import recorder

binding.initialize_all_targets()
binding.initialize_all_asmprinters()


@pytest.mark.parametrize(
    ("machine", "counter"),
    [("x86_64", "rdtsc"), ("aarch64", "CNTVCT_EL0"), ("riscv64", "weft_now")],
)
def test_recorder_compiles_for_each_architecture(machine, counter):
    module = binding.parse_assembly(recorder.source(machine))
    module.verify()
    target = binding.Target.from_triple(f"{machine}-linux-gnu").create_target_machine()
    assert counter.lower() in target.emit_assembly(module).lower()
