"""Write the pictures of the tutorial on automatic sharding from the values of its examples: `python docs/make_pictures.py`."""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from weft.tools.automatic.training_picture import training_picture  # noqa: E402

PAGE = "tutorial-automatic-sharding.md"
PICTURES = ROOT / "docs" / "pictures"


def draw(session: dict[str, Any]) -> dict[str, str]:
    """Return the pictures by file name; `session` has the variables of the page after its examples."""
    return {
        "tutorial-8.svg": session["plan"].svg(),
        "tutorial-4x2.svg": session["plan_42"].svg(),
        "tutorial-70b.svg": training_picture(session["best"]),
    }


if __name__ == "__main__":
    from tests.document.test_tutorial_pages import run_page

    PICTURES.mkdir(exist_ok=True)
    for name, picture in draw(run_page(PAGE)).items():
        (PICTURES / name).write_text(picture)
