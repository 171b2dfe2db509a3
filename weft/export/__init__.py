"""Exported programs: functions traced ahead of time for fixed or symbolic sizes, saved as bytes, and called by other programs.

In:   a jitted function, and the types of its arguments, whose sizes may be symbolic (`symbolic_shape`).
Out:  an `Exported`: its types, `call`, `vjp`, and `serialize`; `deserialize` restores it in another process.
How:  the program is a jaxpr, traced once. Its types and parameters hold expressions of the symbolic sizes. A call
      computes the sizes from its arguments and checks the constraints; `polymorphic` evaluates the expressions.

>>> from weft import export
>>> b, = export.symbolic_shape("b")
>>> exported = export.export(weft.jit(lambda x: wnp.sin(x).mean(axis=0)))(weft.ShapeDtypeStruct((b, 3), wnp.float32))
>>> exported.in_avals, exported.out_avals
((ShapedArray(float32[b,3]),), (ShapedArray(float32[3]),))
>>> export.deserialize(exported.serialize()).call(wnp.zeros((5, 3)))
Array([0., 0., 0.], dtype=float32)

Next to read: `ir/symbolic/sizes.py` (sizes), `polymorphic` (programs for all sizes), `format` (bytes).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft._engine import backends
from weft._engine.api.autodiff import vjp as vjp_of
from weft._engine.api.calls.options import DEFAULT_OPTIONS
from weft._engine.api.jit import JitFunction, jit
from weft._engine.api.stages import result_paths, specified_sharding
from weft._engine.api.struct import ShapeDtypeStruct
from weft._engine.control.call import jit_p
from weft._engine.control.call_rules import plain_params
from weft._engine.control.custom_partition import without_partitions
from weft._engine.control.custom_rules import custom_vjp
from weft._engine.core.sealed_classes import Sealed
from weft._engine.core.stage import stage
from weft._engine.core.trace import Tracer, current_trace, eval_trace, typeof
from weft._engine.ir.jaxpr import Atom, Eqn, Jaxpr
from weft._engine.ir.mesh import AbstractMesh, Mesh
from weft._engine.ir.program_mesh import (
    constraint_shardings,
    express_on_mesh,
    is_abstract,
    move_to_devices,
    without_devices,
)
from weft._engine.ir.rewrite import dce, inline_calls, map_jaxprs
from weft._engine.ir.shardings import MemorySpace, NamedSharding, Sharding
from weft._engine.ir.symbolic import (
    InconsistentSizesError,
    SymbolicDim,
    SymbolicScope,
    UnsolvableSizesError,
    is_symbolic_dim,
    names_in,
    solve,
)
from weft._engine.ir.types import ShapedArray
from weft._engine.runtime.array import Array
from weft._engine.transforms.expand_library_ops import expand
from weft._engine.util import dtypes, tree
from weft._engine.util.config import config
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import api_boundary, function_name, guard_all
from weft.export import format as bytes_format
from weft.export.polymorphic import instantiate, is_polymorphic
from weft.export.symbolic_shapes import symbolic_args_specs, symbolic_shape

__all__ = [
    "DisabledSafetyCheck", "Exported", "SymbolicScope", "default_export_platform", "deserialize", "export", "is_symbolic_dim",
    "maximum_supported_calling_convention_version", "minimum_supported_calling_convention_version", "register_namedtuple_serialization",
    "register_pytree_node_serialization", "symbolic_args_specs", "symbolic_shape",
]  # fmt: skip

#: the page that explains the errors of calls with other shapes
_DOCS = "https://docs.jax.dev/en/latest/export/shape_poly.html"
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
maximum_supported_calling_convention_version = 10
minimum_supported_calling_convention_version = 9


@dataclasses.dataclass(frozen=True)
class DisabledSafetyCheck:
    """A safety check to skip: `platform()`, which compares the platform of a call with the platforms of the export.
    `custom_call(target)` is accepted and has no effect.

    >>> DisabledSafetyCheck.platform()
    DisabledSafetyCheck.platform()
    """

    _impl: str

    @staticmethod
    def platform() -> DisabledSafetyCheck:
        """The check that the platform of a call is a platform of the export."""
        return DisabledSafetyCheck("platform")

    @staticmethod
    def custom_call(target_name: str) -> DisabledSafetyCheck:
        """The check that a custom call with this name is stable."""
        return DisabledSafetyCheck(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """Return the name of the custom call, or None for another check."""
        kind, _, name = self._impl.partition(":")
        return name if kind == "custom_call" else None

    def __repr__(self) -> str:
        name = self.is_custom_call()
        return (
            f"DisabledSafetyCheck.{self._impl}()"
            if name is None
            else f"DisabledSafetyCheck.custom_call({name!r})"
        )


# ---- exported programs


class Exported(metaclass=Sealed):
    """A program traced ahead of time, with its types.

    `in_avals` and `out_avals` are the types of the flat arguments and results; `in_tree` and `out_tree` are their
    structures. `in_tree` is the structure of a pair of positional and keyword arguments, without static arguments.
    `nr_devices` is the number of devices of the program; a program for one device may be called on any number.
    """

    _created_by = "weft.export.export and weft.export.deserialize"

    def __init__(
        self,
        fun_name: str,
        jaxpr: Jaxpr,
        in_tree: Any,
        out_tree: Any,
        platforms: Sequence[str],
        disabled_safety_checks: Sequence[DisabledSafetyCheck],
        get_vjp: Callable[[Exported], Exported] | None,
        nr_devices: int,
        in_shardings: Sequence[NamedSharding | None],
        out_shardings: Sequence[NamedSharding | None],
        polymorphic: bool,
    ) -> None:
        self.fun_name = fun_name
        self.in_tree, self.out_tree = in_tree, out_tree
        self.in_avals = tuple(map(_with_memory_space, jaxpr.in_avals, in_shardings))
        plain = jaxpr if self.in_avals == jaxpr.in_avals else inline_calls(jaxpr)
        # a result that is an argument has the argument's sharding
        passed: dict[Atom, Any] = dict(zip(plain.invars, in_shardings))
        self.out_avals = tuple(
            _with_memory_space(v.aval, s or passed.get(v))
            for v, s in zip(plain.outvars, out_shardings)
        )
        self.platforms = tuple(platforms)
        self.disabled_safety_checks = tuple(disabled_safety_checks)
        self.nr_devices, self._in_shardings, self._out_shardings = (
            nr_devices,
            tuple(in_shardings),
            tuple(out_shardings),
        )
        self.in_shardings_hlo = (None,) * len(self.in_avals)
        self.out_shardings_hlo = (None,) * len(self.out_avals)
        self.ordered_effects = self.unordered_effects = ()
        self.calling_convention_version = maximum_supported_calling_convention_version
        self.module_kept_var_idx = tuple(range(len(self.in_avals)))
        self._jaxpr, self._get_vjp, self._vjp, self._polymorphic = jaxpr, get_vjp, None, polymorphic
        self._traced: Callable[..., list] = lambda *leaves: self._bind(leaves, {})
        self._programs: dict[tuple, Jaxpr] = {}

    def __repr__(self) -> str:
        return f"Exported(fun_name={self.fun_name!r}, in_avals={self.in_avals}, out_avals={self.out_avals}, platforms={self.platforms})"

    @property
    def uses_global_constants(self) -> bool:
        """True if the program has inputs other than its arguments: symbolic sizes, also of exported programs that it calls, or
        the platform."""
        return self._polymorphic or len(self.platforms) > 1

    @property
    def _is_symbolic(self) -> bool:
        return any(isinstance(n, SymbolicDim) for aval in self.in_avals for n in aval.shape)

    def mlir_module(self) -> str:
        """Return the program as StableHLO text, with the shardings and names of arguments and results. Symbolic sizes are
        dynamic in its types, and computed from the shapes of arguments.

        Raises NotImplementedError for an operation that StableHLO has for fixed sizes only, and for a dim variable that is
        not a size of an argument.
        """
        from weft._engine.hlo.text.stablehlo import (
            stablehlo_text,
        )  # imported lazily: most exports never print StableHLO

        program = (
            self._jaxpr
            if self._is_symbolic
            else dce(without_partitions(expand(_called_program(self._jaxpr))))
        )
        flag = {"jax.uses_shape_polymorphism": str(self.uses_global_constants).lower()}
        return stablehlo_text(
            program,
            self.fun_name,
            self._in_shardings,
            self._out_shardings,
            debug_info=True,
            chlo=not self._is_symbolic,
            arg_names=_paths(self.in_tree),
            result_paths=result_paths(self.out_tree),
            attributes=flag,
        )

    def in_shardings_jax(self, mesh: Mesh | AbstractMesh) -> tuple[NamedSharding | None, ...]:
        """Return the shardings of the flat arguments on `mesh`, which may differ from the mesh of the export in devices and
        in names and sizes of axes. An argument without a sharding has None. ShardingError if the mesh cannot express them.

        >>> exported = export(weft.jit(wnp.cos))(ShapeDtypeStruct((2,), wnp.float32))
        >>> exported.in_shardings_jax(weft.make_mesh((2,), ('x',), devices=weft.devices()[:2]))
        (None,)
        """
        return tuple(
            s and express_on_mesh(s, mesh, a.ndim)
            for s, a in zip(self._in_shardings, self.in_avals)
        )

    def out_shardings_jax(self, mesh: Mesh | AbstractMesh) -> tuple[NamedSharding | None, ...]:
        """Return the shardings of the flat results on `mesh`; None for a result without a sharding."""
        return tuple(
            s and express_on_mesh(s, mesh, a.ndim)
            for s, a in zip(self._out_shardings, self.out_avals)
        )

    # calls

    @api_boundary
    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. The arguments have the structure, dtypes and shapes of the export; symbolic sizes take any sizes
        that satisfy the constraints.

        The program runs on the devices of its arguments. Other programs can call it, and `vmap` can map it; it can be
        differentiated once for each `vjp` that was serialized. Raises ValueError for arguments that do not match, for
        arguments on another number of devices than the program's shardings, and on a platform outside of `platforms`.
        """
        leaves, in_tree = tree.tree_flatten((args, kwargs))
        if in_tree != self.in_tree:
            raise ValueError(
                "call: The invocation args and kwargs must have the same pytree structure as when the function "
                f"'{self.fun_name}' was exported.\n"
                f"    exported  {self.in_tree}\n    called    {in_tree}"
                f"{tree.describe_difference(self.in_tree, in_tree, 'exported', 'called')}"
            )
        platform = _platform_of(leaves)
        allowed = (platform, "gpu") if platform in ("cuda", "rocm") else (platform,)
        if (
            not {*allowed} & {*self.platforms}
            and DisabledSafetyCheck.platform() not in self.disabled_safety_checks
        ):
            raise ValueError(
                f"Function '{self.fun_name}' was exported for platforms '{self.platforms}' but it is used on '{(platform,)}'."
            )
        devices = self._devices(leaves)
        sizes = self._sizes([typeof(x) for x in leaves])
        if not any(dtypes.issubdtype(a.dtype, np.inexact) for a in (*self.in_avals,)):
            outs: Any = self._bind(leaves, sizes, devices)
        else:
            outs = _differentiable(self, sizes, devices)(*leaves)
        return tree.tree_unflatten(self.out_tree, outs)

    def _devices(self, leaves: Sequence[Any]) -> tuple | None:
        """Return the devices of the arguments if they are known and the program has shardings. ValueError if the number differs."""
        if self.nr_devices == 1 or not leaves:
            return None
        values = [x.concrete() if isinstance(x, Tracer) else x for x in leaves]
        if any(x is None for x in values):
            return None
        devices = max(
            (x.sharding.device_assignment if isinstance(x, Array) else (None,) for x in values),
            key=len,
        )
        if len(devices) != self.nr_devices:
            if current_trace() is not eval_trace:
                # constants of a program move to the devices of the call
                return None
            raise ValueError(
                f"Function '{self.fun_name}' was exported for {quantity(self.nr_devices, 'device')} and is called in a context with "
                f"{quantity(len(devices), 'device')}.\n  Move the arguments to a mesh of {quantity(self.nr_devices, 'device')} "
                "with weft.device_put."
            )
        return devices

    def _sizes(self, avals: Sequence[ShapedArray]) -> dict[str, Any]:
        """Return the values of the symbolic sizes, computed from the types of arguments."""
        sizes_to_solve = []
        paths = _paths(self.in_tree)
        for path, expected, got in zip(paths, self.in_avals, avals):
            if expected.dtype != got.dtype:
                raise ValueError(
                    f"Dtype mismatch for {path}: expected {expected.dtype} and called with {got.dtype}"
                )
            if len(expected.shape) != len(got.shape):
                raise ValueError(
                    f"Rank mismatch for {path}: expected {expected.shape} and called with {got.shape}"
                )
            for i, (n, m) in enumerate(zip(expected.shape, got.shape)):
                if isinstance(n, SymbolicDim):
                    sizes_to_solve.append((n.expression, m, f"{path}.shape[{i}]"))
                elif n != m:
                    raise ValueError(
                        f"Shape mismatch for {path}.shape[{i}] (expected same constant): expected {expected.shape} and called "
                        f"with {got.shape}"
                    )
        if not sizes_to_solve:
            return {}
        scope = next(
            n.scope for aval in self.in_avals for n in aval.shape if isinstance(n, SymbolicDim)
        )
        try:
            sizes = solve(sizes_to_solve, scope)
        except UnsolvableSizesError as error:
            raise ValueError(
                f"{error} {self._specified(paths)} Unprocessed specifications: {', '.join(error.unprocessed)}. Please see "
                f"{_DOCS}#dimension-variables-must-be-solvable-from-the-input-shapes for more details."
            ) from None
        except InconsistentSizesError as error:
            raise ValueError(
                f"Input shapes do not match the polymorphic shapes specification. {error.reason} {self._specified(paths)} "
                f"Obtained dimension variables: {''.join(f'{match}, ' for match in error.solutions)}. Please see "
                f"{_DOCS}#shape-assertion-errors for more details."
            ) from None
        return sizes

    def _specified(self, paths: Sequence[str]) -> str:
        shapes = ", ".join(
            f"{path}.shape = {_shape_text(a)}" for path, a in zip(paths, self.in_avals)
        )
        return f"Using the following polymorphic shapes specifications: {shapes}."

    def _bind(
        self, leaves: Sequence[Any], sizes: Mapping[str, Any], devices: tuple | None = None
    ) -> list:
        key = *sizes.items(), devices
        program = self._programs.get(key)
        if program is None:
            program = (
                instantiate(self._jaxpr, sizes) if sizes or len(self.platforms) > 1 else self._jaxpr
            )
            program = self._programs[key] = (
                program if devices is None else move_to_devices(program, devices)
            )
        return jit_p.bind(*leaves, **plain_params(program, f"call_exported_{self.fun_name}"))

    # derivatives

    def has_vjp(self) -> bool:
        """Return True if the program can be differentiated in reverse mode."""
        return self._get_vjp is not None

    def vjp(self) -> Exported:
        """Return the exported VJP: it maps the flat arguments and a cotangent of each floating-point result to the cotangents
        of the floating-point arguments. ValueError if the program was deserialized without a VJP."""
        if self._get_vjp is None:
            raise ValueError(
                f"No VJP is available for '{self.fun_name}'; serialize it with vjp_order=1 or more to keep one."
            )
        if self._vjp is None:
            self._vjp = self._get_vjp(self)
        return self._vjp

    # bytes

    @api_boundary
    def serialize(self, vjp_order: int = 0) -> bytearray:
        """Return the program as bytes, with `vjp_order` derivatives.

        Raises ValueError if the program holds Python functions, or if the trees of arguments or results have nodes of
        unregistered types (`register_pytree_node_serialization`)."""
        return bytes_format.to_bytes(self._parts(vjp_order))

    def _parts(self, vjp_order: int) -> dict[str, Any]:
        return {
            "fun_name": self.fun_name,
            "jaxpr": self._jaxpr,
            "platforms": self.platforms,
            "in_tree": bytes_format.tree_to_plain(self.in_tree),
            "out_tree": bytes_format.tree_to_plain(self.out_tree),
            "disabled": tuple(check._impl for check in self.disabled_safety_checks),
            "vjp": self.vjp()._parts(vjp_order - 1) if vjp_order > 0 else None,
            "polymorphic": self._polymorphic,
            "nr_devices": self.nr_devices,
            "in_shardings": self._in_shardings,
            "out_shardings": self._out_shardings,
        }


