"""The user's lines and filtered tracebacks."""

import inspect
import os
import pickle
import traceback

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft._engine.util import source as S
from weft._engine.util.config import Override
from weft._engine.util.source import api_boundary


def inside_weft(code):
    """Compile functions as if their code were in a file of weft."""
    namespace = {"user_frame": S.user_frame, "api_boundary": api_boundary}
    exec(compile(code, S.__file__.replace("source.py", "imagined.py"), "exec"), namespace)
    return namespace


op = inside_weft("def op():\n    return inner()\ndef inner():\n    return user_frame()\n")["op"]


def attend():
    return op()  # the line in question


def test_the_innermost_line_outside_weft():
    line = attend()
    assert line.file == __file__
    assert line.function == "attend"
    assert line.line == attend.__code__.co_firstlineno + 1
    assert line.text == "return op()  # the line in question"
    assert line.short == f"test_source.py:{line.line}"
    assert (
        str(line) == f"test_source.py:{line.line} in attend:  return op()  # the line in question"
    )


def test_calls_through_weft_and_back_find_the_inner_user():
    call = inside_weft("def call(f):\n    return f()\n")["call"]
    assert call(attend).function == "attend"
    assert call(lambda: call(attend)).function == "attend"


def test_lines_of_a_multi_line_call_and_of_a_module():
    namespace = {"op": op}
    exec(compile("\n\nwhere = op()\n", "/src/train.py", "exec"), namespace)
    assert str(namespace["where"]) == "train.py:3"
    assert namespace["where"].text == ""

    line = op(
    )  # fmt: skip
    assert line.text == "line = op("


def test_two_lines_differ_and_one_line_is_itself():
    first, again = [attend() for _ in range(2)]
    assert first == again
    assert hash(first) == hash(again)
    assert first != op()
    assert first != "text"


def test_lines_survive_pickling():
    line = attend()
    copy = pickle.loads(pickle.dumps(line))
    assert copy == line
    assert str(copy) == str(line)
    assert S.SourceLine.at("/a/b.py", 7, "f").short == "b.py:7"
    assert "b.py:7 in f" in repr(S.SourceLine.at("/a/b.py", 7, "f"))


def test_only_weft_on_the_stack(monkeypatch):
    monkeypatch.setattr(S, "_internal", type(S._internal)())
    monkeypatch.setattr(S, "_hidden_files", _Everything())
    assert op() is None


class _Everything:
    def __contains__(self, file):
        return True


# ---- tracebacks

BOUNDARY = """
def kernel():
    raise {error}('wrong')

@api_boundary
def api(f=None):
    return kernel() if f is None else f()
"""


@pytest.fixture(autouse=True)
def as_users_see_it():
    with Override(traceback="", traceback_filtering="auto"):
        yield


