"""Programs of many small ops in loops: a simulator of a body with four legs, and Hamiltonian Monte Carlo.

The body is written like the generalized pipeline of a physics engine: kinematics with quaternions by depth of the
tree, spatial inertias, a mass matrix, its Cholesky factor, and contact forces by projected gradient steps. All arrays
have 3 to 200 elements per body.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# ---- a floating torso with four legs of two hinges each: links 0; 1, 3, 5, 7 (thighs); 2, 4, 6, 8 (shins)

PARENTS = np.array([-1, 0, 1, 0, 3, 0, 5, 0, 7])
LEVELS = (np.array([1, 3, 5, 7]), np.array([2, 4, 6, 8]))
DOF_LINK = np.array(
    [0] * 6 + list(range(1, 9))
)  # six degrees of freedom of the torso, one of each other link
FEET = LEVELS[1]
STEP_S, FRAMES, CONTACT_ITERATIONS = 0.01, 5, 20

_CORNERS = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]], np.float32)
MODEL = {
    "offset": np.zeros((9, 3), np.float32),
    "axis": np.zeros((9, 3), np.float32),
    "mass": np.array([5.0] + [0.5] * 8, np.float32),
    "inertia": np.array([[0.08] * 3] + [[0.004] * 3] * 8, np.float32),
    "foot": np.zeros((4, 3), np.float32),
}
MODEL["offset"][LEVELS[0], :2] = 0.2 * _CORNERS
MODEL["offset"][LEVELS[1], :2] = 0.2 * _CORNERS
MODEL["axis"][LEVELS[0], 2] = 1.0
MODEL["axis"][LEVELS[1], 0], MODEL["axis"][LEVELS[1], 1] = (
    -_CORNERS[:, 1] / 2**0.5,
    _CORNERS[:, 0] / 2**0.5,
)
MODEL["foot"][:, :2], MODEL["foot"][:, 2] = 0.3 * _CORNERS, -0.3


def ancestors():
    """ancestors()[i, j]: whether the degree of freedom j moves the link of the degree of freedom i."""
    moves = np.zeros((9, 9), bool)
    for link in range(9):
        at = link
        while at >= 0:
            moves[link, at] = True
            at = PARENTS[at]
    return moves[np.ix_(DOF_LINK, DOF_LINK)]


# ---- quaternions, one at a time; `vmap` maps them over links


def quat_mul(u, v):
    return jnp.array(
        [
            u[0] * v[0] - u[1] * v[1] - u[2] * v[2] - u[3] * v[3],
            u[0] * v[1] + u[1] * v[0] + u[2] * v[3] - u[3] * v[2],
            u[0] * v[2] - u[1] * v[3] + u[2] * v[0] + u[3] * v[1],
            u[0] * v[3] + u[1] * v[2] - u[2] * v[1] + u[3] * v[0],
        ]
    )


def rotate(v, q):
    s, u = q[0], q[1:]
    return 2 * (jnp.dot(u, v) * u) + (s * s - jnp.dot(u, u)) * v + 2 * s * jnp.cross(u, v)


def about(axis, angle):
    return jnp.concatenate([jnp.cos(angle / 2)[None], axis * jnp.sin(angle / 2)])


def matrix(q):
    return jax.vmap(rotate, (0, None), 1)(jnp.eye(3), q)


def skew(v):
    return jnp.array([[0.0, -v[2], v[1]], [v[2], 0.0, -v[0]], [-v[1], v[0], 0.0]])


# ---- spatial vectors (angular, linear) in world coordinates about the torso's position


def motion_cross(v, m):
    return jnp.concatenate(
        [jnp.cross(v[:3], m[:3]), jnp.cross(v[3:], m[:3]) + jnp.cross(v[:3], m[3:])]
    )


def force_cross(v, f):
    return jnp.concatenate(
        [jnp.cross(v[:3], f[:3]) + jnp.cross(v[3:], f[3:]), jnp.cross(v[:3], f[3:])]
    )


def spatial_inertia(mass, inertia, position, q):
    r, c = matrix(q), skew(position)
    turned = r @ jnp.diag(inertia) @ r.T
    return jnp.block([[turned + mass * c @ c.T, mass * c], [mass * c.T, mass * jnp.eye(3)]])


def down(root, step, data):
    """Return the values of all links, by depth: `root` for the torso, `step(value of the parent, data of the link)` for the rest."""

    def level(values, links):
        parents, own = (
            jax.tree.map(lambda x: x[PARENTS[links]], values),
            jax.tree.map(lambda x: x[links], data),
        )
        return jax.tree.map(lambda x, y: x.at[links].set(y), values, jax.vmap(step)(parents, own))

    values = jax.tree.map(lambda x: jnp.zeros((9, *x.shape), x.dtype).at[0].set(x), root)
    for links in LEVELS:
        values = level(values, links)
    return values


def up(values):
    """Add to each link's value the values of all links that it carries."""
    for links in reversed(LEVELS):
        values = values.at[PARENTS[links]].add(values[links])
    return values


