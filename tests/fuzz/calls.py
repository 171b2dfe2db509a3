"""Random calls of public functions, mostly with unsuitable arguments, and a judgment of their
outcomes.

In:   a seed.
Out:  a `Call`, the same for the same seed; a description of the fault in its outcome, or None.
Laws: a call returns, or raises one of `ALLOWED` with a message that names the function, an
      argument, or its value. An error among `UNFORESEEN` that Python raised inside weft is a fault,
      also where a public function converted it to a documented class.
Next: `campaign` runs calls in separate processes.
"""

from __future__ import annotations

import enum
import functools
import importlib
import inspect
import random
import re
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import weft
import weft.errors
import weft.numpy as wnp
from weft import lax
from weft.sharding import NamedSharding, PartitionSpec as P

ALLOWED = (
    TypeError,
    ValueError,
    IndexError,
    OverflowError,
    NotImplementedError,
    *(getattr(weft.errors, name) for name in dir(weft.errors)),
)

#: errors that no check foresaw, except for an argument that lacks an attribute, which
#: `api_boundary` names; TypeError, ValueError and OverflowError describe the arguments as well as a
#: check would
UNFORESEEN = (
    KeyError,
    AttributeError,
    IndexError,
    AssertionError,
    NameError,
    ArithmeticError,
    RecursionError,
    StopIteration,
    BufferError,
)

MODULES = """weft weft.numpy weft.numpy.linalg weft.numpy.fft weft.lax weft.lax.linalg weft.random weft.nn weft.nn.initializers
    weft.scipy.special weft.scipy.linalg weft.scipy.signal weft.scipy.cluster.vq weft.scipy.ndimage weft.scipy.interpolate
    weft.scipy.fft weft.scipy.integrate weft.scipy.optimize weft.scipy.sparse.linalg weft.scipy.stats weft.scipy.stats.bernoulli
    weft.scipy.stats.beta weft.scipy.stats.betabinom weft.scipy.stats.binom weft.scipy.stats.cauchy weft.scipy.stats.chi2
    weft.scipy.stats.dirichlet weft.scipy.stats.expon weft.scipy.stats.gamma weft.scipy.stats.gennorm weft.scipy.stats.geom
    weft.scipy.stats.gumbel_l weft.scipy.stats.gumbel_r weft.scipy.stats.laplace weft.scipy.stats.logistic weft.scipy.stats.multinomial
    weft.scipy.stats.multivariate_normal weft.scipy.stats.nbinom weft.scipy.stats.norm weft.scipy.stats.pareto weft.scipy.stats.poisson
    weft.scipy.stats.t weft.scipy.stats.truncnorm weft.scipy.stats.uniform weft.scipy.stats.vonmises weft.scipy.stats.wrapcauchy
    weft.tree weft.tree_util weft.sharding weft.image weft.dtypes weft.ops weft.flatten_util weft.segment_ops weft.dlpack
    weft.custom_batching weft.custom_derivatives weft.ref weft.test_util weft.experimental.checkify weft.experimental.jet
    weft.experimental.layout weft.experimental.mesh_utils weft.experimental.ode weft.experimental.rnn weft.experimental.shard_alike
    weft.experimental.sparse weft.experimental.sparse.linalg""".split()

#: functions that write files, wait for others, change settings or register types, and those that
#: only create type annotations
LEFT_OUT = re.compile(
    r"save|load|tofile|fromfile|fromregex|register|print|breakpoint|distributed|update|initialize|shutdown|start_|stop_|"
    r"set_mesh|clear_|live_|config|install|enable_|disable_|debug_|checking_leaks|no_tracing|default_|log_compiles|explain|"
    r"transfer_guard|numpy_|use_mesh|make_mesh|_guard|softmax_cross|ensure_compile|from_dlpack|thread_resources|threefry_partitionable"
)


class Call(NamedTuple):
    """A public function, its arguments by name, and the arguments for its result if that is a
    function."""

    name: str
    fun: Callable
    arguments: dict[str, Any]
    positional: list[str]
    then: list

    def __call__(self) -> Any:
        args = [self.arguments[name] for name in self.positional]
        kwargs = {name: x for name, x in self.arguments.items() if name not in self.positional}
        result = self.fun(*args, **kwargs)
        if self.then and callable(result) and not isinstance(result, type):
            result = result(*self.then)
        return weft.block_until_ready(result)

    def __str__(self) -> str:
        words = [*(f"{name}={_text(x)}" for name, x in self.arguments.items())]
        return f"{self.name}({', '.join(words)})" + (
            f"({', '.join(map(_text, self.then))})" if self.then else ""
        )


