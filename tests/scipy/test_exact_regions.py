"""Values, first and second derivatives of special functions near zeros, poles and integers, at tiny and large arguments, against mpmath."""

from __future__ import annotations

import math

import pytest

from tests.scipy.exact_regions import MEASURED, PAGE, REGIONS, every_share

#: functions and orders of derivatives with points above 1, as docs/accuracy.md says, and the largest share of each
ABOVE: dict[tuple[str, int], float] = {
    ("special.gamma", 0): 3, ("special.gamma", 1): 9, ("special.poch", 0): 3, ("special.poch", 1): 8, ("special.poch", 2): 16,
    ("special.dawsn", 1): 1.2, ("special.dawsn", 2): 16, ("special.erfcx", 2): 4,
    ("special.expn", 0): 4, ("special.expn", 1): 5, ("special.hyp1f1", 0): 400, ("special.hyp1f1", 1): 600, ("special.hyp1f1", 2): 40,
    # products of subnormal numbers by small integers
    ("special.lpmn[1][3, 1]", 0): 2, ("special.lpmn[1][4, 2]", 0): 2, ("special.lpmn[1][5, 3]", 0): 3,
    ("special.beta", 2): math.inf, ("special.zeta", 2): math.inf, ("nn.softplus", 2): math.inf, ("numpy.logaddexp", 2): math.inf,
}  # fmt: skip

#: functions that take mpmath or the compiler long
SLOW = ("special.beta", "special.betaln", "special.xlogy", "special.xlog1py", "special.spence", "special.zeta", "special.gammainc",
        "special.gammaincc", "special.betainc", "special.owens_t", "special.hyp1f1", "special.hyp2f1", "special.expn", "special.poch",
        "numpy.logaddexp", "special.polygamma", "special.wofz[real]", "special.wofz[imag]", "special.sph_harm_y[3, 0]",
        "special.sph_harm_y[3, 1]", "special.sph_harm_y[4, -3]")  # fmt: skip
CASES = [
    pytest.param(
        name,
        type_,
        id=f"{name}-{type_}",
        marks=() if name not in SLOW and k % 2 == j else pytest.mark.exhaustive,
    )
    for k, name in enumerate(REGIONS)
    for j, type_ in enumerate(MEASURED)
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name, type_", CASES)
def test_errors_in_regions(name, type_):
    for region, error in every_share(name, type_):
        allowed = ABOVE.get((name, len(error.by)), 1.0)
        assert error.share <= allowed, (
            f"{region}, derivative by {error.by} at {error.args}: {error.got}, exact {error.exact}"
        )


def test_the_page_names_no_other_functions():
    names = {
        line.split("`")[1]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| `") and line.count("|") == 5
    }
    assert names and names <= set(REGIONS)
