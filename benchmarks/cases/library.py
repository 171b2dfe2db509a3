"""Functions of the libraries around arrays: special functions, transforms of awkward lengths, sets, solvers."""

import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jax import lax
from jax.experimental import jet, ode
from jax.scipy import special
from suite import integers, normal, program

GROUP = "library"

for _name, _positive in (
    ("dawsn", False),
    ("erfcx", False),
    ("exp1", True),
    ("expi", True),
    ("loggamma", True),
    ("spence", True),
    ("wofz", False),
    ("fresnel", False),
    ("sici", True),
    ("ndtri", False),
    ("log_ndtr", False),
    ("zeta", True),
    ("betaln", True),
    ("expn", True),
    ("i1e", False),
):
    _function = getattr(special, _name, None)
    if _function is not None:
        _args = {
            "zeta": lambda x, f=_function: f(x + 1.5, x + 1),
            "betaln": lambda x, f=_function: f(x + 1, x + 2),
            "expn": lambda x, f=_function: f(2, x),
            "ndtri": lambda x, f=_function: f(0.5 + 0.1 * jnp.tanh(x)),
        }.get(_name, _function)
        program(f"special.{_name}", GROUP, _args, normal(1 << 16, positive=_positive))
program(
    "special.betainc",
    GROUP,
    lambda x: special.betainc(x + 1, x + 2, x / (x + 1)),
    normal(1 << 14, positive=True),
)
program("special.hyp1f1", GROUP, lambda x: special.hyp1f1(0.5, 1.5, x), normal(1 << 12))
program(
    "special.bessel_jn", GROUP, lambda x: special.bessel_jn(x, v=4), normal(1 << 12, positive=True)
)

for _n in (521, 1009, 4099, 65537, 1 << 20):
    program(
        f"fft of {_n}, complex",
        GROUP,
        jnp.fft.fft,
        normal(max(1, (1 << 16) // _n), _n, dtype="complex64"),
    )
program("dct, 100 rows of 1000", GROUP, lambda x: jsp.fft.dct(x), normal(100, 1000))
program("stft of 65536", GROUP, lambda x: jsp.signal.stft(x, nperseg=256)[2], normal(1 << 16))
program("welch of 65536", GROUP, lambda x: jsp.signal.welch(x, nperseg=256)[1], normal(1 << 16))

program("packbits", GROUP, jnp.packbits, integers(2, 1 << 20, dtype="uint8"))
program("unpackbits", GROUP, jnp.unpackbits, integers(256, 1 << 17, dtype="uint8"))
program("meshgrid", GROUP, lambda x, y: jnp.meshgrid(x, y), normal(1000), normal(1000))
program("unique, 4096 of 1000", GROUP, lambda x: jnp.unique(x, size=1000), integers(1000, 4096))
program("isin, 65536 in 1000", GROUP, jnp.isin, integers(10000, 1 << 16), integers(10000, 1000))
program(
    "intersect1d",
    GROUP,
    lambda x, y: jnp.intersect1d(x, y, size=1000),
    integers(10000, 4096),
    integers(10000, 4096),
)
program(
    "segment_max",
    GROUP,
    lambda x, i: jax.ops.segment_max(x, i, 1024),
    normal(1 << 14, 32),
    integers(1024, 1 << 14),
)
program(
    "segment_prod",
    GROUP,
    lambda x, i: jax.ops.segment_prod(x, i, 1024),
    normal(1 << 14),
    integers(1024, 1 << 14),
)
program(
    "sort of three keys",
    GROUP,
    lambda x, y, z: lax.sort((x, y, z), num_keys=3),
    integers(9, 1 << 14),
    integers(99, 1 << 14),
    normal(1 << 14),
)
program("argsort descending", GROUP, lambda x: jnp.argsort(x, descending=True), normal(1 << 16))
program("approx_max_k", GROUP, lambda x: lax.approx_max_k(x, 10), normal(64, 4096))
program(
    "associative_scan of products",
    GROUP,
    lambda x: lax.associative_scan(jnp.multiply, x),
    normal(1 << 16),
)
program(
    "associative_scan of matrices",
    GROUP,
    lambda x: lax.associative_scan(jnp.matmul, x),
    normal(1024, 4, 4),
)
program(
    "RegularGridInterpolator",
    GROUP,
    lambda v, p: jsp.interpolate.RegularGridInterpolator((jnp.arange(64.0), jnp.arange(64.0)), v)(
        abs(p) * 10
    ),
    normal(64, 64),
    normal(1 << 14, 2),
)
program(
    "map_coordinates",
    GROUP,
    lambda v, p: jsp.ndimage.map_coordinates(v, list(abs(p) * 10), order=1),
    normal(64, 64),
    normal(2, 1 << 14),
)

program(
    "tridiagonal_solve",
    GROUP,
    lambda a, b: lax.linalg.tridiagonal_solve(a, a + 9, a, b),
    normal(64, 512, positive=True),
    normal(64, 512, 4),
)
program(
    "ragged_dot",
    GROUP,
    lambda a, b: lax.ragged_dot(a, b, jnp.array([100, 412, 0, 512], jnp.int32)),
    normal(1024, 256),
    normal(4, 256, 256),
)
program(
    "conv_general_dilated_local",
    GROUP,
    lambda x, k: lax.conv_general_dilated_local(x, k, (1, 1), "VALID", (3, 3)),
    normal(4, 8, 32, 32),
    normal(16, 72, 30, 30),
)
program(
    "cg",
    GROUP,
    lambda a, b: jsp.sparse.linalg.cg(lambda x: a @ (a.T @ x) + 99 * x, b, maxiter=20)[0],
    normal(256, 256),
    normal(256),
)
program(
    "jet of order 4",
    GROUP,
    lambda x: jet.jet(lambda x: jnp.sin(x) * jnp.exp(-x), (x,), ((x, x, x, x),)),
    normal(1 << 14),
)
program(
    "odeint",
    GROUP,
    lambda y: ode.odeint(lambda y, t: -y * jnp.cos(t), y, jnp.linspace(0.0, 3.0, 8)),
    normal(64),
)