@functools.cache
def functions() -> list[tuple[str, Callable, list[inspect.Parameter]]]:
    """Return the public functions that have a signature, by name."""
    public: dict[int, tuple[str, Callable, list[inspect.Parameter]]] = {}
    for module_name in MODULES:
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError:
            continue
        for name in sorted(getattr(module, "__all__", None) or dir(module)):
            fun = getattr(module, name, None)
            if (
                name[0] == "_"
                or LEFT_OUT.search(name)
                or isinstance(fun, type)
                or not callable(fun)
            ):
                continue
            where = str(getattr(fun, "__module__", ""))
            listed = hasattr(module, "__all__") or "attach" in vars(module)
            if not where.startswith("weft") or not (
                listed or f"{where}.".startswith(f"{module_name}.")
            ):
                continue  # of another package, or only imported here
            try:
                parameters = list(inspect.signature(fun).parameters.values())
            except (TypeError, ValueError):
                continue
            public.setdefault(id(fun), (f"{module_name}.{name}", fun, parameters))
    return sorted(public.values(), key=lambda entry: entry[0])


# ---- arguments that fit, by the names of parameters


class _Colour(enum.IntEnum):
    RED = 1


def _fun(x=0.0, *rest, **kwargs):
    return x


def _sum(*xs):
    return wnp.sum(xs[0])


@functools.cache
def _mesh() -> Any:
    return weft.make_mesh((2, 4), ("a", "b"))


def _fitting_array(r: random.Random) -> Any:
    shape = r.choice([(), (3,), (4,), (2, 3), (3, 3), (4, 4), (2, 3, 4), (8, 8), (1,)])
    dtype = r.choice(
        [
            "float32",
            "float32",
            "float32",
            "int32",
            "bool",
            "complex64",
            "bfloat16",
            "int8",
            "uint32",
            "float16",
        ]
    )
    values = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape) / 3 + 0.5
    make = r.choice([wnp.asarray, wnp.asarray, np.asarray])
    return make(values.astype(wnp.bfloat16 if dtype == "bfloat16" else dtype))


_BY_NAME: list[tuple[str, Callable[[random.Random], Any]]] = [
    (
        r"^(axis|axes|dimension|dim|dims|axis\d|dimensions|batch_axis|in_axis|out_axis|feature_axis)$",
        lambda r: r.choice([0, 1, -1, None, (0,), (0, 1)]),
    ),
    (
        r"shape|sizes|reps|pad_width|padding|window|strides|dilation",
        lambda r: r.choice([(3,), (2, 3), 4, (), ((1, 1),), (1, 2)]),
    ),
    (
        r"dtype|type$",
        lambda r: r.choice([np.float32, "int32", wnp.bfloat16, np.dtype("complex64"), bool, None]),
    ),
    (
        r"^(fun|f|func|function|body_fun|cond_fun|true_fun|false_fun|body|computation|init_fun|callback|op|is_leaf|fn|cond|g|flat_fun)$",
        lambda r: r.choice(
            [_fun, _sum, wnp.sin, lax.add, lambda x: x, lambda x, y: (x, y), lambda c, x: (c, x)]
        ),
    ),
    (
        r"^(key|keys|rng|seed)$",
        lambda r: r.choice(
            [weft.random.key(0), weft.random.PRNGKey(1), 3, weft.random.split(weft.random.key(1))]
        ),
    ),
    (
        r"^(n|k|num|N|M|length|size|depth|num_classes|degree|deg|order|count|start|stop|step|index|limit|max_iter|num_segments|sections|"
        r"repeats|shift|offset|decimals|block_size|axis_size|num_keys)$",
        lambda r: r.choice([0, 1, 2, 3, 5, -1]),
    ),
    (
        r"sharding|device|spec|mesh",
        lambda r: r.choice(
            [None, P(), P("a"), NamedSharding(_mesh(), P("a")), weft.devices()[0], _mesh()]
        ),
    ),
    (
        r"mode|kind|method|ord|side|norm|indexing|precision|implementation|impl|approximate",
        lambda r: r.choice(
            [
                None,
                "clip",
                "fill",
                "edge",
                "reflect",
                "full",
                "same",
                "valid",
                "left",
                "linear",
                "highest",
                2,
            ]
        ),
    ),
    (
        r"argnums|argnames|donate|static|keepdims|unique|sorted|reverse|has_aux|exact|inplace|copy|squeeze|return_|full|unroll",
        lambda r: r.choice([0, True, False, None, (0,), "x"]),
    ),
    (
        r"tree|rest|operands|primals|tangents|init|carry|xs|tup|arrays|args|choices|condlist|seq",
        lambda r: r.choice(
            [
                (_fitting_array(r),),
                [_fitting_array(r), _fitting_array(r)],
                {"w": _fitting_array(r)},
                _fitting_array(r),
            ]
        ),
    ),
]


