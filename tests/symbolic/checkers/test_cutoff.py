from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.symbolic.checkers.flint_builder import (
    Term,
    at,
    certificate,
    dim,
    fun,
    lam,
    lift,
    mean,
    sqrt,
    sym,
    total,
)
from tests.symbolic.checkers.flint_statements import (
    EPS,
    THEOREMS,
    N,
    X,
    Z,
    centred,
    layer_norm,
    rms,
    square,
)
from verify.finding import Verdict
from verify.symbolic.checkers import flint_explicit
from verify.symbolic.checkers.answer import verdict_of
from verify.symbolic.checkers.cutoff import Cutoff, Demand, NoCutoffError
from verify.symbolic.checkers.flint_evaluate import Evaluation
from verify.symbolic.checkers.flint_explicit import CHECKER
from verify.symbolic.checkers.flint_reader import read
from verify.symbolic.checkers.flint_scale import Scales


def evaluated(made: dict[str, Any], dims: Mapping[str, int]) -> tuple[Evaluation, bool]:
    """The claim in coordinates at these dimensions, and whether it holds there."""
    problem = read(made)
    terms = [t for _, t in problem.claims[0].steps]
    evaluation = Evaluation(problem, Scales(problem), dims, terms)
    env = tuple(range(len(problem.claims[0].free)))
    left, right = (evaluation.value(t, env) for t in terms)
    return evaluation, evaluation.field.same(left, right)


def holds(made: dict[str, Any], n: int, m: int = 1) -> bool:
    return evaluated(made, {"n": n, "m": m})[1]


def cutoff(made: dict[str, Any], n: int = 6) -> Cutoff:
    """The demand of the claim, given how its roots are written at n."""
    evaluation, _ = evaluated(made, {"n": n, "m": n})
    demand = Demand(evaluation.problem, evaluation.scales, evaluation.field.plans)
    claim = evaluation.problem.claims[0]
    left, right = (t for _, t in claim.steps)
    free = list(claim.free)
    counts = {name: free.count(name) for name in free}
    demand.equal(left, right, dict(enumerate(range(len(free)))), counts)
    return demand.cutoff


def power_sum(k: int) -> Term:
    return total("i", product([X("i")] * k))


def product(factors: Sequence[Term]) -> Term:
    out = lift(1)
    for factor in factors:
        out = out * factor
    return out


def elementary(k: int) -> Term:
    """Newton: k e_k = sum over j of (-1)^(j-1) e_(k-j) p_j; e_k is 0 for fewer than k variables."""
    if k == 0:
        return lift(1)
    terms = [lift((-1) ** (j - 1)) * elementary(k - j) * power_sum(j) for j in range(1, k + 1)]
    out = terms[0]
    for term in terms[1:]:
        out = out + term
    return out / k


ZERO = lift(0)
# (name, a claim that is false in general, the largest n at which it holds)
FALSE_FROM_SOME_N = [
    ("square of a sum", certificate(power_sum(1) * power_sum(1), power_sum(2)), 1),
    (
        "cubes",
        certificate(
            lift(2) * power_sum(3)
            - lift(3) * power_sum(1) * power_sum(2)
            + power_sum(1) * power_sum(1) * power_sum(1),
            ZERO,
        ),
        2,
    ),
    ("Newton, 4", certificate(elementary(4), ZERO), 3),
    ("Newton, 5", certificate(elementary(5), ZERO), 4),
    ("Newton, 3, under means", certificate(elementary(3) / (N * N * N * (N + 1)), ZERO), 2),
    (
        "Newton, 3, times a norm",
        certificate(elementary(3) * rms(X)("i"), ZERO, free={"i": "n"}),
        2,
    ),
    (
        "Newton, 3, as a square under a root",
        certificate(sqrt(square(X) + elementary(3) + EPS), sqrt(square(X) + EPS)),
        2,
    ),
    (
        "Newton, 3, inside a function",
        certificate(fun("f", elementary(3)), fun("f", ZERO)),
        2,
    ),
    (
        "Newton, 5, inside a function",
        certificate(fun("f", elementary(5)), fun("f", ZERO)),
        4,
    ),
    (
        "Newton, 5, inside an array",
        certificate(
            fun("f", lam("l", X("l") * elementary(5))), fun("f", lam("l", X("l") - X("l")))
        ),
        4,
    ),
    (
        "the other elements",
        certificate(power_sum(1), X("i"), free={"i": "n"}),
        1,
    ),
    (
        "two other elements",
        certificate(
            (power_sum(1) - X("i")) * (power_sum(1) - X("i")),
            power_sum(2) - X("i") * X("i"),
            free={"i": "n"},
        ),
        2,
    ),
    (
        "reciprocals",
        certificate(
            total("i", lift(1) / (X("i") * X("i") + 1)) * total("i", X("i") * X("i")),
            N * total("i", X("i") * X("i") / (X("i") * X("i") + 1)),
        ),
        1,
    ),
]


