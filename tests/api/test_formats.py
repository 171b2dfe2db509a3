"""`Format` and `Layout`: what arrays and compiled programs tell, where a format stands for a sharding, what is refused."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.experimental.layout import Format, Layout, with_layout_constraint
from weft.sharding import NamedSharding, PartitionSpec as P, SingleDeviceSharding

ROWS = Layout((0, 1), ())


@pytest.fixture
def sharding():
    return NamedSharding(weft.make_mesh((4, 2), ("a", "b")), P("a"))


def test_arrays_and_programs_tell_their_format(sharding):
    x = weft.device_put(wnp.ones((4, 3)), sharding)
    assert x.format == Format(ROWS, sharding)
    assert wnp.ones(()).format.layout == Layout((), ()) and hash(ROWS) == hash(Layout([0, 1], ()))
    compiled = weft.jit(lambda x, *, y: {"sum": x + y}).lower(x, y=x).compile()
    assert compiled.input_formats == ((x.format,), {"y": x.format})
    assert compiled.output_formats == {"sum": x.format}
    assert weft.ShapeDtypeStruct((4, 3), "float32", sharding=x.format).sharding is sharding


def test_a_format_stands_for_its_sharding(sharding):
    x = np.arange(12.0, dtype="float32").reshape(4, 3)
    for given in (Format(Layout((0, 1)), sharding), Format(None, sharding)):
        assert weft.device_put(x, given).sharding == sharding
        assert weft.jit(lambda x: x + 1, out_shardings=given)(x).sharding == sharding
        assert weft.jit(lambda x: x + 1, in_shardings=given)(x).sharding == sharding
    auto = weft.jit(lambda x: x.T, in_shardings=Format(Layout.AUTO), out_shardings=Format(Layout.AUTO))
    np.testing.assert_array_equal(auto(x), x.T)
    assert with_layout_constraint([x], Layout((0, 1)))[0] is x


@pytest.mark.parametrize("use", [
    lambda format: weft.device_put(np.ones((2, 3)), format),
    lambda format: weft.jit(lambda x: x, in_shardings=format)(np.ones((2, 3))),
    lambda format: weft.jit(lambda x: x, out_shardings=format)(np.ones((2, 3))),
    lambda format: weft.ShapeDtypeStruct((2, 3), "float32", sharding=format),
    lambda format: with_layout_constraint(wnp.ones((2, 3)), format.layout),
])
def test_other_orders_are_refused(use):
    here = SingleDeviceSharding(weft.devices()[0])
    with pytest.raises(NotImplementedError, match=r"row-major; the layout Layout\(major_to_minor=\(1, 0\)"):
        use(Format(Layout((1, 0)), here))
    with pytest.raises(ValueError, match="does not fit an array of 2 dims"):
        use(Format(Layout((0, 1, 2)), here))


def test_what_is_no_format():
    with pytest.raises(ValueError, match="needs a concrete sharding"):
        Format(ROWS)
    with pytest.raises(TypeError, match="must be a Layout"):
        Format((0, 1))