def _fitting(name: str, r: random.Random) -> Any:
    for pattern, make in _BY_NAME:
        if re.search(pattern, name):
            return make(r)
    return _fitting_array(r) if r.random() < 0.85 else r.choice([2, 0.5, 1 + 1j, True, [1.0, 2.0]])


# ---- arguments that do not fit


class _UnrelatedObject:
    """An object of an unrelated type."""

    def __repr__(self) -> str:
        return "<stranger>"


_GARBAGE: list[Callable[[random.Random], Any]] = [
    lambda r: r.choice(
        [
            None,
            Ellipsis,
            NotImplemented,
            _UnrelatedObject(),
            slice(None),
            slice(3, 1, -2),
            range(3),
            {1, 2},
            frozenset(),
            object,
        ]
    ),
    lambda r: r.choice(
        ["", "x", "bogus", "float32", "ij,jk->ik", "\0", "é" * 40, b"bytes", bytearray(b"x")]
    ),
    lambda r: r.choice(
        [10**18, -(10**18), 2**31, 2**63, 2**64, -(2**63) - 1, 10**30, -1, -7, 0, 33, 1000]
    ),
    lambda r: r.choice(
        [
            float("nan"),
            float("inf"),
            -0.0,
            1e300,
            1e-320,
            2.5,
            complex("nan"),
            1j,
            True,
            False,
            _Colour.RED,
        ]
    ),
    lambda r: r.choice(
        [
            (),
            [],
            {},
            [[]],
            (0, 0),
            (-1,),
            (None, 1),
            [1, [2, 3]],
            {"a": [1, None]},
            (10**18,),
            (2**31, 2**31),
            ("a",),
            [float("nan")],
            (1,) * 33,
            [[1, 2], [3]],
            ((0, 1), (1, 0)),
        ]
    ),
    lambda r: np.zeros(
        r.choice([(0,), (3, 0), (0, 3), (2, 1, 3), (1,) * 5, (7,)]),
        r.choice([np.float32, np.int32, bool, np.uint8, np.complex64]),
    ),
    lambda r: r.choice(
        [
            np.array(["a", "b"]),
            np.array([None, 1], object),
            np.array(["2020-01-01"], "datetime64[D]"),
            np.ones(2, np.longdouble),
            np.array([(1, 2.0)], "i4,f8"),
            np.float64("nan"),
            np.int64(2**40),
            np.str_("x"),
            np.array([np.nan, np.inf]),
            np.zeros(2, weft.float0),
            np.arange(6, dtype=">f4"),
        ]
    ),
    lambda r: wnp.zeros(
        r.choice([(0,), (2, 0), (5,), (3, 2), (1, 1, 1)]),
        r.choice([np.float32, np.int8, bool, np.complex64, wnp.bfloat16, wnp.int4]),
    ),
    lambda r: r.choice(
        [
            weft.random.key(0),
            weft.random.split(weft.random.key(0), 3),
            weft.ShapeDtypeStruct((3,), np.float32),
            np.float32,
            int,
            str,
            np.dtype("V3"),
            np.dtype("O"),
            wnp.float32,
            weft.tree.structure([1, 2]),
        ]
    ),
    lambda r: r.choice(
        [
            _fun,
            wnp.sin,
            lambda: 1,
            lambda *a: None,
            lambda x: "text",
            lambda x: x[5],
            iter([1]),
            (i for i in (1,)),
            print,
        ]
    ),
    lambda r: r.choice(
        [
            P("nowhere"),
            P("a", "a"),
            P(("a", "b"), None, None),
            NamedSharding(_mesh(), P("b", "a")),
            _mesh(),
            weft.devices(),
            weft.devices()[-1],
            weft.device_put(np.ones((8, 4), np.float32), NamedSharding(_mesh(), P("b", "a"))),
        ]
    ),
]


def _garbage(r: random.Random) -> Any:
    return r.choice(_GARBAGE)(r)


