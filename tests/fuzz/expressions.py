"""Expressions in random programs, by the kind of operand, separated by semicolons.

`{0}` and `{1}` are the operands, `{d}` is a dim, `{t}` the dtype. Expressions in tables named STEPS
are discontinuous; those in tables named EDGE leave their domain or overflow. Expressions with
rounded results do not depend on the side of a step on which an operand is.
"""

FLOAT_UNARY = """
    xp.sin({0}) ; xp.cos({0}) ; xp.tanh({0}) ; xp.exp(-xp.abs({0})) ; xp.log1p(xp.square({0})) ; xp.sqrt({0} * {0} + 1) ;
    {0} * 0.5 ; 1.5 - {0} ; {0} / 3 ; nn.sigmoid({0}) ; nn.gelu({0}) ; xp.arctan({0}) ; xp.expm1(-xp.abs({0})) ; {0} ** 2 ;
    1 / (1 + {0} * {0}) ; nn.silu({0}) ; lax.rsqrt(1 + {0} * {0}) ; nn.softplus({0}) ; xp.cbrt(2 + xp.abs({0})) ; lax.erf({0}) ;
    ({0} * xp.asarray(0.46, {0}.dtype)) ** 3 ; xp.log(2 + xp.abs({0})) ; lax.lgamma(2 + xp.abs({0})) ; xp.sinc(xp.clip({0}, -9, 9)) ;
    xp.arcsinh({0}) ;
    xp.exp2(-xp.abs({0})) ; nn.elu({0}) ; xp.cosh(xp.clip({0}, -2, 2))
"""
FLOAT_EXACT_UNARY = """
    -{0} ; xp.abs({0}) ; xp.clip({0}, -1, 1) ; nn.relu({0}) ; xp.where({0} > 0, {0}, {0}) ; xp.maximum({0}, 0) ;
    xp.minimum({0}, 1) ; xp.real({0}) ; +{0} ; xp.nan_to_num({0}, posinf=1, neginf=-1) ; lax.stop_gradient({0}) ;
    lax.optimization_barrier({0})
"""
FLOAT_STEPS = """
    xp.floor({0}) ; xp.ceil({0}) ; xp.round({0}) ; xp.trunc({0}) ; xp.sign({0}) ; xp.rint({0}) ; {0} // 2 ; xp.fmod({0}, 2) ;
    xp.modf({0})[1]
"""
FLOAT_EDGE = """
    xp.exp({0}) ; xp.log(xp.abs({0})) ; xp.sqrt({0}) ; 1 / {0} ; {0} * {0} ; xp.sinh({0}) ; xp.log1p({0}) ; {0} - {0} ;
    xp.arctanh({0}) ; xp.log2({0})
"""
FLOAT_BINARY = """
    {0} + {1} ; {0} - {1} ; {0} * {1} ; {0} / (2 + xp.abs({1})) ; xp.arctan2({0}, 1.5 + xp.abs({1})) ; xp.logaddexp({0}, {1}) ;
    xp.hypot({0}, 1 + xp.abs({1})) ; xp.power(1 + xp.abs({0}), xp.clip({1}, -2, 2)) ;
    lax.mul({0}, xp.broadcast_to({1}, {0}.shape))
"""
FLOAT_EXACT_BINARY = """
    xp.maximum({0}, {1}) ; xp.minimum({0}, {1}) ; xp.fmax({0}, {1}) ; xp.copysign({0}, xp.nan_to_num({1})) ; xp.fmin({0}, {1})
"""
INT_UNARY = """
    -{0} ; xp.abs({0}) ; ~{0} ; {0} * 3 ; {0} + 7 ; {0} // 2 ; {0} % 3 ; xp.sign({0}) ; lax.population_count({0}) ; lax.clz({0}) ;
    {0} ** 2 ; xp.clip({0}, 1, 5) ; {0} << 1 ; {0} >> 1 ; xp.square({0}) ; 7 - {0} ; xp.right_shift({0}, 2) ;
    lax.bitcast_convert_type({0}, {0}.dtype)
"""
INT_BINARY = """
    {0} + {1} ; {0} - {1} ; {0} * {1} ; {0} & {1} ; {0} | {1} ; {0} ^ {1} ; xp.maximum({0}, {1}) ; xp.minimum({0}, {1}) ;
    {0} // {1} ; {0} % {1} ; {0} << ({1} & 3) ; {0} >> ({1} & 3) ; xp.gcd({0}, {1} | 1) ; xp.fmod({0}, {1}) ;
    xp.bitwise_xor({0}, {1})
"""
BOOL_BINARY = """
    {0} & {1} ; {0} | {1} ; {0} ^ {1} ; xp.logical_or({0}, {1}) ; {0} == {1} ; {0} != {1}
"""
COMPARE = """
    {0} < {1} ; {0} <= {1} ; {0} == {1} ; {0} != {1} ; {0} > {1} ; {0} >= {1} ; xp.isclose({0}, {1})
"""
TESTS = """
    xp.isnan({0}) ; xp.isfinite({0}) ; xp.signbit({0}) ; xp.isinf({0}) ; {0} == 0 ; {0} > 0
"""
COMPLEX_UNARY = """
    -{0} ; xp.conj({0}) ; {0} * (1 + 2j) ; xp.exp(1j * xp.real({0})).astype({0}.dtype) ; {0} * {0} ; 1j * {0} ;
    {0} / (2 + xp.abs({0}))
"""
COMPLEX_BINARY = """
    {0} + {1} ; {0} - {1} ; {0} * {1} ; {0} / (2 + xp.abs({1}))
"""
TO_REAL = """
    xp.real({0}) ; xp.imag({0}) ; xp.abs({0})
"""
FLOAT_REDUCE = """
    xp.sum({0}, {d}) ; xp.mean({0}, {d}) ; nn.logsumexp({0}, {d}) ; xp.var({0}, {d}) ; xp.prod(xp.tanh({0}), {d}) ;
    xp.linalg.norm(1 + xp.abs({0}), axis={d})
"""
EXACT_REDUCE = """
    xp.max({0}, {d}) ; xp.min({0}, {d})
"""
INT_REDUCE = """
    xp.sum({0}, {d}, dtype={t}) ; xp.prod({0}, {d}, dtype={t}) ; xp.max({0}, {d}) ; xp.min({0}, {d})
"""
BOOL_REDUCE = """
    xp.any({0}, {d}) ; xp.all({0}, {d})
"""
PLACES = """
    xp.argmax({0}, {d}) ; xp.argmin({0}, {d}) ; xp.count_nonzero({0}, {d})
"""
FLOAT_ALONG = """
    nn.softmax({0}, {d}) ; xp.cumsum({0}, {d}) ; nn.log_softmax({0}, {d}) ; {0} - xp.mean({0}, {d}, keepdims=True) ;
    xp.cumprod(xp.tanh({0}), {d}) ; nn.standardize({0}, axis={d}) ; lax.cumlogsumexp({0}, {d}) ; xp.cumsum({0}[::-1], {d}) ;
    lax.associative_scan(xp.add, {0}, axis={d})
"""
EXACT_ALONG = """
    xp.flip({0}, {d}) ; xp.roll({0}, 1, {d}) ; xp.sort({0}, {d}) ; lax.cummax({0}, {d}) ; lax.cummin({0}, {d}) ;
    xp.roll({0}, -2, {d}) ; lax.cummax({0}, {d}, reverse=True) ; xp.roll({0}, 3, {d}) ;
    xp.take({0}, xp.arange({0}.shape[{d}])[::-1], {d})
"""
INT_ALONG = """
    xp.cumsum({0}, {d}, dtype={t}) ; xp.cumprod({0}, {d}, dtype={t}) ; lax.associative_scan(xp.bitwise_xor, {0}, axis={d})
"""
