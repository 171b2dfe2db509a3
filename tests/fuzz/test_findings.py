"""Calls that once failed with internal errors under random arguments: each error now names the
wrong argument."""

import numpy as np
import pytest

import weft
import weft.scipy.cluster.vq
import weft.scipy.integrate
import weft.scipy.linalg
import weft.scipy.signal
import weft.scipy.special
import weft.scipy.stats
import weft.test_util
from weft import lax, nn, numpy as wnp
from weft.experimental import jet, mesh_utils, rnn, sparse
from weft.experimental.layout import with_layout_constraint
from weft.sharding import P, auto_axes, explicit_axes

KEY = weft.random.key(0)
DATA = np.arange(6, dtype=np.float32)


@pytest.mark.parametrize(
    "call, error, said",
    [
        (lambda: lax.select_n(np.array([True])), TypeError, "at least one case"),
        (lambda: wnp.concat(-7), TypeError, "`arrays` must be a sequence"),
        (lambda: wnp.hstack(np.float32(1)), TypeError, "sequence"),
        (
            lambda: wnp.delete(DATA, 9),
            IndexError,
            "`obj` must hold positions along dim 0 of size 6, got 9",
        ),
        (lambda: lax.stack([]), ValueError, "`operands`"),
        (lambda: wnp.dsplit(DATA, 2), ValueError, "`ary` must have at least 3 dims"),
        (
            lambda: wnp.vsplit(np.float32(1), 2),
            ValueError,
            "vsplit: `ary` must have at least 1 dim",
        ),
        (
            lambda: wnp.hsplit(np.float32(1), 2),
            ValueError,
            "hsplit: `ary` must have at least 1 dim",
        ),
        (lambda: wnp.flipud(2), ValueError, "flipud: `m` must have at least 1 dim"),
        (lambda: wnp.fliplr(DATA), ValueError, "fliplr: `m` must have at least 2 dims"),
        (lambda: wnp.matvec(np.eye(2), 1.0), ValueError, "matvec: `x2` must have at least 1 dim"),
        (lambda: wnp.vecmat(1.0, np.eye(2)), ValueError, "vecmat: `x1` must have at least 1 dim"),
        (lambda: wnp.sort_complex(1.0), ValueError, "sort_complex: `a` must have at least 1 dim"),
        (lambda: wnp.permute_dims(2.5, (0,)), ValueError, "permute_dims: axis 0 is out of bounds"),
        (lambda: wnp.unique(True, axis=(0, 1)), TypeError, "unique"),
        (lambda: wnp.arange(None, 0), TypeError, "`start` must be a number"),
        (
            lambda: wnp.apply_over_axes(lambda x, axis: x.sum(), np.eye(3), 1),
            ValueError,
            "apply_over_axes: `func` must keep the dims",
        ),
        (lambda: wnp.einsum_path(iter([1])), TypeError, "`subscripts` must be a string"),
        (lambda: wnp.einsum(DATA, 3), TypeError, "`subscripts` of operands"),
        (lambda: wnp.einsum(DATA, [0, "a"]), TypeError, "`subscripts` of operands"),
        (lambda: wnp.einsum(DATA, [0], [7]), ValueError, "`subscripts` of the result name 7"),
        (
            lambda: wnp.einsum("i,i,i", DATA, DATA, DATA, optimize="bogus"),
            ValueError,
            "`optimize` must name a strategy",
        ),
        (
            lambda: wnp.einsum_path("i,i,i", DATA, DATA, DATA, optimize=np.float32),
            TypeError,
            "`optimize` must be a bool",
        ),
        (lambda: wnp.zeros(3, "ij,jk->ik"), TypeError, "must be a dtype"),
        (lambda: wnp.zeros(3, "f4,,"), TypeError, "must be a dtype"),
        (lambda: nn.initializers.he_uniform()(KEY, DATA.reshape(2, 3)), TypeError, "in a shape"),
        (
            lambda: weft.jacfwd(lambda x: x, argnums=())(1.0),
            ValueError,
            r"jacfwd: the arguments that argnums=\(\) names hold no arrays",
        ),
        (lambda: weft.jacrev(lambda x: "text")(1.0), TypeError, "jacrev: Value 'text'"),
        (
            lambda: weft.grad(lambda x: x, argnums=None)(1.0),
            TypeError,
            "argnums must be an integer or several",
        ),
        (
            lambda: weft.remat(lambda x: x, static_argnums=(1, 2))(1.0, 2),
            ValueError,
            r"static_argnums=\(1, 2\) names an argument",
        ),
        (lambda: lax.composite(wnp.sin, "my.sin", DATA), TypeError, "`version` an integer"),
        (
            lambda: weft.shard_map(
                wnp.sin,
                mesh=weft.make_mesh((1,), ("a",)),
                in_specs=P(),
                out_specs=P(),
                auto=weft.numpy.ones(2),
            ),
            TypeError,
            "shard_map: `auto` must be a set",
        ),
        (lambda: lax.conv_shape_tuple((), (), (), ()), ValueError, "before the spatial dims"),
        (
            lambda: lax.linalg.triangular_solve(DATA, DATA),
            ValueError,
            "triangular_solve: `a` must hold square matrices",
        ),
        (
            lambda: lax.dynamic_index_in_dim(np.eye(2), np.float32),
            TypeError,
            "dynamic_index_in_dim",
        ),
        (
            lambda: lax.padtype_to_pads((1,), (1,), (1,), wnp.sin),
            TypeError,
            "argument `padding` takes",
        ),
        (lambda: weft.image.resize(DATA, (3,), 2), TypeError, "`method` must be a ResizeMethod"),
        (lambda: weft.scipy.special.bernoulli(1 << 31), ValueError, "less than 2\\^31"),
        (lambda: weft.scipy.integrate.trapezoid(33, axis=""), TypeError, "trapezoid"),
        (lambda: weft.scipy.stats.dirichlet.pdf(1j, 2), ValueError, "alpha must have rank 1"),
        (
            lambda: weft.scipy.stats.multinomial.pmf(0.0, 5, 0.5),
            ValueError,
            "`x` and `p` must hold the outcomes",
        ),
        (
            lambda: weft.allow_f16_reductions(DATA),
            ValueError,
            "config.allow_f16_reductions is true or false",
        ),
        (lambda: weft.ref.get(DATA), TypeError, "get: `ref` must be a reference"),
        (lambda: weft.ref.set(DATA, 0, 1), TypeError, "set: `ref` must be a reference"),
        (lambda: weft.ref.swap({}, 0, 1), TypeError, "swap: `ref` must be a reference"),
        (lambda: wnp.vectorize(None), TypeError, "`pyfunc` must be a function"),
        (
            lambda: lax.betainc(np.ones(1), np.ones(2), np.ones((2, 3))),
            ValueError,
            "operands of different shapes",
        ),
        (
            lambda: wnp.apply_over_axes(lambda x, axis: x.sum(), DATA, 1),
            ValueError,
            "apply_over_axes: axis 1 is out of bounds",
        ),
        (
            lambda: weft.jacobian(lambda x: [])(1.0),
            ValueError,
            "the result of `fun` holds no arrays",
        ),
        (
            lambda: wnp.array_split(DATA, 2**64),
            MemoryError,
            "array_split: 18446744073709551616 arrays",
        ),
        (
            lambda: weft.pmap(wnp.sin, devices="a"),
            TypeError,
            "pmap: `devices` must be a sequence of devices",
        ),
        (lambda: weft.scipy.signal.stft(DATA, window=()), ValueError, "`window`"),
        (
            lambda: lax.bitcast_convert_type(DATA, weft.float0),
            TypeError,
            "bitcast_convert_type: `new_dtype`",
        ),
        (lambda: weft.empty_ref(np.float32), TypeError, "empty_ref: `ty` must have a shape"),
        (lambda: weft.empty_ref(10), TypeError, "empty_ref: `ty` must have a shape"),
        (
            lambda: weft.test_util.check_grads(wnp.sin, (1.0,), -1),
            ValueError,
            "`order` must be an integer",
        ),
        (
            lambda: nn.initializers.constant(2)(KEY, (1,) * 33),
            NotImplementedError,
            "at most 32 dims, got 33 in the shape",
        ),
        (
            lambda: sparse.sparsify(lambda x: wnp.sin)(DATA),
            TypeError,
            "the result of `f` must hold arrays and numbers",
        ),
        (
            lambda: wnp.frompyfunc(abs, "x", 1),
            TypeError,
            "`nin` must be an integer of at least 0, got 'x'",
        ),
        (
            lambda: wnp.frompyfunc(abs, 1, -1),
            TypeError,
            "`nout` must be an integer of at least 0, got -1",
        ),
        (
            lambda: weft.remat(wnp.sin, static_argnames=DATA),
            TypeError,
            "static_argnames must be strings",
        ),
        (
            lambda: weft.test_util.check_grads(wnp.sin, (1.0,), 1, eps=1 + 1j),
            ValueError,
            "`eps` must be a positive number",
        ),
        (
            lambda: weft.test_util.check_jvp(
                wnp.sin, lambda x, t: weft.jvp(wnp.sin, x, t), (1.0,), eps=0
            ),
            ValueError,
            "`eps` must be a positive",
        ),
        (
            lambda: weft.test_util.check_grads(wnp.sin, (1.0,), 1, atol=-7),
            ValueError,
            "`atol` and `rtol` must not be negative, got -7",
        ),
        (
            lambda: weft.test_util.check_grads(wnp.sin, (1.0,), 1, atol=DATA),
            TypeError,
            "`atol` and `rtol` must be numbers",
        ),
        (lambda: jet.fact(range(3)), TypeError, "fact: `n` must be an integer"),
        (lambda: jet.fact(10**18), TypeError, "fact: `n` must be an integer"),
        (
            lambda: rnn.get_num_params_in_lstm(DATA, 4, 2, False),
            TypeError,
            "`input_size` of an LSTM",
        ),
        (lambda: with_layout_constraint(DATA, DATA), TypeError, "`layouts` must be of type Layout"),
        (
            lambda: mesh_utils.create_hybrid_device_mesh((1,), (1,), "ab"),
            TypeError,
            "`devices` must be a sequence of devices",
        ),
        (lambda: sparse.bcoo_todense(DATA), TypeError, "argument `mat` takes BCOO"),
        (
            lambda: sparse.bcoo_rev(sparse.eye(2), (2,)),
            ValueError,
            "bcoo_rev: axis 2 is out of bounds",
        ),
        (
            lambda: sparse.bcoo_squeeze(sparse.eye(2), dimensions=(2,)),
            ValueError,
            "bcoo_squeeze: axis 2 is out of bounds",
        ),
        (
            lambda: sparse.bcoo_broadcast_in_dim(
                sparse.eye(2), shape=(3,), broadcast_dimensions=(2, 3)
            ),
            ValueError,
            "do not place an array",
        ),
        (lambda: weft.new_ref(1.0, kind=DATA), ValueError, "new_ref: kind must be one of"),
        (lambda: wnp.where(b"bytes"), TypeError, "where"),
        (
            lambda: wnp.insert(DATA, [[0, 1]], 0.5),
            ValueError,
            "insert: `obj` must have one dim or none",
        ),
        (
            lambda: lax.mul(DATA, DATA, out_dtype=KEY.dtype),
            TypeError,
            "mul: `out_dtype` must be a dtype of numbers",
        ),
        (
            lambda: weft.jit(wnp.sin, donate_argnames=DATA),
            TypeError,
            "donate_argnames must be strings",
        ),
        (
            lambda: sparse.sparsify(wnp.sin)(weft.ShapeDtypeStruct((3,), np.float32)),
            TypeError,
            "the arguments of `f`",
        ),
        (lambda: weft.make_jaxpr(lambda x: "text")(1.0), TypeError, "make_jaxpr: Value 'text'"),
        (
            lambda: sparse.bcsr_concatenate([1], dimension=0),
            TypeError,
            "`operands` must be BCSR arrays",
        ),
        (lambda: sparse.coo_matvec(DATA, DATA), ValueError, "`mat` must be a sparse matrix"),
        (
            lambda: sparse.grad(wnp.sin, argnums="x")(1.0),
            TypeError,
            "argnums must be an integer or several",
        ),
        (
            lambda: weft.tree_util.treedef_is_leaf(wnp.sin),
            TypeError,
            "`treedef` must be a PyTreeDef",
        ),
        (
            lambda: lax.associative_scan(lambda a, b: (a + b).sum(), np.ones((4, 3), np.float32)),
            ValueError,
            "`fn` must return",
        ),
        (
            lambda: weft.ops.segment_max(DATA, 2, 3, bucket_size=2),
            ValueError,
            "segment_ids needs a dim",
        ),
        (
            lambda: weft.device_put_replicated(DATA, P("a")),
            TypeError,
            "`devices` must be a sequence of devices",
        ),
        (
            lambda: weft.device_put_sharded([DATA], ["cpu"]),
            TypeError,
            "`devices` must be a sequence of devices",
        ),
        (
            lambda: weft.make_array_from_single_device_arrays((6,), wnp.ones(6).sharding, {"w": 1}),
            TypeError,
            "`arrays`",
        ),
        (lambda: wnp.vectorize(np.sin, signature=("n",)), TypeError, "`signature`"),
        (lambda: wnp.fft.fftshift(np.float32(1), axes=0), ValueError, "fftshift"),
        (
            lambda: lax.fft(DATA, "DCT", (6,)),
            ValueError,
            "fft_type must be one of FFT, IFFT, RFFT, IRFFT, got 'DCT'",
        ),
        (lambda: weft.scipy.linalg.lu_solve((3.0, 2), DATA), ValueError, "`lu_and_piv`"),
        (lambda: wnp.size(DATA, 1), ValueError, "axis 1 is out of bounds"),
        (lambda: weft.random.multinomial(KEY, 3, 2), ValueError, "`p` needs a dim"),
        (lambda: weft.devices(np.int32(3)), TypeError, "`backend` must be the name of a backend"),
        (lambda: lax.sharding_constraint(DATA, P()), TypeError, "`sharding` must be a Sharding"),
        (
            lambda: nn.initializers.glorot_uniform(in_axis=7)(KEY, (3, 3)),
            ValueError,
            "axis 7 is out of bounds",
        ),
        (lambda: weft.scipy.stats.sem(DATA, axis=1), ValueError, "axis 1 is out of bounds"),
        (lambda: nn.glu(DATA, axis=1), ValueError, "glu: axis 1 is out of bounds"),
        (lambda: wnp.unwrap(np.float32(1)), ValueError, "unwrap: axis -1 is out of bounds"),
        (
            lambda: wnp.apply_over_axes(lambda x, axis: (x,), DATA, 0),
            TypeError,
            "apply_over_axes: the result of `func`",
        ),
        (lambda: explicit_axes(3), TypeError, "`f` must be a function"),
        (
            lambda: lax.convert_element_type(DATA, KEY.dtype),
            TypeError,
            "random keys and numbers do not become each other",
        ),
        (
            lambda: weft.tree.transpose(weft.tree.structure([0]), (0,), [1]),
            TypeError,
            r"argument `inner_treedef` takes PyTreeDef",
        ),
        (lambda: weft.tree_util.treedef_tuple({"w": 1}), TypeError, "`treedefs`"),
        (lambda: wnp.insert(DATA, DATA * 1j, 0), ValueError, "`obj` must be integers"),
        (lambda: lax.linalg.symmetric_product(DATA, DATA), ValueError, "c_matrix is square"),
        (lambda: lax.linalg.eigh(np.float32(1)), ValueError, "matrices in the last two dims"),
        (lambda: lax.linalg.svd(DATA), ValueError, "matrices in the last two dims"),
        (lambda: wnp.concatenate(DATA[:0]), ValueError, "`arrays` must hold at least one array"),
        (lambda: weft.dtypes.canonicalize_dtype(1j), TypeError, "`dtype` must be a dtype"),
        (
            lambda: weft.dtypes.issubdtype(2, np.floating),
            TypeError,
            "issubdtype: `arg1` must be a dtype",
        ),
        (lambda: weft.dtypes.iinfo(iter([])), TypeError, "iinfo: `int_type` must be a dtype"),
        (lambda: weft.dtypes.result_type([weft.devices()[0]]), TypeError, "list has no dtype"),
        (lambda: weft.dtypes.result_type([DATA, [0.5]]), TypeError, "list has no dtype"),
        (
            lambda: nn.dot_product_attention(DATA, 3, DATA),
            ValueError,
            r"dims \[batch, T, heads, size\]",
        ),
        (
            lambda: weft.scipy.cluster.vq.vq(DATA[:, None], 1.0),
            ValueError,
            "vq: observations and codes",
        ),
        (lambda: wnp.where(DATA > 1, size=10**30), ValueError, "`size`"),
        (lambda: wnp.piecewise(DATA, np.float64(np.nan), [1]), ValueError, "`condlist`"),
        (lambda: wnp.searchsorted(DATA, 2.0, sorter=2), ValueError, "`sorter`"),
        (lambda: wnp.arange(-1, 1, 0), ValueError, "`step` must not be zero"),
        (lambda: wnp.arange(-1, 1, 0), ZeroDivisionError, "`step` must not be zero"),
        (lambda: wnp.pow(DATA, np.float32), TypeError, "power"),
        (
            lambda: weft.scipy.special.multigammaln(33.0, 10**18),
            ValueError,
            "`d` must be a positive dimension",
        ),
        (lambda: auto_axes(3), TypeError, "`f` must be a function"),
    ],
)
def test_what_does_not_fit_is_named(call, error, said):
    with pytest.raises(error, match=said) as caught:
        call()
    assert "failed on these arguments" not in str(caught.value)


