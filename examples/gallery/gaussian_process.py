"""Gaussian process regression.

Learn the length scale, amplitude and noise of a Gaussian process by gradients of the
marginal likelihood, and predict with error bars.

python examples/gallery/gaussian_process.py
"""

# %%
# The data: 40 noisy samples of a function. A random key makes them the same on every run.
import weft
import weft.numpy as wnp
import weft.scipy.linalg as linalg

key_x, key_noise = weft.random.split(weft.random.key(0))
x = weft.random.uniform(key_x, (40,), minval=-3.0, maxval=3.0)
y = wnp.sin(2 * x) + 0.2 * weft.random.normal(key_noise, (40,))

# %%
# The kernel of two sets of points. Parameters are logarithms, so that they stay positive.
params = {"length": 0.0, "amplitude": 0.0, "noise": -1.0}


def kernel(params, a, b):
    distance = (a[:, None] - b[None, :]) / wnp.exp(params["length"])
    return wnp.exp(2 * params["amplitude"] - 0.5 * distance**2)


def covariance(params, x):
    return kernel(params, x, x) + wnp.exp(2 * params["noise"]) * wnp.eye(len(x))


# %%
# The negative logarithm of the marginal likelihood, from a Cholesky factor.
def loss(params, x, y):
    factor = wnp.linalg.cholesky(covariance(params, x))
    white = linalg.solve_triangular(factor, y, lower=True)
    return 0.5 * white @ white + wnp.log(wnp.diagonal(factor)).sum()


# %%
# Gradient descent; one compiled program runs all steps.
@weft.jit
def fit(params, x, y):
    def step(params, _):
        value, grads = weft.value_and_grad(loss)(params, x, y)
        return weft.tree.map(lambda p, g: p - 0.01 * g, params, grads), value

    return weft.lax.scan(step, params, length=300)


params = weft.tree.map(wnp.float32, params)
params, losses = fit(params, x, y)
print(f"loss {losses[0]:.1f} -> {losses[-1]:.1f}")
for name, value in params.items():
    print(f"{name:9} {wnp.exp(value):.2f}")


# %%
# The posterior mean and standard deviation on a grid.
@weft.jit
def predict(params, x, y, grid):
    factor = linalg.cho_factor(covariance(params, x), lower=True)
    cross = kernel(params, grid, x)
    mean = cross @ linalg.cho_solve(factor, y)
    explained = (cross * linalg.cho_solve(factor, cross.T).T).sum(1)
    return mean, wnp.sqrt(wnp.exp(2 * params["amplitude"]) - explained)


grid = wnp.linspace(-3.5, 3.5, 141)
mean, deviation = predict(params, x, y, grid)
inside = abs(mean - wnp.sin(2 * grid)) < 2 * deviation
print(f"the function is within two deviations at {inside.sum()} of {len(grid)} points")
