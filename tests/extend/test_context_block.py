"""Context managers that are classes: entered several times, one inside another, and as decorators."""

import pytest

import weft.numpy as wnp
from weft._engine.core.trace import current_trace, eval_trace
from weft._engine.transforms.jvp import JVPTrace
from weft.extend.context_block import ContextBlock
from weft.extend.core import find_top_trace, set_current_trace, take_current_trace
from weft.extend.source_info_util import (
    NameStack,
    current_name_stack,
    extend_name_stack,
    set_name_stack,
    transform_name_stack,
    user_context,
)


class Recorded(ContextBlock[int]):
    def __init__(self, log):
        self.log = log

    def _block(self):
        self.log.append("in")
        try:
            yield len(self.log)
        finally:
            self.log.append("out")


def test_an_instance_is_entered_again_and_within_itself():
    log = []
    block = Recorded(log)
    with block as first, block as second:
        assert (first, second) == (1, 2)
    with pytest.raises(KeyError), block:
        raise KeyError
    assert block.__class__ is Recorded and log == ["in", "in", "out", "out", "in", "out"]


def test_a_block_decorates_functions():
    log = []
    assert Recorded(log)(lambda x: x + len(log))(1) == 2 and log == ["in", "out"]


def test_traces_are_set_and_taken():
    trace = JVPTrace(current_trace(), tag="own")
    assert (
        isinstance(set_current_trace, type)
        and trace.tag == "own"
        and trace.parent_trace is eval_trace
    )
    with set_current_trace(trace):
        assert find_top_trace(()) is trace
        with take_current_trace() as taken:
            assert taken is trace and current_trace() is eval_trace
        assert current_trace() is trace
    assert current_trace() is eval_trace
    with pytest.raises(ValueError), set_current_trace(trace, check_leaks=True):
        raise ValueError
    assert current_trace() is eval_trace and wnp.add(1, 2) == 3


def test_name_stacks():
    with extend_name_stack("a") as names, extend_name_stack("b") as inner:
        assert (str(names), str(inner), str(current_name_stack())) == ("a", "a/b", "a/b")
        with transform_name_stack("jvp") as transformed, user_context(None):
            assert str(transformed) == str(current_name_stack()) == "jvp(a/b)"
        with set_name_stack(NameStack(("c",))):
            assert str(current_name_stack()) == "c"
    assert str(current_name_stack()) == ""
