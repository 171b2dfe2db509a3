"""Text of jaxprs: the printed text is parsed as the same program."""

import copy
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.core.primitive import Primitive, registry
from weft._engine.ir.jaxpr import Eqn, Jaxpr, Literal, Var
from weft._engine.ir.text.jaxpr import jaxpr_text
from weft._engine.ir.text.parse import JaxprSyntaxError, parse_jaxpr
from weft._engine.ir.types import ManualAxisType, ShapedArray
from weft.numpy import fft

ROOT = pathlib.Path(__file__).resolve().parents[2]

PROGRAM = """{ lambda a:f32[2]; b:f32[3] c:f32[3]. let
    d:f32[3] = t_mul b c
    e:f32[] = t_reduce[axes=(0,)] d
    _:bf16[3] = t_mul d -0.25:f32[]
    f:f32[3] g:f32[3] = t_cond[
      branches=(
        { lambda ; h:f32[3]. let i:f32[3] = t_mul h h in (i, h) }
        { lambda ; j:f32[3]. let
            k:f32[3] = t_mul j j
            l:f32[3] = t_mul k inf:f32[]
          in (l, j) }
      )
      mode=foo
      new_dtype=bfloat16
      x=(True, None, 1.5)
    ] e b
    m:f32[3,1] = t_reduce[axes=None] f
  in (e, True:bool[]) }"""


@pytest.fixture(autouse=True)
def primitives(monkeypatch):
    names = ("t_mul", "t_reduce", "t_cond")
    by_name = {n: Primitive(n, "elementwise", register=False) for n in names}
    from weft._engine.core import primitive

    for name, p in by_name.items():
        monkeypatch.setitem(primitive.registry, name, p)
    return by_name


def test_round_trip():
    jaxpr = parse_jaxpr(PROGRAM, [np.zeros(2, "f4")])
    assert jaxpr_text(jaxpr) == PROGRAM, jaxpr_text(jaxpr)
    assert jaxpr.eqns[3].params["new_dtype"].name == "bfloat16"
    assert jaxpr.eqns[1].params == {"axes": (0,)}


def test_names_go_on_after_z(primitives):
    aval = ShapedArray((), np.dtype("f4"))
    x = Var(aval)
    eqns = []
    for _ in range(30):
        y = Var(aval)
        eqns.append(
            Eqn(
                primitives["t_mul"],
                [eqns[-1].outvars[0] if eqns else x, Literal(2.0, aval)],
                [y],
                {},
            )
        )
    printed = jaxpr_text(Jaxpr([], [], [x], [eqns[-1].outvars[0]], eqns))
    assert "ba:f32[] = t_mul z 2.0:f32[]" in printed
    assert jaxpr_text(parse_jaxpr(printed)) == printed


@pytest.mark.parametrize(
    "bad, message",
    [
        ("{ lambda ; a:f32[3]. let b:f32[3] = nothing a in (b,) }", "unknown operation 'nothing'"),
        ("{ lambda ; a:f32[3]. let in (c,) }", "'c' is not bound"),
        ("{ lambda ; a:q7[3]. let in (a,) }", "unknown type 'q7'"),
        ("{ lambda k:f32[]; a:f32[3]. let in (a,) }", "1 constants, got 0 values"),
        ("{ lambda ; a:f32[3]. let in (a,) } x", "text after the program"),
    ],
)
def test_errors_say_where(bad, message):
    with pytest.raises(JaxprSyntaxError, match=message):
        parse_jaxpr(bad)


SHOWN = """let double = { lambda ; a:f32[3]. let
    b:f32[3] = sin a
    c:f32[3] = mul b 2.0:f32[]
  in (c,) } in
{ lambda ; d:f32[2,3] e:f32[3]. let
    f:f32[3] = jit[name=double jaxpr=double] e
    g:f32[3] = jit[name=double jaxpr=double] f
    h:f32[1,3] = broadcast_in_dim[broadcast_dimensions=(1,)] g
    i:f32[2,3] = add d h
    _:f32[2,3] = neg i
    j:f32[2,2] = dot_general[dimension_numbers=(([1], [1]), ([], []))] i d
  in (j,) }"""


def test_programs_are_shown_in_the_words_of_others():
    """Repeated programs are printed first, unused results are `_`, and repeated operations are not
    expanded."""

    @weft.jit
    def double(x):
        return wnp.sin(x) * 2

    def program(x, y):
        z = x + double(double(y))
        return -z, lax.dot_general(z, x, (((1,), (1,)), ((), ())))

    jaxpr = weft.make_jaxpr(lambda *args: program(*args)[1])(wnp.ones((2, 3)), wnp.ones(3))
    assert str(jaxpr) == SHOWN, str(jaxpr)
    assert "broadcast_in_dim[broadcast_dimensions=(1,) shape=(2, 3)]" in jaxpr.pretty_print(
        custom_pp_eqn_rules=False
    )
    assert "add d h  # " in jaxpr.pretty_print(
        source_info=True
    ) and "_ = neg i" in jaxpr.pretty_print(print_shapes=False)


