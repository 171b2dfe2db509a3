"""Where devices meet at callbacks: along all axes but those along which a condition around may differ."""

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft._engine.hlo.host_call_meetings import calls_host, mark_meetings, program_end_p
from weft._engine.ir.jaxpr import subjaxprs
from weft.sharding import NamedSharding, PartitionSpec as P

X = np.zeros((4, 4), np.float32)


def mesh():
    return weft.make_mesh((2, 2), ("i", "j"), devices=weft.devices()[:4])


def marked(f, *args):
    """Return the program of one device, with marks."""
    program = weft.jit(f).lower(*args).compile().stages.program
    differing = [frozenset([a for dim in x.dims for a in dim]) for x in program.ins]
    return mark_meetings(program.jaxpr, program.mesh, differing)


def meetings(jaxpr):
    """Return the axes of each callback, in the order of the program, without the end."""
    meets = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.kind == "callback" and eqn.primitive is not program_end_p:
            meets.append("".join(sorted(eqn.params["meets"])))
        for _, body in subjaxprs(eqn.params):
            meets += meetings(body)
    return meets


def note(x):
    weft.debug.callback(lambda v: None, x)
    return x


def at(axis):
    return lax.axis_index(axis)


def cond(condition):
    return lambda x: lax.cond(condition(x), note, lambda x: x, x)


def inside(x):
    return lax.cond(at("i") == 0, cond(lambda x: at("j") == 0), note, x)


def after(x):
    """The callback of a loop that differs along j makes no difference to a callback after it."""
    x = lax.fori_loop(0, at("j"), lambda k, v: note(v), x)
    return note(x)


def carried(x):
    """A value that differs between devices only from the second iteration on."""

    def body(state):
        first, second, x = state
        lax.cond(first > 0, note, lambda x: x, x)
        return second, second + at("i"), x

    return lax.while_loop(lambda state: lax.psum(state[0], ("i", "j")) < 3, body, (0, 0, x))[2]


BODIES = {
    "straight": (note, ["ij"]),
    "one axis": (cond(lambda x: at("i") == 0), ["j"]),
    "both axes": (cond(lambda x: x[0, 0] > 0), [""]),
    "sum over one": (cond(lambda x: lax.psum(x[0, 0], "i") > 0), ["i"]),
    "sum over both": (cond(lambda x: lax.psum(x[0, 0], ("i", "j")) > 0), ["ij"]),
    "sum of groups": (
        cond(lambda x: lax.psum(at("i"), "j", axis_index_groups=[[0], [1]]) > 0),
        [""],
    ),
    "gathered": (cond(lambda x: lax.all_gather(x[0, 0], ("i", "j")).sum() > 0), ["ij"]),
    "permuted": (cond(lambda x: lax.ppermute(at("i"), "j", [(0, 1), (1, 0)]) > 0), [""]),
    "nested": (inside, ["", "j"]),
    "loop": (lambda x: lax.fori_loop(0, 3, lambda k, v: note(v), x), ["ij"]),
    "after a loop": (after, ["i", "ij"]),
    "scan": (lambda x: lax.scan(lambda c, v: (c, note(v)), 0, x)[1], ["ij"]),
    "carried": (carried, ["j"]),
    "result of a callback": (
        cond(lambda x: weft.pure_callback(lambda v: v[0, 0], x[0, 0], x) > 0),
        ["ij", ""],
    ),
    "jit inside": (weft.jit(cond(lambda x: at("j") == 0)), ["i"]),
}


@pytest.mark.parametrize("name", BODIES)
def test_devices_of_a_shard_map_meet(name):
    body, want = BODIES[name]
    specs = {"in_specs": P("i", "j"), "out_specs": P("i", "j"), "check_vma": False}
    jaxpr = marked(weft.shard_map(body, mesh=mesh(), **specs), X)
    assert sorted(meetings(jaxpr)) == sorted(want)
    ends = jaxpr.eqns[-2:]
    assert [(end.primitive, end.invars) for end in ends] == [(program_end_p, jaxpr.outvars)] * 2
    assert [end.params["meets"] for end in ends] == [{"i", "j"}, set()]


def test_devices_meet_along_the_axes_of_the_compiler():
    x = weft.device_put(X, NamedSharding(mesh(), P("i", "j")))
    f = lambda x: lax.cond(x.sum() > 0, note, lambda x: weft.pure_callback(np.negative, x, x), x)
    assert meetings(marked(f, x)) == ["ij", "ij"]
    g = weft.shard_map(
        cond(lambda x: at("i") == 0),
        mesh=mesh(),
        in_specs=P("i"),
        out_specs=P("i"),
        axis_names={"i"},
    )
    assert meetings(marked(g, x)) == ["j"]


def test_programs_of_one_device_have_no_end():
    jaxpr = marked(lambda x: note(x) + 1, X)
    assert meetings(jaxpr) == [""] and all(e.primitive is not program_end_p for e in jaxpr.eqns)


def test_programs_without_callbacks_stay_the_same():
    program = weft.jit(lambda x: wnp.linalg.eigvals(x) * 2).lower(X).compile().stages.program
    assert not calls_host(program.jaxpr)
    assert mark_meetings(program.jaxpr, (), [frozenset()]) is program.jaxpr
