"""Docstrings as reStructuredText.

In:  the text of a docstring, and the public names that it may link to.
Out: lines of reStructuredText.
Law: docstrings are plain text with backticks, paragraphs, lists, doctests and indented blocks; everything else in them means itself,
     so no docstring can break the site.
"""

import re
import textwrap

CODE = re.compile(r"(``[^`]+``|`[^`]+`)")


def _escaped(text: str) -> str:
    return re.sub(r"([\\*|_`<])", r"\\\1", text)


def inline(text: str, known: dict[str, str]) -> str:
    """One paragraph: code in backticks, linked where it is a public name, and nothing else that means anything."""
    parts = CODE.split(text)
    out = []
    for i, part in enumerate(parts):
        if i % 2 == 0:
            out.append(_escaped(part))
            continue
        code = part.strip("`").strip()
        before, after = parts[i - 1][-1:], parts[i + 1][:1]
        target = known.get(code.removesuffix("()"))
        marked = f":py:obj:`{code} <{target}>`" if target else f"``{code}``"
        out.append(
            ("\\ " if before and not before.isspace() else "")
            + marked
            + ("\\ " if after and not after.isspace() else "")
        )
    done = "".join(out).replace("\\ \\ ", "\\ ").strip()
    if done.endswith("::"):
        done = done[:-1]
    plain = re.match(r"[^\W\d_]|[`\\]", done) and not re.match(r"\w{1,5}[.)] ", done)
    return done if plain or not done else "\\ " + done


def paragraphs(doc: str, known: dict[str, str]) -> list[str]:
    """A docstring as lines of reStructuredText."""
    lines, out, i = doc.expandtabs().splitlines(), [], 0
    while i < len(lines):
        line = lines[i]
        if not line.strip():
            i += 1
        elif line.lstrip().startswith(">>>") or line.startswith("  "):
            block = _taken(lines, i, lambda text: bool(text.strip()))
            if not line.lstrip().startswith(">>>"):
                block = _taken(
                    lines,
                    i,
                    lambda text: text.startswith("  ") and not text.lstrip().startswith(">>>"),
                )
            language = "pycon" if line.lstrip().startswith(">>>") else "text"
            out += [
                f".. code-block:: {language}",
                "",
                *textwrap.indent(textwrap.dedent("\n".join(block)), "   ").splitlines(),
                "",
            ]
            i += len(block)
        elif re.match(r"- ", line):
            block = _taken(
                lines,
                i,
                lambda text: text.startswith(("- ", "  ")) and not text.lstrip().startswith(">>>"),
            )
            for item in re.split(r"\n(?=- )", "\n".join(block)):
                out += ["- " + inline(" ".join(item[2:].split()), known), ""]
            i += len(block)
        else:
            block = _taken(
                lines, i, lambda text: bool(text.strip()) and not re.match(r"- |\s*>>>|  ", text)
            )
            labelled = [re.match(r"\w[\w ,`]{0,40}: ", text) for text in block]
            if len(block) > 1 and all(labelled):
                out += [line for text in block for line in ("- " + inline(text, known), "")]
            else:
                out += [inline(" ".join(text.strip() for text in block), known), ""]
            i += len(block)
    return out


def _taken(lines: list[str], start: int, fits) -> list[str]:
    end = start
    while end < len(lines) and (end == start or fits(lines[end])):
        end += 1
    return lines[start:end]


def sentence(doc: str, known: dict[str, str]) -> str:
    """The first sentence of a docstring."""
    first = " ".join(doc.strip().partition("\n\n")[0].split())
    return inline(re.split(r"(?<=[.!?])\s+(?=[A-Z`])", first)[0], known)
