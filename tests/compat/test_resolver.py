"""`import jax` on weft: names that resolve, names that report that they are missing, and untouched
modules."""

import importlib
import sys
import textwrap
from types import ModuleType

import pytest

from tests.harness.processes import run_python
from weft.compat import JAX_VERSION, install_as_jax, names, uninstall
from weft.compat.resolver import is_offered


@pytest.fixture
def jax(monkeypatch):
    """Import weft under the name jax for the duration of one test."""
    install_as_jax()
    yield importlib.import_module("jax")
    uninstall()


def test_modules_of_the_same_name(jax):
    import weft.debug

    debug = importlib.import_module("jax.debug")
    assert debug.visualize_sharding is weft.debug.visualize_sharding
    assert jax.debug is debug
    assert importlib.import_module(
        "jax.experimental.mesh_utils"
    ).create_device_mesh.__module__.startswith("weft.")


def test_a_submodule_is_found_by_attribute_alone(jax):
    assert jax.experimental.mesh_utils.create_device_mesh


def test_a_name_is_the_object_where_a_module_has_it_too(jax):
    import jax.experimental.roofline.roofline

    assert (
        sys.modules["jax.experimental.roofline.roofline"].roofline
        is jax.experimental.roofline.roofline
    )
    assert not isinstance(jax.experimental.roofline.roofline, ModuleType)


@pytest.mark.parametrize(
    "place",
    [
        "bcoo:bcoo_dot_general",
        "bcsr:BCSR",
        "coo:COO",
        "csr:csr_matvec",
        "api:eye",
        "random:random_bcoo",
        "transform:SparsifyEnv",
        "ad:value_and_grad",
        "util:SparseInfo",
        "test_util:rand_bcoo",
    ],
)
def test_modules_of_sparse_arrays_have_their_names(jax, place):
    module, _, name = place.partition(":")
    assert (
        getattr(importlib.import_module(f"jax.experimental.sparse.{module}"), name).__name__ == name
    )


def test_modules_that_the_list_of_names_leaves_out(jax):
    pytest.importorskip("tensorstore")
    from jax.experimental.array_serialization import serialization
    from jax.experimental.array_serialization.serialization import (
        GlobalAsyncCheckpointManager,
        get_tensorstore_spec,
    )

    assert serialization.GlobalAsyncCheckpointManager is GlobalAsyncCheckpointManager
    assert get_tensorstore_spec("/x")["kvstore"] == {"driver": "file", "path": "/x"}


def test_the_namespace_of_arrays(jax):
    import jax.numpy as jnp

    assert (
        jnp.ones(2).__array_namespace__() is jnp
        and jnp.ones(2).__array_namespace__(api_version="2024.12") is jnp
    )
    assert jnp.__array_api_version__ == "2024.12"
    assert jnp.__array_namespace_info__().default_dtypes()["indexing"] == "int32"
    with pytest.raises(ValueError, match=r"2024\.12"):
        jnp.ones(2).__array_namespace__(api_version="1999.01")
    with pytest.raises(AttributeError):
        jnp.__array_of_nothing__


def test_version(jax):
    assert jax.__version__ == JAX_VERSION
    assert jax.__version_info__ == tuple(int(part) for part in JAX_VERSION.split("."))
    assert jax.version.__version__ == JAX_VERSION
    assert importlib.import_module("jax.lib").__version__ == JAX_VERSION


@pytest.mark.parametrize(
    "statement",
    ["import jax.experimental.transfer as transfer", "from jax.experimental import transfer"],
)
def test_a_module_of_refused_names_can_be_imported(jax, statement):
    namespace = {}
    exec(statement, namespace)
    with pytest.raises(
        NotImplementedError,
        match=r"jax\.experimental\.transfer\.start_transfer_server: arrays move between processes",
    ):
        namespace["transfer"].start_transfer_server(None)


def test_a_refused_name_can_be_imported(jax):
    namespace = {}
    exec("from jax.profiler import ProfileData", namespace)
    with pytest.raises(
        NotImplementedError, match=r"jax\.profiler\.ProfileData: profiles are written"
    ):
        namespace["ProfileData"].from_file("x")


@pytest.mark.parametrize(
    "module, name", [("jax", "xla_computation"), ("jax.experimental.maps", "xmap")]
)
def test_a_name_of_older_versions_says_that_it_is_missing(jax, module, name):
    with pytest.raises(AttributeError, match=rf"weft does not have {module}\.{name} yet"):
        getattr(importlib.import_module(module), name)


