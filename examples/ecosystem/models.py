"""Small models of several libraries: forward pass, gradient, three steps of Adam, generation where there is one.

    python examples/ecosystem/models.py [NAME ...]

Needs transformers 4 (its Flax classes), diffusers, dm-haiku, Keras 3, equinox, flax, optax, and JAX or weft's stand-in for it
(`weft shim install`). Models have random weights; nothing is downloaded. Prints four decimals of each number, and the milliseconds
that the first calls of each model took.
"""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("USE_TF", "0")
os.environ.setdefault("USE_TORCH", "0")

import jax
import jax.numpy as jnp
import optax

STEPS = 3


@dataclass
class Model:
    """A model as pure functions. `forward(params)` returns an array, from which `loss` computes a number."""

    params: Any
    forward: Callable[[Any], jax.Array]
    loss: Callable[[jax.Array], jax.Array]
    generate: Callable[[Any], jax.Array] | None = None


def cross_entropy(labels):
    return lambda logits: optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def squared_error(target):
    return lambda output: jnp.mean((output - target) ** 2)


def tokens(shape, vocabulary, seed=1):
    return jax.random.randint(jax.random.key(seed), shape, 3, vocabulary)


def images(shape, seed=2):
    return jax.random.normal(jax.random.key(seed), shape)


# --- transformers

#: sizes of models with an encoder and a decoder
ENCODER_DECODER = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
}


def bert():
    from transformers import BertConfig, FlaxBertForSequenceClassification

    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        num_labels=5,
    )
    model = FlaxBertForSequenceClassification(config, seed=0, input_shape=(2, 12))
    ids, mask = tokens((4, 12), 64), jnp.arange(12) < jnp.array([[12], [9], [7], [10]])
    forward = lambda params: model(ids, mask.astype("i4"), params=params).logits
    return Model(model.params, forward, cross_entropy(jnp.array([0, 3, 1, 4])))


