"""LaTeX of terms, claims and theorems, for notebooks and certificates.

Nothing here is trusted: what is proved is the term. But a reader believes what is written, so two
terms of one claim are written alike only if they are the same up to the associativity of + and of
products, where -1 times 2 is the number -2. An index is named after its dimension, the same letter
never for two dimensions; a sum reaches as far as a product does. Parts of a long claim that occur
in several places get names, listed once after "where"; a name stands for its formula, and under a
derivative it is no constant.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

from verify.symbolic.latex_terms import (
    GREEK,
    LETTERS,
    Key,
    Name,
    Names,
    Scope,
    Writer,
    binders,
    escaped,
    key_of,
    latex_of,
    number,
    parts_of,
)
from verify.symbolic.theorem import Theorem, theorem_named
from verify.symbolic.trusted import Claim, Setting, Term, num

__all__ = [
    "Display",
    "claim_latex",
    "latex_of",
    "setting_latex",
    "show",
    "theorem_html",
    "theorem_markdown",
    "written",
]

# --- where -----------------------------------------------------------------------------------

# Lengths are estimates: about one for each sign that is read.
FULL = 90  # a claim without a longer step is written in full
LONG = 12  # from here on, a part that occurs in several places gets a name
LONGEST = 150  # a longer step or part gives names to its longest parts, if they occur once
_COST = {"at": 2, "sum": 6, "div": 4, "sqrt": 4, "fun": 4, "diff": 6}
_HEADS = {  # what a part is, and the letters for it, by preference
    "mean": (r"\mu", r"\nu"),
    "variance": ("v", "V"),
    "square": ("q", "Q"),
    "rstd": ("r", "R", r"\rho"),
    "root": (r"\sigma", r"\varsigma"),
    "part": ("s", "u", "c", "S"),
}


@cache
def _size(t: Term) -> int:
    """The length of a term in full, which may be more than a memory holds."""
    return _COST.get(t.op, 1) + sum(map(_size, t.args))


@cache
def _children(key: Key) -> tuple[Key, ...]:
    """The parts one step below that may have names: not -a, and not a - mean(a), but a, mean(a)."""
    t, dims = key
    return tuple(key_of(part, dims + binders(t)) for a in t.args for part in _within(a))


def _within(t: Term) -> list[Term]:
    if _is_negative(t):
        return _within(t.args[1])
    if t.op == "add" and _is_negative(t.args[1]) and _what(t.args[1].args[1]) == "mean":
        return [*_within(t.args[0]), t.args[1].args[1]]
    return [t]


def _is_negative(t: Term) -> bool:
    return t.op == "mul" and t.args[0] is num(-1)


def _in_order(roots: Iterable[Key]) -> list[Key]:
    """All parts, each after its own parts."""
    found: dict[Key, None] = {}

    def visit(key: Key) -> None:
        if key not in found:
            for child in _children(key):
                visit(child)
            found[key] = None

    for root in roots:
        visit(root)
    return list(found)


def _parts_to_name(roots: Sequence[Key]) -> list[Key]:
    """The parts that get names, each after those in it."""
    order = _in_order(roots)
    parents = Counter(child for key in order for child in set(_children(key)))
    chosen, length = set[Key](), dict[Key, int]()
    for key in order:
        length[key] = _length(key, chosen, length)
        while length[key] > LONGEST and (part := _longest(key, chosen, length)):
            chosen.add(part)
            length[key] = _length(key, chosen, length)
        wanted = parents[key] > 1 or _what(key[0]) == "rstd"
        if wanted and length[key] >= LONG and key[0].op != "lam" and key not in roots:
            chosen.add(key)
    return [key for key in order if key in chosen]


def _length(key: Key, chosen: Container[Key], length: Mapping[Key, int]) -> int:
    """The length of a part in which the chosen ones are names."""
    parts = (2 if child in chosen else length[child] for child in _children(key))
    return _COST.get(key[0].op, 1) + sum(parts)


def _longest(key: Key, chosen: Container[Key], length: Mapping[Key, int]) -> Key | None:
    """The longest part that has no name yet; an array has none, but what is in it."""
    parts = [child for child in _children(key) if child not in chosen and length[child] >= LONG]
    part = max(parts, key=length.__getitem__, default=None)
    return _longest(part, chosen, length) if part and part[0].op == "lam" else part


def _what(t: Term) -> str:
    """Which of the usual quantities a part looks like."""
    if t.op == "div" and all(s.op in ("dim", "num", "add", "mul") for s in parts_of(t.args[1])):
        squares = [_summed(s) for s in _flat(t.args[0])]
        if all(s.op == "mul" and s.args[0] is s.args[1] for s in squares):
            return "variance" if squares[0].args[0].op == "add" else "square"
        return "mean" if any(s.op == "sum" for s in _flat(t.args[0])) else "part"
    varies = any(s.op == "sum" for s in parts_of(t))
    if t.op == "div" and t.args[0] is num(1) and t.args[1].op == "sqrt" and varies:
        return "rstd"
    return "root" if t.op == "sqrt" else "part"


def _summed(t: Term) -> Term:
    return _summed(t.args[0]) if t.op == "sum" else t


def _flat(t: Term) -> list[Term]:
    return [s for a in t.args for s in _flat(a)] if t.op == "add" else [t]


def _with_names(names: Names, roots: Sequence[Key]) -> Writer:
    """A writer that has names for parts, if a step is long."""
    parts = _parts_to_name(roots) if max(_size(t) for t, _ in roots) > FULL else []
    kinds, named = [_what(t) for t, _ in parts], dict[Key, Name]()
    for n, (key, kind) in enumerate(zip(parts, kinds, strict=True)):
        candidates = (*_HEADS[kind], *(rf"\math{font}{{{kind}}}" for font in ("rm", "sf", "tt")))
        head = next(h for h in candidates if not names.is_taken(h))
        number = (str(kinds[: n + 1].count(kind)),) if kinds.count(kind) > 1 else ()
        named[key] = Name(head, number)
    return Writer(names, named)


# --- claims ----------------------------------------------------------------------------------


class Written(NamedTuple):
    """The formulas of a claim: (relation, formula, name) of each step, (name, formula) of each
    part that has a name, and for which indices, or at which numbers, it is claimed.
    """

    steps: list[tuple[str, str, str]]
    where: list[tuple[str, str]]
    scope: str


def written(claim: Claim, setting: Setting) -> Written:
    """The formulas of a claim, with names for parts if it is long."""
    names = Names.made([t for _, t in claim.steps], setting)
    roots = [key_of(t, claim.free) for _, t in claim.steps]
    writer = _with_names(names, roots)
    scope, differ = writer.under((), claim.free), claim.kind == "differ"
    formulas = [_unnamed(writer, t, scope) for _, t in claim.steps]
    relations = ["", *[r"\ne" if differ else "="] * (len(formulas) - 1)]
    labels = ["" if differ else name for name, _ in claim.steps]
    steps = list(zip(relations, formulas, labels, strict=True))
    steps += [(r"\geq", "0", "")] if claim.kind == "at_least" else []
    where = []
    for (t, dims), name in writer.named.items():
        own = writer.under((), dims)
        where.append((name.with_indices([c for _, c in own]), _unnamed(writer, t, own)))
    return Written(steps, where, (_witness if differ else _ranges)(claim, names, scope))


def _unnamed(writer: Writer, t: Term, scope: Scope) -> str:
    """The term in full, though it may have a name elsewhere; its parts by their names."""
    key = key_of(t, [dim for dim, _ in scope])
    named = {k: name for k, name in writer.named.items() if k != key}
    return replace(writer, named=named).write(t, scope)


def _ranges(claim: Claim, names: Names, scope: Scope) -> str:
    """What the free indices range over."""
    groups = {dim: [c for outer, c in scope if outer == dim] for dim in claim.free}
    texts = [rf"{', '.join(c)} \leq {names.text('dim', dim)}" for dim, c in groups.items()]
    return r"\text{for all } " + r",\ ".join(texts) if texts else ""


def _witness(claim: Claim, names: Names, scope: Scope) -> str:
    """The numbers at which two sides differ; indices count from 1."""
    dims, values, index = (claim.witness[part] for part in ("dims", "values", "index"))
    texts = [f"{names.text('dim', dim)} = {size}" for dim, size in dims.items()]
    texts += [f"{names.text('sym', name)} = {_value(value)}" for name, value in values.items()]
    texts += [f"{c} = {k + 1}" for (_, c), k in zip(scope, index, strict=True)]
    return r"\text{at } " + r",\ ".join(texts)


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_value, value))})"
    return number(Fraction(value))


def _label(text: str) -> str:
    """The name of a step: words, with what is above and below the line; safe in a web page."""
    text = re.sub(r"<([^<>\s=][^<>]*)>", "\u27e8\\1\u27e9", text)
    greek = rf"\b(?:{GREEK}|eps)\b"
    above_or_below = r"\^[A-Za-z0-9]+|\b[A-Za-z]{1,4}_[A-Za-z0-9]+\b"
    parts = re.split(rf"({greek}|{above_or_below}|[^\w\s.,:;()=+*/'\"-]|_)", text)
    return "".join(_sign(p) if n % 2 else p and rf"\text{{{p}}}" for n, p in enumerate(parts))


def _sign(part: str) -> str:
    """A part of a label that is no plain text."""
    known = {"^T": r"{}^{\top}", "\u27e8": r"\langle ", "\u27e9": r"\rangle ", "|": r"\vert "}
    known |= {name: rf"{letter} " for name, letter in LETTERS.items()}
    if part in known or len(part) == 1:
        return known.get(part) or escaped(part)
    base, mark, rest = re.split(r"([_^])", part, maxsplit=1)
    return (rf"\text{{{base}}}" if base else "{}") + rf"{mark}{{\text{{{rest}}}}}"


def claim_latex(claim: Claim, setting: Setting) -> str:
    """A claim as an aligned block: its steps, each with its name, and names of parts below."""
    steps, where, scope = written(claim, setting)
    lines = [
        f"{relation and relation + '{}'}& {formula}" + (label and rf" && {_label(label)}")
        for relation, formula, label in steps
    ]
    rows = [_aligned(lines)]
    if where:
        derived = any(part.op == "diff" for _, t in claim.steps for part in parts_of(t))
        word = "where, differentiated with the rest," if derived else "where"
        rows.append(rf"\text{{{word}}}\quad " + _aligned([f"{a} &= {b}" for a, b in where]))
    rows += [scope] if scope else []
    return "\\begin{array}{l}\n" + " \\\\[1.5ex]\n".join(rows) + "\n\\end{array}"


def _aligned(lines: Iterable[str]) -> str:
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"


def setting_latex(setting: Setting) -> str:
    """What the symbols are: n >= 1, x in R^n, eps > 0."""
    names, kinds = Names.made([], setting), dict[str, list[str]]()
    for symbol, shape in setting.symbols.items():
        space = r" \times ".join(names.text("dim", dim) for dim in shape)
        sign = " > 0" if symbol in setting.positive else ""
        where = rf" \in \mathbb{{R}}^{{{space}}}" if shape and not sign else sign
        kinds.setdefault(where or r" \in \mathbb{R}", []).append(names.text("sym", symbol))
    dims = [rf"{names.text('dim', dim)} \geq {least}" for dim, least in setting.dims.items()]
    return r",\ ".join([*dims, *(", ".join(group) + where for where, group in kinds.items())])


# --- theorems --------------------------------------------------------------------------------


def theorem_markdown(theorem: Theorem) -> str:
    """A theorem for a notebook: statement, hypotheses, citation, and the proof folded away."""
    claims = [
        f"**{_plain(c.name)}**\n\n$$\n{claim_latex(c, theorem.setting)}\n$$" for c in theorem.claims
    ]
    about = [f"*Assumed:* {_plain('; '.join(theorem.hypotheses))}"] if theorem.hypotheses else []
    return "\n\n".join(
        [
            f"**{_plain(theorem.name)}.** {_plain(theorem.summary)}",
            f"$$\n{theorem.statement}\n$$",
            f"*Here* ${setting_latex(theorem.setting)}$.",
            *about,
            f"*Source:* {_plain(theorem.citation)}",
            f"<details><summary>Proof: {len(claims)} claims</summary>",
            *claims,
            "</details>",
        ]
    )


def _plain(text: str) -> str:
    """Words without a meaning in Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>$|~#&])", r"\\\1", text)


