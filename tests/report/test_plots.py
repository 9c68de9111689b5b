"""Where points, bounds and ticks stand."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verify.finding import Series
from verify.report.plots import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Linear,
    Log,
    Signed,
    _axis,
    figure,
)


def series(x, y, bound=(), name="error against d") -> Series:
    return Series("k", "float32", name, "d", "error (ulp)", x, y, bound)


def places(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](\S+?) ([-\d.]+)", path)]


@given(st.lists(st.tuples(st.floats(), st.floats(), st.floats(0)), min_size=1, max_size=20))
def test_whatever_was_measured_stands_inside_the_picture(points):
    x, y, bound = zip(*points, strict=True)
    drawn = figure([series(x, y, bound)])
    for layer in drawn.layers:
        for path in (layer.points, layer.beyond, layer.bound):
            for across, up in places(path):
                assert LEFT <= across <= RIGHT
                assert TOP <= up <= BOTTOM
    assert all(0 <= tick.at <= WIDTH for tick in drawn.x_ticks)
    assert all(0 <= tick.at <= HEIGHT for tick in drawn.y_ticks)


def test_a_power_law_is_a_straight_line():
    x = [10.0**i for i in range(5)]
    (layer,) = figure([series(x, [2 * v for v in x])]).layers
    slopes = {
        round((b[1] - a[1]) / (b[0] - a[0]), 2)
        for a, b in zip(places(layer.points), places(layer.points)[1:], strict=False)
    }
    assert max(slopes) - min(slopes) < 0.02


def test_points_beyond_the_bound_are_told_and_drawn():
    (layer,) = figure([series([1, 2, 3], [0.5, math.nan, 7], [1, 1, 1])]).layers
    assert len(places(layer.beyond)) == 2
    assert layer.words == (
        "float32: 3 points, largest 7 at d = 3, 1 not finite, drawn at the edge, 2 beyond "
        "the bound."
    )


def test_signed_errors_have_a_bound_on_both_sides():
    (layer,) = figure([series([1, 2], [-0.5, 0.5], [1, 1])]).layers
    assert layer.bound.count("M") == 2


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, 3], Linear),
        ([1, 1000], Log),
        ([0, 1, 1000], Log),
        ([-1, 1], Linear),
        ([-1e6, 1, 1, 2], Signed),
        ([0, 0], Linear),
    ],
)
def test_the_scale_fits_the_values(values, kind):
    assert isinstance(_axis(values), kind)


def test_zero_stands_on_the_floor_of_a_logarithmic_scale():
    axis = _axis([0, 1, 1000])
    assert axis.at(0) == 0
    assert 0 < axis.at(1) < axis.at(1000) == 1
    assert [text for _, text in axis.ticks()] == ["0", "1", "10", "100", "1000"]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (series([], []), "float32 has no points, expected at least one"),
        (series([1], []), "float32 has 1 x and 0 y, expected as many of each"),
        (series([1], [1], [1, 2]), "float32 has 1 x and 2 bounds, expected a bound each"),
    ],
)
def test_what_cannot_be_drawn_is_said(broken, message):
    with pytest.raises(ValueError, match=message):
        figure([broken])
