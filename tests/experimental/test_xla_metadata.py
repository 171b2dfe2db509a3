"""Attributes of blocks, values and calls: through transformations, in every text, and in caches."""

import functools
import json
import re
import threading

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.experimental.scheduling_groups import scheduling_group
from weft.experimental.xla_metadata import set_xla_metadata, xla_metadata_call
from weft.extend.core import Primitive
from weft.interpreters import mlir


def tagged(text: str, op: str) -> list[str]:
    """Return the attributes of each operation `op` of a StableHLO text."""
    lines = [line for line in text.splitlines() if re.search(rf"{op}\b", line)]
    return [
        match[1] if (match := re.search(r"mhlo\.frontend_attributes = \{(.*?)\}", line)) else ""
        for line in lines
    ]


def lowered(fn, *args) -> str:
    return weft.jit(fn).lower(*args).as_text()


def in_block(fn, **metadata):
    def inside(*args):
        with set_xla_metadata(**metadata):
            return fn(*args)

    return inside


# --- blocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("v", "v"),
        (3, "3"),
        (True, "true"),
        (False, "false"),
        (0.5, "0.5"),
        ('a "b"\n', "a \\22b\\22\\0A"),
    ],
)
def test_values_as_texts(value, text):
    fn = in_block(wnp.sin, key=value)
    assert tagged(lowered(fn, 1.0), "stablehlo.sine") == [f'key = "{text}"']
    shown = json.dumps(value if isinstance(value, str) else text)
    assert f"frontend_attributes={{key={shown}}}" in weft.jit(fn).lower(1.0).as_text("hlo")


def test_keys_that_are_no_names_are_quoted():
    with set_xla_metadata(**{"a key": 1}):
        assert tagged(lowered(wnp.sin, 1.0), "stablehlo.sine") == ['"a key" = "1"']


def test_inner_blocks_add_replace_and_remove():
    def f(x):
        with set_xla_metadata(b=1, a="x"):
            x = wnp.sin(x)
            with set_xla_metadata(a=None, c=2, b=3):
                x = wnp.cos(x)
            x = wnp.tanh(x)
        return wnp.exp(x)

    text = lowered(f, 1.0)
    assert [
        tagged(text, f"stablehlo.{op}") for op in ("sine", "cosine", "tanh", "exponential")
    ] == [['a = "x", b = "1"'], ['b = "3", c = "2"'], ['a = "x", b = "1"'], [""]]
    metadata = [eqn.ctx.xla_metadata for eqn in weft.make_jaxpr(f)(1.0).eqns]
    assert metadata == [{"a": "x", "b": 1}, {"b": 3, "c": 2}, {"a": "x", "b": 1}, None]


def test_a_block_ends_with_an_error_and_is_entered_again():
    block = set_xla_metadata(key="v")
    with pytest.raises(KeyError), block:
        raise KeyError
    with block, set_xla_metadata(other=1), block:
        assert tagged(lowered(wnp.sin, 1.0), "sine") == ['key = "v", other = "1"']
    assert weft.config.xla_metadata == () and tagged(lowered(wnp.sin, 1.0), "sine") == [""]


