"""Elementwise functions with native math, each stated once: its record (`function`) stands above its formula.

In:   values of floating (some: complex) dtypes; 16-bit and smaller floats compute in float32.
Out:  `functions.sin`, and its primitive `functions.sin_p`; a module is loaded when one of its functions is first asked for.
Laws: a formula is `fn(f, *values)`. `f` makes the instructions of a backend (`codegen.vector.math_real.Real` for CPUs): `f.fma`,
      `f.select`, `f.poly`, `f.cold`, ..., and every function of this package (`f.exp(x)`). Values have Python's operators. `f.type` is
      the type that is computed in, f32 or f64 (`f.wide`), `f.demand` the one that the result will be rounded to (`f.short`: a half
      type). Formulas import no backend, so every backend can use them.
Next: docs/adding-an-op.md.
"""

from __future__ import annotations

from typing import Any

from weft._engine.ir.registry import Function, functions, registry
from weft._engine.util.lazy import loader

#: name, or NumPy's name -> the module that states it, so that the others need not be loaded. What is not listed is found, too.
STATED_BY = {
    name: module
    for module, names in {
        "errors": "erf erfc erf_inv log_ndtr ndtri normal_hazard",
        "exponential": "exp exp2 expm1 sinh cosh tanh logistic",
        "gammas": "digamma lgamma bessel_i0e bessel_i1e bessel_ratio",
        "hurwitz": "polygamma zeta",
        "incomplete": """igamma igammac igamma_grad_a igamma_grad_x random_gamma_grad log_igamma log_igammac igamma_hazard igammac_hazard""",
        "incomplete_beta": "betainc regularized_incomplete_beta betaincc log_betainc betainc_hazard beta_density",
        "logarithmic": "log log1p log2 logaddexp asinh acosh atanh arcsinh arccosh arctanh",
        "powers": "pow fmod",
        "roots": "sqrt rsqrt cbrt",
        "rounding": "is_finite floor ceil trunc round_even round_away round RoundingMethod copysign nextafter",
        "trigonometric": "sin cos tan asin acos atan atan2 arcsin arccos arctan arctan2",
    }.items()
    for name in names.split()
}

_modules = loader(__name__, __path__, STATED_BY)
registry.announce(_modules)
functions.announce(_modules)


def _load(name: str) -> Any:
    """The module that is listed for `name`; None, and all are loaded, where none is."""
    if name in STATED_BY:
        return next(_modules(name))
    for _ in _modules(None):
        pass
    return None


def find(name: str) -> Any:
    """A function, or with `_p` its primitive; None where there is none of that name."""
    stem = name.removesuffix("_p")
    module = _load(stem)
    if stem != name:
        return registry.get(stem)
    function = functions.get(name)
    if module is None:
        return function and function.op
    return (
        None if function is not None and function.op is None else getattr(module, name, None)
    )  # None: kernels alone have it


def __getattr__(name: str) -> Any:
    value = None if name.startswith("_") else find(name)
    if value is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def named_by_numpy(name: str) -> Function | None:
    """The function that NumPy calls `name`, or None."""
    if name.startswith("_"):
        return None
    _load(name)
    # a copy: signal handlers and other threads may load more functions
    return next(
        (
            function
            for function in list(functions.values())
            if function is not None and name in function.numpy
        ),
        None,
    )


def every() -> list[Function]:
    """All functions, by name."""
    _load("")
    return sorted(
        [function for function in list(functions.values()) if function is not None],
        key=lambda function: function.name,
    )
