"""Hypothesis strategies for the inputs that normalisation kernels get wrong.

Every strategy makes arrays of exactly the format asked for (NumPy or ml_dtypes dtype), finite
unless it is called special, and shrinks to short rows of simple numbers. Hard inputs are
constructed and never filtered. The kinds themselves are in `verify.numeric.hard_inputs`.

>>> from hypothesis import given
>>> @given(rows("bfloat16", kinds=["shifted", "constant"]))
... def test_that_my_layer_norm_is_finite(row): ...
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache, lru_cache, partial
from typing import Any, Final, TypeAlias

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from numpy.typing import NDArray

from verify.formats import Format
from verify.formula import Formula, Kind, Layout, Parameter
from verify.norms import formula_named
from verify.numeric import hard_inputs
from verify.numeric.hard_inputs import (
    SPREAD,
    Maker,
    Random,
    checked_eps,
    checked_width,
    format_named,
    kinds_for,
    with_eps,
)
from verify.numeric.rows import InputError

Array = NDArray[Any]
Arrays: TypeAlias = SearchStrategy[Array]

MAX_D: Final = 257
SHORT: Final = 8  # the most numbers that are drawn one by one
# Simplest first. Powers of two are exact in bfloat16; the decimal ones are rounded by every format.
EPSILONS: Final = (1e-5, 1e-6, 1e-12, 2.0**-17, 2.0**-20, 2.0**-33)


# --- choices of Hypothesis -----------------------------------------------------------------------


def _tiled(pattern: list[float], d: int) -> Array:
    return np.resize(np.array(pattern, dtype=np.float64), d)


def _seeded(words: list[int], d: int) -> Array:
    return Random(np.random.default_rng(words)).deviates(d)


@cache
def _deviates(d: int) -> Arrays:
    """A short pattern, repeated; or, in long rows, what a seed gives.

    Of two examples, the one of fewer choices is the simpler to Hypothesis. So a pattern costs the
    same at every d, for rows to get short, and a seed is many words, for it to become a pattern.
    """
    pattern = st.lists(st.floats(-SPREAD, SPREAD), min_size=1, max_size=min(d, SHORT))
    tiled = pattern.map(partial(_tiled, d=d))
    if d <= SHORT:
        return tiled
    seed = st.lists(st.integers(0, 255), min_size=3 * SHORT, max_size=3 * SHORT)
    return tiled | seed.map(partial(_seeded, d=d))


class _Drawn:
    """A source (`hard_inputs.Source`) whose choices Hypothesis makes, and shrinks."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def deviates(self, d: int) -> Array:
        return self.draw(_deviates(d)) if d else np.zeros(0)


@st.composite
def _made(draw: st.DrawFn, maker: Maker, width: SearchStrategy[int], fmt: Format) -> Array:
    return maker(_Drawn(draw), draw(width), fmt)


def _made_by(maker: Maker, format: str, d: int | None, max_d: int) -> Arrays:
    fmt, width = format_named(format), _width(d, max_d)
    maker(Random(np.random.default_rng(0)), 1, fmt)  # refuses bad options here, not at a draw
    return _made(maker, width, fmt)


def _width(d: int | None, max_d: int) -> SearchStrategy[int]:
    return widths(max_d=max_d) if d is None else st.just(checked_width(d))


# --- widths, numbers, features -------------------------------------------------------------------


def widths(*, max_d: int = MAX_D) -> SearchStrategy[int]:
    """Row lengths d up to ``max_d``: 1 ... 9 and every 2^k-1, 2^k, 2^k+1."""
    limit = checked_width(max_d, "max_d")
    near_powers = {2**k + j for k in range(limit.bit_length() + 1) for j in (-1, 0, 1)}
    return st.sampled_from(sorted(d for d in near_powers | set(range(10)) if 1 <= d <= limit))


def epsilons(*, allow_zero: bool = False) -> SearchStrategy[float]:
    """Values of eps that are in use, and powers of two that every format of 16 bits holds best."""
    return st.sampled_from(EPSILONS + (0.0,) * allow_zero)


def weights(format: str = "float32", d: int = 1, *, allow_none: bool = True) -> SearchStrategy[Any]:
    """(d,) weights, not all 1: among them 0, negative ones and 15.8125; or None."""
    arrays = _made_by(hard_inputs.weight, format, d, MAX_D)
    return st.none() | arrays if allow_none else arrays


def biases(format: str = "float32", d: int = 1, *, allow_none: bool = True) -> SearchStrategy[Any]:
    """(d,) biases of either sign at scales from 1/4 to 16; or None."""
    arrays = _made_by(hard_inputs.plain, format, d, MAX_D)
    return st.none() | arrays if allow_none else arrays


# --- rows of one kind ----------------------------------------------------------------------------
# `d` is the row's length; None draws it from `widths(max_d=max_d)`.


def plain_rows(format: str = "float32", *, d: int | None = None, max_d: int = MAX_D) -> Arrays:
    """Gaussian-like rows."""
    return _made_by(hard_inputs.plain, format, d, max_d)