def _called_program(jaxpr: Jaxpr) -> Jaxpr:
    """Return the called program if `jaxpr` only calls one program with its own arguments; else `jaxpr`."""
    while len(jaxpr.eqns) == 1 and jaxpr.eqns[0].primitive is jit_p:
        (call,) = jaxpr.eqns
        if (
            tuple(call.invars) != tuple(jaxpr.invars)
            or tuple(call.outvars) != tuple(jaxpr.outvars)
            or jaxpr.consts
        ):
            break
        jaxpr = call.params["jaxpr"]
    return jaxpr


def _with_memory_space(aval: ShapedArray, sharding: NamedSharding | None) -> ShapedArray:
    """Return the type with the memory space of a sharding."""
    kind = None if sharding is None else sharding.memory_kind
    return aval if kind in (None, "device") else aval.update(memory_space=MemorySpace.Host)


def _shape_text(aval: ShapedArray) -> str:
    """Return the shape as text: `(3, a + 1)`."""
    return f"({', '.join(map(str, aval.shape))}{',' if aval.ndim == 1 else ''})"


def _paths(in_tree: Any) -> list[str]:
    """Return the names of the flat arguments: args[0], kwargs['scale'].x."""
    paths, _ = tree.tree_flatten_with_path(
        tree.tree_unflatten(in_tree, list(range(in_tree.num_leaves)))
    )
    return [("args" if path[0].idx == 0 else "kwargs") + tree.keystr(path[1:]) for path, _ in paths]


