"""Wrong siblings: mutations of a theorem's claims that a prover and its checkers must reject.

A checker that accepts everything accepts every theorem. Each sibling is one equation of a claim
with one small change on its right side, of the kinds that are found in the field: d-1 for d, eps
lost or moved out of the root, a term or a factor lost, a sign, a scale, another symbol. They are
made mechanically from the terms; a few may be true all the same, and are then listed with the
reason, never dropped. Of a claim that two sides differ, the sibling is that they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import zip_longest
from typing import Any, TypeAlias

from verify.symbolic.theorem import Theorem
from verify.symbolic.trusted import Claim, OutsideLanguageError, Setting, Term, num, rejections

PER_THEOREM = 12
EQUATED = "sides that differ, equated"
# The kinds, those that are found in the field first: with few siblings, they are the ones made.
KINDS = (
    "eps moved",
    "d-1 for d",
    "a symbol dropped",
    "a summand lost",
    "a sign",
    "transposed",
    "a root lost",
    "a divisor lost",
    "another symbol",
    "a factor lost",
    "a wrong scale",
    "another number",
    "d+1 for d",
    EQUATED,
)


@dataclass(frozen=True)
class Sibling:
    """A statement that should be false: ``claim`` has the two sides, ``changed`` the part.

    It is part of the right side. ``rejected`` is what the prover says of the claim.
    """

    name: str
    kind: str
    claim: Claim
    changed: Term
    rejected: bool


def siblings(theorem: Theorem, count: int = PER_THEOREM) -> list[Sibling]:
    """Up to ``count`` siblings, spread over the claims and over the kinds of mutation.

    No equation occurs twice, and none that the language cannot say.
    """
    chosen: dict[tuple[Any, ...], Sibling] = {}
    step = count // max(len(theorem.claims), 1)  # claims begin at different kinds: more are met
    by_claim = [_by_kind(c, theorem.setting, step * k) for k, c in enumerate(theorem.claims)]
    for name, kind, claim, part in _round_robin(by_claim):
        if len(chosen) == count:
            break
        try:
            rejected = bool(rejections(claim, theorem.setting))
        except OutsideLanguageError:  # a lost eps may leave sqrt(0), which says nothing
            continue
        equation = (claim.free, *(term for _, term in claim.steps))
        chosen.setdefault(equation, Sibling(name, kind, claim, part, rejected))
    return list(chosen.values())


Mutant: TypeAlias = tuple[str, str, Claim, Term]


def _by_kind(claim: Claim, setting: Setting, turn: int) -> Iterator[Mutant]:
    """The mutants of one claim, one of each kind before the second of any, from kind ``turn``."""
    kinds: dict[str, list[Mutant]] = {kind: [] for kind in KINDS}
    for mutant in _of_claim(claim, setting):
        kinds[mutant[1]].append(mutant)
    groups = list(filter(None, kinds.values()))
    start = turn % max(len(groups), 1)
    return _round_robin([*groups[start:], *groups[:start]])


def _round_robin(groups: Iterable[Iterable[Mutant]]) -> Iterator[Mutant]:
    for turn in zip_longest(*groups):
        yield from (mutant for mutant in turn if mutant is not None)


def reason_if_true(sibling: Sibling, setting: Setting) -> str:
    """Why a sibling that the prover accepts is true: one sentence, itself checked by the prover.

    Nothing is said of a sibling that is rejected.
    """
    if sibling.rejected:
        return ""
    zero = Claim("equal", "zero", sibling.claim.free, (("part", sibling.changed), ("0", num(0))))
    try:
        if not rejections(zero, setting):
            return "the part that was changed is 0 for every width"
    except OutsideLanguageError:  # the part stands below a binder, and means nothing alone
        pass
    return "the change leaves the side as it was, for every width: the normal forms coincide"


def _of_claim(claim: Claim, setting: Setting) -> Iterator[Mutant]:
    left, (step, right) = claim.steps[0], claim.steps[-1]
    if claim.kind == "differ":
        name = f"{claim.name} / {EQUATED}"
        yield name, EQUATED, Claim("equal", name, claim.free, claim.steps), right
        return
    changes = [(part, *change) for part in _parts(right) for change in _changes(part, setting)]
    for number, (part, kind, what, new) in enumerate(changes):
        mutant = replaced(right, part, new)
        if mutant is not right and mutant is not left[1]:
            steps = (left, (f"{step}, but {what}", mutant))
            name = f"{claim.name} / {what} #{number}"
            yield name, kind, Claim("equal", name, claim.free, steps), part


def _parts(term: Term) -> list[Term]:
    """All parts of a term, each once, the term itself last."""
    found: dict[Term, None] = {}

    def visit(t: Term) -> None:
        if t not in found:
            for a in t.args:
                visit(a)
            found[t] = None

    visit(term)
    return list(found)


def replaced(term: Term, part: Term, new: Term) -> Term:
    """The term with ``new`` for every occurrence of ``part``."""

    @cache
    def visit(t: Term) -> Term:
        if t is part:
            return new
        return Term.make(t.op, *map(visit, t.args), data=t.data) if t.args else t

    return visit(term)


Change: TypeAlias = tuple[str, str, Term]  # its kind, what it is here, and the new part
_add, _mul, _div = (partial(Term.make, op) for op in ("add", "mul", "div"))


def _changes(t: Term, setting: Setting) -> Iterator[Change]:
    """The small changes of one part."""
    rules: dict[str, Callable[[Term], Iterator[Change]]] = {
        "num": _of_number,
        "dim": _of_dimension,
        "sym": _of_symbol,
        "at": partial(_of_element, shapes=setting.symbols),
        "add": _of_sum_of_two,
        "mul": _of_product,
        "div": _of_quotient,
        "sqrt": _of_root,
        "sum": _of_sum,
    }
    return rules[t.op](t) if t.op in rules else iter(())


def _of_number(t: Term) -> Iterator[Change]:
    yield "another number", f"{t.data + 1} for {t.data}", num(t.data + 1)


def _of_dimension(t: Term) -> Iterator[Change]:
    yield "d-1 for d", f"{t.data}-1 for {t.data}", _add(t, num(-1))
    yield "d+1 for d", f"{t.data}+1 for {t.data}", _add(t, num(1))


def _of_symbol(t: Term) -> Iterator[Change]:
    yield "a symbol dropped", f"{t.data} dropped", num(0)
    yield "a wrong scale", f"{t.data} doubled", _mul(num(2), t)


def _of_element(t: Term, shapes: Mapping[str, tuple[str, ...]]) -> Iterator[Change]:
    name, indices = t.data
    others = [other for other, s in shapes.items() if s == shapes[name] and other != name]
    for other in others[:1]:
        new = Term.make("at", data=(other, indices))
        yield "another symbol", f"{other} for {name}", new
    yield "a wrong scale", f"{name} doubled", _mul(num(2), t)
    if len(set(shapes[name])) == 1 < len(indices):
        yield "transposed", f"{name} transposed", Term.make("at", data=(name, indices[::-1]))


def _of_sum_of_two(t: Term) -> Iterator[Change]:
    a, b = t.args
    yield "a summand lost", "the second summand lost", a
    yield "a sign", "a sign", _add(a, _mul(num(-1), b))
    yield "a summand lost", "the first summand lost", b


def _of_product(t: Term) -> Iterator[Change]:
    a, b = t.args
    if a is num(-1):
        yield "a sign", "a sign", b
    else:
        yield "a factor lost", "a factor lost", a
        yield "a factor lost", "another factor lost", b


def _of_quotient(t: Term) -> Iterator[Change]:
    yield "a divisor lost", "the divisor lost", t.args[0]
    yield "a wrong scale", "divided twice", _div(t, t.args[1])


def _of_root(t: Term) -> Iterator[Change]:
    (v,) = t.args
    yield "a root lost", "the root lost", v
    if v.op == "add":
        rest, eps = v.args
        squared = Term.make("sqrt", _add(rest, _mul(eps, eps)))
        yield "eps moved", "eps squared in the root", squared
        yield "eps moved", "eps outside the root", _add(Term.make("sqrt", rest), eps)


def _of_sum(t: Term) -> Iterator[Change]:
    yield "a wrong scale", "a sum doubled", _mul(num(2), t)
