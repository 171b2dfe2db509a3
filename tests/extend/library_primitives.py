"""Primitives of a library: one with all rules, one linear in both operands, one without rules."""

import numpy as np

import weft.numpy as wnp
from weft.extend.core import Primitive, ShapedArray
from weft.interpreters import ad, batching, mlir

X = np.linspace(-1.0, 2.0, 8, dtype=np.float32)


def sin_cos(name="sin_cos"):
    """Return a primitive with two results, every rule, and a table of how often its implementation ran."""
    p = Primitive(name)
    p.multiple_results = True
    p.runs = []

    @p.def_impl
    def impl(x, *, scale):
        p.runs.append(x)
        return [np.sin(scale * np.asarray(x)), np.cos(scale * np.asarray(x))]

    @p.def_abstract_eval
    def types(x, *, scale):
        return [ShapedArray(x.shape, x.dtype)] * 2

    def jvp(primals, tangents, *, scale):
        (x,), (t,) = primals, tangents
        s, c = p.bind(x, scale=scale)
        return [s, c], [scale * c * t, -scale * s * t]

    def batch(args, dims, *, scale):
        return p.bind(*args, scale=scale), [dims[0]] * 2

    ad.primitive_jvps[p] = jvp
    batching.primitive_batchers[p] = batch
    mlir.register_lowering(
        p,
        mlir.lower_fun(
            lambda x, *, scale: (wnp.sin(scale * x), wnp.cos(scale * x)), multiple_results=True
        ),
    )
    return p


def matvec():
    """Return a primitive `a @ x` that is linear in one operand."""
    p = Primitive("matvec")
    p.def_impl(lambda a, x: np.asarray(a) @ np.asarray(x))
    p.def_abstract_eval(lambda a, x: ShapedArray((a.shape[0],), x.dtype))
    mlir.register_lowering(p, mlir.lower_fun(lambda a, x: a @ x, multiple_results=False))

    def transpose(ct, a, x):
        assert not ad.is_undefined_primal(a) and ad.is_undefined_primal(x)
        return [None, p.bind(wnp.transpose(a), ct)]

    ad.defjvp(p, None, lambda t, a, x: p.bind(a, t))
    ad.primitive_transposes[p] = transpose
    return p


def bare(with_impl):
    p = Primitive("bare")
    if with_impl:
        p.def_impl(lambda x: x)
        p.def_abstract_eval(lambda x: x)
    return p
