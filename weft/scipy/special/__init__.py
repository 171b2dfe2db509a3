"""Special functions with SciPy's names.

Next: `basic`, `gamma_ratios`, `integrals`, `gammas`, `hypergeometric`, `harmonics`, `faddeeva`.
"""

from weft._engine.scipy.special.basic import (
    betainc,
    boxcox,
    boxcox1p,
    digamma,
    entr,
    erf,
    erfc,
    erfinv,
    expit,
    factorial,
    gammainc,
    gammaincc,
    gammaln,
    gammasgn,
    i0,
    i0e,
    i1,
    i1e,
    kl_div,
    log_ndtr,
    log_softmax,
    logit,
    logsumexp,
    multigammaln,
    ndtr,
    ndtri,
    polygamma,
    rel_entr,
    softmax,
    xlog1py,
    xlogy,
    zeta,
)
from weft._engine.scipy.special.faddeeva import (
    wofz,
)
from weft._engine.scipy.special.gamma_ratios import (
    beta,
    betaln,
    poch,
)
from weft._engine.scipy.special.gammas import (
    bernoulli,
    comb,
    gamma,
    loggamma,
)
from weft._engine.scipy.special.harmonics import (
    bessel_jn,
    lpmn,
    lpmn_values,
    sph_harm_y,
)
from weft._engine.scipy.special.hypergeometric import (
    hyp1f1,
    hyp2f1,
)
from weft._engine.scipy.special.integrals import (
    dawsn,
    erfcx,
    exp1,
    expi,
    expn,
    fresnel,
    owens_t,
    sici,
    spence,
)

__all__ = [
    "bernoulli", "bessel_jn", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "dawsn", "digamma", "entr",
    "erf", "erfc", "erfcx", "erfinv", "exp1", "expi", "expit", "expn", "factorial", "fresnel", "gamma", "gammainc",
    "gammaincc", "gammaln", "gammasgn", "hyp1f1", "hyp2f1", "i0", "i0e", "i1", "i1e", "kl_div", "log_ndtr",
    "log_softmax", "loggamma", "logit", "logsumexp", "lpmn", "lpmn_values", "multigammaln", "ndtr", "ndtri", "owens_t",
    "poch", "polygamma", "rel_entr", "sici", "softmax", "spence", "sph_harm_y", "wofz", "xlog1py", "xlogy", "zeta",
]  # fmt: skip
