"""The ordinary ops of random chains, by name, with their families.

In:   a `ChainBody` and the value to apply an op to.
Out:  `OPS`, name -> `ChainOp`; `ChainOp.apply` adds one statement or returns None where it does
      not fit.
Laws: an op keeps values of about the size of its operand, so that chains of eight do not overflow.
      The terms of a sum stand in `near`, so that noise covers the rounding of its partial sums.
Next: `chain_sums` adds sorting, reductions and contractions; `chain_windows` adds convolutions,
      pooling, loops, random numbers and linear algebra.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzz.chain_body import INTS, ChainBody, ChainValue, Shape, replace_dim

Build = Callable[[ChainBody, ChainValue], ChainValue | None]


@dataclass(frozen=True)
class ChainOp:
    """An op: the family it is drawn by, the operands it takes, and the function that writes it."""

    name: str
    family: str
    build: Build
    kinds: str = "bifc"
    least_rank: int = 0
    empty: bool = False
    exact_operand: bool = False
    masked: bool = False

    def fits(self, x: ChainValue) -> bool:
        return (
            x.kind in self.kinds
            and x.rank >= self.least_rank
            and (self.empty or x.size > 0)
            and (x.exact or not self.exact_operand)
            and (self.masked or not x.masked)
        )

    def apply(self, body: ChainBody, x: ChainValue | None = None) -> ChainValue | None:
        """Add the op on `x`, or on a value of the body; return None where none fits."""
        x = x or body.pick(self.fits)
        if x is None or not self.fits(x):
            return None
        body.op = self.name
        before = len(body.arguments), len(body.values)
        result = self.build(body, x)
        if result is None or result.size > body.limit or result.rank > 5:
            if result is not None:
                body.statements.pop()
            del body.arguments[before[0] :], body.values[before[1] :]
            return None
        return result


OPS: dict[str, ChainOp] = {}


def op(family: str, kinds: str = "bifc", least_rank: int = 0, **flags: bool):
    """Return a decorator that adds a function to the table under the function's name."""

    def register(build: Build) -> Build:
        name = build.__name__.removesuffix("_")
        # the collection of doctests executes a module a second time
        assert name not in OPS or _defined_at(OPS[name].build) == _defined_at(build), name
        OPS[name] = ChainOp(name, family, build, kinds, least_rank, **flags)
        return build

    return register


def _defined_at(build: Build) -> tuple[str, int]:
    return build.__code__.co_filename, build.__code__.co_firstlineno


def _add_templates(family: str, kinds: str, exact: bool, table: dict[str, str], **flags: bool):
    """Add ops that keep the type of their operand, written as templates of `{0}` and `{t}`."""

    def builder(template: str) -> Build:
        return lambda b, x: b.like(template.format(x.name, t=f"xp.{x.dtype}"), x, exact)

    for name, template in table.items():
        assert name not in OPS, name
        OPS[name] = ChainOp(name, family, builder(template), kinds, empty=True, **flags)


# ---- elementwise

