"""Train, save and export a functional Keras model whose inputs have dims of any size.

    python examples/ecosystem/keras_functional.py

Needs Keras 3, TensorFlow (for the exported model), and JAX or weft's stand-in for it (`weft shim install`). Prints
the losses of training, and what the trained, the loaded and the exported model predict for sequences of two lengths.
"""

import os
import tempfile
from pathlib import Path

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
import tensorflow as tf


def build():
    """A classifier of sequences: the batch and the length are None."""
    inputs = keras.Input((None, 4))
    x = keras.layers.Dense(16, activation="gelu")(inputs)
    x = x + keras.layers.MultiHeadAttention(2, 8)(x, x)
    x = keras.layers.LayerNormalization()(x)
    x = keras.layers.GRU(8, return_sequences=True)(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(x))


def main():
    keras.utils.set_random_seed(0)
    random = np.random.RandomState(0)
    x = random.randn(64, 10, 4).astype("float32")
    y = np.abs(x).mean((1, 2)).argsort().argsort() * 3 // 64
    model = build()
    model.compile(
        keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    history = model.fit(x, y, batch_size=16, epochs=3, shuffle=False, verbose=0).history
    print("losses", " ".join(f"{value:.4f}" for value in history["loss"]))
    print("evaluated", " ".join(f"{value:.4f}" for value in model.evaluate(x, y, verbose=0)))

    folder = Path(tempfile.mkdtemp())
    model.save(folder / "model.keras")
    model.export(folder / "exported", verbose=False)
    loaded = keras.models.load_model(folder / "model.keras")
    exported = tf.saved_model.load(folder / "exported")
    for length in (10, 7):
        part = x[:2, :length]
        for name, function in (
            ("trained", model.predict_on_batch),
            ("loaded", loaded.predict_on_batch),
            ("exported", exported.serve),
        ):
            print(
                f"{name:8} {length:2}",
                " ".join(f"{value:.4f}" for value in np.ravel(function(part))),
            )


if __name__ == "__main__":
    main()
