"""What becomes of the gradients that the function of `weft.vjp` computes: entries for its `with_refs`, and what it returns for them."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.api.differentiation.reverse": "DidntWant DontWant GradRef GradValue",
        "weft._engine.transforms.pullback": "NotNeeded NotSaveable",
    },
)