_add_templates(
    "elementwise",
    "f",
    False,
    {
        "sin": "xp.sin({0})",
        "cos": "xp.cos({0})",
        "tanh": "xp.tanh({0})",
        "exp": "xp.exp(-xp.abs({0}))",
        "expm1": "xp.expm1(-xp.abs({0}))",
        "log": "xp.log(2 + xp.abs({0}))",
        "log1p": "xp.log1p(xp.abs({0}))",
        "sqrt": "xp.sqrt(1 + xp.abs({0}))",
        "rsqrt": "lax.rsqrt(1 + {0} * {0})",
        "cbrt": "xp.cbrt(2 + xp.abs({0}))",
        "square": "xp.square(xp.tanh({0}))",
        "cube": "xp.clip({0}, -3, 3) ** 3",
        "reciprocal": "1 / (1 + xp.abs({0}))",
        "sigmoid": "nn.sigmoid({0})",
        "gelu": "nn.gelu({0})",
        "silu": "nn.silu({0})",
        "softplus": "nn.softplus({0})",
        "elu": "nn.elu({0})",
        "erf": "lax.erf({0})",
        "arctan": "xp.arctan({0})",
        "arcsinh": "xp.arcsinh({0})",
        "exp2": "xp.exp2(-xp.abs({0}))",
        "halve": "{0} * 0.5",
        "reverse_subtract": "1.5 - {0}",
        "divide_by_three": "{0} / 3",
        "sinc": "xp.sinc({0})",
        "lgamma": "lax.lgamma(2 + xp.abs({0}))",
    },
)
_add_templates(
    "elementwise",
    "f",
    True,
    {
        "negate": "-{0}",
        "absolute": "xp.abs({0})",
        "clip": "xp.clip({0}, -1, 1)",
        "relu": "nn.relu({0})",
        "leaky_relu": "xp.where({0} > 0, {0}, 0.5 * {0})",
        "nan_to_num": "xp.nan_to_num({0}, posinf=1, neginf=-1)",
        "barrier": "lax.optimization_barrier({0})",
    },
)
_add_templates(
    "elementwise",
    "f",
    True,
    {
        "unmask_clip": "xp.clip({0}, -4, None)",
        "unmask_where": "xp.where(xp.isfinite({0}), {0}, 0)",
    },
    masked=True,
)
_add_templates("elementwise", "f", False, {"exp_masked": "xp.exp(xp.minimum({0}, 0))"}, masked=True)
_add_templates(
    "rounding",
    "f",
    True,
    {
        "floor": "xp.floor({0})",
        "ceil": "xp.ceil({0})",
        "round": "xp.round({0})",
        "trunc": "xp.trunc({0})",
        "sign": "xp.sign({0})",
        "floor_divide": "{0} // 2",
    },
    exact_operand=True,
)
_add_templates(
    "elementwise",
    "i",
    True,
    {
        "negate_int": "-{0}",
        "absolute_int": "xp.abs({0})",
        "invert_int": "~{0}",
        "triple_int": "{0} * {t}(3)",
        "modulo_int": "{0} % {t}(3)",
        "shift_int": "{0} >> {t}(1)",
        "clip_int": "xp.clip({0}, 1, 5)",
        "popcount": "lax.population_count({0})",
        "clz": "lax.clz({0})",
        "sign_int": "xp.sign({0})",
    },
)
_add_templates("elementwise", "b", True, {"logical_not": "~{0}"})
_add_templates(
    "elementwise",
    "c",
    False,
    {
        "negate_complex": "-{0}",
        "conjugate": "xp.conj({0})",
        "rotate": "{0} * {t}(0.6 + 0.8j)",
        "complex_exp": "xp.exp({t}(1j) * xp.real({0}))",
        "complex_divide": "{0} / (2 + xp.abs({0})).astype({t})",
    },
)

BINARY = {
    "add": ("{0} + {1}", "ifc", False),
    "subtract": ("{0} - {1}", "ifc", False),
    "multiply": ("{0} * {1}", "ifc", False),
    "divide": ("{0} / (2 + xp.abs({1}))", "f", False),
    "arctan2": ("xp.arctan2({0}, 1.5 + xp.abs({1}))", "f", False),
    "logaddexp": ("xp.logaddexp({0}, {1})", "f", False),
    "hypot": ("xp.hypot({0}, 1 + xp.abs({1}))", "f", False),
    "power": ("xp.power(1 + xp.abs(xp.tanh({0})), xp.clip({1}, -2, 2))", "f", False),
    "maximum": ("xp.maximum({0}, {1})", "if", True),
    "minimum": ("xp.minimum({0}, {1})", "if", True),
    "copysign": ("xp.copysign({0}, 1 + xp.abs({1}))", "f", True),
    "bitwise_xor": ("{0} ^ {1}", "bi", True),
    "bitwise_and": ("{0} & {1}", "bi", True),
    "bitwise_or": ("{0} | {1}", "bi", True),
    "multiply_add": ("{0} * {1} + {0}", "if", False),
}


