"""Addresses in the steps of a program."""

from typing import get_args, get_type_hints

import pytest

from weft._engine.ir import program as P


def mentions_address(hint) -> bool:
    return hint is P.BufRef or any(mentions_address(part) for part in get_args(hint))


def example(cls, ref):
    """Return a step all of whose fields that can hold an address hold `ref`."""
    hints = get_type_hints(cls, vars(P))
    return cls(**{name: _value(hint, ref) for name, hint in hints.items()})


def _value(hint, ref):
    if hint is P.BufRef or (mentions_address(hint) and type(None) in get_args(hint)):
        return ref
    return ((ref,),) if mentions_address(hint) else None


@pytest.mark.parametrize("cls", get_args(P.Step), ids=lambda cls: cls.__name__)
def test_refs_of_yields_every_address(cls):
    ref = P.BufRef(3, 8)
    count = sum(mentions_address(hint) for hint in get_type_hints(cls, vars(P)).values())
    assert [*P.refs_of(example(cls, ref))] == [ref] * count
    assert count or cls in (P.Loop,)


def test_refs_of_enters_bodies():
    copy = P.Copy(P.BufRef(1), P.BufRef(0), 8)
    loop = P.WhileLoop((copy,), P.BufRef(2), (P.Branch(P.BufRef(3), ((copy,), ())),))
    assert [ref.slot for ref in P.refs_of((loop,))] == [1, 0, 2, 3, 1, 0]


def test_refs_of_enters_parts_of_transforms():
    part = P.FftConvolutionPart(1, 1, 0, 0, False, False, P.BufRef(7))
    fft = P.Fft("forward", "f32", 8, 1, 1, P.BufRef(0), P.BufRef(1), P.BufRef(2), part)
    assert [ref.slot for ref in P.refs_of(fft)] == [0, 1, 2, 7]
