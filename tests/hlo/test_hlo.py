"""HLO texts: their form, kernels as fusions, names of places, donation; what programs cost."""

import re

import numpy as np
import pytest

import weft
import weft.lax as lax
import weft.numpy as wnp
from tests.hlo.programs import PROGRAMS, Program
from weft.sharding import NamedSharding, PartitionSpec as P

X = np.ones((8, 4), np.float32)


def compiled(fn, *args, **options):
    return weft.jit(fn, **options).lower(*args).compile()


def lines(text: str, opcode: str) -> list[str]:
    """Return the instructions of an opcode."""
    return [line.strip() for line in text.splitlines() if f" {opcode}(" in line]


@pytest.mark.parametrize("program", PROGRAMS[::4], ids=lambda p: p.name)
def test_definitions_precede_uses(program: Program):
    with weft.enable_x64(program.x64):
        lowered = program.lower()
        for text in (lowered.as_text("hlo"), lowered.compile().as_text()):
            check_form(text)


def check_form(text: str) -> None:
    header, *computations = text.strip().split("\n\n")
    assert header.startswith("HloModule jit_") and computations[-1].startswith("ENTRY %main (")
    finished: set[str] = set()
    for computation in computations:
        first, *body, last = computation.splitlines()
        assert last == "}" and sum("ROOT " in line for line in body) == 1
        known: set[str] = set()
        for line in body:
            line = re.sub(r", metadata=\{op_name=.*", "", line)
            name, what = line.strip().removeprefix("ROOT ").split(" = ", 1)
            called = re.findall(r"(?:to_apply|calls|body|condition)=(%[\w.\-]+)", what)
            called += re.findall(
                r"%[\w.\-]+", "".join(re.findall(r"branch_computations=\{[^}]*", what))
            )
            assert set(called) <= finished
            assert set(re.findall(r"%[\w.\-]+", what)) - set(called) <= known, line
            assert name not in known
            known.add(name)
        finished.add(re.match(r"(?:ENTRY )?(%[\w.\-]+) \(", first)[1])
    assert len(finished) == len(computations)


def test_kernels_are_fusions():
    text = compiled(lambda x, y, z: wnp.tanh(x * y + z), X, X, X).as_text()
    (fusion,) = lines(text, "fusion")
    assert re.match(
        r"ROOT %tanh_fusion.1 = f32\[8,4\]\{1,0\} fusion\(%param.1, %param.2, %param.3\), kind=kLoop, "
        r"calls=%fused_computation.1, metadata=",
        fusion,
    )
    inside = text.split("%fused_computation.1 (")[1].split("\n}")[0]
    assert [len(lines(inside, name)) for name in ("multiply", "add", "tanh")] == [1, 1, 1]


def test_matmul_and_epilogue_are_one_fusion():
    x, w = np.ones((64, 64), np.float32), np.ones((64, 64), np.float32)
    text = compiled(lambda x, w: wnp.maximum(x @ w + 1, 0), x, w).as_text()
    (fusion,) = lines(text, "fusion")
    assert "kind=kOutput" in fusion and len(lines(text, "dot")) == 1
    text = compiled(lambda x: wnp.sin(x).sum(0), X).as_text()
    (fusion,) = lines(text, "fusion")
    (reduce,) = lines(text, "reduce")
    assert "kind=kInput" in fusion and "dimensions={0}, to_apply=%add_f32.1" in reduce
    assert "\n%add_f32.1 (" in text


def test_what_a_matmul_reads_by_its_strides_is_not_stored():
    x = np.ones((64, 32), np.float32)
    program = compiled(lambda x, y: x[::2].T @ y[1::2], x, x)
    (fusion,) = lines(program.as_text(), "fusion")
    assert "kind=kOutput" in fusion and fusion.startswith("ROOT ")
    assert program.cost_analysis()["bytes accessed"] == 2 * x.nbytes + 4 * 32 * 32


def test_before_optimization_nothing_is_fused():
    text = weft.jit(lambda x: wnp.sin(x) * 2).lower(X).as_text("hlo")
    assert (
        "fusion(" not in text
        and "%sine.1 = f32[8,4]{1,0} sine(%param.1)" in text
        and "is_scheduled" not in text
    )