def gpt2():
    from transformers import FlaxGPT2LMHeadModel, GPT2Config

    config = GPT2Config(
        vocab_size=64,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=4,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = FlaxGPT2LMHeadModel(config, seed=0, input_shape=(2, 12))
    ids = tokens((4, 12), 64)
    generate = lambda params: (
        model.generate(
            ids[:, :5], params=params, max_length=16, do_sample=False, eos_token_id=None
        ).sequences
    )
    forward = lambda params: model(ids, params=params).logits[:, :-1]
    return Model(model.params, forward, cross_entropy(ids[:, 1:]), generate)


def bart():
    from transformers import BartConfig, FlaxBartForConditionalGeneration

    config = BartConfig(
        vocab_size=64,
        max_position_embeddings=32,
        **ENCODER_DECODER,
        forced_eos_token_id=None,
    )
    model = FlaxBartForConditionalGeneration(config, seed=0, input_shape=(2, 12))
    ids, targets = tokens((3, 12), 64), tokens((3, 8), 64, seed=3)
    inputs = jnp.pad(targets[:, :-1], ((0, 0), (1, 0)), constant_values=2)
    forward = lambda params: model(ids, decoder_input_ids=inputs, params=params).logits
    generate = lambda params: (
        model.generate(ids, params=params, max_length=10, num_beams=2).sequences
    )
    return Model(model.params, forward, cross_entropy(targets), generate)


def vit():
    from transformers import FlaxViTForImageClassification, ViTConfig

    config = ViTConfig(
        image_size=16,
        patch_size=4,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        num_labels=5,
    )
    model = FlaxViTForImageClassification(config, seed=0)
    pixels = images((3, 3, 16, 16))
    return Model(
        model.params,
        lambda params: model(pixels, params=params).logits,
        cross_entropy(jnp.array([0, 3, 1])),
    )


def clip():
    from transformers import CLIPConfig, FlaxCLIPModel

    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    config = CLIPConfig(
        text_config=dict(
            vocab_size=64, max_position_embeddings=12, bos_token_id=1, eos_token_id=2, **sizes
        ),
        vision_config=dict(image_size=16, patch_size=4, **sizes),
        projection_dim=16,
        logit_scale_init_value=0.0,
    )
    model = FlaxCLIPModel(config, seed=0)
    ids, pixels = tokens((4, 12), 64).at[:, -1].set(2), images((4, 3, 16, 16))
    forward = lambda params: model(ids, pixels, params=params).logits_per_image
    return Model(model.params, forward, cross_entropy(jnp.arange(4)))


def whisper():
    from transformers import FlaxWhisperForConditionalGeneration, WhisperConfig

    config = WhisperConfig(
        vocab_size=64,
        num_mel_bins=8,
        **ENCODER_DECODER,
        max_source_positions=16,
        max_target_positions=16,
        decoder_start_token_id=1,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = FlaxWhisperForConditionalGeneration(config, seed=0, input_shape=(1, 8, 32))
    sound, targets = images((2, 8, 32)), tokens((2, 8), 64)
    forward = lambda params: model(sound, targets[:, :-1], params=params).logits
    generate = lambda params: (
        model.generate(sound, params=params, max_length=10, do_sample=False).sequences
    )
    return Model(model.params, forward, cross_entropy(targets[:, 1:]), generate)


# --- diffusers


def diffusers_unet():
    from diffusers import FlaxUNet2DConditionModel

    model = FlaxUNet2DConditionModel(
        sample_size=8,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=16,
        attention_head_dim=4,
    )
    params = model.init_weights(jax.random.PRNGKey(0))
    noisy, text = images((2, 4, 8, 8)), images((2, 5, 16), seed=4)
    forward = lambda params: model.apply({"params": params}, noisy, jnp.array([3, 7]), text).sample
    return Model(params, forward, squared_error(images((2, 4, 8, 8), seed=5)))


def diffusers_vae():
    from diffusers import FlaxAutoencoderKL

    model = FlaxAutoencoderKL(
        sample_size=16,
        block_out_channels=(32, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
    )
    params = model.init_weights(jax.random.PRNGKey(0))
    pixels = images((2, 3, 16, 16))
    key = jax.random.key(6)
    forward = lambda params: (
        model.apply(
            {"params": params}, pixels, sample_posterior=True, rngs={"gaussian": key}
        ).sample
    )
    return Model(params, forward, squared_error(pixels))


# --- haiku


def haiku_resnet():
    import haiku as hk

    def network(pixels):
        return hk.nets.ResNet(
            blocks_per_group=(1, 1, 1, 1),
            num_classes=5,
            bottleneck=False,
            resnet_v2=True,
            channels_per_group=(8, 8, 16, 16),
            use_projection=(True,) * 4,
        )(pixels, is_training=True)

    network = hk.transform_with_state(network)
    pixels = images((4, 32, 32, 3))
    params, state = network.init(jax.random.key(0), pixels)
    forward = lambda params: network.apply(params, state, None, pixels)[0]
    return Model(params, forward, cross_entropy(jnp.array([0, 3, 1, 4])))


def haiku_transformer():
    import haiku as hk

    def network(ids):
        mask = jnp.tril(jnp.ones((1, 1, ids.shape[1], ids.shape[1])))
        x = hk.Embed(64, 32)(ids)
        for _ in range(2):
            norm = hk.LayerNorm(-1, True, True)(x)
            x += hk.MultiHeadAttention(4, 8, w_init=hk.initializers.VarianceScaling(0.5))(
                norm, norm, norm, mask
            )
            x += hk.nets.MLP([64, 32], activation=jax.nn.gelu)(hk.LayerNorm(-1, True, True)(x))
        return hk.Linear(64)(x)

    network = hk.without_apply_rng(hk.transform(network))
    ids = tokens((4, 12), 64)
    forward = lambda params: network.apply(params, ids)[:, :-1]
    generate = lambda params: greedy(lambda ids: network.apply(params, ids), ids[:, :5], 12)
    return Model(network.init(jax.random.key(0), ids), forward, cross_entropy(ids[:, 1:]), generate)


# --- keras


def keras_mobilenet():
    import keras

    keras.utils.set_random_seed(0)
    network = keras.applications.MobileNet(
        (32, 32, 3), alpha=0.25, weights=None, classes=5, classifier_activation=None
    )
    params = [unit_gain(variable) for variable in network.trainable_variables]
    state = [variable.value for variable in network.non_trainable_variables]
    pixels = images((4, 32, 32, 3))
    forward = lambda params: network.stateless_call(params, state, pixels, training=False)[0]
    return Model(params, forward, cross_entropy(jnp.array([0, 3, 1, 4])))


def unit_gain(variable):
    """Scale the kernel of a convolution so that activations keep their size. Statistics of a small batch would magnify rounding."""
    kernel = variable.value
    if kernel.ndim != 4:
        return kernel
    depthwise = "_dw_" in variable.path
    inputs = kernel.shape[0] * kernel.shape[1] * (1 if depthwise else kernel.shape[2])
    return kernel * jnp.sqrt(2 / inputs) / kernel.std()


# --- equinox


def equinox_vit():
    import equinox as eqx

    class Block(eqx.Module):
        attention: eqx.nn.MultiheadAttention
        mlp: eqx.nn.MLP
        norms: list[eqx.nn.LayerNorm]

        def __init__(self, key):
            first, second = jax.random.split(key)
            self.attention = eqx.nn.MultiheadAttention(4, 32, key=first)
            self.mlp = eqx.nn.MLP(32, 32, 64, 1, jax.nn.gelu, key=second)
            self.norms = [eqx.nn.LayerNorm(32), eqx.nn.LayerNorm(32)]

        def __call__(self, x):
            y = jax.vmap(self.norms[0])(x)
            x = x + self.attention(y, y, y)
            return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))

    class VisionTransformer(eqx.Module):
        patches: eqx.nn.Conv2d
        positions: jax.Array
        blocks: list[Block]
        head: eqx.nn.Linear

        def __init__(self, key):
            keys = jax.random.split(key, 5)
            self.patches = eqx.nn.Conv2d(3, 32, 4, 4, key=keys[0])
            self.positions = 0.1 * jax.random.normal(keys[1], (16, 32))
            self.blocks = [Block(keys[2]), Block(keys[3])]
            self.head = eqx.nn.Linear(32, 5, key=keys[4])

        def __call__(self, pixels):
            x = self.patches(pixels).reshape(32, -1).T + self.positions
            for block in self.blocks:
                x = block(x)
            return self.head(x.mean(0))

    params, static = eqx.partition(VisionTransformer(jax.random.key(0)), eqx.is_array)
    pixels = images((3, 3, 16, 16))
    forward = lambda params: jax.vmap(eqx.combine(params, static))(pixels)
    return Model(params, forward, cross_entropy(jnp.array([0, 3, 1])))


# --- flax.nnx


def nnx_transformer():
    from flax import nnx

    class Decoder(nnx.Module):
        def __init__(self, rngs):
            self.embed = nnx.Embed(64, 32, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(4, 32, decode=False, rngs=rngs)
            self.norms = nnx.List([nnx.RMSNorm(32, rngs=rngs), nnx.RMSNorm(32, rngs=rngs)])
            self.up, self.down = nnx.Linear(32, 64, rngs=rngs), nnx.Linear(64, 32, rngs=rngs)

        def __call__(self, ids):
            x = self.embed(ids)
            x += self.attention(self.norms[0](x), mask=nnx.make_causal_mask(ids))
            x += self.down(nnx.silu(self.up(self.norms[1](x))))
            return self.embed.attend(x)

    definition, params = nnx.split(Decoder(nnx.Rngs(0)))
    ids = tokens((4, 12), 64)
    apply = lambda params, ids: nnx.merge(definition, params)(ids)
    generate = lambda params: greedy(lambda ids: apply(params, ids), ids[:, :5], 12)
    return Model(
        params, lambda params: apply(params, ids)[:, :-1], cross_entropy(ids[:, 1:]), generate
    )


def greedy(logits, prompt, length):
    """Return the most likely continuation of `prompt`, computed in a compiled loop."""
    start = prompt.shape[1]
    ids = jnp.pad(prompt, ((0, 0), (0, length - start)))
    return jax.lax.fori_loop(
        start, length, lambda i, ids: ids.at[:, i].set(logits(ids)[:, i - 1].argmax(-1)), ids
    )


MODELS = [
    bert,
    gpt2,
    bart,
    vit,
    clip,
    whisper,
    diffusers_unet,
    diffusers_vae,
    haiku_resnet,
    haiku_transformer,
    keras_mobilenet,
    equinox_vit,
    nnx_transformer,
]


def report(name: str, values: Any) -> None:
    print(f"  {name:8}", " ".join(f"{float(value):.4f}" for value in values))


def run(model: Model) -> None:
    """Print the results of a model and the time of its first calls."""
    optimizer = optax.adam(1e-3)
    loss = lambda params: model.loss(model.forward(params))

    @jax.jit
    def step(params, state):
        value, gradients = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, value

    start = time.perf_counter()
    output = jax.jit(model.forward)(model.params)
    value, gradients = jax.jit(jax.value_and_grad(loss))(model.params)
    params, state, losses = model.params, optimizer.init(model.params), []
    for _ in range(STEPS):
        params, state, latest = step(params, state)
        losses.append(latest)
    generated = jax.jit(model.generate)(params) if model.generate else jnp.zeros(0)
    jax.block_until_ready((output, gradients, losses, generated))
    milliseconds = round(1000 * (time.perf_counter() - start))

    report("forward", [*output.ravel()[:4], jnp.linalg.norm(output)])
    report("gradient", [value, optax.global_norm(gradients)])
    report("steps", losses)
    if model.generate:
        report("tokens", generated[0])
    print(f"  first calls {milliseconds} ms")


def main() -> None:
    for make in MODELS:
        if not sys.argv[1:] or make.__name__ in sys.argv[1:]:
            print(make.__name__)
            run(make())


if __name__ == "__main__":
    main()
