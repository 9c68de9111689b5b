"""Checking a certificate again, from the file alone: neither the prover nor a theorem is loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verify.finding import Verdict
from verify.symbolic.checkers.answer import (
    Answer,
    Certificate,
    CertificateError,
    Checker,
    verdict_of,
)
from verify.symbolic.checkers.seals import SCHEMA, broken_seals

LARGEST_LEAST = 16  # of a dimension: claims are written out at that size and a little more


def checkers(*, rocq: bool = False) -> tuple[Checker, ...]:
    """Every checker of certificates, whether its tool is here or not; Rocq takes a while."""
    from verify.symbolic.checkers import finite_field, flint_explicit, z3_cutoff

    found = flint_explicit.CHECKER, finite_field.CHECKER, z3_cutoff.CHECKER
    if not rocq:
        return found
    from verify.symbolic.checkers.rocq import CHECKER

    return *found, CHECKER


@dataclass(frozen=True)
class Opinion:
    """A checker's verdict on one certificate: *skipped* with the reason, or what its answers say.

    ``doubts`` are (claim, step, why) for the steps that it did not prove.
    """

    verdict: Verdict
    reason: str = ""
    doubts: tuple[tuple[str, str, str], ...] = ()


def opinion(checker: Checker, content: Certificate) -> Opinion:
    """What a checker says of a certificate.

    Raises
    ------
    CertificateError
        if the certificate cannot be read.
    """
    if reason := checker.missing():
        return Opinion(Verdict.SKIPPED, reason)
    answers = checker.check(content)
    doubts = [answer for answer in answers if answer.verdict is not Verdict.PROVED]
    return Opinion(verdict_of(answers), doubts=tuple(map(_words, doubts)))


def _words(answer: Answer) -> tuple[str, str, str]:
    return answer.claim, answer.step, f"{answer.verdict}: {answer.reason}"


def load(path: Path) -> Certificate:
    """The certificate in a file, its seals whole.

    Raises
    ------
    CertificateError
        in one line: the file holds no certificate, or a step was changed after it was sealed.
    OSError
        if the file cannot be opened.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_twins)
    except (ValueError, RecursionError) as error:
        raise CertificateError(
            f"'{path}' holds no JSON ({' '.join(str(error).split())[:80]}): expected a certificate "
            "that `verify prove` wrote"
        ) from None
    if (
        not isinstance(content, Mapping)
        or content.get("schema") != SCHEMA
        or "terms" not in content
    ):
        raise CertificateError(
            f"'{path}' is no certificate of schema {SCHEMA}: expected one that `verify prove` wrote"
        )
    try:
        broken = broken_seals(content)
        sensible = _is_sensible(content)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CertificateError(
            f"'{path}' is no whole certificate ({type(error).__name__}): expected one that "
            "`verify prove` wrote"
        ) from None
    if broken:
        raise CertificateError(f"'{path}' was changed after it was sealed: {_named(*broken[0])}")
    if not sensible:
        raise CertificateError(
            f"'{path}' has a name that is not in capitals, or a dimension that does not start "
            f"between 1 and {LARGEST_LEAST}: expected a certificate that `verify prove` wrote"
        )
    return content


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are there once: readers differ on which of two counts."""
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a key stands there twice")
    return dict(pairs)


def _is_sensible(content: Certificate) -> bool:
    """A name that can be printed, and dimensions at which a claim can be written out."""
    named = re.fullmatch("[A-Z0-9_]{1,100}", content["name"]) is not None
    least = content["dims"].values()
    return named and all(type(n) is int and 1 <= n <= LARGEST_LEAST for n in least)


def _named(claim: str, step: str) -> str:
    if not claim:
        return "in the words or declarations around the steps; make it again with `verify prove`"
    return f"step '{step}' of claim '{claim}'; make it again with `verify prove`"
