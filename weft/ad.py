"""Gradient destinations for the `with_refs` method of a `weft.vjp` function, and the values returned for them."""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.api.differentiation.reverse": "DidntWant DontWant GradRef GradValue",
        "weft._engine.transforms.pullback": "NotNeeded NotSaveable",
    },
)
