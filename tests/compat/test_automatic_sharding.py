"""`jax.experimental.pjit.AUTO` in programs that import jax."""

from tests.harness.processes import run_weft

PROGRAM = """
import jax, jax.numpy as jnp, numpy as np
from jax.experimental.pjit import AUTO, pjit
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("x",))
auto = AUTO(mesh)
layer = lambda x, w: jnp.tanh(x @ w)
x, w = np.ones((64, 512), np.float32), np.ones((512, 4096), np.float32)
for transform in (jax.jit, pjit):
    f = transform(layer, in_shardings=auto, out_shardings=auto)
    compiled = f.lower(x, w).compile()
    (ins, _), out = compiled.input_shardings, compiled.output_shardings
    assert all(s.mesh == mesh for s in ins), ins
    assert out.spec == P(None, "x"), out
    args = [jax.device_put(a, s) for a, s in zip((x, w), ins)]
    np.testing.assert_allclose(compiled(*args), np.tanh(x @ w), rtol=1e-5)

some = jax.jit(layer, in_shardings=(auto, NamedSharding(mesh, P("x"))))
(ins, _) = some.lower(x, w).compile().input_shardings
assert ins[1].spec == P("x"), ins
print("found", out.spec)
"""


def test_auto_of_pjit_finds_shardings(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    run = run_weft("run", "--devices", "8", "program.py", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "found P(None, 'x')\n"
