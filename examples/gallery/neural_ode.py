"""Neural ODE.

Fit a small network to the motion of a damped pendulum, with gradients through the solver
of the differential equation.

python examples/gallery/neural_ode.py
"""

# %%
# The data: angle and speed of a pendulum from four starting points.
import weft
import weft.numpy as wnp
from weft.experimental.ode import odeint

times = wnp.linspace(0.0, 4.0, 21)


def pendulum(state, time):
    angle, speed = state
    return wnp.stack([speed, -0.2 * speed - 2 * wnp.sin(angle)])


starts = wnp.array([[1.5, 0.0], [-1.0, 1.0], [0.5, -1.5], [-2.0, 0.0]])
paths = weft.vmap(lambda start: odeint(pendulum, start, times))(starts)
print("paths", paths.shape)


# %%
# The network maps a state to its rate of change.
def init(key, sizes=(2, 64, 2)):
    keys = weft.random.split(key, len(sizes) - 1)
    scale = weft.nn.initializers.glorot_normal()
    pairs = zip(keys, sizes[:-1], sizes[1:])
    return [(scale(k, (m, n)), wnp.zeros(n)) for k, m, n in pairs]


def rate(state, time, params):
    *hidden, (weight, bias) = params
    for w, b in hidden:
        state = wnp.tanh(state @ w + b)
    return state @ weight + bias


def predict(params, starts):
    solve = lambda start: odeint(rate, start, times, params, rtol=1e-3, atol=1e-3)
    return weft.vmap(solve)(starts)


def loss(params, starts, paths):
    return wnp.mean((predict(params, starts) - paths) ** 2)


# %%
# Adam in a few lines. `value_and_grad` solves the adjoint equation backward in time.
@weft.jit
def train_step(params, first, second, count):
    value, grads = weft.value_and_grad(loss)(params, starts, paths)
    count = count + 1
    first = weft.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = weft.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, grads)

    def update(p, m, v):
        m, v = m / (1 - 0.9**count), v / (1 - 0.99**count)
        return p - 0.02 * m / (wnp.sqrt(v) + 1e-8)

    return weft.tree.map(update, params, first, second), first, second, count, value


params = init(weft.random.key(0))
zeros = weft.tree.map(wnp.zeros_like, params)
state = (params, zeros, zeros, wnp.float32(0))
for number in range(151):
    *state, value = train_step(*state)
    if number % 50 == 0:
        print(f"step {number:3}  loss {value:.3f}")

# %%
# The fitted paths, compared with the data.
params = state[0]
fitted = predict(params, starts)
print(f"mean error {abs(fitted - paths).mean():.2f}")
