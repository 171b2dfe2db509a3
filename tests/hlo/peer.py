"""Parses, verifies and executes modules in the peer's environment: `python peer.py FOLDER`, which holds `todo.json` and `NAME.npz`.

`todo.json` lists [name, text, number of devices, (axes, sizes) of their mesh, specs of arguments or null, whether to execute]. Results are
written to `NAME.out.npz`, serialized HLO to `NAME.pb`, and what went wrong to `failed.json`.
"""

import json
import pathlib
import sys

try:
    import jax
    import ml_dtypes
    import numpy as np
    from jax._src import compiler, xla_bridge
    from jax._src.interpreters import mlir
    from jaxlib import _hlo, _jax
    from jaxlib.mlir import ir
except ImportError:  # here this file is only looked through for examples
    pass


def parsed(text, path):
    """Return the module as bytes that can be compiled. HLO is written to PATH.pb, serialized, and to PATH.txt, as XLA prints it."""
    if text.startswith("HloModule"):
        module = _hlo.hlo_module_from_text(text)
        path.with_suffix(".pb").write_bytes(module.as_serialized_hlo_module_proto())
        path.with_suffix(".txt").write_text(module.to_string())
        return lambda: _jax.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto())
    context = mlir.make_ir_context()
    with context, ir.Location.unknown(context):
        module = ir.Module.parse(text)
        assert module.operation.verify()
    return lambda: mlir.module_to_bytecode(module)


def placed(x, mesh, spec):
    axes = [tuple(a) if isinstance(a, list) else a for a in spec or ()]
    return jax.device_put(x, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)))


def executed(module, devices, mesh, inputs, specs):
    backend = xla_bridge.get_backend()
    chosen = np.array(jax.devices()[:devices])
    options = compiler.get_compile_options(
        num_replicas=1,
        num_partitions=devices,
        device_assignment=np.arange(devices)[None],
        backend=backend,
    )
    options.executable_build_options.use_spmd_partitioning = devices > 1
    options.executable_build_options.use_shardy_partitioner = devices > 1
    axes, sizes = mesh or (["x"], [devices])
    mesh = jax.sharding.Mesh(chosen.reshape(sizes), axes)
    loaded = backend.compile_and_load(module(), tuple(chosen.tolist()), options)
    args = [placed(x, mesh, specs and specs[i]) for i, x in enumerate(inputs)]
    results = loaded.execute_sharded(args).disassemble_into_single_device_arrays()
    return [np.asarray(shards[0]) for shards in results]


def main(folder):
    failed = {}
    for name, text, devices, mesh, specs, execute in json.loads((folder / "todo.json").read_text()):
        try:
            module = parsed(text, folder / name)
            if execute:
                with np.load(folder / f"{name}.npz") as inputs:
                    operands = [
                        inputs[k].view(ml_dtypes.bfloat16)
                        if inputs[k].dtype.kind == "V"
                        else inputs[k]
                        for k in inputs
                    ]
                jax.config.update("jax_enable_x64", True)
                results = executed(module, devices, mesh, operands, specs)
                np.savez(
                    folder / f"{name}.out.npz",
                    **{
                        f"{i:03}": y.astype(np.float32) if y.dtype.kind == "V" else y
                        for i, y in enumerate(results)
                    },
                )
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"[:1000]
    (folder / "failed.json").write_text(json.dumps(failed))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
