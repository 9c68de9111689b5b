"""Claims that two terms differ: exact rationals at the witness of the certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from verify.finding import Verdict
from verify.symbolic.checkers.answer import Answer, CertificateError
from verify.symbolic.checkers.finite_field_arithmetic import Fractions, NotRationalError
from verify.symbolic.checkers.finite_field_reader import Claim, Theorem
from verify.symbolic.checkers.finite_field_terms import Evaluator, Row, UndefinedPointError


def at_witness(theorem: Theorem, claim: Claim) -> Answer:
    """The answer to a claim that two terms differ: both sides in exact rationals at the witness."""
    name = claim.steps[1][0]
    sizes, symbols, index = _witness(theorem, claim)
    if complaint := _outside(theorem, sizes, symbols):
        return Answer(claim.name, name, Verdict.UNDECIDED, complaint)
    at = Evaluator(theorem, Fractions(sizes, symbols))
    try:
        rows = [at.plain(term, claim.free) for _, term in claim.steps]
    except (UndefinedPointError, NotRationalError) as error:
        reason = f"no exact value at the witness: {error}"
        return Answer(claim.name, name, Verdict.UNDECIDED, reason)
    left, right = (_element(at, row, index) for row in rows)
    dims = ", ".join(f"{dim} = {size}" for dim, size in sizes.items())
    if left == right:
        return Answer(claim.name, name, Verdict.REFUTED, f"both sides are {left} at {dims}")
    return Answer(claim.name, name, Verdict.PROVED, f"{left} against {right} at {dims}")


def _witness(
    theorem: Theorem, claim: Claim
) -> tuple[dict[str, int], dict[str, list[Fraction]], Sequence[int]]:
    """Dimensions, values and values of the free indices; CertificateError if they do not fit."""
    here = f"claim {claim.name!r}: the witness"
    if {"dims", "values"} - set(claim.witness):
        raise CertificateError(f"{here} is {claim.witness!r:.60}: expected dims, values and index")
    sizes, values = dict(claim.witness["dims"]), claim.witness["values"]
    used = theorem.below([term for _, term in claim.steps])
    needed = frozenset().union(*(theorem.mentions[node] for node in used))
    named = {dim for name in needed for dim in theorem.symbols[name]} | set(claim.free)
    named |= {theorem.terms[node][1] for node in used if theorem.terms[node][0] in ("dim", "sum")}
    if absent := sorted(named - set(sizes)) + sorted(needed - set(values)):
        raise CertificateError(f"{here} has no {', '.join(absent)}")
    symbols = {
        name: _flat(values[name], [sizes[d] for d in theorem.symbols[name]], f"{here}: {name}")
        for name in sorted(needed)
    }
    index = claim.witness.get("index", [])
    ranges = [sizes[dim] for dim in claim.free]
    if len(index) != len(ranges) or not all(0 <= i < n for i, n in zip(index, ranges, strict=True)):
        raise CertificateError(f"{here} has index {index}: expected one below each of {ranges}")
    return sizes, symbols, index


def _flat(value: Any, shape: Sequence[int], here: str) -> list[Fraction]:
    if not shape:
        if not isinstance(value, str):
            raise CertificateError(f"{here} is {value!r:.40}: expected a rational 'p/q'")
        return [Fraction(value)]
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != shape[0]:
        raise CertificateError(f"{here} is {value!r:.40}: expected {shape[0]} entries")
    return [number for entry in value for number in _flat(entry, shape[1:], here)]


def _outside(
    theorem: Theorem, sizes: Mapping[str, int], symbols: Mapping[str, Sequence[Fraction]]
) -> str:
    """Why a witness is outside the claim's domain, if it is."""
    for dim, least in theorem.dims.items():
        if sizes.get(dim, least) < least:
            return f"the witness has {dim} = {sizes[dim]}: claims are made from {least}"
    if "pi" in symbols:
        return "the witness gives pi a value, and it has its own"
    for name in theorem.positive & set(symbols):
        if symbols[name][0] <= 0:
            return f"the witness has {name} = {symbols[name][0]}: it stands for a positive number"
    return ""


def _element(at: Evaluator, row: Row, index: Sequence[int]) -> Fraction:
    """The element of a row at values of the free indices, the last of which is index 0."""
    position = sum(stride * index[-1 - axis[0]] for axis, stride in at.strides(row.axes))
    value: Fraction = row.data[position]
    return value
