"""Functions of matrices and solvers: their products are in full precision, whatever the setting default_matmul_precision is."""

import numpy as np
import pytest

import weft
from weft import numpy as wnp, scipy
from weft.scipy import optimize
from weft.scipy.sparse import linalg as sparse

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((24, 24)).astype(np.float32)
S = X @ X.T / 24 + np.eye(24, dtype=np.float32)
SINGULAR = np.concatenate([X[:5, :6], X[:1, :6]])
V = RANDOM.standard_normal((24, 5)).astype(np.float32)


def power(x):
    """Return S x by elementwise products and sums, which have no precision."""
    return (S * x).sum(1)


FUNCTIONS = {
    "lstsq": lambda: wnp.linalg.lstsq(X[:, :9], V)[0],
    "pinv": lambda: wnp.linalg.pinv(S),
    "gradient of pinv": lambda: weft.grad(lambda x: wnp.linalg.pinv(x).sum())(S),
    "gradient of det": lambda: weft.grad(wnp.linalg.det)(SINGULAR),
    "polyfit": lambda: wnp.polyfit(V[:, 0], V[:, 1], 3, cov=True)[1],
    "expm": lambda: scipy.linalg.expm(S / 2),
    "polar": lambda: scipy.linalg.polar(X, method="svd")[1],
    "lu": lambda: scipy.linalg.lu(X, permute_l=True)[0],
    "qr_multiply": lambda: scipy.linalg.qr_multiply(X, V, mode="left")[0],
    "cg": lambda: sparse.cg(power, V[:, 0], maxiter=6)[0],
    "bicgstab": lambda: sparse.bicgstab(power, V[:, 0], maxiter=4)[0],
    "gmres": lambda: sparse.gmres(power, V[:, 0], restart=8, maxiter=1)[0],
    "bfgs": lambda: (
        optimize.minimize(
            lambda x: (power(x) * x).sum() - x.sum(), V[:, 0], method="BFGS", options={"maxiter": 5}
        ).x
    ),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_the_setting_does_not_change_results(function):
    expected = np.asarray(function())
    with weft.default_matmul_precision("BF16_BF16_F32"):
        result = np.asarray(function())
    np.testing.assert_array_equal(result, expected)
