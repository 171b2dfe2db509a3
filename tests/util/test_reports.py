"""Reports: their loggers and levels, the settings that enable them, and no cost while they are
disabled."""

import logging

import pytest

import weft
import weft.numpy as wnp
from tests.harness.processes import run_python
from weft._engine.util import events
from weft._engine.util.config import Override


def reports(caplog) -> list[tuple[str, str, str]]:
    return [
        (r.name, r.levelname, " ".join(r.getMessage().split()[:2]))
        for r in caplog.records
        if r.name.startswith("weft")
    ]


EXPECTED = [
    ("weft.tracing", "Finished tracing"),
    ("weft.compilation", "Compiling jit(f)"),
    ("weft.compilation", "Finished lowering"),
    ("weft.compilation", "Finished compilation"),
]


@pytest.mark.parametrize("asked, level", [(True, "WARNING"), (False, "DEBUG")])
def test_one_compilation_is_reported_in_four_lines(caplog, monkeypatch, asked, level):
    monkeypatch.setenv("WEFT_CACHE_DIR", "off")

    def f(x, y):
        return x * 3 + y

    with weft.log_compiles(asked), caplog.at_level(logging.DEBUG, "weft"):
        jitted = weft.jit(f)
        jitted(wnp.ones(3), 2.0)
        jitted(wnp.ones(3), 4.0)
    logged = [
        (name, kind, text)
        for name, kind, text in reports(caplog)
        if not text.startswith("Compiled program")
    ]
    assert logged == [(name, level, text) for name, text in EXPECTED]
    (line,) = [r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling")]
    assert line == (
        "Compiling jit(f) with global shapes and types (ShapedArray(float32[3]), ShapedArray(float32[], weak_type=True)). "
        "Argument mapping: (UnspecifiedValue, UnspecifiedValue)."
    )


def test_the_mapping_of_arguments_names_their_layouts(caplog):
    place = weft.NamedSharding(weft.make_mesh((8,), ("d",)), weft.P("d"))
    with weft.log_compiles(), caplog.at_level(logging.WARNING, "weft"):
        weft.jit(lambda x: x - 8)(weft.device_put(wnp.ones(8), place))
    (line,) = [r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling jit")]
    assert f"Argument mapping: ({place},)." in line


def test_handlers_of_jax_see_the_reports_of_an_installed_weft(monkeypatch):
    seen: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())
    logger = logging.getLogger("jax")
    logger.addHandler(handler)
    monkeypatch.setattr(events, "above", [])
    try:
        events.report("tracing", True, "without %s", "it")
        monkeypatch.setattr(events, "above", ["jax"])
        events.report("tracing", True, "with %s", "it")
    finally:
        logger.removeHandler(handler)
        monkeypatch.undo()
        events.report("tracing", False, "again")
    assert seen == ["with it"]


@pytest.mark.parametrize(
    "settings, shown",
    [
        ({}, False),
        ({"logging_level": "DEBUG"}, True),
        ({"logging_level": "INFO"}, False),
        ({"debug_log_modules": "weft.other, weft.some"}, True),
        ({"debug_log_modules": "jax._src.dispatch"}, True),
        ({"debug_log_modules": "weft.other"}, False),
    ],
)
def test_settings_show_reports_for_debugging(capfd, settings, shown):
    with Override(**settings):
        events.report("some", False, "a fact")
    assert ("a fact" in capfd.readouterr().err) is shown
    events.report("some", False, "another")
    assert "another" not in capfd.readouterr().err


def test_reports_are_free_unless_asked_for():
    code = "import sys, weft._engine.util.events as events; events.report('some', False, 'x'); print('logging' in sys.modules)"
    assert run_python("-c", code).stdout.split() == ["False"]
