"""Pictures of shardings, drawn from stand-in devices and shardings: every rank, text, colour, notebook."""

import sys
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import weft
import weft.lax
import weft.numpy as wnp
from weft._engine.debug.device_tiles import tile
from weft._engine.debug.visualize import MOST_PICTURES, draw, to_html, to_text
from weft.debug import inspect_array_sharding, visualize_array_sharding, visualize_sharding


@dataclass(frozen=True)
class Slot:
    id: int
    platform: str = "cpu"


@dataclass(frozen=True)
class Grid:
    """Splits dim d in `parts[d]`; each part is held by equally many neighbouring devices."""

    parts: tuple[int, ...]
    n_devices: int = 8

    def devices_indices_map(self, shape):
        n_parts = int(np.prod(self.parts))
        placed = {}
        for i in range(self.n_devices):
            place = (
                np.unravel_index(i * n_parts // self.n_devices, self.parts) if self.parts else ()
            )
            placed[Slot(i)] = tuple(
                slice(None) if part == 1 else slice(k * size // part, (k + 1) * size // part)
                for k, part, size in zip(place, self.parts, shape)
            )
        return placed


def picture(shape, parts, n_devices=8, **keywords):
    drawn = draw(tile(shape, Grid(parts, n_devices)), **keywords)
    return "\n".join(line for one in drawn for line in to_text(one))


def test_each_device_has_its_box():
    text = picture((16, 16), (4, 2))
    assert text.splitlines()[:3] == [
        "┌──────────┬──────────┐",
        "│  CPU 0   │  CPU 1   │",
        "├──────────┼──────────┤",
    ]
    assert text.count("CPU") == 8
    assert text.splitlines()[-1] == "└──────────┴──────────┘"


@pytest.mark.parametrize(
    ("parts", "labels"),
    [
        ((1, 1), ["CPU 0,1,2,3,4,5,6,7"]),
        ((2, 1), ["CPU 0,1,2,3", "CPU 4,5,6,7"]),
        ((1, 4), ["CPU 0,1", "CPU 2,3", "CPU 4,5", "CPU 6,7"]),
        ((8, 1), [f"CPU {i}" for i in range(8)]),
    ],
)
def test_replicas_share_a_box(parts, labels):
    drawn = draw(tile((16, 16), Grid(parts)))[0]
    assert [box.text for row in drawn.rows for box in row] == labels
    assert [len(drawn.rows), len(drawn.rows[0])] == list(parts)


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((), ()),
        ((8,), (8,)),
        ((8,), (1,)),
        ((0, 4), (1, 2)),
        ((8, 8), (8, 1)),
        ((1, 64), (1, 8)),
        ((64, 1), (8, 1)),
    ],
)
def test_every_line_of_a_picture_is_equally_wide(shape, parts):
    lines = picture(shape, parts).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert len(lines[0]) <= 80


def test_higher_ranks_are_drawn_plane_by_plane():
    lines = picture((4, 6, 8), (2, 2, 2)).splitlines()
    assert [line for line in lines if line.startswith("[")] == ["[0:2, :, :]", "[2:4, :, :]"]
    second = "\n".join(lines[lines.index("[2:4, :, :]") :])
    assert all(f"CPU {i}" in second for i in (4, 5, 6, 7)) and "CPU 0" not in second


def test_many_planes_end_in_a_word():
    text = picture((2 * MOST_PICTURES, 1, 1), (2 * MOST_PICTURES, 1, 1), 2 * MOST_PICTURES)
    assert text.count("┌") == MOST_PICTURES
    assert text.splitlines()[-1] == f"… {MOST_PICTURES} more pictures of this array"


def test_too_many_columns_become_a_listing():
    lines = picture((1024,), (64,), 64).splitlines()
    assert lines[0] == "[0:16]  CPU 0" and lines[-1] == "[1008:1024]  CPU 63" and len(lines) == 64


def test_uneven_parts_keep_their_borders():
    assert tile((10,), Grid((4,))).cuts == ((0, 2, 5, 7, 10),)


def test_many_replicas_are_spelt_as_a_range():
    assert "CPU 0-511" in picture((8, 8), (1, 1), 512)


def test_a_part_that_no_listed_device_holds():
    class Half:
        def devices_indices_map(self, shape):
            return {Slot(0): (slice(0, 4),)}

    tiling = tile((8,), Half())
    assert [tiling.label((i,)) for i in range(2)] == ["CPU 0", "elsewhere"]


def test_widths_obey_their_bounds():
    assert len(picture((16, 16), (1, 2), min_width=30).splitlines()[0]) == 2 * 30 - 1
    assert len(picture((1, 999), (1, 2), max_width=40).splitlines()[0]) <= 40
    assert len(picture((16, 16), (4, 2), scale=3.0).splitlines()) > len(
        picture((16, 16), (4, 2)).splitlines()
    )


