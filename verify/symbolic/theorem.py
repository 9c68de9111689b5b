"""A theorem: what it says in words and LaTeX, who said it, where it is used, and its claims."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import TypeAlias

from verify.symbolic.language import Statement
from verify.symbolic.trusted import Claim, Setting


class UnknownTheoremError(ValueError):
    """No theorem has that name."""


@dataclass(frozen=True)
class Theorem:
    """Claims for every dimension, with the words that a reader needs.

    ``statement`` is LaTeX; ``hypotheses`` are sentences; ``used_in`` says what rests on it;
    ``true_siblings`` names mutations that are true all the same, each with its reason.
    """

    name: str
    summary: str
    statement: str
    hypotheses: tuple[str, ...]
    citation: str
    used_in: tuple[str, ...]
    setting: Setting
    claims: tuple[Claim, ...]
    true_siblings: Mapping[str, str] = field(default_factory=dict)


Body: TypeAlias = Callable[[Statement], None]
_BODIES: dict[str, Callable[[], Theorem]] = {}


def theorem(
    *,
    statement: str,
    citation: str,
    used_in: tuple[str, ...],
    hypotheses: tuple[str, ...] = (),
    true_siblings: Mapping[str, str] | None = None,
) -> Callable[[Body], Body]:
    """Registers a function that states a theorem, under the function's name in capitals.

    The function's docstring is the summary, one sentence.
    """

    def register(body: Body) -> Body:
        @wraps(body, assigned=("__module__",))
        def made() -> Theorem:
            about = Statement()
            body(about)
            summary = " ".join((body.__doc__ or "").split())
            words = (body.__name__.upper(), summary, statement, hypotheses, citation, used_in)
            return Theorem(*words, about.setting, tuple(about.claims), dict(true_siblings or {}))

        name = body.__name__.upper()
        if name in _BODIES and _BODIES[name].__module__ != body.__module__:
            raise ValueError(f"theorem '{name}' is stated twice: expected another name")
        _BODIES[name] = made
        return body

    return register


def theorem_names() -> list[str]:
    """The names of all theorems, in the order in which they are stated, always the same."""
    import verify.symbolic.theorems  # noqa: F401 - importing registers them

    return list(_BODIES)


def theorem_named(name: str) -> Theorem:
    """The theorem of that name; raises UnknownTheoremError, naming the near ones."""
    names = theorem_names()
    if name.upper() in names:
        return _BODIES[name.upper()]()
    near = difflib.get_close_matches(name.upper(), names, n=3, cutoff=0.4)
    near += [n for n in names if name.upper() in n and n not in near][:3]
    expected = f"one of {', '.join(near)}" if near else "a name that `verify prove --list` prints"
    raise UnknownTheoremError(f"unknown theorem {name!r}: expected {expected}")