def _inexact(avals: Sequence[ShapedArray]) -> list[int]:
    return [i for i, a in enumerate(avals) if dtypes.issubdtype(a.dtype, np.inexact)]


def _differentiable(
    exported: Exported, sizes: Mapping[str, Any], devices: tuple | None
) -> Callable[..., Any]:
    """Return the program as a function of flat arguments whose derivative is the exported VJP."""

    @custom_vjp
    def run(*leaves: Any) -> tuple:
        return tuple(exported._bind(leaves, sizes, devices))

    def forward(*leaves: Any) -> tuple:
        return run(*leaves), leaves

    def backward(leaves: tuple, cts: tuple) -> tuple:
        float_cts = [cts[i] for i in _inexact(exported.out_avals)]
        float_results = iter(exported.vjp().call(*leaves, *float_cts))
        inexact = set(_inexact(exported.in_avals))
        return tuple(next(float_results) if i in inexact else None for i in range(len(leaves)))

    run.defvjp(forward, backward)
    return run


def _exported_vjp(exported: Exported) -> Exported:
    n = len(exported.in_avals)
    inexact_in, floats = _inexact(exported.in_avals), _inexact(exported.out_avals)

    def backward(*operands: Any) -> tuple:
        leaves, cts = list(operands[:n]), operands[n:]

        def of_floats(*xs: Any) -> list:
            full = list(leaves)
            for i, x in zip(inexact_in, xs):
                full[i] = x
            outs = exported._traced(*full)
            return [outs[i] for i in floats]

        _, pull = vjp_of(of_floats, *[leaves[i] for i in inexact_in])
        return tuple(pull(list(cts)))

    avals = [*exported.in_avals, *[exported.out_avals[i] for i in floats]]
    structs = [ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in avals]
    backward.__name__ = f"{exported.fun_name}_vjp"
    placed = [*exported._in_shardings, *[exported._out_shardings[i] for i in floats]]
    return _export(
        jit(backward),
        structs,
        {},
        exported.platforms,
        exported.disabled_safety_checks,
        devices_and_shardings=(
            exported.nr_devices,
            placed,
            [exported._in_shardings[i] for i in inexact_in],
        ),
    )


