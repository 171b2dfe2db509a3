"""The names of `jax._src` that libraries use, and `jax.monitoring`."""

import importlib
import inspect
import os
import subprocess
import sys
import traceback

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import monitoring
from weft._engine.util.config import config
from weft.compat import inside, install_as_jax, names, uninstall


@pytest.fixture
def jax():
    install_as_jax()
    yield importlib.import_module("jax")
    uninstall()


def test_every_place_of_the_table_is_there():
    for module, places in inside.NAMES.items():
        for name, place in places.items():
            if place:
                where, _, what = place.partition(":")
                assert hasattr(importlib.import_module(where), what), (module, name)
    for module, publics in inside.SAME_AS.items():
        assert set(publics) <= names.known_modules(), module


def test_internal_modules_export_public_and_own_names(jax):
    core = importlib.import_module("jax._src.core")
    assert core.ShapedArray is weft.typeof(1.0).__class__
    assert (
        jax._src.dispatch.wait_for_tokens is not None
        and jax._src.distributed.global_state.client is None
    )
    assert jax._src.distributed.global_state.process_id == 0


def test_a_single_process_has_a_client_until_shutdown():
    program = """if True:
        import socket, weft
        weft.compat.install_as_jax()
        import jax
        from jax._src.distributed import global_state
        with socket.socket() as found:
            found.bind(("localhost", 0))
            address = f"localhost:{found.getsockname()[1]}"
        jax.distributed.initialize(address, 1, 0)
        global_state.client.key_value_set("a", "1")
        global_state.client.wait_at_barrier("b", 1000)
        print(global_state.client.blocking_key_value_get("a", 1000), global_state.client.key_value_dir_get(""),
              global_state.coordinator_address == address, global_state.process_id, global_state.num_processes)
        jax.distributed.shutdown()
        print(global_state.client, global_state.coordinator_address)
    """
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert ran.stdout == "1 [('a', '1')] True 0 1\nNone None\n", ran.stderr


def test_internal_modules_lacking_rare_names_can_be_imported(jax):
    earray = importlib.import_module("jax._src.earray")
    with pytest.raises(
        AttributeError, match=r"weft does not have jax\._src\.earray\.EArray: it is internal"
    ):
        _ = earray.EArray


def test_the_backend_can_be_asked_for_again(jax):
    bridge = importlib.import_module("jax._src.xla_bridge")
    before = bridge.get_backend()
    bridge.get_backend.cache_clear()
    assert bridge.get_backend() is before and bridge.get_backend("cpu").platform == "cpu"


def test_contractions_follow_a_path(jax):
    import opt_einsum

    internal = importlib.import_module("jax._src.numpy.einsum")
    rng = np.random.default_rng(0)
    operands = [
        rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (4, 5), (5, 6), (3,))
    ]
    left, path = opt_einsum.contract_path(
        "ij,jk,kl,i->il", *operands, einsum_call=True, use_blas=True, optimize="optimal"
    )
    asked = []

    def dot_general(*args, **kwargs):
        asked.append(kwargs["preferred_element_type"])
        return weft.lax.dot_general(*args, **kwargs)

    got = internal._einsum(
        left, tuple((a, frozenset(b), c) for a, b, c, *_ in path), None, np.float32, dot_general
    )
    np.testing.assert_allclose(got, np.einsum("ij,jk,kl,i->il", *operands), rtol=1e-4, atol=1e-5)
    assert asked == [np.float32] * len(path)
    assert (
        importlib.import_module("jax._src.state.indexing").Slice
        is importlib.import_module("weft.experimental.pallas").Slice
    )


def test_arguments_are_named_by_place_or_by_name(jax):
    infer = importlib.import_module("jax._src.api_util").infer_argnums_and_argnames
    signature = inspect.signature(lambda x, y, *, z: x)
    assert infer(signature, None, None) == ((), ()) and infer(signature, (0, 1), None) == (
        (0, 1),
        ("x", "y"),
    )
    assert infer(signature, None, ["y", "z"]) == ((1,), ("y", "z")) and infer(
        signature, 0, "z"
    ) == ((0,), ("z",))
    assert isinstance(jax.devices()[0], importlib.import_module("jaxlib.xla_client").Device)
    assert isinstance(jax.jit(abs), importlib.import_module("jaxlib._jax").PjitFunction)
    assert importlib.import_module("jax._src.numpy.ufuncs").ufunc is jax.numpy.ufunc


def test_registered_types_are_told_from_leaves(jax):
    registry = importlib.import_module("jax._src.tree_util")._registry

    class Later:
        pass

    assert list in registry and Later not in registry
    jax.tree_util.register_pytree_node(Later, lambda x: ((), None), lambda _, __: Later())
    assert Later in registry and int not in registry
    with pytest.raises(KeyError):
        registry[int]
    children, aux = registry[dict].to_iter({"a": 1, "b": 2})
    assert registry[dict].from_iter(aux, [3 * x for x in children]) == {"a": 3, "b": 6}


