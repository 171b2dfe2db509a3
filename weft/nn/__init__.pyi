"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.nn.activations import (
    celu, elu, gelu, glu, hard_sigmoid, hard_silu, hard_swish, hard_tanh, identity, leaky_relu,
    log_sigmoid, mish, relu, relu6, selu, sigmoid, silu, soft_sign, softplus, sparse_plus,
    sparse_sigmoid, squareplus, swish, tanh,
)
from weft._engine.nn.attention import dot_product_attention
from weft._engine.nn.block_scaled_products import (
    get_scaled_dot_general_config, scaled_dot_general, scaled_matmul,
)
from weft._engine.nn.normalization import (
    log1mexp, log_softmax, logmeanexp, logsumexp, one_hot, softmax, standardize,
)
from weft.nn import initializers

__all__ = [
    "celu", "dot_product_attention", "elu", "gelu", "get_scaled_dot_general_config", "glu",
    "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "identity", "initializers",
    "leaky_relu", "log1mexp", "log_sigmoid", "log_softmax", "logmeanexp", "logsumexp", "mish",
    "one_hot", "relu", "relu6", "scaled_dot_general", "scaled_matmul", "selu", "sigmoid", "silu",
    "soft_sign", "softmax", "softplus", "sparse_plus", "sparse_sigmoid", "squareplus",
    "standardize", "swish", "tanh",
]
