"""Programs on disk: a later process runs a program that an earlier one compiled, and compiles it
again in case of doubt."""

from __future__ import annotations

import importlib.util
import json
import logging
import marshal
import os
import re
import subprocess
import sys
import textwrap
import threading
from functools import partial

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine import hooks, programs
from weft._engine.codegen.gemm import gemm
from weft._engine.codegen.library import sort
from weft._engine.codegen.program import program, tiered_compilation
from weft._engine.codegen.runtime import pool, symbols
from weft._engine.codegen.toolchain import loader, target
from weft._engine.partition import partition
from weft._engine.runtime.device import devices
from weft._engine.runtime.executable import CompileRequest
from weft._engine.util import cache
from weft.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    PositionalSharding,
    SingleDeviceSharding,
)

pytestmark = pytest.mark.skipif(not loader.supports_machine(), reason="a linker for x86-64 Linux")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Use a separate cache with nothing in memory; stages are not verified, because the verifier
    would need all of them."""
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    forget(monkeypatch)
    before = weft.config.verify
    weft.config.update("verify", False)
    yield tmp_path
    weft.config.update("verify", before)


def forget(monkeypatch):
    """Drop all code from memory, as in a new process."""
    # What is being optimized would be linked afterwards, without its objects in this cache.
    assert tiered_compilation._idle.wait(60)
    linked = [(sort.ROUTINES, "_addresses"), (sort.ROUTINES, "_linked")]
    for place, name in (
        (program, "_kernels"),
        (program, "_drafts"),
        (gemm, "_linked_matmuls"),
        (gemm, "_drafts"),
        *linked,
    ):
        monkeypatch.setattr(place, name, {})


@pytest.fixture
def loaded(monkeypatch):
    """Return the names of programs loaded from disk (True) and of other programs (False)."""
    names: dict[bool, list[str]] = {True: [], False: []}
    read = programs._read

    def watched(key, order):
        program = read(key, order)
        names[program is not None].append(order.name)
        return program

    monkeypatch.setattr(programs, "_read", watched)
    return names


def mesh(rows: int = 4, cols: int = 2) -> Mesh:
    return Mesh(np.array(devices()[: rows * cols]).reshape(rows, cols), ("a", "b"))


BOTH = P("a", "b")


def laid(*shape, spec=BOTH, seed=0):
    return weft.device_put(values(*shape, seed=seed), NamedSharding(mesh(), spec))


def values(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def model(params, x):
    for w in params:
        x = weft.nn.relu(x @ w)
    return weft.nn.logsumexp(x, axis=-1).sum()


def turned(x, k, i, c):
    return wnp.roll(c, k) @ x


#: programs for every kind of step: kernels, matmuls, sorts, loops, branches, constants, many
#: outputs, collectives, donation
PROGRAMS = {
    "kernel": lambda: (lambda x: wnp.sin(x) * 2, (values(70, 5),)),
    "nothing": lambda: (lambda x: x, (values(3),)),
    "no input": lambda: (lambda: wnp.arange(5) * 2.5, ()),
    "empty": lambda: (lambda x: x + 1, (values(0, 4),)),
    "matmul": lambda: (lambda x, y: x @ y, (values(33, 64), values(64, 17))),
    "types": lambda: (
        lambda x: [x.astype(t) @ x.T.astype(t) for t in ("bfloat16", "float16", "int32")],
        (values(40, 40),),
    ),
    "gradient": lambda: (
        weft.grad(model),
        ([values(32, 32, seed=i) for i in range(3)], values(16, 32)),
    ),
    "sort": lambda: (
        lambda x: [wnp.sort(x), wnp.argsort(x), lax.top_k(x, 3)[1]],
        (values(6, 300),),
    ),
    "table": lambda: (
        lambda x: x * wnp.asarray(np.arange(600, dtype=np.float32).reshape(20, 30) ** 2),
        (values(20, 30),),
    ),
    "scan": lambda: (
        lambda x: lax.scan(lambda c, y: (wnp.tanh(c @ c + y), c.sum()), x, wnp.arange(5.0)),
        (values(8, 8),),
    ),
    "while": lambda: (
        lambda x: lax.while_loop(lambda c: c.sum() < 99, lambda c: c * 2 + 1, x),
        (abs(values(9)),),
    ),
    "cond": lambda: (lambda x: lax.cond(x.sum() > 0, wnp.sin, lambda x: x @ x, x), (values(5, 5),)),
    "random": lambda: (lambda s: weft.random.normal(weft.random.key(s), (50,)), (3,)),
    "keys": lambda: (lambda k: weft.random.split(k, 3), (weft.random.key(7),)),
    "numbers": lambda: (lambda x, y: (x + y, x * 1j), (2.5, 3)),
    "convolution": lambda: (
        lambda x, w: lax.conv(x, w, (1, 1), "SAME"),
        (values(2, 3, 12, 12), values(4, 3, 3, 3)),
    ),
    "long": lambda: (
        lambda x: [lax.fori_loop(0, 3, partial(turned, x, k), x)[k, k] for k in range(9)],
        (values(9, 9),),
    ),
    "large copy": lambda: (
        lambda x: [x[::-1], x.sum(), wnp.concatenate([x, x])],
        (values(1 << 19),),
    ),
    "sum on 8": lambda: (lambda x: x.sum(0), (laid(16, 8),)),
    "matmul on 8": lambda: (
        lambda x, y: x @ y,
        (laid(16, 8, spec=P("a", None)), laid(8, 16, spec=P(None, "b"))),
    ),
    "gradient on 8": lambda: (
        weft.grad(model),
        ([laid(16, 16, seed=i) for i in range(3)], laid(16, 16, spec=P("a"))),
    ),
    "uneven on 8": lambda: (
        lambda x: lax.with_sharding_constraint(x @ x.T, NamedSharding(mesh(), P("b"))),
        (laid(16, 8),),
    ),
    "manual on 8": lambda: (
        weft.shard_map(
            lambda x: lax.psum(x, "a") + lax.axis_index("b"),
            mesh=mesh(),
            in_specs=P("a", "b"),
            out_specs=P(None, "b"),
        ),
        (laid(16, 8),),
    ),
    "library": lambda: (
        lambda x: [wnp.linalg.cholesky(x @ x.T + 9 * wnp.eye(12)), wnp.linalg.inv(x)],
        (values(12, 12),),
    ),
    "library, a batch": lambda: (lambda x: wnp.linalg.svd(x), (values(9, 5, 5),)),
}


def fresh(fun):
    """Return `fun` without any earlier trace."""
    jitted = weft.jit(fun)
    jitted.clear_cache()
    return jitted


def results(fun, args):
    """Return values, types and layouts of the results of a call."""
    leaves = weft.tree.leaves(fresh(fun)(*args))
    whole = lambda x: np.asarray(
        weft.random.key_data(x) if wnp.issubdtype(x.dtype, weft.dtypes.prng_key) else x
    )
    return [(whole(x).tobytes(), x.aval, x.sharding, x.committed) for x in leaves]


@pytest.mark.parametrize("case", PROGRAMS)
def test_programs_from_disk_give_the_same_bits(case, loaded):
    fun, args = PROGRAMS[case]()
    first = results(fun, args)
    for names_of_kind in loaded.values():
        names_of_kind.clear()
    assert results(fun, args) == first
    assert "jit(" in "".join(loaded[True])


def test_shards_of_programs_from_disk_are_not_checked(loaded, monkeypatch):
    checked = []
    original = partition.check_partitioned
    monkeypatch.setattr(
        partition, "check_partitioned", lambda *args: (checked.append(1), original(*args))[1]
    )
    fun, args = PROGRAMS["matmul on 8"]()
    results(fun, args)
    assert checked
    checked.clear()
    results(fun, args)
    assert loaded[True] and not checked


def test_facts_of_a_program_from_disk_are_those_of_the_compiler(loaded):
    fun, args = PROGRAMS["gradient on 8"]()
    facts = []
    for _ in range(2):
        compiled = fresh(fun).lower(*args).compile()
        executable = compiled.runtime_executable()
        facts.append(
            [
                executable.kernel_count,
                executable.collective_count,
                executable.loaded.native.kernel_count,
                executable.arena_bytes,
                executable.peak_bytes,
                executable.aliases,
                executable.in_specs,
                executable.out_specs,
                executable.loaded.is_long,
                compiled.as_text(),
                compiled.memory_analysis().__dict__,
                compiled.cost_analysis(),
                [r.kind for r in executable.stages.collectives],
                executable.stages.scheduled.text(),
                executable.loaded.native.build_record.loops_text(),
                str(weft.explain(fun, *args).counts),
            ]
        )
    assert facts[0] == facts[1] and facts[0][1] == len(facts[0][12]) > 0
    assert loaded[True] == ["jit(model)"]


def test_stages_are_computed_when_they_are_read(loaded):
    fun, args = PROGRAMS["matmul on 8"]()
    results(fun, args)
    executable = fresh(fun).lower(*args).compile().runtime_executable()
    assert (
        callable(executable._stages)
        and executable.stages is executable.stages
        and executable.stages.name == executable.name == "jit(<lambda>)"
    )


def test_donated_memory_is_taken():
    step = lambda x, y: (x + y, y.sum())
    for _ in range(2):
        x, y = wnp.arange(1000.0) * 2, wnp.asarray(values(1000))
        where = x.unsafe_buffer_pointer()
        first, _ = weft.jit(step, donate_argnums=0)(x, y)
        assert first.unsafe_buffer_pointer() == where and x.is_deleted()


#: the facts about a program apart from its jaxpr: each line differs from the first in one of them
PROGRAM_FACTS = {
    "as it is": {},
    "donation": {"donated": (0,)},
    "result": {"out_shardings": (NamedSharding(mesh(), P("a")),)},
    "committed": {"specs": [weft.device_put(values(16, 8), devices()[0])._spec]},
    "layout": {"specs": [laid(16, 8)._spec], "assignment": mesh().flat_devices},
    "other layout": {
        "specs": [laid(16, 8, spec=P("b", "a"))._spec],
        "assignment": mesh().flat_devices,
    },
    "mesh in context": {"in_context": True},
    "device": {"assignment": devices()[1:2]},
    "devices": {"assignment": devices()[:2]},
    "their order": {"assignment": devices()[1::-1]},
    "x64": {"settings": {"enable_x64": True}},
    "precision": {"settings": {"default_matmul_precision": "highest"}},
    "partitionable bits": {"settings": {"threefry_partitionable": False}},
    "default device": {"settings": {"default_device": devices()[2]}},
    "threads": {"environment": ("WEFT_NUM_THREADS", "1")},
    "features": {"environment": ("WEFT_CPU_FEATURES", "generic")},
}


def key_of(
    donated=(),
    out_shardings=(None,),
    specs=None,
    assignment=None,
    in_context=False,
    settings=None,
    environment=None,
):
    jaxpr = weft.jit(lambda x: x * 2).trace(values(16, 8)).jaxpr
    specs = [wnp.asarray(values(16, 8))._spec] if specs is None else specs
    with pytest.MonkeyPatch.context() as patch:
        if environment is not None:
            patch.setenv(*environment)
            patch.setattr(pool, "num_threads", pool.num_threads.__wrapped__)
        with weft._engine.util.config.Override(**(settings or {})):
            return program_key(
                jaxpr,
                specs,
                out_shardings,
                donated,
                devices()[:1] if assignment is None else assignment,
                in_context,
            )


def program_key(jaxpr, specs, out_shardings, donated, assignment, in_context=False):
    return programs._key(
        CompileRequest(
            jaxpr,
            specs,
            out_shardings,
            donated,
            "",
            tuple(assignment),
            in_context,
            assignment[0].client,
        )
    )


def test_everything_said_about_a_program_is_in_its_key():
    keys = {case: key_of(**variables) for case, variables in PROGRAM_FACTS.items()}
    assert None not in keys.values() and len(set(keys.values())) == len(PROGRAM_FACTS)
    assert keys == {case: key_of(**variables) for case, variables in PROGRAM_FACTS.items()}


def test_sources_versions_and_machine_are_in_the_key(monkeypatch):
    before = key_of()
    for place, name in ((cache, "fingerprint"), (programs, "_versions")):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, lambda *rooms: "other")
            assert key_of() != before
    assert key_of() == before
    assert np.__version__ in programs._versions() and sys.version in programs._versions()


def test_the_fingerprint_covers_whatever_the_compiler_loads():
    script = (
        "import sys, weft, weft.numpy as wnp, weft._engine.pipeline\n"
        "import weft._engine.partition.partition, weft._engine.partition.spmd\n"
        "import weft._engine.codegen.gemm.gemm, weft._engine.codegen.library.sort\n"
        "import weft._engine.codegen.kernel.kernel_emitter\n"
        "print([m for m in sys.modules if m.startswith('weft.')])"
    )
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    loaded = {name.split(".")[2] for name in eval(output) if name.startswith("weft._engine.")}
    rooms = {
        name
        for name in loaded
        if importlib.util.find_spec(f"weft._engine.{name}").submodule_search_locations
    }
    assert rooms - {"api", "lax", "numpy"} <= set(programs.COMPILER)


@pytest.mark.parametrize(
    "setting", [{"backend": "reference"}, {"verify": True}, {"enable_compilation_cache": False}]
)
def test_some_settings_go_round_the_cache(setting, monkeypatch, loaded):
    monkeypatch.delenv("WEFT_CACHE_DIR") if "enable_compilation_cache" in setting else None
    with weft._engine.util.config.Override(**setting):
        assert key_of() is None


def test_dumps_show_every_stage_every_time(tmp_path):
    shown = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        with weft._engine.util.config.Override(dump=str(folder)):
            weft.jit(lambda x: wnp.sin(x))(values(8))
        shown.append(
            sorted(re.sub(r"^module_\d+", "module", path.name) for path in folder.rglob("*.txt"))
        )
    assert shown[0] == shown[1] and any("codegen" in name for name in shown[0])


def test_programs_that_call_python_are_compiled_every_time(loaded, own_cache):
    called = []

    def f(x, offset):
        return weft.pure_callback(
            lambda x: (called.append(offset), np.asarray(x) + offset)[1],
            weft.ShapeDtypeStruct((3,), "float32"),
            x,
        )

    for offset in (1, 2):
        got = weft.jit(lambda x: f(x, offset))(np.zeros(3, np.float32))  # noqa: B023
        assert got.tolist() == [offset] * 3
    assert called == [1, 2] and not any(loaded.values())


DAMAGE = {
    "cut": lambda data: data[: len(data) // 2],
    "nothing": lambda data: b"",
    "one bit": lambda data: data[:-9] + bytes([data[-9] ^ 4]) + data[-8:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_compiled_anew(damage, own_cache, loaded, monkeypatch):
    fun, args = PROGRAMS["gradient"]()
    first = results(fun, args)
    cache.flush()
    for path in own_cache.rglob("*.o"):
        path.write_bytes(DAMAGE[damage](path.read_bytes()))
    forget(monkeypatch)
    loaded[True].clear()
    assert results(fun, args) == first and not loaded[True]
    assert results(fun, args) == first and loaded[True], "the file was written again"


def test_a_file_under_the_name_of_another_is_not_run(own_cache, loaded, monkeypatch):
    programs_of = {
        name: (fun, (values(8),))
        for name, fun in (("sin", lambda x: wnp.sin(x) + 1), ("twice", lambda x: 2 * wnp.sin(x)))
    }
    first = {name: results(*program) for name, program in programs_of.items()}
    cache.flush()
    files = sorted(own_cache.rglob("*.o"))
    contents = [path.read_bytes() for path in files]
    for path, other in zip(files, contents[1:] + contents[:1]):
        path.write_bytes(other)
    forget(monkeypatch)
    loaded[True].clear()
    assert {
        name: results(*program) for name, program in programs_of.items()
    } == first and not loaded[True]


def test_shuffled_files_do_not_keep_a_process_from_starting(tmp_path):
    first = run(tmp_path)
    files = sorted(tmp_path.rglob("*.o"))
    contents = [path.read_bytes() for path in files]
    for path, other in zip(files, reversed(contents)):
        path.write_bytes(other)
    assert run(tmp_path)[:3] == first[:3]


LAYOUTS = {
    "named": lambda: NamedSharding(mesh(), P(("a", "b"), None)),
    "explicit": lambda: NamedSharding(
        weft.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto)),
        P(None, "y"),
    ),
    "unconstrained": lambda: NamedSharding(mesh(), P(P.UNCONSTRAINED, "a")),
    "kind": lambda: NamedSharding(mesh(2, 1), P("a"), memory_kind="pinned_host"),
    "abstract": lambda: NamedSharding(mesh().abstract_mesh, P("b")),
    "single": lambda: SingleDeviceSharding(devices()[3]),
    "positional": lambda: PositionalSharding(devices()[:4]).reshape(2, 2).replicate(0),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_kept_as_plain_data(name):
    layout = LAYOUTS[name]()
    assert programs._from_plain_data(
        marshal.loads(marshal.dumps(programs._to_plain_data((layout, True, None))))
    ) == (
        layout,
        True,
        None,
    )


def test_what_is_read_makes_nothing_but_layouts():
    with pytest.raises(KeyError):
        programs._from_plain_data(("system", "true"))
    with pytest.raises(programs.Unserializable):
        programs._to_plain_data((np.float32, ()))


@pytest.mark.parametrize(
    "data", [b"", b"rubbish", marshal.dumps(None), marshal.dumps(((), (), (), b""))], ids=range(4)
)
def test_whole_files_of_something_else_are_compiled_anew(data, loaded):
    fun, args = PROGRAMS["kernel"]()
    first = results(fun, args)
    jaxpr = weft.jit(fun).trace(*args).jaxpr
    key = program_key(jaxpr, [wnp.asarray(a)._spec for a in args], (None,), (), devices()[:1])
    assert cache.read(key) is not None
    cache.write(key, data)
    loaded[True].clear()
    assert results(fun, args) == first and not loaded[True]


def test_a_program_whose_objects_are_gone_is_whole(own_cache, loaded):
    fun, args = PROGRAMS["matmul"]()
    first = results(fun, args)
    key = program_key(
        weft.jit(fun).trace(*args).jaxpr,
        [wnp.asarray(a)._spec for a in args],
        (None,),
        (),
        devices()[:1],
    )
    cache.flush()
    for path in own_cache.rglob("*.o"):
        if path.stem != key:
            path.unlink()
    assert results(fun, args) == first and loaded[True]


def test_a_program_for_another_library_is_compiled_anew(monkeypatch, loaded):
    """If the library's routines take integers of another width, the program on disk refers to missing
    routines."""
    fun, args = PROGRAMS["library"]()
    first = results(fun, args)
    monkeypatch.setattr(symbols, "routine", lambda name: f"weft_library_i8_{name}")
    loaded[True].clear()
    assert results(fun, args) == first and not loaded[True]


def test_many_write_and_read_at_once():
    fun, args = PROGRAMS["gradient"]()
    outcomes: list = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(results(fun, args))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 6 and all(one == outcomes[0] for one in outcomes)


def test_compilations_are_told_whether_from_disk_or_not(caplog, monkeypatch):
    calls: list = []
    monkeypatch.setattr(
        hooks,
        "after_compilation",
        [lambda made: calls.append((made.name, made.kernel_count, len(made.stages.collectives)))],
    )
    fun, args = PROGRAMS["sum on 8"]()
    with weft.log_compiles(True), caplog.at_level(logging.WARNING, "weft"):
        for _ in range(2):
            results(fun, args)
    texts = [
        r.getMessage().split("(", 2)[-1]
        for r in caplog.records
        if "Finished compilation of jit(<lambda>)" in r.getMessage()
    ]
    assert len(texts) == 2 and texts[0] == texts[1] and "collectives: 1" in texts[0]
    assert calls[0] == calls[1] and calls[0][2] == 1


PROGRAM = """
    import json, sys
    import weft, weft.numpy as wnp, numpy as np
    from weft.sharding import Mesh, NamedSharding, PartitionSpec as P
    place = NamedSharding(Mesh(np.array(weft.devices()).reshape(4, 2), ("a", "b")), P("a", "b"))
    def loss(w, x):
        return weft.nn.softmax(wnp.tanh(x @ w)).max(1).sum()
    w, x = weft.device_put((wnp.ones((16, 16)) / 7, wnp.arange(256.0).reshape(16, 16)), place)
    value, grad = weft.jit(weft.value_and_grad(loss))(w, x)
    alone = weft.jit(lambda x: wnp.sort(x @ x)[::2])(np.eye(30, dtype=np.float32))
    from weft._engine.codegen.toolchain import llvm_c
    heavy = sorted(m for m in sys.modules if m.startswith((
        "weft._engine.compiler", "weft._engine.partition.p", "weft._engine.partition.s", "weft._engine.pipeline",
        "weft._engine.codegen.gemm.gemm", "weft._engine.codegen.library.sort",
        "weft._engine.codegen.program.program", "llvmlite")) and not m.endswith(".program_runner"))
    print(json.dumps([float(value), np.asarray(grad).tolist(), np.asarray(alone).tolist(), heavy, len(llvm_c._loaded)]))
