"""A checker by z3: real arithmetic at concrete dimensions.

At dimensions d every indexed symbol is d real variables and sums are written out. The negation of
a step, with the axioms of its roots, denominators and unknown functions, is given to z3: *unsat*
proves the step at these dimensions, *sat* refutes it. Unknown functions are reduced to variables
with one congruence for each pair of calls (Ackermann). Most identities become polynomial, and
"numerator != 0" is then refuted by its normal form; to find a model, everything but the roots is
first given small integers, which leaves one number to each root.

z3's effort is limited by its own count of resources, not by time, so that answers do not depend
on the machine. An answer never rests on "unknown".
"""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from verify.finding import Verdict
from verify.symbolic.checkers import flint_explicit
from verify.symbolic.checkers.answer import Answer, Certificate, CertificateError, Checker
from verify.symbolic.checkers.z3_cutoff_polynomials import (
    Expr,
    Quotient,
    TooLargeError,
    UndefinedError,
    UnknownValueError,
    as_fraction,
)
from verify.symbolic.checkers.z3_cutoff_terms import Claim, Table, expect
from verify.symbolic.checkers.z3_cutoff_values import Values

POINTS = 4
POINT_RLIMIT = 400_000
QUERY_RLIMIT = 4_000_000
GRID_SIZE = 40  # the products of the dimensions of all points together
WIDTHS = {1: 3, 2: 2}  # values of each dimension, by the number of dimensions; 1 for more

# The dimensions at which to decide a claim, and whether they are enough for all dimensions.
Dimensions: TypeAlias = tuple[Sequence[Mapping[str, int]], bool]
Grid: TypeAlias = Callable[[Certificate, int], Dimensions]


def smallest(certificate: Certificate, claim: int) -> Dimensions:
    """A grid: 2, 3, 4 for one dimension, 2 and 3 for each of two, 2 for each of more.

    From a dimension's smallest value if that is larger; at 1 a mean is its element, and much that
    is false holds. Nothing says that they are enough.
    """
    del claim
    least: Mapping[str, int] = certificate["dims"]
    count = WIDTHS.get(len(least), 1)
    axes = [[(n, max(first, 2) + k) for k in range(count)] for n, first in least.items()]
    return [dict(point) for point in itertools.product(*axes)], False


def demanded(certificate: Certificate, claim: int) -> Dimensions:
    """A grid: what the cutoff theorem demands, where that is small enough for z3; else `smallest`.

    The demand is computed beside python-flint, from the terms and from how their roots are
    related; that the step holds at these dimensions is then z3's own word.
    """
    points = flint_explicit.demanded(certificate, claim)
    if points and sum(math.prod(point.values()) for point in points) <= GRID_SIZE:
        return points, True
    return smallest(certificate, claim)


def check(certificate: Certificate, grid: Grid = demanded) -> list[Answer]:
    """An answer for each step after the first of each claim, in order.

    ``grid(certificate, k)`` gives the dimensions for claim number k, and whether a step that holds
    at all of them holds at all dimensions. Raises CertificateError, in one line, for what is no
    certificate or outside the language.
    """
    try:
        table = Table(certificate)
        claims = enumerate(table.claims)
        return [
            a
            for k, claim in claims
            for a in _within_reach(table, claim, grid(certificate, k), smallest(certificate, k))
        ]
    except CertificateError:
        raise
    except RecursionError:
        raise CertificateError(
            "terms are nested too deeply, expected some hundred levels"
        ) from None
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise CertificateError(f"no certificate: {type(error).__name__}: {error}") from error


def _within_reach(
    table: Table, claim: Claim, wanted: Dimensions, small: Dimensions
) -> list[Answer]:
    """The answers at the dimensions wanted, or at small ones where those are out of z3's reach."""
    answers = _answers(table, claim, wanted)
    if wanted[1] and any(a.verdict is Verdict.UNDECIDED for a in answers):
        return _answers(table, claim, small)
    return answers


def _answers(
    table: Table, claim: Claim, grid: tuple[Sequence[Mapping[str, int]], bool]
) -> list[Answer]:
    if claim.kind == "differ":
        return [_at_witness(table, claim)]
    answers = _steps(table, claim, grid[0], enough=grid[1])
    if claim.kind == "at_least":
        name, last = claim.steps[-1]
        if not answers:
            answers = [Answer(claim.name, name, Verdict.PROVED, "it is >= 0 from its shape")]
        if not table.is_non_negative(last) and answers[-1].verdict is not Verdict.REFUTED:
            reason = "the last term is not >= 0 from its shape"
            answers[-1] = Answer(claim.name, name, Verdict.UNDECIDED, reason)
    return answers


# --- equalities ----------------------------------------------------------------------------------


