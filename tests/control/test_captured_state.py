"""Retracing of functions inside control flow: after a change of captured state, and not because of
tracing itself."""

import dataclasses

import numpy as np
import pytest

import weft
import weft.numpy as wnp

X = np.arange(4.0, dtype=np.float32)


def test_a_counter_of_traces_does_not_cause_a_trace():
    traces = 0

    def body(carry, x):
        nonlocal traces
        traces += 1
        return carry + x, x

    for _ in range(3):
        total, _ = weft.lax.scan(body, 0.0, X)
    assert float(total) == X.sum() and traces == 1


@dataclasses.dataclass(eq=False)
class Step:
    scale: float
    seen: list

    def __call__(self, carry, x):
        self.seen.append(self.scale)
        return carry + self.scale * x, None


def test_callable_objects_are_traced_once_for_what_they_hold():
    step = Step(2.0, [])
    run = lambda: float(weft.lax.scan(step, 0.0, X)[0])
    assert run() == run() == 2 * X.sum() and step.seen == [2.0]
    step.scale = 3.0
    assert run() == 3 * X.sum() and step.seen == [2.0, 3.0]


def test_closed_over_values_are_compared():
    scale = 2.0

    def body(carry, x):
        return carry + scale * x, None

    assert float(weft.lax.scan(body, 0.0, X)[0]) == 2 * X.sum()
    scale = 3.0
    assert float(weft.lax.scan(body, 0.0, X)[0]) == 3 * X.sum()


def test_mapped_results_without_an_axis_are_named():
    with pytest.raises(
        ValueError,
        match=r"at vmap out_axes\['b'\] got axis spec None but output was batched on axis 0",
    ):
        weft.vmap(lambda x: {"a": x, "b": x * 2}, out_axes={"a": 0, "b": None})(wnp.asarray(X))