def test_attributes_of_slices_gathers_and_sorts():
    def f(x, i):
        return (
            lax.slice(x, (1, 0), (7, 4), (2, 1)),
            x[i],
            x.at[i].add(1.0),
            lax.sort(x),
            lax.dynamic_slice(x, (i[0], 0), (2, 2)),
        )

    text = weft.jit(f).lower(X, np.array([1, 3])).as_text("hlo")
    assert "slice={[1:7:2], [0:4]}" in text and "dynamic_slice_sizes={2,2}" in text
    (gather,) = lines(text, "gather")
    assert (
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1"
        in gather
        and "slice_sizes={1,4}" in gather
    )
    (scatter,) = lines(text, "scatter")
    assert (
        "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}"
        in scatter
    )
    assert "to_apply=%add_f32" in scatter
    (sort,) = lines(text, "sort")
    assert "dimensions={1}, is_stable=true, to_apply=%region" in sort


def test_places_have_the_names_of_scopes_and_the_source_line():
    inner = weft.jit(lambda x: wnp.cos(x))

    def f(x):
        with weft.named_scope("model"):
            with weft.named_scope("layer"):
                y = wnp.sin(x)
            return inner(y) + lax.scan(lambda c, _: (wnp.tanh(c), None), x, None, length=3)[0]

    lowered = weft.jit(f).lower(X)
    for text in (lowered.as_text("hlo", debug_info=True), lowered.compile().as_text()):
        (sine,) = lines(text, "sine")
        assert re.search(
            r'metadata=\{op_name="jit\(f\)/model/layer/sin" source_file="[^"]*test_hlo\.py" source_line=\d+\}',
            sine,
        )
        (tanh,) = lines(text, "tanh")
        assert 'op_name="jit(f)/model/scan/tanh"' in tanh
    (cosine,) = lines(text, "cosine")
    assert 'op_name="jit(f)/model/cos"' in cosine
    assert '"jit(f)/model/layer/sin"' in lowered.as_text(debug_info=True)


def test_named_calls_are_scopes():
    lowered = weft.jit(lambda x: weft.named_call(wnp.sin, name="norm")(x)).lower(X)
    assert 'op_name="jit(<lambda>)/norm/sin"' in lowered.as_text("hlo", debug_info=True)


def test_scopes_of_other_calls_do_not_show():
    inner = weft.jit(lambda x: wnp.sin(x))
    with weft.named_scope("outside"):
        first = inner.lower(X).as_text("hlo", debug_info=True)
    assert 'op_name="jit(<lambda>)/sin"' in first
    with pytest.raises(ZeroDivisionError), weft.named_scope("abandoned"):
        1 / 0  # noqa: B018
    assert "abandoned" not in weft.jit(lambda x: wnp.cos(x)).lower(X).as_text(
        "hlo", debug_info=True
    )


def names(fun, *args) -> list[str]:
    """Return the names around the operations that `fun` binds, in order, each once."""
    return list(
        dict.fromkeys(eqn.source_info.name_stack for eqn in weft.make_jaxpr(fun)(*args).eqns)
    )


def test_operations_are_named_by_the_transformations_around_them():
    def layer(x):
        with weft.named_scope("layer"), weft.named_scope("attend"):
            return wnp.sin(x)

    outer = weft.named_scope("net")
    assert names(outer(weft.vmap(layer)), X) == ["net/vmap(layer)/attend"]
    assert names(weft.vmap(wnp.sin), X) == ["vmap()"]
    loss = lambda x: layer(x).sum()
    assert names(outer(weft.grad(loss)), X[0])[:2] == ["net/jvp(layer)/attend", "net/jvp()"]
    assert "net/transpose(jvp(layer))/attend" in names(outer(weft.grad(loss)), X[0])
    assert "transpose(vmap(jvp(layer)))/attend" in names(weft.vmap(weft.grad(loss)), X)
    text = weft.jit(weft.grad(loss)).lower(X[0]).as_text("hlo", debug_info=True)
    assert 'op_name="jit(<lambda>)/transpose(jvp(layer))/attend/mul"' in text


def test_programs_that_are_called_keep_names_of_their_own():
    inner = weft.jit(weft.named_scope("inner")(lambda x: wnp.sin(x)))
    (call,) = weft.make_jaxpr(weft.named_scope("net")(weft.vmap(inner)))(X).eqns
    assert call.source_info.name_stack == "net/vmap()"
    assert [eqn.source_info.name_stack for eqn in call.params["jaxpr"].eqns] == ["inner"]
    (call, back) = [
        eqn for eqn in weft.make_jaxpr(weft.grad(inner))(1.0).eqns if "jaxpr" in eqn.params
    ]
    assert (call.source_info.name_stack, back.source_info.name_stack) == (
        "jvp()",
        "transpose(jvp())",
    )
    assert {eqn.source_info.name_stack for eqn in back.params["jaxpr"].eqns} == {"inner"}