@pytest.mark.parametrize(
    ("made", "last"),
    [case[1:] for case in FALSE_FROM_SOME_N],
    ids=[c[0] for c in FALSE_FROM_SOME_N],
)
def test_it_demands_a_dimension_at_which_a_false_statement_fails(
    made: dict[str, Any], last: int
) -> None:
    assert all(holds(made, n) for n in range(max(1, len(made["claims"][0]["free"])), last + 1))
    assert not holds(made, last + 1)
    if "fun" not in {entry[0] for entry in made["terms"]}:
        # Roots as they are written where the statement holds: elsewhere the checker starts anew.
        demanded = [dims["n"] for dims in cutoff(made, last).grid()]
        assert not all(holds(made, n) for n in demanded)
    assert verdict_of(CHECKER.check(made)) is Verdict.REFUTED


def test_a_cutoff_that_is_too_low_would_accept_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted defect: sums counted as if they bound no index."""

    def summed(self: Demand, poly: Any, bound: Any, step: Any) -> Any:
        return {(shown - {bound}, counts): span for (shown, counts), span in poly.items()}

    monkeypatch.setattr(flint_explicit, "FIRST_TRIES", 1)
    made = certificate(power_sum(1) * power_sum(1), power_sum(2))
    assert verdict_of(CHECKER.check(made)) is Verdict.REFUTED
    monkeypatch.setattr(Demand, "_summed", summed)
    assert verdict_of(CHECKER.check(made)) is Verdict.PROVED


# --- statements that vanish at chosen dimensions --------------------------------------------------


def set_partitions(items: list[int]) -> list[list[list[int]]]:
    if not items:
        return [[]]
    first, *rest = items
    out = []
    for partition in set_partitions(rest):
        out.append([[first], *partition])
        out += [
            [*partition[:k], [first, *block], *partition[k + 1 :]]
            for k, block in enumerate(partition)
        ]
    return out


def injective(atoms: Sequence[Term]) -> Term:
    """Sum over different indices of the product of atoms[k] at the k-th index.

    By Moebius inversion on set partitions: each block of b indices made one costs
    (-1)^(b-1) (b-1)!. It is 0 for n < len(atoms), and not 0 from there on.
    """
    out = lift(0)
    for partition in set_partitions(list(range(len(atoms)))):
        sign = math.prod((-1) ** (len(b) - 1) * math.factorial(len(b) - 1) for b in partition)
        sums = [total("i", product([atoms[k] for k in block])) for block in partition]
        out = out + lift(sign) * product(sums)
    return out


ATOMS = [
    X("i"),
    X("i") * X("i"),
    at("w", "i"),
    at("w", "i") * X("i"),
    centred(Z)("i") * at("w", "i"),
    X("i") / sqrt(at("w", "i") * at("w", "i") + EPS),
    rms(Z)("i"),
    fun("f", X("i")),
    X("i") - at("h", "i") / N,
]


@given(
    atoms=st.lists(st.sampled_from(ATOMS), min_size=1, max_size=3),
    zeros=st.sets(st.integers(1, 5), max_size=3),
    divided=st.sampled_from([lift(1), N, N * N + N, sqrt(square(X) + EPS)]),
)
def test_no_statement_that_fails_somewhere_passes(
    atoms: list[Term], zeros: set[int], divided: Term
) -> None:
    vanishing = product([N - j for j in sorted(zeros)])
    made = certificate(vanishing * injective(atoms) / divided, ZERO)
    assert verdict_of(CHECKER.check(made)) is not Verdict.PROVED


def test_a_matrix_counts_its_two_dimensions_apart() -> None:
    element = at("A", "i", "k")
    rows = total("k", element, "m") * total("k", element, "m") - total("k", element * element, "m")
    made = certificate(total("i", rows), ZERO)
    assert all(holds(made, n, 1) for n in (1, 2, 3))
    assert not holds(made, 1, 2)
    demanded = cutoff(made)
    assert (demanded.least, demanded.points) == ({"n": 1, "m": 2}, {"n": 1, "m": 1})


# --- figures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "least", "points"),
    [
        ("LN is RMS of centred", 3, 1),
        ("one pass is two pass", 3, 1),
        ("narrow is a scaled RMSNorm", 2, 2),
        ("RMSNorm adjoint", 2, 1),
        ("LayerNorm adjoint", 4, 1),
        ("double diff", 2, 1),
        ("DyISRU adjoint", 1, 1),
    ],
)
def test_common_factors_stay_outside(name: str, least: int, points: int) -> None:
    found = cutoff(THEOREMS[name])
    assert (found.least["n"], found.points["n"]) == (least, points)


def test_a_factor_that_may_vanish_is_not_common() -> None:
    found = cutoff(certificate((N - 3) * (N - 4) * sym("c"), ZERO))
    assert found.points["n"] == 3
    found = cutoff(certificate((N + 3) * (N + 4) * sym("c"), ZERO))
    assert found.points["n"] == 1


def test_an_index_that_no_atom_mentions_is_a_factor_d() -> None:
    found = cutoff(certificate(total("i", sym("c")) + total("i", lift(1)) * N, ZERO))
    assert (found.least["n"], found.points["n"]) == (1, 2)


def test_free_indices_are_points_of_their_own() -> None:
    sides = (X("i") * at("w", "l") * power_sum(1), ZERO)
    assert cutoff(certificate(*sides, free={"i": "n", "l": "n"})).least["n"] == 3


def test_a_norm_inside_a_sum_has_no_cutoff() -> None:
    inside = sqrt(X("i") * X("i") + square(X) + EPS)
    for body in (inside, X("i") / (X("i") + mean("j", X("j"))), sqrt(X("i") * X("i") + N)):
        with pytest.raises(NoCutoffError, match="varies with the index of a sum"):
            cutoff(certificate(total("i", body), ZERO))


def test_a_function_of_two_bound_indices_is_not_local() -> None:
    body = total("k", lift(1) / (at("A", "i", "k") + 1), "m")
    with pytest.raises(NoCutoffError, match="varies with the index of a sum"):
        cutoff(certificate(total("i", body), ZERO), 2)


def test_a_local_function_may_hide_a_constant() -> None:
    """The sum is n: at n = 7 alone it is 7."""
    one = (X("i") * X("i") + 1) * (lift(1) / (X("i") * X("i") + 1))
    made = certificate(total("i", one), lift(7))
    assert holds(made, 7)
    assert cutoff(made).points["n"] == 2


def test_arguments_that_coincide_at_a_point_of_the_grid() -> None:
    """0 at n = 1, 2, 3 by a factor of degree 3, and at n = 4 because both calls are one there."""
    calls = fun("f", (N - 4) * sym("c")) - fun("f", ZERO)
    made = certificate((N - 1) * (N - 2) * (N - 3) * calls, ZERO)
    assert all(holds(made, n) for n in (1, 2, 3, 4))
    assert verdict_of(CHECKER.check(made)) is Verdict.REFUTED


def test_an_index_that_an_argument_does_not_depend_on() -> None:
    """With f_i = f(0) this is n (n-2) (n-3) (n-4) f(0)^4, which no sum of four indices shows."""

    def sums(k: int) -> Term:
        return total("i", product([fun("f", X("i") - X("i"))] * k))

    left = product([sums(1)] * 4) + lift(26) * sums(2) * sums(2)
    right = lift(9) * sums(1) * sums(1) * sums(2) + lift(24) * sums(4)
    made = certificate(left, right, dims={"n": 2, "m": 1})
    assert all(holds(made, n) for n in (2, 3, 4))
    assert not holds(made, 5)
    assert verdict_of(CHECKER.check(made)) is not Verdict.PROVED


def test_the_grid_is_the_product() -> None:
    found = Cutoff({"n": 2, "m": 1}, {"n": 2, "m": 1}).joined(
        Cutoff({"n": 1, "m": 3}, {"n": 1, "m": 2})
    )
    assert [tuple(dims.values()) for dims in found.grid()] == [(2, 3), (2, 4), (3, 3), (3, 4)]


def test_layer_norm_has_one_root() -> None:
    made = certificate(layer_norm(X)("i"), rms(centred(X))("i"), free={"i": "n"})
    evaluation, same = evaluated(made, {"n": 5, "m": 1})
    assert same
    assert [plan.new for plan in evaluation.field.plans.values()].count(True) == 1
    assert dim() == N