@pytest.mark.parametrize(
    ("shape", "parts", "keywords", "widths", "height"),
    [
        ((5,), (1,), {}, [7], 1),
        ((5,), (1,), {"scale": 8.0}, [38], 1),
        ((8,), (2,), {"scale": 8.0}, [10, 10], 1),
        ((2,), (2,), {"scale": 8.0}, [39, 38], 1),
        ((8, 8), (4, 2), {}, [10, 10], 1),
        ((8, 8), (4, 2), {"scale": 2.0}, [23, 23], 4),
        ((8, 8), (1, 1), {}, [23], 9),
        ((8, 8), (1, 1), {"scale": 0.5}, [10], 4),
        ((32, 8), (1, 1), {"scale": 2.0}, [10], 19),
        ((8, 16), (2, 4), {}, [10] * 4, 4),
        ((128, 10000), (8, 1), {}, [78], 1),
        ((8, 100), (1, 2), {"max_width": 40}, [19, 18], 9),
        ((8, 8), (1, 2), {}, [10, 10], 9),
        ((8, 8), (2, 2), {"min_width": 15}, [13, 13], 4),
    ],
)
def test_boxes_keep_proportions_within_bounds(shape, parts, keywords, widths, height):
    (drawn,) = draw(tile(shape, Grid(parts, int(np.prod(parts)))), **keywords)
    assert all(
        [box.width for box in row] == widths and {box.height for box in row} == {height}
        for row in drawn.rows
    )
    assert len({len(line) for line in to_text(drawn)}) == 1


def test_texts_stand_in_the_middle_or_left_of_it():
    assert picture((8, 8), (1, 2)).splitlines()[5] == "│CPU 0,1,2,3│CPU 4,5,6,7│"
    assert picture((8, 8), (8, 4), 32).splitlines()[5] == "│ CPU 8 │ CPU 9 │CPU 10 │CPU 11 │"


def test_plain_text_when_piped(capsys):
    visualize_sharding((16, 16), Grid((4, 2)))
    out = capsys.readouterr().out
    assert out == picture((16, 16), (4, 2)) + "\n"


def test_colours_in_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    visualize_sharding((16, 16), Grid((4, 2)))
    assert "\x1b[" in capsys.readouterr().out
    visualize_sharding((16, 16), Grid((4, 2)), use_color=False)
    assert "\x1b[" not in capsys.readouterr().out


def test_html_in_a_notebook(monkeypatch, capsys):
    shown = []
    monkeypatch.setitem(
        sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    )
    display = SimpleNamespace(HTML=lambda text: text, display=shown.append)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    visualize_sharding((16, 16), Grid((4, 2)))
    assert capsys.readouterr().out == ""
    assert (
        shown[0].count("<td") == 8 and "CPU 7" in shown[0] and "background-color: rgb" in shown[0]
    )


def test_ipython_in_a_terminal_is_a_terminal(monkeypatch, capsys):
    monkeypatch.setitem(
        sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace())
    )
    visualize_sharding((4,), Grid((2,)))
    assert "CPU 0,1,2,3" in capsys.readouterr().out


def test_color_map_colours_distinct_groups():
    boxes = draw(tile((8, 8), Grid((2, 1))), color_map=lambda t: (t, 0.5, 0.0, 1.0))[0].rows
    assert [row[0].color for row in boxes] == [(0, 128, 0), (255, 128, 0)]


def test_equal_groups_share_a_colour_across_planes():
    first, second = draw(tile((2, 4), Grid((1, 2)))), draw(tile((2, 4), Grid((1, 2))))
    assert [b.color for b in first[0].rows[0]] == [b.color for b in second[0].rows[0]]
    assert len({b.color for b in first[0].rows[0]}) == 2


def test_html_without_colour_has_no_background():
    one = draw(tile((8, 8), Grid((2, 1))))[0]
    assert "background" not in to_html(one, use_color=False)


def test_array_is_drawn_by_its_sharding(capsys):
    visualize_array_sharding(SimpleNamespace(shape=(8, 8), sharding=Grid((2, 1))), use_color=False)
    assert "CPU 4,5,6,7" in capsys.readouterr().out


def test_traced_values_are_drawn_when_they_are_compiled(capsys):
    @weft.jit
    def f(x):
        visualize_array_sharding(x, use_color=False)
        return x + 1

    f.lower(wnp.ones(8)).compile()
    assert "CPU 0" in capsys.readouterr().out


def test_what_is_no_array_has_no_picture():
    with pytest.raises(TypeError, match="not a valid JAX type"):
        visualize_array_sharding(SimpleNamespace(shape=(8,)))


def test_inspect_hands_over_the_sharding():
    seen = []
    grid = Grid((8,))
    inspect_array_sharding(SimpleNamespace(shape=(8,), sharding=grid), callback=seen.append)
    assert seen == [grid]
    with pytest.raises(TypeError, match="not a valid JAX type"):
        inspect_array_sharding(SimpleNamespace(shape=(8,)), callback=seen.append)


def test_uneven_dims_are_drawn_as_programs_split_them():
    mesh = weft.make_mesh((4, 2), ("a", "b"))
    tiling = tile((10, 6), weft.sharding.NamedSharding(mesh, weft.sharding.P("a", "b")))
    assert tiling.cuts == ((0, 3, 6, 9, 10), (0, 3, 6)) and tiling.label((3, 1)) == "CPU 7"
    few = tile((5,), weft.sharding.NamedSharding(mesh, weft.sharding.P("a")))
    assert few.cuts == ((0, 2, 4, 5),)  # the last two devices have nothing
    with pytest.raises(ValueError):
        tile((5,), weft.sharding.NamedSharding(mesh, weft.sharding.P("a", "b")))


def test_what_a_program_has_uneven_inside_can_be_drawn(capsys):
    mesh = weft.make_mesh((4,), ("a",), devices=weft.devices()[:4])
    rows = weft.sharding.NamedSharding(mesh, weft.sharding.P("a"))

    @weft.jit
    def f(x):
        y = weft.lax.with_sharding_constraint(x * 2, rows)
        weft.debug.inspect_array_sharding(
            y, callback=lambda s: weft.debug.visualize_sharding(y.shape, s, max_width=30)
        )
        return y.sum()

    f(np.ones(10, np.float32))
    assert "CPU 0" in capsys.readouterr().out
