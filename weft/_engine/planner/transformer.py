"""The shape of a transformer, from which its parameters, FLOPs and bytes follow.

In:   the numbers of a model's config.
Out:  `TransformerModel`, with counts of parameters and FLOPs.
"""

from __future__ import annotations

from weft._engine.util.record import record, replace


@record
class TransformerModel:
    """A decoder-only transformer, dense or with experts.

    Parameters, in elements unless said otherwise:

    - `hidden`, `layers`, `heads`, `seq`, `vocab`: width, depth, query heads, tokens of a sequence, rows of the embedding.
    - `feed_forward`: width inside the MLP of a dense layer (default `4 * hidden`).
    - `kv_heads`: heads of keys and values (default `heads`); `head_dim`: width of a head (default `hidden / heads`).
    - `gated`: whether the MLP has a gate (three matrices instead of two).
    - `flash`: whether attention is fused, so that no matrix of scores is stored; `causal`: whether it skips masked blocks.
    - `tied`: whether the output projection shares the embedding.
    - `parallel_block`: whether attention and MLP read the same input, and their results are added together.
    - `dropout`: whether a layer has dropout.
    - `experts`, `experts_per_token`, `expert_width`: experts of a layer, experts that a token uses, and their inner width
      (default `feed_forward`); no experts make the model dense.
    - `shared_width`: inner width of experts that all tokens use.
    - `dense_layers`: layers at the start that have a dense MLP although the others have experts.
    - `latent`: rank of compressed keys and values (multi-head latent attention); 0 for none.

    Numbers that are not positive, heads that are no multiple of `kv_heads` and more experts per token than experts raise
    `ValueError`.

    >>> model = TransformerModel(hidden=4096, layers=32, heads=32, seq=4096, vocab=32000, feed_forward=11008, gated=True)
    >>> f"{model.parameters / 1e9:.2f}"
    '6.61'
    """

    __module__ = "weft.auto"

    hidden: int
    layers: int
    heads: int
    seq: int
    vocab: int
    feed_forward: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    gated: bool = False
    flash: bool = True
    causal: bool = True
    tied: bool = True
    parallel_block: bool = False
    dropout: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_width: int = 0
    shared_width: int = 0
    dense_layers: int = 0
    latent: int = 0
    name: str = "model"

    def __post_init__(self) -> None:
        defaults = {
            "feed_forward": 4 * self.hidden,
            "kv_heads": self.heads,
            "head_dim": self.hidden // max(1, self.heads),
            "expert_width": self.feed_forward or 4 * self.hidden,
            "experts_per_token": min(1, self.experts),
        }
        for field, value in defaults.items():
            object.__setattr__(self, field, getattr(self, field) or value)
        self._check()

    def _check(self) -> None:
        sizes = (
            "hidden",
            "layers",
            "heads",
            "seq",
            "vocab",
            "feed_forward",
            "kv_heads",
            "head_dim",
        )
        wrong = [f"{name} = {getattr(self, name)!r}" for name in sizes if getattr(self, name) < 1]
        counts = ("experts", "shared_width", "dense_layers", "latent")
        wrong += [f"{name} = {getattr(self, name)!r}" for name in counts if getattr(self, name) < 0]
        if wrong:
            raise ValueError(f"TransformerModel: {', '.join(wrong)}. Sizes are positive.")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"TransformerModel: {self.heads} heads share {self.kv_heads} kv_heads. The number of heads is a multiple of kv_heads."
            )
        if self.experts_per_token > self.experts or self.dense_layers > self.layers:
            raise ValueError(
                f"TransformerModel: {self.experts_per_token} experts_per_token of {self.experts} experts, "
                f"{self.dense_layers} dense_layers of {self.layers} layers. A part is not larger than the whole."
            )

    # ---- widths

    @property
    def query_width(self) -> int:
        """The width of all queries."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """The width of all keys, and of all values."""
        return self.kv_heads * self.head_dim

    @property
    def mlp_matrices(self) -> int:
        """Matrices of an MLP: 3 if it has a gate."""
        return 3 if self.gated else 2

    @property
    def expert_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    # ---- parameters

    @property
    def attention_parameters(self) -> int:
        """Parameters of the attention and the norms of a layer."""
        keys_values = 2 * self.hidden * self.kv_width
        if self.latent:
            keys_values = self.latent * (self.hidden + 2 * self.kv_width)
        return 2 * self.hidden * self.query_width + keys_values + 4 * self.hidden

    @property
    def dense_parameters(self) -> int:
        """Parameters of all layers without routed experts."""
        dense_layers = self.layers - self.expert_layers
        router_and_shared = self.hidden * (self.experts + self.mlp_matrices * self.shared_width)
        return (
            self.layers * self.attention_parameters
            + dense_layers * self.mlp_matrices * self.hidden * self.feed_forward
            + self.expert_layers * router_and_shared
        )

    @property
    def expert_parameters(self) -> int:
        """Parameters of the routed experts of all layers."""
        one = self.mlp_matrices * self.hidden * self.expert_width
        return self.expert_layers * self.experts * one

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the embedding and the output projection."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        """All parameters."""
        return self.dense_parameters + self.expert_parameters + self.embedding_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses, without the embedding's lookup."""
        routed = self.expert_parameters * self.experts_per_token // max(1, self.experts)
        return self.dense_parameters + routed + self.vocab * self.hidden

    # ---- work

    @property
    def flops_per_token(self) -> int:
        """FLOPs of the forward and the backward pass for one token, as Chowdhery et al. 2022 (appendix B) count them.

        Six for each parameter that a token uses, and `12 * layers * heads * head_dim * seq` for attention, with no
        reduction for causal masks and without recomputation.
        """
        return 6 * self.active_parameters + 12 * self.layers * self.query_width * self.seq

    def with_sequence(self, seq: int) -> TransformerModel:
        """Return the same model for sequences of `seq` tokens.

        >>> TransformerModel(64, 2, 4, 128, 1000).with_sequence(256).seq
        256
        """
        return replace(self, seq=seq)
