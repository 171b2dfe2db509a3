"""The context of a trace: it contains every ambient setting that changes a trace, and nothing else."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.core import trace as trace_module
from weft._engine.core.context import FIELDS, current_context
from weft._engine.core.trace import allow_open_shardings, extend_axis_env, leave_unreduced
from weft._engine.ir.mesh import use_placement_mesh
from weft._engine.util.config import Override, config, known_settings, make_user_context

PACKAGE = Path(weft.__file__).parent
SETTINGS = {s.name: s for s in known_settings() if s.in_trace_key}
#: settings without a finite set of values -> one that is not the default
VALUES = {
    "default_device": lambda: weft.devices()[1],
    "default_prng_impl": lambda: "rbg",
    "random_seed_offset": lambda: 7,
    "jax_api": lambda: "0.10",
    "xla_metadata": lambda: (("key", "value"),),
    "compiler_options": lambda: (("key", "value"),),
    "backend": lambda: "reference",
    "check": lambda: "" if config.check else "types",
}
#: settings that are read while tracing but do not change a trace -> the reason
NO_PART = {
    "check_tracer_leaks": "raises after a trace, which is the same",
    "no_tracing": "raises before a trace",
    "explain_cache_misses": "reports",
    "log_compiles": "reports",
    "log_checkpoint_residuals": "reports",
    "disallow_mesh_context_manager": "raises where a mesh is entered",
    "no_execution": "raises before a program runs",
    "captured_constants_warn_bytes": "warns when a program is compiled",
    "dump_ir_to": "writes files when a program is compiled",
    "dump_ir_modes": "writes files when a program is compiled",
    "include_debug_info_in_dumps": "writes files when a program is compiled",
}
#: packages whose code runs during tracing
TRACING = [
    *[f"_engine/{name}" for name in ("api", "control", "core", "ir", "lax", "nn")],
    *[f"_engine/{name}" for name in ("numpy", "ops", "pallas", "random", "scipy", "transforms")],
    *["experimental", "lax", "nn", "numpy", "random", "scipy"],
]


def other_value(setting):
    """Return a value of a setting that differs from its current value."""
    if setting.name in VALUES:
        return VALUES[setting.name]()
    now = getattr(config, setting.name)
    if setting.kind is bool:
        return not now
    return next(choice for choice in setting.choices if choice != now)


@pytest.mark.parametrize("name", [n for n in SETTINGS if not n.startswith("user_context_")])
def test_each_setting_changes_the_context(name):
    before = current_context()
    with Override(**{name: other_value(SETTINGS[name])}):
        inside = current_context()
        assert inside != before and inside is current_context()
        assert [title for title, *_ in before.differences(inside)] == [f"setting {name}"]
    assert current_context() is before


def test_settings_of_programs_change_the_context():
    gain, before = make_user_context(1.0), None
    before = current_context()
    with gain(2.0):
        assert current_context() != before
    assert current_context() is before


@pytest.mark.parametrize(
    ("field", "block"),
    [
        ("axis_env", lambda mesh: extend_axis_env([("i", 2)])),
        ("allows_unspecified", lambda mesh: allow_open_shardings()),
        ("unreduced_axes", lambda mesh: leave_unreduced(frozenset({"x"}))),
        ("mesh", lambda mesh: mesh),
        ("mesh", lambda mesh: weft.set_mesh(mesh)),
        ("device_mesh", lambda mesh: use_placement_mesh(mesh)),
        ("spec_mesh", lambda mesh: mesh),
    ],
)
def test_each_ambient_value_changes_the_context(field, block):
    mesh, before = weft.make_mesh((8,), ("x",)), current_context()
    with block(mesh):
        inside = current_context()
        assert inside != before and inside is current_context()
        assert getattr(inside, field) != getattr(before, field)
    assert current_context() is before


def test_fields_are_all_that_threads_keep():
    """The current trace is a field where the key is formed; the current line changes messages only."""
    state = set(vars(trace_module._ThreadState()))
    assert state - {"trace", "source"} <= set(FIELDS)
    meshes = {"mesh", "spec_mesh", "device_mesh"}
    assert set(FIELDS) - state == {"settings", *meshes}


def test_tracing_reads_no_setting_that_is_no_field():
    read = {}
    for package in TRACING:
        paths = list((PACKAGE / package).rglob("*.py"))
        assert paths, package
        for path in paths:
            for node in ast.walk(ast.parse(path.read_text())):
                is_read = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
                if is_read and node.value.id == "config":
                    read.setdefault(node.attr, path)
    settings = {s.name for s in known_settings()}
    assert len(read) > 20
    strange = set(read) & settings - set(SETTINGS) - set(NO_PART)
    assert not strange, f"declare with in_trace_key: {[(n, str(read[n])) for n in strange]}"
    assert set(NO_PART) <= settings - set(SETTINGS)


def test_keys_take_the_settings_from_the_context():
    """Other code stores the settings of a program to restore them later, or names files after them."""
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "config.trace_key()" in path.read_text() and "util/config" not in str(path)
    }
    assert users == {
        "_engine/api/numerics.py",
        "_engine/backends/host_calls.py",
        "_engine/core/context.py",
        "_engine/programs.py",
    }


def test_contexts_are_immutable():
    context = current_context()
    for field in FIELDS:
        with pytest.raises(AttributeError):
            setattr(context, field, None)
    assert "allows_unspecified" in inspect.signature(current_context).parameters


def test_functions_are_traced_again_in_another_context():
    traces = []

    def fun(x):
        traces.append(x.dtype)
        return x + 1

    f, x = weft.jit(fun), np.arange(3)
    f(x), f(x)
    with weft.enable_x64(True):
        f(x), f(x)
    with weft.debug_nans(True):
        f(x)
    f(wnp.arange(3))
    assert [str(t) for t in traces] == ["int32", "int64", "int32"]
