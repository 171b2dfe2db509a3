"""The programs of docs/sparse.md have the results shown on the page."""

import numpy as np

from tests.harness.pages import blocks, needs_pages


@needs_pages
def test_page():
    scope: dict = {}
    for block in blocks("docs/sparse.md"):
        exec(block, scope)
    m, v = np.array([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0]]), scope["v"]
    expected = np.linalg.matrix_power(m.T @ m, 3) @ np.ones(3)
    np.testing.assert_allclose(v, expected / np.linalg.norm(expected), rtol=1e-5)
    assert (scope["m"] @ np.ones(3)).tolist() == [2.0, 7.0]
    assert (scope["m"] * 2).sum(0).todense().tolist() == [6.0, 4.0, 8.0]
    np.testing.assert_allclose(
        scope["gradient"].todense(), np.where(m != 0, 2 * np.outer(m @ v, v), 0), rtol=1e-5
    )
