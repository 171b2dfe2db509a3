"""The attributes of each operation in HLO's text, and rewrites of operations that HLO lacks."""

from __future__ import annotations

import json
from collections.abc import Sequence

from weft._engine.hlo.ops import (
    HloBlock,
    HloFunction,
    HloOp,
    HloValue,
)
from weft._engine.hlo.rules import arrays, elementwise, products, reductions, regions  # noqa: F401  (fill the table of rules)
from weft._engine.hlo.sharding_text import tiles_text
from weft._engine.hlo.text.computation import (
    Computation,
    braces,
    captured_values,
    device_braces,
    flag,
    form,
    rewrite,
)
from weft._engine.ir.mesh import Mesh
from weft._engine.ir.shardings import NamedSharding
from weft._engine.ir.specs import PartitionSpec
from weft._engine.ir.types import ShapedArray

# --- elements and dims


@form("compare")
def _compare(c: Computation, op: HloOp) -> list[str]:
    return [
        f"direction={op.attrs['direction']}",
        *(["type=TOTALORDER"] if op.attrs["kind"] == "TOTALORDER" else []),
    ]


@form("reduce_precision")
def _reduce_precision(c: Computation, op: HloOp) -> list[str]:
    return [f"{k}={op.attrs[k]}" for k in ("exponent_bits", "mantissa_bits")]


@form("iota")
def _iota(c: Computation, op: HloOp) -> list[str]:
    return [f"iota_dimension={op.attrs['dim']}"]


@form("broadcast_in_dim", "transpose", "reverse")
def _of_dims(c: Computation, op: HloOp) -> list[str]:
    return [f"dimensions={braces(op.attrs['dims'])}"]


@rewrite("broadcast_in_dim")
def _broadcast(c: Computation, op: HloOp) -> HloBlock | None:
    """Rewrite a broadcast of dims of size 1: they are removed by a reshape before the broadcast."""
    (x,), out, dims = op.operands, op.results[0].type, op.attrs["dims"]
    dims_kept = [i for i, d in enumerate(dims) if x.shape[i] == out.shape[d]]
    if len(dims_kept) == x.ndim:
        return None
    b = HloBlock(c.module.lowering)
    reshaped = b.reshape(x, [x.shape[i] for i in dims_kept])
    b.results = [
        b.op("broadcast_in_dim", reshaped, type=out, dims=tuple([dims[i] for i in dims_kept]))
    ]
    return b


@form("concatenate")
def _concatenate(c: Computation, op: HloOp) -> list[str]:
    return [f"dimensions={{{op.attrs['dim']}}}"]


@form("slice")
def _slice(c: Computation, op: HloOp) -> list[str]:
    bounds = zip(op.attrs["starts"], op.attrs["limits"], op.attrs["strides"])
    return [
        f"slice={{{', '.join(f'[{lo}:{hi}' + (f':{step}]' if step != 1 else ']') for lo, hi, step in bounds)}}}"
    ]


@form("pad")
def _pad(c: Computation, op: HloOp) -> list[str]:
    return [
        "padding="
        + "x".join(
            f"{lo}_{hi}_{gap}"
            for lo, hi, gap in zip(*(op.attrs[k] for k in ("low", "high", "interior")))
        )
    ]


@form("dynamic_slice")
def _dynamic_slice(c: Computation, op: HloOp) -> list[str]:
    return [f"dynamic_slice_sizes={braces(op.attrs['sizes'])}"]


def _number(op: HloOp, names: Sequence[str]) -> list[str]:
    """Return the dimension numbers of a gather or a scatter."""
    last = f"index_vector_dim={op.operands[1].ndim - 1}"
    parts = [
        f"{k}={braces(v)}"
        for k, v in zip(names, op.attrs["numbers"])
        if v or not k.endswith("batching_dims")
    ]
    return [
        *parts,
        last,
        *[f"{k}=true" for k in ("indices_are_sorted", "unique_indices") if op.attrs.get(k)],
    ]


@form("gather")
def _gather(c: Computation, op: HloOp) -> list[str]:
    names = (
        "offset_dims",
        "collapsed_slice_dims",
        "start_index_map",
        "operand_batching_dims",
        "start_indices_batching_dims",
    )
    return [*_number(op, names), f"slice_sizes={braces(op.attrs['sizes'])}"]


@form("scatter")
def _scatter(c: Computation, op: HloOp) -> list[str]:
    names = (
        "update_window_dims",
        "inserted_window_dims",
        "scatter_dims_to_operand_dims",
        "input_batching_dims",
        "scatter_indices_batching_dims",
    )
    return [*_number(op, names), _to_apply(c, op)]


# --- regions


def _to_apply(c: Computation, op: HloOp) -> str:
    return f"to_apply={c.module.combiner(op.regions[0])}"


@form("reduce")
def _reduce(c: Computation, op: HloOp) -> list[str]:
    return [f"dimensions={braces(op.attrs['dims'])}", _to_apply(c, op)]


