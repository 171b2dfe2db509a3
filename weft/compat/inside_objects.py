"""Objects for names of `jax._src` without a counterpart in weft's public modules.

In:  nothing; `inside` names them.
Out: functions on tracebacks, the process in a cluster, and the registry of pytree types.
"""

import inspect
import linecache
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from weft import distributed, random, test_util, tree_util
from weft._engine import hooks, processes
from weft._engine.backends import base
from weft._engine.backends.base import Backend
from weft._engine.numpy.products import einsum
from weft._engine.runtime import device
from weft._engine.util import source
from weft._engine.util.dtypes import DTypeLike, finfo
from weft._engine.util.source import SourceLine
from weft._engine.util.tree import keystr
from weft._engine.util.trees import node_types
from weft._engine.util.trees.differences import disagreements
from weft._engine.util.trees.keypath import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    KeyPath,
    SequenceKey,
)
from weft.extend import backend
from weft.extend.source_info_util import SourceInfo

F = TypeVar("F", bound=Callable[..., Any])


# ---- traceback_util


class _ExcludedPaths(list[str]):
    """The files whose frames are omitted from tracebacks; changes take effect at once."""

    def append(self, path: str) -> None:
        source.hide(path)
        super().append(path)

    def remove(self, path: str) -> None:
        source.show(path)
        super().remove(path)


excluded_paths = _ExcludedPaths()


def register_exclusion(path: str) -> None:
    """Omit the frames of a file from tracebacks and from the source lines of programs."""
    if path not in excluded_paths:
        excluded_paths.append(path)


def include_frame(frame: Any) -> bool:
    """Return True if tracebacks show a frame: it is neither from weft nor from an excluded file."""
    return not source.is_internal(frame.f_code.co_filename)


def api_boundary(fun: F, *, repro_api_name: str | None = None, repro_user_func: bool = False) -> F:
    """Decorate a library's function: tracebacks of its errors omit the frames of weft and of
    excluded files."""
    return source.api_boundary(fun)


# ---- api_util


