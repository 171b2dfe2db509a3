"""StableHLO of exported programs with symbolic sizes: unknown in types, computed from the shapes of the arguments."""

import re

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import export, lax

b, c = export.symbolic_shape("b, c")


def text_of(function, *shapes):
    text = export.export(weft.jit(function))(
        *[weft.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    ).mlir_module()
    return re.sub(r" loc\((?:\"[^\"]*\"|#\w+)\)", "", text)


PROGRAMS = {
    "dense": (
        lambda x, w: weft.nn.softmax(x @ w + 1.0),
        [(b, 3), (3, 2)],
        ["dot_general", "dynamic_broadcast_in_dim"],
    ),
    "flatten": (lambda x: x.reshape(-1), [(b, c)], ["dynamic_reshape", "multiply"]),
    "positions": (lambda x: wnp.arange(x.shape[0]), [(b,)], ["dynamic_iota"]),
    "mean": (lambda x: x.sum() / x.shape[0], [(b,)], ["get_dimension_size"]),
    "end": (lambda x: x[-3:], [(b,)], ["real_dynamic_slice", "minimum"]),
    "half": (lambda x: x[: x.shape[0] // 2], [(b,)], ["real_dynamic_slice", "divide", "remainder"]),
    "pad": (lambda x: wnp.pad(x, (0, x.shape[0])), [(b,)], ["dynamic_pad"]),
    "take": (lambda x: x[:, np.array([0, 2])], [(b, 3)], ["dynamic_gather"]),
    "rows": (
        lambda x: lax.scan(lambda s, r: (s + r, s), wnp.zeros(3), x),
        [(b, 3)],
        ["while", "dynamic_update_slice"],
    ),
    "steps": (
        lambda x: lax.scan(lambda s, r: (s + r, s), wnp.zeros(x.shape[0]), x.T),
        [(b, 3)],
        ["while", "real_dynamic_slice"],
    ),
    "running": (lambda x: wnp.cumsum(x), [(b,)], ["while"]),
    "gamma": (lambda x: lax.lgamma(x), [(b, 3)], ["dynamic_broadcast_in_dim"]),
    "nested": (
        lambda x: weft.jit(lambda y: y + y.shape[0])(x),
        [(b,)],
        ["get_dimension_size", "add"],
    ),
    "gradient": (weft.grad(lambda w, x: wnp.tanh(x @ w).sum()), [(3,), (b, 3)], ["dot_general"]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_are_unknown_in_types(name):
    function, shapes, operations = PROGRAMS[name]
    text = text_of(function, *shapes)
    head = ", ".join(
        f"%arg{i}: tensor<{''.join('?x' if n in (b, c) else f'{n}x' for n in shape)}f32>"
        for i, shape in enumerate(shapes)
    )
    assert f"@main({head})" in text and "jax.uses_shape_polymorphism = true" in text
    assert len(re.findall("func.func", text)) == 1 and not re.search(r"\b[bc]x", text)
    for operation in operations:
        assert f"stablehlo.{operation}" in text


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_defined_before_their_use(name):
    function, shapes, _ = PROGRAMS[name]
    defined: set[str] = set()
    for line in text_of(function, *shapes).splitlines():
        results, _, operands = (
            line.rpartition(" = stablehlo.while(")
            if "stablehlo.while(" in line
            else line.partition(" = ")
        )
        defined.update(
            re.findall(r"%\w+", results.split(":")[0]), re.findall(r"(%arg\d+)[:,]? ?[=:]", line)
        )
        assert set(re.findall(r"%\w+", operands)) <= defined, line


def test_sizes_are_computed_in_64_bits():
    text = text_of(lambda x: weft.random.bits(weft.random.key(0), x.shape), (b, c))
    assert "dense<4294967296> : tensor<i64>" in text and "stablehlo.remainder" in text


def test_fixed_sizes_keep_their_form():
    fixed = text_of(lambda x: x.reshape(-1) * 2, (2, 3))
    assert (
        "<?" not in fixed
        and "dynamic" not in fixed
        and "jax.uses_shape_polymorphism = false" in fixed
    )


def test_names_only_inside_of_expressions_are_refused():
    with pytest.raises(NotImplementedError, match=r"sizes b occur only in expressions"):
        text_of(lambda x: x + 1, (2 * b,))


def test_operations_with_static_sizes_only_are_refused():
    kernel = np.ones((1, 1, 3), np.float32)
    with pytest.raises(NotImplementedError, match=r"convolution .*needs constant sizes"):
        text_of(lambda x: lax.conv(x, kernel, (2,), "SAME"), (1, 1, b))
