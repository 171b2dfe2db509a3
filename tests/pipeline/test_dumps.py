"""Dump files of compilation: HLO before and after optimization with the stages, and the lowered
program alone."""

import pytest

import weft
import weft.numpy as wnp
from weft import NamedSharding, P
from weft._engine.util.config import Override


def g(x):
    return wnp.sin(x) @ x


def dumped(folder, fun, x, **settings) -> dict[str, str]:
    with Override(**settings):
        weft.jit(fun)(x)
    return {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.is_file()}


def test_modules_before_and_after_stand_beside_their_stages(tmp_path):
    x = weft.device_put(wnp.ones(16), NamedSharding(weft.make_mesh((8,), ("d",)), P("d")))
    files = dumped(tmp_path, g, x, dump=str(tmp_path))
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    number = folder.name[:4]
    assert folder.name == f"{number}_jit_g_" and len(list(folder.iterdir())) >= 6
    assert sorted(files) == [
        f"module_{number}.jit_g.{time}_optimizations.txt" for time in ("after", "before")
    ]
    after, before = files.values()
    assert (
        before.startswith("HloModule jit_g") and "f32[16]" in before and "all-reduce" not in before
    )
    assert after.startswith("HloModule jit_g") and "f32[2]" in after and "all-reduce" in after


@pytest.mark.parametrize(
    "modes, kinds",
    [("stablehlo", ["mlir"]), ("jaxpr", ["txt"]), ("stablehlo,jaxpr", ["mlir", "txt"])],
)
def test_lowered_programs(tmp_path, modes, kinds):
    files = dumped(
        tmp_path,
        lambda x: wnp.cos(x) * 3,
        wnp.ones(5),
        dump_ir_to=str(tmp_path),
        dump_ir_modes=modes,
    )
    assert sorted(name.rsplit(".")[-1] for name in files) == kinds
    for name, text in files.items():
        if name.endswith("mlir"):
            assert name.startswith("jax_ir") and name.endswith("_jit__lambda_compile.mlir")
            assert (
                text.startswith("module @jit__lambda")
                and "stablehlo.cosine" in text
                and "test_dumps.py" in text
            )
        else:
            assert name.endswith("__lambda.jaxpr.txt") and "cos a" in text


def test_settings_of_lowered_programs(tmp_path):
    files = dumped(
        tmp_path,
        lambda x: x * 5,
        wnp.ones(5),
        dump_ir_to=str(tmp_path / "new"),
        include_debug_info_in_dumps=False,
    )
    (path,) = (tmp_path / "new").iterdir()
    assert not files and "test_dumps.py" not in path.read_text()
    with pytest.raises(ValueError, match=r"no mode 'jaxpr_html'; weft writes stablehlo, jaxpr"):
        dumped(
            tmp_path,
            lambda x: x * 6,
            wnp.ones(5),
            dump_ir_to=str(tmp_path),
            dump_ir_modes="jaxpr_html",
        )
