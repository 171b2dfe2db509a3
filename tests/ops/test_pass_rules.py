"""Rule tables that passes attach to ops."""

import pytest

import weft.experimental.xla_metadata  # noqa: F401  (defines a primitive)
from tests.ops.test_completeness import PRIMITIVES
from weft._engine.control.checks import _RULES as CHECK_RULES
from weft._engine.core.pass_rules import PassRules
from weft._engine.core.primitive import (
    CallLike,
    ElementwiseOp,
    Primitive,
    ReduceOp,
    RegionOp,
    registry,
)
from weft._engine.hlo.lowering import RULES as TEXT_RULES
from weft._engine.hlo.replica_program import replica_program_text  # noqa: F401  (fills the tables)
from weft._engine.hlo.replicas import PLUGIN_RULES
from weft._engine.partition.partitioner import SPECIAL
from weft._engine.partition.propagation.propagate import _load_splits
from weft._engine.partition.regions import _RULES as PARTITION_RULES
from weft._engine.partition.rules.split_rule import SPLIT_RULES
from weft._engine.util.errors import MissingRuleError

_load_splits()
TABLES = {
    "checks": CHECK_RULES,
    "texts": TEXT_RULES,
    "plugins": PLUGIN_RULES,
    "partitioning": PARTITION_RULES,
    "splits": SPLIT_RULES,
}
#: primitives that passes create, which are not registered
UNREGISTERED = {"windows", "shifted"}


@pytest.mark.parametrize("table", TABLES)
def test_names_in_tables_are_those_of_primitives(table: str):
    names = {key for key in TABLES[table] if isinstance(key, str)}
    assert names <= {*registry} | UNREGISTERED


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=str)
def test_every_op_that_is_partitioned_by_a_rule_has_one(primitive: Primitive):
    assert (PARTITION_RULES.find(primitive) is not None) == isinstance(primitive, SPECIAL)


def test_primitive_rules_precede_class_rules():
    table: PassRules[str] = PassRules("tests", {RegionOp: "region", "sin": "sin"})
    table.add(ElementwiseOp)("elementwise")
    assert table[registry["sin"]] == "sin"
    assert table[registry["cos"]] == "elementwise"
    assert table[CallLike("called", register=False)] == "region"
    table.add(registry["cos"])("cos")
    assert table[registry["cos"]] == "cos"
    assert table.of_class(registry["cos"]) == "elementwise"


def test_a_missing_rule_names_the_op_and_the_pass():
    table: PassRules[str] = PassRules("tests")
    assert table.find(ReduceOp("sum_of_tests", register=False)) is None
    with pytest.raises(MissingRuleError, match="sum_of_tests has no rule for tests"):
        table[ReduceOp("sum_of_tests", register=False)]