def test_tracers_and_specs_say_what_they_are():
    seen = []

    def look(x):
        seen.append(f"{x}")
        return x * 2

    x = wnp.ones(3)
    weft.jit(look)(x)
    weft.vmap(look)(x)
    weft.jit(weft.grad(lambda x: look(x).sum()))(x)
    weft.jvp(look, (2.0,), (1.0,))
    lax.scan(lambda c, a: (look(c), a), 1.0, x)
    weft.jacfwd(look)(x[:2])
    mesh = weft.make_mesh((2,), ("a",), devices=weft.devices()[:2])
    weft.jit(weft.shard_map(look, mesh=mesh, in_specs=weft.P("a"), out_specs=weft.P("a")))(
        wnp.ones(8)
    )
    assert seen == [
        "JitTracer(float32[3])",
        "VmapTracer(aval=float32[], batched=float32[3])",
        "GradTracer(primal=JitTracer(float32[3]), typeof(tangent)=f32[3])",
        "JVPTracer(primal=2.0, tangent=1.0)",
        "JitTracer(~float32[])",
        "JVPTracer(primal=[1. 1.], tangent=VmapTracer(aval=float32[2], batched=float32[2,2]))",
        "JitTracer(float32[4]{V:a})",
    ]
    assert repr(weft.P("a", None)) == "P('a', None)" and str(weft.P("a")) == "P('a',)"


UPDATE = """{ lambda ; a:f32[4,3]. let
    b:i32[1] = broadcast_in_dim 1:i32[]
    c:f32[4] = broadcast_in_dim 2.0:f32[]
    d:f32[4,3] = scatter[
      dimension_numbers=ScatterDimensionNumbers(update_window_dims=(0,), inserted_window_dims=(1,), scatter_dims_to_operand_dims=(1,), \
operand_batching_dims=(), scatter_indices_batching_dims=())
      indices_are_sorted=True
      mode=GatherScatterMode.FILL_OR_DROP
      unique_indices=True
      update_consts=()
      update_jaxpr=None
    ] a b c
  in (d,) }"""


def test_index_updates_are_scatters_and_slice_updates_are_not():
    x = wnp.ones((4, 3))
    assert str(weft.make_jaxpr(lambda x: x.at[:, 1].set(2.0))(x)) == UPDATE
    assert "dynamic_update_slice a b 0:i32[] 1:i32[]" in str(
        weft.make_jaxpr(lambda x, y: lax.dynamic_update_slice(x, y, (0, 1)))(x, x[:1])
    )


FRESH = """
import sys
import weft._engine.control
from weft._engine.ir.text.parse import parse_jaxpr
from weft._engine.ir.text.jaxpr import jaxpr_text
text = sys.stdin.read()
assert jaxpr_text(parse_jaxpr(text)) == text, jaxpr_text(parse_jaxpr(text))
"""


@pytest.mark.parametrize(
    "program",
    [
        lambda x: lax.dot_general(x, x, (((0,), (0,)), ((), ())), precision="highest"),
        lambda x: x.at[x[0].astype(int)].add(x, mode="clip")[x[1].astype(int)],
        lambda x: lax.conv_general_dilated(x[None, None], x[None, None], (1, 1), "SAME"),
        lambda x: lax.scan(
            lambda c, t: (lax.cond(t[0] > 0, wnp.sin, lambda c: c @ c, c), fft.rfft(c)), x, x
        ),
    ],
    ids=["dot_general", "gather and scatter", "conv", "scan"],
)
def test_operations_are_found_in_a_process_that_has_used_none(program):
    """Modules of operations are loaded by their registered names and declare the types of
    parameters."""
    printed = jaxpr_text(weft.make_jaxpr(program)(wnp.ones((3, 3))))
    subprocess.run([sys.executable, "-c", FRESH], input=printed, text=True, check=True, cwd=ROOT)


def test_passes_find_operations_that_no_room_has_registered_yet():
    """A product without a sum becomes a reduction, whose module the module of products does not
    load."""
    text = (
        "import sys, numpy as np\nfrom weft._engine.ops.contraction import dot_general\nassert 'weft._engine.ops.reduce' not in sys.modules\n"
        "from weft._engine.core.primitive import registry\nassert 'reduce_sum' not in registry and registry['reduce_sum'].kind == 'reduce'\n"
        "got = dot_general(np.ones((2, 0)), np.ones((0, 3)), (((1,), (0,)), ((), ())))\nassert got.shape == (2, 3)\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True, cwd=ROOT)
    with pytest.raises(KeyError):
        registry["no such operation"]


def test_manual_axis_types_are_one_object():
    kind = ManualAxisType(varying=frozenset("a"), unreduced={"b"})
    assert kind is ManualAxisType(frozenset("a"), frozenset("b")) and kind is not ManualAxisType(
        frozenset("a")
    )
    assert pickle.loads(pickle.dumps(kind)) is kind and copy.deepcopy(kind) is kind
    assert type(kind.unreduced) is frozenset
    assert kind.update(unreduced=frozenset()) is ManualAxisType(
        frozenset("a")
    ) and kind.unreduced == {"b"}
    with pytest.raises(AttributeError):
        kind.varying = frozenset()
