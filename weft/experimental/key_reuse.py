"""Analysis of the use of random keys by functions, for the checks of `weft.debug_key_reuse`.

In:   functions, or traced programs.
Out:  a `KeyReuseSignature`: consumed inputs (`Sink`), results that are new unused keys (`Source`), and results that are
      keys of an input (`Forward`). A key that is used twice raises KeyReuseError.
Next: `api.key_reuse`, which follows keys through programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft._engine.api.arrays import make_jaxpr
from weft._engine.api.key_reuse import KeySignature, is_key, signature_of
from weft._engine.ir.jaxpr import Jaxpr
from weft._engine.ir.registry import registry
from weft._engine.ops import keys
from weft._engine.util.config import debug_key_reuse
from weft._engine.util.errors import KeyReuseError

__all__ = [
    "Forward",
    "KeyReuseError",
    "KeyReuseSignature",
    "Sink",
    "Source",
    "assert_consumed",
    "assert_unconsumed",
    "check_key_reuse",
    "consume",
    "consume_p",
    "function_type_signature",
    "jaxpr_type_signature",
    "key_reuse_signatures",
]


class _MaskedKeys:
    """The keys at one position, all or those selected by a mask; immutable."""

    __slots__ = ("idx", "mask")

    idx: int
    mask: bool | np.ndarray

    def __init__(self, idx: int, mask: bool | np.ndarray = True):
        consumed = np.array(mask, bool)
        consumed.flags.writeable = False
        object.__setattr__(self, "idx", idx)
        object.__setattr__(
            self, "mask", bool(consumed.any()) if consumed.all() or not consumed.any() else consumed
        )

    def __setattr__(self, name: str, value: Any) -> None:
        raise ValueError(f"{type(self).__name__} is immutable: {name} cannot be set.")

    def _key(self) -> tuple:
        return type(self).__name__, self.idx, np.shape(self.mask), np.asarray(self.mask).tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _MaskedKeys) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.idx})"
            if self.mask is True
            else f"{type(self).__name__}({self.idx}, {self.mask})"
        )


class Sink(_MaskedKeys):
    """Keys of an input that are consumed.

    >>> Sink(0), Sink(1, np.array([True, False])), Sink(0) == Sink(0, np.array([True, True]))
    (Sink(0), Sink(1, [ True False]), True)
    """


class Source(_MaskedKeys):
    """Keys of a result that are new and unused.

    >>> Source(0)
    Source(0)
    """


class Forward(NamedTuple):
    """A result that holds the keys of an input.

    >>> Forward(1, 0)
    Forward(1, 0)
    """

    in_idx: int
    out_idx: int

    def __repr__(self) -> str:
        return f"Forward({self.in_idx}, {self.out_idx})"


class KeyReuseSignature:
    """The key use of a function: a set of `Sink`, `Source` and `Forward`.

    >>> KeyReuseSignature(Source(0), Sink(0)) == KeyReuseSignature(Sink(0), Source(0)), KeyReuseSignature(Source(0), Sink(1))
    (True, KeyReuseSignature(Sink(1), Source(0)))
    """

    def __init__(self, *entries: Sink | Source | Forward):
        self._entries = frozenset(entries)

    def _of(self, kind: type) -> list:
        entries: list[Any] = [e for e in self._entries if isinstance(e, kind)]
        return sorted(entries, key=tuple if kind is Forward else _MaskedKeys._key)

    @property
    def sinks(self) -> list[Sink]:
        """Return the inputs whose keys are consumed."""
        return self._of(Sink)

    @property
    def sources(self) -> list[Source]:
        """Return the results that are new keys."""
        return self._of(Source)

    @property
    def forwards(self) -> list[Forward]:
        """Return the results that hold keys of inputs."""
        return self._of(Forward)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeyReuseSignature) and self._entries == other._entries

    def __hash__(self) -> int:
        return hash(self._entries)

    def __repr__(self) -> str:
        return f"KeyReuseSignature({', '.join(map(repr, (*self.sinks, *self.sources, *self.forwards)))})"


# ---- functions


def jaxpr_type_signature(jaxpr: Jaxpr) -> KeyReuseSignature:
    """Return the key use of a program's inputs, constants after arguments; KeyReuseError if it uses a key twice."""
    return _shown(signature_of(jaxpr), jaxpr)


def function_type_signature(fun: Callable, *args: Any) -> KeyReuseSignature:
    """Return the use by `fun` of keys in its flattened arguments; KeyReuseError if it uses a key twice.

    >>> function_type_signature(lambda key: weft.random.split(key), weft.random.key(0))
    KeyReuseSignature(Sink(0), Source(0))
    """
    with debug_key_reuse(True):
        return jaxpr_type_signature(make_jaxpr(fun)(*args))


def check_key_reuse(fun: Callable, *args: Any) -> None:
    """Raise KeyReuseError if `fun` uses a random key twice; it is traced, not run.

    >>> check_key_reuse(lambda key: weft.random.normal(key), weft.random.key(0))
    """
    function_type_signature(fun, *args)


def _shown(signature: KeySignature, jaxpr: Jaxpr) -> KeyReuseSignature:
    sinks = [
        Sink(i, mask) for i, mask in enumerate(signature.uses) if mask is not None and mask.any()
    ]
    sources: list[Source | Forward] = []
    sizes = [int(np.prod(v.aval.shape)) if is_key(v.aval) else -1 for v in jaxpr.invars]
    for o, key_mask in enumerate(signature.results):
        if key_mask is None:
            continue
        source_inputs = {source[0] for source, _ in key_mask if source is not None}
        if not source_inputs and not any(used for _, used in key_mask):
            sources.append(Source(o))
        elif len(source_inputs) == 1 and [source for source, _ in key_mask] == [
            (min(source_inputs), k) for k in range(sizes[min(source_inputs)])
        ]:
            sources.append(Forward(min(source_inputs), o))
    return KeyReuseSignature(*sinks, *sources)


# ---- assertions

# the operation of `consume`: it reads keys and marks them as consumed
consume_p = keys.random_unwrap_p


def consume(key: Any) -> Any:
    """Return the key, marked as consumed."""
    keys.random_unwrap(key, uses=True)
    return key


def assert_consumed(key: Any, value: Any = True) -> None:
    """Assert that the keys where `value` is true are consumed and the others are not; a check of the function raises AssertionError.

    Keys that a slice or a concatenation has copied to another array count as consumed in their original array.
    """
    keys.random_unwrap_p.bind(key, expects=(np.shape(value), tuple(np.ravel(value).tolist())))


def assert_unconsumed(key: Any) -> None:
    """Assert that no key is consumed; a check of the function raises AssertionError otherwise."""
    assert_consumed(key, False)


#: signatures of operations, equal to the signatures of programs that consist of them
key_reuse_signatures: dict[Any, KeyReuseSignature] = {
    consume_p: KeyReuseSignature(Sink(0), Forward(0, 0)),
    keys.random_wrap_p: KeyReuseSignature(Source(0)),
    **{
        registry[name]: KeyReuseSignature(Forward(0, 0))
        for name in (
            "broadcast_in_dim",
            "copy",
            "convert_element_type",
            "reshape",
            "squeeze",
            "dynamic_slice",
        )
        if registry.find(name) is not None
    },
    registry["dynamic_update_slice"]: KeyReuseSignature(
        Source(0)
    ),  # the positions are unknown, so its keys count as new
}
