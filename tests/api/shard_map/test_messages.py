"""Error messages of `shard_map`."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.api.shard_map.cases import X, identity, mapped_by, under
from weft import lax
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P, make_mesh

MESSAGES = {
    "does not divide": (
        lambda m: mapped_by(m, P("i"), P("i"))(X[:6]),
        ValueError,
        ["shard_map(identity)", "argument x", "float32[6]", "'i' of size 4", "Pad the dim to 8"],
    ),
    "does not divide, in a tree": (
        lambda m: mapped_by(m, P(("i", "j")), P("i"))({"a": [X, X[:4]]}),
        ValueError,
        ["argument x['a'][1]", "float32[4]", "of size 8 together"],
    ),
    "rank": (
        lambda m: mapped_by(m, P("i", "j"), P("i"))(X),
        ValueError,
        ["in_specs", "argument x", "float32[8], which has rank 1", "which has length 2"],
    ),
    "rank, by entries that split nothing": (
        lambda m: mapped_by(m, P("i", None), P("i"))(X),
        ValueError,
        ["argument x", "rank 1", "which has length 2", "Shorten the spec to length 1"],
    ),
    "rank of a result": (
        lambda m: mapped_by(m, P("i"), P("i"), f=lambda x: {"s": x.sum()})(X),
        ValueError,
        ["out_specs", "result['s']", "float32[]{i}", "x[None]"],
    ),
    "unknown axis": (
        lambda m: mapped_by(m, P("k"), P("i"))(X),
        ValueError,
        ["in_specs", "'k'", "mesh", "'i': 4, 'j': 2"],
    ),
    "misspelt axis": (
        lambda m: mapped_by(make_mesh((8,), ("data",)), P("date"), P())(X),
        ValueError,
        ["Did you mean 'data'?"],
    ),
    "unknown axis of a result": (
        lambda m: mapped_by(m, P("i"), {"a": P("k")})(X),
        ValueError,
        ["out_specs['a']", "'k'"],
    ),
    "not manual": (
        lambda m: mapped_by(m, P("j"), P("i"), axis_names={"i"})(X),
        ValueError,
        ["in_specs", "'j'", "not manual", "Add 'j' to axis_names"],
    ),
    "repeated axis": (
        lambda m: mapped_by(m, P("i", "i"), P("i"))(np.ones((8, 8))),
        ValueError,
        ["in_specs", "'i'", "more than once"],
    ),
    "not a spec": (
        lambda m: mapped_by(m, ("i",), P("i"))(X),
        TypeError,
        ["in_specs[0]", "'i'", "PartitionSpec"],
    ),
    "too few specs": (
        lambda m: mapped_by(m, (P("i"),), P("i"), f=lambda x, y: x)(X, X),
        ValueError,
        ["in_specs", "prefix"],
    ),
    "results in another tree": (
        lambda m: mapped_by(m, P("i"), (P("i"), P("i")))(X),
        ValueError,
        ["out_specs", "the results"],
    ),
    "unconstrained": (
        lambda m: mapped_by(m, P(P.UNCONSTRAINED), P("i"))(X),
        ValueError,
        ["in_specs", "unconstrained"],
    ),
    "no mesh": (
        lambda m: mapped_by(None, P("i"), P("i"))(X),
        ValueError,
        ["there is no mesh", "set_mesh"],
    ),
    "no devices": (
        lambda m: mapped_by(m.abstract_mesh, P("i"), P("i"))(X),
        ValueError,
        ["has no devices"],
    ),
    "no devices, in jit": (
        lambda m: weft.jit(mapped_by(m.abstract_mesh, P("i"), P("i")))(X),
        ValueError,
        ["has no devices", "runs on 1", "mesh of 8 devices"],
    ),
    "unknown manual axis": (
        lambda m: mapped_by(m, P("i"), P("i"), axis_names={"z"})(X),
        ValueError,
        ["axis_names", "'z'"],
    ),
    "manual already": (
        lambda m: mapped_by(
            m, P("i"), P("i"), f=lambda x: mapped_by(m, P("i"), P("i"), axis_names={"i"})(x)
        )(X),
        ValueError,
        ["manual already"],
    ),
    "varies": (
        lambda m: mapped_by(m, P(("i", "j")), P("i"))(X),
        ValueError,
        [
            "out_specs",
            "result",
            "float32[1]{i,j}",
            "replicated across mesh axis 'j'",
            "lax.psum(x, 'j')",
            "check_vma=False",
        ],
    ),
    "unbound axis": (
        lambda m: mapped_by(m, P("i"), P("i"), f=lambda x: lax.psum(x, "q"))(X),
        NameError,
        ["axis name: q", "'i', 'j'"],
    ),
    "control flow": (
        lambda m: mapped_by(m, P("i"), P("i"), f=lambda x: x if x.sum() > 3 else -x)(X),
        TypeError,
        ["bool[]{i}", "may differ from device to device"],
    ),
    "constraint": (
        lambda m: weft.jit(
            mapped_by(
                m,
                P("i"),
                P("i"),
                f=lambda x: lax.with_sharding_constraint(x, NamedSharding(m, P("i"))),
            )
        )(X),
        ValueError,
        ["'i' is manual", "float32[2]"],
    ),
    "an argument elsewhere": (
        lambda m: mapped_by(m, P("i"), P("i"))(weft.device_put(X, weft.devices()[1])),
        ValueError,
        ["incompatible devices", "argument x", "[1]", "[0, 1, 2, 3, 4, 5, 6, 7]", "device_put"],
    ),
    "an argument elsewhere, in jit": (
        lambda m: weft.jit(mapped_by(m, P("i"), P("i")))(weft.device_put(X, weft.devices()[1])),
        ValueError,
        ["incompatible devices", "argument x", "[1]"],
    ),
    "arrays of two meshes": (
        lambda m: mapped_by(m.abstract_mesh, P("i"), P("i"), f=lambda x, y: x)(
            weft.device_put(X, NamedSharding(m, P("i"))),
            weft.device_put(X, NamedSharding(make_mesh((8,), ("k",)), P("k"))),
        ),
        ValueError,
        ["Mesh shape of the input", "'k'"],
    ),
    "a constant elsewhere": (
        lambda m: mapped_by(
            m, P("i"), P("i"), f=lambda x: x + weft.device_put(1.0, weft.devices()[0])
        )(X),
        ValueError,
        ["float32[]", "device ids [0]", "[0, 1, 2, 3, 4, 5, 6, 7]", "device_put"],
    ),
    "axes to infer": (
        lambda m: under(m, lambda: weft.smap(identity, out_axes=0, axis_name="i")(X)),
        TypeError,
        ["smap(identity)", "in_axes", "'i' is automatic"],
    ),
    "a tangent that varies": (
        lambda m: mapped_by(
            m, P("i"), P("i"), f=lambda t: weft.linearize(wnp.sin, wnp.ones(2))[1](t)
        )(X),
        ValueError,
        ["linearize", "float32[2]{i}", "('i',)", "to='varying'", "primal value"],
    ),
    "other devices": (
        lambda m: weft.jit(
            lambda x: (
                mapped_by(m, P("i"), P("i"))(x)
                + mapped_by(Mesh(np.array(weft.devices()[:2]), ("k",)), P("k"), P("k"))(x)
            )
        )(X),
        ValueError,
        ["incompatible devices"],
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_messages(mesh, case):
    call, kind, words = MESSAGES[case]
    with pytest.raises(kind) as error:
        call(mesh)
    assert not [word for word in words if word not in str(error.value)], str(error.value)


def test_constants_put_on_a_device_are_part_of_a_program(mesh):
    """A program runs on the devices of its arguments, so a constant in it may have been placed on
    any one device."""
    plus = lambda x: x + weft.device_put(1.0, weft.devices()[0])
    np.testing.assert_array_equal(weft.jit(mapped_by(mesh, P("i"), P("i"), f=plus))(X), X + 1)
    np.testing.assert_array_equal(
        weft.jit(plus)(weft.device_put(X, NamedSharding(mesh, P("i")))), X + 1
    )
