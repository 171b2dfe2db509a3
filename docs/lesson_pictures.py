"""Draw the pictures of the lessons from the arrays of their examples."""

from collections.abc import Mapping, Sequence
from typing import Any

from weft._engine.partition.reshard import Placement
from weft.sharding import NamedSharding
from weft.tools.svg import Drawings, picture, text

#: pixels: of the margin, of a column, and from the title to the drawings
MARGIN, COLUMN, TITLE = 16, 160, 44
#: pixels: the height of the drawings and of the two lines below them
DRAWINGS, CAPTION = 64, 44

#: a drawing: its name, its caption, the shape of a value and its sharding, and the axes of its partial sums
Drawing = tuple[str, str, tuple[int, ...], NamedSharding, tuple[str, ...]]


def of_array(name: str, array: Any) -> Drawing:
    """Return the drawing of an array, with its spec as the caption."""
    return name, str(array.sharding.spec), array.shape, array.sharding, ()


def row_picture(title: str, drawings: Sequence[Drawing]) -> str:
    """Return a picture of values side by side; equal colors are equal devices."""
    elements = [text(MARGIN, 27, title, "title")]
    for column, (name, caption, shape, sharding, partial) in enumerate(drawings):
        mesh = sharding.mesh
        draw = Drawings(dict(mesh.shape_tuple), [d.id for d in mesh.flat_devices])
        entries = [*sharding.spec, *[None] * len(shape)][: len(shape)]
        dims = tuple((e,) if isinstance(e, str) else tuple(e or ()) for e in entries)
        (plane,) = draw.planes(shape, Placement(dims, frozenset(partial)))
        x = MARGIN + column * COLUMN
        place = f"translate({x} {TITLE + (DRAWINGS - plane.height) / 2:.1f})"
        style = "tiles partial" if plane.is_partial else "tiles"
        elements.append(f'<g class="{style}" transform="{place}">{plane.tiles}</g>')
        elements.append(text(x, TITLE + DRAWINGS + 18, name, "code strong"))
        elements.append(text(x, TITLE + DRAWINGS + 34, caption, "code soft"))
    size = MARGIN + len(drawings) * COLUMN, TITLE + DRAWINGS + CAPTION
    return picture(title, size, elements, " .partial { opacity: 0.5 }")


def sharding_pictures(session: Mapping[str, Any]) -> dict[str, str]:
    """Return the pictures of the lesson on sharding by file name; `session` has the variables of its page."""
    specs = [of_array(str(a.shape), a) for a in session["placed"]]
    rows = [of_array(name, session[name]) for name in ("x", "w", "y")]
    columns = [of_array(name, session[name]) for name in ("x", "w_columns", "y_columns")]
    inner = [of_array(name, session[name]) for name in ("x_inner", "w_inner")]
    total = session["y_inner"]
    terms = ("x_inner @ w_inner", "terms of a sum", total.shape, total.sharding, ("model",))
    return {
        "lesson-specs.svg": row_picture("One array on a mesh data 4 x model 2", specs),
        "lesson-rows.svg": row_picture("Split rows: no communication", rows),
        "lesson-columns.svg": row_picture("Split rows and columns: no communication", columns),
        "lesson-inner.svg": row_picture(
            "Split summed dim: one psum", [*inner, terms, of_array("y_inner", total)]
        ),
    }
