"""A check: a plain function from a subject to findings, with the words that explain it.

To add one, write a generator of findings and decorate it:

    @check("sign", title="Odd symmetry", why="...", derivation="...")
    def check_sign(subject: Subject, about: Check) -> Iterator[Finding]:
        ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from verify.finding import Finding, Verdict

if TYPE_CHECKING:
    from verify.audit.subject import Subject

Function = Callable[["Subject", "Check"], Iterator[Finding]]


@dataclass(frozen=True)
class Check:
    """One check: ``title`` says what is checked, ``why`` why it matters, ``derivation`` whence the
    bound comes. ``backward``: it needs a gradient.
    """

    id: str
    title: str
    why: str
    derivation: str
    function: Function = field(compare=False)
    citation: str = ""
    backward: bool = False
    centred: bool = False  # only for norms that subtract the mean

    def finding(self, subject: Subject, verdict: Verdict, message: str, **more: Any) -> Finding:
        """A finding of this check about a subject."""
        words = {"citation": self.citation, "why": self.why, "derivation": self.derivation}
        return Finding(
            kernel=subject.kernel.name,
            check=self.id,
            format=subject.format,
            verdict=verdict,
            message=message,
            run_on=subject.kernel.run_on,
            **{**words, **more},
        )


CHECKS: dict[str, Check] = {}


def check(id: str, **words: Any) -> Callable[[Function], Function]:
    """Register a function as a check, in the order of the definitions."""

    def register(function: Function) -> Function:
        CHECKS[id] = Check(id=id, function=function, **words)
        return function

    return register