def zero_rows(format: str = "float32", *, d: int | None = None, max_d: int = MAX_D) -> Arrays:
    """Rows of zeros, of both signs where the format has -0."""
    return _made_by(hard_inputs.zero, format, d, max_d)


def constant_rows(format: str = "float32", *, d: int | None = None, max_d: int = MAX_D) -> Arrays:
    """Rows of one value, from any binade."""
    return _made_by(hard_inputs.constant, format, d, max_d)


def alternating_rows(
    format: str = "float32", *, d: int | None = None, max_d: int = MAX_D
) -> Arrays:
    """Rows whose neighbours have opposite signs."""
    return _made_by(hard_inputs.alternating, format, d, max_d)


def shifted_rows(
    format: str = "float32", *, d: int | None = None, max_d: int = MAX_D, max_kappa: float = 1e6
) -> Arrays:
    """Large mean, small spread: mean|x| / sigma up to ``max_kappa``; constant only at d = 1."""
    return _made_by(partial(hard_inputs.shifted, max_kappa=max_kappa), format, d, max_d)


def one_hot_outlier_rows(
    format: str = "float32", *, d: int | None = None, max_d: int = MAX_D
) -> Arrays:
    """Rows with one element 1e3 to 1e5 times as large as any other, anywhere."""
    return _made_by(hard_inputs.one_hot_outlier, format, d, max_d)


def overflowing_square_rows(
    format: str = "float32", *, d: int | None = None, max_d: int = MAX_D
) -> Arrays:
    """Rows within float16's range, every square of which overflows float16."""
    return _made_by(hard_inputs.overflowing_square, format, d, max_d)


def huge_rows(format: str = "float32", *, d: int | None = None, max_d: int = MAX_D) -> Arrays:
    """Rows whose squares overflow the format itself: 1e30-like in float32."""
    return _made_by(hard_inputs.huge, format, d, max_d)


def subnormal_rows(format: str = "float32", *, d: int | None = None, max_d: int = MAX_D) -> Arrays:
    """Rows of subnormals and zeros, not all zero."""
    return _made_by(hard_inputs.subnormal, format, d, max_d)


def eps_dominated_rows(
    format: str = "float32", *, d: int | None = None, max_d: int = MAX_D, eps: float = 1e-6
) -> Arrays:
    """Rows whose mean square is at most eps/64."""
    return _made_by(partial(hard_inputs.eps_dominated, eps=eps), format, d, max_d)


def wide_range_rows(format: str = "float32", *, d: int | None = None, max_d: int = MAX_D) -> Arrays:
    """Rows over the whole exponent range, both ends of it present."""
    return _made_by(hard_inputs.wide_range, format, d, max_d)


def near_tie_rows(
    format: str = "float32",
    *,
    d: int | None = None,
    max_d: int = MAX_D,
    output: str | None = None,
    eps: float = 1e-6,
) -> Arrays:
    """Rows whose RMSNorm (this eps, no weight) has an element beside a boundary of ``output``.

    ``output=None`` is the row's own format. See `hard_inputs.near_tie` for how near.
    """
    maker = partial(hard_inputs.near_tie, output=output, eps=eps)
    return _made_by(maker, format, d, max_d)


def tower_rows(
    format: str = "float32",
    *,
    d: int | None = None,
    max_d: int = MAX_D,
    order: str | None = None,
    accumulate: str = "float32",
) -> Arrays:
    """Rows that attain the bound of a sum of squares in ``accumulate``.

    ``order``: "sequential", "tree", or None for either.
    """
    orders = ("sequential", "tree") if order is None else (order,)
    made = partial(hard_inputs.tower, accumulate=accumulate)
    return st.one_of(*(_made_by(partial(made, order=o), format, d, max_d) for o in orders))


# --- rows of many kinds --------------------------------------------------------------------------


def _makers(format: str, kinds: Collection[str] | None, eps: float) -> list[Maker]:
    """The makers of the kinds named, simplest first; raises InputError."""
    known = kinds_for(format)
    wanted = known if kinds is None else kinds
    if isinstance(wanted, str) or not wanted or not set(wanted) <= set(known):
        raise InputError(
            f"kinds={kinds!r}: expected a collection of kinds that {format} has, some of "
            f"{', '.join(known)}: write e.g. kinds=['plain']"
        )
    checked_eps(eps)
    return [with_eps(name, eps) for name in known if name in wanted]


def _row(makers: list[Maker], width: SearchStrategy[int], fmt: Format) -> Arrays:
    return st.one_of(*(_made(maker, width, fmt) for maker in makers))


@lru_cache(maxsize=1024)
def _any_row(format: str, kinds: tuple[str, ...], eps: float, d: int) -> Arrays:
    """One row of a given width; kept, because Hypothesis checks every new strategy afresh."""
    return _row(_makers(format, kinds, eps), st.just(d), format_named(format))


def rows(
    format: str = "float32",
    *,
    d: int | None = None,
    max_d: int = MAX_D,
    kinds: Collection[str] | None = None,
    eps: float = 1e-6,
) -> Arrays:
    """(d,) rows of the kinds named (`NAMED_ROWS`; None: all that the format has).

    ``eps`` is that of the norm, for the kinds that depend on it.
    """
    return _row(_makers(format, kinds, eps), _width(d, max_d), format_named(format))