def test_donated_arguments_are_aliases():
    def f(x, y, n):
        return y.sum(), x + y, n

    options = {"donate_argnums": 0, "keep_unused": True}
    lowered = weft.jit(f, **options).lower(X, X, 1)
    assert "input_output_alias={ {1}: (0, {}, may-alias) }" in lowered.as_text("hlo")
    executable = lowered.compile()
    assert executable.runtime_executable().aliases == {1: 0}
    assert "input_output_alias={ {1}: (0, {}, may-alias) }" in executable.as_text()
    assert "input_output_alias" not in compiled(f, X, X, 1).as_text()
    alone = compiled(lambda unused, x: x + 1, X, X, donate_argnums=1).as_text()
    assert (
        "input_output_alias={ {}: (0, {}, may-alias) }" in alone and alone.count(" parameter(") == 1
    )


def test_several_devices():
    mesh = weft.make_mesh((4, 2), ("a", "b"))
    put = lambda x, *spec: weft.device_put(x, NamedSharding(mesh, P(*spec)))
    x, w = put(np.ones((8, 16), np.float32), "a", "b"), put(np.ones((16, 8), np.float32), "b")
    lowered = weft.jit(lambda x, w: x @ w, out_shardings=NamedSharding(mesh, P("a"))).lower(x, w)
    before, after = lowered.as_text("hlo"), lowered.compile().as_text()
    assert (
        "parameter(0), sharding={devices=[4,2]0,1,2,3,4,5,6,7}" in before
        and "num_partitions=8" in before
    )
    assert (
        "sharding={devices=[4,1,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}"
        in before.splitlines()[-2]
    )
    (reduce,) = lines(after, "all-reduce")
    assert (
        "replica_groups={{0,1},{2,3},{4,5},{6,7}}, use_global_device_ids=true, to_apply=%add_f32"
        in reduce
    )
    exchange = weft.shard_map(
        lambda x: lax.all_to_all(x, "a", 1, 0, tiled=True),
        mesh=mesh,
        in_specs=P("a"),
        out_specs=P("a"),
    )
    text = compiled(exchange, put(np.ones((16, 8), np.float32), "a")).as_text()
    (moved,) = lines(text, "all-to-all")
    assert "f32[4,4,2]" in moved and "dimensions={1}" in moved


def test_modules_of_the_runtime():
    executable = compiled(wnp.sin, X)
    (module,) = executable.runtime_executable().hlo_modules()
    assert module.name == "jit_sin" and module.to_string() == executable.as_text()
    lowered = weft.jit(wnp.sin).lower(X)
    ir = lowered.compiler_ir("hlo")
    assert ir.as_hlo_text() == lowered.as_text("hlo") and "metadata" not in ir.as_hlo_text()
    assert ir.as_hlo_module().to_string() == lowered.as_text("hlo", debug_info=True)
    assert (
        "metadata={op_name=" in ir.as_hlo_module().to_string()
        and ir.as_hlo_module().name == "jit_sin"
    )


def test_costs_count_functions_apart_and_bytes_after_fusion():
    lowered = weft.jit(lambda x: wnp.sin(x) * 2 + wnp.exp(x)).lower(X)
    before, after = lowered.cost_analysis(), lowered.compile().cost_analysis()
    assert (
        (before["flops"], before["transcendentals"])
        == (after["flops"], after["transcendentals"])
        == (2 * 32, 2 * 32)
    )
    assert after["bytes accessed"] == 2 * X.nbytes
    assert (
        before["bytes accessed"] == (2 + 2 + 3 + 3) * X.nbytes + X.nbytes + 4
    )  # the constant is spread


def test_costs_of_loops_branches_and_windows():
    loop = compiled(
        lambda x: lax.scan(lambda c, _: (wnp.sin(c), None), x, None, length=5)[0], X
    ).cost_analysis()
    assert loop["transcendentals"] == 5 * X.size
    branch = compiled(
        lambda p, x: lax.cond(p, lambda x: wnp.sin(wnp.cos(x)), lambda x: x, x), True, X
    ).cost_analysis()
    assert branch["transcendentals"] == 2 * X.size
    image, kernel = np.ones((1, 5, 5, 2), np.float32), np.ones((3, 3, 2, 4), np.float32)
    conv = weft.jit(
        lambda x, w: lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
    )
    assert conv.lower(image, kernel).cost_analysis()["flops"] == 2 * 13 * 13 * 2 * 4
