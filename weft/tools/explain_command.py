"""`weft explain PROGRAM`: run a program, then print the communication of each function that it
compiled.

In:  the arguments of `weft run`, and the HTML file to write, if any.
Out: the program's own output and exit status, then the explanations in the order of compilation.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weft._engine import hooks
from weft.tools.run import run_program


def explain_program(
    program: str,
    arguments: Sequence[str],
    html: str | None = None,
    *,
    as_module: bool = False,
    devices: int | None = None,
) -> int:
    """Run `program` as `run_program` does and print the explanations of its compiled functions;
    return its exit status."""

    explanations: list[Any] = []
    hooks.after_compilation.append(explanations.append)
    try:
        return run_program(program, arguments, as_module=as_module, devices=devices)
    finally:
        hooks.after_compilation.remove(explanations.append)
        print_explanations(explanations, html)


def print_explanations(executables: Sequence[Any], html: str | None) -> None:
    """Print the explanations of the programs that communicate, and count the others; write all of them to the file `html` too."""
    from weft.tools.explain import explanation_of
    from weft.tools.explain_page import pages

    communicating = [e for e in executables if e.stages.collectives]
    for executable in communicating:
        print(f"\n{explanation_of(executable)}")
    programs = "program was" if len(executables) == 1 else "programs were"
    print(f"\n{len(executables)} {programs} compiled, {len(communicating)} with collectives.")
    if html is not None:
        order = sorted(executables, key=lambda e: not e.stages.collectives)
        Path(html).write_text(pages(list(map(explanation_of, order))), encoding="utf-8")
        print(f"The page of all programs is {html}.")