def _window(
    sizes: Sequence[int],
    strides: Sequence[int],
    padding: Sequence,
    lhs: Sequence[int],
    rhs: Sequence[int],
) -> list[str]:
    by = lambda values: "x".join(map(str, values))
    if not sizes:
        return []
    return [
        f"window={{size={by(sizes)} stride={by(strides)} pad={by(f'{lo}_{hi}' for lo, hi in padding)} lhs_dilate={by(lhs)} "
        f"rhs_dilate={by(rhs)}}}"
    ]


@form("reduce_window")
def _reduce_window(c: Computation, op: HloOp) -> list[str]:
    a = op.attrs
    return [
        *_window(
            a["window"], a["strides"], a["padding"], a["base_dilations"], a["window_dilations"]
        ),
        _to_apply(c, op),
    ]


@form("sort")
def _sort(c: Computation, op: HloOp) -> list[str]:
    return [
        f"dimensions={{{op.attrs['dim']}}}",
        *(["is_stable=true"] if op.attrs["is_stable"] else []),
        _to_apply(c, op),
    ]


@form("case")
def _case(c: Computation, op: HloOp) -> tuple[str, list[str]]:
    """Write a conditional; each branch takes a tuple of the values that it reads."""
    reads = [captured_values([r], c.module.constants) for r in op.regions]
    operands = [c.ref(op.operands[0]), *[c.tuple(values) for values in reads]]
    labels = [
        c.module.region_computation("branch", r, values, carried=())
        for r, values in zip(op.regions, reads)
    ]
    return ", ".join(operands), [f"branch_computations={{{', '.join(labels)}}}"]


@form("while")
def _while(c: Computation, op: HloOp) -> tuple[str, list[str]]:
    """Write a loop; its state is a tuple of the carried and the captured values."""
    cond, body = op.regions
    reads = captured_values(op.regions, c.module.constants)
    state = c.tuple([*op.operands, *reads])
    computations = [
        f"condition={c.module.region_computation('condition', cond, reads)}",
        f"body={c.module.region_computation('body', body, reads, carried=reads)}",
    ]
    trips = op.attrs.get("trip_count")
    return state, [
        *computations,
        *(
            [f'backend_config={{"known_trip_count":{{"n":"{trips}"}}}}']
            if trips is not None
            else []
        ),
    ]


@form("func.call")
def _call(c: Computation, op: HloOp) -> list[str]:
    return [f"to_apply={c.module.callee_computation(op.attrs['callee'])}"]


@form("fusion")
def _fusion(c: Computation, op: HloOp) -> list[str]:
    name = c.module.unique_name("fused_computation")
    c.module.texts.append(c.module.computation(name[1:], op.regions[0]))
    return [f"kind={op.attrs['kind']}", f"calls={name}"]


@form("optimization_barrier")
def _barrier(c: Computation, op: HloOp) -> tuple[str, list[str]] | list[str]:
    return (c.tuple(op.operands), []) if len(op.operands) != 1 else []


# --- products and library calls


def _precision(op: HloOp) -> list[str]:
    kinds = [str(p).lower() for p in op.attrs["precision"]]
    return [f"operand_precision={braces(kinds)}"] if set(kinds) != {"default"} else []


@form("dot_general")
def _dot(c: Computation, op: HloOp) -> list[str]:
    (lb, rb), (lc, rc) = op.attrs["batching"], op.attrs["contracting"]
    batch = [f"lhs_batch_dims={braces(lb)}", f"rhs_batch_dims={braces(rb)}"] if lb else []
    algorithm = op.attrs["algorithm"]
    return [
        *batch,
        f"lhs_contracting_dims={braces(lc)}",
        f"rhs_contracting_dims={braces(rc)}",
        *_precision(op),
        *([f"algorithm=dot_{algorithm.name.lower()}"] if algorithm else []),
    ]


@form("convolution")
def _convolution(c: Computation, op: HloOp) -> list[str]:
    a = op.attrs

    def labels(dims: Sequence[int], letters: str) -> str:
        named = {d: (*letters, *range(len(dims) - 2))[i] for i, d in enumerate(dims)}
        return "".join(str(named[d]) for d in range(len(dims)))

    lhs, rhs, out = a["numbers"]
    sizes = [op.operands[1].shape[d] for d in rhs[2:]]
    counts = [f"{k}={a[k]}" for k in ("feature_group_count", "batch_group_count") if a[k] != 1]
    return [
        *_window(sizes, a["strides"], a["padding"], a["lhs_dilation"], a["rhs_dilation"]),
        f"dim_labels={labels(lhs, 'bf')}_{labels(rhs, 'oi')}->{labels(out, 'bf')}",
        *counts,
        *_precision(op),
    ]


@form("fft")
def _fft(c: Computation, op: HloOp) -> list[str]:
    return [f"fft_type={op.attrs['kind']}", f"fft_length={braces(op.attrs['lengths'])}"]


@form("cholesky")
def _cholesky(c: Computation, op: HloOp) -> list[str]:
    return [f"lower={flag(op.attrs['lower'])}"]


