"""Records behave as frozen dataclasses with slots, but take less time to define."""

import copy
import pickle

import pytest

from weft._engine.util.record import field, record, replace


@record
class Point:
    """A point."""

    x: int
    y: int = 0
    label: str = field(default="", compare=False)
    cache: object = field(default=None, repr=False, compare=False)

    @property
    def norm(self) -> int:
        return abs(self.x) + abs(self.y)


@record(frozen=False)
class Bag:
    items: list = field(default_factory=list)
    note: str | None = None


@record(frozen=False, eq=False)
class Node:
    name: str


@record
class Nothing:
    pass


def test_fields_are_given_by_place_by_name_or_by_default():
    assert (Point(1, 2).x, Point(1, y=2).y, Point(x=3).y, Point(3, label="a").label) == (
        1,
        2,
        0,
        "a",
    )
    assert Point.__slots__ == Point.__match_args__ == ("x", "y", "label", "cache") and not hasattr(
        Point(1), "__dict__"
    )
    assert Point.__doc__ == "A point." and Point(3, -4).norm == 7


@pytest.mark.parametrize(
    "call",
    [lambda: Point(), lambda: Point(1, 2, "", None, 5), lambda: Point(1, z=2), lambda: Nothing(1)],
)
def test_wrong_arguments_are_refused(call):
    with pytest.raises(TypeError, match=r"__init__\(\)"):
        call()


def test_compared_fields_make_equality_and_hash():
    assert Point(1, 2, "a") == Point(1, 2, "b") and hash(Point(1, 2, "a")) == hash(Point(1, 2, "b"))
    assert (
        Point(1) != Point(2)
        and Point(1) != (1, 0, "", None)
        and Nothing() == Nothing()
        and Nothing() != Point(1)
    )
    assert Bag([1]) == Bag([1]) and Bag([1]) != Bag([2])
    with pytest.raises(TypeError, match="unhashable"):
        hash(Bag())
    one, two = Node("n"), Node("n")
    assert one != two and len({one, two, one}) == 2


def test_frozen_records_do_not_change():
    point = Point(1)
    for change in (
        lambda: setattr(point, "x", 2),
        lambda: delattr(point, "x"),
        lambda: setattr(point, "z", 2),
    ):
        with pytest.raises(AttributeError, match="Point is frozen"):
            change()
    assert replace(point, y=5) == Point(1, 5) and point == Point(1)


def test_mutable_records_have_no_attributes_but_their_fields():
    bag, other = Bag(), Bag()
    bag.items.append(1)
    bag.note = "n"
    assert (bag.items, bag.note, other.items) == ([1], "n", [])
    with pytest.raises(AttributeError):
        bag.color = "red"


def test_records_are_shown_copied_and_pickled():
    assert (
        repr(Point(1, 2, "a", cache=object())) == "Point(x=1, y=2, label='a')"
        and repr(Nothing()) == "Nothing()"
    )
    for twin in (copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))):
        assert twin(Point(1, 2)) == Point(1, 2) and twin(Bag([1])) == Bag([1])


def test_patterns_match_records():
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
        case _:
            pytest.fail("no match")


def test_fields_may_be_checked():
    @record
    class Positive:
        x: int

        def __post_init__(self):
            if self.x <= 0:
                raise ValueError("not positive")

    assert Positive(1).x == 1
    with pytest.raises(ValueError, match="not positive"):
        Positive(0)


def test_init_is_written_once_when_it_pays():
    @record
    class Late:
        x: int

    first = Late.__init__
    assert [Late(i).x for i in range(10)] == list(range(10)) and Late.__init__ is first
    for i in range(10):
        Late(i)
    second = Late.__init__
    Late(2)
    assert first is not second and Late.__init__ is second


def test_the_first_and_the_many_are_alike():
    @record
    class Line:
        start: int
        end: int = 9
        marks: list = field(default_factory=list)
        checked: int = 0

        def __post_init__(self):
            assert self.start <= self.end

    lines = [Line(i, 30, marks=[i]) if i % 2 else Line(end=20, start=i) for i in range(20)]
    assert [(x.start, x.end, x.marks, x.checked) for x in lines] == [
        (i, 30, [i], 0) if i % 2 else (i, 20, [], 0) for i in range(20)
    ]
    assert lines[0] == Line(0, 20) and lines[0].marks is not lines[18].marks
    with pytest.raises(AssertionError):
        Line(10)
