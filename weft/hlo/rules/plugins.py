"""What PJRT plugins lack, in plain operations: factorizations, host functions, rare collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.hlo.factorizations import banded, jacobi, lu, reflectors
from weft.hlo.lowering import result_types
from weft.hlo.ops import Block, Value, array_type
from weft.hlo.replicas import plugin_rule, plugin_rule_of_kind, refuse
from weft.ir.jaxpr import Eqn

# --- where values are -------------------------------------------------------------------------------------------------


@plugin_rule_of_kind("constraint")
def _same(b: Block, eqn: Eqn, x: Value) -> Value:
    """The program of one device has its layout already."""
    return x


@plugin_rule("layout_constraint")
def _own_layout(b: Block, eqn: Eqn, x: Value) -> Value:
    """The plugin chooses the layouts of values inside a program."""
    return x


# --- matrices ---------------------------------------------------------------------------------------------------------


def _written_as(fn: Callable) -> Callable:
    """A rule that writes `fn`, a program of other primitives, once for each type of its operands."""

    def rule(b: Block, eqn: Eqn, *args: Value) -> list[Value]:
        many = eqn.primitive.multiple_results
        run = lambda *xs: list(fn(*xs, **eqn.params)) if many else [fn(*xs, **eqn.params)]
        write = lambda block, *xs: block.context.inline_function(block, run, xs)
        key = tuple(sorted(eqn.params.items()))
        return b.context.shared(b, eqn.primitive.name, key, args, write)

    return rule


plugin_rule("lu")(_written_as(lu.lu))
plugin_rule("qr")(_written_as(reflectors.qr))
plugin_rule("eigh")(_written_as(jacobi.eigh))
plugin_rule("svd")(_written_as(jacobi.svd))
plugin_rule("hessenberg")(_written_as(reflectors.hessenberg))
plugin_rule("tridiagonal")(_written_as(reflectors.tridiagonal))
plugin_rule("ormqr")(_written_as(reflectors.ormqr))
plugin_rule("tridiagonal_solve")(_written_as(banded.tridiagonal_solve))


@plugin_rule("geqrf")
def _geqrf(b: Block, eqn: Eqn, x: Value) -> list[Value]:
    types = result_types(eqn)
    if not x.type.size:
        return [b.full(t.shape, 0, t.dtype) for t in types]
    return _expanded(b, "Qr", [x], types)


@plugin_rule("householder_product")
def _householder_product(b: Block, eqn: Eqn, a: Value, taus: Value) -> Value:
    missing = a.shape[-1] - taus.shape[-1]
    if not a.type.size:
        return a
    if missing:
        none = (0,) * (taus.ndim - 1)
        full = array_type((*taus.shape[:-1], a.shape[-1]), taus.dtype)
        zero = b.constant(0, taus.dtype)
        taus = b.op(
            "pad", taus, zero, type=full, low=(*none, 0), high=(*none, missing), interior=(*none, 0)
        )
    return _expanded(b, "ProductOfElementaryHouseholderReflectors", [a, taus], [a.type])[0]


def _expanded(b: Block, target: str, args: Sequence[Value], types: Sequence) -> list[Value]:
    """A custom call that XLA's compilers expand into operations."""
    return b.emit(
        "custom_call", args, types, target=target, backend_config={}, has_side_effect=False
    )


# --- the host ---------------------------------------------------------------------------------------------------------


@plugin_rule("eig", "schur")
@plugin_rule_of_kind("callback")
def _on_host(b: Block, eqn: Eqn, *args: Value) -> list[Value]:
    """A custom call of the backend's. On a mesh its first operand is the position of the device."""
    host = b.context.host
    if host is None:
        refuse(eqn, "runs on the host, which programs of this plugin cannot call.")
    position = [b.context.device_number(b)] if b.context.mesh.shape_tuple else []
    return b.emit(
        "custom_call",
        [*position, *args],
        result_types(eqn),
        target=host(eqn),
        backend_config={},
        api_version=4,
        has_side_effect=bool(eqn.effects),
    )