def _broadcast_operand(b: ChainBody, x: ChainValue) -> ChainValue:
    """Return a second operand: of the same shape, or one that broadcasts to it."""
    if b.r.random() < 0.5 or not x.rank:
        return b.partner(x)
    shape = tuple(1 if b.r.random() < 0.5 else n for n in x.shape)
    return b.partner(x, shape[b.r.randrange(x.rank) :] if b.r.random() < 0.5 else shape)


def _binary_builder(template: str, exact: bool) -> Build:
    def build(b: ChainBody, x: ChainValue) -> ChainValue:
        y = _broadcast_operand(b, x)
        first, second = (x, y) if b.r.random() < 0.7 else (y, x)
        text = template.format(first.name, second.name)
        whole = x.kind in "bi"
        text = f"({text}).astype(xp.{x.dtype})" if whole else text
        return b.add(text, x.shape, x.dtype, exact or whole, x, y)

    return build


for _name, (_template, _kinds, _exact) in BINARY.items():
    OPS[_name] = ChainOp(_name, "binary", _binary_builder(_template, _exact), _kinds, empty=True)


@op("compare", "if", empty=True, exact_operand=True)
def compare(b: ChainBody, x: ChainValue) -> ChainValue | None:
    y = _broadcast_operand(b, x)
    if not y.exact:
        return None
    sign = b.one("<", "<=", "==", "!=", ">", ">=")
    return b.add(f"{x.name} {sign} {y.name}", x.shape, "bool", True, x, y)


@op("compare", "f", empty=True, masked=True, exact_operand=True)
def is_finite(b: ChainBody, x: ChainValue) -> ChainValue:
    return b.like(f"xp.isfinite({x.name})", x, True, dtype="bool")


@op("select", empty=True)
def where(b: ChainBody, x: ChainValue) -> ChainValue:
    y = b.partner(x)
    condition = b.pick(lambda c: c.kind == "b" and c.exact and c.shape == x.shape)
    if condition is None or condition in (x, y):
        condition = b.argument(x.shape, "bool")
    text = f"xp.where({condition.name}, {x.name}, {y.name})"
    return b.add(text, x.shape, x.dtype, True, condition, x, y)


@op("select", "f", 1, empty=True)
def causal_mask(b: ChainBody, x: ChainValue) -> ChainValue:
    d = b.axis(x)
    text = f"xp.where(lax.broadcasted_iota(xp.int32, {x.shape}, {d}) % 3 == 1, {x.name}, -2)"
    return b.like(text, x, True)


@op("select", "if")
def clamp(b: ChainBody, x: ChainValue) -> ChainValue:
    y = b.partner(x)
    return b.add(f"lax.clamp({y.name}, {x.name}, {y.name} + 1)", x.shape, x.dtype, False, x, y)


@op("cast", empty=True)
def cast(b: ChainBody, x: ChainValue) -> ChainValue | None:
    if x.kind == "c":
        part = b.one("xp.real({})", "xp.imag({})", "xp.abs({})").format(x.name)
        return b.like(part, x, False, dtype="float64" if x.dtype == "complex128" else "float32")
    if x.kind == "f":
        narrow = ("float32", "bfloat16", "float16", "complex64")
        targets = (*narrow, "float64") if x.dtype == "float64" else narrow
    else:
        targets = ("float32", "bfloat16", "int32", "uint8", "int8", "bool")
    target = b.r.choice([t for t in targets if t != x.dtype])
    widening = (x.dtype in ("bfloat16", "float16") and target == "float32") or x.kind == "b"
    exact = widening or target in (*INTS, "bool")
    return b.like(f"{x.name}.astype(xp.{target})", x, exact, dtype=target)


@op("cast", "f", empty=True, exact_operand=True)
def cast_to_int(b: ChainBody, x: ChainValue) -> ChainValue:
    return b.like(f"xp.clip({x.name}, -100, 100).astype(xp.int32)", x, True, dtype="int32")


# ---- layout


@op("transpose", least_rank=2, empty=True)
def transpose(b: ChainBody, x: ChainValue) -> ChainValue:
    perm = list(range(x.rank))
    b.r.shuffle(perm)
    shape = [x.shape[k] for k in perm]
    return b.like(f"xp.transpose({x.name}, {tuple(perm)})", x, True, shape)


