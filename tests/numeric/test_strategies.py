"""Hard inputs: each kind has its property in every format, none is filtered, all shrink.

The properties below are written apart from the makers, in exact numbers where rounding matters.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from itertools import count

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample
from hypothesis.statistics import collector

from verify.formats import FORMATS, boundaries, format_named, round_to, ulp
from verify.formula import Kind
from verify.norms import FORMULAS
from verify.numeric import reference, strategies
from verify.numeric.hard_inputs import MAKERS, NAMED_ROWS, ROW_FORMATS, held, kinds_for
from verify.numeric.order import PAIRWISE, SEQUENTIAL
from verify.numeric.rounding import DTYPES
from verify.numeric.rows import InputError, prepare

MAIN = ["float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"]
EPS = 1e-6
ONCE = settings(
    database=None,
    derandomize=True,
    max_examples=max(1_000, settings.default.max_examples),
    phases=[Phase.generate, Phase.shrink],
)


def smallest(strategy, condition):
    """The simplest example that Hypothesis can find, the same at each run."""
    return find(strategy, condition, settings=ONCE)


def exact(row):
    return [Fraction(float(v)) for v in row]


def kappa(row):
    """mean|x| / sigma; infinite for a constant row."""
    x = exact(row)
    mean = sum(x) / len(x)
    variance = sum((v - mean) ** 2 for v in x) / len(x)
    mean_magnitude = sum(map(abs, x)) / len(x)
    return math.sqrt(mean_magnitude**2 / variance) if variance else math.inf


def rms_normed(row, eps=EPS):
    """RMSNorm of a row, each element cut at 2**-200."""
    x = exact(row)
    v = sum(e * e for e in x) / len(x) + Fraction(eps)
    root = Fraction(math.isqrt(math.floor(v * 4**200)), 2**200)
    return [e / root for e in x] if root else []


def signed_distance(y, fmt):
    """From the nearest rounding boundary outwards to y, in units of the last place."""
    y = abs(y)
    edges = boundaries(fmt, round_to(fmt, y))[:2]
    return min(((y - edge) / ulp(fmt, y) for edge in edges), key=abs)


def nearest_tie(row, fmt, eps=EPS):
    distances = [signed_distance(y, fmt) for y in rms_normed(row, eps)]
    return min(distances, key=abs, default=Fraction(1))


def near_enough(row, fmt):
    """The guarantee of `hard_inputs.near_tie`, with a factor 4 to spare for short rows."""
    d, p = len(row), fmt.precision
    limit = max(-10, p + 1 - (d - 1) * (p - 2)) if d > 2 else 5 - p
    return abs(nearest_tie(row, fmt)) <= Fraction(2) ** limit


def loses_squares(row, order, accumulate="float32"):
    """The sum of squares errs by as much as its bound allows: u times the order's height."""
    acc = format_named(accumulate)

    def add(a, b):
        return held(a + b, acc).astype(np.float64)

    squares = held(row.astype(np.float64) ** 2, acc).astype(np.float64)
    lost = sum(exact(squares)) - Fraction(float(order.sum(squares, add)[0]))
    attainable = acc.unit_roundoff * order.height(len(row)) * Fraction(float(squares[0]))
    if acc.precision % 2 == 0:
        return lost == attainable
    return lost >= attainable * (1 - Fraction(1, 1 << (acc.precision - 4)))


def magnitudes(row):
    return np.abs(row.astype(np.float64))


def is_outlier(row):
    *_, second, top = (0.0, *np.sort(magnitudes(row)))
    return top > 0 and top >= 800 * second


def spans_the_range(row, fmt):
    ends = magnitudes(row)
    top = ends.max() > float(fmt.max_finite) / 4.001
    return top and (len(row) == 1 or float(fmt.min_subnormal) in ends)


def alternates(row):
    return (np.diff(np.sign(row.astype(np.float64))) != 0).all() and (row != 0).all()


def squares_overflow_float16(row):
    return all(v * v >= 65520 and abs(v) <= 65504 for v in exact(row))


