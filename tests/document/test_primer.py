"""The primer's snippets on tracing, control flow, sharding and inspection, run as the document writes them.

The document lost the indentation of its code, so each snippet is named by its first line and the depth of each line.
It is in ../shared/seeds, outside of the project. These tests are skipped if it is absent.
"""

import contextlib
import io
import logging
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.compat import install_as_jax, uninstall

DOCUMENT = Path(__file__).parents[2].parent / "shared" / "seeds" / "003_0ad3666ca458c5c3.txt"
LINES = DOCUMENT.read_text().splitlines() if DOCUMENT.exists() else []
pytestmark = pytest.mark.skipif(not LINES, reason="the document is absent (../shared/seeds)")

MESH = {"devices": np.array(weft.devices()[:8])}


@pytest.fixture(autouse=True)
def _nothing_left_behind():
    yield
    uninstall()


def snippet(first: str, depths: str, occurrence: int = 0) -> str:
    """Return the code whose first line starts with `first`, with a depth of indentation per line."""
    starts = [i for i, line in enumerate(LINES) if line.startswith(first)]
    lines = LINES[starts[occurrence] :][: len(depths)]
    return "\n".join("    " * int(depth) + line for depth, line in zip(depths, lines))


def run(code: str, **names) -> tuple[dict, str]:
    """Run `code`; return its variables and its output."""
    install_as_jax()
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    scope = {
        "jax": jax,
        "jnp": jnp,
        "np": np,
        "partial": partial,
        "Mesh": Mesh,
        "NamedSharding": NamedSharding,
        "P": P,
        **names,
    }
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "<snippet>", "exec"), scope)
    return scope, printed.getvalue()


def shown(first: str, count: int) -> str:
    """Return the output that the document shows, without blanks."""
    start = next(i for i, line in enumerate(LINES) if line.startswith(first))
    return "".join("".join(LINES[start : start + count]).split())


def data(*shape: int) -> np.ndarray:
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def kinds(function, *args) -> dict[str, int]:
    """Return the number of collectives of each kind."""
    counts: dict[str, int] = {}
    for record in weft.jit(function).lower(*args).compile().stages.collectives:
        counts[record.kind] = counts.get(record.kind, 0) + record.count
    return counts


def test_a_worked_jaxpr():
    _, printed = run(snippet("import jax", "00", 2) + "\n" + snippet("def f(x, y):", "01110"))
    printed = printed.replace(" out_sharding=None", "")  # younger than the document
    assert "".join(printed.split()) == shown("{ lambda ; a:f32[3] b:f32[3]. let", 5)


def test_branching_on_a_tracer_is_an_error_that_names_the_rule():
    scope, _ = run(snippet("@jax.jit", "001212", 1))
    with pytest.raises(weft.errors.ConcretizationTypeError, match=r"cond|where"):
        scope["f"](1.0)


def test_static_arguments_give_shapes():
    scope, _ = run(snippet("from functools import partial", "0001"))
    assert scope["make_zeros"](weft.random.PRNGKey(0), 3).shape == (3,)
    assert scope["make_zeros"](weft.random.PRNGKey(0), 5).shape == (5,)
    assert scope["make_zeros"]._cache_size() == 2


def test_ahead_of_time_lowering():
    _, printed = run(snippet("lowered = jax.jit(f).lower", "00000"), f=lambda x, y: (x * y).sum())
    assert "stablehlo.multiply" in printed
    assert "HloModule" in printed
    assert "'flops'" in printed


def test_value_of_gradients_has_the_shape_of_the_parameters():
    params = {"W": data(4, 2)}
    scope, _ = run(
        snippet("def loss(params, x, y):", "0100", 1), params=params, x=data(3, 4), y=data(3, 2)
    )
    x, y, w = data(3, 4), data(3, 2), params["W"]
    np.testing.assert_allclose(scope["g"]["W"], 2 * x.T @ (x @ w - y) / 6, rtol=1e-5)


def test_vmap_and_its_axes():
    scope, _ = run(snippet("def dot(a, b):", "0100"))
    np.testing.assert_array_equal(
        scope["batched_dot"](np.ones((32, 5)), np.ones((32, 5))), np.full(32, 5)
    )
    for first, a, b, want in [
        ("jax.vmap(dot, in_axes=(0, None))", data(6, 5), data(5), (data(6, 5) * data(5)).sum(1)),
        (
            "jax.vmap(dot, in_axes=(-1, 0))",
            data(5, 6),
            data(6, 5),
            (data(5, 6).T * data(6, 5)).sum(1),
        ),
    ]:
        mapped = eval(snippet(first, "0").partition("#")[0], scope)
        np.testing.assert_allclose(mapped(a, b), want, rtol=1e-5, atol=1e-6)


def test_per_example_gradients():
    scope, _ = run(snippet("def per_example_loss(params, x, y):", "0110"))
    grads = scope["per_example_grad"]({"W": data(3), "b": np.float32(0.5)}, data(7, 3), data(7))
    assert {k: g.shape for k, g in grads.items()} == {"W": (7, 3), "b": (7,)}


