"""Functions of neural networks: activations, softmax and related functions, one-hot vectors, attention, initializers."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.nn.activations": """
        celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid mish relu relu6 selu sigmoid
        silu soft_sign softplus sparse_plus sparse_sigmoid squareplus swish tanh
    """,
        "weft._engine.nn.attention": "dot_product_attention",
        "weft._engine.nn.block_scaled_products": "get_scaled_dot_general_config scaled_dot_general scaled_matmul",
        "weft._engine.nn.normalization": "log1mexp log_softmax logmeanexp logsumexp one_hot softmax standardize",
        __name__: "initializers",
    },
    guards=True,
)
