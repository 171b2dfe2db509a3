"""Canonical names in printed stages, so that two commits print equal programs with equal texts.

In:   the text of one stage (a jaxpr, a schedule, LLVM IR, HLO).
Out:  the same text with names numbered by first appearance: values, labels, kernel symbols,
      metadata, attribute groups, addresses; without the places of source lines.
Laws: only names change. Equal texts stay equal, and a renaming of names gives the same text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

ADDRESS = re.compile(r"\b0x[0-9a-f]{9,}\b")
KERNEL_SYMBOL = re.compile(r"\bweft_k_[0-9a-f]{32}\b")
#: where an HLO op comes from, and a line of Python in the cause of a collective
SOURCE = re.compile(r' source_file="[^"]*"| source_line=\d+|(?:[\w.-]*/)+([\w.-]+\.py):\d+')
GLOBAL = re.compile(r"@words\d+\b")
METADATA = re.compile(r"(?<![\w!])!\d+\b")
ATTRIBUTES = re.compile(r"(?<=[\s)])#\d+\b")
LOCAL = re.compile(r"%[A-Za-z$._][\w$.]*|%\d+|^[A-Za-z$._][\w$.]*(?=:)", re.MULTILINE)
#: a function of a module: from `define` to the brace that closes it
FUNCTION = re.compile(r"^define .*?^\}", re.MULTILINE | re.DOTALL)
MODULE = re.compile(r"^; (?:kernel|entry)", re.MULTILINE)
DEFINITION = re.compile(r"^(?:!\d+ = .*|attributes #\d+ = .*|declare .*)\n?", re.MULTILINE)


class Renaming:
    """New names in the order of first appearance, for `re.sub`."""

    def __init__(self, prefix: str, key: Callable[[str], str] = str) -> None:
        self.prefix = prefix
        self.key = key
        self.names: dict[str, str] = {}

    def __call__(self, match: re.Match[str]) -> str:
        key = self.key(match[0])
        return self.names.setdefault(key, f"{self.prefix}{len(self.names)}")


def canonical_text(text: str) -> str:
    """Return a stage's text with canonical names.

    >>> canonical_text("custom[f=<function f at 0x7f00deadbeef>] a")
    'custom[f=<function f at address0>] a'
    """
    text = ADDRESS.sub(Renaming("address"), text)
    text = KERNEL_SYMBOL.sub(Renaming("weft_k_"), text)
    text = SOURCE.sub(lambda m: m[1] or "", text)
    if "\ndefine " in f"\n{text}":
        starts = [0, *[m.start() for m in MODULE.finditer(text) if m.start()], len(text)]
        pairs = itertools.pairwise(starts)
        text = "".join([canonical_module(text[start:end]) for start, end in pairs])
    return text


def canonical_module(text: str) -> str:
    """Return the LLVM IR of one module with canonical names; declarations and metadata come last,
    metadata in the order of first use.

    >>> print(canonical_module('define i32 @f(i32 %x) {\\nstart:\\n  ret i32 %x, !a !7\\n}\\n!7 = !{}\\n'))
    define i32 @f(i32 %n0) {
    %n1:
      ret i32 %n0, !a !0
    }
    !0 = !{}
    <BLANKLINE>
    """
    text = FUNCTION.sub(lambda m: LOCAL.sub(Renaming("%n", _strip_percent), m[0]), text)
    text = GLOBAL.sub(Renaming("@words"), text)
    definitions = [m[0].rstrip("\n") for m in DEFINITION.finditer(text)]
    body = DEFINITION.sub("", text)
    attributes = Renaming("#")
    body = ATTRIBUTES.sub(attributes, body)
    numbers = Renaming("!")
    body = METADATA.sub(numbers, body)
    metadata = _order_metadata([d for d in definitions if d[0] == "!"], numbers)
    others = sorted([ATTRIBUTES.sub(attributes, d) for d in definitions if d[0] != "!"])
    return body + "".join([f"{line}\n" for line in (*others, *metadata)])


def _strip_percent(name: str) -> str:
    return name.removeprefix("%")


def _order_metadata(definitions: list[str], numbers: Renaming) -> list[str]:
    """Return the definitions of metadata with new numbers, in the order of those numbers.

    Metadata that only other metadata use get their numbers from their users; unused ones come
    last, in the order of their text.
    """
    waiting = {line.partition(" ")[0]: line.partition(" = ")[2] for line in definitions}
    lines: list[str] = []
    while waiting:
        used = [name for name in numbers.names if name in waiting]
        name = used[0] if used else min(waiting, key=waiting.__getitem__)
        new = numbers.names.setdefault(name, f"!{len(numbers.names)}")
        lines.append(f"{new} = {METADATA.sub(numbers, waiting.pop(name))}")
    return sorted(lines, key=lambda line: int(line[1:].partition(" ")[0]))
