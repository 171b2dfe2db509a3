"""Planning of large training runs: the fastest mesh, micro batch, ZeRO stage and recomputation for a model on a cluster.

Planning compiles and runs nothing: step times and memory come from a machine model (docs/planning.md). `weft plan`
prints the same plans.

>>> plans = weft.auto.plan("llama3-70b", cluster="h100:64", batch=512, top=2)
>>> len(plans), plans[0].seconds <= plans[1].seconds
(2, True)
"""

from weft._engine.util.lazy import attach

__getattr__, __dir__ = attach(
    __name__,
    {
        "weft._engine.partition.auto.machine_rates": "MACHINES Machine find_machine",
        "weft._engine.planner.api": "plan",
        "weft._engine.planner.cluster": "Cluster",
        "weft._engine.planner.layout": "TrainingLayout TrainingPrecision",
        "weft._engine.planner.named_models": "find_model",
        "weft._engine.planner.training_plan": "TrainingPlan",
        "weft._engine.planner.transformer": "TransformerModel",
        "weft.tools.automatic.measurement": "measure",
        "weft.tools.automatic.plan": "Comparison=LayoutComparison ShardingPlan load",
        "weft.tools.automatic.search": "shardings",
    },
)
