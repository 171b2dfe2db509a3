"""Programs of every generation of the API: the names of 2022 to today, as they are written."""

import textwrap

import pytest

from tests.harness.processes import run_weft

PROGRAMS = {
    "maps and pjit of 2022": """
        import numpy as np, jax, jax.numpy as jnp
        from jax.experimental import maps, PartitionSpec as P
        from jax.experimental.pjit import pjit, with_sharding_constraint
        mesh = maps.Mesh(np.array(jax.devices()).reshape(4, 2), ('x', 'y'))
        f = pjit(lambda v: with_sharding_constraint(v * 2, P('x', 'y')), in_axis_resources=P('x', None),
                 out_axis_resources=P('x', 'y'))
        with mesh:
            out = f(jnp.ones((8, 8)))
        assert out.sharding.spec == P('x', 'y'), out.sharding
        assert float(out.sum()) == 128
    """,
    "positional shardings of 2023": """
        import jax, jax.numpy as jnp
        from jax.experimental import mesh_utils
        from jax.sharding import PositionalSharding
        sharding = PositionalSharding(mesh_utils.create_device_mesh((8,)))
        x = jax.device_put(jnp.arange(16.).reshape(8, 2), sharding.reshape(4, 2))
        assert len(x.addressable_shards) == 8
    """,
    "functions of 2021 to 2023": """
        import numpy as np, jax, jax.numpy as jnp
        from jax.experimental import enable_x64, disable_x64
        with enable_x64():
            assert jnp.arange(2.).dtype == 'float64'
            with disable_x64():
                assert jnp.arange(2.).dtype == 'float32'
        two = jax.devices()[:2]
        x = jax.device_put_replicated(jnp.arange(3.), two)
        assert x.shape == (2, 3) and jax.pmap(lambda x: jax.lax.psum(x, 'i'), 'i')(x).tolist() == [[0, 2, 4]] * 2
        assert jax.device_put_sharded([1., 2.], two).tolist() == [1, 2] and (jax.host_count(), jax.host_id()) == (1, 0)
        assert jax.tree_multimap(lambda a, b: a + b, (1, 2), (3, 4)) == (4, 6)
        a = jnp.array([[3, 1], [2, 0]])
        assert jnp.in1d(a, jnp.array([1, 2])).tolist() == [False, True, True, False] and int(jnp.product(a)) == 0
        assert jnp.row_stack([a, a]).shape == (4, 2) and bool(jnp.sometrue(a)) and not bool(jnp.alltrue(a))
        assert jnp.cumproduct(a).tolist() == [3, 3, 6, 0] and float(jnp.trapz(jnp.arange(3.))) == 2 == float(jnp.round_(1.6))
        assert jax.nn.normalize(a).shape == (2, 2) and jax.scipy.linalg.tril(a).tolist() == [[3, 0], [2, 0]]
    """,
    "the array switch and the config module": """
        import jax
        from jax.config import config
        jax.config.update('jax_array', True)
        config.update('jax_log_compiles', False)
        assert config.jax_array is True and jax.config.read('jax_log_compiles') is False
    """,
    "constraints are put into lax": """
        import jax, jax.numpy as jnp
        import jax.experimental.pjit
        jax.lax.with_sharding_constraint = jax.experimental.pjit.with_sharding_constraint
        from jax.lax import with_sharding_constraint
        assert with_sharding_constraint is jax.experimental.pjit.with_sharding_constraint
    """,
    "meshes of pjit": """
        import jax, jax.numpy as jnp, numpy as np
        from jax.experimental.pjit import pjit
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        devices = jax.devices()
        few, all_ = Mesh(np.array(devices[:4]), ('x',)), Mesh(np.array(devices), ('x',))
        x = jax.device_put(np.arange(8), NamedSharding(all_, P('x')))
        with few:
            assert pjit(lambda v: v + 1)(np.arange(8)).sharding.mesh == few
            try:
                pjit(lambda v: v + 1)(x)
            except ValueError as error:
                assert 'incompatible devices' in str(error)
            else:
                raise AssertionError
        with jax.sharding.set_mesh(few):
            assert pjit(lambda v: v + 1)(x).sharding == x.sharding
            assert pjit(lambda v: v + 1)(np.arange(8)).devices() == {devices[0]}
    """,
    "today's names": """
        import jax, jax.numpy as jnp
        from jax import P, NamedSharding, tree, random, nn, lax, make_mesh
        from jax.sharding import Mesh, PartitionSpec, AxisType
        from jax.tree_util import tree_map
        from jax.flatten_util import ravel_pytree
        from jax.ad_checkpoint import checkpoint
        from jax.test_util import check_grads
        import jax.errors, jax.dtypes, jax.stages
        mesh = make_mesh((4, 2), ('a', 'b'))
        x = jax.device_put(jnp.ones((8, 4)), NamedSharding(mesh, P('a', 'b')))
        assert isinstance(x, jax.Array) and x.sharding.spec == P('a', 'b')
        vector, back = ravel_pytree({'w': jnp.ones(3)})
        check_grads(jnp.sin, (vector,), 1)
        assert float(jax.jit(jax.grad(lambda v: nn.relu(v).sum()))(vector)[0]) == 1.0
        assert tree.map(lambda v: v + 1, [1, 2]) == tree_map(lambda v: v + 1, [1, 2]) == [2, 3]
    """,
    "types and isinstance": """
        import jax, jax.numpy as jnp
        x = jnp.zeros(3)
        assert isinstance(x, jnp.ndarray) and isinstance(x, jax.Array)
        assert jax.core.ShapedArray((3,), jnp.float32) == jax.typeof(x)
        def f(v):
            assert isinstance(v, jax.core.Tracer) and isinstance(v, jax.Array)
            return v
        jax.jit(f)(x)
    """,
    "refused names are errors on use": """
        from jax.experimental import transfer
        try:
            transfer.start_transfer_server(None)
        except NotImplementedError as error:
            assert str(error).startswith('jax.experimental.transfer.start_transfer_server: ')
        else:
            raise AssertionError
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(PROGRAMS[name]))
    done = run_weft("run", "--devices", "8", "program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