def theorem_html(theorem: Theorem) -> str:
    """A theorem for a page, its formulas between brackets with a backslash."""
    words = html.escape

    def formula(latex: str) -> str:
        return rf"<p>\[{words(latex)}\]</p>"

    hypotheses = "".join(f"<li>{words(h)}</li>" for h in theorem.hypotheses)
    claims = (
        f"<h4>{words(c.name)}</h4>{formula(claim_latex(c, theorem.setting))}"
        for c in theorem.claims
    )
    return (
        f"<section><h3>{words(theorem.name)}</h3><p>{words(theorem.summary)}</p>"
        f"{formula(theorem.statement)}{formula(setting_latex(theorem.setting))}"
        f"<ul>{hypotheses}</ul><p>{words(theorem.citation)}</p><details><summary>Proof: "
        f"{len(theorem.claims)} claims</summary>{''.join(claims)}</details></section>"
    )


@dataclass(frozen=True, repr=False)
class Display:
    """A theorem as Jupyter shows it."""

    theorem: Theorem

    def __repr__(self) -> str:
        return f"<{self.theorem.name}: {self.theorem.summary}>"

    def _repr_markdown_(self) -> str:
        return theorem_markdown(self.theorem)

    def _repr_latex_(self) -> str:
        claims = (claim_latex(claim, self.theorem.setting) for claim in self.theorem.claims)
        return "\n\n".join(f"$$\n{latex}\n$$" for latex in (self.theorem.statement, *claims))


def show(theorem: Theorem | str) -> Display:
    """A theorem, or the one of that name, for display; raises UnknownTheoremError."""
    return Display(theorem_named(theorem) if isinstance(theorem, str) else theorem)
