"""Rotations of three-dimensional space, and interpolation between them.

In:   arrays with a last dim of 3 or 4 numbers, for one rotation or a stack of rotations.
Out:  `Rotation`: unit quaternions (x, y, z, w), a tree of one array; its methods are composed of array operations and can be
      traced, differentiated and batched.
Source: M. D. Shuster, "A survey of attitude representations", Journal of the Astronautical Sciences 41 (1993); E. Bernardes and
S. Viollet, "Quaternion to Euler angles conversion", PLOS ONE 17 (2022).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from weft import numpy as wnp
from weft._engine.util import dtypes
from weft._engine.util.messages.quantities import quantity
from weft._engine.util.source import guard_all
from weft.random import normal

__all__ = ["Rotation", "Slerp"]


def _strong(x: Any):
    """Return numbers, lists or arrays as a floating array without weak type."""
    x = wnp.asarray(x)
    return wnp.asarray(x, dtypes.to_inexact_dtype(x.dtype))


def _floats(name: str, x: Any, *last: int):
    """Return `x` as a floating array whose last dims are `last`."""
    x = _strong(x)
    if x.ndim not in (len(last), len(last) + 1) or tuple(x.shape[-len(last) :]) != last:
        dims = ", ".join(map(str, last))
        raise ValueError(
            f"{name}: expected an array of shape ({dims}{',' if len(last) == 1 else ''}) or (N, {dims}), "
            f"got {tuple(x.shape)}."
        )
    return x


def _norm(x):
    """Return the Euclidean norm over the last dim, which is kept, with derivative 0 at 0."""
    square = wnp.sum(x * x, -1, keepdims=True)
    zero = square == 0
    return wnp.where(zero, 0, wnp.sqrt(wnp.where(zero, 1, square)))


def _product(p, q):
    """Return the product of quaternions."""
    px, py, pz, pw = (p[..., i] for i in range(4))
    qx, qy, qz, qw = (q[..., i] for i in range(4))
    return wnp.stack(
        [
            pw * qx + px * qw + py * qz - pz * qy,
            pw * qy - px * qz + py * qw + pz * qx,
            pw * qz + px * qy - py * qx + pz * qw,
            pw * qw - px * qx - py * qy - pz * qz,
        ],
        -1,
    )


def _canonical(quat):
    """Return the quaternion or its negative, so that the first nonzero of w, x, y, z is positive."""
    sign = wnp.zeros_like(quat[..., 0])
    for i in (3, 0, 1, 2):
        sign = wnp.where(sign == 0, wnp.sign(quat[..., i]), sign)
    return quat * wnp.where(sign == 0, 1, sign)[..., None]


def _axes(name: str, seq: str, least: int) -> tuple[list[int], bool]:
    """Return the numbers of the axes of `seq`, and True if they rotate with the body."""
    intrinsic = seq.isupper()
    if (
        not least <= len(seq) <= 3
        or not (intrinsic or seq.islower())
        or set(seq.lower()) - set("xyz")
    ):
        raise ValueError(
            f"{name}: seq must be {least if least == 3 else '1 to 3'} letters of 'xyz' or of 'XYZ', got {seq!r}."
        )
    axes = ["xyz".index(letter) for letter in seq.lower()]
    if any(a == b for a, b in itertools.pairwise(axes)):
        raise ValueError(f"{name}: consecutive axes must differ, got {seq!r}.")
    return axes, intrinsic


class Rotation(NamedTuple):
    """A rotation in three dimensions, or a stack of rotations, as unit quaternions with the scalar last.

    >>> quarter = Rotation.from_euler("z", 90, degrees=True)
    >>> quarter.apply(wnp.array([1.0, 0.0, 0.0])).round(3) + 0
    Array([0., 1., 0.], dtype=float32)
    """

    quat: Any

    @classmethod
    def from_quat(cls, quat: Any) -> Rotation:
        """Return the rotations of quaternions (x, y, z, w), which are normalized."""
        quat = _floats("Rotation.from_quat", quat, 4)
        return cls(quat / _norm(quat))

    @classmethod
    def from_matrix(cls, matrix: Any) -> Rotation:
        """Return the rotations of orthogonal matrices, each by the largest component of its quaternion."""
        m = _floats("Rotation.from_matrix", matrix, 3, 3)
        d = [m[..., i, i] for i in range(3)]
        trace = d[0] + d[1] + d[2]
        candidates = []
        for i, j, k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
            parts = {
                i: 1 - trace + 2 * d[i],
                j: m[..., j, i] + m[..., i, j],
                k: m[..., k, i] + m[..., i, k],
                3: m[..., k, j] - m[..., j, k],
            }
            candidates.append(wnp.stack([parts[n] for n in range(4)], -1))
        candidates.append(
            wnp.stack(
                [
                    m[..., 2, 1] - m[..., 1, 2],
                    m[..., 0, 2] - m[..., 2, 0],
                    m[..., 1, 0] - m[..., 0, 1],
                    1 + trace,
                ],
                -1,
            )
        )
        choice = wnp.argmax(wnp.stack([*d, trace], -1), -1)[..., None]
        quat = candidates[3]
        for i in range(3):
            quat = wnp.where(choice == i, candidates[i], quat)
        return cls(quat / _norm(quat))

    @classmethod
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """Return the rotations about the directions of vectors, by their lengths."""
        rotvec = _floats("Rotation.from_rotvec", rotvec, 3)
        rotvec = wnp.deg2rad(rotvec) if degrees else rotvec
        angle = _norm(rotvec)
        return cls(
            wnp.concatenate(
                [0.5 * wnp.sinc(angle / (2 * math.pi)) * rotvec, wnp.cos(angle / 2)], -1
            )
        )

    @classmethod
    def from_mrp(cls, mrp: Any) -> Rotation:
        """Return the rotations of modified Rodrigues parameters: directions times tan(angle / 4)."""
        mrp = _floats("Rotation.from_mrp", mrp, 3)
        square = wnp.sum(mrp * mrp, -1, keepdims=True)
        return cls(wnp.concatenate([2 * mrp, 1 - square], -1) / (1 + square))

    @classmethod
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Return rotations about one to three axes in sequence: `seq` of 'xyz' for fixed axes, of 'XYZ' for axes of the body.

        `angles` is a number or [N] for one axis, [k] or [N, k] for k of them. Raises ValueError for another `seq` or shape.
        """
        axes, intrinsic = _axes("Rotation.from_euler", seq, 1)
        angles = _strong(angles)
        angles = wnp.deg2rad(angles) if degrees else angles
        shape = tuple(angles.shape)
        if len(axes) == 1 and (angles.ndim < 2):
            angles = angles[..., None]
        if angles.ndim not in (1, 2) or angles.shape[-1] != len(axes):
            raise ValueError(
                f"Rotation.from_euler: angles of {quantity(len(axes), 'axis')} must have shape ({len(axes)},) or (N, {len(axes)}), "
                f"got {shape}."
            )
        quat = None
        for i, axis in enumerate(axes):
            half = angles[..., i] / 2
            turn = wnp.stack(
                [wnp.sin(half) if n == axis else wnp.zeros_like(half) for n in range(3)]
                + [wnp.cos(half)],
                -1,
            )
            quat = (
                turn
                if quat is None
                else _product(quat, turn)
                if intrinsic
                else _product(turn, quat)
            )
        return cls(quat)

    @classmethod
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """Return the identity, or a stack of `num` identities."""
        quat = wnp.array([0, 0, 0, 1], dtype=dtype)
        return cls(quat if num is None else wnp.tile(quat, (num, 1)))

    @classmethod
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """Return uniformly distributed rotations, drawn with a key of `weft.random`."""
        return cls.from_quat(normal(random_key, (4,) if num is None else (num, 4)))

    @classmethod
    def concatenate(cls, rotations: Sequence[Rotation]) -> Rotation:
        """Return all rotations of a sequence in one stack."""
        return cls(wnp.concatenate([wnp.atleast_2d(r.quat) for r in rotations]))

    @property
    def single(self) -> bool:
        """True for one rotation, False for a stack."""
        return self.quat.ndim == 1

    def __len__(self) -> int:
        if self.single:
            raise TypeError("A single rotation has no length.")
        return self.quat.shape[0]

    def __getitem__(self, indexer: Any) -> Rotation:
        if self.single:
            raise TypeError("A single rotation cannot be indexed.")
        return Rotation(self.quat[indexer])

    def __iter__(self):
        return iter([self[i] for i in range(len(self))])

    def __mul__(self, other: Any) -> Rotation:
        """Return the rotation by `other` followed by this one."""
        p, q = self.quat, other.quat
        if p.ndim != q.ndim:
            p, q = wnp.broadcast_arrays(wnp.atleast_2d(p), wnp.atleast_2d(q))
        return Rotation(_product(p, q))

    def inv(self) -> Rotation:
        """Return the inverse rotation."""
        return Rotation(
            self.quat * np.array([-1, -1, -1, 1], self.quat.dtype)[(None,) * (self.quat.ndim - 1)]
        )

    def magnitude(self):
        """Return the angle of the rotation, from 0 to pi."""
        return 2 * wnp.arctan2(_norm(self.quat[..., :3])[..., 0], wnp.abs(self.quat[..., 3]))

    def mean(self, weights: Any = None) -> Rotation:
        """Return the mean rotation of a stack, which minimizes the sum of `weights` times squared chordal distances.

        F. L. Markley and others, "Averaging quaternions", Journal of Guidance, Control and Dynamics 30 (2007).
        """
        quat = wnp.atleast_2d(self.quat)
        weights = (
            wnp.ones(quat.shape[0], quat.dtype)
            if weights is None
            else wnp.asarray(weights, quat.dtype)
        )
        if tuple(weights.shape) != (quat.shape[0],):
            raise ValueError(
                f"Rotation.mean: expected {quantity(quat.shape[0], 'weight')}, got shape {tuple(weights.shape)}."
            )
        return Rotation(wnp.linalg.eigh(wnp.matmul((quat * weights[:, None]).T, quat))[1][:, -1])

    def apply(self, vectors: Any, inverse: bool = False):
        """Rotate vectors [3] or [N, 3], or rotate them back."""
        vectors = _floats("Rotation.apply", vectors, 3)
        matrix = self.as_matrix()
        return wnp.einsum("...ji,...j->...i" if inverse else "...ij,...j->...i", matrix, vectors)

    def as_quat(self, canonical: bool = False, scalar_first: bool = False):
        """Return the quaternions (x, y, z, w), or (w, x, y, z); `canonical` ones have a positive scalar."""
        quat = _canonical(self.quat) if canonical else self.quat
        return wnp.roll(quat, 1, -1) if scalar_first else quat

    def as_matrix(self):
        """Return the orthogonal matrices, [3, 3] or [N, 3, 3]."""
        x, y, z, w = (self.quat[..., i] for i in range(4))
        xx, yy, zz, ww = x * x, y * y, z * z, w * w
        rows = [
            [xx - yy - zz + ww, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), -xx + yy - zz + ww, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), -xx - yy + zz + ww],
        ]
        return wnp.stack([wnp.stack(row, -1) for row in rows], -2)

    def as_rotvec(self, degrees: bool = False):
        """Return the rotation vectors: directions times angles from 0 to pi."""
        quat = _canonical(self.quat)
        length = _norm(quat[..., :3])
        angle = 2 * wnp.arctan2(length, quat[..., 3:])
        scale = wnp.where(
            angle < 1e-3,
            2 + angle * angle / 12,
            angle / wnp.where(angle < 1e-3, 1, wnp.sin(angle / 2)),
        )
        out = scale * quat[..., :3]
        return wnp.rad2deg(out) if degrees else out

    def as_mrp(self):
        """Return the modified Rodrigues parameters: directions times tan(angle / 4)."""
        quat = self.quat * wnp.where(self.quat[..., 3:] < 0, -1, 1)
        return quat[..., :3] / (1 + quat[..., 3:])

    def as_euler(self, seq: str, degrees: bool = False):
        """Return the angles about three axes in sequence, in the convention of `from_euler`; if two axes coincide the last angle is 0."""
        axes, intrinsic = _axes("Rotation.as_euler", seq, 3)
        order = axes[::-1] if intrinsic else axes
        i, j, k = order
        symmetric = i == k
        k = 3 - i - j if symmetric else k
        sign = (i - j) * (j - k) * (k - i) / 2
        quat = [self.quat[..., n] for n in range(4)]
        if symmetric:
            a, b, c, d = quat[3], quat[i], quat[j], quat[k] * sign
        else:
            a, b, c, d = (
                quat[3] - quat[j],
                quat[i] + quat[k] * sign,
                quat[j] + quat[3],
                quat[k] * sign - quat[i],
            )
        second = 2 * wnp.arctan2(wnp.hypot(c, d), wnp.hypot(a, b))
        half_sum, half_difference = wnp.arctan2(b, a), wnp.arctan2(d, c)
        at_zero, at_pi = wnp.abs(second) < 1e-7, wnp.abs(second - math.pi) < 1e-7
        regular = ~(at_zero | at_pi)
        # angles of the fixed axes i, j, k; the one that is set to 0 is the last of `seq` as the caller reads it
        first = wnp.where(
            regular,
            half_sum - half_difference,
            wnp.where(at_zero, 2 * half_sum, -2 * half_difference),
        )
        third = wnp.where(regular, half_sum + half_difference, 0)
        if intrinsic:
            first, third = (
                wnp.where(regular, first, 0),
                wnp.where(regular, third, wnp.where(at_zero, 2 * half_sum, 2 * half_difference)),
            )
        if not symmetric:
            third, second = third * sign, second - math.pi / 2
        angles = [third, second, first] if intrinsic else [first, second, third]
        out = wnp.stack(
            [
                wnp.where(x < -math.pi, x + 2 * math.pi, wnp.where(x > math.pi, x - 2 * math.pi, x))
                for x in angles
            ],
            -1,
        )
        return wnp.rad2deg(out) if degrees else out