PROPERTIES = {
    "plain": lambda row, _: (magnitudes(row) <= 64).all(),
    "zero": lambda row, _: not row.astype(np.float64).any(),
    "constant": lambda row, _: (row == row[0]).all(),
    "alternating": lambda row, _: alternates(row),
    "shifted": lambda row, _: kappa(row) >= 4 and (len(row) == 1 or kappa(row) < math.inf),
    "one_hot_outlier": lambda row, _: is_outlier(row),
    "overflowing_square": lambda row, _: squares_overflow_float16(row),
    "huge": lambda row, fmt: all(v * v > fmt.max_finite for v in exact(row)),
    "subnormal": lambda row, fmt: 0 < magnitudes(row).max() < float(fmt.min_normal),
    "eps_dominated": lambda row, _: sum(v * v for v in exact(row)) / len(row) <= EPS / 64,
    "wide_range": spans_the_range,
    "near_tie": near_enough,
    "tower_sequential": lambda row, _: loses_squares(row, SEQUENTIAL),
    "tower_tree": lambda row, _: loses_squares(row, PAIRWISE),
}
OWN = {name: getattr(strategies, f"{name}_rows", None) for name in MAKERS} | {
    "tower_sequential": partial(strategies.tower_rows, order="sequential"),
    "tower_tree": partial(strategies.tower_rows, order="tree"),
}


def check_held(array, fmt):
    """Of the format's dtype, and every element a finite value of the format."""
    assert array.dtype == DTYPES[fmt.name], f"dtype {array.dtype} for {fmt.name}"
    for v in np.unique(array.astype(np.float64)).tolist():
        assert math.isfinite(v), f"{v} is not finite"
        assert round_to(fmt, v) == v, f"{v} is not a value of {fmt.name}"


def check_row(row, name, fmt):
    """What every row of a kind must be."""
    assert row.ndim == 1, f"shape {row.shape}"
    check_held(row, fmt)
    assert PROPERTIES[name](row, fmt), f"a row that is not {name}: {row}"


CASES = [(name, format) for format in MAIN for name in kinds_for(format)]