def test_threads_may_share_a_block():
    block, inside, metadata = set_xla_metadata(key="v"), threading.Barrier(2), {}

    def run(name, first):
        with set_xla_metadata(thread=name):
            with block:
                inside.wait(60)
                if first:
                    inside.wait(60)
            metadata[name] = weft.config.xla_metadata
            if not first:
                inside.wait(60)

    threads = [threading.Thread(target=run, args=args) for args in (("a", True), ("b", False))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert (
        metadata == {"a": (("thread", "a"),), "b": (("thread", "b"),)}
        and weft.config.xla_metadata == ()
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_it_decorates_functions(compiled):
    @set_xla_metadata(outer=1)
    @(weft.jit if compiled else lambda f: f)
    def f(x):
        """Doc."""
        with set_xla_metadata(inner=2):
            return wnp.sin(x)

    assert (f.__name__, f.__doc__, float(f(0.0))) == ("f", "Doc.", 0)
    expected = ['inner = "2", outer = "1"']
    assert tagged(lowered(f, 1.0), "sine") == expected
    if compiled:
        assert (
            tagged(f.lower(1.0).as_text(), "sine")
            == tagged(f.trace(1.0).lower().as_text(), "sine")
            == expected
        )
        assert f.trace(1.0).jaxpr.eqns[0].ctx.xla_metadata == {"inner": 2, "outer": 1}
        assert f.eval_shape(1.0).shape == ()


def test_constants_and_regions_that_combine_have_none():
    text = lowered(
        in_block(lambda x: (wnp.argmax(x) + 1, wnp.sort(x)), key="v"), np.ones(3, np.float32)
    )
    assert tagged(text, "stablehlo.constant") == [""] * text.count("stablehlo.constant")
    assert tagged(text, "stablehlo.add") == ['key = "v"'] and set(
        tagged(text, "stablehlo.compare")
    ) == {""}


# --- caches ----------------------------------------------------------------------------------------------------------


def test_a_cached_trace_is_one_for_its_attributes():
    traces = []

    @weft.jit
    def f(x):
        traces.append(x)
        return wnp.sin(x)

    def both(x):
        with set_xla_metadata(key="v"):
            x = f(x)
        return f(x)

    assert tagged(lowered(both, 1.0), "stablehlo.sine") == ['key = "v"', ""]
    for metadata in ({}, {"key": "v"}, {"key": "w"}, {}, {"key": "v"}):
        with set_xla_metadata(**metadata):
            assert tagged(f.lower(1.0).as_text(), "sine") == [
                "".join(f'key = "{v}"' for v in metadata.values())
            ]
            assert float(f(0.0)) == 0
    assert len(traces) == 3


def _ruled(f):
    rule = weft.custom_jvp(f)
    rule.defjvp(lambda xs, ts: (f(*xs), *ts))
    return rule


@pytest.mark.parametrize("apply", [
    lambda f: lambda x: lax.cond(x > 0, f, f, x), lambda f: lambda x: lax.fori_loop(0, 3, lambda _, c: f(c), x),
    lambda f: lambda x: lax.while_loop(lambda c: f(c) < 0, f, x), lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, length=3)[0],
    lambda f: lambda x: weft.checkpoint(f)(x), lambda f: lambda x: _ruled(f)(x), lambda f: lambda x: weft.jvp(f, (x,), (x,))[0],
    lambda f: lambda x: weft.vmap(f)(x[None])[0], lambda f: lambda x: weft.linearize(f, x)[0], lambda f: lambda x: weft.jit(f)(x),
], ids=["cond", "fori_loop", "while_loop", "scan", "checkpoint", "custom_jvp", "jvp", "vmap", "linearize", "jit"])  # fmt: skip
def test_functions_traced_once_get_the_attributes_of_each_block(apply):
    fn = apply(wnp.sin)
    for metadata in ({"key": "v"}, {}, {"key": "w"}):
        expected = {"".join(f'key = "{v}"' for v in metadata.values())}
        assert (
            set(tagged(lowered(in_block(fn, **metadata), np.float32(1)), "stablehlo.sine"))
            == expected
        )


def test_branches_remove_what_is_set_around_them():
    def f(x):
        with set_xla_metadata(key="v"):
            return lax.cond(x > 0, wnp.sin, in_block(wnp.cos, key=None), x)

    text = lowered(f, 1.0)
    assert (tagged(text, "stablehlo.sine"), tagged(text, "stablehlo.cosine")) == (
        ['key = "v"'],
        [""],
    )
    compiled = weft.jit(f).lower(1.0).compile().as_text()
    assert all(
        ("frontend" in line) == (" sine(" in line)
        for line in compiled.splitlines()
        if re.search(r" (co)?sine\(", line)
    )


# --- transformations --------------------------------------------------------------------------------------------------


def test_derivatives_of_what_is_traced_have_its_attributes():
    f = weft.jit(in_block(lambda x: wnp.sin(x) * 2, key="v"))
    text = lowered(lambda x: weft.grad(f)(x) + 1, 1.0)
    assert set(tagged(text, "stablehlo.cosine")) == {'key = "v"'} and set(
        tagged(text, "stablehlo.multiply")
    ) == {'key = "v"'}
    assert tagged(text, "stablehlo.add") == [""]


def test_derivatives_that_are_taken_in_a_block():
    program = (
        weft.jit(in_block(lambda x: weft.grad(lambda x: x**3 + wnp.sin(x))(x), key="v"))
        .trace(1.0)
        .jaxpr
    )
    assert [eqn.ctx.xla_metadata for eqn in program.eqns] == [{"key": "v"}] * len(
        program.eqns
    ) and program.eqns


def test_rules_of_derivatives_may_have_blocks():
    @weft.custom_vjp
    def f(x):
        return wnp.sin(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (in_block(lambda: wnp.cos(x) * ct, key="bwd")(),))
    text = lowered(weft.grad(weft.jit(f)), 1.0)
    assert set(tagged(text, "stablehlo.cosine")) == {'key = "bwd"'}
    assert set(tagged(text, "stablehlo.sine")) <= {""}


def test_equations_are_bound_again_with_their_attributes():
    program = weft.make_jaxpr(in_block(wnp.sin, key="v"))(1.0)

    def run(x):
        (eqn,) = program.eqns
        with eqn.ctx.manager:
            return eqn.primitive.bind(x, **eqn.params)

    for fn in (run, lambda x: weft.eval_jaxpr(program.jaxpr, (), x)):
        assert tagged(lowered(fn, 1.0), "sine") == ['key = "v"']


def test_lower_fun_passes_attributes_to_its_ops():
    twice_p = Primitive("twice_of_a_test")
    twice_p.def_abstract_eval(lambda x: x)
    mlir.register_lowering(
        twice_p, mlir.lower_fun(lambda x: wnp.sin(x) + x, multiple_results=False)
    )
    text = lowered(lambda x: in_block(twice_p.bind, key="v")(x) * 2, np.float32(1))
    assert tagged(text, "stablehlo.sine") == tagged(text, "stablehlo.add") == [
        'key = "v"'
    ] and tagged(text, "stablehlo.multiply") == [""]


# --- values -----------------------------------------------------------------------------------------------------------


def test_the_operations_of_values_have_attributes():
    def f(x, y):
        both = set_xla_metadata({"a": wnp.sin(x), "b": (y, wnp.cos(y) + 1)}, key="v", n=3)
        return both, wnp.tanh(both["a"])

    text = lowered(f, 1.0, 2.0)
    assert [tagged(text, f"stablehlo.{op}") for op in ("sine", "add", "cosine", "tanh")] == [
        ['key = "v", n = "3"']
    ] * 2 + [[""]] * 2
    assert lowered(lambda x: set_xla_metadata(x, key="v"), 1.0).count("frontend_attributes") == 0
    assert str(weft.make_jaxpr(lambda x: set_xla_metadata(wnp.sin(x), key="v"))(1.0)) == (
        "{ lambda ; a:f32[]. let\n    b:f32[] = sin a\n"
        "    c:f32[] = xla_metadata_value[xla_metadata_kvs=(('key', 'v'),)] b\n  in (c,) }"
    )


def test_values_outside_of_programs_stay():
    x = wnp.ones(3)
    assert (
        set_xla_metadata(x, key="v") is x and set_xla_metadata([1.0, x], key="v")[0].tolist() == 1
    )


@pytest.mark.parametrize("transform", [
    lambda f: weft.vmap(f), lambda f: lambda x: weft.jvp(f, (x,), (x,)), lambda f: weft.value_and_grad(lambda x: f(x).sum()),
    lambda f: lambda x: lax.map(f, x), lambda f: weft.checkpoint(f), lambda f: weft.jit(f),
], ids=["vmap", "jvp", "value_and_grad", "map", "checkpoint", "jit"])  # fmt: skip
def test_values_are_tagged_once_through_transformations(transform):
    plain, given = transform(wnp.sin), transform(lambda x: set_xla_metadata(wnp.sin(x), key="v"))
    x = wnp.arange(3.0)
    text = lowered(given, x)
    assert [t for t in tagged(text, "stablehlo.sine") if t] == ['key = "v"'] and text.count(
        "frontend_attributes"
    ) == 1
    for y, z in zip(weft.tree.leaves(weft.jit(plain)(x)), weft.tree.leaves(weft.jit(given)(x))):
        assert y.tolist() == z.tolist()


def test_cotangents_can_be_tagged():
    @weft.custom_vjp
    def f(x):
        return wnp.sin(x)

    f.defvjp(lambda x: weft.vjp(wnp.sin, x), lambda pull, ct: set_xla_metadata(pull(ct), key="v"))
    assert tagged(lowered(lambda x, ct: weft.vjp(f, x)[1](ct), 1.0, 2.0), "stablehlo.multiply") == [
        'key = "v"'
    ]


# --- compiled programs ------------------------------------------------------------------------------------------------


def program(x, w, tag):
    """Two layers, with attributes of all kinds if `tag`."""
    block = set_xla_metadata if tag else lambda *x, **_: set_xla_metadata() if not x else x[0]
    call = xla_metadata_call(layer=2) if tag else lambda f: f
    with block(layer=1):
        x = wnp.tanh(x @ w) * 2
    x = block(wnp.exp(x - wnp.max(x, 1, keepdims=True)), part="top")
    return call(lambda x: x / x.sum(1, keepdims=True))(x)


def test_compiled_programs_show_attributes_and_are_the_same():
    x, w = np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32)
    tag, plain = [
        weft.jit(functools.partial(program, tag=tag)).lower(x, w).compile() for tag in (True, False)
    ]
    strip = lambda text: re.sub(r", frontend_attributes=\{.*?\}", "", text)
    places = lambda text: re.sub(r", metadata=\{.*?\}", "", text)
    assert places(strip(tag.as_text())) == places(plain.as_text())
    assert np.array_equal(tag(x, w), plain(x, w)) and tag.stages.scheduled is not None
    for op, shown in {
        "tanh": 'layer="1"',
        "exponential": 'part="top"',
        "divide": 'layer="2"',
    }.items():
        assert re.search(rf" {op}\(.*frontend_attributes=\{{{shown}\}}", tag.as_text()), op


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_results_do_not_depend_on_attributes(backend):
    x, w = np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32)
    run = lambda tag: weft.jit(functools.partial(program, tag=tag), backend=backend)(x, w)
    assert np.array_equal(run(True), run(False))
    assert np.array_equal(
        program(wnp.asarray(x), wnp.asarray(w), True),
        program(wnp.asarray(x), wnp.asarray(w), False),
    )