# ---- exporting


def default_export_platform() -> str:
    """Return the default platform of exports: the platform of the default devices.

    >>> default_export_platform()
    'cpu'
    """
    return backends.get().lowering_platform


def _platform_of(leaves: Sequence[Any]) -> str:
    """Return the platform of a call with these arguments."""
    placed = [
        x.sharding.device_assignment[0].client for x in leaves if type(x) is Array and x.committed
    ]
    return (placed[0] if placed else backends.get()).lowering_platform


def export(
    fun_jit: Callable[..., Any],
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[DisabledSafetyCheck] = (),
    _override_lowering_rules: Sequence[Any] | None = None,
) -> Callable[..., Exported]:
    """Return a function that exports the jitted `fun_jit` for the arguments of its call: arrays, or `ShapeDtypeStruct`s,
    whose sizes may be symbolic.

    The program may be called on `platforms`. Raises ValueError if the function is not a result of `jit`, if a platform is
    unknown, or if sizes of different scopes are mixed; InconclusiveDimensionOperation if the function branches on a
    symbolic size.

    >>> export(weft.jit(wnp.cos))(wnp.ones(3)).out_avals
    (ShapedArray(float32[3]),)
    """
    if _override_lowering_rules is not None:
        raise NotImplementedError(
            "export: _override_lowering_rules is not supported; weft compiles without lowering rules of MLIR."
        )
    if not hasattr(fun_jit, "lower"):
        raise ValueError(f"Function to be exported must be the result of `jit` but is: {fun_jit}")
    chosen = (
        (default_export_platform(),) if platforms is None else tuple(p.lower() for p in platforms)
    )
    for platform in chosen:
        if platform not in (*_PLATFORMS, "gpu"):
            raise ValueError(
                f"export: platforms are among {', '.join(_PLATFORMS)}, got {platform!r}."
            )

    def do_export(*args: Any, **kwargs: Any) -> Exported:
        version = config.export_calling_convention_version
        if (
            not minimum_supported_calling_convention_version
            <= version
            <= maximum_supported_calling_convention_version
        ):
            raise ValueError(
                f"export: The requested export calling convention version {version} is outside the range of supported "
                f"versions, {minimum_supported_calling_convention_version} to {maximum_supported_calling_convention_version}."
            )
        return _export(fun_jit, args, kwargs, chosen, disabled_checks)

    return do_export


