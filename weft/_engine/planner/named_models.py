"""Models by name: the shapes that papers and configs state.

In:   a name such as "llama3-70b".
Out:  its `TransformerModel`.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from weft._engine.planner.transformer import TransformerModel
from weft._engine.util.record import replace


def _gpt3(name: str, hidden: int, layers: int, heads: int) -> TransformerModel:
    """Return a model of Brown et al. 2020 (arXiv:2005.14165, table 2.1), with a vocabulary padded to 51,200 rows."""
    return TransformerModel(hidden, layers, heads, 2048, 51200, dropout=True, name=name)


#: gated MLPs and an output projection of their own: Llama and its successors
_LLAMA = TransformerModel(64, 1, 1, 4096, 32000, gated=True, tied=False, name="llama")


def _llama(
    name: str, hidden: int, layers: int, heads: int, width: int, **other: int | bool
) -> TransformerModel:
    fields = {"kv_heads": heads, "head_dim": hidden // heads, "expert_width": width, **other}
    return replace(
        _LLAMA, name=name, hidden=hidden, layers=layers, heads=heads, feed_forward=width, **fields
    )


_LLAMA3 = {"kv_heads": 8, "vocab": 128256, "seq": 8192}
_QWEN = {"vocab": 151936}

#: the models that have a name
MODELS: Mapping[str, TransformerModel] = MappingProxyType(
    {
        model.name: model
        for model in (
            _gpt3("gpt3-125m", 768, 12, 12),
            _gpt3("gpt3-350m", 1024, 24, 16),
            _gpt3("gpt3-760m", 1536, 24, 16),
            _gpt3("gpt3-1.3b", 2048, 24, 32),
            _gpt3("gpt3-2.7b", 2560, 32, 32),
            _gpt3("gpt3-6.7b", 4096, 32, 32),
            _gpt3("gpt3-13b", 5120, 40, 40),
            _gpt3("gpt3-175b", 12288, 96, 96),
            # Narayanan et al. 2021 (arXiv:2104.04473, table 1)
            _gpt3("gpt-1t", 25600, 128, 160),
            # Touvron et al. 2023 (arXiv:2307.09288) and the configs of the released weights
            _llama("llama2-7b", 4096, 32, 32, 11008),
            _llama("llama2-13b", 5120, 40, 40, 13824),
            _llama("llama2-70b", 8192, 80, 64, 28672, kv_heads=8),
            # Grattafiori et al. 2024 (arXiv:2407.21783, table 3) and the configs of the released weights
            _llama("llama3-1b", 2048, 16, 32, 8192, **{**_LLAMA3, "tied": True}),
            _llama("llama3-3b", 3072, 28, 24, 8192, **{**_LLAMA3, "tied": True}),
            _llama("llama3-8b", 4096, 32, 32, 14336, **_LLAMA3),
            _llama("llama3-70b", 8192, 80, 64, 28672, **_LLAMA3),
            _llama("llama3-405b", 16384, 126, 128, 53248, **_LLAMA3),
            # Jiang et al. 2023 and 2024 (arXiv:2310.06825, 2401.04088)
            _llama("mistral-7b", 4096, 32, 32, 14336, kv_heads=8, seq=8192),
            _llama("mixtral-8x7b", 4096, 32, 32, 14336, kv_heads=8, experts=8, experts_per_token=2),
            _llama(
                "mixtral-8x22b",
                6144,
                56,
                48,
                16384,
                kv_heads=8,
                experts=8,
                experts_per_token=2,
                vocab=32768,
            ),
            # DeepSeek-AI 2024 (arXiv:2405.04434, appendix B; 2412.19437, section 4.2); keys without a rotary part
            _llama(
                "deepseek-v2-lite",
                2048,
                27,
                16,
                10944,
                head_dim=128,
                latent=512,
                vocab=102400,
                experts=64,
                experts_per_token=6,
                expert_width=1408,
                shared_width=2816,
                dense_layers=1,
            ),
            _llama(
                "deepseek-v3",
                7168,
                61,
                128,
                18432,
                head_dim=128,
                latent=512,
                vocab=129280,
                experts=256,
                experts_per_token=8,
                expert_width=2048,
                shared_width=2048,
                dense_layers=3,
            ),
            # Qwen team 2025 (arXiv:2412.15115, 2505.09388) and the configs of the released weights
            _llama("qwen2.5-7b", 3584, 28, 28, 18944, kv_heads=4, **_QWEN),
            _llama("qwen2.5-32b", 5120, 64, 40, 27648, kv_heads=8, **_QWEN),
            _llama("qwen2.5-72b", 8192, 80, 64, 29568, kv_heads=8, **_QWEN),
            _llama("qwen3-8b", 4096, 36, 32, 12288, kv_heads=8, **_QWEN),
            _llama("qwen3-32b", 5120, 64, 64, 25600, kv_heads=8, head_dim=128, **_QWEN),
            _llama(
                "qwen3-30b-a3b",
                2048,
                48,
                32,
                6144,
                kv_heads=4,
                head_dim=128,
                experts=128,
                experts_per_token=8,
                expert_width=768,
                **_QWEN,
            ),
            _llama(
                "qwen3-235b-a22b",
                4096,
                94,
                64,
                12288,
                kv_heads=4,
                head_dim=128,
                experts=128,
                experts_per_token=8,
                expert_width=1536,
                **_QWEN,
            ),
            # Chowdhery et al. 2022 (arXiv:2204.02311, table 1)
            TransformerModel(
                18432,
                118,
                48,
                2048,
                256000,
                kv_heads=1,
                head_dim=256,
                gated=True,
                flash=False,
                parallel_block=True,
                name="palm-540b",
            ),
        )
    }
)


def find_model(name: str, seq: int | None = None) -> TransformerModel:
    """Return the model of that name, for sequences of `seq` tokens (default: the length of its pretraining).

    An unknown name raises `ValueError` with the closest ones.

    >>> model = find_model("llama3-70b")
    >>> f"{model.parameters / 1e9:.1f}", model.seq, find_model("llama3-70b", seq=4096).seq
    ('70.6', 8192, 4096)
    """
    model = MODELS.get(name.lower())
    if model is None:
        close = get_close_matches(name.lower(), MODELS, n=3, cutoff=0.5)
        hint = f" Similar names: {', '.join(close)}." if close else ""
        raise ValueError(
            f"unknown model {name!r}.{hint} The models with a name are {', '.join(MODELS)}; a config.json or a "
            "`TransformerModel` describes any other."
        )
    return model if seq is None else model.with_sequence(seq)
