"""Keys, bits, and samples that are computed from bits in one step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft import numpy as wnp
from weft._engine.api.jit import eager_jit
from weft._engine.control.staged_body import call_operation
from weft._engine.core.trace import current_trace, eval_trace, typeof
from weft._engine.ir.symbolic import SymbolicDim, as_int, as_size
from weft._engine.numpy.promote import (
    broadcast_shapes,
    broadcast_to_shape,
    cast,
    check_arraylike,
    concrete,
    value,
)
from weft._engine.ops import elementwise as ew, keys as keys_op, layout, slicing
from weft._engine.ops.placement import takes_out_sharding
from weft._engine.random.generators import (
    GeneratorImplementation,
    PRNGImpl,
    drawing_from_each,
    implementation,
    implementation_of,
    implementations,
    names,
    publish,
)
from weft._engine.util import dtypes
from weft._engine.util.config import config
from weft._engine.util.source import warn_user

_U32 = np.dtype(np.uint32)

key_impl_names = names


def _one_program(*arrays: str) -> Callable[[Callable], Callable]:
    """Return a decorator that compiles a function of a key to one program.

    It does so when the function is called on values.

    `arrays` names its other arguments that may be arrays.
    """
    return lambda fun: eager_jit(fun, ("key", *arrays))


def _sampler(*arrays: str) -> Callable[[Callable], Callable]:
    """Return a decorator for public samplers.

    A sampler is one program when called on values, and has a keyword `out_sharding`.
    """
    return lambda fun: takes_out_sharding(eager_jit(fun, ("key", *arrays)))


# ---- keys


def _seed(seed, api: str):
    """Return the two words of a seed: high, low."""
    if config.random_seed_offset:
        seed = seed + config.random_seed_offset
    if isinstance(seed, (int, np.integer)) and not isinstance(seed, bool):
        number = int(seed)
        if isinstance(seed, int) and not -(1 << 63) <= number < 1 << 63:
            raise OverflowError(f"random: seed {seed} does not fit in an int64.")
        low = number & 0xFFFFFFFF
        high = (number >> 32) & 0xFFFFFFFF if config.enable_x64 else 0
        return wnp.asarray(np.array([high, low], np.uint32))
    if not isinstance(seed, (int, float, complex, np.generic)) and not hasattr(seed, "dtype"):
        raise TypeError(f"random.{api}: PRNG key seed must be an integer; got {seed!r:.80}")
    seed = concrete(seed)
    if not dtypes.issubdtype(seed.dtype, np.integer):
        scalar = (
            f"{api} accepts a scalar seed, not a key: " if dtypes.is_extended(seed.dtype) else ""
        )
        raise TypeError(f"{scalar}PRNG key seed must be an integer; got {seed!r}")
    if seed.ndim:
        raise TypeError(
            f"{api} accepts a scalar seed, but was given an array of shape {tuple(seed.shape)} != (). Use weft.vmap for "
            "batching."
        )
    low = ew.convert_element_type(seed, _U32)
    if seed.dtype.itemsize == 8:
        high = ew.convert_element_type(
            ew.shift_right_logical(seed, np.asarray(32, seed.dtype)[()]), _U32
        )
    else:
        # zero, without a constant that would have to be moved to the seed's device
        high = ew.bitwise_xor(low, low)
    return slicing.concatenate([layout.reshape(high, (1,)), layout.reshape(low, (1,))], 0)


def _make_public_impl(used: GeneratorImplementation) -> PRNGImpl:
    generator = used.generator
    seed: Callable = lambda seed: used.seed(_seed(seed, "seed"))
    return publish(
        PRNGImpl(
            generator.key_shape,
            seed,
            used.split,
            used.bits,
            used.fold_in,
            generator.name,
            generator.tag,
        ),
        generator,
    )


#: the form of each generator for libraries, by name
prng_impls = {name: _make_public_impl(implementations[name]) for name in names}


def PRNGKey(seed, *, impl=None):
    """Return a raw key from an integer seed: uint32[2], or uint32[4] for `rbg` and `unsafe_rbg`.

    Raises TypeError for a seed that is not an integer, ValueError for an unknown generator.

    >>> weft.random.PRNGKey(42)
    Array([ 0, 42], dtype=uint32)
    """
    used = implementation(impl)
    raw = used.seed(_seed(seed, "PRNGKey"))
    return keys_op.random_wrap(raw, used.generator) if config.enable_custom_prng else raw


def key(seed, *, impl=None, dtype=None):
    """Return a typed scalar key from an integer seed.

    Its dtype is `key<fry>` unless `impl`, `dtype` or a setting names another generator. `dtype` is
    a key dtype (`key_dtype`) or the name of a generator.
    Raises TypeError for a seed that is not an integer, ValueError for an unknown generator.

    >>> weft.random.key(0).dtype.name, weft.random.key(0, impl="rbg").dtype.name
    ('key<fry>', 'key<rbg>')
    """
    used = implementation_of(impl, dtype)
    return keys_op.random_wrap(used.seed(_seed(seed, "key")), used.generator)


def wrap_key_data(key_bits_array, *, impl=None, dtype=None):
    """Return typed keys from their raw data, uint32[..., n].

    `impl` or `dtype` names the generator.

    The size of the last dim is 2 for the default generator.
    """
    raw, generator = concrete(wnp.asarray(key_bits_array)), implementation_of(impl, dtype).generator
    if not _is_data(raw, generator):
        words = ", ".join(map(str, generator.key_shape))
        raise TypeError(
            f"wrap_key_data: key data of {generator.name} must be uint32[..., {words}], got {typeof(raw).str_short()}."
        )
    return keys_op.random_wrap(raw, generator)


def key_data(keys):
    """Return the raw data of keys, uint32[..., 2].

    Raises TypeError unless `keys` are typed keys or their raw data.

    >>> weft.random.key_data(weft.random.key(42))
    Array([ 0, 42], dtype=uint32)
    """
    return _raw(keys, "key_data")[0]


def key_dtype(impl_spec=None):
    """Return the dtype of the typed keys of a generator.

    >>> weft.random.key_dtype().name
    'key<fry>'
    """
    return dtypes.KeyDType(implementation(impl_spec).generator)


def key_impl(keys) -> str | PRNGImpl:
    """Return the name of the generator of keys.

    For a generator that a library defined, return its PRNGImpl, since such names need not be
    unique.
    """
    generator = _raw(keys, "key_impl")[1].generator
    return keys_op.public_forms[generator] if generator.serial > 0 else generator.name


def _is_typed(keys) -> bool:
    return dtypes.is_extended(typeof(keys).dtype)


def _is_data(raw, generator: keys_op.Generator) -> bool:
    start = raw.ndim - len(generator.key_shape)
    return raw.dtype == _U32 and start >= 0 and raw.shape[start:] == generator.key_shape


_SEED_TO_KEY = "Random functions take a key. Make one with weft.random.key(number)."


def _raw(keys, api: str) -> tuple[Any, GeneratorImplementation]:
    """Return the raw data of keys, and their generator."""
    if isinstance(keys, (int, float)):
        raise TypeError(f"random.{api}: the key is the number {keys}. {_SEED_TO_KEY}")
    if not hasattr(keys, "dtype"):
        raise TypeError(
            f"random.{api}: expected a key (from weft.random.key or PRNGKey), got {type(keys)}."
        )
    if _is_typed(keys):
        uses = api in ("bits", "split")
        return keys_op.random_unwrap(keys, uses), implementation(keys_op.generator_of(keys))
    keys, used = concrete(keys), implementation()
    if not _is_data(keys, used.generator):
        if keys.ndim == 0:
            number = typeof(keys).str_short()
            raise TypeError(f"random.{api}: the key is a number of type {number}. {_SEED_TO_KEY}")
        raise TypeError(
            f"random.{api}: expected a key of type uint32[{used.generator.key_shape[0]}] or key<{used.generator.tag}>[], got "
            f"{typeof(keys).str_short()}."
        )
    return keys, used


def _with_separate_draws(keys):
    """Return the same keys; under `vmap` each of them draws independently."""
    raw, used = _raw(keys, "clone")
    alone = drawing_from_each(used)
    return keys if alone is used else keys_op.random_wrap(raw, alone.generator)


def _check_single_key(key, api: str):
    """Return a single key: typed, or, outside of traces, the raw data of the default generator."""
    typed = hasattr(key, "dtype") and _is_typed(key)
    data, used = (key, None) if typed else _raw(key, api)
    shape = tuple(data.shape if typed else data.shape[:-1])
    if shape:
        raise ValueError(
            f"{api} accepts a single key, but was given a key array of shape {shape} != (). Use weft.vmap for batching."
        )
    if used is None:
        return data
    _check_raw_allowed(api)
    return data if current_trace() is eval_trace else keys_op.random_wrap(data, used.generator)


def _check_raw_allowed(api: str) -> None:
    """Enforce the setting `legacy_prng_key` for raw keys."""
    if config.legacy_prng_key == "allow":
        return
    message = (
        f"random.{api}: Legacy uint32 key array passed as key, and legacy_prng_key={config.legacy_prng_key!r}. Make typed keys "
        "with random.key(seed), or wrap the data with random.wrap_key_data."
    )
    if config.legacy_prng_key == "error":
        raise ValueError(message)
    warn_user(message, UserWarning)


def _shape(shape) -> tuple[int, ...]:
    if isinstance(shape, (int, np.integer, SymbolicDim)):
        return (as_int(shape),)
    if not isinstance(shape, Iterable):
        raise TypeError(
            f"Shapes must be 1D sequences of concrete values of integer type, got {shape!r}."
        )
    return tuple([as_size(n) for n in shape])


def _parameters(dtype, shape, *values):
    """Return parameters cast to `dtype` and broadcast to the shape of the samples."""
    values = [cast(concrete(wnp.asarray(v)), dtype) for v in values]
    shape = broadcast_shapes(*(v.shape for v in values)) if shape is None else _shape(shape)
    return shape, [broadcast_to_shape(v, shape) for v in values]


@_one_program()
def split(key, num: int | Sequence[int] = 2):  # noqa: A002
    """Return `num` new independent keys (a number or a shape) of the kind of `key`.

    Raises TypeError for objects that are not keys, ValueError for several keys.

    >>> weft.random.split(weft.random.key(0), 3).shape
    (3,)
    """
    return _in_form_of(
        call_operation(_split, "random_split", _check_single_key(key, "split"), shape=_shape(num)),
        key,
    )


def _split(key, shape: tuple[int, ...]):
    raw, used = _raw(key, "split")
    return _like(used.split(raw, shape), key)


def fold_in(key, data):  # noqa: A002
    """Return a new key computed from a key and an integer."""
    if hasattr(data, "ndim") and data.ndim:
        raise TypeError(
            f"fold_in accepts a scalar, but was given an array of shape {tuple(data.shape)} != (). Use weft.vmap for "
            "batching."
        )
    return _fold_key(key, np.uint32(int(data)) if isinstance(data, (int, np.integer)) else data)


@_one_program("data")
def _fold_key(key, data):
    data = data if type(data) is np.uint32 else ew.convert_element_type(concrete(data), _U32)
    return _in_form_of(
        call_operation(_fold, "random_fold_in", _check_single_key(key, "fold_in"), data), key
    )


def _fold(key, data):
    raw, used = _raw(key, "fold_in")
    return _like(used.fold_in(raw, data), key)


def _like(raw, key):
    return keys_op.random_wrap(raw, keys_op.generator_of(key)) if _is_typed(key) else raw


def _in_form_of(new_key, key):
    """Return new keys in the form of `key`: raw data if `key` is raw."""
    return keys_op.random_unwrap(new_key) if _is_typed(new_key) and not _is_typed(key) else new_key


def clone(key):  # noqa: A002
    """Return the same key; if `debug_key_reuse` tracks keys, as one that may be used again."""
    if not config.debug_key_reuse or not _is_typed(key):
        return key
    return keys_op.random_wrap(ew.copy(keys_op.random_unwrap(key)), keys_op.generator_of(key))


# ---- bits


def _bits(key, width: int, shape: tuple[int, ...]):
    """Return random unsigned integers of `width` bits."""
    return call_operation(_draw, "random_bits", key, bit_width=width, shape=shape)


def _draw(key, bit_width: int, shape: tuple[int, ...]):
    raw, used = _raw(key, "bits")
    return used.bits(raw, bit_width, shape)


@_sampler()
def bits(key, shape=(), dtype=None):  # noqa: A002
    """Uniformly random bits as unsigned integers of `shape` (by default uint32, with `enable_x64` uint64).

    Raises ValueError for a dtype that is not unsigned, TypeError for objects that are not keys.

    >>> weft.random.bits(weft.random.key(0), (2,), "uint8").dtype.name
    'uint8'
    """
    dtype = _sample_dtype(
        dtype,
        "bits",
        lambda: np.dtype(np.uint64 if config.enable_x64 else np.uint32),
        np.unsignedinteger,
        "an unsigned int",
    )
    return _bits(_check_single_key(key, "bits"), 8 * dtype.itemsize, _shape(shape))


# ---- samples


def _sample_dtype(dtype, api: str, default: Callable, kind: type, spelt: str):
    """Return the dtype of the samples, by default `default()`.

    It must be of `kind`, which `spelt` names in messages.
    """
    dtype = default() if dtype is None else dtypes.check_dtype(dtype, api)
    if not dtypes.issubdtype(dtype, kind):
        raise ValueError(f"dtype argument to `{api}` must be {spelt} dtype, got {dtype.name}")
    return dtype


def _float(dtype, api: str):
    return _sample_dtype(dtype, api, dtypes.default_float_dtype, np.floating, "a float")


@_sampler("minval", "maxval")
def uniform(key, shape=(), dtype=None, minval=0.0, maxval=1.0):  # noqa: A002
    """Return uniform samples from [minval, maxval), of `shape` and a floating dtype.

    The dtype is float32 by default.

    The bounds are numbers or arrays that broadcast to `shape`. For `shape` (), bounds with one
    element in one or more dims give a result with the dims of `minval`. Raises ValueError for a
    dtype that is not floating, TypeError for objects that are not keys.

    >>> x = weft.random.uniform(weft.random.key(0), (1000,))
    >>> bool((0 <= x).all() and (x < 1).all())
    True
    """
    dtype, raw = _float(dtype, "uniform"), _check_single_key(key, "uniform")
    if not (_is_plain(minval) and _is_plain(maxval)):
        return _uniform(raw, _shape(shape), dtype, minval, maxval)
    return call_operation(
        _uniform, "", raw, shape=_shape(shape), dtype=dtype, minval=minval, maxval=maxval
    )


def _is_plain(bound) -> bool:
    """Return whether a bound is a Python number, except -0.0.

    -0.0 equals 0.0 but differs from it.
    """
    return isinstance(bound, (int, float)) and (bound != 0 or math.copysign(1.0, bound) > 0)


def _uniform(raw, shape, dtype, minval, maxval):
    info = dtypes.finfo(dtype)
    width, mantissa = 8 * dtype.itemsize, int(info.nmant)
    drawn = 8 if mantissa < 8 else width
    word = _bits(raw, drawn, shape)
    unsigned = np.dtype(f"uint{width}")
    if drawn != width:
        word = ew.convert_element_type(word, unsigned)
    one = np.ones((), dtype).view(unsigned)[()]
    word = ew.bitwise_or(
        ew.shift_right_logical(word, np.asarray(drawn - mantissa, unsigned)[()]), one
    )
    floats = ew.sub(ew.bitcast_convert_type(word, dtype), np.ones((), dtype)[()])
    low, high = (_broadcast_bound(v, dtype, shape) for v in (minval, maxval))
    out = ew.max(low, ew.add(ew.mul(floats, _minus(high, low)), low))
    return out if shape or not np.ndim(minval) else layout.reshape(out, np.shape(minval))


def _broadcast_bound(v, dtype, shape):
    """Return a bound as a scalar or an array of `shape`.

    A bound of one element is a scalar for a draw of shape ().
    """
    if isinstance(v, (int, float, np.number, np.bool_)):
        return np.asarray(v, dtype)[()]
    v = cast(concrete(v), dtype)
    if not shape and v.size == 1:
        return layout.reshape(v, ())
    return v if v.ndim == 0 else broadcast_to_shape(v, shape)


def _minus(x, y):
    if isinstance(x, np.generic) and isinstance(y, np.generic):
        return np.asarray(np.subtract(x, y), x.dtype)[()]
    return ew.sub(concrete(x) if isinstance(x, np.generic) else x, y)


@_sampler()
def normal(key, shape=(), dtype=None):  # noqa: A002
    """Return samples of the standard normal distribution, of `shape` and dtype float32 by default.

    Samples of a complex dtype are circularly symmetric.

    Raises ValueError for a dtype that is not floating or complex, TypeError for objects that are
    not keys.

    >>> weft.random.normal(weft.random.key(0), (2, 3)).shape
    (2, 3)
    """
    dtype = _sample_dtype(
        dtype, "normal", dtypes.default_float_dtype, np.inexact, "a float or complex"
    )
    raw, shape = _check_single_key(key, "normal"), _shape(shape)
    if dtypes.issubdtype(dtype, np.complexfloating):
        real = dtypes.to_real_dtype(dtype)
        first, second = _split_one(raw, 2)
        return ew.div(
            ew.complex(_normal(first, shape, real), _normal(second, shape, real)),
            np.asarray(math.sqrt(2), dtype)[()],
        )
    return call_operation(_normal, "", raw, shape=shape, dtype=dtype)


def _split_one(key, n: int) -> list:
    rows = split(key, n)
    return [layout.squeeze(slicing.slice_in_dim(rows, i, i + 1, axis=0), (0,)) for i in range(n)]


def _normal(raw, shape, dtype):
    low = np.nextafter(np.asarray(-1, dtype), np.asarray(0, dtype)).astype(dtype)[()]
    u = _uniform(raw, shape, dtype, low, 1.0)
    return ew.mul(ew.erf_inv(u), np.asarray(math.sqrt(2), dtype)[()])


@takes_out_sharding
def randint(key, shape, minval, maxval, dtype=None):  # noqa: A002
    """Return uniform integers from [minval, maxval), of an integer dtype (int32 by default).

    The bounds broadcast with `shape`.

    Raises TypeError for a dtype that is not an integer dtype.

    >>> x = weft.random.randint(weft.random.key(0), (100,), 0, 6)
    >>> int(x.min()), int(x.max())
    (0, 5)
    """
    dtype = dtypes.default_int_dtype() if dtype is None else dtypes.check_dtype(dtype, "randint")
    if not dtypes.issubdtype(dtype, np.integer):
        raise TypeError(f"randint only accepts integer dtypes, got {dtype.name}")
    check_arraylike("randint", minval, maxval)
    minval, maxval = (value(v) if isinstance(v, SymbolicDim) else v for v in (minval, maxval))
    low, high = [
        cast(concrete(_clipped_int(v, dtype)), _draw_dtype(dtype)) for v in (minval, maxval)
    ]
    shape = _shape(shape)
    if (low.ndim or high.ndim) and broadcast_shapes(shape, low.shape, high.shape) != shape:
        raise ValueError(
            f"randint: bounds of shapes {tuple(low.shape)} and {tuple(high.shape)} do not broadcast to the shape {shape} of "
            "the samples."
        )
    return _integers(key, low, high, _above(maxval, int(np.iinfo(dtype).max)), shape, dtype)


def _draw_dtype(dtype: np.dtype) -> np.dtype:
    """Return the dtype of the draws; integers of fewer than 32 bits are drawn as 32 bits."""
    return dtype if dtype.itemsize >= 4 else np.dtype(np.int32)


@_one_program("low", "high")
def _integers(key, low, high, beyond, shape, dtype):
    """Return integers from [low, high), including `high` where it is `beyond` the dtype."""
    work = _draw_dtype(dtype)
    width = 8 * work.itemsize
    unsigned = np.dtype(f"uint{width}")
    first, second = _split_one(_check_single_key(key, "randint"), 2)
    upper, lower = _bits(first, width, shape), _bits(second, width, shape)
    low_, high_ = _match(low, high)
    span = ew.sub(high_, low_)
    span = ew.bitcast_convert_type(span, unsigned) if work != unsigned else span
    one = unsigned.type(1)
    span = ew.select_n(ew.le(high_, low_), span, one)
    if beyond is not False:
        grow = ew.gt(high_, low_)
        grow = ew.bitwise_and(grow, beyond) if beyond is not True else grow
        span = ew.select_n(grow, span, ew.add(span, one))
    multiplier = ew.rem(_full(unsigned.type(1 << (width // 2)), span), span)
    multiplier = ew.rem(ew.mul(multiplier, multiplier), span)
    span, multiplier = [broadcast_to_shape(x, shape) if x.ndim else x for x in (span, multiplier)]
    offset = ew.add(ew.mul(ew.rem(upper, span), multiplier), ew.rem(lower, span))
    offset = ew.rem(offset, span)
    moved = ew.convert_element_type(offset, work) if work != unsigned else offset
    return cast(ew.add(broadcast_to_shape(low, shape) if low.ndim else low, moved), dtype)


def _match(x, y):
    shape = broadcast_shapes(x.shape, y.shape)
    return broadcast_to_shape(x, shape), broadcast_to_shape(y, shape)


def _full(value, like):
    return layout.broadcast_in_dim(value, tuple(like.shape), ())


def _above(maxval, limit: int):
    if isinstance(maxval, (int, np.integer)):
        return int(maxval) > limit
    if not dtypes.issubdtype(typeof(maxval).dtype, np.integer):
        return False
    if int(np.iinfo(typeof(maxval).dtype).max) <= limit:
        return False
    return ew.gt(concrete(maxval), np.asarray(limit, typeof(maxval).dtype)[()])


def _clipped_int(v, dtype):
    info = np.iinfo(dtype)
    if isinstance(v, (int, np.integer)):
        limits = np.iinfo(dtypes.default_int_dtype())
        if isinstance(v, int) and not min(limits.min, info.min) <= v <= max(
            limits.max, info.max + 1
        ):
            raise OverflowError(
                f"randint: the bound {v} does not fit in {limits.dtype.name}, nor in {np.dtype(dtype).name}."
            )
        return np.asarray(min(max(int(v), int(info.min)), int(info.max)), dtype)
    v = concrete(v)
    if not dtypes.issubdtype(v.dtype, np.integer):
        return cast(v, dtype)
    if np.can_cast(v.dtype, dtype):
        return cast(v, dtype)
    source = np.iinfo(v.dtype)
    low, high = max(int(info.min), int(source.min)), min(int(info.max), int(source.max))
    return cast(ew.clamp(np.asarray(low, v.dtype)[()], v, np.asarray(high, v.dtype)[()]), dtype)


@_sampler("p")
def bernoulli(key, p=0.5, shape=None, mode: str = "low"):  # noqa: A002
    """Return True with probability `p`.

    With `mode` 'high' probabilities below the rounding error of their dtype are respected.

    Raises TypeError for probabilities that are not real, ValueError for another mode.

    >>> bool(weft.random.bernoulli(weft.random.key(0), 1.0, mode="high"))
    True
    """
    if mode not in ("low", "high"):
        raise ValueError(f"bernoulli: mode must be 'low' or 'high', got {mode!r}.")
    dtype = dtypes.to_inexact_dtype(dtypes.result_type(p))
    if not dtypes.issubdtype(dtype, np.floating):
        raise TypeError(f"bernoulli probability `p` must have a floating dtype, got {dtype.name}.")
    p = cast(concrete(p), dtype)
    shape = tuple(p.shape) if shape is None else _shape(shape)
    p, raw = broadcast_to_shape(p, shape) if p.ndim else p, _check_single_key(key, "bernoulli")
    if mode == "low":
        return ew.lt(_uniform(raw, shape, dtype, 0.0, 1.0), p)
    coarse, fine = _halves(_uniform(raw, (2, *shape), dtype, 0.0, 1.0))
    return ew.lt(ew.mul(fine, dtypes.finfo(dtype).eps), ew.sub(p, coarse))


def _halves(x) -> tuple:
    """Return the two parts of an array along its first dim."""
    return tuple(
        layout.reshape(slicing.slice_in_dim(x, i, i + 1, 1, 0), typeof(x).shape[1:]) for i in (0, 1)
    )


@_sampler()
def rademacher(key, shape=(), dtype=None):  # noqa: A002
    """Return -1 or 1 with equal probability."""
    dtype = dtypes.default_int_dtype() if dtype is None else dtypes.check_dtype(dtype, "rademacher")
    sign = bernoulli(_check_single_key(key, "rademacher"), 0.5, _shape(shape))
    return ew.convert_element_type(
        ew.sub(ew.mul(ew.convert_element_type(sign, np.dtype(np.int32)), 2), 1), dtype
    )


@_sampler()
def exponential(key, shape=(), dtype=None):  # noqa: A002
    """Return samples of the exponential distribution with rate 1."""
    dtype = _float(dtype, "exponential")
    return ew.neg(
        ew.log1p(
            ew.neg(_uniform(_check_single_key(key, "exponential"), _shape(shape), dtype, 0.0, 1.0))
        )
    )


@_sampler()
def gumbel(key, shape=(), dtype=None, mode: str | None = None):  # noqa: A002
    """Return samples of the Gumbel distribution.

    `mode` determines the range of large samples: 'low' uses one random number of the dtype, 'high'
    two, 'highest' 64 bits for float32 (for other dtypes it equals 'high'). The setting
    `high_dynamic_range_gumbel` makes 'high' the default.
    Raises TypeError for a dtype that is not floating, ValueError for another mode.

    >>> weft.random.gumbel(weft.random.key(0), (2,), mode="highest").shape
    (2,)
    """
    dtype, raw, shape = _float(dtype, "gumbel"), _check_single_key(key, "gumbel"), _shape(shape)
    mode = ("high" if config.high_dynamic_range_gumbel else "low") if mode is None else mode
    if mode not in ("low", "high", "highest"):
        raise ValueError(f"gumbel: mode must be 'low', 'high' or 'highest', got {mode!r}.")
    if mode == "low":
        return ew.neg(
            ew.log(ew.neg(ew.log(_uniform(raw, shape, dtype, dtypes.finfo(dtype).tiny, 1.0))))
        )
    if mode == "highest" and dtype == np.float32:
        return _gumbel_of_words(*_halves(_bits(raw, 32, (2, *shape))))
    info = dtypes.finfo(dtype)
    coarse, fine = _halves(_uniform(raw, (2, *shape), dtype, 0.0, 1.0))
    finer = ew.add(ew.add(coarse, ew.mul(fine, info.eps)), info.tiny)
    return _gumbel_of_survival(
        ew.select_n(ew.ge(coarse, np.asarray(0.5, dtype)[()]), finer, coarse)
    )


def _gumbel_of_survival(u):
    """Return the sample that is exceeded with probability `u`, which need not be near 1."""
    return ew.neg(ew.log(ew.neg(ew.log1p(ew.neg(u)))))


def _gumbel_of_words(high, low):
    """Return samples from fractions of 64 bits.

    Fractions below a half are the probability that the sample is exceeded; above it, their
    complements are the probability that it is not exceeded.
    """
    small = ew.lt(high, np.uint32(1 << 31))
    carry = ew.convert_element_type(ew.eq(low, np.uint32(0)), _U32)
    high = ew.select_n(small, ew.add(ew.bitwise_not(high), carry), high)
    low = ew.select_n(small, ew.neg(low), low)
    u = _float_of_words(high, low)
    return ew.select_n(small, ew.neg(ew.log(ew.neg(ew.log(u)))), _gumbel_of_survival(u))


def _float_of_words(high, low):
    """Return the fraction of two words, below 1, as float32, rounded down; 2**-65 where it is 0."""
    empty = ew.eq(high, np.uint32(0))
    zeros = ew.clz(high)
    shifted = ew.bitwise_or(
        ew.shift_left(high, zeros), ew.shift_right_logical(low, ew.sub(np.uint32(32), zeros))
    )
    shifted = ew.select_n(empty, shifted, ew.shift_left(low, ew.clz(low)))
    zeros = ew.select_n(empty, zeros, ew.add(np.uint32(32), ew.clz(low)))
    exponent = ew.shift_left(ew.sub(np.uint32(126), zeros), np.uint32(23))
    mantissa = ew.bitwise_and(
        ew.shift_right_logical(shifted, np.uint32(8)), np.uint32((1 << 23) - 1)
    )
    return ew.bitcast_convert_type(ew.bitwise_or(exponent, mantissa), np.dtype(np.float32))


@_sampler()
def laplace(key, shape=(), dtype=None):  # noqa: A002
    """Return samples of the Laplace distribution."""
    dtype = _float(dtype, "laplace")
    u = _uniform(
        _check_single_key(key, "laplace"),
        _shape(shape),
        dtype,
        np.asarray(-1 + float(dtypes.finfo(dtype).epsneg), dtype)[()],
        1.0,
    )
    return ew.mul(ew.sign(u), ew.log1p(ew.neg(ew.abs(u))))


@_sampler()
def logistic(key, shape=(), dtype=None):  # noqa: A002
    """Return samples of the logistic distribution."""
    dtype = _float(dtype, "logistic")
    u = _uniform(
        _check_single_key(key, "logistic"), _shape(shape), dtype, dtypes.finfo(dtype).eps, 1.0
    )
    return ew.log(ew.div(u, ew.add(ew.neg(u), np.ones((), dtype)[()])))


@_sampler()
def cauchy(key, shape=(), dtype=None):  # noqa: A002
    """Return samples of the Cauchy distribution."""
    dtype = _float(dtype, "cauchy")
    u = _uniform(
        _check_single_key(key, "cauchy"), _shape(shape), dtype, dtypes.finfo(dtype).eps, 1.0
    )
    return ew.tan(ew.mul(ew.sub(u, np.asarray(0.5, dtype)[()]), np.asarray(np.pi, dtype)[()]))


@_sampler("lower", "upper")
def truncated_normal(key, lower, upper, shape=None, dtype=None):  # noqa: A002
    """Return samples of the standard normal distribution between `lower` and `upper`."""
    dtype, raw = _float(dtype, "truncated_normal"), _check_single_key(key, "truncated_normal")
    shape = shape if shape is None else _shape(shape)
    if not (_is_plain(lower) and _is_plain(upper)):
        return _truncated_normal(raw, shape, dtype, lower, upper)
    return call_operation(
        _truncated_normal, "", raw, shape=shape, dtype=dtype, lower=lower, upper=upper
    )


def _truncated_normal(raw, shape, dtype, lower, upper):
    lower, upper = [
        np.asarray(v, dtype)[()] if _is_plain(v) else cast(concrete(v), dtype)
        for v in (lower, upper)
    ]
    shape = broadcast_shapes(lower.shape, upper.shape) if shape is None else shape
    root = np.asarray(math.sqrt(2), dtype)[()]
    a, b = ew.erf(ew.div(lower, root)), ew.erf(ew.div(upper, root))
    u = _uniform(raw, shape, dtype, a, b)
    out = ew.mul(ew.erf_inv(u), root)
    inf = np.asarray(np.inf, dtype)[()]
    low = ew.nextafter(lower, _full(inf, lower))
    high = ew.nextafter(upper, _full(-inf, upper))
    return ew.clamp(broadcast_to_shape(low, shape), out, broadcast_to_shape(high, shape))
