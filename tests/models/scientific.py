"""Scientific models: graph network, neural ODE, Gaussian process, HMC, Kalman filter, PINN."""

from __future__ import annotations

import weft
import weft.numpy as jnp
from tests.models.layers import dense, init_dense, init_mlp, mlp
from tests.models.optimizers import adam, sgd
from tests.models.record import Model, Size, sizes
from weft import lax, nn, random
from weft.scipy.linalg import cho_solve, solve_triangular

# ---- graph network: messages along edges, summed by segment


def _init_graph(key, s):
    keys = random.split(key, 4)
    return {
        "embed": init_dense(keys[0], 4, s.width),
        "message": init_mlp(keys[1], [2 * s.width + 1, s.width, s.width]),
        "update": init_mlp(keys[2], [2 * s.width, s.width, s.width]),
        "readout": init_dense(keys[3], s.width, 1),
    }


def _graph_batch(key, s):
    """Return one large graph made of several graphs."""
    keys = random.split(key, 5)
    return {
        "nodes": random.normal(keys[0], (s.nodes, 4)),
        "length": random.uniform(keys[1], (s.edges, 1)),
        "sender": random.randint(keys[2], (s.edges,), 0, s.nodes),
        "receiver": random.randint(keys[3], (s.edges,), 0, s.nodes),
        "graph": jnp.sort(random.randint(keys[4], (s.nodes,), 0, s.graphs)),
        "target": jnp.linspace(-1.0, 1.0, s.graphs),
    }


def _graph_loss(params, batch):
    segment_sum = weft.ops.segment_sum
    sender, receiver, count = batch["sender"], batch["receiver"], batch["nodes"].shape[0]
    h = nn.relu(dense(params["embed"], batch["nodes"]))
    degree = segment_sum(jnp.ones(sender.shape[0]), receiver, count)
    for _ in range(2):
        pairs = jnp.concatenate([h[sender], h[receiver], batch["length"]], axis=-1)
        messages = mlp(params["message"], pairs, nn.relu)
        received = segment_sum(messages, receiver, count) / jnp.maximum(degree, 1.0)[:, None]
        h = h + mlp(params["update"], jnp.concatenate([h, received], axis=-1), nn.relu)
    graphs = batch["target"].shape[0]
    pooled = segment_sum(h, batch["graph"], graphs, indices_are_sorted=True)
    return jnp.mean((dense(params["readout"], pooled)[:, 0] - batch["target"]) ** 2)


# ---- neural ODE: Runge-Kutta steps, recomputed in the backward pass; positions and velocities fit


def _init_ode(key, s):
    return init_mlp(key, [2, s.width, 2])


def _ode_batch(key, s):
    start = random.normal(key, (s.batch, 2))
    angles = jnp.linspace(0.0, 1.0, s.steps)
    turn = jnp.stack([jnp.cos(angles), jnp.sin(angles), -jnp.sin(angles), jnp.cos(angles)], -1)
    path = jnp.einsum("tij,bj->bti", turn.reshape(-1, 2, 2), start)
    return {"start": start, "path": path * jnp.exp(-0.3 * angles)[:, None]}


def _ode_loss(params, batch):
    def field(y):
        return mlp(params, y**3)

    @weft.checkpoint
    def step(y, _):
        dt = 0.1
        k1 = field(y)
        k2 = field(y + 0.5 * dt * k1)
        k3 = field(y + 0.5 * dt * k2)
        k4 = field(y + dt * k3)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4), y

    seen = batch["path"].transpose(1, 0, 2)
    _, path = lax.scan(step, batch["start"], length=seen.shape[0])
    velocity, seen_velocity = path[1:] - path[:-1], seen[1:] - seen[:-1]
    return jnp.mean((path - seen) ** 2) + 10 * jnp.mean((velocity - seen_velocity) ** 2)


# ---- Gaussian process: the marginal likelihood


def _init_process(key, s):
    return {
        "log_scale": jnp.zeros(s.features),
        "log_amplitude": jnp.array(0.1),
        "log_noise": jnp.array(-1.0),
    }


def _process_batch(key, s):
    data_key, noise_key = random.split(key)
    x = random.uniform(data_key, (s.points, s.features), minval=-2.0, maxval=2.0)
    y = jnp.sin(x).sum(-1) + 0.1 * random.normal(noise_key, (s.points,))
    return {"x": x, "y": y}


def _process_loss(params, batch):
    x, y = batch["x"] / jnp.exp(params["log_scale"]), batch["y"]
    distance = jnp.sum((x[:, None, :] - x[None, :, :]) ** 2, axis=-1)
    kernel = jnp.exp(params["log_amplitude"] - 0.5 * distance)
    noise = jnp.exp(params["log_noise"])
    factor = jnp.linalg.cholesky(kernel + noise * jnp.eye(len(y)))
    fit = 0.5 * y @ cho_solve((factor, True), y)
    volume = jnp.sum(jnp.log(jnp.diagonal(factor)))
    return (fit + volume) / len(y) + 0.5 * jnp.log(2 * jnp.pi)


# ---- HMC: chains that sample the posterior of a logistic regression


def _init_chains(key, s):
    return 0.1 * random.normal(key, (s.chains, s.features))


def _chains_batch(key, s):
    keys = random.split(key, 3)
    x = random.normal(keys[0], (s.points, s.features))
    y = random.bernoulli(keys[1], nn.sigmoid(x.sum(-1)))
    chain_keys = random.key_data(random.split(keys[2], s.chains))  # raw keys, as PRNGKey has them
    return {"x": x, "y": y.astype(jnp.float32), "key": chain_keys}


def _energy(position, batch):
    """Return the negative log posterior of one position."""
    logits = batch["x"] @ position
    return jnp.sum(nn.softplus(logits) - batch["y"] * logits) + 0.5 * position @ position


