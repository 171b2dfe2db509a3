"""Programs for other processors: LLVM emits an object for each of their modules. None of them runs.

A process pretends to be the other machine, and checks objects instead of linking them. `make arm`
runs aarch64 code.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: processor -> (LLVM's name of it, features, the machine of its ELF objects)
MACHINES = {
    "aarch64": ("aarch64-unknown-linux-gnu", "generic", "+neon,+fp-armv8,-sve", 183),
    "aarch64 with half and dot instructions": (
        "aarch64-unknown-linux-gnu",
        "neoverse-n1",
        "+neon,+fullfp16,+dotprod,-sve",
        183,
    ),
    "aarch64 with products of matrices": (
        "aarch64-unknown-linux-gnu",
        "neoverse-v1",
        "+neon,+fullfp16,+dotprod,+bf16,+i8mm,-sve",
        183,
    ),
    "riscv64": ("riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c", 243),
}
SCRIPT = """
import ctypes, os, sys
triple, cpu, features, elf = sys.argv[1:]

import llvmlite.binding
llvmlite.binding.initialize_all_targets()
llvmlite.binding.initialize_all_asmprinters()
from weft._engine.codegen.runtime import pool
from weft._engine.codegen.toolchain import llvm_c, loader, target
from weft._engine.util import machine
from weft._engine.util.machine_model import machine_model
here = llvm_c._query_string
llvm_c._query_string = lambda name: triple if name in ("GetDefaultTargetTriple", "GetProcessTriple") else here(name)
target._host = lambda: (cpu, features)
pool.architecture = loader.architecture = machine.architecture = lambda: triple.partition("-")[0]

objects = []

class Addresses:
    "Scratch memory at the address of every symbol."
    memory = ctypes.create_string_buffer(1 << 16)
    def __getitem__(self, name):
        return ctypes.addressof(self.memory)

def link(data, exports, imports):
    assert data[:4] == b"\\x7fELF" and int.from_bytes(data[18:20], "little") == int(elf)
    objects.append(len(data))
    return Addresses()

target.link = link

import numpy as np
import weft, weft.numpy as wnp
from weft import lax
from tests.compiler.tails import FAMILIES, arrays, program

with weft.enable_x64():
    for family in FAMILIES:
        program(family).lower(*arrays(family, [(7, 37)] * 8)).compile()
x = np.ones((300, 70), np.float32)
math = [wnp.tanh, wnp.sin, wnp.cbrt, wnp.log1p, weft.lax.erf_inv, weft.lax.digamma, lambda v: wnp.exp(lax.complex(v, v))]
programs = {
    "math": lambda x: [f(x) for f in math],
    "random": lambda x: weft.random.normal(weft.random.wrap_key_data(lax.bitcast_convert_type(x[0, :2], np.uint32)), (99,)),
    "loop": lambda x: lax.fori_loop(0, 5, lambda i, c: wnp.sin(c) + i, x),
    "while": lambda x: lax.while_loop(lambda c: c.sum() < 5, lambda c: c * 2, x),
    "narrow products": lambda x: (x.astype(wnp.bfloat16) @ x.T.astype(wnp.bfloat16), lax.dot(
        x.astype(np.int8), x.T.astype(np.int8), preferred_element_type=np.int32)),
    "gradient": weft.grad(lambda x: weft.nn.softmax(wnp.tanh(x @ x.T)).sum()),
    "unrolled": weft.grad(lambda x: (lax.reduce_window(x, -np.inf, lax.max, (3, 3), (2, 2), "SAME") ** 2).sum()),
    "unrolled along long rows": weft.grad(lambda x: (lax.reduce_window(x.reshape(-1), -np.inf, lax.max, (5,), (2,), "VALID") ** 2).sum()),
    "steps in halves": weft.grad(lambda x: wnp.sin(x.astype(wnp.bfloat16)[:, 1::3]).sum().astype(np.float32)),
    "elements side by side": lambda x: wnp.stack([x[:, ::2] * 2, x[:, 1::2] - 1], -1),
    "several devices": lambda x: weft.lax.with_sharding_constraint(x * 2, weft.sharding.PartitionSpec("i")).sum(0),
}
with weft.make_mesh((2,), ("i",)):
    for f in programs.values():
        weft.jit(f).lower(x).compile()
assert target.current().level == ("neon" if "aarch64" in triple else "generic")
assert machine_model().name == ("neoverse" if "aarch64" in triple else "generic")
assert machine_model().vector_bytes == target.current().vector_bytes == 16
print(len(objects), flush=True)
os._exit(0)                          # at exit the pool would call functions that were never linked
"""


@pytest.mark.parametrize("name", MACHINES)
def test_programs_compile(name, tmp_path):
    env = {
        **os.environ,
        "WEFT_CACHE_DIR": str(tmp_path),
        "WEFT_VERIFY": "0",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    env.pop("WEFT_CPU_FEATURES", None)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, MACHINES[name])],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 40