def functions_of(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def tells_of_frames(error):
    return any("For simplicity" in note for note in getattr(error, "__notes__", ()))


@pytest.fixture(params=["ValueError", "ShapeError"])
def api(request):
    from weft._engine.util.errors import ShapeError

    namespace = inside_weft(BOUNDARY.format(error=request.param))
    namespace["ShapeError"] = ShapeError
    return namespace


def test_frames_of_weft_are_left_out(api):
    with pytest.raises(ValueError) as caught:
        api["api"]()
    assert functions_of(caught.value) == ["test_frames_of_weft_are_left_out"]
    assert tells_of_frames(caught.value) == (type(caught.value) is ValueError)


def test_user_functions_below_are_kept(api):
    def user():
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        api["api"](lambda: api["api"](user))
    assert functions_of(caught.value) == ["test_user_functions_below_are_kept", "<lambda>", "user"]
    assert len(caught.value.__notes__) == 1


@pytest.mark.parametrize("setting", [{"traceback": "full"}, {"traceback_filtering": "off"}])
def test_all_frames_on_request(api, setting):
    with Override(**setting), pytest.raises(ValueError) as caught:
        api["api"]()
    assert functions_of(caught.value)[-2:] == ["api", "kernel"]
    assert not tells_of_frames(caught.value)


def test_causes_are_filtered_too(api):
    def user():
        try:
            api["kernel"]()
        except ValueError as error:
            raise RuntimeError("second") from error

    with pytest.raises(RuntimeError) as caught:
        api["api"](user)
    assert functions_of(caught.value.__cause__) == ["user"]


LOOKUP = """
def kernel():
    try:
        {}['absent']
    except KeyError:
        raise ValueError('wrong')

@api_boundary
def api():
    return kernel()
"""


def test_errors_handled_inside_are_left_out():
    api = inside_weft(LOOKUP)["api"]
    with pytest.raises(ValueError) as caught:
        api()
    assert "KeyError" not in "".join(traceback.format_exception(caught.value))

    with pytest.raises(ValueError) as caught:
        try:
            {}["mine"]
        except KeyError:
            api()
    shown = "".join(traceback.format_exception(caught.value))
    assert "KeyError: 'mine'" in shown
    assert "absent" not in shown

    with Override(traceback="full"), pytest.raises(ValueError) as caught:
        api()
    assert "KeyError: 'absent'" in "".join(traceback.format_exception(caught.value))


def test_boundaries_keep_names_and_results():
    @api_boundary
    def f(x, *, y=1):
        """Doc."""
        return x + y

    assert f(1, y=2) == 3
    assert (f.__name__, f.__doc__) == ("f", "Doc.")


# ---- public functions


def _public(fun, name="trial"):
    return S.guard(fun, "weft.trials", name)


def _inside(text, **names):
    """Return a function whose code is in weft's own folder."""
    scope = dict(names)
    exec(compile(text, os.path.join(os.path.dirname(S.__file__), "imagined.py"), "exec"), scope)
    return scope["f"]


@pytest.mark.parametrize(
    "body, kind",
    [
        ("int.nothing", TypeError),
        ("{}[x]", ValueError),
        ("x + 'a'", TypeError),
        ("[][x]", IndexError),
        ("1 // (x - 3)", ValueError),
        ("int('a')", ValueError),
        ("f(x, *rest)", ValueError),
        ("2.0 ** (1000 * x)", OverflowError),
    ],
)
def test_errors_of_python_within_weft_name_the_arguments(body, kind):
    with pytest.raises(
        kind,
        match=r"trial: failed on these arguments.\n +x +3\n +rest\[0\] +int32\[2\](.|\n)*Error: ",
    ) as caught:
        _public(_inside(f"def f(x, *rest): return {body}"))(3, np.zeros(2, np.int32))
    assert type(caught.value) is kind and caught.value.__cause__ is not None


def test_of_many_arguments_the_first_are_shown():
    with pytest.raises(ValueError, match=r"rest\[11\] +0\n +\.\.\. +88 more\n") as caught:
        _public(_inside("def f(x, *rest): return {}[x]"))(3, *[0] * 100)
    assert "rest[12]" not in str(caught.value)


@pytest.mark.parametrize(
    "body, message",
    [
        ("x.nothing", r"trial: argument `x` takes int, got 3 of type int\.\n +x +3\n"),
        ("rest[0].nothing", r"trial: argument `rest` cannot hold \(4,\) of type tuple\."),
    ],
)
def test_an_argument_without_an_attribute_is_named(body, message):
    with pytest.raises(TypeError, match=message):
        _public(_inside(f"def f(x: int, *rest): return {body}"))(3, (4,))


def test_messages_of_weft_get_the_name_that_they_lack():
    inner = _public(_inside("def f(y):\n  raise ValueError('too large')"), "inner")
    with pytest.raises(ValueError, match=r"^inner: too large"):
        inner(1)
    with pytest.raises(ValueError, match=r"^outer: too large"):
        _public(_inside("def f(y): return g(y)", g=inner), "outer")(1)
    with pytest.raises(ValueError, match=r"^y is too large"):
        _public(_inside("def f(y):\n  raise ValueError('y is too large')"))(1)


def test_errors_of_the_users_functions_are_left_alone():
    def user(x):
        return {}[x]

    with pytest.raises(KeyError):
        _public(_inside("def f(g, x): return g(x)"))(user, 1)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        _public(user)()


def _sorts(x):
    """Return a program with many large live values."""
    parts = [wnp.sort(k * x) for k in range(5)]
    return sum(wnp.sum(p * q[::-1]) for p in parts for q in parts)


def test_out_of_memory_has_both_classes():
    for make in (
        lambda: wnp.zeros(1 << 50),
        lambda: wnp.full(1 << 50, 1),
        lambda: weft.jit(lambda: wnp.ones((1 << 42,)))(),
        lambda: wnp.tile(0, (1 << 63) - 1),
        lambda: weft.jit(_sorts).lower(weft.ShapeDtypeStruct((1 << 60,), np.float32)).compile(),
        lambda: weft.device_put(np.broadcast_to(np.float32(1), (1 << 45,))),
    ):
        with pytest.raises(MemoryError) as caught:
            make()
        assert isinstance(caught.value, weft.errors.JaxRuntimeError)


def test_guarded_functions_are_like_the_ones_they_guard():
    from weft import lax

    assert (
        pickle.loads(pickle.dumps(lax.add)) is lax.add
        and list(inspect.signature(lax.add).parameters) == ["x", "y"]
        and "x + y" in lax.add.__doc__
    )


def _failing():
    @weft.jit
    def inner(x):
        raise AssertionError("here")

    @weft.jit
    def outer(x):
        return weft.vmap(inner)(x) + 1

    return outer(np.ones(3))


@pytest.mark.parametrize("mode", ["tracebackhide", "remove_frames", "quiet_remove_frames"])
def test_every_way_of_filtering_shows_the_users_frames(mode):
    with (
        Override(traceback="", traceback_filtering=mode),
        pytest.raises(AssertionError, match="here") as caught,
    ):
        _failing()
    error, is_whole = (
        caught.value,
        lambda names: any(name in names for name in ("_trace", "_execute")),
    )
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    shown = [
        f.f_code.co_name
        for f in frames
        if not (mode == "tracebackhide" and "__tracebackhide__" in f.f_locals)
    ]
    assert shown[-3:] == ["_failing", "outer", "inner"] and not is_whole(shown)
    assert (type(error.__cause__).__name__ == "UnfilteredStackTrace") == (mode == "remove_frames")
    if mode == "remove_frames":
        assert is_whole(
            [f.f_code.co_name for f, _ in traceback.walk_tb(error.__cause__.__traceback__)]
        )
    assert tells_of_frames(error) == (mode == "quiet_remove_frames")


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
@pytest.mark.parametrize("mode", ["tracebackhide", "remove_frames", "quiet_remove_frames"])
def test_custom_derivatives_show_the_users_frames(kind, mode):
    def fail(x):
        raise AssertionError("here")

    if kind == "jvp":
        f = weft.custom_jvp(lambda x: fail(x))
        f.defjvp(lambda primals, tangents: fail(primals))
    else:
        f = weft.custom_vjp(lambda x: fail(x))
        f.defvjp(lambda x: fail(x), lambda res, ct: fail(ct))
    for call in (lambda: f(1.0), lambda: weft.grad(f)(1.0)):
        with (
            Override(traceback="", traceback_filtering=mode),
            pytest.raises(AssertionError, match="here") as caught,
        ):
            call()
        error = caught.value
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        shown = [
            g.f_code.co_name
            for g in frames
            if not (mode == "tracebackhide" and "__tracebackhide__" in g.f_locals)
        ]
        assert shown[-2:] == ["<lambda>", "fail"] and "__call__" not in shown
        assert (type(error.__cause__).__name__ == "UnfilteredStackTrace") == (
            mode == "remove_frames"
        )
        assert tells_of_frames(error) == (mode == "quiet_remove_frames")


METHOD_ERRORS = {
    "operator": lambda x: x + wnp.ones(4),
    "reflected operator": lambda x: [1.0] == x,
    "index": lambda x: x[0, 0],
    "assignment": lambda x: x.__setitem__(0, 1),
    "update": lambda x: x.at[0].set(np.ones(2)),
    "method": lambda x: x.sum(3),
    "reshape": lambda x: x.reshape(2, 2),
    "astype": lambda x: x.astype("nothing"),
    "bool": lambda x: bool(x),
    "float": lambda x: float(x),
    "item": lambda x: x.item(),
    "sharding": lambda x: weft.sharding.NamedSharding(x, None),
}


@pytest.mark.parametrize("case", METHOD_ERRORS)
@pytest.mark.parametrize("mode", ["auto", "remove_frames", "off"])
def test_methods_of_arrays_leave_out_frames_of_weft(case, mode):
    with (
        Override(traceback="", traceback_filtering=mode),
        pytest.raises((TypeError, ValueError, IndexError)) as caught,
    ):
        METHOD_ERRORS[case](wnp.ones(3))
    functions = functions_of(caught.value)
    assert (functions[-1] == "<lambda>") == (mode != "off")
    cause = caught.value.__cause__
    assert isinstance(cause, S.UnfilteredStackTrace) == (mode == "remove_frames")
    assert not isinstance(getattr(cause, "__cause__", None), S.UnfilteredStackTrace)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: wnp.sum(x, axes=0), "sum.. got an unexpected keyword argument 'axes'. Did you"),
        (lambda x: x.max(keepdim=True), "Did you mean keepdims?"),
        (lambda x: wnp.sum(x, dim=0), "Did you mean axis?"),
        (lambda x: wnp.add(x), "add.. missing 1 required positional argument: 'y'"),
    ],
    ids=["misspelled", "method", "other name", "missing"],
)
def test_wrong_calls_of_compiled_functions_are_type_errors(call, message):
    with pytest.raises(TypeError, match=message) as caught:
        call(wnp.ones(3))
    assert functions_of(caught.value)[-1] == "<lambda>" and caught.value.__cause__ is None