# --- calls ------------------------------------------------------------------------------------------------------------


def test_calls_pass_attributes_to_inlined_operations():
    @scheduling_group(name="outer:inner")
    def inner(x, *, scale):
        return {"y": wnp.sin(x["a"]) * scale}

    f = lambda x: inner({"a": x}, scale=2.0)["y"] + 1
    text = lowered(f, 1.0)
    assert (
        tagged(text, "func.call") == ['scheduling_group = "outer:inner"']
        and text.count("frontend_attributes") == 1
    )
    assert (
        "func.func private @xla_metadata_call(" in text
        and float(weft.jit(f)(0.0)) == float(f(0.0)) == 1
    )
    hlo, compiled = (
        weft.jit(f).lower(1.0).as_text("hlo"),
        weft.jit(f).lower(1.0).compile().as_text(),
    )
    assert re.search(
        r' call\(.*to_apply=%xla_metadata_call\.1, frontend_attributes=\{scheduling_group="outer:inner"\}',
        hlo,
    )
    assert re.search(r' sine\(.*frontend_attributes=\{scheduling_group="outer:inner"\}', compiled)
    assert not re.search(r" add\(.*frontend_attributes", compiled)


def test_attributes_of_nested_calls_and_blocks_once_inlined():
    @xla_metadata_call(a=1, b=1)
    def outer(x):
        with set_xla_metadata(b=2, c=2):
            return xla_metadata_call(lambda x: wnp.cos(wnp.sin(x)), c=3, f="f", jaxpr="j")(x)

    compiled = weft.jit(outer).lower(1.0).compile().as_text()
    for op in ("sine", "cosine"):
        assert re.search(
            rf' {op}\(.*frontend_attributes=\{{a="1",b="2",c="2",f="f",jaxpr="j"\}}', compiled
        )
    assert tagged(lowered(outer, 1.0), "func.call") == [
        'a = "1", b = "1"',
        'b = "2", c = "3", f = "f", jaxpr = "j"',
    ]