class Slerp(NamedTuple):
    """Interpolation between rotations at given times, along shortest paths at constant speeds; `Slerp.init` creates one.

    >>> turns = Rotation.from_euler("z", wnp.array([0.0, 90.0]), degrees=True)
    >>> round(float(Slerp.init(wnp.array([0.0, 1.0]), turns)(0.5).magnitude() * 180 / np.pi), 3)
    45.0
    """

    times: Any
    timedelta: Any
    rotations: Rotation
    rotvecs: Any

    @classmethod
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """Return the interpolation for increasing `times` and as many rotations, at least two."""
        if not isinstance(rotations, Rotation):
            raise TypeError(
                f"Slerp.init: `rotations` must be a Rotation, got {type(rotations).__name__}."
            )
        times = _strong(times)
        if rotations.single or len(rotations) < 2 or tuple(times.shape) != (len(rotations),):
            raise ValueError(
                f"Slerp.init: expected a stack of at least two rotations and as many times, got {tuple(rotations.quat.shape)} "
                f"and {tuple(times.shape)}."
            )
        before, after = Rotation(rotations.quat[:-1]), Rotation(rotations.quat[1:])
        return cls(times, wnp.diff(times), before, (before.inv() * after).as_rotvec())

    def __call__(self, times: Any) -> Rotation:
        """Return the rotations at `times`, a number or [N]."""
        times = wnp.asarray(times, self.times.dtype)
        if times.ndim > 1:
            raise ValueError(
                f"Slerp: `times` must have at most one dim, got shape {tuple(times.shape)}."
            )
        flat = wnp.atleast_1d(times)
        at = wnp.clip(
            wnp.searchsorted(self.times, flat, side="right") - 1, 0, self.times.shape[0] - 2
        )
        share = (flat - self.times[at]) / self.timedelta[at]
        turned = self.rotations[at] * Rotation.from_rotvec(self.rotvecs[at] * share[:, None])
        return turned[0] if times.ndim == 0 else turned


guard_all(globals())
