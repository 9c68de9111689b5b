"""docs/proofs.md is true: its examples run, its lists and figures are those of the code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from verify.finding import Verdict
from verify.symbolic import siblings, trusted
from verify.symbolic.certificate import CertificateError, certificate, read
from verify.symbolic.checkers import finite_field, finite_field_arithmetic, z3_cutoff
from verify.symbolic.checkers.finite_field_reader import SIGNATURES
from verify.symbolic.checkers.recheck import checkers, opinion
from verify.symbolic.language import Expression, Statement, apply, array, lift, sqrt, total
from verify.symbolic.prove import PROVER, ROCQ
from verify.symbolic.theorem import Theorem, theorem_named
from verify.symbolic.trusted import OutsideLanguageError, rejections

PAGE = (Path(__file__).parents[2] / "docs" / "proofs.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
BLOCKS = re.findall(r"^```(\w+)([^\n]*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def table(first: str) -> dict[str, list[str]]:
    """The rows of the table whose first column has that title, by their first cell."""
    (found,) = re.findall(rf"^\| {first} \|.*\n\| --- .*\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    rows = [[cell.strip() for cell in row.split(" | ")] for row in found.strip().splitlines()]
    return {row[0].lstrip("| "): row[1:] for row in rows}


def run(languages: tuple[str, ...]) -> list[str]:
    """Runs the page's blocks with these words after ``python``, in order; what was run."""
    names: dict[str, Any] = {}
    wanted = [code for name, word, code in BLOCKS if name == "python" and word.strip() in languages]
    for code in wanted:
        exec(compile(code, "docs/proofs.md", "exec"), names)  # noqa: S102 - our own page
    return wanted


def test_the_examples_run() -> None:
    assert len(run(("",))) == 5


def test_the_examples_with_flint_run() -> None:
    pytest.importorskip("flint")
    assert len(run(("", "flint"))) == 6


def test_it_has_no_long_line_but_tables() -> None:
    assert not [line for line in PAGE.splitlines() if len(line) > 100 and line[0] != "|"]


# --- lists and figures ----------------------------------------------------------------------------


def test_it_names_every_operation() -> None:
    assert [name.strip("`") for name in table("operation")] == [
        *("num", "dim", "sym", "at", "sum", "add", "mul", "div", "sqrt", "fun", "lam", "diff")
    ]
    assert {name.strip("`") for name in table("operation")} == set(SIGNATURES)


def test_it_names_every_judge() -> None:
    assert set(table("judge")) == {PROVER, ROCQ, *(checker.name for checker in checkers())}


def test_it_names_every_kind_of_sibling() -> None:
    assert [kind for kind in siblings.KINDS if f" {kind}" not in WORDS] == []


def centred_row() -> Theorem:
    """The theorem whose certificate the page shows."""
    s = Statement()
    i = s.index()
    (x,), n = s.arrays("x", i), s.dimension("n")
    s.equal("mean", ("sum (x - m)", total(i, x - total(i, x) / n)), ("0", 0))
    words = ("CENTRED", "", r"\sum_i (x_i-\bar x)=0", (), "folklore", ())
    return Theorem(*words, s.setting, tuple(s.claims))


def test_it_shows_a_certificate_as_it_is_made() -> None:
    (shown,) = [json.loads(code) for name, _, code in BLOCKS if name == "json"]
    assert shown == certificate(centred_row())
    read(shown)


def test_it_explains_every_key_of_a_certificate() -> None:
    explained = table("key")
    keys = {key for cell in explained for key in re.findall(r"`(\w+)`", cell)}
    made = certificate(theorem_named("RMS_NORM_IS_NOT_SHIFT_INVARIANT"))
    assert keys == set(made)
    inside = set(re.findall(r"`(\w+)`", explained["`claims`"][0]))
    claims = made["claims"]
    assert {claim["kind"] for claim in claims} >= {"differ"}
    witnesses = [claim["witness"] for claim in claims if "witness" in claim]
    assert inside == {"steps"}.union(*claims, *witnesses)


def test_the_kernel_is_as_short_as_it_says() -> None:
    (most,) = re.findall(r"`trusted.py` \(at most (\d+) lines\)", PAGE)
    assert len(Path(trusted.__file__).read_text(encoding="utf-8").splitlines()) <= int(most)


