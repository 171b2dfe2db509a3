"""Models of science and statistics."""

import numpy as np

import weft
import weft.numpy as wnp
from tests.models.layers import (
    Draws,
    Model,
    adam_state,
    cross_entropy,
    dense,
    mlp,
    sgd,
    train_step,
    zeros_like,
)
from weft import lax, nn
from weft.ops import segment_max, segment_sum

# ---- graph network


def graph_example(size, seed):
    d = Draws(size, seed)
    nodes, edges, n = d.pick(8, 128), d.pick(20, 640), d.pick(6, 16)
    params = {
        "message": d.mlp(2 * n + 2, n, n), "update": d.mlp(2 * n, n, n), "score": d.dense(n, 1),
        "head": d.dense(n, 3),
    }
    ends = d.integers(nodes, 2, edges)
    inputs = d.normal(nodes, n), d.normal(edges, 2), ends, d.integers(3, nodes)
    return params, adam_state(params), *inputs


def graph_loss(params, nodes, edges, ends, labels):
    """Pass messages twice, weighted by attention over the edges into each node."""
    sources, targets = ends
    count = nodes.shape[0]
    for _ in range(2):
        inputs = wnp.concatenate([nodes[sources], nodes[targets], edges], axis=-1)
        messages = mlp(params["message"], inputs)
        scores = dense(params["score"], messages)[:, 0]
        top = lax.stop_gradient(segment_max(scores, targets, count))
        weights = wnp.exp(scores - top[targets])
        weights = weights / segment_sum(weights, targets, count)[targets]
        gathered = segment_sum(weights[:, None] * messages, targets, num_segments=count)
        nodes = nodes + mlp(params["update"], wnp.concatenate([nodes, gathered], axis=-1))
    return cross_entropy(dense(params["head"], nodes), labels)


# ---- neural ordinary differential equation


def ode_example(size, seed):
    d = Draws(size, seed)
    batch, times = d.pick(3, 80), d.pick(5, 64)
    params = d.mlp(3, d.pick(8, 32), 2)
    clock = np.linspace(0, 1, times, dtype=np.float32)
    return params, adam_state(params), clock, d.normal(batch, 2), d.normal(times - 1, batch, 2)


def ode_loss(params, clock, start, observed):
    """Integrate by the Runge-Kutta method of order 4 with a recomputed backward pass."""

    def slope(y, t):
        t = wnp.broadcast_to(t, (*y.shape[:-1], 1))
        return mlp(params, wnp.concatenate([y, t], axis=-1), wnp.tanh)

    @weft.checkpoint
    def advance(y, interval):
        t, h = interval[0], interval[1] - interval[0]
        k1 = slope(y, t)
        k2 = slope(y + h / 2 * k1, t + h / 2)
        k3 = slope(y + h / 2 * k2, t + h / 2)
        k4 = slope(y + h * k3, t + h)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y, y

    _, path = lax.scan(advance, start, wnp.stack([clock[:-1], clock[1:]], axis=1))
    return ((path - observed) ** 2).mean()


# ---- Gaussian process


def process_example(size, seed):
    d = Draws(size, seed)
    count = d.pick(10, 96)
    params = {"scale": d.normal(3), "height": d.normal(), "noise": d.normal()}
    params = weft.tree.map(np.float32, params)
    return params, zeros_like(params), d.normal(count, 3), d.normal(count)


def process_loss(params, x, y):
    """Return the negative log marginal likelihood for a squared exponential kernel."""
    x = x / nn.softplus(params["scale"])
    squares = ((x[:, None] - x[None]) ** 2).sum(-1)
    kernel = nn.softplus(params["height"]) * wnp.exp(-0.5 * squares)
    kernel = kernel + (nn.softplus(params["noise"]) + 0.1) * wnp.eye(len(y), dtype=y.dtype)
    factor = wnp.linalg.cholesky(kernel)
    whitened = weft.scipy.linalg.solve_triangular(factor, y, lower=True)
    return (0.5 * whitened @ whitened + wnp.log(wnp.diag(factor)).sum()) / len(y)


# ---- Hamiltonian Monte Carlo