@pytest.mark.parametrize(
    "statement",
    [
        "import jax._src.stages_of_yore",
        "from jax._src.core import lifted",
        "import jaxlib.xla_of_yore",
    ],
)
def test_what_the_table_lacks_says_what_it_is(jax, statement):
    with pytest.raises(ImportError, match=r"internal to JAX, not a public name"):
        exec(statement, {})


def test_excluded_files_leave_no_frames(jax, tmp_path, monkeypatch):
    monkeypatch.setattr(type(config), "traceback", "")
    (tmp_path / "library_of_tests.py").write_text("def call(fun, *args):\n    return fun(*args)\n")
    monkeypatch.syspath_prepend(tmp_path)
    library = importlib.import_module("library_of_tests")
    traceback_util = importlib.import_module("jax._src.traceback_util")

    def fails(x):
        return wnp.reshape(x, (3,))

    def files() -> set[str]:
        with pytest.raises((TypeError, ValueError)) as caught:
            traceback_util.api_boundary(lambda: library.call(fails, wnp.ones(4)))()
        return {
            entry.path.name if hasattr(entry.path, "name") else str(entry.path)
            for entry in caught.traceback
        }

    assert "library_of_tests.py" in files()
    traceback_util.register_exclusion(library.__file__)
    try:
        assert "library_of_tests.py" not in files()
    finally:
        traceback_util._exclude_paths.remove(library.__file__)
        del sys.modules["library_of_tests"]
    assert "library_of_tests.py" in files()


def test_prefix_errors_name_the_prefix(jax):
    tree_util = importlib.import_module("jax._src.tree_util")
    first, second = tree_util.prefix_errors({"a": [1.0], "b": (1, 2)}, {"a": 1.0, "b": (1,)})
    assert type(first("in_axes")) is ValueError and "in_axes['a']" in str(first("in_axes"))
    assert "args['b']" in str(second("args")) and "tuple of length 2" in str(second("args"))
    assert tree_util.prefix_errors(0, [1, 2]) == []
    (named,) = tree_util.prefix_errors([(1,)], [(1, 2)], lambda x: False)
    assert "x[0]" in str(named("x"))
    assert tree_util.prefix_errors([(1,)], [(1, 2)], lambda x: type(x) is tuple) == []


def test_the_cause_of_a_shortened_error_has_its_class(jax, monkeypatch):
    monkeypatch.setattr(type(config), "traceback", "")
    traceback_util = importlib.import_module("jax._src.traceback_util")
    monkeypatch.setattr(type(config), "traceback_filtering", "remove_frames")
    with pytest.raises((TypeError, ValueError)) as caught:
        weft.jit(lambda x: wnp.reshape(x, (3,)))(wnp.ones(4))
    assert isinstance(caught.value.__cause__, traceback_util.UnfilteredStackTrace)


def test_monitoring_calls_listeners_on_compilation():
    seen = []
    add = lambda *values, **facts: seen.append((values, facts))
    monitoring.register_event_listener(add)
    monitoring.register_event_duration_secs_listener(add)
    monitoring.register_scalar_listener(add)
    try:
        monitoring.record_event("/a", n=1)
        monitoring.record_event_duration_secs("/b", 0.5)
        monitoring.record_event_time_span("/c", 1.0, 2.0)  # spans have no listeners
        monitoring.record_scalar("/d", 3)
        assert seen == [(("/a",), {"n": 1}), (("/b", 0.5), {}), (("/d", 3), {})]
        monitoring.unregister_event_listener(add)
        monitoring.record_event("/a")
        assert len(seen) == 3
        weft.jit(lambda x: wnp.sin(x) * 3.25)(wnp.ones(7))
        compiled = [
            facts["fun_name"] for values, facts in seen if values[0] == monitoring.COMPILATION
        ]
        assert any("lambda" in name for name in compiled)
    finally:
        monitoring.clear_event_listeners()
    n = len(seen)
    monitoring.record_scalar("/d", 4)
    assert len(seen) == n
    with pytest.raises(ValueError, match="is not registered"):
        monitoring.unregister_scalar_listener(add)


def test_sizes_are_numbers_or_symbols(jax):
    (symbol,) = jax.export.symbolic_shape("n")
    assert jax.core.is_constant_dim(3) and not jax.core.is_constant_dim(symbol)
    assert jax.core.is_constant_shape((1, 2)) and not jax.core.is_constant_shape((1, symbol))


def test_check_close_compares_trees_to_a_tolerance_by_dtype(jax):
    check_close = importlib.import_module("jax._src.public_test_util").check_close
    tree = {"a": wnp.ones(3), "b": np.arange(2)}
    check_close(tree, {"a": np.full(3, 1.0005, np.float32), "b": np.arange(2)})
    check_close(tree["a"], tree["a"] + 0.1, atol={"float32": 0.2, "float64": 1e-9})
    for other in (
        {"a": np.full(3, 1.1), "b": np.arange(2)},
        {"a": np.ones(3), "b": np.arange(2) + 1},
        {"a": np.ones(1), "b": np.arange(2)},
        {"a": np.ones(3)},
    ):
        with pytest.raises(AssertionError):
            check_close(tree, other)


