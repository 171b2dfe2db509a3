"""LLVM's linker, which every machine but x86-64 Linux uses, and x86-64 Linux for objects that
`loader` does not support."""

from tests.codegen.linked_object import EXPORTS, TEXT, check_linked
from tests.harness.processes import run_python
from weft._engine.codegen.toolchain import target

PROGRAMS = """
import numpy as np, weft, weft.numpy as wnp
from weft._engine.codegen.toolchain import loader
loader.supports_machine = lambda: False

x = np.linspace(-1, 1, 300 * 70, dtype=np.float32).reshape(300, 70)
f = weft.jit(lambda x: (wnp.tanh(x @ x.T), wnp.cumsum(x, 0), wnp.sort(x, 1), x.sum(0)))
for _ in range(3):
    product, sums, ordered, columns = map(np.asarray, f(x))
np.testing.assert_allclose(product, np.tanh(x @ x.T), rtol=1e-4, atol=1e-5)
np.testing.assert_allclose(sums, np.cumsum(x, 0), rtol=1e-4, atol=1e-4)
np.testing.assert_array_equal(ordered, np.sort(x, 1))
np.testing.assert_allclose(columns, x.sum(0), atol=1e-4)
with weft.make_mesh((2,), ("i",)):
    assert float(weft.jit(lambda x: (x * 2).sum())(wnp.arange(8.0))) == 56
print("done")
"""


def test_code_and_data():
    data = target.emit_object(TEXT, target.current())
    check_linked(lambda imports: target.link_by_llvm(data, EXPORTS, imports))


def test_objects_may_export_equal_names():
    texts = [f"define i64 @answer() {{\n  ret i64 {value}\n}}\n" for value in (1, 2)]
    linked = [
        target.link_by_llvm(target.emit_object(text, target.current()), ["answer"], {})
        for text in texts
    ]
    assert linked[0]["answer"] != linked[1]["answer"]


def test_programs_run_by_it_alone(tmp_path):
    done = run_python("-c", PROGRAMS, WEFT_CACHE_DIR=str(tmp_path), WEFT_NUM_DEVICES="2")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
