"""Models from configs: the fields of a `config.json` of the Hugging Face Hub, or of a `TransformerModel`.

In:   a mapping, or the path of a JSON file.
Out:  a `TransformerModel`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from weft._engine.planner.transformer import TransformerModel

#: field of `TransformerModel` -> its names in configs; the first one present is used
_NAMES = {
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "seq": ("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"),
    "vocab": ("vocab_size",),
    "feed_forward": ("intermediate_size", "n_inner", "ffn_dim"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_kv_heads"),
    "head_dim": ("head_dim", "v_head_dim"),
    "experts": ("num_local_experts", "n_routed_experts", "num_experts"),
    "experts_per_token": ("num_experts_per_tok", "moe_topk"),
    "expert_width": ("moe_intermediate_size",),
    "shared_width": ("shared_expert_intermediate_size",),
    "dense_layers": ("first_k_dense_replace",),
    "latent": ("kv_lora_rank",),
    "tied": ("tie_word_embeddings",),
    "parallel_block": ("parallel_attn", "use_parallel_residual"),
    "name": ("_name_or_path", "name"),
}
_REQUIRED = ("hidden", "layers", "heads")
#: fields that configs may leave out
_DEFAULTS = {"seq": 4096, "vocab": 32000, "tied": False}
#: kinds of models whose MLP has no gate
_UNGATED = frozenset(
    "gpt2 gpt_neo gpt_neox gptj gpt_bigcode opt bloom falcon mpt codegen phi starcoder2".split()
)


def model_from_config(config: Mapping[str, Any]) -> TransformerModel:
    """Return the model that a config describes.

    The fields have the names of `TransformerModel` or of a `config.json`. A config without width, layers or heads
    raises `ValueError` that lists the accepted names; numbers that cannot be a model raise `ValueError`.

    >>> config = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    ...           "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192}
    >>> model = model_from_config(config)
    >>> f"{model.parameters / 1e9:.2f}", model.gated
    ('8.03', True)
    """
    fields = {name: _value(config, name) for name in TransformerModel.__annotations__}
    stated = {name: value for name, value in fields.items() if value is not None}
    missing = [name for name in _REQUIRED if name not in stated]
    if missing:
        names = "; ".join(f"{name}: {' or '.join((name, *_NAMES[name]))}" for name in missing)
        raise ValueError(
            f"plan: the config has no {', '.join(missing)}. Accepted names are {names}."
        )
    if "gated" not in stated:
        stated["gated"] = config.get("model_type") not in _UNGATED
    if "shared_width" not in stated and config.get("n_shared_experts"):
        width = stated.get("expert_width") or stated.get("feed_forward", 0)
        stated["shared_width"] = config["n_shared_experts"] * width
    defaults = {"name": str(config.get("model_type", "model")), **_DEFAULTS}
    return TransformerModel(**{**defaults, **stated})


def _value(config: Mapping[str, Any], field: str) -> Any:
    for name in (field, *_NAMES.get(field, ())):
        if config.get(name) is not None:
            return config[name]
    return None


def model_from_file(path: str | PathLike[str]) -> TransformerModel:
    """Return the model of a JSON file.

    Raise ValueError if the file does not exist or is not a JSON object.
    """
    try:
        config = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"plan: {str(path)!r} cannot be read as a config: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"plan: {str(path)!r} does not hold a JSON object.")
    return model_from_config(config)
