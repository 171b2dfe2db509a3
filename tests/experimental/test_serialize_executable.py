"""Compiled programs as bytes: they run again here, on other devices and in another process, without being compiled."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine import programs
from weft.experimental.serialize_executable import deserialize_and_load, serialize
from weft.sharding import NamedSharding, PartitionSpec as P


@pytest.fixture
def mesh():
    return weft.make_mesh((2, 2), ("i", "j"), devices=weft.devices()[:4])


@pytest.fixture
def compiled_programs(monkeypatch):
    """Return the names of the programs that are compiled from here on."""
    seen, work = [], programs._compile
    monkeypatch.setattr(
        programs, "_compile", lambda request, key: seen.append(request.name) or work(request, key)
    )
    return seen


def sharded(x, mesh, *spec):
    return weft.device_put(x, NamedSharding(mesh, P(*spec)))


def test_trees_donation_and_constants_come_back(compiled_programs):
    table = wnp.arange(3.0)

    def step(state, *, scale):
        return {"w": state["w"] * scale + table, "n": state["n"] + 1}

    state = {"w": wnp.ones(3), "n": wnp.int32(4)}
    first = weft.jit(step, donate_argnums=0).lower(state, scale=2.0).compile()
    compiled_programs.clear()
    again = deserialize_and_load(*pickle.loads(pickle.dumps(serialize(first))))
    assert compiled_programs == []
    out = again(state, scale=3.0)
    assert out["w"].tolist() == [3, 4, 5] and out["n"] == 5 and state["w"].is_deleted()
    assert (again.in_tree, again.out_tree, again.in_avals, again.args_info, again.arg_names) == (
        first.in_tree,
        first.out_tree,
        first.in_avals,
        first.args_info,
        first.arg_names,
    )
    assert (
        again.as_text() == first.as_text()
        and again.memory_analysis().__dict__ == first.memory_analysis().__dict__
    )
    with pytest.raises(TypeError, match="state"):
        again({"w": wnp.ones(4), "n": wnp.int32(4)}, scale=1.0)
    with pytest.raises(TypeError, match="structure"):
        again(state)
    np.testing.assert_array_equal(
        deserialize_and_load(*serialize(again))({"w": wnp.ones(3), "n": wnp.int32(0)}, scale=1.0)[
            "w"
        ],
        [1, 2, 3],
    )


def test_shardings_come_back_also_on_other_devices(mesh, compiled_programs):
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    first = (
        weft.jit(
            lambda x: (x @ x.T, x.sum(0)), out_shardings=(NamedSharding(mesh, P("i", "j")), None)
        )
        .lower(sharded(x, mesh, "i", "j"))
        .compile()
    )
    serialized = serialize(first)
    compiled_programs.clear()
    again = deserialize_and_load(*serialized)
    assert (
        again.output_shardings == first.output_shardings
        and again.input_shardings == first.input_shardings
    )
    others = weft.devices()[4:]
    moved = deserialize_and_load(*serialized, backend="cpu", execution_devices=others)
    at_others = weft.make_mesh((2, 2), ("i", "j"), devices=others)
    assert compiled_programs == []
    assert moved.output_shardings[0] == NamedSharding(at_others, P("i", "j"))
    for run, where in ((again, mesh), (moved, at_others)):
        product, total = run(sharded(x, where, "i", "j"))
        np.testing.assert_array_equal(product, x @ x.T)
        np.testing.assert_array_equal(total, x.sum(0))
        assert product.sharding.device_set == set(where.flat_devices)


def test_another_process_loads_it_without_compiling(tmp_path):
    serialized = serialize(weft.jit(lambda x, y: wnp.sin(x) + y).lower(wnp.zeros(4), 1.0).compile())
    (tmp_path / "kept").write_bytes(pickle.dumps(serialized))
    program = (
        "import pickle, sys, weft, numpy as np\n"
        "from weft import programs\n"
        "from weft.experimental.serialize_executable import deserialize_and_load\n"
        "programs._compile = None\n"
        "run = deserialize_and_load(*pickle.load(open(sys.argv[1], 'rb')))\n"
        "np.testing.assert_allclose(run(np.arange(4, dtype=np.float32), 2.0), np.sin(np.arange(4)) + 2, rtol=1e-6)\n"
        "assert 'llvmlite' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, tmp_path / "kept"],
        check=True,
        env={**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "other")},
    )


def test_code_of_another_machine_is_compiled_again(monkeypatch, compiled_programs):
    serialized = serialize(weft.jit(lambda x: x * 5 - 2).lower(wnp.zeros(4)).compile())
    compiled_programs.clear()
    monkeypatch.setattr(type(weft.devices()[0].client), "cache_key", lambda self: "another machine")
    assert deserialize_and_load(*serialized)(wnp.ones(4)).tolist() == [3] * 4
    assert compiled_programs == ["jit(<lambda>)"]


def test_programs_of_the_reference_backend_are_compiled_again():
    first = weft.jit(lambda x: x + 1, backend="reference").lower(1.0).compile()
    again = deserialize_and_load(*serialize(first))
    assert again(1.0) == 2 and again(1.0).device.platform == "reference"


def test_what_is_refused(mesh):
    ref = weft.new_ref(0)

    def counting(x):
        ref[...] += x

    with pytest.raises(ValueError, match="closed-over reference"):
        serialize(weft.jit(counting).lower(1).compile())
    with pytest.raises(ValueError, match=r"serialize: jit.*Python function"):
        serialize(weft.jit(lambda x: weft.debug.callback(print, x)).lower(1).compile())
    serialized = serialize(
        weft.jit(lambda x: x + 1).lower(sharded(np.ones(4), mesh, "i")).compile()
    )
    with pytest.raises(ValueError, match="runs on 4 devices, execution_devices has 1"):
        deserialize_and_load(*serialized, execution_devices=weft.devices()[:1])
    with pytest.raises(ValueError, match="compiled for 'cpu'"):
        deserialize_and_load(*serialized, backend="reference")
    with pytest.raises(ValueError, match="not bytes of a compiled program"):
        deserialize_and_load(b"something else", *serialized[1:])
    with pytest.raises(ValueError, match="damaged"):
        deserialize_and_load(serialized[0][:-20], *serialized[1:])