def test_a_misspelt_name_is_an_ordinary_error(jax):
    with pytest.raises(AttributeError, match=r"module 'jax\.debug' has no attribute 'vizualise'"):
        jax.debug.vizualise
    with pytest.raises(ImportError, match="cannot import name 'vizualise'"):
        exec("from jax.debug import vizualise", {})
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'jax\.experimantal'"):
        importlib.import_module("jax.experimantal")


def test_the_inside_of_jax_is_not_offered(jax):
    with pytest.raises(ModuleNotFoundError, match="internal to JAX"):
        importlib.import_module("jax._src.pallas")


def test_rooms_of_weft_are_not_names_of_jax(jax):
    import weft._engine.ir.types  # noqa: F401

    for room in ("ir", "util", "api", "compat", "tools"):
        with pytest.raises(AttributeError):
            getattr(jax, room)
    with pytest.raises(AttributeError):
        jax.debug.tiles


def test_assignment_changes_the_stand_in_alone(jax):
    import weft.debug

    before = weft.debug.visualize_sharding
    jax.debug.visualize_sharding = 1
    assert importlib.import_module("jax.debug").visualize_sharding == 1
    assert weft.debug.visualize_sharding is before


def test_star_import_brings_what_is_there(jax):
    scope = {}
    exec("from jax.debug import *", scope)
    assert scope["visualize_sharding"] is jax.debug.visualize_sharding
    assert "DebugEffect" not in scope
    assert "visualize_sharding" in dir(jax.debug)


def test_config_as_object_and_as_module(jax):
    pytest.importorskip("weft._engine.util.config")
    from weft._engine.util.config import config

    assert jax.config is config
    exec("from jax.config import config as c; import jax; assert jax.config.update == c.update", {})


def test_installing_twice_is_installing_once(jax):
    n_finders = len(sys.meta_path)
    install_as_jax()
    assert len(sys.meta_path) == n_finders


@pytest.mark.parametrize(
    ("generation", "version", "types"),
    [
        (None, JAX_VERSION, "Auto"),
        ("0.4.30", "0.4.30", "Auto"),
        ("0.10", "0.10.0", "Explicit"),
    ],
)
def test_a_generation_is_asked_for(tmp_path, generation, version, types):
    program = f"""
import weft.compat
weft.compat.install_as_jax(generation={generation!r})
import jax
print(jax.__version__, *jax.version.__version_info__, *jax.make_mesh((1,), ("a",)).axis_types)
"""
    done = run_python("-c", program, cwd=tmp_path)
    assert done.stdout.split() == [version, *version.split("."), f"AxisType.{types}"], done.stderr


def test_uninstall_leaves_nothing():
    install_as_jax()
    importlib.import_module("jax.debug")
    uninstall()
    assert not [name for name in sys.modules if name == "jax" or name.startswith("jax.")]


def test_refuses_where_another_jax_is_loaded(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", ModuleType("jax"))
    with pytest.raises(RuntimeError, match="already imported"):
        install_as_jax()


def test_a_package_named_jax_on_the_path_is_passed_over(tmp_path):
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("raise SystemExit('the wrong jax')\n")
    program = textwrap.dedent("""
        import weft.compat
        weft.compat.install_as_jax()
        import jax, jax.debug
        print(jax.__version__)
    """)
    done = run_python("-c", program, cwd=tmp_path)
    assert done.stdout.strip() == JAX_VERSION, done.stderr


def test_every_listed_module_resolves_or_says_why(jax):
    for module in sorted(names.known_modules()):
        if is_offered(module):
            assert importlib.import_module(module).__name__ == module
        else:
            with pytest.raises(ModuleNotFoundError, match="weft does not have the module"):
                importlib.import_module(module)


def test_every_listed_name_resolves(jax):
    for module in filter(is_offered, sorted(names.known_modules())):
        for name in sorted(names.public_names().get(module, ())):
            assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


@pytest.mark.parametrize("module", sorted(names.ELSEWHERE))
def test_what_the_table_points_to_is_there(module):
    for place in " ".join(names.ELSEWHERE[module].values()).split():
        home, _, name = place.partition(":")
        assert hasattr(importlib.import_module(home), name), place
