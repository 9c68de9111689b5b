"""LaTeX of terms: names of symbols and indices, and what is written with how few parentheses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from verify.symbolic.trusted import OutsideLanguageError, Setting, Term, num

# --- names -----------------------------------------------------------------------------------

GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|"
    "upsilon|phi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Upsilon|Phi|Psi|Omega"
)
LETTERS = {"weight": r"\gamma", "bias": r"\beta", "eps": r"\varepsilon"}
LETTERS |= {name: f"\\{name}" for name in GREEK.split("|")}
_FUNCTIONS = {name: f"\\{name}" for name in ("tanh", "exp", "log", "sin", "cos")}
_INDICES = {"m": "kl", "tokens": "ts", "experts": "e", "heads": "h", "hidden": "h"}
_INDICES |= {"vocabulary": "v"}
_SPECIAL = {"\\": r"\backslash ", "^": r"\wedge ", "~": r"\sim ", " ": r"\ ", "-": r"\text{-}"}


class Name(NamedTuple):
    """A letter or a word, and what stands below it beside indices."""

    head: str
    below: tuple[str, ...] = ()

    def with_indices(self, letters: Sequence[str] = ()) -> str:
        """The name with indices below it."""
        below = ",".join([*self.below, "".join(letters)] if letters else self.below)
        return f"{self.head}_{{{below}}}" if below else self.head


def escaped(text: str) -> str:
    """Any text, each character visible as itself in a formula."""
    special = {c: f"\\{c}" for c in "_&%#${}"} | _SPECIAL
    return "".join(special.get(c, c) for c in text)


def _pretty(kind: str, name: str) -> Name:
    """The usual way to write a name: a letter, or an upright word; x_last has `last` below."""
    head, *below = re.sub(r"(?<=[A-Za-z])(?=\d+$)", "_", name).split("_")
    if not all((head, *below)):
        return Name(rf"\mathrm{{{escaped(name)}}}")
    word = "operatorname" if kind == "fun" else "mathrm"
    usual = _FUNCTIONS.get(head) if kind == "fun" else None
    usual = usual or LETTERS.get(head) or (head if re.fullmatch("[A-Za-z]", head) else None)
    if re.fullmatch("d[a-z]", head):  # dy, the gradient that comes in
        usual = rf"\mathrm{{d}}{head[1]}"
    labels = (b if b.isdigit() else rf"\mathrm{{{escaped(b)}}}" for b in below)
    return Name(usual or rf"\{word}{{{escaped(head)}}}", tuple(labels))


@dataclass
class Names:
    """Different ways to write all dimensions, symbols and functions, and letters for indices."""

    of: dict[tuple[str, str], Name] = field(default_factory=dict)
    letters: dict[str, list[str]] = field(default_factory=dict)

    @staticmethod
    def made(terms: Iterable[Term], setting: Setting) -> Names:
        """Names for what is declared and for what occurs."""
        names, uses = Names(), dict.fromkeys(chain.from_iterable(map(_uses, terms)))
        declared = [("dim", d) for d in setting.dims] + [("sym", s) for s in setting.symbols]
        for kind, name in dict.fromkeys([*declared, *sorted(uses)]):
            full = escaped(name)
            spare = [Name(rf"\math{font}{{{full}}}") for font in ("rm", "sf", "tt")]
            free = (c for c in (_pretty(kind, name), *spare) if c not in names.of.values())
            names.of[kind, name] = next(free)
        names._share_letters([name for kind, name in names.of if kind == "dim"])
        return names

    def _share_letters(self, dims: list[str]) -> None:
        """Letters for the indices of each dimension that nothing else has."""
        for dim in sorted(dims, key=lambda d: d not in _INDICES):
            pool = _INDICES.get(dim, "ijkl" if dim == "n" else "") + "ijklpqabcuwxyz"
            free = [c for c in dict.fromkeys(pool) if not self.is_taken(c)]
            wanted = len(_INDICES.get(dim, "ijkl"))
            self.letters[dim] = free[:wanted] or [rf"\iota_{{{escaped(dim)}}}"]

    def is_taken(self, head: str) -> bool:
        """Whether the letter already means something."""
        taken = {name.head for name in self.of.values()}
        return head in taken or any(head in letters for letters in self.letters.values())

    def text(self, kind: str, name: str, letters: Sequence[str] = ()) -> str:
        """A dimension, a symbol or a function, with indices below it."""
        return self.of[kind, name].with_indices(letters)

    def index(self, dim: str, number: int) -> str:
        """The letter of the ``number``-th enclosing index of that dimension; i, j, ..., i', ..."""
        letters = self.letters[dim]
        return letters[number % len(letters)] + "'" * (number // len(letters))


def _uses(term: Term) -> set[tuple[str, str]]:
    """The (kind, name) pairs of a term."""
    found: set[tuple[str, str]] = set()
    for t in parts_of(term):
        match t.op:
            case "dim" | "sum":
                found.add(("dim", t.data))
            case "lam":
                found |= {("dim", dim) for dim in t.data}
            case "sym":
                found.add(("sym", t.data))
            case "at":
                found.add(("sym", t.data[0]))
            case "fun":
                found.add(("fun", t.data[0].rstrip("'")))
            case "diff":
                found |= {("sym", name) for name in t.data}
    return found


def parts_of(term: Term) -> list[Term]:
    """All parts of a term, each once."""
    found, open_ = {term: None}, [term]
    while open_:
        new = [a for a in open_.pop().args if a not in found]
        found |= dict.fromkeys(new)
        open_ += new
    return list(found)


# --- parts that stand under binders, whatever surrounds them ----------------------------------

# A part with the dimensions of its own free indices; (dimension, letter) of the binders around.
Key: TypeAlias = tuple[Term, tuple[str, ...]]
Scope: TypeAlias = tuple[tuple[str, str], ...]


def binders(t: Term) -> tuple[str, ...]:
    """The dimensions that an operation binds."""
    dims: tuple[str, ...] = t.data if t.op == "lam" else (t.data,) if t.op == "sum" else ()
    return dims


@cache
def _free(t: Term) -> frozenset[int]:
    """The free de Bruijn indices of a term."""
    own, bound = t.data[1] if t.op in ("at", "fun") else (), len(binders(t))
    return frozenset(own) | {k - bound for a in t.args for k in _free(a) if k >= bound}


@cache
def _shifted(t: Term, new: tuple[tuple[int, int], ...], depth: int = 0) -> Term:
    """The term with its free indices renamed."""
    args = (_shifted(a, new, depth + len(binders(t))) for a in t.args)
    data, table = t.data, dict(new)
    if t.op in ("at", "fun"):
        indices = (k if k < depth else table[k - depth] + depth for k in data[1])
        data = (data[0], tuple(indices))
    return Term.make(t.op, *args, data=data)


def key_of(t: Term, dims: Sequence[str]) -> Key:
    """The part as it is under no binders but its own free indices'."""
    outermost_first = sorted(_free(t), reverse=True)
    new = tuple((old, len(outermost_first) - 1 - n) for n, old in enumerate(outermost_first))
    return _shifted(t, new), tuple(dims[-1 - k] for k in outermost_first)


# --- terms -----------------------------------------------------------------------------------

_SIMPLE = ("dim", "sym", "at", "fun")
_WORD = r"\\?[A-Za-z]+|\\math\w+\{[^{}]*\}"  # f, or gain: what looks like a function before (
Run: TypeAlias = tuple[Term, int]


def _parenthesised(text: str) -> str:
    """Parentheses, large ones around what is high."""
    return rf"\left({text}\right)" if re.search(r"frac|sum|sqrt|left", text) else f"({text})"


def number(value: Fraction) -> str:
    """A rational number, a fraction as a small one."""
    size = abs(value)
    text = rf"\tfrac{{{size.numerator}}}{{{size.denominator}}}" if size.denominator > 1 else size
    return f"{'-' if value < 0 else ''}{text}"


def _times(left: str, right: str) -> str:
    """What stands between two factors: a dot where nothing else would leave a doubt."""
    number = re.match(r"-?(\d|\\tfrac)", left)
    fraction = right.startswith(r"\frac")
    applied = right.startswith(("(", r"\left(")) and re.fullmatch(_WORD, left)
    mean = left.startswith(r"\frac{1}") and (right.startswith(r"\sum") or fraction)
    if re.match(r"\d|\\tfrac", right) or (number and fraction) or applied or mean:
        return r" \cdot "
    return " " if number else r"\,"


@dataclass(frozen=True)
class Writer:
    """Writes the terms of one claim; ``named`` are the parts that have names."""

    names: Names
    named: Mapping[Key, Name] = field(default_factory=dict)

    def under(self, scope: Scope, dims: Iterable[str]) -> Scope:
        """The scope below further binders."""
        for dim in dims:
            letter = self.names.index(dim, sum(dim == outer for outer, _ in scope))
            scope = (*scope, (dim, letter))
        return scope

    def name(self, t: Term, scope: Scope) -> str | None:
        """The name of a part that has one."""
        if not self.named or not t.args:
            return None
        name = self.named.get(key_of(t, [dim for dim, _ in scope]))
        return name and name.with_indices(_letters(sorted(_free(t), reverse=True), scope))

    def write(self, t: Term, scope: Scope) -> str:
        """The term without parentheses around it."""
        first, *others = (self.product(self.runs(s, scope), scope) for s in self.summands(t, scope))
        signed = (f" - {o[1:]}" if o.startswith("-") else f" + {o}" for o in others)
        return first + "".join(signed)

    def summands(self, t: Term, scope: Scope) -> list[Term]:
        """The terms of a sum of two or more."""
        if t.op != "add" or self.name(t, scope):
            return [t]
        return [s for a in t.args for s in self.summands(a, scope)]

    def runs(self, t: Term, scope: Scope) -> list[Run]:
        """The factors of a product with exponents; only equal neighbours are gathered."""
        if t.op != "mul" or self.name(t, scope):
            return [(t, 1)]
        (a, b), (left, right) = t.args, (self.runs(a, scope) for a in t.args)
        if a is b and len(left) > 1:
            return [(a, 2)]
        (end, e), (start, f) = left[-1], right[0]
        if end is start and end.op != "num":
            return [*left[:-1], (end, e + f), *right[1:]]
        return [*left, *right]

    def product(self, runs: list[Run], scope: Scope) -> str:
        """A product; from a negative number on, it is in parentheses unless that comes first."""
        if runs[0][0] is num(-1) and len(runs) > 1:
            rest = self.product(runs[1:], scope)
            return "-" + (_parenthesised(rest) if rest.startswith("-") else rest)
        text, left = "", ""
        for n, (t, exponent) in enumerate(runs):
            if n and t.op == "num" and t.data < 0:
                rest = _parenthesised(self.product(runs[n:], scope))
                return text + _times(left, rest) + rest
            right = self.factor((t, exponent), scope, last=n == len(runs) - 1)
            text += (_times(left, right) if n else "") + right
            left = right
        return text

    def factor(self, run: Run, scope: Scope, *, last: bool) -> str:
        """One factor with its exponent, in parentheses where it needs them."""
        (t, exponent), name = run, self.name(run[0], scope)
        text = name or self.atom(t, scope)
        simple = name or (t.op in _SIMPLE and not text.startswith(r"\mathrm{d}"))
        if exponent > 1:
            return f"{text if simple else _parenthesised(text)}^{{{exponent}}}"
        far = self.reaches_on(t, scope) and not last
        return _parenthesised(text) if not name and (t.op == "add" or far) else text

    def reaches_on(self, t: Term, scope: Scope) -> bool:
        """Whether a factor behind it would be read as a part of it: a sum, or a mean."""
        mean = t.op == "div" and t.args[0].op == "sum" and not self.name(t.args[0], scope)
        return (t.op == "sum" or mean) and not self.name(t, scope)

    def atom(self, t: Term, scope: Scope) -> str:
        """What an operation is written as."""
        rules: dict[str, Callable[[], str]] = {
            "num": lambda: number(t.data),
            "dim": lambda: self.names.text("dim", t.data),
            "sym": lambda: self.names.text("sym", t.data),
            "at": lambda: self.names.text("sym", t.data[0], _letters(t.data[1], scope)),
            "div": lambda: self.quotient(t, scope),
            "sqrt": lambda: rf"\sqrt{{{self.write(t.args[0], scope)}}}",
            "sum": lambda: self.sum(t, scope),
            "fun": lambda: self.function(t, scope),
            "lam": lambda: self.array(t, scope),
            "diff": lambda: self.derivative(t, scope),
        }
        return rules.get(t.op, lambda: self.write(t, scope))()

    def quotient(self, t: Term, scope: Scope) -> str:
        """A fraction; that of a sum has the sum beside it."""
        a, below = t.args[0], self.write(t.args[1], scope)
        if a.op == "sum" and not self.name(a, scope):
            return rf"\frac{{1}}{{{below}}} {self.sum(a, scope)}"
        return rf"\frac{{{self.write(a, scope)}}}{{{below}}}"

    def sum(self, t: Term, scope: Scope) -> str:
        """A sum over an index, of a product."""
        (body,), inner = t.args, self.under(scope, (t.data,))
        text, upper = self.write(body, inner), self.names.text("dim", t.data)
        if text.startswith("-") or len(self.summands(body, inner)) > 1:
            text = _parenthesised(text)
        return rf"\sum_{{{inner[-1][1]}=1}}^{{{upper}}} {text}"

    def function(self, t: Term, scope: Scope) -> str:
        """f(arguments), and the element of it."""
        name, primes = t.data[0].rstrip("'"), len(t.data[0]) - len(t.data[0].rstrip("'"))
        head = self.names.text("fun", name) + "'" * primes
        value = head + _parenthesised(", ".join(self.write(a, scope) for a in t.args))
        return Name(value).with_indices(_letters(t.data[1], scope))

    def array(self, t: Term, scope: Scope) -> str:
        """An array over its indices."""
        inner = self.under(scope, t.data)
        letters = [letter for _, letter in inner[len(scope) :]]
        return Name(_parenthesised(self.write(t.args[0], inner))).with_indices(letters)

    def derivative(self, t: Term, scope: Scope) -> str:
        """D_{x;h}[...], the derivative by x along h."""
        by, along = (self.names.text("sym", name) for name in t.data)
        return rf"\mathrm{{D}}_{{{by};{along}}}\left[{self.write(t.args[0], scope)}\right]"


def _letters(indices: Sequence[Any], scope: Scope) -> list[str]:
    """The letters of de Bruijn indices; raises OutsideLanguageError for one without a binder."""
    for k in indices:
        if not isinstance(k, int) or not 0 <= k < len(scope):
            raise OutsideLanguageError(
                f"index {k} under {len(scope)} binders: expected a closed term and, in `free`, "
                "the dimension of each free index, the outermost first"
            )
    return [scope[-1 - k][1] for k in indices]


def latex_of(term: Term, free: Sequence[str] = (), setting: Setting | None = None) -> str:
    r"""The LaTeX of a closed term, in full; ``free`` are the dimensions of its free indices.

    Raises OutsideLanguageError for an index without a binder.

    >>> latex_of(Term.make("sum", Term.make("at", data=("x", (0,))), data="n"))
    '\\sum_{i=1}^{n} x_{i}'
    """
    given = setting or Setting({}, {})
    dims = {**dict.fromkeys(free, 1), **given.dims}
    writer = Writer(Names.made([term], replace(given, dims=dims)))
    return writer.write(term, writer.under((), free))
