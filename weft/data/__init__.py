"""Input pipelines: global batches in an order that depends only on the seed; each process reads its own rows.

>>> loader = weft.data.Loader({"x": np.arange(6.0)}, batch_size=2, seed=1, epochs=1)
>>> sorted(float(x) for batch in loader for x in batch["x"])
[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
"""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft.data.loader": "Loader",
        "weft.data.order": "permuted=permute_positions",
    },
)
