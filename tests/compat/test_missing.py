"""Every public name of JAX is available, or refused with a reason: in docs/missing-names.md, and in the error when it is used."""

import importlib
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.compat import install_as_jax, missing, names, uninstall
from weft.experimental import checkify
from weft.interpreters import mlir

PAGE = Path(__file__).parents[2] / "docs" / "missing-names.md"


@pytest.fixture(scope="module", autouse=True)
def shim():
    install_as_jax()
    yield
    uninstall()


@pytest.fixture(scope="module")
def absent(shim):
    """Return the public names that each module refuses."""
    offered = {
        module: set(importlib.import_module(module).__all__) for module in names.public_names()
    }
    refused = {
        module: sorted(listed - offered[module]) for module, listed in names.public_names().items()
    }
    return {module: listed for module, listed in refused.items() if listed}


def test_every_absent_name_has_a_reason(absent):
    assert [
        f"{module}.{name}"
        for module, listed in absent.items()
        for name in listed
        if not missing.why(module, name)
    ] == []


def _use(value, kind):
    """Use a refused object in the ordinary way for its kind."""
    if kind in ("class", "exception", "function"):
        return value(1, option=2)
    return value.bind(1.0, axis=0) if kind == "primitive" else value.attribute


def test_every_absent_name_refuses_its_use(absent):
    for module, listed in absent.items():
        for name in listed:
            value = getattr(importlib.import_module(module), name)
            with pytest.raises(NotImplementedError, match=rf"\b{name}: ") as caught:
                _use(value, missing.kind(module, name))
            assert missing.why(module, name) in str(caught.value)
            assert value == value and value in {value} and repr(value)


def test_no_name_is_refused_that_is_available(absent):
    """Names that the table lists one by one are absent; "*" covers all other absent names of a module."""
    listed = {
        (module, name)
        for modules in missing._MISSING.values()
        for module, names_ in modules.items()
        for name in names_.split()
    }
    assert sorted((m, n) for m, n in listed if n != "*" and n not in absent.get(m, ())) == []


def test_refused_primitives_are_keys_of_rules():
    from jax import lax
    from jax.extend.core import Primitive, primitives
    from jax.interpreters import ad, batching

    assert lax.reduce_p is primitives.reduce_p and isinstance(lax.reduce_p, Primitive)
    assert {lax.reduce_p: 1, lax.split_p: 2}[lax.split_p] == 2 and lax.split_p.name == "split"
    ad.primitive_jvps[lax.split_p] = batching.primitive_batchers[lax.split_p] = (
        lambda *args, **params: None
    )
    assert pickle.loads(pickle.dumps(lax.split_p)) is lax.split_p
    with pytest.raises(NotImplementedError, match="split_p: weft composes"):
        weft.jit(lambda x: lax.split_p.bind(x))(X)


def test_refused_classes_are_types():
    from jax.experimental.pallas import tpu

    class Own(tpu.BufferedRef):
        pass

    assert not isinstance(X, tpu.TpuInfo) and issubclass(tpu.LoweringException, Exception)
    for use in (
        Own,
        tpu.BufferedRef,
        lambda: tpu.ChipVersion.TPU_V5E,
        lambda: tpu.BufferedRef.create(),
    ):
        with pytest.raises(NotImplementedError, match=r"jax\.experimental\.pallas\.tpu\."):
            use()


def test_refused_values_and_modules():
    from jax.extend import backend, lowering
    from jax.interpreters import mlir

    for use in (
        lambda: mlir.ir_type_handlers[int],
        lambda: lowering.upstream_dialects.register("x"),
        lambda: backend.ifrt_proxy.connect,
        lambda: setattr(lowering.upstream_dialects, "x", 1),
        lambda: mlir.func.FuncOp(1, 2),
        lambda: list(mlir.ir_tree_registry),
    ):
        with pytest.raises(NotImplementedError):
            use()


def test_importing_everything_leaves_refused_names_out():
    namespace = {}
    exec("from jax.profiler import *", namespace)
    assert "trace" in namespace and "ProfileData" not in namespace


@pytest.mark.parametrize("name", ["precv", "psend", "rng_uniform"])
def test_functions_of_lax_that_are_not_built(name):
    with pytest.raises(NotImplementedError, match=rf"jax\.lax\.{name}: .*\."):
        getattr(importlib.import_module("jax.lax"), name)(1, 2)


@pytest.mark.skipif(not PAGE.exists(), reason="the page is not part of this distribution")
def test_the_page_lists_what_is_missing(absent):
    text = PAGE.read_text()
    for module, listed in absent.items():
        _, heading, section = text.partition(f"## `{module}`\n")
        assert heading, module
        section = section.partition("\n## ")[0]
        assert [name for name in listed if f"`{name}`" not in section] == [], module