def infer_argnums_and_argnames(
    sig: inspect.Signature,
    argnums: int | Iterable[int] | None,
    argnames: str | Iterable[str] | None,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return positions and names of the same arguments of a function; either one may be None and is
    inferred from the other.

    >>> infer_argnums_and_argnames(inspect.signature(lambda x, y: x), None, "y")
    ((1,), ('y',))
    """
    nums = None if argnums is None else (argnums,) if isinstance(argnums, int) else tuple(argnums)
    names = (
        None if argnames is None else (argnames,) if isinstance(argnames, str) else tuple(argnames)
    )
    both = [
        (i, p.name)
        for i, p in enumerate(sig.parameters.values())
        if p.kind == p.POSITIONAL_OR_KEYWORD
    ]
    if nums is None:
        nums = tuple(i for i, name in both if name in (names or ()))
    if names is None:
        names = tuple(name for i, name in both if i in nums)
    return nums, names


# ---- distributed


class State:
    """The cluster state of this process. All fields are None until `jax.distributed.initialize` is
    called, with one process or several; assigned values are kept."""

    service = None
    preemption_sync_manager = None

    @property
    def process_id(self) -> int:
        return device.process_index()

    @property
    def num_processes(self) -> int:
        return device.process_count()

    @property
    def slice_index(self) -> int | None:
        return self.partition_index

    def __getattr__(self, name: str) -> Any:
        if name not in ("client", "coordinator_address", "partition_index"):
            raise AttributeError(
                f"weft does not have {name!r} of jax._src.distributed.global_state."
            )
        here = processes.current()
        if here is None:
            return None
        if name == "client":
            from weft._engine.processes.store import KeyValueStore

            return KeyValueStore(here.client)
        return here.client.address if name == "coordinator_address" else here.partitions[here.rank]

    initialize = staticmethod(distributed.initialize)
    shutdown = staticmethod(distributed.shutdown)


global_state = State()


# ---- tree_util


class RegistryEntry(NamedTuple):
    """The functions of a pytree type: `to_iter(value) -> (children, aux)` and `from_iter(aux,
    children)`."""

    to_iter: Callable[[Any], tuple[Iterable[Any], Any]]
    from_iter: Callable[[Any, Iterable[Any]], Any]


class _PytreeRegistry:
    """The pytree node types that are registered or built in."""

    def __contains__(self, type_: object) -> bool:
        # an unknown type is not cached as a leaf: it may be registered later
        return node_types.node_types.get(type_) is not None

    def __getitem__(self, type_: type) -> RegistryEntry:
        node = node_types.node_type(type_) if type_ in self else None
        if node is None:
            raise KeyError(type_)
        return RegistryEntry(node.split, lambda aux, children: node.unflatten(aux, tuple(children)))

    def __iter__(self) -> Iterator[type]:
        return (type_ for type_, node in node_types.node_types.items() if node is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


pytree_registry = _PytreeRegistry()

#: the key types in paths to leaves of built-in containers
BuiltInKeyEntry = SequenceKey | DictKey | GetAttrKey | FlattenedIndexKey


def prefix_errors(
    prefix_tree: Any, full_tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> list[Callable[[str], ValueError]]:
    """Return, for each place where a tree is no prefix of another, a function from the prefix's
    name to the error."""

    def error_of(path: KeyPath, have: str, other: str) -> Callable[[str], ValueError]:
        return lambda name: ValueError(
            f"pytree structure error at {name}{keystr(path)}: the prefix has {have}, the full tree {other}"
        )

    return [error_of(*place) for place in disagreements(prefix_tree, full_tree, is_leaf)]


# ---- literals, dtypes, xla_bridge


class TypedNdArray(np.ndarray):
    """JAX's class of typed array constants. weft creates no instances: its constants are arrays of
    NumPy or weft."""


def supports_inf(dtype: DTypeLike) -> bool:
    """Return True if a floating dtype has infinities."""
    with np.errstate(all="ignore"):
        return bool(np.isinf(np.array(np.inf).astype(finfo(dtype).dtype)))


# ---- numpy.einsum


def einsum_by_path(
    operands: Sequence[Any],
    contractions: Iterable[tuple[Sequence[int], Any, str]],
    precision: Any = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable[..., Any] | None = None,
    out_sharding: Any = None,
) -> Any:
    """Compute the contractions of an opt_einsum path, one after the other.

    Each contraction lists the positions of its operands, which it removes in that order, the summed
    indices, and its subscripts; the result is appended.
    """
    remaining = list(operands)
    for places, _, subscripts in contractions:
        chosen = [remaining.pop(place) for place in places]
        placed = {} if remaining or out_sharding is None else {"out_sharding": out_sharding}
        remaining.append(
            einsum(
                subscripts,
                *chosen,
                precision=precision,
                preferred_element_type=preferred_element_type,
                _dot_general=_dot_general,
                **placed,
            )
        )
    return remaining[0]


# ---- public_test_util


def check_close(
    xs: Any,
    ys: Any,
    atol: test_util.Tolerance = None,
    rtol: test_util.Tolerance = None,
    err_msg: str = "",
) -> None:
    """Raise AssertionError unless two pytrees have equal structures and shapes, and values that
    agree up to a tolerance.

    The tolerance is a number, or one per dtype; the default comes from `check_grads`. Values with
    other than floating dtypes must be equal.

    >>> check_close({"a": np.float32(1)}, {"a": np.float32(1.00001)})
    """
    leaves, structure = tree_util.tree_flatten(xs)
    others, other_structure = tree_util.tree_flatten(ys)
    assert structure == other_structure, (
        f"check_close: {structure} is not {other_structure}. {err_msg}"
    )
    for x, y in zip(leaves, others):
        assert np.shape(x) == np.shape(y), (
            f"check_close: shape {np.shape(x)} is not {np.shape(y)}. {err_msg}"
        )
        if test_util._is_inexact(np.asarray(x)):
            test_util._compare(x, y, atol, rtol, err_msg, like=[x, y])
        else:
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y), err_msg=err_msg)


# ---- random.threefry2x32: the generator on the words of keys, uint32[2]


def _threefry_key(words: Any) -> Any:
    return random.wrap_key_data(words, impl="threefry2x32")


def threefry_seed(seed: Any) -> Any:
    """Return the words of the key for a seed."""
    return random.key_data(random.key(seed, impl="threefry2x32"))


def threefry_split(key: Any, shape: tuple[int, ...]) -> Any:
    """Return the words of new keys: uint32[*shape, 2]."""
    return random.key_data(random.split(_threefry_key(key), shape))


def threefry_fold_in(key: Any, data: Any) -> Any:
    """Return the words of the key derived from a key and a number."""
    return random.key_data(random.fold_in(_threefry_key(key), data))


def threefry_random_bits(key: Any, bit_width: int, shape: tuple[int, ...]) -> Any:
    """Return random unsigned integers of `bit_width` bits."""
    return random.bits(_threefry_key(key), shape, f"uint{bit_width}")


# ---- source_info_util


class Frame(NamedTuple):
    """A source location: lines count from 1, columns from 0."""

    file_name: str
    function_name: str
    start_line: int
    start_column: int
    end_line: int
    end_column: int


def frame_of(source: SourceLine | SourceInfo | None) -> Frame | None:
    """Return the place of the source of an equation (`eqn.source_info`), if it has one; the end is the end of its line.

    >>> frame_of(SourceLine.at("train.py", 41, "attend"))
    Frame(file_name='train.py', function_name='attend', start_line=41, start_column=0, end_line=41, end_column=0)
    """
    line = source.traceback if isinstance(source, SourceInfo) else source
    if line is None:
        return None
    text = linecache.getline(line.file, line.line).rstrip()
    return Frame(line.file, line.function, line.line, line.column, line.line, len(text))


# ---- util


class HashablePartial:
    """A function with bound leading arguments; equal for equal functions and arguments.

    >>> HashablePartial(divmod, 7)(2), HashablePartial(divmod, 7) == HashablePartial(divmod, 7)
    ((3, 1), True)
    """

    def __init__(self, f: Callable[..., Any], *args: Any, **kwargs: Any):
        self.f, self.args, self.kwargs = f, args, kwargs

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HashablePartial):
            return NotImplemented
        return (self.f, self.args, self.kwargs) == (other.f, other.args, other.kwargs)

    def __hash__(self) -> int:
        return hash((self.f, self.args, frozenset(self.kwargs.items())))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*self.args, *args, **self.kwargs, **kwargs)


# ---- compiler


def backend_compile_and_load(backend: Any, *_args: Any, **_kwargs: Any) -> None:
    """Do nothing. weft calls this function with the backend before it compiles a program; programs
    replace it by a function that raises (`jax._src.compiler.backend_compile_and_load`) to forbid
    compilation."""


def _ask_before_compiling(backend: Any) -> None:
    module = sys.modules.get("jax._src.compiler")
    now = backend_compile_and_load if module is None else module.backend_compile_and_load
    if now is not backend_compile_and_load:
        now(backend)


hooks.before_compilation.append(_ask_before_compiling)


# ---- xla_bridge


class _Backends(Mapping[str, Backend]):
    """The initialized backends: until a backend has devices, their number can be set."""

    def _ready(self) -> dict[str, Backend]:
        return {name: backend for name, backend in base._backends.items() if backend._devices}

    def __getitem__(self, name: str) -> Backend:
        return self._ready()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ready())

    def __len__(self) -> int:
        return len(self._ready())


backends = _Backends()


def get_backend(platform: str | None = None) -> Backend:
    """Return the backend of a platform. `get_backend.cache_clear()`, which tests call after they
    change XLA_FLAGS, drops compiled programs; existing devices stay, since arrays refer to them."""
    return backend.get_backend(platform)


get_backend.cache_clear = backend.clear_backends  # type: ignore[attr-defined]