def test_derivatives_of_calls_are_calls():
    f = xla_metadata_call(wnp.sin, key="v")
    assert float(weft.grad(f)(0.0)) == 1 and float(weft.grad(weft.grad(f))(0.0)) == 0
    assert tagged(lowered(weft.value_and_grad(f), 1.0), "func.call") == ['key = "v"'] * 2
    assert tagged(lowered(lambda x: weft.jvp(f, (x,), (x,)), 1.0), "func.call") == ['key = "v"']
    assert weft.vmap(f)(wnp.zeros(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("remat", [False, True])
def test_equal_calls_are_one_function(remat):
    f = xla_metadata_call(weft.jit(lambda x: x * 2), inlineable="false")
    f = weft.checkpoint(f) if remat else f
    run = lambda x: f(f(x)).sum()
    x = np.arange(8, dtype=np.float32)
    count = lambda text: text.count("func.func private @xla_metadata_call")
    assert count(lowered(run, x)) == count(lowered(weft.grad(run), x)) == 1
    assert weft.grad(run)(x).tolist() == [4] * 8


def test_calls_close_over_values_and_references():
    count = weft.new_ref(np.float32(0))

    def f(x):
        y = x + 1

        @xla_metadata_call(key="v")
        def inner(x):
            count[...] += x.sum()
            return x * y

        return inner(x)

    assert weft.jit(f)(wnp.arange(3.0)).tolist() == [0, 2, 6] and float(count[...]) == 3
    assert weft.vmap(lambda x: xla_metadata_call(lambda v: v * x, key="v")(x))(
        wnp.arange(3.0)
    ).tolist() == [0, 1, 4]
    with weft.disable_jit():
        assert f(wnp.arange(3.0)).tolist() == [0, 2, 6]


def test_calls_in_programs_of_devices():
    mesh = weft.make_mesh((8,), ("a",))
    spec = weft.P("a")
    f = weft.shard_map(
        lambda x: lax.psum(xla_metadata_call(wnp.sin, key="v")(x), "a"),
        mesh=mesh,
        in_specs=spec,
        out_specs=weft.P(),
    )
    text = lowered(f, np.zeros(8, np.float32))
    assert tagged(text, "stablehlo.sine") == ['key = "v"'] and "xla_metadata_call" not in text
    assert weft.jit(f)(np.zeros(8, np.float32)).tolist() == [0]


def test_exported_programs_keep_attributes():
    def f(x):
        with set_xla_metadata(key="v"):
            return set_xla_metadata(wnp.sin(x), tag="t")

    exported = weft.export.export(weft.jit(f))(np.float32(1))
    again = weft.export.deserialize(exported.serialize())
    assert (
        tagged(again.mlir_module(), "stablehlo.sine") == ['key = "v", tag = "t"']
        and float(again.call(np.float32(0))) == 0
    )


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [object(), [1], None, b"bytes"])
@pytest.mark.parametrize("use", [
    lambda v: set_xla_metadata(wnp.ones(2), key=v), lambda v: xla_metadata_call(key=v), lambda v: scheduling_group(v),
    lambda v: set_xla_metadata(key=v) if v is not None else set_xla_metadata(1, key=v),
], ids=["value", "call", "group", "block"])  # fmt: skip
def test_values_that_are_no_attributes(use, value):
    with pytest.raises(TypeError, match="metadata values must be strings, bools, ints or floats"):
        use(value)


def test_what_is_called_is_a_function():
    with pytest.raises(TypeError, match="xla_metadata_call: expected a callable, got 3"):
        xla_metadata_call(3, key="v")
