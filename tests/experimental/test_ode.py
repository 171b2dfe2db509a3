"""Solutions of differential equations against closed forms and SciPy, gradients against closed forms and finite differences."""

import numpy as np
import pytest
import scipy.integrate

import weft
import weft.numpy as wnp
from weft.experimental.ode import odeint
from weft.test_util import check_grads

TIMES = np.linspace(0.0, 2.0, 5)


def pendulum(y, t, length, damping):
    angle, speed = y
    return [speed, -wnp.sin(angle) / length - damping * speed * t]


def test_a_pendulum_moves_as_in_scipy():
    with weft.enable_x64(True):
        angle, speed = odeint(pendulum, [1.0, 0.5], TIMES, 0.7, 0.2, rtol=1e-9, atol=1e-9)
    expected = scipy.integrate.solve_ivp(
        lambda t, y: [y[1], -np.sin(y[0]) / 0.7 - 0.2 * y[1] * t],
        (0, 2),
        [1.0, 0.5],
        "DOP853",
        TIMES,
        rtol=1e-11,
        atol=1e-11,
    ).y
    np.testing.assert_allclose(angle, expected[0], atol=1e-7)
    np.testing.assert_allclose(speed, expected[1], atol=1e-7)


def test_gradients_by_the_start_the_times_and_the_arguments():
    def end(y0, ts, rate, order):
        return odeint(
            lambda y, t, rate, order: -rate * y * order, y0, ts, rate, order, rtol=1e-9, atol=1e-9
        )[-1]

    with weft.enable_x64(True):
        ts = np.array([0.5, 1.0, 2.0])
        gradient = weft.grad(end, (0, 1, 2))(3.0, ts, 0.4, 2)
        decayed = np.exp(-0.8 * 1.5)
        np.testing.assert_allclose(gradient[0], decayed, rtol=1e-7)
        np.testing.assert_allclose(gradient[1], 3 * 0.8 * decayed * np.array([1, 0, -1]), rtol=1e-7)
        np.testing.assert_allclose(gradient[2], -2 * 1.5 * 3 * decayed, rtol=1e-7)
        second = weft.grad(weft.grad(end, 2), 2)(3.0, ts, 0.4, 2)
        np.testing.assert_allclose(second, 9 * 3 * decayed, rtol=1e-6)


def test_gradients_of_every_time_and_of_complex_states():
    def turning(y0, ts, rate):
        return odeint(lambda y, t, rate: rate * y * wnp.cos(t), y0, ts, rate, rtol=1e-8, atol=1e-8)

    with weft.enable_x64(True):
        y0, rate = np.array([1 + 2j, -1j]), 0.3 + 0.8j
        np.testing.assert_allclose(
            turning(y0, TIMES, rate), y0 * np.exp(rate * np.sin(TIMES))[:, None], rtol=1e-6
        )
        check_grads(
            lambda y0, ts, rate: wnp.abs(turning(y0, ts, rate)) ** 2,
            (y0, TIMES, rate),
            1,
            ["rev"],
            1e-4,
            1e-4,
        )


def test_closures_batches_and_jit():
    @weft.jit
    def end(rate):
        return odeint(
            lambda y, t: -rate * y, wnp.float32(2.0), wnp.array([0.0, 1.0]), rtol=1e-6, atol=1e-6
        )[-1]

    rates = np.float32([0.1, 1.0, 4.0])
    values, slopes = weft.vmap(weft.value_and_grad(end))(rates)
    np.testing.assert_allclose(values, 2 * np.exp(-rates), rtol=1e-4)
    np.testing.assert_allclose(slopes, -2 * np.exp(-rates), rtol=1e-3)
    with pytest.raises(TypeError, match="forward-mode"):
        weft.jvp(end, (1.0,), (1.0,))


def test_bounds_of_steps():
    def pulse(y, t):  # a first step over the whole interval would not see it
        return wnp.where((t > 4) & (t < 5), 1.0, 0.0)

    ys = odeint(pulse, wnp.float32(0), wnp.array([0.0, 10.0]), rtol=1e-4, atol=1e-4, hmax=0.5)
    np.testing.assert_allclose(ys, [0, 1], atol=1e-2)
    short = odeint(lambda y, t: -y, wnp.float32(1), wnp.array([0.0, 50.0]), mxstep=3)
    assert abs(short[1]) > 1e-3  # three steps do not get there
    assert odeint(lambda y, t: y, 1, [0.0]).tolist() == [1.0]
    blown = odeint(
        lambda y, t: y * y, wnp.float32(1), wnp.array([0.0, 2.0]), rtol=1e-3, atol=1e-3
    )  # 1 / (1 - t)
    assert blown.shape == (2,)


@pytest.mark.parametrize(
    "y0",
    [[np.float32(1.0), np.float32(0.0)], {"a": np.float32(1.0), "b": [np.zeros((1,), np.float32)]}],
)
def test_slopes_of_numbers_may_be_one_array(y0):
    """In the order of y's leaves, also through gradients."""
    ts = np.linspace(0.0, 1.0, 5).astype(np.float32)

    def pendulum(y, t, rate):
        a, b = (wnp.ravel(leaf)[0] for leaf in weft.tree.leaves(y))
        return wnp.array([b * rate, -a * rate])

    def last(y0, rate):
        return sum(wnp.sum(leaf[-1]) for leaf in weft.tree.leaves(odeint(pendulum, y0, ts, rate)))

    first, second = weft.tree.leaves(odeint(pendulum, y0, ts, 2.0))
    np.testing.assert_allclose(np.ravel(first), np.cos(2 * ts), atol=1e-4)
    np.testing.assert_allclose(np.ravel(second), -np.sin(2 * ts), atol=1e-4)
    by_start, by_rate = weft.grad(last, (0, 1))(y0, 2.0)
    np.testing.assert_allclose(by_rate, -np.sin(2.0) - np.cos(2.0), atol=1e-3)
    np.testing.assert_allclose(weft.tree.leaves(by_start)[0], np.cos(2.0) - np.sin(2.0), atol=1e-3)


def test_what_cannot_be_solved_is_refused():
    with pytest.raises(ValueError, match="t must be a vector"):
        odeint(lambda y, t: y, 1.0, 2.0)
    with pytest.raises(TypeError, match="slopes of the shapes"):
        odeint(lambda y, t: y[:1], np.ones(2), [0.0, 1.0])
    with pytest.raises(TypeError, match="make y0 complex"):
        odeint(lambda y, t: 1j * y, np.ones(2), [0.0, 1.0])