def frame(model, state, action):
    """One time step of `state`: position, rotation, angles, velocities."""
    position, rotation, angles, velocity = state

    def place(parent, data):
        at, q = parent
        offset, axis, angle = data
        return at + rotate(offset, q), quat_mul(q, about(axis, angle))

    turned = jnp.zeros(9).at[1:].set(angles)
    at, q = down((jnp.zeros(3), rotation), place, (model["offset"], model["axis"], turned))
    axes = jax.vmap(rotate)(model["axis"], q)
    hinges = jax.vmap(lambda at, axis: jnp.concatenate([axis, jnp.cross(at, axis)]))(at, axes)[1:]
    motion = jnp.concatenate([jnp.eye(6), hinges])
    inertia = jax.vmap(spatial_inertia)(model["mass"], model["inertia"], at, q)

    # mass matrix
    carried = up(inertia)
    forces = jax.vmap(jnp.matmul)(carried[DOF_LINK], motion)
    lower = jnp.where(ancestors(), forces @ motion.T, 0.0)
    mass = jnp.tril(lower) + jnp.tril(lower, -1).T + 1e-4 * jnp.eye(14)

    # forces of velocity and gravity
    joint = jnp.zeros((9, 6)).at[1:].set(hinges * velocity[6:, None])
    v = down(velocity[:6], lambda parent, own: parent + own, joint)

    def accelerate(parent, data):
        v, own = data
        return parent + motion_cross(v, own)

    a = down(jnp.array([0.0, 0, 0, 0, 0, 9.81]), accelerate, (v, joint))
    f = jax.vmap(lambda i, v, a: i @ a + force_cross(v, i @ v))(inertia, v, a)
    bias = jax.vmap(jnp.dot)(motion, up(f)[DOF_LINK])
    torque = jnp.zeros(14).at[6:].set(5.0 * action - 0.5 * velocity[6:] - 2.0 * angles)

    # contact of the feet with the ground: forces from projected gradient steps
    factor = jax.scipy.linalg.cho_factor(mass)
    feet = at[FEET] + jax.vmap(rotate)(model["foot"], q[FEET])
    moves = ancestors()[6 + FEET - 1]

    def jacobian(foot, moves):
        return jnp.where(moves, jax.vmap(lambda m: m[3:] + jnp.cross(m[:3], foot))(motion).T, 0.0)

    jac = jax.vmap(jacobian)(feet, moves).reshape(12, 14)
    depth = -(position[2] + feet[:, 2])
    free = velocity + STEP_S * jax.scipy.linalg.cho_solve(factor, torque - bias)
    response = jac @ jax.scipy.linalg.cho_solve(factor, jac.T)
    target = jnp.zeros((4, 3)).at[:, 2].set(jnp.clip(20.0 * depth, 0.0, 1.0)).reshape(12)
    touching = jnp.repeat(depth > 0, 3)
    rate = 1.0 / (1e-6 + jnp.abs(response).sum(1))

    def improve(_, impulse):
        impulse = jnp.where(
            touching, impulse - rate * (response @ impulse + jac @ free - target), 0.0
        ).reshape(4, 3)
        normal = jnp.maximum(impulse[:, 2], 0.0)
        along = (
            impulse[:, :2]
            * jnp.minimum(1.0, normal / (1e-6 + jnp.linalg.norm(impulse[:, :2], axis=1)))[:, None]
        )
        return jnp.concatenate([along, normal[:, None]], 1).reshape(12)

    impulse = lax.fori_loop(0, CONTACT_ITERATIONS, improve, jnp.zeros(12))
    velocity = free + jax.scipy.linalg.cho_solve(factor, jac.T @ impulse)

    # integration
    speed = jnp.linalg.norm(velocity[:3]) + 1e-6
    rotation = quat_mul(about(velocity[:3] / speed, STEP_S * speed), rotation)
    return (
        position + STEP_S * velocity[3:6],
        rotation / jnp.linalg.norm(rotation),
        angles + STEP_S * velocity[6:],
        velocity,
    )


def legged_state(count=0):
    """The initial state of one body, or of `count`."""
    state = (
        np.array([0.0, 0, 0.35], np.float32),
        np.array([1.0, 0, 0, 0], np.float32),
        np.zeros(8, np.float32),
        np.zeros(14, np.float32),
    )
    return state if not count else tuple(np.repeat(x[None], count, 0) for x in state)


def legged_run(model, state, actions):
    """Control steps of FRAMES time steps each; the last state, and a reward for each step."""

    def step(state, action):
        new = lax.fori_loop(0, FRAMES, lambda _, state: frame(model, state, action), state)
        return new, (new[0][0] - state[0][0]) / (FRAMES * STEP_S) - 0.1 * jnp.sum(action**2)

    return lax.scan(step, state, actions)


# ---- Hamiltonian Monte Carlo for the weights of a logistic regression


def log_density(weights, x, y):
    z = x @ weights
    return jnp.sum(y * z - jnp.logaddexp(0.0, z)) - 0.5 * jnp.sum(weights**2)


def hmc(key, weights, x, y, draws, leapfrogs=10, size=0.05):
    """Draws from the posterior, and the share of proposals that were accepted."""
    gradient = jax.value_and_grad(log_density)

    def leapfrog(_, state):
        weights, momentum, _, slope = state
        momentum = momentum + 0.5 * size * slope
        weights = weights + size * momentum
        value, slope = gradient(weights, x, y)
        return weights, momentum + 0.5 * size * slope, value, slope

    def draw(state, key):
        weights, value, slope = state
        of_momentum, of_choice = jax.random.split(key)
        momentum = jax.random.normal(of_momentum, weights.shape)
        new, last, new_value, new_slope = lax.fori_loop(
            0, leapfrogs, leapfrog, (weights, momentum, value, slope)
        )
        gain = new_value - value + 0.5 * (jnp.sum(momentum**2) - jnp.sum(last**2))
        accept = jnp.log(jax.random.uniform(of_choice)) < gain
        state = jax.tree.map(
            lambda a, b: jnp.where(accept, a, b), (new, new_value, new_slope), state
        )
        return state, (state[0], accept)

    _, (chain, accepted) = lax.scan(
        draw, (weights, *gradient(weights, x, y)), jax.random.split(key, draws)
    )
    return chain, accepted.mean()