def _export(
    fun_jit: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    platforms: Sequence[str],
    disabled_checks: Sequence[DisabledSafetyCheck],
    devices_and_shardings: tuple[
        int, Sequence[NamedSharding | None], Sequence[NamedSharding | None]
    ]
    | None = None,
) -> Exported:
    """Return the exported function. `devices_and_shardings` is its number of devices and its shardings, if known."""
    name = function_name(getattr(fun_jit, "fun", fun_jit))
    leaves, in_tree, rebuild = _flatten(fun_jit, tuple(args), dict(kwargs))
    avals = [x.aval if isinstance(x, ShapeDtypeStruct) else typeof(x) for x in leaves]
    out_tree: list = []

    def flat(*values: Any) -> list:
        call_args, named = rebuild(list(values))
        outs, structure = tree.tree_flatten(fun_jit(*call_args, **named))
        out_tree[:] = [structure]
        return outs

    traced = _trace(flat, avals, _paths(in_tree), name)
    program = _strip_derivative_rules(traced)
    if devices_and_shardings is None:
        requested_in, given_out = _requested_shardings(
            fun_jit, args, kwargs, len(leaves), len(program.outvars)
        )
        given_in = [s or specified_sharding(x) for s, x in zip(requested_in, leaves)]
        named = [
            s
            for s in (*given_in, *given_out, *constraint_shardings(program))
            if s is not None and not is_abstract(s)
        ]
        plain = lambda shardings, avals: [
            s and without_devices(s, a.ndim) for s, a in zip(shardings, avals)
        ]
        given_out = [s or a.explicit for s, a in zip(given_out, program.out_avals)]
        devices_and_shardings = (
            max((s.num_devices for s in named), default=1),
            plain(given_in, avals),
            plain(given_out, program.out_avals),
        )
    exported = Exported.make(
        name,
        move_to_devices(program, None),
        in_tree,
        out_tree[0],
        platforms,
        disabled_checks,
        _exported_vjp,
        *devices_and_shardings,
        is_polymorphic(traced),
    )
    exported._traced = flat  # differentiate the traced function, which has its custom rules
    return exported


