"""`experimental.rnn` against loops over NumPy."""

import numpy as np
import pytest

import weft
from weft.experimental import rnn


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference(x, h_0, c_0, parts, lengths, num_layers, directions):
    """Step by step and sequence by sequence."""
    h_n, c_n = np.array(h_0), np.array(c_0)
    for layer in range(num_layers):
        outs = []
        for direction in range(directions):
            n = layer * directions + direction
            w, u, b, d = (np.asarray(part[n]) for part in parts)
            out = np.zeros((*x.shape[:2], h_0.shape[2]), np.float32)
            for k, length in enumerate(lengths):
                for t in range(length) if direction == 0 else reversed(range(length)):
                    i, f, g, o = np.split(w @ x[k, t] + b + u @ h_n[n, k] + d, 4)
                    c_n[n, k] = sigmoid(f) * c_n[n, k] + sigmoid(i) * np.tanh(g)
                    out[k, t] = h_n[n, k] = sigmoid(o) * np.tanh(c_n[n, k])
            outs.append(out)
        x = np.concatenate(outs, axis=-1)
    return x, h_n, c_n


@pytest.mark.parametrize("bidirectional", [False, True])
def test_lstm(bidirectional):
    rng, directions = np.random.default_rng(0), 2 if bidirectional else 1
    sizes = (3, 4, 2, bidirectional)
    weights = rng.standard_normal(rnn.get_num_params_in_lstm(*sizes)).astype(np.float32)
    x, states = (
        rng.standard_normal((2, 5, 3)).astype(np.float32),
        rng.standard_normal((2, 2 * directions, 2, 4)).astype(np.float32),
    )
    lengths = np.array([5, 3])
    run = weft.jit(lambda x, h, c, w: rnn.lstm(x, h, c, w, lengths, 3, 4, 2, 0.0, bidirectional))
    expected = reference(
        x, *states, rnn.unpack_lstm_weights(weights, *sizes), lengths, 2, directions
    )
    for result, want in zip(run(x, *states, weights), expected):
        np.testing.assert_allclose(result, want, atol=1e-5)
    turned = rnn.swap_lstm_gates(weft.numpy.asarray(weights), *sizes)
    np.testing.assert_array_equal(rnn.swap_lstm_gates(turned, *sizes), weights)
    assert not np.array_equal(turned, weights)


def test_errors():
    x, states = np.ones((2, 5, 3), np.float32), np.ones((1, 2, 4), np.float32)
    weights = np.ones(rnn.get_num_params_in_lstm(3, 4, 1, False), np.float32)
    with pytest.raises(NotImplementedError, match="dropout"):
        rnn.lstm(x, states, states, weights, np.array([5, 5]), 3, 4, 1, 0.5, False)
    with pytest.raises(ValueError, match="need weights of shape"):
        rnn.lstm(x, states, states, weights[1:], np.array([5, 5]), 3, 4, 1, 0.0, False)
    with pytest.raises(ValueError, match="do not fit input_size"):
        rnn.lstm(x, states, states[:, :1], weights, np.array([5, 5]), 3, 4, 1, 0.0, False)