@pytest.mark.skipif(not PAGE.exists(), reason="the page is not part of this distribution")
def test_the_page_lists_nothing_that_is_there(absent):
    names_of = re.compile(r"^- ((?:`\w+`(?:,\s+)?)+):", re.MULTILINE)
    sections = re.findall(
        r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    listed = {
        (module, name)
        for module, section in sections
        for listed_name in names_of.findall(section)
        for name in re.findall(r"\w+", listed_name)
    }
    assert len(listed) > 100
    assert listed <= {(module, name) for module, names_ in absent.items() for name in names_}


def test_the_error_says_the_reason():
    assert missing.why("jax.experimental.pallas.tpu", "emit_pipeline").startswith(
        "pipelines of copies"
    )
    assert missing.why("jax.experimental.pallas.tpu", "TpuInfo").startswith(
        "it drives parts of a TPU core"
    )
    assert missing.why("jax.lax", "split_p") == missing.why("jax.lax.linalg", "symmetric_product_p")
    assert missing.why("jax.numpy", "sine") is None and missing.why_module("jax.numpy") is None


CONSTRUCTORS = {
    "jax.Ref": lambda: weft.new_ref(X),
    "jax.stages.Traced": lambda: weft.jit(wnp.sin).trace(X),
    "jax.stages.Lowered": lambda: weft.jit(wnp.sin).lower(X),
    "jax.stages.Compiled": lambda: weft.jit(wnp.sin).lower(X).compile(),
    "jax.export.Exported": lambda: weft.export.export(weft.jit(wnp.sin))(X),
    "jax.experimental.checkify.Error": lambda: checkify.checkify(wnp.sin)(X)[0],
    "jax.interpreters.mlir.ModuleContext": lambda: (
        mlir.LoweringRuleContext(None, (), ()).module_context
    ),
    "jax.interpreters.partial_eval.DynamicJaxprTracer": lambda: _tracer(),
    "jax.interpreters.partial_eval.JaxprTracer": lambda: _tracer(),
}


def _tracer():
    seen = []
    weft.make_jaxpr(lambda x: seen.append(x) or x)(X)
    return seen[0]


@pytest.mark.parametrize("fullname", CONSTRUCTORS)
def test_constructors_that_are_refused_are_listed(fullname):
    module, _, name = fullname.rpartition(".")
    cls, instance = getattr(importlib.import_module(module), name), CONSTRUCTORS[fullname]()
    assert type(instance) is cls
    for arguments in ((), (instance,), (1, 2, 3)):
        with pytest.raises(
            NotImplementedError,
            match=f"{cls.__name__}: its constructor is not supported. .* made by",
        ):
            cls(*arguments)
    if PAGE.exists():
        assert (
            name
            in PAGE.read_text()
            .partition("## Constructors that are refused")[2]
            .partition("\n## ")[0]
        )


X, SQUARE = np.arange(4, dtype=np.float32), np.eye(3, dtype=np.float32)
QKV = [np.ones((1, 2, 1, 3), np.float32)] * 3
REFUSED = {
    "jax.jit": lambda: weft.jit(wnp.sin, abstracted_axes=("n",)),
    "jax.grad": lambda: weft.grad(wnp.sin, reduce_axes=("i",)),
    "jax.pmap": lambda: weft.pmap(wnp.sin, global_arg_shapes=((1,),)),
    "jax.new_ref": lambda: weft.new_ref(X, memory_space=weft.sharding.MemorySpace.Host),
    "jax.debug.breakpoint": lambda: weft.debug.breakpoint(backend="web"),
    "jax.profiler.start_server": lambda: weft.profiler.start_server(9999),
    "jax.numpy.reshape": lambda: wnp.reshape(X, 4, order="A"),
    "jax.numpy.array": lambda: wnp.array(SQUARE, order="F"),
    "jax.numpy.take": lambda: wnp.take(X, 0, mode="raise"),
    "jax.numpy.fill_diagonal": lambda: wnp.fill_diagonal(SQUARE, 1.0, wrap=True, inplace=False),
    "jax.numpy.gradient": lambda: wnp.gradient(X, edge_order=2),
    "jax.numpy.quantile": lambda: wnp.quantile(X, 0.5, weights=X),
    "jax.numpy.histogram_bin_edges": lambda: wnp.histogram_bin_edges(X, "auto"),
    "jax.numpy.linalg.svd": lambda: wnp.linalg.svd(
        SQUARE, full_matrices=False, hermitian=True, subset_by_index=(0, 1)
    ),
    "jax.export.export": lambda: weft.export.export(weft.jit(wnp.sin), _override_lowering_rules=[]),
    "jax.extend.core.Var": lambda: weft.extend.core.Var(weft.typeof(1.0), initial_qdd=1),
    "ufuncs and their methods": lambda: wnp.add.reduce(SQUARE, out=SQUARE),
    "jax.nn.dot_product_attention": lambda: weft.nn.dot_product_attention(
        *QKV, implementation="cudnn"
    ),
    "jax.scipy.fft.dct": lambda: weft.scipy.fft.dct(X, type=3),
    "jax.scipy.linalg.eigh": lambda: weft.scipy.linalg.eigh(SQUARE, SQUARE),
    "jax.scipy.linalg.eigh_tridiagonal": lambda: weft.scipy.linalg.eigh_tridiagonal(
        X, X[1:], eigvals_only=True, select="v"
    ),
    "jax.scipy.linalg.sqrtm": lambda: weft.scipy.linalg.sqrtm(SQUARE, blocksize=2),
    "jax.scipy.ndimage.map_coordinates": lambda: weft.scipy.ndimage.map_coordinates(
        X, [X], order=3
    ),
    "jax.scipy.signal.convolve2d": lambda: weft.scipy.signal.convolve2d(
        SQUARE, SQUARE, boundary="wrap"
    ),
    "jax.scipy.signal.detrend": lambda: weft.scipy.signal.detrend(X, overwrite_data=True),
    "jax.scipy.special.factorial": lambda: weft.scipy.special.factorial(X, exact=True),
    "jax.scipy.stats.mode": lambda: weft.scipy.stats.mode(X, nan_policy="omit"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_options_that_are_refused_are_listed(name):
    with pytest.raises(NotImplementedError):
        REFUSED[name]()
    if PAGE.exists():
        assert name in PAGE.read_text().partition("## Options that are refused")[2]