@st.composite
def _special(draw: st.DrawFn, ordinary: Arrays, fmt: Format) -> Array:
    return hard_inputs.with_specials(_Drawn(draw), draw(ordinary), fmt)


def special_rows(
    format: str = "float32",
    *,
    d: int | None = None,
    max_d: int = MAX_D,
    kinds: Collection[str] | None = None,
) -> Arrays:
    """Rows as `rows`, with one to three of NaN, infinity, -infinity at any positions."""
    return _special(rows(format, d=d, max_d=max_d, kinds=kinds), format_named(format))


@st.composite
def _batch(
    draw: st.DrawFn, row: Callable[[int], Arrays], width: SearchStrategy[int], n: tuple[int, int]
) -> Array:
    return np.stack(draw(st.lists(row(draw(width)), min_size=n[0], max_size=n[1])))


def batches(
    format: str = "float32",
    *,
    d: int | None = None,
    max_d: int = MAX_D,
    max_rows: int = 4,
    kinds: Collection[str] | None = None,
    eps: float = 1e-6,
) -> Arrays:
    """(n, d) arrays, n from 1 to ``max_rows``, each row of a kind of its own."""
    _makers(format, kinds, eps)  # refuses bad options here, not at a draw
    row = partial(_any_row, format, tuple(kinds or kinds_for(format)), eps)
    return _batch(row, _width(d, max_d), (1, checked_width(max_rows, "max_rows")))


# --- everything that a formula takes -------------------------------------------------------------


class _Shapes:
    """Shapes drawn for one layout: ``n`` rows of ``d`` elements are x of shape ``x``."""

    def __init__(self, draw: st.DrawFn, formula: Formula, max_d: int, max_rows: int) -> None:
        self.d = draw(widths(max_d=max_d))
        n = draw(st.integers(1, max_rows))
        self.x: tuple[int, ...] = (n, self.d)
        self.features, self.n, self.num_groups = self.d, n, 1
        if formula.layout is Layout.LAST_AXIS:
            return
        inner = draw(st.integers(1, 4))  # heads, or groups
        self.n = n * inner
        if formula.layout is Layout.HEADS:
            self.x = (n, inner, self.d)
            return
        channels = 1
        if not formula.id.startswith("instance_norm"):
            channels = draw(st.sampled_from([c for c in range(1, 9) if self.d % c == 0]))
        self.num_groups, self.features = inner, inner * channels
        self.x = (n, self.features, self.d // channels)


@st.composite
def _arguments(
    draw: st.DrawFn,
    formula: Formula,
    fmt: Format,
    limits: tuple[int, int],
    eps: SearchStrategy[float],
) -> dict[str, Any]:
    shapes = _Shapes(draw, formula, *limits)
    given: dict[str, Any] = {}
    if formula.layout is Layout.GROUPS:
        given["num_groups"] = shapes.num_groups
    drawn_eps = draw(eps)
    row = partial(_any_row, fmt.name, kinds_for(fmt.name), drawn_eps)
    batch = _batch(row, st.just(shapes.d), (shapes.n, shapes.n))
    batch = batch.map(lambda row_by_row: row_by_row.reshape(shapes.x))
    for p in formula.parameters:
        if p.kind is Kind.ROW:
            given[p.name] = draw(batch if p.default is None else st.none() | batch)
        elif p.kind is Kind.FEATURE:
            features = biases if p.name == "bias" else weights
            given[p.name] = draw(features(fmt.name, shapes.features))
        elif p.kind is Kind.ROW_NUMBER:  # an element of the row: a number near its values
            given[p.name] = given["x"][..., draw(st.integers(0, shapes.d - 1))]
        else:
            given[p.name] = drawn_eps if p.name == "eps" else draw(_numbers(p))
    return given


def _numbers(p: Parameter) -> SearchStrategy[float]:
    """Positive for beta, which stands under a root with eps's part; of any sign otherwise."""
    return (
        st.sampled_from((1.0, 0.5, *EPSILONS)) if p.name == "beta" else st.floats(-SPREAD, SPREAD)
    )


def arguments(
    formula: str | Formula,
    format: str = "float32",
    *,
    max_d: int = 33,
    max_rows: int = 4,
    allow_zero_eps: bool = False,
) -> SearchStrategy[dict[str, Any]]:
    """Every argument of a formula, as `verify.numeric.reference(formula, **arguments)` takes them.

    x and the like are (n, d), heads (n, H, d), groups (N, C, S) with a ``num_groups``; a row has
    at most ``max_d`` elements, and n or N is at most ``max_rows``. Weights, biases and other
    arguments with a neutral value may be None.
    """
    formula = formula if isinstance(formula, Formula) else formula_named(formula)
    limits = checked_width(max_d, "max_d"), checked_width(max_rows, "max_rows")
    return _arguments(formula, format_named(format), limits, epsilons(allow_zero=allow_zero_eps))