class TestKinds:
    @pytest.mark.parametrize(("name", "format"), CASES)
    def test_every_row_has_the_property_of_its_kind(self, name, format):
        @settings(max_examples=settings.default.max_examples // 2)
        @given(OWN[name](format, max_d=33))
        def law(row):
            check_row(row, name, format_named(format))

        law()

    @pytest.mark.parametrize("format", ROW_FORMATS)
    def test_named_rows_have_it_too_and_repeat(self, format):
        for name in kinds_for(format):
            for seed, d in enumerate([1, 2, 3, 17, 64, 257]):
                row, again = (
                    NAMED_ROWS[name](d, np.random.default_rng(seed), format) for _ in range(2)
                )
                assert row.tobytes() == again.tobytes()
                assert len(row) == d
                check_row(row, name, format_named(format))

    @given(strategies.near_tie_rows("float32", output="bfloat16", d=16))
    def test_near_ties_of_a_narrower_output(self, row):
        assert abs(nearest_tie(row, format_named("bfloat16"))) <= 2**-10

    @pytest.mark.parametrize("side", [-1, 1])
    @pytest.mark.parametrize("format", ["float32", "bfloat16"])
    def test_near_ties_lie_on_both_sides(self, format, side):
        fmt = format_named(format)
        found = smallest(
            strategies.near_tie_rows(format, d=8), lambda row: side * nearest_tie(row, fmt) > 0
        )
        assert len(found) == 8

    @pytest.mark.parametrize(
        ("accumulate", "format"), [("bfloat16", "bfloat16"), ("float16", "float16")]
    )
    @pytest.mark.parametrize(("name", "order"), [("sequential", SEQUENTIAL), ("tree", PAIRWISE)])
    def test_towers_of_other_accumulators(self, accumulate, format, name, order):
        @given(strategies.tower_rows(format, order=name, accumulate=accumulate, d=64))
        def law(row):
            assert loses_squares(row, order, accumulate)

        law()

    def test_the_tower_of_float32_is_the_published_one(self):
        one = smallest(strategies.tower_rows(d=5, order="sequential"), lambda row: row[0] == 1)
        assert one.tolist() == [1, *[2**-12] * 4]
        tree = smallest(strategies.tower_rows(d=10, order="tree"), lambda row: row[0] == 1)
        assert np.flatnonzero(tree).tolist() == [0, 1, 2, 4, 8]

    def test_kappa_goes_from_ten_to_a_million(self):
        shifted = partial(NAMED_ROWS["shifted"], 32, format="float32")
        kappas = [kappa(shifted(rng=np.random.default_rng(seed))) for seed in range(50)]
        assert min(kappas) < 50
        assert 1e6 < max(kappas) < 1e7

    @pytest.mark.parametrize("place", [0, 2, 4])
    def test_the_outlier_is_anywhere(self, place):
        row = smallest(
            strategies.one_hot_outlier_rows("bfloat16", d=5),
            lambda row: magnitudes(row).argmax() == place,
        )
        assert magnitudes(row)[place] == 1000

    def test_tf32_is_narrower_than_its_dtype(self):
        with pytest.raises(AssertionError, match="is not a value of tf32"):
            check_held(np.float32([1 + 2**-23]), format_named("tf32"))


class TestPlantedDefects:
    """The same check refuses rows that a wrong generator would make."""

    @pytest.mark.parametrize(
        ("name", "maker", "message"),
        [
            ("plain", lambda d: np.full(d, 0.1), "dtype float64"),
            ("plain", lambda d: np.full(d, np.inf, np.float16), "not finite"),
            ("plain", lambda d: np.full(d, 65.0, np.float16), "not plain"),
            ("shifted", lambda d: np.arange(d).astype(np.float16), "not shifted"),
            ("shifted", lambda d: np.full(d, 1, np.float16), "not shifted"),
            ("subnormal", lambda d: np.zeros(d, np.float16), "not subnormal"),
            ("overflowing_square", lambda d: np.full(d, 255.875, np.float16), "not overflowing"),
            ("huge", lambda d: np.full(d, 128, np.float16), "not huge"),
            ("alternating", lambda d: np.ones(d, np.float16), "not alternating"),
            ("zero", lambda d: np.full(d, 6e-8, np.float16), "not zero"),
            ("constant", lambda d: np.arange(d).astype(np.float16), "not constant"),
            ("one_hot_outlier", lambda d: np.ones(d, np.float16), "not one_hot"),
            ("eps_dominated", lambda d: np.full(d, 2e-4, np.float16), "not eps_dominated"),
            ("wide_range", lambda d: np.ones(d, np.float16), "not wide_range"),
            ("near_tie", lambda d: np.ones(d, np.float16), "not near_tie"),
            ("tower_sequential", lambda d: np.ones(d, np.float16), "not tower"),
            ("tower_tree", lambda d: np.ones(d, np.float16), "not tower"),
        ],
    )
    def test_a_wrong_generator_is_caught(self, name, maker, message):
        with pytest.raises(AssertionError, match=message):
            check_row(maker(8), name, format_named("float16"))


class TestNothingIsFiltered:
    STRATEGIES = {name: own("float16") for name, own in OWN.items()} | {
        "rows": strategies.rows("float8_e4m3fn", max_d=1025),
        "special_rows": strategies.special_rows("bfloat16"),
        "batches": strategies.batches("float16"),
        "weights": strategies.weights("float16", 9),
        "biases": strategies.biases("float16", 9),
        "arguments of a backward pass": strategies.arguments("rms_norm_backward", "bfloat16"),
        "arguments of groups": strategies.arguments("group_norm"),
    }

    @pytest.mark.parametrize("name", STRATEGIES)
    def test_no_case_is_given_up(self, name):
        assert "invalid" not in self.statuses(self.STRATEGIES[name])

    def test_a_filter_would_be_seen(self):
        filtered = strategies.plain_rows().filter(lambda row: row[0] > 1)
        assert "invalid" in self.statuses(filtered)

    @staticmethod
    def statuses(strategy):
        """How Hypothesis judged its cases: valid, invalid (filtered), overrun (its own limit)."""
        seen = []

        @settings(
            database=None,
            derandomize=True,
            max_examples=max(50, settings.default.max_examples),
            suppress_health_check=[],
        )
        @given(strategy)
        def law(_):
            pass

        with collector.with_value(seen.append):
            law()
        statuses = [case["status"] for case in seen[0]["generate-phase"]["test-cases"]]
        assert statuses.count("valid") >= 40
        return statuses


def always(_):
    return True


class TestShrinking:
    """The simplest row with a property is short, and its numbers are those one would write."""

    @pytest.mark.parametrize(
        ("strategy", "condition", "expected"),
        [
            (strategies.rows(), always, [0]),
            (strategies.rows(), lambda row: 100 < kappa(row) < math.inf, [1, 1 + 2**-23]),
            (strategies.rows("float16"), lambda row: 100 < kappa(row) < math.inf, None),
            (strategies.shifted_rows("bfloat16"), lambda row: len(row) > 1, [1, 1 + 2**-7]),
            (strategies.rows("float16"), lambda row: magnitudes(row).max() >= 256, [256]),
            (strategies.rows("bfloat16"), lambda row: row.sum() > 1e30, None),
            (strategies.plain_rows(), lambda row: (row > 0).sum() >= 2, [1, 1]),
            (strategies.alternating_rows(), lambda row: len(row) >= 3, [1, -1, 1]),
            (strategies.subnormal_rows("float16"), always, [2**-24]),
            (strategies.huge_rows(), always, [2.0**96]),
            (strategies.special_rows(), lambda row: np.isnan(row).any(), [math.nan]),
            (strategies.one_hot_outlier_rows(), lambda row: len(row) == 3, [1000, 0, 0]),
        ],
        ids=count(1),
    )
    def test_to_a_short_row_of_simple_numbers(self, strategy, condition, expected):
        row = smallest(strategy, condition)
        assert len(row) <= 4
        if expected is not None:
            np.testing.assert_array_equal(row.astype(np.float64), expected)

    def test_long_rows_shrink_to_the_length_that_matters(self):
        assert len(smallest(strategies.plain_rows(max_d=1025), lambda row: len(row) > 100)) == 127
        batch = smallest(strategies.batches(), lambda x: (x != 0).any(axis=1).sum() >= 2)
        assert batch.shape <= (2, 2)
        # One bit each. Which exponent is left depends on the constants that Hypothesis collects
        # from the modules that were loaded before.
        assert set(np.abs(np.frexp(batch.astype(np.float64))[0]).ravel().tolist()) <= {0, 0.5}

    def test_arguments_shrink_to_one_element(self):
        least = smallest(strategies.arguments("layer_norm"), always)
        assert least == {"x": np.zeros((1, 1)), "weight": None, "bias": None, "eps": 1e-5}


class TestSpecials:
    @pytest.mark.parametrize("place", [0, 2, 4])
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_each_stands_at_any_position(self, place, value):
        def there(row):
            return row[place] == value or (math.isnan(value) and math.isnan(row[place]))

        row = smallest(strategies.special_rows(d=5), there)
        assert np.isfinite(np.delete(row, place)).all()

    @pytest.mark.parametrize("format", MAIN)
    def test_every_row_has_one_in_the_dtype(self, format):
        @given(strategies.special_rows(format))
        def law(row):
            wide = row.astype(np.float64)
            assert row.dtype == DTYPES[format]
            assert 1 <= (~np.isfinite(wide)).sum() <= 3
            assert format_named(format).has_infinity or not np.isinf(wide).any()

        law()


class TestFeaturesAndNumbers:
    def test_widths_are_small_ones_and_neighbours_of_powers_of_two(self):
        wanted = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33}
        seen = set()

        @settings(
            database=None, derandomize=True, max_examples=max(500, settings.default.max_examples)
        )
        @given(strategies.widths(max_d=33))
        def law(d):
            seen.add(d)

        law()
        assert seen == wanted
        assert smallest(strategies.widths(max_d=4097), lambda d: d > 2049) == 4095

    @pytest.mark.parametrize("value", [0.0, -1.0, 15.8125])
    def test_weights_hold_zero_negative_and_large(self, value):
        weight = smallest(
            strategies.weights("bfloat16", 3), lambda w: w is not None and value in w.tolist()
        )
        assert weight.tolist() == [value, 1, 1]

    def test_weights_and_biases_may_be_absent_unless_asked_not_to(self):
        for make in (strategies.weights, strategies.biases):
            assert smallest(make("float16", 2), always) is None
            assert smallest(make("float16", 2, allow_none=False), always) is not None

    def test_weights_are_not_all_one(self):
        weight = smallest(strategies.weights("float16", 40), lambda w: w is not None and w[39] != 1)
        check_held(weight, format_named("float16"))

    def test_eps_is_zero_only_on_request(self):
        assert smallest(strategies.epsilons(allow_zero=True), lambda e: e == 0) == 0
        with pytest.raises(NoSuchExample):
            smallest(strategies.epsilons(), lambda e: e == 0)

    @given(st.sampled_from(MAIN).flatmap(lambda f: strategies.batches(f, d=5, max_rows=3)))
    def test_batches_are_rows_of_one_width(self, batch):
        assert batch.ndim == 2
        assert 1 <= len(batch) <= 3
        assert batch.shape[1] == 5