def test_per_example_gradient_norms():
    scope, _ = run(
        snippet("def per_example_loss(params, x, y):", "010101111", 1).replace(
            "in_axes", "    in_axes"
        )
    )
    params, xs, ys = {"W": data(3, 2)}, data(5, 3), data(5, 2)
    norms = scope["per_example_norm"](params, xs, ys)
    want = [np.linalg.norm(np.outer(x, x @ params["W"] - y)) for x, y in zip(xs, ys)]
    np.testing.assert_allclose(norms, want, rtol=1e-4)


def sharded_forward() -> dict:
    hosts = {"x_host": data(8, 6), "W_host": data(6, 4), "b_host": data(4)}
    scope, _ = run(snippet("import jax", "0000001000001111", 4), **hosts)
    return scope


def test_sharded_forward_needs_no_collective():
    scope = sharded_forward()
    x, w, b = scope["x"], scope["W"], scope["b"]
    result = scope["forward"](x, w, b)
    assert result.sharding.spec == weft.P("data", "model")
    np.testing.assert_allclose(result, data(8, 6) @ data(6, 4) + data(4), rtol=1e-5, atol=1e-6)
    assert kinds(scope["forward"], x, w, b) == {}


def test_given_shardings_of_arguments_and_results():
    scope = sharded_forward()
    scope, _ = run(snippet("forward_p = jax.jit(", "0111110"), **scope)
    result = scope["forward_p"](data(8, 6), data(6, 4), data(4))
    assert result.sharding.spec == weft.P("data", "model")


def test_shard_map_by_hand():
    code = snippet("from jax.experimental.shard_map import shard_map", "000101111")
    scope, _ = run("mesh = Mesh(devices.reshape(2, 4), ('data', 'model'))\n" + code, **MESH)
    result = scope["matmul"](data(8, 6), data(6, 4))
    assert result.sharding.spec == weft.P("data", "model")
    np.testing.assert_allclose(result, data(8, 6) @ data(6, 4), rtol=1e-5, atol=1e-6)


def test_scan_as_its_informal_signature_says():
    code = (
        snippet("def f(carry, x): # carry", "01110")
        .replace("new_carry = ...", "new_carry = carry + x")
        .replace("y = ...", "y = new_carry * 2")
    )
    scope, _ = run(code, init_carry=np.float32(0), xs=np.arange(4, dtype=np.float32))
    assert float(scope["final_carry"]) == 6
    np.testing.assert_array_equal(scope["ys"], [0, 2, 6, 12])


def test_hlo_as_an_object():
    _, printed = run(
        snippet("hlo = jax.jit(f).lower(jnp.ones((3,))", "00"),
        f=lambda x, y: weft.numpy.sum(weft.numpy.sin(x * y)),
    )
    for op in ("parameter(0)", "multiply(", "sine(", "reduce("):
        assert op in printed


def test_megatron_mlp_has_one_all_reduce():
    hosts = {"x_host": data(8, 4), "W1_host": data(4, 16), "W2_host": data(16, 4)}
    code = snippet('mesh = Mesh(devices.reshape(2, 4), ("data", "model"))', "000000111")
    scope, _ = run(snippet("def shard(x, spec):", "01") + "\n" + code, **MESH, **hosts)
    args = scope["x"], scope["W1"], scope["W2"]
    assert kinds(scope["mlp"], *args) == {"psum": 1}
    assert scope["mlp"](*args).sharding.spec == weft.P("data", None)


def test_megatron_specs_of_the_exercise():
    scope, _ = run(
        snippet('mesh = Mesh(devices.reshape(2, 4), ("data", "model"))', "00000", 1), **MESH
    )
    place = lambda x, name: weft.device_put(x, weft.NamedSharding(scope["mesh"], scope[name]))
    args = place(data(8, 4), "x_spec"), place(data(4, 16), "W1_spec"), place(data(16, 4), "W2_spec")
    mlp = weft.jit(
        lambda x, w1, w2: weft.nn.gelu(x @ w1) @ w2,
        out_shardings=weft.NamedSharding(scope["mesh"], scope["y_spec"]),
    )
    assert kinds(mlp, *args) == {"psum": 1}
    assert mlp(*args).sharding.spec == scope["y_spec"]


def test_what_gets_recompiled():
    scope, _ = run(snippet("@jax.jit", "00100000", 5))
    assert scope["f"]._cache_size() == 3


def test_reading_a_jaxpr():
    """Literals carry their types and `where` its name; otherwise the text is approximately the document's."""
    _, printed = run(snippet("def g(x):", "010"))
    for equation in ("bool[3] = gt a 0.0", "f32[3] = mul 0.5", "f32[3] = select_n"):
        assert equation in printed


def test_the_inspection_toolbox(caplog):
    names = {"f": lambda x: weft.numpy.sin(x).sum(), "x": data(4)}
    with caplog.at_level(logging.WARNING):
        try:
            scope, _ = run(snippet("jax.make_jaxpr(f)(x) # show jaxpr", "000000"), **names)
            scope["jax"].jit(lambda x: x - 3)(scope["x"])
        finally:
            weft.config.update("jax_log_compiles", False)
    assert "Finished compilation" in caplog.text
