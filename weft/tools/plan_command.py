"""`weft plan --model NAME --cluster MACHINE:DEVICES`: print the fastest plans to train a model.

In:   a model by name, by config or by a function of the user's file; a cluster; a batch.
Out:  a table of plans, the first one with its seconds, its bytes and a chart of a step, and the
      rejected candidates.
"""

from __future__ import annotations

import math
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from weft._engine.planner.api import as_model, plan
from weft._engine.planner.cluster import Cluster
from weft._engine.planner.report import as_text
from weft._engine.planner.training_plan import TrainingPlan, plans_table
from weft._engine.planner.transformer import TransformerModel
from weft._engine.util.record import record

#: tokens of a step if the user does not choose a batch
_TOKENS_PER_STEP = 1 << 22
#: the maximal number of devices per sequence if the user does not choose a batch
_DEVICES_PER_SEQUENCE = 8


@record
class PlanOptions:
    """The options of the command; `memory` is in gigabytes."""

    model: str
    cluster: str
    batch: int | None = None
    seq: int | None = None
    memory: float | None = None
    top: int = 5
    verify: bool = False


def print_plans(options: PlanOptions) -> int:
    """Print the plans and return the exit status: 2, after a message, if no plan exists for the model, cluster and batch."""
    try:
        model = read_model(options)
        cluster = Cluster.parse(options.cluster)
        batch = options.batch or default_batch(model, cluster)
        memory = None if options.memory is None else options.memory * 1e9
        plans = plan(model, cluster=cluster, batch=batch, memory=memory, top=options.top)
    except (ValueError, TypeError, OSError) as error:
        print(f"weft plan: {str(error).removeprefix('plan: ')}", file=sys.stderr)
        return 2
    renderables = [plans_table(plans), "", *plans[0].renderables()]
    if sys.stdout.isatty():
        Console().print(*renderables, sep="\n")
    else:
        print(as_text(renderables))
    print_summary(plans[0])
    return print_verification(plans[0]) if options.verify else 0


def print_summary(best: TrainingPlan) -> None:
    """Print how many layouts were considered, and the rejected classes."""
    summary = best.summary
    print(
        f"\n{summary.considered:,} layouts considered, {summary.fitting:,} of them fit. Rejected:"
    )
    for rejected in summary.rejected or ("none",):
        print(f"  {rejected}")


def print_verification(best: TrainingPlan) -> int:
    """Compile the plan's program without its devices and print its memory; return 1 with a message if that is not possible."""
    from weft._engine.planner.verification import verify  # loads the backend of plugins
    from weft.tools.compile_command import QUIET_PLUGINS

    for variable, value in QUIET_PLUGINS.items():
        os.environ.setdefault(variable, value)
    try:
        print(f"\n{verify(best)}")
    except (RuntimeError, ValueError) as error:  # NotImplementedError, too
        print(f"weft plan: not verified: {error}", file=sys.stderr)
        return 1
    return 0


def read_model(options: PlanOptions) -> TransformerModel:
    """Return the model of the options: a name, a config file, or FILE.py:FUNCTION."""
    path, colon, function = options.model.rpartition(":")
    if colon and path.endswith(".py"):
        model = _model_of_file(path, function)
    else:
        model = as_model(options.model)
    return model if options.seq is None else model.with_sequence(options.seq)


def _model_of_file(path: str, function: str) -> TransformerModel:
    if not Path(path).is_file():
        raise ValueError(f"{path!r} is not a file.")
    values: dict[str, Any] = runpy.run_path(path)
    maker = values.get(function)
    if not callable(maker):
        raise ValueError(f"{path!r} has no function {function!r}.")
    training = maker()
    if not (isinstance(training, tuple) and len(training) >= 3 and callable(training[0])):
        raise ValueError(
            f"{function!r} of {path!r} returned {type(training).__name__}. It must return a loss function, its parameters and its data."
        )
    return as_model(*training)


def default_batch(model: TransformerModel, cluster: Cluster) -> int:
    """Return a batch of about four million tokens that many meshes divide.

    >>> from weft._engine.planner.named_models import find_model
    >>> default_batch(find_model("llama3-70b"), Cluster.parse("h100:64"))
    512
    """
    step = max(1, cluster.devices // math.gcd(cluster.devices, _DEVICES_PER_SEQUENCE))
    return math.ceil(max(_TOKENS_PER_STEP / model.seq, step) / step) * step
