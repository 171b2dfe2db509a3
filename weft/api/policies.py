"""Policies of `checkpoint`: which intermediate results may be kept for the backward pass.

A policy is called with a primitive, the types of its operands and its parameters, and says whether its results may be saved.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

Policy = Callable[..., bool]


def everything_saveable(*_, **__) -> bool:
    """Keep everything, as without `checkpoint`."""
    return True


def nothing_saveable(*_, **__) -> bool:
    """Keep nothing but the inputs; the default."""
    return False


def dots_saveable(primitive, *_, **__) -> bool:
    """Keep the results of contractions and convolutions, which cost most to compute again."""
    return primitive.kind in ("contract", "conv")


def dots_with_no_batch_dims_saveable(primitive, *_, **params) -> bool:
    """Keep the results of contractions without batch dims: those with weights, but not those among activations."""
    if primitive.kind != "contract":
        return False
    _, (lhs_batch, rhs_batch) = params["dimension_numbers"]
    return not lhs_batch and not rhs_batch


def save_from_both_policies(first: Policy, second: Policy) -> Policy:
    """Keep what either policy keeps."""
    def policy(primitive, *avals, **params) -> bool:
        return first(primitive, *avals, **params) or second(primitive, *avals, **params)
    return policy


#: the policies under the names that programs know
checkpoint_policies = SimpleNamespace(
    everything_saveable=everything_saveable, nothing_saveable=nothing_saveable, dots_saveable=dots_saveable,
    checkpoint_dots=dots_saveable, dots_with_no_batch_dims_saveable=dots_with_no_batch_dims_saveable,
    checkpoint_dots_with_no_batch_dims=dots_with_no_batch_dims_saveable, save_from_both_policies=save_from_both_policies)
