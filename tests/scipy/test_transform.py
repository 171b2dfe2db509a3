"""Rotations and their interpolation against SciPy's, with derivatives."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation as Peer, Slerp as PeerSlerp

import weft
import weft.numpy as wnp
from weft.scipy.spatial.transform import Rotation, Slerp

RNG = np.random.RandomState(1)
QUATS = RNG.randn(6, 4).astype(np.float32)
VECTORS = RNG.randn(6, 3).astype(np.float32)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.mark.parametrize("quat", [QUATS[0], QUATS], ids=["one", "stack"])
def test_forms(quat):
    mine, peer = Rotation.from_quat(quat), Peer.from_quat(quat)
    for name, options in (
        ("as_matrix", {}),
        ("as_rotvec", {}),
        ("as_rotvec", {"degrees": True}),
        ("as_mrp", {}),
        ("as_quat", {}),
        ("as_quat", {"canonical": True}),
        ("as_quat", {"scalar_first": True}),
        ("magnitude", {}),
    ):
        want = getattr(peer, name)(**options)
        np.testing.assert_allclose(
            getattr(mine, name)(**options),
            want,
            rtol=1e-4,
            atol=1e-3 if options.get("degrees") else 1e-5,
        )
    np.testing.assert_allclose(mine.inv().as_matrix(), peer.inv().as_matrix(), **CLOSE)
    for inverse in (False, True):
        np.testing.assert_allclose(
            mine.apply(VECTORS, inverse), peer.apply(VECTORS, inverse), **CLOSE
        )
        np.testing.assert_allclose(
            mine.apply(VECTORS[0], inverse), peer.apply(VECTORS[0], inverse), **CLOSE
        )
    for other in (QUATS[1], QUATS[::-1]):
        np.testing.assert_allclose(
            (mine * Rotation.from_quat(other)).as_matrix(),
            (peer * Peer.from_quat(other)).as_matrix(),
            **CLOSE,
        )
    for name, vectors in (
        ("from_matrix", peer.as_matrix()),
        ("from_rotvec", peer.as_rotvec()),
        ("from_mrp", peer.as_mrp()),
    ):
        np.testing.assert_allclose(
            getattr(Rotation, name)(vectors).as_matrix(), peer.as_matrix(), **CLOSE
        )
    assert mine.single is peer.single


@pytest.mark.parametrize("seq", ["xyz", "zyx", "XYZ", "ZYX", "zxz", "ZXZ", "yxz", "XYX"])
def test_euler_angles(seq):
    peer = Peer.from_quat(QUATS)
    angles = peer.as_euler(seq)
    np.testing.assert_allclose(Rotation.from_quat(QUATS).as_euler(seq), angles, **CLOSE)
    np.testing.assert_allclose(
        Rotation.from_euler(seq, np.rad2deg(angles), degrees=True).as_matrix(),
        peer.as_matrix(),
        **CLOSE,
    )
    for lead in range(1, 3):
        np.testing.assert_allclose(
            Rotation.from_euler(seq[:lead], angles[:, :lead]).as_matrix(),
            Peer.from_euler(seq[:lead], angles[:, :lead]).as_matrix(),
            **CLOSE,
        )
    # where two axes coincide, angles are not unique: the rotation is
    middle = 0.0 if seq.lower()[0] == seq.lower()[2] else np.pi / 2
    locked = Rotation.from_euler(seq, np.array([0.4, middle, 0.3], np.float32))
    np.testing.assert_allclose(
        Rotation.from_euler(seq, locked.as_euler(seq)).as_matrix(), locked.as_matrix(), atol=2e-3
    )


def test_stacks():
    mine, peer = Rotation.from_quat(QUATS), Peer.from_quat(QUATS)
    assert len(mine) == 6 and len(list(mine)) == 6
    np.testing.assert_allclose(mine[2:4].as_quat(), peer[2:4].as_quat(), **CLOSE)
    np.testing.assert_allclose(Rotation.concatenate([mine, mine[0]]).as_quat().shape, (7, 4))
    for weights in (None, np.arange(1.0, 7)):
        np.testing.assert_allclose(
            mine.mean(weights).as_matrix(), peer.mean(weights).as_matrix(), **CLOSE
        )
    assert Rotation.identity(3).as_quat().tolist() == [[0, 0, 0, 1]] * 3
    lengths = np.linalg.norm(Rotation.random(weft.random.key(0), 5).as_quat(), axis=-1)
    np.testing.assert_allclose(lengths, np.ones(5), rtol=1e-6)


def test_slerp():
    times = np.array([0.0, 1, 2.5, 3, 4, 7], np.float32)
    mine, peer = (
        Slerp.init(times, Rotation.from_quat(QUATS)),
        PeerSlerp(times, Peer.from_quat(QUATS)),
    )
    for at in (0.7, np.array([0.0, 2.0, 6.9, 7.0])):
        np.testing.assert_allclose(mine(at).as_matrix(), peer(at).as_matrix(), **CLOSE)


def test_transformations():
    """Rotations are trees; a rotation by zero has the derivative of the identity."""
    turn = weft.jit(lambda r, v: (r * r).apply(v))
    peer = Peer.from_quat(QUATS)
    np.testing.assert_allclose(
        turn(Rotation.from_quat(QUATS), VECTORS), (peer * peer).apply(VECTORS), **CLOSE
    )
    rotated = weft.vmap(lambda q, v: Rotation.from_quat(q).apply(v))(QUATS, VECTORS)
    np.testing.assert_allclose(rotated, peer.apply(VECTORS), **CLOSE)
    slope = weft.jacobian(lambda w: Rotation.from_rotvec(w).apply(wnp.array([1.0, 2.0, 3.0])))(
        wnp.zeros(3)
    )
    np.testing.assert_allclose(slope, [[0, 3, -2], [-3, 0, 1], [2, -1, 0]], atol=1e-6)
    back = weft.jacobian(lambda w: Rotation.from_rotvec(w).as_rotvec())(wnp.array([0.3, -0.2, 0.5]))
    np.testing.assert_allclose(back, np.eye(3), atol=1e-5)
    mesh = weft.make_mesh((2,), ("i",))
    placed = weft.device_put(QUATS, weft.NamedSharding(mesh, weft.P("i")))
    np.testing.assert_allclose(
        weft.jit(lambda q: Rotation.from_quat(q).as_euler("xyz"))(placed),
        peer.as_euler("xyz"),
        **CLOSE,
    )


@pytest.mark.parametrize(
    "call, error, says",
    [
        (lambda: Rotation.from_quat(np.ones(3)), ValueError, "shape"),
        (lambda: Rotation.from_euler("xq", np.ones(2)), ValueError, "'xq'"),
        (lambda: Rotation.from_euler("xYz", np.ones(3)), ValueError, "'xYz'"),
        (lambda: Rotation.from_euler("xx", np.ones(2)), ValueError, "must differ"),
        (lambda: Rotation.from_euler("xyz", np.ones(2)), ValueError, "3 axes"),
        (lambda: Rotation.identity().as_euler("xy"), ValueError, "'xy'"),
        (lambda: len(Rotation.identity()), TypeError, "no length"),
        (lambda: Rotation.identity()[0], TypeError, "indexed"),
        (lambda: Slerp.init(np.arange(2.0), Rotation.identity()), ValueError, "two rotations"),
    ],
)
def test_errors(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_lists_are_taken_as_arrays():
    turns = Rotation.from_euler("zxy", [[90, 0, 0], [0, 45, 0]], degrees=True)
    np.testing.assert_allclose(
        Slerp.init([0, 1], turns)([0, 0.5]).as_matrix()[0], turns[0].as_matrix(), atol=1e-6
    )
    quarter = Rotation.from_euler("z", 90, degrees=True).as_matrix()
    assert not quarter.weak_type and quarter[0, 0] == 0 and quarter.dtype == np.float32
    np.testing.assert_allclose(
        Rotation.from_rotvec([0, 0, math.pi / 2]).apply([1, 0, 0]), [0, 1, 0], atol=1e-6
    )