@form("triangular_solve")
def _triangular_solve(c: Computation, op: HloOp) -> list[str]:
    a = op.attrs
    return [
        *[f"{k}={flag(a[k])}" for k in ("left_side", "lower", "unit_diagonal")],
        f"transpose_a={a['transpose']}",
    ]


@form("custom_call")
def _custom_call(c: Computation, op: HloOp) -> list[str]:
    a = op.attrs
    attributes = [
        f"custom_call_target={json.dumps(a['target'])}",
        *(["custom_call_has_side_effect=true"] if a["has_side_effect"] else []),
    ]
    attributes += [f"sharding={a['sharding']}"] if "sharding" in a else []
    return [
        *attributes,
        *(
            [f"backend_config={json.dumps(json.dumps(a['backend_config']))}"]
            if a["backend_config"]
            else []
        ),
    ]


# --- several devices


def _custom(
    b: HloBlock, x: HloValue, target: str, sharding: str, type_: ShapedArray | None = None
) -> HloValue:
    return b.op(
        "custom_call",
        x,
        type=type_,
        target=target,
        backend_config={},
        sharding=sharding,
        has_side_effect=False,
    )


@rewrite("sdy.sharding_constraint")
def _constraint(c: Computation, op: HloOp) -> HloBlock:
    b = HloBlock(c.module.lowering)
    b.results = [_custom(b, op.operands[0], "Sharding", op.attrs["tiles"])]
    return b


@rewrite("sdy.manual_computation")
def _manual(c: Computation, op: HloOp) -> HloBlock:
    """Write a call of the body between custom calls that split arrays into shards and join them."""
    b, (body,), mesh = HloBlock(c.module.lowering), op.regions, op.attrs["mesh"]

    def tiles(spec: PartitionSpec, ndim: int) -> str:
        return (
            tiles_text(NamedSharding(mesh, spec), ndim) if isinstance(mesh, Mesh) else "{unknown}"
        )

    shards = [
        _custom(
            b,
            _custom(b, x, "Sharding", tiles(spec, x.ndim)),
            "SPMDFullToShardShape",
            "{manual}",
            inner.type,
        )
        for x, inner, spec in zip(op.operands, body.args, op.attrs["in_specs"])
    ]
    around = captured_values([body], c.module.constants)
    function = HloFunction(c.module.unique_name("shmap_body")[1:], HloBlock(c.module.lowering))
    function.body.args, function.body.ops, function.body.results = (
        [*body.args, *around],
        body.ops,
        body.results,
    )
    c.module.lowering.functions[function.name] = function
    results = b.emit(
        "func.call", [*shards, *around], [x.type for x in body.results], callee=function.name
    )
    b.results = [
        _custom(
            b,
            _custom(b, y, "Sharding", "{manual}"),
            "SPMDShardToFullShape",
            tiles(spec, y.ndim),
            out.type,
        )
        for y, out, spec in zip(results, op.results, op.attrs["out_specs"])
    ]
    return b


@form(
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "collective_permute",
    "collective_broadcast",
    "ragged_all_to_all",
)
def _collective(c: Computation, op: HloOp) -> list[str]:
    a, permuted = op.attrs, op.name == "collective_permute"
    attributes = [f"channel_id={a['channel']}"] if "channel" in a else []
    attributes.append(
        f"{'source_target_pairs' if permuted else 'replica_groups'}={device_braces(a['groups'])}"
    )
    if op.name in ("all_reduce", "all_gather", "reduce_scatter"):
        attributes.append("use_global_device_ids=true")
    return [
        *attributes,
        *([f"dimensions={{{a['dim']}}}"] if "dim" in a else []),
        *([_to_apply(c, op)] if op.regions else []),
    ]


@rewrite("all_to_all")
def _all_to_all(c: Computation, op: HloOp) -> HloBlock | None:
    """Exchange the parts of one dim; another concatenation dim needs a reshape and a transpose."""
    a, (x,) = op.attrs, op.operands
    if "split" not in a:
        return None
    split, concat, count = a["split"], a["concat"], a["count"]
    b = HloBlock(c.module.lowering)
    facts = {"channel": a["channel"], "groups": a["groups"]}
    if split == concat:
        b.results = [b.op("all_to_all", x, dim=split, **facts)]
        return b
    parts = b.reshape(x, (*x.shape[:split], count, x.shape[split] // count, *x.shape[split + 1 :]))
    got = b.op("all_to_all", parts, dim=split, **facts)
    order = [d for d in range(got.ndim) if d != split]
    order.insert(concat, split)
    b.results = [b.reshape(b.transpose(got, order), op.results[0].shape)]
    return b


@rewrite("custom_call")
def _ragged(c: Computation, op: HloOp) -> HloBlock | None:
    """Write a ragged exchange, which is an instruction in HLO and a custom call in StableHLO."""
    if op.attrs["target"] != "ragged_all_to_all":
        return None
    b = HloBlock(c.module.lowering)
    b.results = b.emit(
        "ragged_all_to_all", op.operands, [x.type for x in op.results], groups=op.attrs["groups"]
    )
    return b
