"""Public names for type checkers. Written by `python -m weft.tools.stubs`; do not edit."""
# ruff: noqa: I001
# fmt: off

from weft._engine.partition.auto.machine_rates import MACHINES, Machine, find_machine
from weft._engine.planner.api import plan
from weft._engine.planner.cluster import Cluster
from weft._engine.planner.layout import TrainingLayout, TrainingPrecision
from weft._engine.planner.named_models import find_model
from weft._engine.planner.training_plan import TrainingPlan
from weft._engine.planner.transformer import TransformerModel
from weft.tools.automatic.measurement import measure
from weft.tools.automatic.plan import LayoutComparison as Comparison, ShardingPlan, load
from weft.tools.automatic.search import shardings

__all__ = [
    "Cluster", "Comparison", "MACHINES", "Machine", "ShardingPlan", "TrainingLayout",
    "TrainingPlan", "TrainingPrecision", "TransformerModel", "find_machine", "find_model", "load",
    "measure", "plan", "shardings",
]
