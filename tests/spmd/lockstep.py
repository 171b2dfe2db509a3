"""An interpreter of local programs that runs all devices in step on NumPy: the oracle of partitioning.

Every variable holds one array per device. Ordinary equations run on each device by their reference; collectives are
done here from their definition, so that nothing but the meaning of ordinary ops is shared with what is tested.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from weft.ir.jaxpr import Jaxpr, Literal
from weft.ir.shardings import grid_of_dims


class Lockstep:
    """Devices in row-major order of the mesh `axes`, a sequence of (name, size)."""

    def __init__(self, axes):
        self.axes = tuple(axes)
        self.names = [name for name, _ in axes]
        self.sizes = dict(axes)
        self.coords = list(itertools.product(*(range(size) for _, size in axes)))

    def scatter(self, x, spec):
        """Shards of a global array, one per device."""
        splits, ids = grid_of_dims(tuple(spec), tuple(self.names), tuple(s for _, s in self.axes))
        local = [s // n for s, n in zip(x.shape, splits)]
        shards = []
        for shard in ids:
            at = np.unravel_index(shard, splits) if splits else ()
            shards.append(x[tuple(slice(p * n, (p + 1) * n) for p, n in zip(at, local))])
        return shards

    def gather(self, shards, spec):
        """The global array of shards; replicas must agree bit for bit."""
        splits, ids = grid_of_dims(tuple(spec), tuple(self.names), tuple(s for _, s in self.axes))
        local = shards[0].shape
        out = np.zeros([s * n for s, n in zip(local, splits)], shards[0].dtype)
        seen = {}
        for shard, block in zip(ids, shards):
            if shard in seen:
                np.testing.assert_array_equal(np.asarray(block), np.asarray(seen[shard]), err_msg="replicas differ")
            seen[shard] = block
            at = np.unravel_index(shard, splits) if splits else ()
            out[tuple(slice(p * n, (p + 1) * n) for p, n in zip(at, local))] = block
        return out

    def block(self, x, spec):
        """The storage of a global array: one block [splits..., local dims...]."""
        splits = [math.prod(self.sizes[a] for a in axes) for axes in spec]
        pairs = [n for s, k in zip(x.shape, splits) for n in (k, s // k)]
        rank = x.ndim
        return x.reshape(pairs).transpose([*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)])

    def whole(self, block):
        """The global array of a storage block."""
        rank = block.ndim // 2
        order = [d for k in range(rank) for d in (k, rank + k)]
        return block.transpose(order).reshape([block.shape[k] * block.shape[rank + k] for k in range(rank)])

    def run(self, jaxpr: Jaxpr, args):
        """Results per device of `jaxpr` on arguments per device."""
        n = len(self.coords)
        env = {v: [np.asarray(c)] * n for v, c in zip(jaxpr.constvars, jaxpr.consts)}
        env.update(zip(jaxpr.invars, args))
        read = lambda a: [np.asarray(a.val, a.aval.dtype)] * n if type(a) is Literal else env[a]
        for eqn in jaxpr.eqns:
            outs = self.eqn(eqn, [read(a) for a in eqn.invars])
            for var, values in zip(eqn.outvars, outs):
                for value in values:
                    got = (value.shape, value.dtype)
                    assert got == (var.aval.shape, var.aval.dtype), (eqn, got)
                env[var] = values
        return [read(a) for a in jaxpr.outvars]

    def eqn(self, eqn, ins):
        if eqn.primitive.kind == "collective":
            return self.collective(eqn.primitive.name, eqn.params, ins)
        if eqn.primitive.kind == "region":
            return self.region(eqn, ins)
        per_device = []
        for d in range(len(self.coords)):
            with np.errstate(all="ignore"):
                out = eqn.primitive.rule("reference")(*[x[d] for x in ins], **eqn.params)
            per_device.append([np.asarray(o) for o in (out if eqn.primitive.multiple_results else [out])])
        return [list(values) for values in zip(*per_device)]

    def region(self, eqn, ins):
        p, n = eqn.params, len(self.coords)
        if eqn.primitive.name == "scan":
            n_consts, n_carry = p["num_consts"], p["num_carry"]
            consts, carry, xs = ins[:n_consts], ins[n_consts:n_consts + n_carry], ins[n_consts + n_carry:]
            ys = []
            order = range(p["length"])
            for i in reversed(order) if p["reverse"] else order:
                outs = self.run(p["jaxpr"], [*consts, *carry, *[[x[i] for x in per] for per in xs]])
                carry, y = outs[:n_carry], outs[n_carry:]
                ys.append(y)
            if p["reverse"]:
                ys.reverse()
            return [*carry, *[[np.stack([y[k][d] for y in ys]) for d in range(n)]
                              for k in range(len(p["jaxpr"].outvars) - n_carry)]]
        if eqn.primitive.name == "while":
            nc, nb = p["cond_nconsts"], p["body_nconsts"]
            carry = ins[nc + nb:]
            while True:
                (go,) = self.run(p["cond_jaxpr"], [*ins[:nc], *carry])
                assert len({bool(g) for g in go}) == 1
                if not go[0]:
                    return carry
                carry = self.run(p["body_jaxpr"], [*ins[nc:nc + nb], *carry])
        if eqn.primitive.name == "cond":
            assert len({int(i) for i in ins[0]}) == 1
            k = min(max(int(ins[0][0]), 0), len(p["branches"]) - 1)
            return self.run(p["branches"][k], ins[1:])
        raise NotImplementedError(eqn.primitive.name)

    def groups(self, axes):
        """For each device the devices of its group along `axes`, in order of their flat number there."""
        places = [self.names.index(a) for a in axes]
        number = lambda c: sum(c[p] * math.prod(self.sizes[a] for a in axes[k + 1:]) for k, p in enumerate(places))
        rest = lambda c: tuple(v for i, v in enumerate(c) if i not in places)
        return [sorted((j for j, other in enumerate(self.coords) if rest(other) == rest(c)),
                       key=lambda j: number(self.coords[j])) for c in self.coords]

    def collective(self, name, p, ins):
        axes = p["axes"] if "axes" in p else p["axis_name"]
        axes = tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)
        groups = self.groups(axes)
        if name == "axis_index":
            return [[np.asarray(g.index(d), np.int32) for d, g in enumerate(groups)]]
        if name in ("psum", "pmax", "pmin"):
            fold = {"psum": np.add, "pmax": np.maximum, "pmin": np.minimum}[name]
            fold = np.logical_or if name == "psum" and ins[0][0].dtype == bool else fold
            return [[fold.reduce([x[j] for j in g]).astype(x[0].dtype) for g in groups] for x in ins]
        (x,) = ins
        if name == "all_gather":
            return [[np.concatenate([x[j] for j in g], p["all_gather_dimension"]) for g in groups]]
        if name == "reduce_scatter":
            parts = lambda d, g: np.split(np.add.reduce([x[j] for j in g]), len(g), p["scatter_dimension"])[g.index(d)]
            return [[parts(d, g).astype(x[0].dtype) for d, g in enumerate(groups)]]
        if name == "own_slice":
            return [[np.split(x[d], len(g), p["dim"])[g.index(d)] for d, g in enumerate(groups)]]
        if name == "all_to_all":
            piece = lambda j, d, g: np.split(x[j], len(g), p["split_axis"])[g.index(d)]
            return [[np.concatenate([piece(j, d, g) for j in g], p["concat_axis"]) for d, g in enumerate(groups)]]
        if name == "ppermute":
            source = {t: s for s, t in p["perm"]}
            get = lambda d, g: x[g[source[g.index(d)]]] if g.index(d) in source else np.zeros_like(x[d])
            return [[get(d, g) for d, g in enumerate(groups)]]
        raise NotImplementedError(name)