"""


def run(tmp_path, **env):
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM)],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "WEFT_VERIFY": "0",
            "WEFT_CACHE_DIR": str(tmp_path),
            "WEFT_NUM_DEVICES": "8",
            **env,
        },
    )
    return json.loads(process.stdout)


def test_a_second_process_loads_no_compiler(tmp_path):
    first, second = run(tmp_path, PYTHONHASHSEED="1"), run(tmp_path, PYTHONHASHSEED="2")
    assert first[:3] == second[:3]
    assert "weft._engine.compiler.schedule.schedule" in first[3] and first[4] == 1
    assert [name for name in second[3] if name != "weft._engine.partition.stack"] == [] and second[
        4
    ] == 0


def test_other_features_have_programs_of_their_own(tmp_path):
    run(tmp_path)
    fewer = {"avx512": "avx2", "avx2": "generic"}.get(target.current().level)
    if fewer:
        assert (
            "weft._engine.compiler.schedule.schedule" in run(tmp_path, WEFT_CPU_FEATURES=fewer)[3]
        )
    assert "weft._engine.compiler.schedule.schedule" in run(tmp_path, WEFT_NUM_THREADS="3")[3]


def test_equal_programs_share_one_file(own_cache, loaded):
    for f in (lambda x: wnp.sin(x) * 3, lambda y: wnp.sin(y) * 3):
        weft.jit(f)(values(4))
    assert loaded == {True: ["jit(<lambda>)"], False: ["jit(<lambda>)"]}