def _flatten(
    fun_jit: Callable[..., Any], args: tuple, kwargs: dict
) -> tuple[Sequence[Any], Any, Callable[[list], tuple[tuple, dict]]]:
    """Return the leaves of the arguments, their structure, and a function that rebuilds arguments from other leaves and the static ones."""
    if isinstance(fun_jit, JitFunction):
        call = fun_jit._flatten(args, kwargs)
        statics, in_tree = call.statics, call.in_tree
        return call.leaves, in_tree, lambda values: fun_jit._rebuild(statics, in_tree, values)
    leaves, in_tree = tree.tree_flatten((args, kwargs))
    return leaves, in_tree, lambda values: tree.tree_unflatten(in_tree, values)


def _requested_shardings(
    fun_jit: Any, args: Sequence[Any], kwargs: Mapping[str, Any], n_in: int, n_out: int
) -> tuple[Sequence[Sharding | None], Sequence[Sharding | None]]:
    """Return the `in_shardings` and `out_shardings` of a jitted function, one for each leaf of the arguments and results."""
    options = fun_jit.options if isinstance(fun_jit, JitFunction) else DEFAULT_OPTIONS
    if options.in_shardings is None and options.out_shardings is None:
        return [None] * n_in, [None] * n_out
    program = fun_jit.trace(*args, **kwargs)._program
    return program.in_shardings, program.out_shardings


