"""`register_vmappable`: types of a library's own that vmap maps as wholes."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.interpreters import batching

X = np.linspace(-1.0, 2.0, 12, dtype=np.float32).reshape(3, 4)


class Named:
    """An array whose dims have names; no pytree."""

    def __init__(self, names, data):
        self.names, self.data = tuple(names), data


class Along:
    """The name of a mapped dim, and where it is put."""

    def __init__(self, name, place=0):
        self.name, self.place = name, place


def named_element(cont, index, x, spec):
    dim = x.names.index(spec.name)
    return Named(x.names[:dim] + x.names[dim + 1 :], cont(x.data, dim))


def named_whole(cont, size, elt, spec):
    if spec is None:
        return Named(elt.names, cont(size, elt.data, None))
    names = list(elt.names)
    names.insert(spec.place, spec.name)
    return Named(names, cont(size, elt.data, spec.place))


@pytest.fixture
def named():
    batching.register_vmappable(Named, Along, int, named_element, named_whole, None)
    yield
    batching.unregister_vmappable(Named)


def total(x):
    return Named((), x.data.sum())


def test_values_are_mapped_by_the_names_of_their_dims(named):
    out = weft.vmap(
        lambda x: Named(x.names, x.data**2),
        in_axes=(Along("row"),),
        out_axes=Along("row", 1),
        axis_size=3,
    )(Named(("row", "col"), X))
    assert out.names == ("col", "row")
    np.testing.assert_allclose(out.data, (X**2).T, rtol=1e-6)


def test_one_spec_stands_for_all_arguments(named):
    x = Named(("row", "col"), X)
    out = weft.vmap(lambda a, b: a.data @ b.data, in_axes=Along("row"), axis_size=3)(x, x)
    np.testing.assert_allclose(out, (X * X).sum(1), rtol=1e-6)


def test_size_of_an_array_that_is_mapped_as_well_is_the_size(named):
    out = weft.vmap(lambda a, b: total(a).data * b, in_axes=(Along("col"), 0))(
        Named(("row", "col"), X), np.arange(4, dtype=np.float32)
    )
    np.testing.assert_allclose(out, X.sum(0) * np.arange(4), rtol=1e-5)


def test_value_without_spec_is_the_same_for_all(named):
    shared = Named(("col",), X[0])
    out = weft.vmap(lambda a, b: a.data + b, in_axes=(None, 0))(shared, X)
    np.testing.assert_allclose(out, X + X[0], rtol=1e-6)


def test_nested_maps_take_one_dim_each(named):
    x = Named(("row", "col"), X)
    inner = weft.vmap(
        lambda x: Named(x.names, 3 * x.data),
        in_axes=Along("col"),
        out_axes=Along("col"),
        axis_size=4,
    )
    out = weft.vmap(inner, in_axes=Along("row"), out_axes=Along("row"), axis_size=3)(x)
    assert out.names == ("row", "col")
    np.testing.assert_allclose(out.data, 3 * X, rtol=1e-6)


def test_within_jit_and_grad(named):
    def loss(data):
        return weft.vmap(lambda x: (x.data**2).sum(), in_axes=Along("row"), axis_size=3)(
            Named(("row", "col"), data)
        ).sum()

    step = 1e-2
    numeric = np.array(
        [
            [
                (((X + step * e) ** 2).sum() - ((X - step * e) ** 2).sum()) / (2 * step)
                for e in np.eye(12, dtype=np.float64).reshape(3, 4, 3, 4)[i]
            ]
            for i in range(3)
        ]
    )
    np.testing.assert_allclose(weft.jit(weft.grad(loss))(X), numeric, rtol=1e-3, atol=1e-3)


def test_functions_work_on_all_examples_at_once(named):
    seen = []

    class Noted(Named):
        pass

    def element(cont, index, x, spec):
        seen.append(wnp.sin(x.data).shape)
        return Noted((), cont(wnp.sin(x.data), spec))

    def whole(cont, size, elt, spec):
        return Noted(("n",), cont(size, elt.data, spec) + 1)

    batching.register_vmappable(Noted, int, int, element, whole, None)
    try:
        out = weft.vmap(lambda x: x, axis_size=3)(Noted(("n",), X[:, 0]))
    finally:
        batching.unregister_vmappable(Noted)
    assert seen == [(3,)]
    np.testing.assert_allclose(out.data, np.sin(X[:, 0]) + 1, rtol=1e-6)


def test_a_library_may_have_a_type_for_the_size_of_the_axis():
    class Lengths:
        def __init__(self, *lengths):
            self.lengths = lengths

    class Ragged:
        """Rows of several lengths, one after the other; per example one number and its place in its row."""

        def __init__(self, flat, place=None):
            self.flat, self.place = flat, place

    def numbers(size):
        return wnp.concatenate([wnp.arange(n, dtype=np.int32) for n in size.lengths])

    sizes = []

    def whole(cont, size, elt, spec):
        sizes.append(size)
        return Ragged(cont(size, elt.flat, spec))

    batching.register_vmappable(
        Ragged,
        int,
        Lengths,
        lambda cont, index, x, spec: Ragged(cont(x.flat, spec), index()),
        whole,
        numbers,
    )
    try:
        size = Lengths(2, 3)
        out = weft.vmap(lambda x: Ragged(x.flat * x.place + 1), axis_size=size)(
            Ragged(np.full(5, 10, np.int32))
        )
    finally:
        batching.unregister_vmappable(Ragged)
    assert sizes == [size]
    np.testing.assert_array_equal(out.flat, [1, 11, 1, 11, 21])


def test_a_pytree_that_is_registered_is_one_leaf(named):
    class Pair(Named):
        pass

    weft.tree_util.register_pytree_node(
        Pair, lambda x: ((x.data,), x.names), lambda names, xs: Pair(names, xs[0])
    )
    batching.register_vmappable(
        Pair,
        Along,
        int,
        lambda *a: Pair(*vars(named_element(*a)).values()),
        lambda *a: Pair(*vars(named_whole(*a)).values()),
        None,
    )
    try:
        out = weft.vmap(
            weft.jit(lambda x: Pair(x.names, -x.data)),
            in_axes=Along("col"),
            out_axes=Along("col", 1),
            axis_size=4,
        )(Pair(("row", "col"), X))
    finally:
        batching.unregister_vmappable(Pair)
    assert out.names == ("row", "col")
    np.testing.assert_array_equal(out.data, -X)


def test_arrays_alone_are_mapped_as_before(named):
    np.testing.assert_allclose(weft.vmap(wnp.dot, in_axes=(0, None))(X, X[0]), X @ X[0], rtol=1e-5)
    with pytest.raises(ValueError, match="out_axes is None"):
        weft.vmap(lambda x: x, out_axes=None)(X)


def test_size_must_be_known(named):
    with pytest.raises(ValueError, match="axis_size"):
        weft.vmap(total, in_axes=Along("row"), out_axes=Along("row"))(Named(("row",), X[0]))


def test_size_must_fit(named):
    with pytest.raises(ValueError, match=r"shape \(3, 4\).*size 5"):
        weft.vmap(lambda x: x.data, in_axes=Along("row"), axis_size=5)(Named(("row", "col"), X))


def test_mapped_part_cannot_be_unmapped(named):
    with pytest.raises(ValueError, match="depends on the mapped axis"):
        weft.vmap(total, in_axes=Along("row"), out_axes=None, axis_size=3)(Named(("row", "col"), X))


def test_registration_is_checked():
    with pytest.raises(TypeError, match="data_type must be a class"):
        batching.register_vmappable("Named", int, int, named_element, named_whole, None)
    with pytest.raises(TypeError, match="from_elt must be a function"):
        batching.register_vmappable(Named, int, int, named_element, None, None)
    with pytest.raises(KeyError):
        batching.unregister_vmappable(Named)


def test_a_type_is_registered_once(named):
    with pytest.raises(ValueError, match="registered already"):
        batching.register_vmappable(Named, Along, int, named_element, named_whole, None)


def test_unregistered_type_is_no_array():
    with pytest.raises(TypeError):
        weft.vmap(lambda x: x.data, axis_size=3)(Named(("row", "col"), X))


@pytest.mark.parametrize(
    "wrap",
    [lambda f: f, weft.jit, lambda f: lambda x: weft.vmap(f)(x[None])[0]],
    ids=["eager", "jit", "vmap"],
)
def test_whole_values_are_put_together_of_computed_parts(named, wrap):
    def raised(cont, size, elt, spec):  # per example before cont, on all examples after it
        doubled = cont(size, elt.data * wnp.arange(4.0), spec.place) * 2
        return Named([spec.name, *elt.names], doubled - doubled.mean())

    batching.unregister_vmappable(Named)
    batching.register_vmappable(Named, Along, int, named_element, raised, None)

    def f(x):
        return weft.vmap(
            lambda e: Named(e.names, e.data + 1),
            in_axes=Along("row"),
            out_axes=Along("row"),
            axis_size=3,
        )(Named(("row", "col"), x)).data

    want = 2 * (X + 1) * np.arange(4)
    np.testing.assert_allclose(wrap(f)(wnp.asarray(X)), want - want.mean(), rtol=1e-5)


class Boxed:
    """A pytree of one array, mapped along a dim that an int names."""

    def __init__(self, data):
        self.data = data


weft.tree_util.register_pytree_node(
    Boxed, lambda x: ((x.data,), None), lambda _, data: Boxed(*data)
)


@pytest.fixture
def int_spec():
    batching.register_vmappable(
        Boxed,
        int,
        int,
        lambda cont, index, x, dim: Boxed(cont(x.data, dim)),
        lambda cont, size, elt, dim: Boxed(cont(size, elt.data, dim)),
        None,
    )
    yield
    batching.unregister_vmappable(Boxed)


ARRAY_CALLS = {
    "leading dim": lambda: weft.vmap(wnp.sum)(X),
    "other dims": lambda: weft.vmap(wnp.cumsum, in_axes=1, out_axes=1)(X),
    "negative dims": lambda: weft.vmap(wnp.cumsum, in_axes=-1, out_axes=-1)(X),
    "some mapped": lambda: weft.vmap(lambda x, y: x + y, in_axes=(0, None))(X, 2.0),
    "none mapped": lambda: weft.vmap(lambda x: x + 1, in_axes=None, axis_size=3)(X),
    "trees": lambda: weft.vmap(lambda t: t["a"] * t["b"], in_axes=({"a": 1, "b": 0},))({"a": X, "b": X.T}),
    "keys": lambda: weft.vmap(weft.random.normal)(weft.random.split(weft.random.key(0), 2)),
    "nested": lambda: weft.vmap(weft.vmap(wnp.sin, in_axes=0), in_axes=1)(X),
    "named axis": lambda: weft.vmap(lambda x: x - weft.lax.pmean(x, "i"), axis_name="i")(X),
    "jit": lambda: weft.jit(weft.vmap(wnp.sum, -1))(X),
    "grad": lambda: weft.grad(lambda x: weft.vmap(wnp.sum)(x).sum())(X),
}  # fmt: skip


@pytest.mark.parametrize("name", ARRAY_CALLS)
def test_arrays_are_mapped_as_without_types_of_int_specs(name, request):
    expected = ARRAY_CALLS[name]()
    request.getfixturevalue("int_spec")
    np.testing.assert_array_equal(ARRAY_CALLS[name](), expected)


def test_sizes_are_checked_beside_types_of_int_specs(int_spec):
    with pytest.raises(ValueError, match="inconsistent sizes for array axes"):
        weft.vmap(lambda x, y: x + y)(X, X.T)
    with pytest.raises(ValueError, match="along axis 5"):
        weft.vmap(wnp.sin, in_axes=5)(X)


@pytest.mark.parametrize("dim", [0, 1])
def test_types_of_int_specs_are_mapped_beside_arrays(int_spec, dim):
    result = weft.vmap(lambda b, x: Boxed(b.data.sum() + x), in_axes=(dim, 0))(
        Boxed(X), np.arange(X.shape[dim])
    )
    assert type(result) is Boxed
    np.testing.assert_allclose(result.data, X.sum(1 - dim) + np.arange(X.shape[dim]), rtol=1e-6)