def _steps(
    table: Table, claim: Claim, grid: Sequence[Mapping[str, int]], *, enough: bool
) -> list[Answer]:
    """Each step at all dimensions; one that is not proved at some is not tried further.

    What holds at dimensions that are not enough is *undecided*, whatever z3 says there.
    """
    (_, first), *others = claim.steps
    sides = [(first, term) for _, term in others]
    tried = "; ".join(map(_words, grid)) or "no dimensions"
    end = "which is enough for all dimensions" if enough else "this says nothing about others"
    outcomes = [(Verdict.PROVED, f"unsat at {tried}; {end}")] * len(sides)
    for sizes in grid:
        for i, (left, right) in enumerate(sides):
            if outcomes[i][0] is Verdict.PROVED:
                # Values of its own: the axioms of a third step's roots would narrow the domain.
                verdict, reason = _at_dimensions(Values(table, sizes), claim.free, left, right)
                if verdict is not Verdict.PROVED:
                    outcomes[i] = verdict, reason
    if not enough:
        proved = {Verdict.PROVED: Verdict.UNDECIDED}
        outcomes = [(proved.get(verdict, verdict), reason) for verdict, reason in outcomes]
    steps = zip(claim.steps[1:], outcomes, strict=True)
    return [Answer(claim.name, name, verdict, reason) for (name, _), (verdict, reason) in steps]


def _words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{n} = {size}" for n, size in sizes.items())


def _at_dimensions(
    values: Values, free: Sequence[str], left: int, right: int
) -> tuple[Verdict, str]:
    """One step for all values of the free indices that are not alike."""
    where = _words(values.sizes)
    for index in _representatives(values.sizes, free):
        env = tuple(zip(free, index, strict=True))
        try:
            numerator = values.difference(values.value(left, env), values.value(right, env))
        except UndefinedError as error:
            return Verdict.UNDECIDED, f"defined nowhere at {where}: {error}"
        except TooLargeError as error:
            return Verdict.UNDECIDED, f"{where}: {error}"
        if as_fraction(numerator) == 0:
            continue
        verdict, reason = _decided(values, numerator)
        if verdict is not Verdict.PROVED:
            element = f", element {list(index)}" if index else ""
            return verdict, f"{where}{element}: {reason}"
    if not _is_inhabited(values):
        return Verdict.UNDECIDED, f"{where}: no point was found at which both sides are defined"
    return Verdict.PROVED, where


def _is_inhabited(values: Values) -> bool:
    """Whether the axioms have a model: a step that is defined nowhere is not proved by that."""
    import z3

    return bool(_model(values, values.axioms())[0] == z3.sat)