def _trace(
    flat: Callable[..., Sequence], avals: Sequence[ShapedArray], paths: Sequence[str], name: str
) -> Jaxpr:
    """Return the program of a function of flat arguments of these types, valid for all of their symbolic sizes."""
    if any(isinstance(n, SymbolicDim) for aval in avals for n in aval.shape):
        _check_scopes(avals, paths, name)
    return stage(flat, avals, name)


def _check_scopes(avals: Sequence[ShapedArray], paths: Sequence[str], name: str) -> None:
    """Raise ValueError for sizes of several scopes, and for constraints on sizes that are not sizes of an argument."""
    placed = [
        (n, path)
        for aval, path in zip(avals, paths)
        for n in aval.shape
        if isinstance(n, SymbolicDim)
    ]
    dims, (first, first_path) = [n for n, _ in placed], placed[0]
    scope = first.scope
    other, other_path = next(((n, path) for n, path in placed if n.scope is not scope), (None, ""))
    if other is not None:
        raise ValueError(
            f"Invalid mixing of symbolic scopes when exporting {name}: the sizes belong to different scopes.\n"
            f"  Expected current (from {first_path}) scope {scope}\n"
            f"  and found for '{other}' ({other_path}) scope {other.scope}.\n"
            "  Make the sizes by one call of symbolic_shape or symbolic_args_specs, or pass the same scope=."
        )
    unknown = {n: constraint for n, constraint in scope.names().items() if n not in names_in(dims)}
    if unknown:
        n, constraint = next(iter(unknown.items()))
        raise ValueError(
            f"export: {name}: Encountered dimension variable '{n}' in the constraint {constraint!r}, and no argument has a "
            f"size with it, which would tell its value in a call. Argument shapes: {', '.join(map(_shape_text, avals))}."
        )


def _strip_derivative_rules(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program without calls that only attach derivative rules, which are Python functions."""

    def has_rule(eqn: Eqn) -> bool:
        return (
            bool(eqn.primitive.only_derivatives)
            and "jaxpr" in eqn.params
            and "transpose" not in eqn.params
        )

    plain = inline_calls(jaxpr, has_rule)
    return plain.replace(
        eqns=[
            eqn.replace(params=map_jaxprs(eqn.params, _strip_derivative_rules))
            for eqn in plain.eqns
        ]
    )


@api_boundary
def deserialize(blob: bytes | bytearray) -> Exported:
    """Return the program that `Exported.serialize` wrote. Raise ValueError for other bytes.

    >>> deserialize(export(weft.jit(wnp.cos))(wnp.ones(3)).serialize()).call(wnp.zeros(3))
    Array([1., 1., 1.], dtype=float32)
    """
    return _made(bytes_format.from_bytes(blob))


def _made(parts: Mapping[str, Any]) -> Exported:
    vjp = parts["vjp"]
    return Exported.make(
        parts["fun_name"],
        parts["jaxpr"],
        bytes_format.tree_from_plain(parts["in_tree"]),
        bytes_format.tree_from_plain(parts["out_tree"]),
        parts["platforms"],
        [DisabledSafetyCheck(name) for name in parts["disabled"]],
        None if vjp is None else lambda _: _made(vjp),
        parts["nr_devices"],
        parts["in_shardings"],
        parts["out_shardings"],
        parts.get("polymorphic", False),
    )


# ---- types of trees


def register_pytree_node_serialization(
    nodetype: type,
    *,
    serialized_name: str,
    serialize_auxdata: Callable[[Any], bytes],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Sequence[Any]], Any] | None = None,
) -> type:
    """Make a registered pytree type serializable in the arguments and results of exported programs. `serialized_name`
    identifies it in the bytes; the other functions convert its static data to bytes and back. Return the type. Raise
    ValueError if the type or the name is already registered."""
    bytes_format.register(nodetype, serialized_name, serialize_auxdata, deserialize_auxdata)
    return nodetype


def register_namedtuple_serialization(nodetype: type, *, serialized_name: str) -> type:
    """Make a namedtuple serializable in the arguments and results of exported programs, with this name in the bytes. Return the type."""
    if not (issubclass(nodetype, tuple) and hasattr(nodetype, "_fields")):
        raise ValueError(
            f"Use `register_pytree_node_serialization` for types other than `collections.namedtuple`, got {nodetype}."
        )
    bytes_format.register(nodetype, serialized_name, None, None)
    return nodetype


guard_all(globals(), ["symbolic_shape", "symbolic_args_specs"])
