"""Models from configs and from traced functions."""

import json

import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.planner.api import as_model, plan
from weft._engine.planner.named_models import find_model
from weft._engine.planner.transformer import TransformerModel

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
MIXTRAL = {
    **LLAMA,
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
DEEPSEEK = {
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "v_head_dim": 128,
    "kv_lora_rank": 512,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "vocab_size": 102400,
    "max_position_embeddings": 4096,
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(
    "config, parameters",
    [(LLAMA, 8.03e9), (MIXTRAL, 46.7e9), (DEEPSEEK, 15.7e9), (GPT2, 124e6)],
    ids=["llama", "mixtral", "deepseek", "gpt2"],
)
def test_configs_of_the_hub(config, parameters):
    assert as_model(config).parameters == pytest.approx(parameters, rel=0.005)


def test_a_config_and_a_name_describe_the_same_model():
    named = find_model("deepseek-v2-lite")
    config = as_model(DEEPSEEK)
    for field in TransformerModel.__slots__:
        if field != "name":
            assert getattr(config, field) == getattr(named, field), field


def test_a_config_file(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    assert as_model(path) == as_model(str(path)) == as_model(LLAMA)


@pytest.mark.parametrize(
    "text, message", [("{", "cannot be read as a config"), ("[1]", "does not hold a JSON object")]
)
def test_files_that_are_no_configs(tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        as_model(path)


def test_incomplete_configs_name_what_is_missing():
    with pytest.raises(
        ValueError,
        match=r"no layers, heads. Accepted names are layers: layers or num_hidden_layers",
    ):
        as_model({"hidden_size": 64})
    with pytest.raises(ValueError, match="cannot be read"):
        as_model("nowhere/config.json")


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"hidden": 0}, "hidden = 0"),
        ({"kv_heads": 3}, "8 heads share 3 kv_heads"),
        ({"experts": 2, "experts_per_token": 4}, "4 experts_per_token of 2 experts"),
        ({"layers": 2, "dense_layers": 3}, "3 dense_layers of 2 layers"),
    ],
)
def test_impossible_models_are_refused(fields, message):
    base = {"hidden": 64, "layers": 2, "heads": 8, "seq": 128, "vocab": 100}
    with pytest.raises(ValueError, match=message):
        TransformerModel(**{**base, **fields})


def test_flops_are_six_for_each_active_parameter_and_attention():
    model = find_model("gpt3-175b")
    flops = 96 * 96 * 12288**2 / 96  # 24 * 4 for the forward, backward and recomputed pass
    assert model.flops_per_token == pytest.approx(72 * 96 * 12288**2, rel=0.05)
    assert flops < model.flops_per_token
    experts = find_model("mixtral-8x7b")
    assert experts.active_parameters == pytest.approx(12.75e9, rel=0.01)


# ---- traced functions