def hmc_example(size, seed):
    d = Draws(size, seed)
    count, n, chains = d.pick(12, 128), d.pick(3, 64), d.pick(2, 8)
    x, y = d.normal(count, n), d.integers(2, count)
    return d.normal(chains, n), d.normal(chains, n), d.uniform(chains), x, y


def hmc_step(position, momentum, uniform, x, y):
    """Return one transition of each chain for logistic regression with a normal prior."""

    def potential(w):
        logits = x @ w
        return (nn.softplus(logits) - y * logits).sum() + 0.5 * (w**2).sum()

    def transition(w, p, u):
        size, slope = 0.02, weft.grad(potential)

        def leapfrog(_, state):
            w, p = state
            p = p - size / 2 * slope(w)
            w = w + size * p
            return w, p - size / 2 * slope(w)

        new, last = lax.fori_loop(0, 8, leapfrog, (w, p))
        before, after = potential(w) + 0.5 * (p @ p), potential(new) + 0.5 * (last @ last)
        is_accepted = wnp.log(u) < before - after
        return (wnp.where(is_accepted, new, w), last, before - after), potential(new)

    results, energies = weft.vmap(transition)(position, momentum, uniform)
    return results, energies.mean()


# ---- Kalman filter


def kalman_example(size, seed):
    d = Draws(size, seed)
    n, m, length = d.pick(3, 12), d.pick(2, 4), d.pick(6, 64)
    params = {
        "advance": 0.5 * np.eye(n, dtype=np.float32) + d.normal(n, n, scale=0.1),
        "observe": d.normal(m, n), "log_q": d.normal(n, scale=0.3), "log_r": d.normal(m, scale=0.3),
    }
    return params, zeros_like(params), d.normal(length, m)


def kalman_loss(params, observed):
    a, c = params["advance"], params["observe"]
    q, r = wnp.diag(wnp.exp(params["log_q"])), wnp.diag(wnp.exp(params["log_r"]))

    def advance(carry, y):
        mean, cov = carry
        mean, cov = a @ mean, a @ cov @ a.T + q
        residual, total = y - c @ mean, c @ cov @ c.T + r
        gain = wnp.linalg.solve(total, c @ cov).T
        loss = residual @ wnp.linalg.solve(total, residual) + wnp.linalg.slogdet(total)[1]
        cov = cov - gain @ total @ gain.T
        return (mean + gain @ residual, 0.5 * (cov + cov.T)), loss

    n = a.shape[0]
    start = wnp.zeros(n, a.dtype), wnp.eye(n, dtype=a.dtype)
    _, losses = lax.scan(advance, start, observed)
    return 0.5 * losses.mean()


# ---- physics-informed network


def pinn_example(size, seed):
    d = Draws(size, seed)
    params = d.mlp(2, d.pick(8, 32), d.pick(8, 32), 1)
    points, edge = d.normal(d.pick(8, 300), 2), d.normal(d.pick(4, 64), 2)
    return params, adam_state(params), points, edge


def pinn_loss(params, points, edge):
    """Return the residual of Burgers' equation and of its initial values."""

    def u(t, x):
        return mlp(params, wnp.stack([t, x]), wnp.tanh)[0]

    def residual(t, x):
        value, u_t = weft.value_and_grad(u)(t, x)
        u_x, u_xx = weft.jvp(lambda x: weft.grad(u, 1)(t, x), (x,), (wnp.ones_like(x),))
        return u_t + value * u_x - 0.1 * u_xx

    inside = weft.vmap(residual)(points[:, 0], points[:, 1])
    x = edge[:, 1]
    initial = weft.vmap(u)(wnp.zeros_like(x), x) + wnp.sin(wnp.pi * x)
    return (inside**2).mean() + (initial**2).mean()


MODELS = [
    Model("graph_network", graph_example, train_step(graph_loss)),
    Model("neural_ode", ode_example, train_step(ode_loss)),
    Model("gaussian_process", process_example, train_step(process_loss, sgd)),
    Model("hmc", hmc_example, hmc_step),
    Model("kalman_filter", kalman_example, train_step(kalman_loss, sgd)),
    Model("pinn", pinn_example, train_step(pinn_loss)),
]
