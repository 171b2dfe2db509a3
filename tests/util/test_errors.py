"""Error classes and the layout of messages."""

import pickle

import pytest

import weft.errors
from weft._engine.util import errors as E

CLASSES = [
    (E.ShapeError, (ValueError,)),
    (E.ShardingError, (ValueError,)),
    (E.TypePromotionError, (ValueError,)),
    (E.TracerError, (TypeError,)),
    (E.ConcretizationTypeError, (TypeError, E.TracerError)),
    (E.TracerBoolConversionError, (TypeError, E.ConcretizationTypeError)),
    (E.TracerIntegerConversionError, (TypeError, E.TracerError)),
    (E.TracerArrayConversionError, (TypeError, E.TracerError)),
    (E.UnexpectedTracerError, (TypeError, E.TracerError)),
    (E.NonConcreteBooleanIndexError, (IndexError, E.TracerError)),
    (E.MissingRuleError, (TypeError, NotImplementedError)),
    (E.ProgramTypeError, (TypeError,)),
    (E.KeyReuseError, (RuntimeError,)),
]


@pytest.mark.parametrize("error, bases", CLASSES, ids=lambda x: getattr(x, "__name__", ""))
def test_classes_are_also_built_in_ones(error, bases):
    assert all(issubclass(error, base) for base in bases)
    assert getattr(weft.errors, error.__name__) is error
    assert error.__module__ == "weft.errors"
    copy = pickle.loads(pickle.dumps(error("what")))
    assert type(copy) is error
    assert str(copy) == "what"
    assert copy.__notes__ == [f"See {E.PAGES}/{error.__name__}.md"]


def test_subclasses_elsewhere_have_the_page_of_their_base():
    class LocalError(E.ShardingError):
        pass

    assert LocalError("what").__notes__ == [f"See {E.PAGES}/ShardingError.md"]


def test_tracer_bool_conversion_is_not_an_integer_conversion():
    assert not issubclass(E.TracerIntegerConversionError, E.ConcretizationTypeError)
    assert not issubclass(E.TracerBoolConversionError, ValueError)


def test_full_message():
    message = E.describe(
        "jit(step)",
        "cannot split params['wq'] as P('data', None).",
        ["dim 0 has size 50, mesh axis 'data' has size 4"],
        where="train.py:41 in step:  f(x)",
        rule="A dim must divide by the mesh axes that split it.",
        remedy="Pad it to 52.",
    )
    assert message.split("\n") == [
        "jit(step): cannot split params['wq'] as P('data', None).",
        "    dim 0 has size 50, mesh axis 'data' has size 4",
        "  at train.py:41 in step:  f(x)",
        "  A dim must divide by the mesh axes that split it. Pad it to 52.",
    ]


def test_tables_are_aligned_and_empty_parts_left_out():
    message = E.describe(
        "dot",
        "sizes differ.",
        [("lhs", "f32[8]", 1), ("rhs_long", "f32[16,2]", ""), "as it stands"],
    )
    assert message.split("\n") == [
        "dot: sizes differ.", "    lhs       f32[8]     1", "    rhs_long  f32[16,2]", "    as it stands",
    ]  # fmt: skip
    assert E.describe("", "just this") == "just this"
    assert E.describe("f", "x", remedy="Do this.") == "f: x\n  Do this."