@op("transpose", least_rank=2, empty=True)
def swapaxes(b: ChainBody, x: ChainValue) -> ChainValue:
    i, j = b.axis(x), b.axis(x)
    shape = list(x.shape)
    shape[i], shape[j] = shape[j], shape[i]
    return b.like(f"xp.swapaxes({x.name}, {i}, {j})", x, True, shape)


@op("transpose", least_rank=2, empty=True)
def moveaxis(b: ChainBody, x: ChainValue) -> ChainValue:
    i, j = b.axis(x), b.axis(x)
    shape = list(x.shape)
    shape.insert(j, shape.pop(i))
    return b.like(f"xp.moveaxis({x.name}, {i}, {j})", x, True, shape)


def random_factors(b: ChainBody, n: int, most: int) -> list[int]:
    """Return at most `most` factors of n > 0 in random order."""
    dims = [n]
    for _ in range(b.r.randrange(most)):
        k = b.r.randrange(len(dims))
        divisors = [d for d in (1, 2, 3, 4, 5, 7, 8, 16, 32, 64) if dims[k] % d == 0]
        d = b.r.choice(divisors)
        dims[k : k + 1] = b.r.sample([d, dims[k] // d], 2)
    return dims[:]


@op("reshape")
def reshape(b: ChainBody, x: ChainValue) -> ChainValue:
    shape = tuple(random_factors(b, x.size, 4))
    return b.like(f"xp.reshape({x.name}, {shape})", x, True, shape)


@op("reshape", least_rank=2, empty=True)
def merge_dims(b: ChainBody, x: ChainValue) -> ChainValue:
    d = b.r.randrange(x.rank - 1)
    shape = (*x.shape[:d], x.shape[d] * x.shape[d + 1], *x.shape[d + 2 :])
    return b.like(f"xp.reshape({x.name}, {shape})", x, True, shape)


@op("reshape", least_rank=1)
def split_dim(b: ChainBody, x: ChainValue) -> ChainValue:
    d = b.axis(x)
    shape = replace_dim(x.shape, d, *random_factors(b, x.shape[d], 2))
    return b.like(f"xp.reshape({x.name}, {shape})", x, True, shape)


@op("reshape", empty=True)
def expand_dims(b: ChainBody, x: ChainValue) -> ChainValue:
    d = b.r.randint(0, x.rank)
    return b.like(f"xp.expand_dims({x.name}, {d})", x, True, (*x.shape[:d], 1, *x.shape[d:]))


@op("broadcast", empty=True)
def broadcast_to(b: ChainBody, x: ChainValue) -> ChainValue:
    lead = b.r.choice((1, 2, 3))
    shape = (lead, *(b.r.choice((2, 3)) if n == 1 else n for n in x.shape))
    return b.like(f"xp.broadcast_to({x.name}, {shape})", x, True, shape)


@op("broadcast", empty=True)
def broadcast_in_dim(b: ChainBody, x: ChainValue) -> ChainValue:
    d, n = b.r.randint(0, x.rank), b.r.choice((1, 2, 5))
    shape = (*x.shape[:d], n, *x.shape[d:])
    dims = tuple(k for k in range(x.rank + 1) if k != d)
    return b.like(f"lax.broadcast_in_dim({x.name}, {shape}, {dims})", x, True, shape)


@op("broadcast", least_rank=1)
def tile(b: ChainBody, x: ChainValue) -> ChainValue:
    reps = tuple(b.r.choice((1, 1, 2, 3)) for _ in x.shape)
    return b.like(f"xp.tile({x.name}, {reps})", x, True, [n * k for n, k in zip(x.shape, reps)])


@op("broadcast", least_rank=1)
def repeat(b: ChainBody, x: ChainValue) -> ChainValue:
    d = b.axis(x)
    shape = replace_dim(x.shape, d, 2 * x.shape[d])
    return b.like(f"xp.repeat({x.name}, 2, {d})", x, True, shape)


@op("reverse", least_rank=1, empty=True)
def flip(b: ChainBody, x: ChainValue) -> ChainValue:
    return b.like(f"xp.flip({x.name}, {b.axes(x)})", x, True)


@op("reverse", least_rank=1, empty=True)
def roll(b: ChainBody, x: ChainValue) -> ChainValue:
    return b.like(f"xp.roll({x.name}, {b.r.choice((1, -2, 3))}, {b.axis(x)})", x, True)


@op("reverse", least_rank=2)
def rot90(b: ChainBody, x: ChainValue) -> ChainValue:
    shape = (x.shape[1], x.shape[0], *x.shape[2:])
    return b.like(f"xp.rot90({x.name})", x, True, shape)


# ---- joins


@op("concatenate", least_rank=1)
def concatenate(b: ChainBody, x: ChainValue) -> ChainValue:
    d = b.axis(x)
    other = replace_dim(x.shape, d, b.r.choice((x.shape[d], 1, 2, 3)))
    y = b.partner(x, other)
    parts = [x, y] if b.r.random() < 0.7 else [y, x, x]
    shape = replace_dim(x.shape, d, sum(p.shape[d] for p in parts))
    names = ", ".join(p.name for p in parts)
    return b.add(f"xp.concatenate([{names}], {d})", shape, x.dtype, True, x, y)


@op("stack")
def stack(b: ChainBody, x: ChainValue) -> ChainValue:
    d, y = b.r.randint(0, x.rank), b.partner(x)
    shape = (*x.shape[:d], 2, *x.shape[d:])
    return b.add(f"xp.stack([{x.name}, {y.name}], {d})", shape, x.dtype, True, x, y)


@op("concatenate", "if")
def concatenate_with_own(b: ChainBody, x: ChainValue) -> ChainValue | None:
    """Concatenate a value with a value computed from it."""
    if not x.rank:
        return None
    d = b.axis(x)
    shape = replace_dim(x.shape, d, 2 * x.shape[d])
    return b.like(f"xp.concatenate([-{x.name}, {x.name}], {d})", x, x.kind == "i", shape)


@op("pad", least_rank=1, empty=True)
def pad(b: ChainBody, x: ChainValue) -> ChainValue:
    widths = [(b.r.choice((0, 0, 1, 3)), b.r.choice((0, 0, 1, 2))) for _ in x.shape]
    shape = [n + low + high for n, (low, high) in zip(x.shape, widths)]
    return b.like(f"xp.pad({x.name}, {widths})", x, True, shape)


@op("pad", least_rank=1)
def pad_mode(b: ChainBody, x: ChainValue) -> ChainValue:
    widths = [(b.r.choice((0, 1)), b.r.choice((0, 1, 2))) for _ in x.shape]
    shape = [n + low + high for n, (low, high) in zip(x.shape, widths)]
    mode = b.one("edge", "wrap", "symmetric")
    return b.like(f"xp.pad({x.name}, {widths}, mode={mode!r})", x, True, shape)


@op("pad", least_rank=1)
def pad_interior(b: ChainBody, x: ChainValue) -> ChainValue | None:
    spec, shape = [], []
    for n in x.shape:
        low, high = b.r.choice((-1, 0, 0, 1, 2)), b.r.choice((-1, 0, 0, 1))
        inner = b.r.choice((0, 0, 1))
        spec.append((low, high, inner))
        shape.append(n + low + high + inner * max(n - 1, 0))
    if min(shape) < 1:
        return None
    text = f"lax.pad({x.name}, xp.asarray(0, {x.name}.dtype), {spec})"
    return b.like(text, x, True, shape)


@op("update", least_rank=1)
def set_slice(b: ChainBody, x: ChainValue) -> ChainValue:
    """Write a value into a larger array."""
    starts = [b.r.choice((0, 1, 2)) for _ in x.shape]
    shape = tuple(n + s + b.r.choice((0, 1)) for n, s in zip(x.shape, starts))
    index = ", ".join(f"{s}:{s + n}" for s, n in zip(starts, x.shape))
    text = f"xp.zeros({shape}, {x.name}.dtype).at[{index}].set({x.name})"
    return b.like(text, x, True, shape)


@op("update", least_rank=1)
def dynamic_update_slice(b: ChainBody, x: ChainValue) -> ChainValue:
    part = tuple(b.r.randint(1, n) for n in x.shape)
    y = b.partner(x, part)
    starts = tuple(b.r.randint(0, n - m) for n, m in zip(x.shape, part))
    text = f"lax.dynamic_update_slice({x.name}, {y.name}, {starts})"
    return b.add(text, x.shape, x.dtype, True, x, y)


@op("update", "ifc", least_rank=1)
def update_row(b: ChainBody, x: ChainValue) -> ChainValue:
    d = b.axis(x)
    i = b.r.randrange(x.shape[d])
    index = ", ".join([":"] * d + [str(i)])
    how = b.one("set", "add", "multiply")
    y = b.partner(x, replace_dim(x.shape, d))
    text = f"{x.name}.at[{index}].{how}({y.name})"
    return b.add(text, x.shape, x.dtype, how == "set" or x.kind == "i", x, y)


# ---- slices and gathers


@op("slice", least_rank=1)
def slice_(b: ChainBody, x: ChainValue) -> ChainValue:
    index, shape = [], []
    for n in x.shape:
        start, step = b.r.choice((0, 0, 1, n // 2)), b.r.choice((1, 1, 1, 2, 3))
        start = min(start, n - 1)
        stop = n if b.r.random() < 0.6 else b.r.randint(start + 1, n)
        index.append(f"{start}:{stop}:{step}")
        shape.append(-(-(stop - start) // step))
    return b.like(f"{x.name}[{', '.join(index)}]", x, True, shape)


@op("slice", least_rank=1)
def index(b: ChainBody, x: ChainValue) -> ChainValue:
    d = b.axis(x)
    words = ", ".join([":"] * d + [str(b.r.randrange(-x.shape[d], x.shape[d]))])
    return b.like(f"{x.name}[{words}]", x, True, replace_dim(x.shape, d))


@op("slice", least_rank=1)
def dynamic_slice(b: ChainBody, x: ChainValue) -> ChainValue:
    part = tuple(b.r.randint(max(1, n // 2), n) for n in x.shape)
    starts = ", ".join(f"xp.asarray({b.r.randint(0, n)})" for n in x.shape)
    return b.like(f"lax.dynamic_slice({x.name}, ({starts},), {part})", x, True, part)


@op("slice", least_rank=1)
def split_part(b: ChainBody, x: ChainValue) -> ChainValue | None:
    d = b.axis(x)
    n = x.shape[d]
    if n < 2:
        return None
    k = b.r.randint(1, n - 1)
    return b.like(f"xp.split({x.name}, [{k}], {d})[1]", x, True, replace_dim(x.shape, d, n - k))


@op("slice", "ifc", least_rank=1)
def difference(b: ChainBody, x: ChainValue) -> ChainValue | None:
    d = b.axis(x)
    if x.shape[d] < 2:
        return None
    shape = replace_dim(x.shape, d, x.shape[d] - 1)
    return b.like(f"xp.diff({x.name}, axis={d})", x, x.kind == "i", shape)


def _indices(b: ChainBody, shape: Shape) -> ChainValue:
    found = b.pick(lambda v: v.shape == shape and v.dtype == "int32" and v.exact)
    return found or b.argument(shape, "int32")


@op("gather", least_rank=1)
def take(b: ChainBody, x: ChainValue) -> ChainValue:
    d, i = b.axis(x), _indices(b, (b.r.choice((1, 3, 7)),))
    text = f"xp.take({x.name}, {i.name} % {x.shape[d]}, {d})"
    return b.add(text, replace_dim(x.shape, d, *i.shape), x.dtype, True, x, i)


@op("gather", least_rank=1)
def take_clip(b: ChainBody, x: ChainValue) -> ChainValue:
    d, i = b.axis(x), _indices(b, (2, b.r.choice((1, 3))))
    text = f"xp.take({x.name}, {i.name}, {d}, mode='clip')"
    return b.add(text, replace_dim(x.shape, d, *i.shape), x.dtype, True, x, i)


@op("gather", least_rank=1)
def take_along_axis(b: ChainBody, x: ChainValue) -> ChainValue:
    d, i = b.axis(x), _indices(b, x.shape)
    text = f"xp.take_along_axis({x.name}, {i.name} % {x.shape[d]}, {d})"
    return b.add(text, x.shape, x.dtype, True, x, i)


@op("gather", least_rank=2)
def advanced_index(b: ChainBody, x: ChainValue) -> ChainValue:
    i, j = _indices(b, (4,)), _indices(b, (4,))
    if x.rank > 2 and b.r.random() < 0.5:
        text = f"{x.name}[{i.name} % {x.shape[0]}, :, {j.name} % {x.shape[2]}]"
        return b.add(text, (4, x.shape[1], *x.shape[3:]), x.dtype, True, x, i, j)
    text = f"{x.name}[{i.name} % {x.shape[0]}, {j.name} % {x.shape[1]}]"
    return b.add(text, (4, *x.shape[2:]), x.dtype, True, x, i, j)


@op("gather", "i", exact_operand=True)
def embed(b: ChainBody, x: ChainValue) -> ChainValue:
    """Look up the rows of a table."""
    table = b.argument((11, b.r.choice((1, 8, 17))), "float32")
    text = f"{table.name}[{x.name} % xp.asarray(11, {x.name}.dtype)]"
    return b.add(text, (*x.shape, table.shape[1]), "float32", True, table, x)


@op("gather", "i", exact_operand=True)
def one_hot(b: ChainBody, x: ChainValue) -> ChainValue:
    return b.like(f"nn.one_hot({x.name}, 5, dtype=xp.float32)", x, True, (*x.shape, 5), "float32")


# ---- scatters


@op("scatter", "ifc", least_rank=1)
def scatter_add(b: ChainBody, x: ChainValue) -> ChainValue:
    n = x.shape[0]
    i = _indices(b, (b.r.choice((1, 4, n)),))
    y = b.partner(x, (*i.shape, *x.shape[1:]))
    text = f"{x.name}.at[{i.name} % {n}].add({y.name})"
    return b.add(text, x.shape, x.dtype, x.kind == "i", x, i, y)


@op("scatter", "if", least_rank=1)
def scatter_max(b: ChainBody, x: ChainValue) -> ChainValue:
    n, how = x.shape[0], b.one("max", "min")
    i = _indices(b, (b.r.choice((1, 4, n)),))
    y = b.partner(x, (*i.shape, *x.shape[1:]))
    return b.add(f"{x.name}.at[{i.name} % {n}].{how}({y.name})", x.shape, x.dtype, True, x, i, y)


@op("scatter", least_rank=1)
def scatter_into(b: ChainBody, x: ChainValue) -> ChainValue:
    """Scatter the rows of a value to distinct rows of a larger array."""
    n = x.shape[0]
    shape = (2 * n + 1, *x.shape[1:])
    text = f"xp.zeros({shape}, {x.name}.dtype).at[xp.arange({n}) * 2 + 1].set({x.name})"
    return b.like(text, x, True, shape)


@op("scatter", "if", least_rank=1)
def segment_sum(b: ChainBody, x: ChainValue) -> ChainValue:
    i = _indices(b, (x.shape[0],))
    text = f"api.ops.segment_sum({x.name}, {i.name} % 3, 4)"
    return b.add(text, (4, *x.shape[1:]), x.dtype, x.kind == "i", x, i)


@op("scatter", "if", least_rank=2)
def scatter_last(b: ChainBody, x: ChainValue) -> ChainValue:
    i = _indices(b, (3,))
    y = b.partner(x, (*x.shape[:-1], 3))
    text = f"{x.name}.at[..., {i.name} % {x.shape[-1]}].add({y.name})"
    return b.add(text, x.shape, x.dtype, x.kind == "i", x, i, y)