def test_dtypes_are_promoted_as_libraries_ask_for_it(jax):
    x, y = importlib.import_module("jax._src.numpy.util").promote_dtypes_inexact(
        wnp.arange(3), np.float16(1)
    )
    assert x.dtype == y.dtype == np.float16
    assert importlib.import_module("jax._src.dtypes").to_complex_dtype("float32") == np.complex64


def test_threefry_on_the_words_of_keys_is_that_of_keys(jax):
    threefry = importlib.import_module("jax._src.random.threefry2x32")
    words, key = threefry.threefry_seed(np.int32(7)), weft.random.key(7)
    np.testing.assert_array_equal(words, [0, 7])
    np.testing.assert_array_equal(
        threefry.threefry_split(words, (2, 3)), weft.random.key_data(weft.random.split(key, (2, 3)))
    )
    np.testing.assert_array_equal(
        threefry.threefry_fold_in(words, 5), weft.random.key_data(weft.random.fold_in(key, 5))
    )
    for width in (8, 16, 32):
        np.testing.assert_array_equal(
            threefry.threefry_random_bits(words, width, (4,)),
            weft.random.bits(key, (4,), f"uint{width}"),
        )


def test_custom_vjp_closure_derivatives_raise_their_own_error(jax):
    error = importlib.import_module("jax._src.interpreters.ad").CustomVJPException

    def scaled(c, x):
        f = weft.custom_vjp(lambda x: c * x)
        f.defvjp(lambda x: (c * x, None), lambda _, ct: (c * ct,))
        return f(x)

    for program in (
        weft.jit(scaled),
        lambda c, x: weft.lax.scan(lambda a, _: (scaled(c, a), None), x, None, 2)[0],
    ):
        with pytest.raises(
            error, match=r"differentiated by values that it closes over, of types ~?float32\[\]"
        ):
            weft.grad(program)(2.0, 3.0)
    with pytest.raises(error, match="closes over a value that is being differentiated"):
        weft.grad(scaled)(2.0, 3.0)
    assert weft.grad(lambda x: scaled(2.0, x))(3.0) == 2


def test_promotion_to_complex_dtypes(jax):
    promote = importlib.import_module("jax._src.numpy.util").promote_dtypes_complex
    for args in (
        (jax.numpy.arange(3),),
        (jax.numpy.arange(3), jax.numpy.ones(2)),
        (jax.numpy.ones(2, "complex64"), 1),
    ):
        assert [x.dtype for x in promote(*args)] == [np.complex64] * len(args)
    assert [(x.dtype, x.weak_type) for x in promote(1, 2.0)] == [(np.complex64, True)] * 2


def test_loops_and_errors_under_their_internal_names(jax):
    assert importlib.import_module("jax._src.lax.control_flow").scan is jax.lax.scan
    from jax._src.lib import xla_client

    assert (
        xla_client.XlaRuntimeError
        is importlib.import_module("jaxlib.xla_client").XlaRuntimeError
        is jax.errors.JaxRuntimeError
    )


def test_dtypes_of_values_under_their_internal_names(jax):
    dtype = importlib.import_module("jax._src.dtypes").dtype
    assert [dtype(x) for x in (1, 2.0, np.ones(2, np.int8))] == [np.int32, np.float32, np.int8]
    assert importlib.import_module("jax._src.api")._dtype is dtype


def test_equations_name_the_frame_that_made_them(jax):
    info = importlib.import_module("jax._src.source_info_util")
    eqn = jax.make_jaxpr(lambda x: x + 1)(1.0).eqns[0]
    frame = info.user_frame(eqn.source_info)
    assert isinstance(frame, info.Frame) and frame == info.user_frame(eqn.source_info.traceback)
    assert frame.file_name == __file__ and frame.function_name == "<lambda>"
    lines = inspect.getsource(sys.modules[__name__]).splitlines()
    assert "x + 1" in lines[frame.start_line - 1][frame.start_column :]
    assert frame._replace(start_line=3).start_line == 3 and info.user_frame(None) is None


def test_tracebacks_lose_the_frames_of_weft(jax):
    util = importlib.import_module("jax._src.traceback_util")
    with pytest.raises(TypeError) as caught:
        jax.numpy.concatenate(3)
    files = [frame.filename for frame in traceback.extract_tb(util.filter_traceback(caught.tb))]
    package = os.path.dirname(weft.__file__)
    assert files and not any(file.startswith(package + os.sep) for file in files)


def test_partial_calls_are_equal_by_function_and_arguments(jax):
    partial = importlib.import_module("jax._src.util").HashablePartial
    call = partial(divmod, 7)
    assert (
        call(2) == (3, 1) and call == partial(divmod, 7) and hash(call) == hash(partial(divmod, 7))
    )
    assert call != partial(divmod, 8) and partial(max, key=abs)(-3, 2) == -3
