"""The specs that results of `shard_map` print: as they are declared, or of the rank of the result under jit with explicit axes."""

import numpy as np
import pytest

import weft
from weft import lax
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

DEVICES = np.array(weft.devices()[:8]).reshape(4, 2)

#: id -> (body, in_specs, out_specs, specs of the result: called, jitted with automatic axes, jitted with explicit axes)
CASES = {
    "scalar": (lambda v: lax.psum(v.sum(), "a"), P("a"), P(), ("P()", "P()", "P()")),
    "reduced": (lambda v: lax.psum(v, "a"), P("a"), P(None, None), ("P(None, None)", "P()", "P(None, None)")),
    "rows": (lambda v: v, P("a"), P("a"), ("P('a',)", "P('a',)", "P('a', None)")),
    "rows-none": (lambda v: v, P("a"), P("a", None), ("P('a', None)", "P('a',)", "P('a', None)")),
    "columns": (lambda v: v, P(None, "a"), P(None, "a"), ("P(None, 'a')", "P(None, 'a')", "P(None, 'a')")),
    "both": (lambda v: v, P("a", "b"), P("a", "b"), ("P('a', 'b')", "P('a', 'b')", "P('a', 'b')")),
    "axes": (lambda v: v, P(("a", "b")), P(("a", "b")), ("P(('a', 'b'),)", "P(('a', 'b'),)", "P(('a', 'b'), None)")),
    "one-axis": (lambda v: v, P(("a",)), P(("a",)), ("P('a',)", "P('a',)", "P('a', None)")),
    "no-axes": (lambda v: v, P(()), P(()), ("P(None,)", "P(None,)", "P(None, None)")),
    "new-dim": (lambda v: v[None], P("a"), P("a"), ("P('a',)", "P('a',)", "P('a', None, None)")),
    "exchange": (lambda v: lax.all_to_all(v, "a", 1, 0, tiled=True), P("a"), P(None, "a"), ("P(None, 'a')",) * 3),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=["auto", "explicit"])
def test_results_print_their_specs(case, kind):
    body, in_specs, out_specs, (called, automatic, explicit) = case
    mesh = Mesh(DEVICES, ("a", "b"), axis_types=(kind, kind))
    x = weft.device_put(np.ones((8, 8), np.float32), NamedSharding(mesh, in_specs))
    f = weft.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs)
    jitted = automatic if kind is AxisType.Auto else explicit
    for run, spec in ((f, called), (weft.jit(f), jitted)):
        sharding = run(x).sharding
        assert repr(sharding.spec) == spec
        assert f"spec={spec}, memory_kind=device)" in repr(sharding)