def transformer(
    hidden=64, layers=3, heads=4, kv_heads=2, width=176, vocab=500, seq=32, batch=2, **options
):
    """Return a loss function, its parameters and its data, as types alone."""
    size = hidden // heads
    gated, scanned = options.get("gated", True), options.get("scanned", True)
    experts, used = options.get("experts", 0), options.get("used", 2)

    def attention(x, w):
        b, t, _ = x.shape
        q = (x @ w["q"]).reshape(b, t, heads, size)
        if "qkv" in w:
            whole = x @ w["qkv"]
            q, k, v = wnp.split(whole, [hidden, hidden + kv_heads * size], axis=-1)
            q = q.reshape(b, t, heads, size)
        else:
            k, v = x @ w["k"], x @ w["v"]
        k, v = (part.reshape(b, t, kv_heads, size) for part in (k, v))
        mixed = weft.nn.dot_product_attention(q, k, v, is_causal=True)
        return x + mixed.reshape(b, t, hidden) @ w["o"]

    def mlp(x, w):
        if experts:
            rows = x.shape[0] * x.shape[1] * used // experts
            routed = wnp.zeros((experts, rows, hidden)) + x.reshape(-1, hidden)[:rows]
            inner = weft.nn.silu(wnp.einsum("erh,ehf->erf", routed, w["gate"]))
            inner *= wnp.einsum("erh,ehf->erf", routed, w["up"])
            out = wnp.einsum("erf,efh->erh", inner, w["down"])
            return x + out.sum() * weft.nn.softmax(x @ w["router"]).sum()
        if gated:
            return x + (weft.nn.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]
        return x + weft.nn.gelu(x @ w["up"]) @ w["down"]

    def layer(x, w):
        return mlp(attention(x, w), w)

    def loss(parameters, tokens):
        x = parameters["embedding"][tokens]
        if scanned:
            step = weft.checkpoint(layer) if options.get("remat") else layer
            x, _ = lax.scan(lambda x, w: (step(x, w), None), x, parameters["layers"])
        else:
            for w in parameters["layers"]:
                x = layer(x, w)
        out = parameters["embedding"].T if options.get("tied") else parameters["head"]
        return weft.nn.log_softmax(x @ out).mean()

    shapes = dict.fromkeys("qo", (hidden, hidden))
    shapes |= dict.fromkeys("kv", (hidden, kv_heads * size))
    shapes |= {"up": (hidden, width), "down": (width, hidden)}
    if gated:
        shapes["gate"] = (hidden, width)
    if experts:
        shapes |= {name: (experts, *shapes[name]) for name in ("gate", "up", "down")}
        shapes["router"] = (hidden, experts)
    struct = lambda *shape: weft.ShapeDtypeStruct(shape, "float32")
    if scanned:
        stacked = {name: struct(layers, *shape) for name, shape in shapes.items()}
    else:
        stacked = [{name: struct(*shape) for name, shape in shapes.items()}] * layers
    parameters = {"embedding": struct(vocab, hidden), "layers": stacked}
    if not options.get("tied"):
        parameters["head"] = struct(hidden, vocab)
    return loss, parameters, weft.ShapeDtypeStruct((batch, seq), "int32")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scanned": False},
        {"remat": True},
        {"gated": False, "width": 256, "kv_heads": 4},
        {"kv_heads": 1},
        {"layers": 1, "scanned": False},
        {"tied": True, "vocab": 2000},
        {"batch": 1, "seq": 64},
        {"experts": 8},
        {"experts": 4, "used": 1, "scanned": False},
    ],
    ids=str,
)
def test_layers_of_a_traced_loss_are_recognized(options):
    loss, parameters, data = transformer(**options)
    model = as_model(loss, parameters, data)
    expected = {"hidden": 64, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 16, "seq": 32}
    expected |= {"vocab": 500, "gated": True, "tied": False, "experts": 0, "name": "loss"}
    expected |= {k: v for k, v in options.items() if k in expected}
    assert {name: getattr(model, name) for name in expected} == expected
    width = options.get("width", 176)
    if model.experts:
        assert (model.expert_width, model.experts_per_token) == (width, options.get("used", 2))
    else:
        assert model.feed_forward == width
    leaves = weft.tree_util.tree_leaves(parameters)
    assert model.parameters == pytest.approx(sum(leaf.size for leaf in leaves), rel=0.03)


def test_a_traced_loss_is_planned():
    best = plan(*transformer(), cluster="cpu:1", batch=2, memory=1e9)[0]
    assert best.model.name == "loss" and best.mesh_shape == {"data": 1}


def test_functions_without_layers_are_refused():
    struct = weft.ShapeDtypeStruct((8, 8), "float32")
    with pytest.raises(ValueError, match="mlp: it has 1 products with weights and 0 without"):
        plan(lambda_named_mlp(), struct, struct, cluster="h100:8", batch=8)
    with pytest.raises(ValueError, match=r"needs its arguments to be traced: plan\(mlp"):
        plan(lambda_named_mlp(), cluster="h100:8", batch=8)


def lambda_named_mlp():
    def mlp(w, x):
        return wnp.tanh(x @ w).sum()

    return mlp


def test_unexplained_parameters_are_refused():
    loss, parameters, data = transformer()
    parameters = {**parameters, "unused": weft.ShapeDtypeStruct((1000, 1000), "float32")}
    with pytest.raises(
        ValueError, match=r"has 1,\d+,\d+ parameters, but the recognized layers \(3 layers"
    ):
        as_model(loss, parameters, data)
