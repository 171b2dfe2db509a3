"""The pages of the documentation: where they are, and the code blocks on them."""

import doctest
import io
import re
from pathlib import Path

import pytest

import weft
from tests.harness.processes import ROOT
from tests.harness.settings import restored_settings

#: for tests of pages, which are absent from an installed package
needs_pages = pytest.mark.skipif(
    not (ROOT / "docs").exists(), reason="weft is installed without its documentation"
)


def page(name: str) -> Path:
    """Return the page of that name in `docs`, in a folder below it, or in the root."""
    (path,) = [ROOT / name] if (ROOT / name).exists() else (ROOT / "docs").rglob(name)
    return path


def blocks(name: str, language: str = "python") -> list[str]:
    """Return the code blocks of a page in `language`."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", page(name).read_text(), re.DOTALL | re.MULTILINE
    )


class _OutputAfterCallbacks(io.StringIO):
    """The output of an example after the callbacks of its programs have run."""

    def getvalue(self) -> str:
        weft.effects_barrier()
        output = super().getvalue()
        return output + "\n" if output and not output.endswith("\n") else output

    def truncate(self, size: int | None = None) -> int:
        self.seek(size or 0)
        return super().truncate()


def _suits_platform(block: str) -> bool:
    """Return whether the default device reports what a block shows: plugins may not count their memory."""
    device = weft.devices()[0]
    return "memory_stats()" not in block or device.memory_stats() is not None


def run_examples(name: str, optionflags: int = 0, session: dict[str, object] | None = None) -> int:
    """Run the examples in a page's Python blocks as one session; return their number, and raise if
    one fails.

    `session` receives the variables of the page.
    """
    text = "".join(filter(_suits_platform, blocks(name))).replace(
        "TFRT_CPU_", f"{weft.devices()[0].client.device_prefix}_"
    )
    test = doctest.DocTestParser().get_doctest(text, {}, name, str(page(name)), 0)
    runner = doctest.DocTestRunner(verbose=False, optionflags=optionflags)
    vars(runner)["_fakeout"] = _OutputAfterCallbacks()
    try:
        with restored_settings():
            results = runner.run(test, clear_globs=False)  # a page may register functions
    finally:
        weft.set_mesh(None)
    assert not results.failed, (
        f"{results.failed} examples of {name} failed; what they gave is above"
    )
    if session is not None:
        session.update(test.globs)
    return results.attempted
