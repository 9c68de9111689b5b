"""A checker by random evaluation: the sides of each step mod p = 2^61 - 1, and over the reals.

*Rows with multiplicities.* A claim for all d >= d_0 holds for rows in which a value x_j occurs
c_j times, for all positive integers c_j. There a sum is sum_j c_j f(x_j) and d is sum_j c_j: after
clearing denominators the claim is a polynomial identity in the c_j, which holds for all integers
from some bound on, hence identically. So a true claim stays true mod p with c_j, and thus d,
drawn from GF(p): a point tests all d at once.
Conversely, sum_j c_j x_j^a and d = sum_j c_j are power sums of the m points (c_j, x_j), and power
sums of m points have no relation of degree <= m (Weyl, *The Classical Groups*, II.3). A false
claim is a non-zero polynomial in them (2^k D below bounds its degree, c_j included), so it is
false for rows of m different values where m >= 2^k D; each free index takes one of the points
for itself and asks for one more. Where m is smaller, as for dimensions that index a radicand, the
answer says so.

*Probability of a wrong "proved"* (Schwartz 1980; Zippel 1979). Let a step be false, N the
numerator of the difference of its sides, of degree <= D in everything drawn and in k roots
sigma, where sigma^2 = N_v D_v for a radicand N_v / D_v and sigma weighs half the degree of its
square. N lies in a field of degree <= 2^k over the rational functions; its norm, the product of
its conjugates, is a non-zero polynomial of degree <= 2^k D, and N = 0 at a point makes the norm 0
there. No value of a variable has probability above 2^-58 (an element is a word of 61 bits; a
positive symbol is the square of one, so that it counts with degree 2; of the d a quarter is
drawn). So one point passes with probability <= 2^k D 2^-58.
Unknown functions are hashes of their arguments: where all arguments that differ formally have
different values, their values are further variables. Of E applications two whose arguments differ
coincide with probability <= (E^2 / 2) A 2^-58, A the degree of (the norm of) a difference of
arguments.

*Conditioning.* A point is drawn again until each radicand met is a non-zero square mod p and each
denominator is not 0. Positivity has no meaning in GF(p), but being a square behaves like it: as
p = 3 mod 4, -1 is no square, a square has exactly one root that is a square, and these roots are
multiplicative, so that sqrt(a b) = sqrt(a) sqrt(b) and sqrt(c^2) = c where a, b and c are
squares, as are radicands, positive symbols, d and d + 1. A radicand in general position that is
not a square of polynomials is a square mod p half of the time, so that k roots need about 2^k
draws. The conditioning is paid for by the union bound: each draw is uniform before it is judged,
so that some draw among at most T is both accepted and bad with probability <= T times that of one.

*Signs.* What is left is sqrt(t^2) with t of either sign: mod p it is t at half of the points. (The
norm argument above presumes that a product of radicands which is a square of t has t > 0, or the
field is one of several.) Steps are therefore also evaluated at real points with decimals of 60
digits, where signs are what they are. They come in pairs, the second with all symbols of either
sign negated, so that an odd t is negative in one of the two; a wrong sign of another t is missed
with probability of about 1/2 for each pair, and the probability of Schwartz-Zippel does not
count this.
A step is *refuted* only by a real point at which the sides differ, so that a number that is no
square mod p (3, say) never refutes a true step: it leaves it undecided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from fractions import Fraction
from hashlib import sha256

from verify.finding import Verdict
from verify.symbolic.checkers.answer import Answer, Certificate, CertificateError, Checker
from verify.symbolic.checkers.finite_field_arithmetic import (
    Decimals,
    Degrees,
    Residues,
    stream,
)
from verify.symbolic.checkers.finite_field_reader import Claim, Theorem
from verify.symbolic.checkers.finite_field_terms import Evaluator, Row, UndefinedPointError
from verify.symbolic.checkers.finite_field_witness import at_witness

# (values of the row dimension, values of each other one): the first that fits is taken.
FIRST_POINT = ((4096, 5), (512, 5), (64, 5), (16, 5), (5, 5), (2, 2))
SECOND_POINT = ((61, 61), (16, 16), (5, 5), (2, 2))
ARRAY_LIMIT = 20480  # elements of the largest array
FUNCTION_ROW = 64  # applications to each element of a row: E^2 enters the bound
ROOT_SIZE = 3  # a dimension that indexes a radicand: all of them must be squares at once
DRAWS = 256  # T
REAL_POINTS = range(12)  # in pairs of opposite signs, dimensions from 2 to 4
FURTHER_POINTS = range(12, 28)  # where a step differs mod p alone: larger dimensions
REAL_DRAWS = 64
DIGITS = 60
TOLERANCE = Decimal("1e-40")
LOG2_LARGEST_PROBABILITY = -58
WEAKEST_LOG2 = -20  # a weaker bound proves nothing


@dataclass(frozen=True)
class Difference:
    """Two sides that differ at a real point."""

    where: str
    left: Decimal
    right: Decimal

    def __str__(self) -> str:
        return f"{self.left:.10g} against {self.right:.10g} at {self.where}"


class Trial:
    """Everything evaluated about one theorem; points are shared by its claims."""

    def __init__(self, theorem: Theorem) -> None:
        self.theorem = theorem
        self.seed = sha256(theorem.text.encode()).hexdigest()[:16]
        self.evaluators: dict[str, Evaluator] = {}

    # -- mod p

    def sizes(self, claim: Claim) -> tuple[dict[str, int], dict[str, int]]:
        """How many different values each dimension has at two points: one long row, then all alike.

        Where arrays would be too large or functions would be applied too often, fewer.
        """
        dims = self.theorem.dims
        survey = Evaluator(self.theorem, Degrees(self.theorem, dict.fromkeys(dims, 1)))
        for _, term in claim.steps:
            survey.value(term, claim.free)
        row = next((d for d in dims if d not in survey.root_dims), None)

        def fitting(candidates: Sequence[tuple[int, int]]) -> dict[str, int]:
            sizes: dict[str, int] = {}
            for long, other in candidates:
                sizes = {d: long if d == row else other for d in dims}
                sizes |= dict.fromkeys(survey.root_dims, ROOT_SIZE)
                largest = max(math.prod(sizes[d] for d in shape) for shape in survey.shapes)
                applied = max((sizes[d] for d in survey.function_dims), default=0)
                if largest <= ARRAY_LIMIT and applied <= FUNCTION_ROW:
                    break
            return sizes

        return fitting(FIRST_POINT), fitting(SECOND_POINT)

    def agreements(self, claim: Claim, sizes: Mapping[str, int]) -> list[bool] | None:
        """Whether each step equals the first mod p; None if no draw is accepted."""
        terms = [term for _, term in claim.steps]
        below = self.theorem.below(terms)
        roots = [
            n for n in below if self.theorem.terms[n][0] == "sqrt" and not self.theorem.free[n]
        ]
        for draw in range(DRAWS):
            seed = f"{self.seed}|{sorted(sizes.items())}|{draw}"
            at = self.evaluators.get(seed) or Evaluator(
                self.theorem, Residues(self.theorem, sizes, seed)
            )
            try:
                for node in sorted(roots):  # first, so that a draw that is refused costs little
                    at.value(node, ())
                rows = [at.plain(term, claim.free) for term in terms]
            except UndefinedPointError:
                continue
            self.evaluators[seed] = at
            return [_same(at, rows[0], row) for row in rows[1:]]
        return None

    def bounds(self, claim: Claim, sizes: Mapping[str, int]) -> list[tuple[int, float]]:
        """For each step, 2^k D and log2 of the probability that it passes a point though false."""
        result = []
        (_, left), *others = claim.steps
        for _, right in others:
            degrees = Degrees(self.theorem, sizes)
            at = Evaluator(self.theorem, degrees)
            rows = [at.plain(term, claim.free) for term in (left, right)]
            total = degrees.add(rows[0].data, rows[1].data)[0]
            numerator = max(total.top, 1) << sum(total.roots.values())
            applied = sum(
                math.prod(sizes[dim] for dim in key[2])
                for key, row in at.seen.items()
                if row is not None and self.theorem.terms[key[0]][0] == "fun"
            )
            pairs = applied * applied * degrees.arguments // 2
            log2 = math.log2(DRAWS * (numerator + pairs)) + LOG2_LARGEST_PROBABILITY
            result.append((numerator, log2))
        return result

    # -- over the reals

    def differences(self, claim: Claim, points: range) -> tuple[int, list[Difference | None]]:
        """The number of real points at which the steps are defined, and what differs there."""
        found: list[Difference | None] = [None] * (len(claim.steps) - 1)
        defined = 0
        with localcontext(prec=DIGITS):
            for point in points:
                if rows := self.real_rows(claim, point):
                    defined += 1
                    at, where, values = rows
                    for i, value in enumerate(values[1:]):
                        found[i] = found[i] or _difference(at, where, values[0], value)
        return defined, found

    def real_rows(self, claim: Claim, point: int) -> tuple[Evaluator, str, list[Row]] | None:
        """The steps at one real point, with the words that name it; None if none is found."""
        for draw in range(REAL_DRAWS):
            seed = f"{self.seed}|real {point}|{draw}"
            at = self.evaluators.get(seed) or Evaluator(self.theorem, self.decimals(point, draw))
            try:
                rows = [at.plain(term, claim.free) for _, term in claim.steps]
            except UndefinedPointError:
                continue
            self.evaluators[seed] = at
            return at, seed, rows
        return None

    def decimals(self, point: int, draw: int) -> Decimals:
        """Sixteenths up to 4, halved from time to time: a domain may lie near 0."""
        pair, negated = divmod(point, 2)
        further = max(0, pair - len(REAL_POINTS) // 2 + 3)
        sizes = {
            dim: max(least, 2) + (pair + place) % 3 + further
            for place, (dim, least) in enumerate(self.theorem.dims.items())
        }
        scale = (-16 if negated else 16) << draw // 8
        symbols: dict[str, list[Decimal]] = {}
        for name, dims in self.theorem.symbols.items():
            count = math.prod(sizes[dim] for dim in dims)
            words = stream(f"{self.seed}|real {pair}|{draw}|{name}", count)
            signed = [Decimal((w % 63 + 1) * (-1 if w & 64 else 1)) / scale for w in words]
            symbols[name] = [abs(v) for v in signed] if name in self.theorem.positive else signed
        return Decimals(sizes, symbols)


def _same(at: Evaluator, a: Row, b: Row) -> bool:
    _, left, right = at.aligned(a, b)
    if len(left) == 1 or len(right) == 1:
        return len({*left, *right}) == 1
    return left == right


def _difference(at: Evaluator, seed: str, a: Row, b: Row) -> Difference | None:
    """The first element in which two sides differ by more than roundings can explain."""
    axes, left, right = at.aligned(a, b)
    left, right = (at.expanded(Row(axes if len(v) > 1 else (), v), axes) for v in (left, right))
    for position, (x, y) in enumerate(zip(left, right, strict=True)):
        if abs(x - y) > TOLERANCE * max(1, abs(x), abs(y)):
            return Difference(_words(at, seed, position), x, y)
    return None


def _words(at: Evaluator, seed: str, position: int) -> str:
    elements = at.at
    assert isinstance(elements, Decimals)
    dims = ", ".join(f"{dim} = {size}" for dim, size in elements.sizes.items())
    values = ", ".join(
        f"{name} = {' '.join(f'{v:f}' for v in data)}" for name, data in elements.symbols.items()
    )
    return f"{dims}; {values} (element {position}, seed '{seed}')"


# --- claims --------------------------------------------------------------------------------------


def check(certificate: Certificate) -> list[Answer]:
    """An answer for each step after the first of each claim, in order.

    Raises CertificateError, in one line, for what is no certificate or outside the language.
    """
    try:
        theorem = Theorem(certificate)
        trial = Trial(theorem)
        return [answer for claim in theorem.claims for answer in _answers(trial, claim)]
    except CertificateError:
        raise
    except RecursionError:
        raise CertificateError(
            "terms nested too deeply: expected at most some hundred levels"
        ) from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CertificateError(f"malformed certificate: {type(error).__name__} {error}") from error


def _answers(trial: Trial, claim: Claim) -> list[Answer]:
    if claim.kind == "differ":
        return [at_witness(trial.theorem, claim)]
    answers = [answer for pair in _pairs(claim) for answer in _equalities(trial, pair)]
    if claim.kind == "at_least":
        name, last = claim.steps[-1]
        if not is_non_negative(trial.theorem, last):
            reason = "the last term is not seen to be >= 0 from its shape"
            refuted = answers and answers[-1].verdict is Verdict.REFUTED
            if not refuted:
                answers[-1:] = [Answer(claim.name, name, Verdict.UNDECIDED, reason)]
        elif not answers:
            answers = [Answer(claim.name, name, Verdict.PROVED, ">= 0 from its shape")]
    return answers


def _pairs(claim: Claim) -> list[Claim]:
    """The first step with each other one: what a third step divides by is nothing to them."""
    return [replace(claim, steps=(claim.steps[0], other)) for other in claim.steps[1:]]


def _equalities(trial: Trial, claim: Claim) -> list[Answer]:
    if len(claim.steps) < 2:
        return []
    sizes = trial.sizes(claim)
    defined, differences = trial.differences(claim, REAL_POINTS)
    points = [] if all(differences) else [trial.agreements(claim, s) for s in sizes]
    if not all(point is None or all(point) for point in points):
        more, further = trial.differences(claim, FURTHER_POINTS)
        defined += more
        differences = [a or b for a, b in zip(differences, further, strict=True)]
    bounds = [trial.bounds(claim, s) for s in sizes]
    answers = []
    for i, (name, _) in enumerate(claim.steps[1:]):
        if differences[i]:
            verdict, reason = Verdict.REFUTED, str(differences[i])
        elif not defined:
            verdict, reason = Verdict.UNDECIDED, "no real point was found at which it is defined"
        elif None in points:
            reason = f"in {DRAWS} draws never all radicands were squares mod p"
            verdict = Verdict.UNDECIDED
        elif all(point and point[i] for point in points):
            verdict, reason = _passed(claim, sizes, [bound[i] for bound in bounds], defined)
        else:
            verdict = Verdict.UNDECIDED
            reason = f"equal at {defined} real points, not mod p: a root's sign may depend on p"
        answers.append(Answer(claim.name, name, verdict, reason))
    return answers


def _passed(
    claim: Claim,
    sizes: Sequence[Mapping[str, int]],
    bounds: Sequence[tuple[int, float]],
    defined: int,
) -> tuple[Verdict, str]:
    """Proved, unless the bound says nothing."""
    covering = [
        log2
        for s, (degree, log2) in zip(sizes, bounds, strict=True)
        if all(size >= degree + len(claim.free) for size in s.values())
    ]
    log2 = min(covering or [log2 for _, log2 in bounds])
    if log2 > WEAKEST_LOG2:
        return Verdict.UNDECIDED, f"equal, but with a bound on failure of 2^{log2:.0f} only"
    points = " and ".join(
        ", ".join(f"{size} values of {dim}" for dim, size in s.items()) for s in sizes if s
    )
    scope = "" if covering else "; rows of more different values are not covered"
    reason = (
        f"equal mod p at {points or 'two points'} with random multiplicities and at {defined} real "
        f"points; if false it passes with probability < 2^{math.ceil(log2)}{scope}"
    )
    return Verdict.PROVED, reason


def is_non_negative(theorem: Theorem, node: int) -> bool:
    """Whether a term is >= 0 from its shape alone."""
    match theorem.terms[node]:
        case ["num", text]:
            return Fraction(text) >= 0
        case ["dim", _] | ["sqrt", _]:
            return True
        case ["sym", name]:
            return name in theorem.positive
        case ["sum", _, body]:
            return is_non_negative(theorem, body)
        case ["mul", a, b] if theorem.first[a] == theorem.first[b]:
            return True
        case ["add" | "mul" | "div", a, b]:
            return is_non_negative(theorem, a) and is_non_negative(theorem, b)
    return False


CHECKER = Checker(
    name="GF(2^61-1)",
    check=check,
    states=(
        "both sides are equal mod p = 2^61 - 1 at random points whose rows are values with random "
        "multiplicities, so that the dimensions are random as well (a false step passes with the "
        "probability given, by Schwartz-Zippel) and equal to 40 digits at real points of small "
        "dimensions, which see the signs of roots"
    ),
)
