"""Long short-term memory (Hochreiter & Schmidhuber, 1997) over several layers, in one or both directions.

In:   a batch of sequences [batch, time, input], states [layers × directions, batch, hidden], and weights as one vector or as matrices.
Out:  the outputs of the last layer [batch, time, directions × hidden], and the states at the end of each sequence.
Laws: the gates of a weight matrix are, in order: input, forget, cell, output. The vector holds, for each layer and
      direction, the weights of inputs and of states, and after all of these the two biases for each layer and direction.
      After the end of a sequence, outputs are 0 and states are unchanged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import weft.numpy as wnp
from weft import lax, nn, random
from weft._engine.util.source import guard_all


def _layers(input_size: int, hidden_size: int, num_layers: int, bidirectional: bool) -> list[int]:
    """Return the input size of each layer and direction; TypeError for sizes that are not integers."""
    for name, size in (
        ("input_size", input_size),
        ("hidden_size", hidden_size),
        ("num_layers", num_layers),
    ):
        if not isinstance(size, (int, np.integer)) or size < 0:
            raise TypeError(
                f"`{name}` of an LSTM must be an integer of at least 0, got {size!r:.60}."
            )
    if not isinstance(bidirectional, (bool, np.bool_, int)):
        raise TypeError(
            f"`bidirectional` of an LSTM must be True or False, got {bidirectional!r:.60}."
        )
    directions = 2 if bidirectional else 1
    return [
        input_size if layer == 0 else directions * hidden_size
        for layer in range(num_layers)
        for _ in range(directions)
    ]


def get_num_params_in_lstm(
    input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> int:
    """Return the number of weights.

    >>> from weft.experimental import rnn
    >>> rnn.get_num_params_in_lstm(3, 4, 2, False)
    304
    """
    return sum(
        4 * hidden_size * (size + hidden_size + 2)
        for size in _layers(input_size, hidden_size, num_layers, bidirectional)
    )


def init_lstm_weight(
    rng: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> Any:
    """Draw weights uniformly between -k and k, where k = hidden_size ** -0.5.

    >>> from weft.experimental import rnn
    >>> rnn.init_lstm_weight(weft.random.key(0), 3, 4, 2, False).shape
    (304,)
    """
    count, bound = (
        get_num_params_in_lstm(input_size, hidden_size, num_layers, bidirectional),
        hidden_size**-0.5,
    )
    return random.uniform(rng, (count,), wnp.float32, -bound, bound)


def unpack_lstm_weights(
    weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> tuple[dict[int, Any], dict[int, Any], dict[int, Any], dict[int, Any]]:
    """Return the weight matrices of inputs and of states and the two biases, each as a dict from the number of layer and direction.

    ValueError if the vector has the wrong length.

    >>> from weft.experimental import rnn
    >>> matrices, *_ = rnn.unpack_lstm_weights(wnp.zeros(304), 3, 4, 2, False)
    >>> matrices[0].shape, matrices[1].shape
    ((16, 3), (16, 4))
    """
    count = get_num_params_in_lstm(input_size, hidden_size, num_layers, bidirectional)
    if weights.shape != (count,):
        raise ValueError(
            f"unpack_lstm_weights: these sizes need weights of shape ({count},), got {weights.shape}."
        )
    inputs, states, input_biases, state_biases = {}, {}, {}, {}
    at, rows = 0, 4 * hidden_size
    sizes = _layers(input_size, hidden_size, num_layers, bidirectional)
    for number, size in enumerate(sizes):
        inputs[number] = weights[at : at + rows * size].reshape(rows, size)
        at += rows * size
        states[number] = weights[at : at + rows * hidden_size].reshape(rows, hidden_size)
        at += rows * hidden_size
    for number in range(len(sizes)):
        input_biases[number], state_biases[number] = (
            weights[at : at + rows],
            weights[at + rows : at + 2 * rows],
        )
        at += 2 * rows
    return inputs, states, input_biases, state_biases


def swap_lstm_gates(
    weights: Any, input_size: int, hidden_size: int, num_layers: int, bidirectional: bool
) -> Any:
    """Return the weight vector with the gates for cell and output exchanged, for libraries with the other order.

    >>> from weft.experimental import rnn
    >>> rnn.swap_lstm_gates(wnp.arange(16.), 1, 1, 1, False)[:4].tolist()
    [0.0, 1.0, 3.0, 2.0]
    """
    parts = unpack_lstm_weights(weights, input_size, hidden_size, num_layers, bidirectional)

    def swapped(part: Any) -> Any:
        gates = part.reshape(4, hidden_size, -1)
        return gates[wnp.array([0, 1, 3, 2])].reshape(-1)

    inputs, states, input_biases, state_biases = (
        {number: swapped(part) for number, part in each.items()} for each in parts
    )
    flat = [each for number in inputs for each in (inputs[number], states[number])]
    return wnp.concatenate(
        flat + [each for number in inputs for each in (input_biases[number], state_biases[number])]
    )


def lstm(
    x: Any,
    h_0: Any,
    c_0: Any,
    weights: Any,
    seq_lengths: Any,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
    precision: Any = None,
) -> tuple[Any, Any, Any]:
    """Return outputs and last states of an LSTM whose weights are one vector.

    `x` is [batch, time, input_size], `h_0` and `c_0` are [layers × directions, batch, hidden_size], `seq_lengths` is [batch].
    NotImplementedError for a dropout other than 0: drop outputs between calls of single layers instead.

    >>> from weft.experimental import rnn
    >>> weights, states = rnn.init_lstm_weight(weft.random.key(0), 3, 4, 1, False), wnp.zeros((1, 2, 4))
    >>> outputs, h, c = rnn.lstm(wnp.ones((2, 5, 3)), states, states, weights, wnp.array([5, 3]), 3, 4, 1, 0.0, False)
    >>> outputs.shape, h.shape, bool((outputs[1, 3:] == 0).all())
    ((2, 5, 4), (1, 2, 4), True)
    """
    parts = unpack_lstm_weights(weights, input_size, hidden_size, num_layers, bidirectional)
    return lstm_ref(
        x,
        h_0,
        c_0,
        *parts,
        seq_lengths,
        input_size,
        hidden_size,
        num_layers,
        dropout,
        bidirectional,
        precision,
    )


def lstm_ref(
    x: Any,
    h_0: Any,
    c_0: Any,
    W_ih: dict[int, Any],
    W_hh: dict[int, Any],
    b_ih: dict[int, Any],
    b_hh: dict[int, Any],
    seq_lengths: Any,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    dropout: float,
    bidirectional: bool,
    precision: Any = None,
) -> tuple[Any, Any, Any]:
    """Return the results of `lstm`, with weights in the form of `unpack_lstm_weights`."""
    if not isinstance(dropout, (int, float, np.number)) or dropout:
        raise NotImplementedError(
            f"lstm: dropout={dropout} between layers. Use dropout=0, and drop outputs between single layers."
        )
    numbers = range(len(_layers(input_size, hidden_size, num_layers, bidirectional)))
    directions = 2 if bidirectional else 1
    x, h_0, c_0 = map(wnp.asarray, (x, h_0, c_0))
    states = (len(numbers), *x.shape[:1], hidden_size)
    if x.ndim != 3 or x.shape[2] != input_size or h_0.shape != states or c_0.shape != states:
        raise ValueError(
            f"lstm: x of shape {x.shape}, h_0 {h_0.shape} and c_0 {c_0.shape} do not fit input_size={input_size} and states"
            f" of shape {states}."
        )
    times: Any = wnp.arange(x.shape[1])
    lengths: Any = wnp.asarray(seq_lengths)
    inside = times[:, None] < lengths[None, :]  # [time, batch]
    h_n, c_n = [], []
    x = wnp.swapaxes(x, 0, 1)
    for layer in range(num_layers):
        outs = []
        for direction in range(directions):
            n = layer * directions + direction
            input_gates = wnp.matmul(x, W_ih[n].T, precision=precision) + b_ih[n] + b_hh[n]

            def step(state: tuple, row: tuple, of_state: Any = W_hh[n].T) -> tuple:
                h, c = state
                gates, here = row
                i, f, g, o = wnp.split(
                    gates + wnp.matmul(h, of_state, precision=precision), 4, axis=-1
                )
                new_c = nn.sigmoid(f) * c + nn.sigmoid(i) * wnp.tanh(g)
                new_h = nn.sigmoid(o) * wnp.tanh(new_c)
                here = here[:, None]
                return (wnp.where(here, new_h, h), wnp.where(here, new_c, c)), wnp.where(
                    here, new_h, wnp.zeros_like(new_h)
                )

            (h, c), out = lax.scan(
                step, (h_0[n], c_0[n]), (input_gates, inside), reverse=direction == 1
            )
            outs.append(out)
            h_n.append(h)
            c_n.append(c)
        x = wnp.concatenate(outs, axis=-1)
    return wnp.swapaxes(x, 0, 1), wnp.stack(h_n), wnp.stack(c_n)


guard_all(globals())