def _chains_loss(positions, batch):
    return weft.vmap(_energy, in_axes=(0, None))(positions, batch).mean()


def _transition(position, key, batch, rate=0.05, leaps=5):
    """Return the next position of one chain, and its probability of acceptance."""
    momentum_key, accept_key = random.split(key)
    gradient = weft.grad(_energy)
    momentum = random.normal(momentum_key, position.shape)

    def leap(_, state):
        q, p = state
        p = p - 0.5 * rate * gradient(q, batch)
        q = q + rate * p
        return q, p - 0.5 * rate * gradient(q, batch)

    q, p = lax.fori_loop(0, leaps, leap, (position, momentum))
    before = _energy(position, batch) + 0.5 * momentum @ momentum
    after = _energy(q, batch) + 0.5 * p @ p
    accept = jnp.exp(jnp.minimum(0.0, before - after))
    chosen = jnp.where(random.uniform(accept_key) < accept, q, position)
    return chosen, accept


def _chains_update(state, batch):
    positions, _ = state
    transition = weft.vmap(_transition, in_axes=(0, 0, None))
    positions, accept = transition(positions, batch["key"], batch)
    return (positions, ()), accept.mean()


# ---- Kalman filter: the likelihood of a linear dynamical system


def _init_filter(key, s):
    keys = random.split(key, 2)
    noise = 0.2 * random.normal(keys[0], (s.state, s.state))
    return {
        "transition": 0.8 * jnp.eye(s.state) + noise,
        "observe": random.normal(keys[1], (s.seen, s.state)),
        "log_process": jnp.full(s.state, -1.0),
        "log_noise": jnp.full(s.seen, -0.5),
    }


def _filter_batch(key, s):
    return {"seen": jnp.cumsum(random.normal(key, (s.batch, s.length, s.seen)), axis=1) * 0.3}


def _filter_loss_of_one(params, seen):
    A, C = params["transition"], params["observe"]
    Q = jnp.diag(jnp.exp(params["log_process"]))
    R = jnp.diag(jnp.exp(params["log_noise"]))

    def step(carry, y):
        mean, covariance = carry
        mean, covariance = A @ mean, A @ covariance @ A.T + Q
        factor = jnp.linalg.cholesky(C @ covariance @ C.T + R)
        gain = cho_solve((factor, True), C @ covariance).T
        residual = y - C @ mean
        scaled = solve_triangular(factor, residual, lower=True)
        log_prob = -0.5 * scaled @ scaled - jnp.log(jnp.diagonal(factor)).sum()
        keep = jnp.eye(len(mean)) - gain @ C
        covariance = keep @ covariance @ keep.T + gain @ R @ gain.T
        return (mean + gain @ residual, covariance), log_prob

    start = jnp.zeros(A.shape[0]), jnp.eye(A.shape[0])
    return -lax.scan(step, start, seen)[1].mean()


def _filter_loss(params, batch):
    return weft.vmap(_filter_loss_of_one, in_axes=(None, 0))(params, batch["seen"]).mean()


# ---- PINN: Burgers' equation, with second derivatives of the network


def _init_pinn(key, s):
    return init_mlp(key, [2, s.width, s.width, 1])


def _pinn_batch(key, s):
    keys = random.split(key, 2)
    x = random.uniform(keys[1], (s.batch,), minval=-1.0, maxval=1.0)
    return {
        "inside": random.uniform(keys[0], (s.batch, 2), minval=-1.0, maxval=1.0),
        "start": x,
        "value": -jnp.sin(jnp.pi * x),
    }


def _pinn_loss(params, batch):
    def u(t, x):
        return mlp(params, jnp.stack([t, x]))[0]

    def residual(point):
        t, x = point
        u_x = weft.grad(u, 1)
        u_xx = weft.grad(u_x, 1)
        return weft.grad(u, 0)(t, x) + u(t, x) * u_x(t, x) - 0.05 * u_xx(t, x)

    inside = weft.vmap(residual)(batch["inside"])
    start = weft.vmap(lambda x: u(0.0, x))(batch["start"]) - batch["value"]
    return jnp.mean(inside**2) + jnp.mean(start**2)


MODELS = [
    Model(
        "graph_network",
        _init_graph,
        _graph_batch,
        _graph_loss,
        sizes(
            Size(nodes=12, edges=30, graphs=3, width=6),
            Size(nodes=500, edges=3000, graphs=16, width=32),
        ),
        adam(),
        is_batched=False,
    ),
    Model(
        "neural_ode",
        _init_ode,
        _ode_batch,
        _ode_loss,
        sizes(Size(batch=8, steps=6, width=8), Size(batch=128, steps=40, width=64)),
        adam(),
    ),
    Model(
        "gaussian_process",
        _init_process,
        _process_batch,
        _process_loss,
        sizes(Size(points=10, features=2), Size(points=128, features=3)),
        sgd(0.1),
        is_batched=False,
    ),
    Model(
        "hmc",
        _init_chains,
        _chains_batch,
        _chains_loss,
        sizes(Size(chains=4, points=12, features=3), Size(chains=64, points=200, features=16)),
        sgd(),
        _chains_update,
        is_batched=False,
    ),
    Model(
        "kalman_filter",
        _init_filter,
        _filter_batch,
        _filter_loss,
        sizes(Size(batch=8, length=5, state=3, seen=2), Size(batch=16, length=64, state=8, seen=4)),
        adam(),
    ),
    Model(
        "pinn",
        _init_pinn,
        _pinn_batch,
        _pinn_loss,
        sizes(Size(batch=8, width=6), Size(batch=256, width=40)),
        adam(),
    ),
]