def test_signals_may_be_python_numbers():
    assert weft.scipy.signal.fftconvolve(np.float32(3), 2.0).tolist() == 6.0
    assert weft.scipy.signal.convolve(np.float32(3), 2.0).tolist() == 6.0


def test_sizes_of_several_dims():
    x = np.ones((2, 3, 4))
    assert (wnp.size(x), wnp.size(x, -1), wnp.size(x, (0, 2))) == (24, 4, 8)


def test_insert_by_a_mask():
    mask = np.array([True, False, True])
    assert wnp.insert(DATA[:3], mask, 9.0).tolist() == np.insert(DATA[:3], mask, 9.0).tolist()


def test_empty_dims_are_split_as_others():
    mesh = weft.make_mesh(
        (4,), ("x",), axis_types=(weft.sharding.AxisType.Explicit,), devices=weft.devices()[:4]
    )
    x = weft.device_put(
        np.zeros((0, 3), np.float32), weft.sharding.NamedSharding(mesh, P("x", None))
    )
    with weft.set_mesh(mesh):
        y, t = weft.jvp(wnp.sin, (x,), (wnp.cos(x),))
    assert (y.shape, t.shape) == ((0, 3), (0, 3))
    assert weft.typeof(y).sharding.spec == P("x", None)


def test_the_device_of_jit_is_a_device():
    sharding = weft.sharding.NamedSharding(weft.make_mesh((2,), ("a",)), P("a"))
    with (
        pytest.warns(DeprecationWarning),
        pytest.raises(TypeError, match="device must be a Device"),
    ):
        weft.jit(lambda x: x, device=sharding)


@pytest.mark.parametrize("decimals", [-5, -10, -20, -400, -(10**18)])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "float16", "float32"])
def test_rounding_to_more_than_the_largest_number(dtype, decimals):
    x = np.array([0, 1, 7, 60, 100]).astype(dtype)
    assert (np.asarray(wnp.round(x, decimals)) == 0).all()


def test_hadamard_and_the_like_of_sizes_beyond_memory():
    for make in ("hadamard", "pascal", "invpascal", "invhilbert", "hilbert", "dft", "helmert"):
        with pytest.raises(MemoryError, match=make):
            getattr(weft.scipy.linalg, make)(1 << 40)
