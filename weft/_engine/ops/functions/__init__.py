"""Elementwise functions with native math: each formula is declared by `function`, with its record
above it.

In:   values of floating (some: complex) dtypes; floats of at most 16 bits compute in float32.
Out:  `functions.sin`, and its primitive `functions.sin_p`; a module is loaded at the first use of
      one of its functions.
Laws: a formula is `fn(f, *values)`. `f` emits the instructions of a backend
      (`codegen.vector.math_real.RealFormulas` for CPUs): `f.fma`, `f.select`, `f.poly`, `f.with_rare_case`, ..., and
      every function of this package (`f.exp(x)`). Values have Python's operators. `f.type` is the
      computation type, f32 or f64 (`f.wide`); `f.demand` is the type to which the result will be
      rounded (`f.short`: a half type). Formulas import no backend, so every backend can use them.
Next: docs/adding-an-op.md.
"""

from __future__ import annotations

from typing import Any

from weft._engine.ir.registry import ScalarFunction, functions, registry
from weft._engine.util.lazy import loader

#: the module of each function, by its name or NumPy's name, so that the other modules need not be
#: loaded. Names that are missing here are found by loading all modules.
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
    """Return the module listed for `name`; load all modules and return None if none is listed."""
    if name in STATED_BY:
        return next(_modules(name))
    for _ in _modules(None):
        pass
    return None


def find(name: str) -> Any:
    """Return a function, or its primitive for a name that ends in `_p`; None if there is none."""
    stem = name.removesuffix("_p")
    module = _load(stem)
    if stem != name:
        return registry.get(stem)
    function = functions.get(name)
    if module is None:
        return function and function.op
    # None: only kernels have the function
    return None if function is not None and function.op is None else getattr(module, name, None)


def __getattr__(name: str) -> Any:
    value = None if name.startswith("_") else find(name)
    if value is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def named_by_numpy(name: str) -> ScalarFunction | None:
    """Return the function that NumPy calls `name`, or None."""
    if name.startswith("_"):
        return None
    _load(name)
    # a copy, since signal handlers and other threads may load more functions
    return next(
        (
            function
            for function in list(functions.values())
            if function is not None and name in function.numpy
        ),
        None,
    )


def every() -> list[ScalarFunction]:
    """Return all functions by name."""
    _load("")
    return sorted(
        [function for function in list(functions.values()) if function is not None],
        key=lambda function: function.name,
    )