def call_of(seed: int) -> Call:
    """Return the call number `seed`."""
    r = random.Random(seed)
    name, fun, parameters = r.choice(functions())
    arguments: dict[str, Any] = {}
    positional, skipped = [], False
    chance = r.choice([0.0, 0.25, 0.5, 0.9])
    for p in parameters:
        if p.kind is p.VAR_KEYWORD:
            continue
        if p.default is not p.empty and p.kind is not p.VAR_POSITIONAL and r.random() < 0.7:
            skipped = True
            continue
        n = r.choice([0, 1, 2]) if p.kind is p.VAR_POSITIONAL else 1
        values = [_garbage(r) if r.random() < chance else _fitting(p.name, r) for _ in range(n)]
        if p.kind is p.VAR_POSITIONAL:
            if not skipped:
                for i, value in enumerate(values):
                    arguments[f"{p.name}[{i}]"] = value
                    positional.append(f"{p.name}[{i}]")
            continue
        if p.kind is p.POSITIONAL_ONLY and skipped:
            continue
        arguments[p.name] = values[0]
        if p.kind is p.POSITIONAL_ONLY or (p.kind is p.POSITIONAL_OR_KEYWORD and not skipped):
            positional.append(p.name)
    then = [
        _garbage(r) if r.random() < chance else _fitting_array(r)
        for _ in range(r.choice([1, 1, 2]))
    ]
    return Call(name, fun, arguments, positional, then)


# ---- outcomes


def fault_of(call: Call) -> str | None:
    """Make the call, and return the fault in its outcome, or None. A function among the arguments,
    such as a NumPy type, may ask a traced value for its numbers; the error then describes the
    tracer only.
    """
    try:
        call()
    except MemoryError as error:
        return (
            None
            if isinstance(error, weft.errors.JaxRuntimeError)
            else f"MemoryError that is no JaxRuntimeError: {error}"
        )
    except ALLOWED as error:
        cause = error.__cause__
        if _is_unforeseen(cause) and "argument `" not in str(error):
            return f"{type(cause).__name__} from inside: {_short(str(cause))}  at {_place(cause)}"
        asked = isinstance(error, weft.errors.TracerArrayConversionError) and any(
            map(callable, call.arguments.values())
        )
        if not asked and not _is_ours(error) and not names_an_argument(str(error), call):
            return f"{type(error).__name__} names no argument: {_short(str(error))}"
    except Exception as error:
        return None if _is_ours(error) else f"{type(error).__name__}: {_short(str(error))}"
    return None


def _is_ours(error: BaseException) -> bool:
    """Return whether the error was raised by a function that this module passed, or in a call by
    it."""
    return any(
        frame.f_code.co_filename == __file__
        and frame.f_code.co_name not in ("__call__", "fault_of")
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def _is_unforeseen(error: BaseException | None) -> bool:
    """Return whether Python raised the error inside weft, for a reason that no check foresaw."""
    foreseen = isinstance(error, OverflowError) or not isinstance(error, UNFORESEEN)
    return not foreseen and getattr(error, "_inside", False) and not _is_ours(error)


def _place(error: BaseException) -> str:
    """Return the file and line that raised an error."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename.rpartition('weft/')[2]}:{frames[-1].lineno}" if frames else "?"


def names_an_argument(message: str, call: Call) -> bool:
    """Return whether a message names the function or a parameter, or describes an argument."""
    if re.search(
        r"\b(missing \d|takes (at most )?\d|takes from|unexpected keyword|multiple values)", message
    ):
        return True  # Python's own words on the number of arguments
    names = [
        call.name.rpartition(".")[2],
        getattr(call.fun, "__name__", ""),
        *inspect.signature(call.fun).parameters,
    ]
    names += re.findall(r"See `(\w+)`", call.fun.__doc__ or "")  # of which it is another name
    if call.then and "initializers" in call.name:
        names += ["key", "shape", "dtype"]  # the arguments of its result
    if any(name and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) for name in names):
        return True
    return any(
        len(text) > 2 and text in message
        for x in (*call.arguments.values(), *call.then)
        for text in _texts(x)
    )


def _texts(x: Any) -> Iterator[str]:
    yield _text(x)
    yield str(type(x))
    yield f"{type(x).__name__}' object"
    if hasattr(x, "shape") and hasattr(x, "dtype") and not isinstance(x, type):
        yield str(tuple(x.shape))
        name = "float0" if x.dtype == weft.float0 else getattr(x.dtype, "name", str(x.dtype))
        yield name + str(list(x.shape)).replace(" ", "")
        yield name if name == "float0" else str(x.dtype)
    if isinstance(x, (list, tuple)):
        for part in x:
            yield from _texts(part)
    elif isinstance(x, dict):
        for part in x.values():
            yield from _texts(part)
    elif callable(x):
        yield getattr(x, "__name__", type(x).__name__)


def _text(x: Any) -> str:
    if isinstance(x, weft.Array) or isinstance(x, np.ndarray):
        return f"{'' if isinstance(x, np.ndarray) else 'w'}{x.dtype}{list(x.shape)}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(x))[:80]


def _short(text: str) -> str:
    return re.sub(r"\s+", " ", text)[:160]
