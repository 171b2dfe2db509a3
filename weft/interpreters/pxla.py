"""Names of `jax.interpreters.pxla` that libraries use: the context mesh."""

from __future__ import annotations

from weft._engine.ir.mesh import EMPTY_MESH, AbstractMesh, Mesh as Mesh, concrete_mesh, current_mesh
from weft._engine.ir.specs import PartitionSpec as PartitionSpec
from weft._engine.util.refusals import refused_function


class _Environment:
    """`thread_resources.env`: the mesh of the enclosing `with mesh:`; empty outside of one."""

    @property
    def physical_mesh(self) -> Mesh:
        mesh = current_mesh()
        if isinstance(mesh, AbstractMesh):
            mesh = concrete_mesh(mesh)
        return EMPTY_MESH if mesh is None else mesh


class _ThreadResources:
    env = _Environment()


thread_resources = _ThreadResources()


create_compile_options = refused_function(__name__, "create_compile_options")
