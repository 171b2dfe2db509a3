"""A training step as a program: one micro batch through the layers of one pipeline stage, and the optimizer.

In:   a dense model and a layout without pipeline; a mesh with the axes "data", "context" and "tensor".
Out:  a function of the training state and the tokens, and the types and shardings of both.
Laws: layers are one `scan`. Attention is computed for one head of a device at a time, and
      recomputed in the backward pass, so that only one head's scores are in memory. `verification`
      compiles the program; it never runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import weft.numpy as wnp
from weft import lax, nn
from weft._engine.api.arrays import ShapeDtypeStruct
from weft._engine.api.autodiff import value_and_grad
from weft._engine.api.checkpointing import (
    checkpoint,
    checkpoint_name,
    dots_saveable,
    save_from_both_policies,
    save_only_these_names,
)
from weft._engine.planner.layout import TrainingLayout
from weft._engine.planner.transformer import TransformerModel
from weft._engine.util.record import record
from weft.sharding import Mesh, NamedSharding, PartitionSpec
from weft.tree_util import tree_map

#: axes over which ZeRO divides
_REPLICAS = ("data", "context")
#: kind of recomputation -> the saved values. Elementwise ops and gathers of divided values are
#: always repeated.
_POLICIES = {
    "none": save_from_both_policies(dots_saveable, save_only_these_names("attention", "middle")),
    "selective": save_only_these_names("queries", "values", "attention", "middle", "up"),
    "full": None,
}
_LEARNING_RATE, _DECAY, _DECAY_OF_SQUARES, _EPSILON = 1e-4, 0.9, 0.95, 1e-8


@record
class TrainingProgram:
    """A training step: `step(state, tokens)` returns the new state and the loss; `state` and `tokens` are types with shardings."""

    step: Callable[..., Any]
    state: Any
    tokens: Any


def training_program(
    model: TransformerModel, layout: TrainingLayout, mesh: Mesh
) -> TrainingProgram:
    """Return the step of `model` with the shardings of `layout`.

    Raise NotImplementedError for unsupported models: experts, latent attention, parallel blocks,
    several pipeline stages, and fewer heads of keys than devices of the tensor axis.
    """
    _check(model, layout)
    program = _TrainingStepBuilder(model, layout, mesh)
    return TrainingProgram(program.step, program.state(), program.tokens())


def _check(model: TransformerModel, layout: TrainingLayout) -> None:
    missing = {
        "experts": model.experts > 0,
        "latent attention": model.latent > 0,
        "parallel blocks": model.parallel_block,
        "pipelines": layout.pipeline > 1,
        "fewer heads of keys than devices of the tensor axis": model.kv_heads % layout.tensor > 0,
        "micro batches": layout.micro_batches > 1,
    }
    names = [name for name, is_missing in missing.items() if is_missing]
    if names:
        raise NotImplementedError(f"training_program: {', '.join(names)} are not implemented.")


class _TrainingStepBuilder:
    """The step of one model, layout and mesh."""

    def __init__(self, model: TransformerModel, layout: TrainingLayout, mesh: Mesh):
        self.model, self.layout, self.mesh = model, layout, mesh

    # ---- types

    def weights(self) -> dict[str, tuple[tuple[int, ...], PartitionSpec]]:
        """Return the shape of each parameter, and its spec before ZeRO."""
        model, spec = self.model, PartitionSpec
        layers, hidden, width = model.layers, model.hidden, model.feed_forward
        queries, keys = model.query_width, model.kv_width
        columns, rows = spec(None, None, "tensor"), spec(None, "tensor", None)
        weights = {
            "queries": ((layers, hidden, queries), columns),
            "keys": ((layers, hidden, keys), columns),
            "values": ((layers, hidden, keys), columns),
            "attention": ((layers, queries, hidden), rows),
            "up": ((layers, hidden, width), columns),
            "down": ((layers, width, hidden), rows),
            "norms": ((layers, 2, hidden), spec(None, None, None)),
            "embedding": ((model.vocab, hidden), spec(None, "tensor")),
        }
        if model.gated:
            weights["gate"] = ((layers, hidden, width), columns)
        if not model.tied:
            weights["head"] = ((hidden, model.vocab), spec(None, "tensor"))
        return weights

    def divide_over_replicas(self, shape: tuple[int, ...], spec: PartitionSpec) -> PartitionSpec:
        """Return a spec that also divides the largest whole dim over the replicas, if one is a multiple of them."""
        free = [
            d
            for d, axes in enumerate(spec)
            if axes is None and shape[d] % self.layout.replicas == 0
        ]
        if not free:
            return spec
        best = max(free, key=lambda d: shape[d])
        return PartitionSpec(*(_REPLICAS if d == best else axes for d, axes in enumerate(spec)))

    def specs(self, from_stage: int) -> dict[str, PartitionSpec]:
        """Return the spec of each parameter, divided from a ZeRO stage on."""
        is_divided = self.layout.zero >= from_stage
        return {
            name: self.divide_over_replicas(shape, spec) if is_divided else spec
            for name, (shape, spec) in self.weights().items()
        }

    def types(self, dtype: str, specs: Mapping[str, PartitionSpec]) -> dict[str, Any]:
        """Return the parameters' types and shardings."""
        return {
            name: ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(self.mesh, specs[name]))
            for name, (shape, _) in self.weights().items()
        }

    def state(self) -> dict[str, Any]:
        """Return the type of the training state: 16-bit parameters, and three 32-bit copies for the optimizer."""
        optimizer = self.specs(1)
        copies = {name: self.types("float32", optimizer) for name in ("master", "mean", "square")}
        return {"parameters": self.types("bfloat16", self.specs(3)), **copies}

    def tokens(self) -> Any:
        """Return the type of the tokens of a micro batch of all replicas."""
        shape = self.layout.data * self.layout.micro_batch, self.model.seq
        sharding = NamedSharding(self.mesh, PartitionSpec("data", "context"))
        return ShapeDtypeStruct(shape, "int32", sharding=sharding)

    def place(self, x: Any, *axes: Any) -> Any:
        """Return `x` with a sharding."""
        return lax.with_sharding_constraint(x, NamedSharding(self.mesh, PartitionSpec(*axes)))

    # ---- computation

    def step(self, state: dict[str, Any], tokens: Any) -> tuple[dict[str, Any], Any]:
        """Return the state after a step of Adam, and the loss."""
        loss, gradients = value_and_grad(self.loss)(state["parameters"], tokens)
        specs = self.specs(1)
        gradients = {
            name: self.place(gradient, *specs[name]).astype("float32")
            for name, gradient in gradients.items()
        }
        mean = tree_map(lambda m, g: _DECAY * m + (1 - _DECAY) * g, state["mean"], gradients)
        rate = _DECAY_OF_SQUARES
        square = tree_map(lambda s, g: rate * s + (1 - rate) * g * g, state["square"], gradients)
        master = tree_map(
            lambda w, m, s: w - _LEARNING_RATE * m / (wnp.sqrt(s) + _EPSILON),
            state["master"],
            mean,
            square,
        )
        specs = self.specs(3)
        parameters = {
            name: self.place(w.astype("bfloat16"), *specs[name]) for name, w in master.items()
        }
        return {"parameters": parameters, "master": master, "mean": mean, "square": square}, loss

    def loss(self, parameters: dict[str, Any], tokens: Any) -> Any:
        """Return the mean loss of predicting each token's successor (here: the token itself, which costs the same)."""
        weights = dict(parameters)
        embedding = weights.pop("embedding")
        head = weights.pop("head", None)
        x = self.residual(embedding[tokens])
        layer = checkpoint(self.layer, policy=_POLICIES[self.layout.recompute])
        x, _ = lax.scan(lambda x, w: (layer(x, w), None), x, weights)
        logits = self.place(
            x @ (embedding.T if head is None else head), "data", "context", "tensor"
        )
        logits = logits.astype("float32")
        chosen: Any = wnp.take_along_axis(logits, tokens[..., None], axis=-1)
        normalizer: Any = nn.logsumexp(logits, axis=-1)
        return (normalizer - chosen[..., 0]).mean()

    def residual(self, x: Any) -> Any:
        """Return the residual stream with its sharding, divided over the tensor axis too in sequence parallelism."""
        axes = ("context", "tensor") if self.layout.sequence_parallel else "context"
        return self.place(x, "data", axes, None)

    def layer(self, x: Any, weights: dict[str, Any]) -> Any:
        """Return the result of a layer."""
        if self.layout.zero >= 3:
            weights = {name: self.gather_weight(name, weight) for name, weight in weights.items()}
        attended = self.attention(self.norm(x, weights["norms"][0]), weights)
        x = checkpoint_name(self.residual(x + attended), "middle")
        inputs = self.norm(x, weights["norms"][1])
        inner = checkpoint_name(inputs @ weights["up"], "up")
        if "gate" in weights:
            inner = nn.silu(inputs @ weights["gate"]) * inner
        else:
            inner = nn.gelu(inner)
        return self.residual(x + inner @ weights["down"])

    def gather_weight(self, name: str, weight: Any) -> Any:
        """Return the weight of one layer, gathered for this layer alone; its gradient is divided again."""
        divided, whole = self.specs(3)[name], self.weights()[name][1]
        weight = self.place(weight, *list(divided)[1:])
        return self.place(weight, *list(whole)[1:])

    def norm(self, x: Any, scale: Any) -> Any:
        """Return `x` divided by the root of its mean square, gathered over the tensor axis."""
        x32 = x.astype("float32")
        rate = lax.rsqrt((x32 * x32).mean(axis=-1, keepdims=True) + _EPSILON)
        return self.place((x32 * rate).astype(x.dtype) * scale, "data", "context", None)

    def attention(self, x: Any, weights: dict[str, Any]) -> Any:
        """Return the result of attention: on each device one head after the other."""
        model, tensor = self.model, self.layout.tensor
        batch, seq, _ = x.shape
        keys_each = model.kv_heads // tensor
        group = model.heads // model.kv_heads
        queries = checkpoint_name(x @ weights["queries"], "queries")
        queries = queries.reshape(batch, seq, tensor, keys_each, group, model.head_dim)
        queries = queries.transpose(3, 4, 0, 2, 1, 5)

        def by_head(y: Any) -> Any:
            y = y.reshape(batch, seq, tensor, keys_each, model.head_dim)
            return self.place(y.transpose(3, 0, 2, 1, 4), None, "data", "tensor", None, None)

        keys = by_head(x @ weights["keys"])
        values = by_head(checkpoint_name(x @ weights["values"], "values"))
        mixed = lax.map(lambda heads: self.heads(*heads), (queries, keys, values))
        mixed = mixed.transpose(2, 4, 3, 0, 1, 5).reshape(batch, seq, model.query_width)
        mixed = self.place(mixed, "data", "context", "tensor")
        return checkpoint_name(mixed, "attention") @ weights["attention"]

    def heads(self, queries: Any, keys: Any, values: Any) -> Any:
        """Return the attention of all queries' heads that share the keys of a head."""

        @checkpoint
        def attend_block(q: Any) -> Any:
            scores = wnp.einsum("btqd,btkd->btqk", q, keys).astype("float32")
            positions = wnp.arange(scores.shape[-1])
            scores = wnp.where(positions[:, None] >= positions, scores, -1e30)
            return wnp.einsum("btqk,btkd->btqd", nn.softmax(scores).astype(q.dtype), values)

        return lax.map(
            lambda q: self.place(attend_block(q), "data", "tensor", "context", None), queries
        )
