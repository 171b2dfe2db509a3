"""The options of jit, and the selection of static and donated arguments.

In:   the user's arguments of `jit`, and the function.
Out:  `JitOptions`, checked and completed: argument numbers and names agree if the signature is known.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from weft._engine import backends
from weft._engine.api.flat import argument_names, check_argnames, signature_of
from weft._engine.api.layouts import check_no_unconstrained_dims
from weft._engine.backends.base import Device
from weft._engine.ir.shardings import SingleDeviceSharding
from weft._engine.util.record import record, replace
from weft._engine.util.source import function_name, positional_names, warn_user

_NOT_BY_NAME = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


@record
class JitOptions:
    """The parameters of `jit`, in its order."""

    in_shardings: Any = None
    out_shardings: Any = None
    # the user's values; tuples after `for_function`
    static_argnums: Any = None
    static_argnames: Any = None
    donate_argnums: Any = None
    donate_argnames: Any = None
    keep_unused: bool = False
    device: Device | None = None
    backend: str | None = None
    inline: bool = False
    compiler_options: dict | None = None

    def values(self) -> tuple:
        """Return the values of all fields."""
        return tuple([getattr(self, name) for name in OPTION_NAMES])

    def for_function(self, fun: Callable) -> JitOptions:
        """Return the options with shardings instead of a device, and with matching tuples of argument numbers and names."""
        for what in ("in_shardings", "out_shardings"):
            if getattr(self, what) is not None:
                check_no_unconstrained_dims(
                    getattr(self, what), f"jit({function_name(fun)}): {what}"
                )
        parameters = Parameters(fun)
        static = parameters.select(self.static_argnums, self.static_argnames, "static")
        donated = parameters.select(self.donate_argnums, self.donate_argnames, "donate")
        clash = set(static[0]) & set(donated[0]) | set(static[1]) & set(donated[1])
        if clash:
            raise ValueError(
                f"jit: static_argnames and donate_argnames cannot intersect, nor the numbers: {sorted(map(str, clash))} "
                "are both static and donated."
            )
        options = replace(
            self,
            static_argnums=static[0],
            static_argnames=static[1],
            donate_argnums=donated[0],
            donate_argnames=donated[1],
        )
        if self.device is None:
            return options
        target = SingleDeviceSharding(self.device)
        return replace(options, in_shardings=target, out_shardings=target)

    def check_device(self) -> None:
        """Reject the deprecated argument `device` together with options that contradict it, and an unknown `backend`."""
        if self.backend is not None:
            backends.get(self.backend)
        if self.device is None:
            return
        warn_user(
            "jit: the argument device is deprecated. Put the arguments where you want them with "
            "weft.device_put(x, device) instead.",
            DeprecationWarning,
        )
        if not isinstance(self.device, Device):
            raise TypeError(
                f"jit: device must be a Device, got {self.device!r}. in_shardings and out_shardings take shardings."
            )
        if self.backend is not None:
            raise ValueError(
                "jit: can't specify both a device and a backend for jit; the device determines the backend."
            )
        for what in ("in_shardings", "out_shardings"):
            if getattr(self, what) is not None:
                raise ValueError(
                    f"jit: if a device is specified on jit, then {what} should not be specified: shardings have devices. "
                    "Leave the device out."
                )


if TYPE_CHECKING:

    class JitArguments(TypedDict, total=False):
        """The keyword arguments of `jit`."""

        in_shardings: Any
        out_shardings: Any
        static_argnums: int | Sequence[int] | None
        static_argnames: str | Iterable[str] | None
        donate_argnums: int | Sequence[int] | None
        donate_argnames: str | Iterable[str] | None
        keep_unused: bool
        device: Device | None
        backend: str | None
        inline: bool
        abstracted_axes: Any
        compiler_options: dict | None


OPTION_NAMES: tuple[str, ...] = JitOptions.__match_args__
DEFAULT_OPTIONS = JitOptions()


class Parameters:
    """The parameters of a function, for selecting some by numbers or names."""

    def __init__(self, fun: Callable):
        self.function_name = function_name(fun)
        signature = signature_of(fun)
        self.by_name = None if signature is None else signature.parameters
        kinds = [] if signature is None else list(signature.parameters.values())
        self.positional = [] if signature is None else positional_names(signature)
        self.is_variadic = any(p.kind == p.VAR_POSITIONAL for p in kinds)
        self.takes_keywords = any(p.kind == p.VAR_KEYWORD for p in kinds)

    def select(
        self,
        argnums: int | Iterable[int] | None,
        argnames: str | Iterable[str] | None,
        what: str,
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return numbers and names of the selected parameters; unspecified ones are derived from the others."""
        numbers = () if argnums is None else (argnums,) if isinstance(argnums, int) else argnums
        numbers = tuple(numbers)
        names = () if argnames is None else check_argnames(argnames, "jit", f"{what}_argnames")
        for n in numbers:
            if not isinstance(n, int):
                raise TypeError(f"jit: {what}_argnums must be integers, got {n!r}.")
        if self.by_name is None:
            if names and argnums is None:
                raise ValueError(
                    f"jit: Getting the signature of function {self.function_name} failed. Pass {what}_argnums instead of "
                    f"{what}_argnames, or both."
                )
            return numbers, names
        self._check_names(names, what)
        numbers = self._checked_numbers(numbers, what)
        if argnames is None:
            names = self._names_of(numbers)
        elif argnums is None:
            numbers = tuple([self.positional.index(n) for n in names if n in self.positional])
        return numbers, names

    def _check_names(self, names: tuple[str, ...], what: str) -> None:
        assert self.by_name is not None
        for name in names:
            parameter = self.by_name.get(name)
            if parameter is not None and parameter.kind in _NOT_BY_NAME:
                raise ValueError(
                    f"jit got invalid argnames {name!r} in {what}_argnames: this parameter cannot be passed by name."
                )
            if parameter is None and not self.takes_keywords:
                raise ValueError(
                    f"jit got invalid argnames {name!r} in {what}_argnames: the function takes {tuple(self.by_name)}."
                )

    def _checked_numbers(self, numbers: tuple[int, ...], what: str) -> tuple[int, ...]:
        """Return nonnegative numbers; for a variadic function, return the numbers unchanged."""
        count = len(self.positional)
        if self.is_variadic:
            return numbers
        for n in numbers:
            if not -count <= n < count:
                raise ValueError(
                    f"jit got invalid argnum {n} in {what}_argnums: the function takes {count} positional arguments."
                )
        return tuple([n % count for n in numbers])

    def _names_of(self, numbers: tuple[int, ...]) -> tuple[str, ...]:
        """Return the names of numbered parameters that can be passed by name."""
        assert self.by_name is not None
        names = [self.positional[n] for n in numbers if 0 <= n < len(self.positional)]
        return tuple(
            [n for n in names if self.by_name[n].kind == inspect.Parameter.POSITIONAL_OR_KEYWORD]
        )


class StaticValue:
    """A static argument in a cache key; errors name the argument."""

    __slots__ = ("value", "_hash")

    def __init__(self, value: Any, key: int | str, fun: Callable):
        try:
            self._hash = hash((type(value), value))
        except TypeError:
            name = (
                key
                if isinstance(key, str)
                else argument_names(signature_of(fun), range(key + 1), {})[key]
            )
            raise ValueError(
                f"jit({function_name(fun)}): Non-hashable static arguments are not supported: {name} of type {type(value)} is "
                f"{value!r}, which is not hashable. Static arguments are part of the cache key; pass a tuple instead of a list, "
                "or do not make it static."
            ) from None
        self.value = value

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StaticValue) or type(self.value) is not type(other.value):
            return False
        try:
            return self.value == other.value
        except Exception as error:
            raise ValueError(
                f"jit: static arguments should be comparable using __eq__, which failed for values of type "
                f"{type(self.value)}: {type(error).__name__}: {error}"
            ) from error