class TestArguments:
    @pytest.mark.parametrize("formula", FORMULAS.values(), ids=FORMULAS)
    def test_they_are_all_that_the_formula_takes_and_fit_each_other(self, formula):
        @settings(max_examples=settings.default.max_examples // 4)
        @given(strategies.arguments(formula, "bfloat16", max_d=9, max_rows=2))
        def law(given):
            groups = given.pop("num_groups", None)
            assert set(given) == {p.name for p in formula.parameters}
            laid_out = prepare(formula, given, groups)
            assert laid_out.d <= 9
            assert len(given["x"]) <= 2
            for p in formula.parameters:
                if p.kind is Kind.NUMBER:
                    assert isinstance(given[p.name], float)
                elif given[p.name] is not None:
                    check_held(given[p.name], FORMATS["bfloat16"])

        law()

    @given(strategies.arguments("rms_norm", "bfloat16", max_d=9))
    def test_the_truth_takes_them_as_they_are(self, given):
        y = reference("rms_norm", **given)
        assert y.shape == given["x"].shape
        assert np.isfinite(y).all()

    def test_near_ties_are_those_of_the_eps_given(self):
        def tied(given):
            x, eps = given["x"], given["eps"]
            return (
                eps != EPS
                and x.shape[1] > 3
                and 0 < abs(nearest_tie(x[0], FORMATS["float32"], eps)) < 2**-12
            )

        x = smallest(strategies.arguments("rms_norm", max_d=9, max_rows=1), tied)["x"]
        assert x.shape == (1, 4)

    def test_zero_eps_comes_on_request(self):
        found = smallest(
            strategies.arguments("rms_norm", allow_zero_eps=True), lambda given: given["eps"] == 0
        )
        assert found["x"].tolist() == [[0]]


class TestMessages:
    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda: strategies.rows(d=0), r"d=0 is not a width: expected an integer, at least 1"),
            (lambda: strategies.widths(max_d=2.5), r"max_d=2.5 is not a width"),
            (lambda: strategies.rows("float4_e2m1fn"), r"no rows are made in float4_e2m1fn"),
            (lambda: strategies.rows(kinds=["plane"]), r"kinds=\['plane'\]: expected a collection"),
            (lambda: strategies.rows(kinds="plain"), r"write e.g. kinds=\['plain'\]"),
            (lambda: strategies.batches(kinds=[]), r"kinds=\[\]: expected a collection"),
            (lambda: strategies.batches(max_rows=0), r"max_rows=0 is not a width"),
            (lambda: strategies.rows(eps=-1.0), r"eps=-1.0 is out of range"),
            (lambda: strategies.near_tie_rows(eps=math.nan), r"eps=nan is out of range"),
            (lambda: strategies.tower_rows(order="up"), r"order='up' is no order"),
            (
                lambda: strategies.tower_rows("float8_e4m3fn", accumulate="float64"),
                r"no two values so far apart that float64 loses a square",
            ),
            (lambda: strategies.shifted_rows(max_kappa=0), r"max_kappa=0 is out of range"),
            (
                lambda: strategies.overflowing_square_rows("float8_e4m3"),
                r"no square of float8_e4m3 overflows float16",
            ),
            (lambda: strategies.arguments("rms_nrom"), r"unknown formula 'rms_nrom'"),
            (lambda: strategies.rows("float23"), r"unknown format 'float23'"),
        ],
    )
    def test_bad_options_are_refused_when_the_strategy_is_made(self, call, message):
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)

    def test_named_rows_refuse_a_bad_width(self):
        with pytest.raises(InputError, match="d=0 is not a width"):
            NAMED_ROWS["plain"](0, np.random.default_rng(0), "float32")