def test_the_figures_of_random_evaluation() -> None:
    draws, weakest = finite_field.DRAWS, finite_field.WEAKEST_LOG2
    largest = finite_field.LOG2_LARGEST_PROBABILITY
    points, digits = len(finite_field.REAL_POINTS), finite_field.DIGITS
    assert f"p = {finite_field_arithmetic.P}." in WORDS
    assert f"probability ≤ {draws} (2^k D + E² A / 2) 2^{largest}," in WORDS
    assert f"above 2^{largest}, and up to {draws} draws" in WORDS
    assert f"weaker than 2^{weakest} proves" in WORDS
    tolerance = f"1e{finite_field.TOLERANCE.adjusted()}"
    assert Decimal(tolerance) == finite_field.TOLERANCE
    assert f"at up to {points} real points" in WORDS
    assert f"with {digits} digits to a tolerance of {tolerance}." in WORDS


def test_the_probability_of_the_example() -> None:
    made = certificate(theorem_named("LAYER_NORM_IS_RMS_NORM_OF_CENTRED"))
    last = finite_field.CHECKER.check(made)[-1].reason
    (size,) = re.findall(r"equal mod p at (\d+) values", last)
    (exponent,) = re.findall(r"probability < (2\^-\d+)", last)
    assert f"{exponent} for LayerNorm = RMSNorm of the centred row at {size} values" in WORDS


def test_the_dimensions_of_z3() -> None:
    grids = {k: z3_cutoff.smallest({"dims": dict.fromkeys("nmk"[:k], 1)}, 0) for k in (1, 2, 3)}
    assert not any(enough for _, enough in grids.values())
    assert [point["n"] for point in grids[1][0]] == [2, 3, 4]
    assert {tuple(point.values()) for point in grids[2][0]} == {(2, 2), (2, 3), (3, 2), (3, 3)}
    assert [*grids[3][0]] == [dict.fromkeys("nmk", 2)]
    assert "it tries 2, 3, 4 (2 and 3 for each of two, 2 for each of more" in WORDS
    assert f"add up to more than {z3_cutoff.GRID_SIZE})" in WORDS


# --- false statements -----------------------------------------------------------------------------


def _scalars() -> tuple[Statement, Expression, Expression, Expression, Expression]:
    s = Statement()
    (x,) = s.numbers("x")
    r = sqrt(x * x)
    return s, x, r, sqrt(x + r), sqrt(r - x)


def a_middle_step_that_is_defined_for_positive_x_only() -> Statement:
    s, x, r, q, _ = _scalars()
    s.equal("x = |x|", ("x", x), ("x q / q", x * q / q), ("|x|", r))
    return s


def two_middle_steps_that_are_never_defined_together() -> Statement:
    s, x, r, q, p = _scalars()
    steps = (("q / q", q / q), ("x / |x|", x / r), ("- p / p", p / p * -1))
    s.equal("1 = -1", ("1", 1), *steps, ("-1", -1))
    return s


def a_denominator_whose_elements_were_met_in_another_order() -> Statement:
    """(2x + y) / (2x + y) = 2, after 1 / (x' + y'/2) was renamed as an argument of a function."""
    s = Statement()
    i, j = s.index(), s.index()
    x, y = s.arrays("x y", i)
    x_, y_ = x.at(i, j), y.at(i, j)
    f = apply("f", 1 / (x_ + y_ / 2))
    met = (x_ - x_) + (y_ - y_) + (y - y) + (x - x) + (f - f)
    s.equal("1 = 2", ("1", met + (2 * x + y) / (2 * x + y)), ("2", 2), free=[i, j])
    return s


def a_witness_outside_the_domain() -> Statement:
    """sqrt(x)^2 = sqrt(x^2) wherever both sides are defined, and at -1 one is not."""
    s, x, r, _, _ = _scalars()
    s.differ("at -1", sqrt(x) * sqrt(x), r, values={"x": -1})
    return s


def a_witness_at_which_the_root_of_an_irrational_is_undefined() -> Statement:
    """u = z (sqrt(x) - 1) is negative at the witness; where it is not, both sides are equal."""
    s = Statement()
    x, z = s.numbers("x z")
    u = z * (sqrt(x) - 1)
    right = sqrt(z * z) * sqrt((x - 1) * (x - 1))
    s.differ("u", sqrt(u) * sqrt(u) * (sqrt(x) + 1), right, values={"x": 2, "z": -1})
    return s


