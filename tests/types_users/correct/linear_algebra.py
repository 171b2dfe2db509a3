"""Decompositions, solutions and products."""

import weft
import weft.numpy as wnp
from weft.scipy import linalg as slinalg


def least_squares(a: weft.Array, y: weft.Array) -> weft.Array:
    q, r = wnp.linalg.qr(a)
    return slinalg.solve_triangular(r, q.T @ y)


a = wnp.array([[2.0, 1.0], [1.0, 3.0], [0.0, 1.0]])
y = wnp.array([1.0, 2.0, 3.0])
solution = least_squares(a, y)
u, s, vh = wnp.linalg.svd(a, full_matrices=False)
singular = wnp.linalg.svd(a, compute_uv=False)
gram = wnp.einsum("ij,ik->jk", a, a)
values, vectors = wnp.linalg.eigh(gram)
sign, logdet = wnp.linalg.slogdet(gram)
decomposed = wnp.linalg.eigh(gram)
print(solution.shape, u.shape, float(wnp.max(wnp.abs(s - singular))) < 1e-5, vh.T.shape)
print(values.sum().item() > 0, vectors.shape, float(sign), logdet.dtype)
print(decomposed.eigenvalues.shape, float(wnp.linalg.norm(y, ord=2)), gram.trace().shape)
print(wnp.tensordot(a, a, axes=((0,), (0,))).shape, wnp.linalg.inv(gram).diagonal().shape)
print(wnp.outer(y, y).shape, wnp.kron(y, y).size, wnp.linalg.matrix_power(gram, 2).T.shape)
