"""`weft.auto.plan`: the fastest plans to train a model on a cluster.

In:   a model in any of its forms, a cluster, a batch.
Out:  a list of `TrainingPlan`, the fastest first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

from weft._engine.planner.cluster import Cluster
from weft._engine.planner.layout import TrainingPrecision
from weft._engine.planner.model_config import model_from_config, model_from_file
from weft._engine.planner.named_models import find_model
from weft._engine.planner.search import USABLE_MEMORY, SearchRequest, search
from weft._engine.planner.traced_model import model_from_function
from weft._engine.planner.training_plan import TrainingPlan
from weft._engine.planner.transformer import TransformerModel

ModelLike = str | PathLike[str] | TransformerModel | Mapping[str, Any] | Callable[..., Any]


def plan(
    model: ModelLike,
    *arguments: Any,
    cluster: Cluster | str,
    batch: int,
    memory: float | None = None,
    top: int = 5,
) -> list[TrainingPlan]:
    """Return the `top` fastest plans to train `model` on `cluster`, the fastest first.

    Nothing is compiled or run: step times and memory follow from a model of the machine, whose errors on published runs
    docs/planning.md lists.

    - `model`: the name of a model ("llama3-70b"), the path of a Hugging Face `config.json`, a mapping with the fields of
      such a file or of `TransformerModel`, a `TransformerModel`, or a loss function. A function is traced with
      `arguments`: the parameters, and then data of one step, as arrays or as `weft.ShapeDtypeStruct`.
    - `cluster`: a `Cluster`, or text such as "h100:64".
    - `batch`: sequences of a step, of all devices.
    - `memory`: bytes that a plan may use on each device (default: 92 % of the machine's).

    An unknown model or machine, a function without recognizable layers, and a batch or memory without any plan raise
    `ValueError`; if no plan fits, the message states the smallest possible peak.

    >>> best = weft.auto.plan("llama3-70b", cluster="h100:64", batch=512)[0]
    >>> best.mesh_shape
    {'pipeline': 8, 'data': 2, 'context': 2, 'tensor': 2}
    >>> f"{best.seconds:.0f} s, {best.mfu:.0%} MFU, {best.memory.total / 1e9:.0f} GB"
    '63 s, 51% MFU, 77 GB'
    >>> best.bottleneck
    'matmuls with weights'
    """
    where = Cluster.parse(cluster) if isinstance(cluster, str) else cluster
    if batch < 1 or top < 1:
        raise ValueError(f"plan: batch = {batch!r}, top = {top!r}. Both are at least 1.")
    limit = USABLE_MEMORY * where.machine.memory if memory is None else memory
    if not limit > 0:
        raise ValueError(
            f"plan: memory = {memory!r}. The memory of a device is a positive number of bytes."
        )
    shape = as_model(model, *arguments)
    return search(SearchRequest(shape, where, batch, limit, TrainingPrecision()), top)


def as_model(model: ModelLike, *arguments: Any) -> TransformerModel:
    """Return the `TransformerModel` that any form of a model describes.

    >>> as_model("llama3-8b").layers, as_model({"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}).hidden
    (32, 64)
    """
    if isinstance(model, TransformerModel):
        return model
    if isinstance(model, Mapping):
        return model_from_config(model)
    if isinstance(model, PathLike) or (isinstance(model, str) and model.endswith(".json")):
        return model_from_file(model)
    if isinstance(model, str):
        return find_model(model)
    if callable(model):
        return model_from_function(model, *arguments)
    raise TypeError(
        f"plan: {type(model).__name__} does not describe a model. Give a name, the path of a config.json, a mapping, a "
        "TransformerModel or a loss function with its arguments."
    )