def a_square_of_the_root_of_a_negative_number() -> Statement:
    s = Statement()
    root = sqrt(lift(-1))
    s.at_least("-1 >= 0", ("-1", -1), ("a square", root * root))
    return s


def a_square_that_is_defined_for_positive_x_only() -> Statement:
    s, x, *_ = _scalars()
    s.at_least("x >= 0", ("x", x), ("a square", sqrt(x) * sqrt(x)))
    return s


def a_radicand_that_stands_in_the_first_step_for_another_index() -> Statement:
    """Under one binder more, the same de Bruijn index is another: the root of x_j, not of x_i."""
    s = Statement()
    i, j, k = s.index(), s.index(), s.index()
    (x,) = s.arrays("x", i)
    first = x + 0 * apply("f", array(sqrt(x.at(i, j)), k))
    s.at_least("x_i >= 0", ("x_i", first), ("a square", sqrt(x) * sqrt(x)), free=[i, j])
    return s


def an_angle_for_pi() -> Statement:
    """pi is a number, not a symbol that a witness may choose."""
    s = Statement()
    (pi,) = s.numbers("pi", positive=True)
    gap = pi - Fraction(7, 2)
    s.differ("pi", sqrt(gap * gap), Fraction(7, 2) - pi, values={"pi": 4})
    return s


def a_witness_with_an_array_under_a_function() -> Statement:
    """f of (0, 1) and f of (0, 2) are not known to be equal."""
    s = Statement()
    i, j = s.index(), s.index()
    x, y = s.arrays("x y", i)
    left = apply("f", array(x, i)) - apply("f", array(y, i)) + 1
    values = {"x": [0, 1], "y": [0, 2]}
    s.differ("f", left, 0, free=[j], dims={"n": 2}, values=values, index=(0,))
    return s


def a_witness_with_an_index_out_of_range() -> Statement:
    """At n = 1 an element is the sum."""
    s = Statement()
    i = s.index()
    (x,) = s.arrays("x", i)
    s.differ("x", x, total(i, x), free=[i], dims={"n": 1}, values={"x": [0, 1]}, index=(1,))
    return s


def a_witness_below_the_smallest_dimension() -> Statement:
    s = Statement()
    s.dimension("n", least=2)
    s.differ("n", total(s.index(), 1), 2, dims={"n": 1})
    return s


FALSE = [
    a_middle_step_that_is_defined_for_positive_x_only,
    two_middle_steps_that_are_never_defined_together,
    a_denominator_whose_elements_were_met_in_another_order,
    a_witness_outside_the_domain,
    a_witness_at_which_the_root_of_an_irrational_is_undefined,
    a_square_of_the_root_of_a_negative_number,
    a_square_that_is_defined_for_positive_x_only,
    a_radicand_that_stands_in_the_first_step_for_another_index,
    an_angle_for_pi,
    a_witness_with_an_array_under_a_function,
    a_witness_with_an_index_out_of_range,
    a_witness_below_the_smallest_dimension,
]


@pytest.mark.parametrize("made", FALSE, ids=lambda made: made.__name__)
def test_the_kernel_rejects(made: Callable[[], Statement]) -> None:
    s = made()
    (claim,) = s.claims
    try:
        rejected = rejections(claim, s.setting)
    except OutsideLanguageError:
        return
    assert rejected


EQUATIONS = [made for made in FALSE if made().claims[0].kind != "at_least"]


@pytest.mark.parametrize("made", EQUATIONS, ids=lambda made: made.__name__)
def test_no_checker_proves_it(made: Callable[[], Statement]) -> None:
    """They see equations alone: that a square is defined where x is, the kernel has to see."""
    s = made()
    words = ("FALSE", "", "", (), "", ())
    content = certificate(Theorem(*words, s.setting, tuple(s.claims)))
    for checker in checkers():
        try:
            verdict = opinion(checker, content).verdict
        except CertificateError:
            continue
        assert verdict in {Verdict.REFUTED, Verdict.UNDECIDED}, checker.name


def test_only_a_scalar_symbol_can_be_declared_positive() -> None:
    """A number in its place would name a generator of the kernel."""
    made = certificate(centred_row())
    for positive in ([0], ["n"], ["y"]):
        with pytest.raises(CertificateError, match="positive"):
            read(made | {"positive": positive})
