"""Functions of the extension interface take the arguments that JAX 0.10 has for them, by position and by name."""

import importlib
import inspect

import pytest

from weft.compat import install_as_jax, uninstall

#: module -> function -> (how many arguments by position, names of the others)
CALLS = {
    "jax.api_util": {
        "flatten_fun": (2, "use_eq_store unk_names"),
        "flatten_fun_nokwargs": (2, "use_eq_store unk_names"),
    },
    "jax.export": {"is_symbolic_dim": (0, "p"), "export": (1, "platforms disabled_checks")},
    "jax.extend.backend": {
        "get_compile_options": (7, ""),
        "register_backend_factory": (2, "priority fail_quietly experimental make_topology c_api"),
    },
    "jax.extend.linear_util": {
        "transformation": (3, ""),
        "transformation2": (3, ""),
        "transformation_with_aux": (3, ""),
        "transformation_with_aux2": (3, "use_eq_store unk_names"),
        "wrap_init": (2, "debug_info"),
    },
    "jax.interpreters.ad": {"jvp": (6, ""), "linearize": (2, "has_aux is_vjp")},
    "jax.interpreters.batching": {
        "broadcast": (4, ""),
        "register_vmappable": (0, "data_type spec_type axis_size_type to_elt from_elt make_iota"),
        "unregister_vmappable": (0, "data_type"),
    },
    "jax.interpreters.mlir": {
        "core_call_lowering": (3, "name backend call_jaxpr"),
        "ir_constant": (1, "const_lowering aval"),
        "ir_constants": (1, "const_lowering aval"),
        "jaxpr_subcomp": (7, "dim_var_values const_lowering outer_traceback"),
    },
    "jax.ref": {
        "addupdate": (0, "ref idx x"),
        "swap": (0, "ref idx value"),
        "new_ref": (1, "memory_space kind"),
    },
}


@pytest.fixture(autouse=True, scope="module")
def as_jax():
    install_as_jax()
    yield
    uninstall()


@pytest.mark.parametrize(
    "module, name", [(module, name) for module, calls in CALLS.items() for name in calls]
)
def test_arguments_are_taken(module, name):
    count, others = CALLS[module][name]
    inspect.signature(getattr(importlib.import_module(module), name)).bind(
        *range(count), **dict.fromkeys(others.split())
    )


@pytest.mark.parametrize(
    "module, name",
    [
        ("jax.interpreters.ad", "linearize"),
        ("jax.interpreters.mlir", "ir_constant"),
        ("jax.interpreters.mlir", "ir_constants"),
        ("jax.extend.backend", "get_compile_options"),
    ],
)
def test_others_are_refused(module, name):
    with pytest.raises(TypeError, match="unexpected"):
        getattr(importlib.import_module(module), name)(1, unknown=2)


def test_linearize_says_that_it_has_no_aux():
    ad = importlib.import_module("jax.interpreters.ad")
    with pytest.raises(NotImplementedError, match="has_aux"):
        ad.linearize(lambda x: ([x], 1), 2.0, has_aux=True)
