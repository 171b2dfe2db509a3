"""Write the pictures of the first page, of the lessons and of the tutorial on automatic sharding from the values of their examples.

python docs/make_pictures.py
"""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

from lesson_pictures import sharding_pictures  # noqa: E402
from svg_plots import array_tiles  # noqa: E402

from weft.tools.automatic.training_picture import training_picture  # noqa: E402

LESSON = ROOT / "docs" / "learn" / "sharding.md"
PAGE = "tutorial-automatic-sharding.md"
PICTURES = ROOT / "docs" / "pictures"


def draw(session: dict[str, Any]) -> dict[str, str]:
    """Return the pictures by file name; `session` has the variables of the page after its examples."""
    return {
        "tutorial-8.svg": session["plan"].svg(),
        "tutorial-4x2.svg": session["plan_42"].svg(),
        "tutorial-70b.svg": training_picture(session["best"]),
    }


def draw_landing(session: dict[str, Any]) -> dict[str, str]:
    """Return the picture of the first page by file name; `session` has its variables."""
    arrays = {name: session[name] for name in ("x", "w", "y")}
    return {"landing-arrays.svg": array_tiles(arrays)}


if __name__ == "__main__":
    from tests.document.test_site import run_landing
    from tests.document.test_tutorial_pages import run_page
    from tests.harness.cells import run_cells

    PICTURES.mkdir(exist_ok=True)
    lesson: dict[str, Any] = {}
    run_cells(LESSON, lesson)
    drawn = draw(run_page(PAGE)) | draw_landing(run_landing()[0]) | sharding_pictures(lesson)
    for name, picture in drawn.items():
        (PICTURES / name).write_text(picture)