def _representatives(sizes: Mapping[str, int], free: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """One value of the free indices for each pattern of equal ones.

    Terms name no particular position, so a permutation of the positions of a dimension maps a
    model for some values of the free indices to one for their images. (The elements of an unknown
    function's result are functions of their own; they are permuted as well.)
    """
    seen = set()
    for index in itertools.product(*(range(sizes[n]) for n in free)):
        places = list(zip(free, index, strict=True))
        pattern = tuple(places.index(place) for place in places)
        if pattern not in seen:
            seen.add(pattern)
            yield index


def _decided(values: Values, numerator: Expr) -> tuple[Verdict, str]:
    """sat, unsat or unknown: numerator != 0 under the axioms."""
    import z3

    answer, found = _model(values, [*values.axioms(), numerator != 0])
    if answer == z3.sat:
        return Verdict.REFUTED, f"the sides differ at {found}"
    if answer == z3.unsat:
        return Verdict.PROVED, "unsat"
    return Verdict.UNDECIDED, f"z3 answers unknown: {found}"


def _model(values: Values, facts: Sequence[Any]) -> tuple[Any, str]:
    """z3's answer, with the model or the reason: at points of small integers, then in general."""
    import z3

    for point in range(POINTS):
        solver = _solver(POINT_RLIMIT)
        assigned = _point(values, point)
        solver.add(*(z3.substitute(fact, *assigned) for fact in facts))
        if solver.check() == z3.sat:
            return z3.sat, _shown(assigned, solver.model())
    solver = _solver(QUERY_RLIMIT)
    solver.add(*facts)
    answer = solver.check()
    if answer == z3.sat:
        return answer, _shown([], solver.model())
    return answer, str(solver.reason_unknown()) if answer == z3.unknown else ""


def _solver(rlimit: int) -> Any:
    import z3

    solver = z3.Solver()
    solver.set("rlimit", rlimit)
    return solver


def _point(values: Values, point: int) -> list[tuple[Expr, Expr]]:
    """Small integers for all variables but the roots, all of one function's calls different."""
    import z3

    assigned = []
    for place, (key, var) in enumerate(values.variables.items()):
        size = 1 + (3 * place + point * (place + 1)) % 7
        signed = len(key) > 1 or key[0] not in values.table.positive
        assigned.append((var, z3.RealVal(-size if signed and (place + point) % 3 == 0 else size)))
    calls = [call.var for calls in values.calls.values() for call in calls]
    assigned += [(var, z3.RealVal(2 + i + point)) for i, var in enumerate(calls)]
    return assigned


def _shown(assigned: Sequence[tuple[Expr, Expr]], model: Any) -> str:
    """The values of a model, those that were given first."""
    found = [f"{var} = {value}" for var, value in assigned]
    found += [f"{d.name()} = {model[d]}" for d in model.decls() if d.arity() == 0]
    shown = ", ".join(sorted(found))
    return " ".join(shown.split())


# --- witnesses -----------------------------------------------------------------------------------


def _at_witness(table: Table, claim: Claim) -> Answer:
    """Both sides with the witness's values in place of the symbols."""
    name = claim.steps[1][0]
    sizes, given, index = _witness(table, claim)
    reason = _outside(table, sizes, given)
    if reason:
        return Answer(claim.name, name, Verdict.UNDECIDED, reason)
    values = Values(table, sizes, given)
    env = tuple(zip(claim.free, index, strict=True))
    try:
        sides = [_number(values, values.value(t, env)) for _, t in claim.steps]
    except (UndefinedError, UnknownValueError) as error:
        return Answer(claim.name, name, Verdict.UNDECIDED, f"at the witness {error}")
    if sides[0] == sides[1]:
        return Answer(claim.name, name, Verdict.REFUTED, f"both sides are {sides[0]}")
    reason = f"{sides[0]} against {sides[1]} at {_words(sizes)}"
    return Answer(claim.name, name, Verdict.PROVED, reason)


def _number(values: Values, v: Quotient) -> Fraction:
    top, bottom = (as_fraction(values.reduced(e)) for e in (v.num, values.power(v.den)))
    # A root that is left and cancels: nothing says that what is under it is positive.
    if top is None or not bottom or values.roots or values.primes:
        raise UnknownValueError("a side is not rational")
    return top / bottom


def _witness(table: Table, claim: Claim) -> tuple[dict[str, int], dict[str, Any], list[int]]:
    here = f"claim '{claim.name}': the witness"
    for key in ("dims", "values"):
        expect(key in claim.witness, f"{here} has no '{key}'")
    sizes, given = dict(claim.witness["dims"]), dict(claim.witness["values"])
    index = list(claim.witness.get("index", []))
    for n in table.dims:
        expect(
            type(sizes.get(n)) is int, f"{here} has {n} = {sizes.get(n)!r:.20}, expected an integer"
        )
    for symbol, dims in table.symbols.items():
        if symbol in given:
            shape = [sizes[n] for n in dims]
            expect(
                _fits(given[symbol], shape),
                f"{here} has {symbol} = {given[symbol]!r:.40}, expected shape {shape}",
            )
        else:
            used = any(table.mentions(t, symbol) for _, t in claim.steps)
            expect(not used, f"{here} has no value of '{symbol}'")
    ranges = [sizes[n] for n in claim.free]
    good = len(index) == len(ranges) and all(0 <= i < n for i, n in zip(index, ranges, strict=True))
    expect(good, f"{here} has index {index}, expected one below each of {ranges}")
    return sizes, given, index


def _fits(value: Any, shape: Sequence[int]) -> bool:
    """Whether a value is nested lists of rationals of that shape."""
    if not shape:
        return isinstance(value, str)
    listed = isinstance(value, (list, tuple)) and len(value) == shape[0]
    return listed and all(_fits(entry, shape[1:]) for entry in value)


def _outside(table: Table, sizes: Mapping[str, int], given: Mapping[str, Any]) -> str:
    for n, least in table.dims.items():
        if sizes[n] < least:
            return f"the witness has {n} = {sizes[n]}, but claims are made from {least}"
    if "pi" in given:
        return "the witness gives pi a value, and it has its own"
    for symbol in table.positive:
        if symbol in given and Fraction(given[symbol]) <= 0:
            return f"the witness has {symbol} = {given[symbol]}, which stands for a positive number"
    return ""


def missing() -> str:
    """Why z3 cannot be used, or the empty string."""
    return "" if importlib.util.find_spec("z3") else "the package z3-solver is not installed"


CHECKER = Checker(
    name="z3",
    check=check,
    missing=missing,
    states=(
        "over the reals, the negation of each step is unsatisfiable at the dimensions given in the "
        "reason, which the cutoff theorem says are enough for all dimensions"
    ),
)
