"""What `array` and its kin take and refuse, and what they warn of."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp

MASKED = np.ma.array([1, 2], mask=[True, False])


def test_array_strips_masks_and_other_functions_refuse_them():
    assert wnp.array(MASKED).tolist() == [1, 2] and wnp.array(MASKED, np.float32, ndmin=2).tolist() == [[1.0, 2.0]]
    for call in (wnp.asarray, weft.jit(wnp.array), lambda x: wnp.add(x, 1), lambda x: wnp.arange(2) + x, weft.device_put):
        with pytest.raises(ValueError, match="masked arrays are not supported"):
            call(MASKED)


@pytest.mark.parametrize("values", [None, [0.0, None], [[None]], [1, [None]]], ids=str)
@pytest.mark.parametrize("make", [wnp.array, wnp.asarray])
def test_none_is_no_value(make, values):
    with pytest.raises(ValueError, match="None is not a valid value"):
        make(values)


def test_python_integers_beyond_64_bits():
    for values in ([0, -2**63 - 1], [2**70], [[1, 2**64]], [2**63, -1]):
        with pytest.raises(OverflowError, match="do not fit in int32"):
            wnp.array(values)
    np.testing.assert_allclose(wnp.array([2**70, 1.5]), np.array([2.0**70, 1.5]), rtol=1e-6)
    for values in ([object()], ["a"], [np.datetime64(1, "s")], [1, b"x"]):
        with pytest.raises(TypeError):
            wnp.array(values)


def test_options_of_array_have_names():
    x = wnp.arange(3)
    with pytest.warns(DeprecationWarning, match=r"by position.*array\(x, copy=False\)") as warned:
        assert wnp.array(x, None, False) is x
    assert warned[0].filename == __file__
    with pytest.warns(DeprecationWarning), pytest.raises(TypeError, match="multiple values for argument 'copy'"):
        wnp.array(x, None, True, copy=False)
    with pytest.warns(DeprecationWarning), pytest.raises(TypeError, match="positional arguments"):
        wnp.array(x, None, True, "K", 0, "more")
    assert wnp.array(x, None, copy=False, order="K", ndmin=2).shape == (1, 3)


@pytest.mark.parametrize("cast", [lambda x, t: x.astype(t), wnp.astype, lambda x, t: weft.jit(lambda x: x.astype(t))(x)])
def test_casts_of_complex_numbers_to_real_ones_warn(cast):
    z = wnp.array([1 + 2j, 3])
    for dtype in ("float32", "int8"):
        with pytest.warns(DeprecationWarning, match="Casting from complex to real") as warned:
            assert cast(z, dtype).tolist() == [1, 3]
        assert warned[0].filename == __file__
    assert cast(z, bool).tolist() == [True, True]
    assert cast(z, "complex64").dtype == cast(wnp.arange(2), "complex64").dtype == z.dtype


@pytest.mark.parametrize("shape", [1.0, (1.0, 2), (2, "a"), "ab", None], ids=str)
@pytest.mark.parametrize("make", [wnp.zeros, wnp.ones, lambda shape: wnp.full(shape, 1), wnp.empty])
def test_what_is_no_shape(make, shape):
    with pytest.raises(TypeError, match="a shape is an integer or a sequence of integers, got"):
        make(shape)


def test_whether_elements_are_complex():
    values = [1, 1j, [1, 2j], [[1], [2j]], (), "text", None, np.zeros(2, np.complex64), wnp.zeros(2, complex), wnp.zeros(2),
              [wnp.array(1j)]]
    assert [wnp.iscomplexobj(v) for v in values] == [False, True, True, True, False, False, False, True, True, False, True]
    assert weft.jit(wnp.iscomplexobj)([1.0, 2j]) and not weft.jit(wnp.isrealobj)(np.complex64(1))
    assert not weft.jit(wnp.iscomplexobj)([1.0, 2])


def test_choices_and_their_numbers_broadcast_together():
    a, choices = np.array([[0], [1], [2]]), [np.arange(4), np.full((3, 4), 10), np.int64(20)]
    for mode, shift in (("raise", 0), ("wrap", 5), ("clip", 1)):
        np.testing.assert_array_equal(wnp.choose(a + shift, choices, mode=mode), np.choose(a + shift, choices, mode=mode))
    stacked = np.arange(24).reshape(3, 2, 4)
    np.testing.assert_array_equal(weft.jit(lambda a: wnp.choose(a, stacked, mode="clip"))(a[:2]), np.choose(a[:2], stacked))
    with pytest.raises(ValueError, match="invalid entry in `a` of choose"):
        wnp.choose(a + 1, choices)
