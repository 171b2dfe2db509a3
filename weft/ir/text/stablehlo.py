"""The global program as StableHLO-style text, before it is partitioned, with the layouts that the user gave.

In:   a global Jaxpr, the shardings of its arguments and results (None where nothing is said).
Out:  a module. Shardings over named axes are written in the `sdy` dialect (`#sdy.sharding<@mesh, [{"a"}, {}]>`, `{?}` for a dim
      that is left open), others by the tiles that devices hold (`mhlo.sharding`); a shard_map is an `sdy.manual_computation`.
      The text is for people and for programs that search it; it is not parsed again.
Next: `hlo` writes the program of one device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from weft.ir.collective_spec import spec_of
from weft.ir.jaxpr import Eqn, Jaxpr, Literal, subjaxprs
from weft.ir.shardings import NamedSharding, Sharding, layout_of
from weft.ir.text.hlo import attributes, hlo_name, meeting, operands_of, pairs
from weft.ir.types import ShapedArray
from weft.util import dtypes


def stablehlo_text(jaxpr: Jaxpr, name: str, in_shardings: Sequence = (), out_shardings: Sequence = ()) -> str:
    """The program as a StableHLO-style module."""
    module = _Module()
    ins = list(in_shardings) + [None] * (len(jaxpr.invars) - len(in_shardings))
    outs = list(out_shardings) + [None] * (len(jaxpr.outvars) - len(out_shardings))
    main = module.function(jaxpr, "main", "public", ins, outs)
    meshes = [f"  sdy.mesh @{label} = <{mesh}>" for mesh, label in module.meshes.items()]
    devices = {s.num_devices for s in (*ins, *outs) if s is not None} | set(module.sizes)
    attributes_ = f" attributes {{mhlo.num_partitions = {max(devices)} : i32, mhlo.num_replicas = 1 : i32}}" if devices else ""
    return "\n".join([f"module @jit_{name}{attributes_} {{", *meshes, *main, *module.functions, "}", ""])


def tensor_type(aval: ShapedArray) -> str:
    """A type as StableHLO writes it."""
    short = dtypes.short_name(aval.dtype)
    name = {"bool": "i1", "u8": "ui8", "u16": "ui16", "u32": "ui32", "u64": "ui64", "c64": "complex<f32>", "c128": "complex<f64>"}
    return f"tensor<{''.join(f'{n}x' for n in aval.shape)}{name.get(short, short)}>"


def tiles_text(sharding: Sharding, ndim: int) -> str:
    """A sharding as the device that holds each tile, as XLA writes it.

    >>> from weft.ir.shardings import PositionalSharding
    >>> from weft.runtime.device import devices
    >>> tiles_text(PositionalSharding(devices()[:4]).reshape(2, 2), 2)
    '{devices=[2,2]0,1,2,3}'
    """
    layout = layout_of(sharding, ndim)
    if len(layout.devices) == 1:
        return f"{{maximal device={layout.devices[0].id}}}"
    if layout.is_replicated:
        return "{replicated}"
    copies = len(layout.devices) // layout.num_shards
    order = sorted(range(len(layout.devices)), key=lambda i: layout.shard_ids[i])
    dims = [*layout.splits, *([copies] if copies > 1 else [])]
    last = " last_tile_dim_replicate" if copies > 1 else ""
    return f"{{devices=[{','.join(map(str, dims))}]{','.join(map(str, order))}{last}}}"


class _Module:
    """The functions and the meshes of a module."""

    def __init__(self):
        self.meshes: dict[str, str] = {}
        self.sizes: list[int] = []
        self.functions: list[str] = []
        self.count = 0

    def mesh(self, mesh: Any) -> str:
        """The name of a mesh in the module."""
        self.sizes.append(math.prod(n for _, n in mesh.shape_tuple))
        text = "[" + ", ".join(f'"{name}"={size}' for name, size in mesh.shape_tuple) + "]"
        return self.meshes.setdefault(text, f"mesh_{len(self.meshes)}" if self.meshes else "mesh")

    def placed(self, sharding: NamedSharding, ndim: int) -> str:
        """`<@mesh, [{"a"}, {}]>`."""
        open_dims = sharding.spec.unconstrained_dims()
        dims = ["{?}" if d in open_dims else _axes(axes) for d, axes in enumerate(sharding.spec_dims(ndim))]
        return f"<@{self.mesh(sharding.mesh)}, [{', '.join(dims)}]>"

    def attribute(self, sharding: Sharding | None, aval: ShapedArray) -> str:
        """The sharding attribute of an argument or a result."""
        if sharding is None:
            return ""
        if isinstance(sharding, NamedSharding):
            return f" {{sdy.sharding = #sdy.sharding{self.placed(sharding, aval.ndim)}}}"
        return f' {{mhlo.sharding = "{tiles_text(sharding, aval.ndim)}"}}'

    def function(self, jaxpr: Jaxpr, name: str, visibility: str, ins: Sequence, outs: Sequence) -> list[str]:
        every = (*jaxpr.constvars, *jaxpr.invars)
        shardings = [None] * len(jaxpr.constvars) + list(ins)
        body = _Body(self, "    ")
        params = [f"{body.argument(v)}: {tensor_type(v.aval)}{self.attribute(s, v.aval)}" for v, s in zip(every, shardings)]
        results = ", ".join(f"{tensor_type(a)}{self.attribute(s, a)}" for a, s in zip(jaxpr.out_avals, outs))
        lines = [f"  func.func {visibility} @{name}({', '.join(params)}) -> ({results}) {{"]
        return [*lines, *body.run(jaxpr, "return"), "  }"]

    def call(self, eqn: Eqn) -> list[str]:
        """The names of the functions that an operation holds."""
        labels = []
        for key, inner in subjaxprs(eqn.params):
            self.count += 1
            labels.append(f"{eqn.params.get('name', key)}_{self.count}")
            none = [None] * max(len(inner.invars), len(inner.outvars))
            self.functions += self.function(inner, labels[-1], "private", none[:len(inner.invars)], none[:len(inner.outvars)])
        return [f"@{label}" for label in labels]


class _Body:
    """The lines of a function or of a region in it; a region continues the names of the enclosing function."""

    def __init__(self, module: _Module, indent: str, outer: _Body | None = None, mesh: Any = ()):
        self.module, self.indent, self.mesh = module, indent, mesh
        self.env: dict = {} if outer is None else outer.env
        self.counts: dict[str, int] = {"arg": 0, "cst": 0, "": 0} if outer is None else outer.counts
        self.lines: list[str] = []

    def name(self, kind: str) -> str:
        self.counts[kind] += 1
        return f"%{kind}{'_' * (kind == 'cst')}{self.counts[kind] - 1}"

    def argument(self, var: Any) -> str:
        self.env[var] = self.name("arg")
        return self.env[var]

    def add(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def read(self, atom: Any) -> str:
        if type(atom) is not Literal:
            return self.env[atom]
        known = self.name("cst")
        self.add(f"{known} = stablehlo.constant dense<{atom.val}> : {tensor_type(atom.aval)}")
        return known

    def run(self, jaxpr: Jaxpr, end: str) -> list[str]:
        for eqn in jaxpr.eqns:
            self.equation(eqn)
        results = ", ".join(self.read(a) for a in jaxpr.outvars)
        self.add(f"{end} {results} : {_types(jaxpr.outvars)}")
        return self.lines

    def equation(self, eqn: Eqn) -> None:
        operands = operands_of(eqn)
        args = ", ".join([self.read(a) for a in operands])
        result = self.name("")
        many = len(eqn.outvars) > 1
        for i, v in enumerate(eqn.outvars):
            self.env[v] = f"{result}#{i}" if many else result
        given = f"{result}{f':{len(eqn.outvars)}' if many else ''} = " if eqn.outvars else ""
        types = f"({_types(operands)}) -> ({_types(eqn.outvars)})"
        if eqn.primitive.name == "shard_map":
            self.manual(eqn, given, args, types)
        elif eqn.primitive.kind == "constraint":
            self.constraint(eqn, given, args, types)
        else:
            op = hlo_name(eqn.primitive.name).replace("-", "_").replace("dot", "dot_general", 1)
            op = f"custom_call @weft_{eqn.primitive.name}" if eqn.primitive.kind == "callback" else op
            extra = [*self.module.call(eqn), *self.attributes(eqn)]
            extra = f" {{{', '.join(extra)}}}" if extra else ""
            self.add(f"{given}stablehlo.{op} {args}{extra} : {types}")

    def constraint(self, eqn: Eqn, given: str, args: str, types: str) -> None:
        sharding, aval = eqn.params["sharding"], eqn.outvars[0].aval
        if isinstance(sharding, NamedSharding):
            self.add(f"{given}sdy.sharding_constraint {args} {self.module.placed(sharding, aval.ndim)} : {tensor_type(aval)}")
        else:
            text = "" if sharding is None else f' {{mhlo.sharding = "{tiles_text(sharding, aval.ndim)}"}}'
            self.add(f"{given}stablehlo.custom_call @Sharding({args}){text} : {types}")

    def manual(self, eqn: Eqn, given: str, args: str, types: str) -> None:
        """A shard_map: its program is a region of its own."""
        p, body = eqn.params, eqn.params["jaxpr"]
        label = self.module.mesh(p["mesh"])
        show = lambda specs, atoms: ", ".join(
            f"<@{label}, [{', '.join(map(_axes, spec.dims(a.aval.ndim)))}]>" for spec, a in zip(specs, atoms))
        inner = _Body(self.module, self.indent + "  ", self, p["mesh"].shape_tuple)
        params = ", ".join(f"{inner.argument(v)}: {tensor_type(v.aval)}" for v in (*body.constvars, *body.invars))
        self.add(f"{given}sdy.manual_computation({args}) in_shardings=[{show(p['in_specs'], eqn.invars)}] "
                 f"out_shardings=[{show(p['out_specs'], eqn.outvars)}] manual_axes={_axes(p['manual_axes'])} ({params}) {{")
        self.lines += inner.run(body, "sdy.return")
        self.add(f"}} : {types}")

    def attributes(self, eqn: Eqn) -> list[str]:
        """As in HLO, but groups of devices are dense arrays."""
        if eqn.primitive.kind != "collective" or not self.mesh:
            return [x for x in attributes(eqn, ()) if not x.startswith(("metadata", "backend_config"))]
        axes = [x for x in attributes(eqn, ()) if not x.startswith("metadata")]
        if "perm" in eqn.params:
            return [*axes, _dense("source_target_pairs", pairs(eqn, self.mesh))]
        return [*axes, _dense("replica_groups", meeting(eqn, self.mesh))] if not spec_of(eqn.primitive).is_local else axes


def _types(atoms: Iterable) -> str:
    return ", ".join(tensor_type(a.aval) for a in atoms)


def _axes(axes: Iterable) -> str:
    return "{" + ", ".join(f'"{a}"' for a in axes) + "}"


def _dense(name: str, rows: Sequence[Sequence[int]]) -> str:
    shape = f"{len(rows)}x{len(rows[0]) if rows else 0}"
    return f"{name} = dense<{[list(row) for row in rows]}> : tensor<{shape}xi64>"
