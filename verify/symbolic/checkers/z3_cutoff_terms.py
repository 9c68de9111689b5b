"""Certificates as tables of terms, for the z3 checker: reading, and derivatives by rewriting.

Every term is stored once, so that equal terms have equal numbers. A derivative is a term again:
the rules of calculus build it, and nothing is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

from verify.symbolic.checkers.answer import Certificate, CertificateError

Entry: TypeAlias = tuple[Any, ...]
ARITY = {"num": 1, "dim": 1, "sym": 1, "at": 2, "sum": 2, "add": 2, "mul": 2, "div": 2, "sqrt": 1}
ARITY |= {"fun": 3, "lam": 2, "diff": 3}
KINDS = ("equal", "at_least", "differ")


class Claim(NamedTuple):
    """Steps are (name, term); a claim that two terms differ has two, and a witness."""

    kind: str
    name: str
    free: tuple[str, ...]
    steps: tuple[tuple[str, int], ...]
    witness: Mapping[str, Any]


def expect(condition: object, message: str) -> None:
    """Raise CertificateError with the message unless the condition holds."""
    if not condition:
        raise CertificateError(message)


class Table:
    """The terms of a certificate without "diff"; raises CertificateError on what is none."""

    def __init__(self, certificate: Certificate) -> None:
        schema = certificate.get("schema")
        expect(schema == 1, f"schema is {schema!r:.40}, expected 1")
        for key in ("dims", "symbols", "positive", "terms", "claims"):
            expect(key in certificate, f"the certificate has no '{key}'")
        self.dims: dict[str, int] = dict(certificate["dims"])
        self.symbols = {str(s): tuple(dims) for s, dims in certificate["symbols"].items()}
        self.positive = tuple(certificate["positive"])
        for dim, least in self.dims.items():
            number: Any = least
            expect(
                isinstance(number, int) and number > 0,
                f"dim '{dim}' starts at {least!r}, expected >= 1",
            )
        for s, dims in self.symbols.items():
            expect(
                not set(s) & set("[!("), f"symbol '{s:.40}': expected no '[', '!' or '(' in a name"
            )
            expect(
                all(d in self.dims for d in dims), f"symbol '{s}' has dims {dims}, not all declared"
            )
        for s in self.positive:
            expect(
                self.symbols.get(s) == (), f"'{s}' is called positive, but is no declared scalar"
            )
        self.entries: list[Entry] = []
        self.numbers: dict[Entry, int] = {}
        self.slopes: dict[tuple[int, str, str], int | None] = {}
        self.deepest: dict[int, int] = {}
        written: list[int] = []
        for place, term in enumerate(certificate["terms"]):
            written.append(self.read(place, term, written))
        self.claims = [self.claim(entry, written) for entry in certificate["claims"]]

    # --- reading ---------------------------------------------------------------------------------

    def read(self, place: int, term: Any, written: list[int]) -> int:
        here = f"term {place}"
        listed = isinstance(term, (list, tuple)) and len(term) > 0
        expect(listed and isinstance(term[0], str), f"{here} is {term!r:.60}, expected [op, ...]")
        op, rest = term[0], term[1:]
        expect(
            op in ARITY,
            f"{here}: '{op:.40}' is outside the language, expected one of {', '.join(ARITY)}",
        )
        expect(
            len(rest) == ARITY[op], f"{here}: '{op}' has {len(rest)} operands, expected {ARITY[op]}"
        )

        def child(number: Any, *, array: bool = False) -> int:
            good = type(number) is int and 0 <= number < place
            expect(good, f"{here}: child {number!r:.20} is no earlier term")
            found: int = written[number]
            expect(array or self.entries[found][0] != "lam", f"{here}: a 'lam' outside 'fun'")
            return found

        match op:
            case "num":
                return self.add("num", self.rational(here, rest[0]))
            case "dim":
                return self.add("dim", self.dim(here, rest[0]))
            case "sym" | "at":
                return self.add("at", *self.element(here, op, rest))
            case "sum":
                return self.add("sum", self.dim(here, rest[0]), child(rest[1]))
            case "lam":
                return self.add("lam", tuple(self.dim(here, d) for d in rest[0]), child(rest[1]))
            case "fun":
                expect(
                    isinstance(rest[0], str), f"{here}: function {rest[0]!r:.40}, expected a name"
                )
                arguments = tuple(child(a, array=True) for a in rest[2])
                return self.add("fun", rest[0], self.indices(here, rest[1]), arguments)
            case "diff":
                body, x, h = child(rest[0]), rest[1], rest[2]
                expect(
                    x in self.symbols and h in self.symbols,
                    f"{here}: {x!r} or {h!r} is not declared",
                )
                expect(
                    self.symbols[x] == self.symbols[h], f"{here}: '{x}' and '{h}' have two shapes"
                )
                slope = self.slope(body, x, h)
                return self.number(0) if slope is None else slope
        return self.add(op, *(child(c) for c in rest))

    def rational(self, here: str, text: Any) -> Fraction:
        expect(isinstance(text, str), f"{here}: number {text!r:.40}, expected a string 'p/q'")
        try:
            return Fraction(text)
        except (ValueError, ZeroDivisionError):
            raise CertificateError(f"{here}: number {text!r:.40}, expected 'p/q'") from None

    def dim(self, here: str, name: Any) -> str:
        expect(name in self.dims, f"{here}: {name!r} is no declared dimension")
        return str(name)

    def indices(self, here: str, ks: Any) -> tuple[int, ...]:
        good = all(type(k) is int and k >= 0 for k in ks)
        expect(good, f"{here}: indices {ks!r:.40}, expected de Bruijn indices")
        return tuple(ks)

    def element(self, here: str, op: str, rest: Any) -> tuple[str, tuple[int, ...]]:
        name, ks = rest[0], self.indices(here, rest[1]) if op == "at" else ()
        expect(name in self.symbols, f"{here}: {name!r} is no declared symbol")
        expect(op == "sym" or ks, f"{here}: 'at' without indices, expected 'sym'")
        dims = self.symbols[name]
        expect(
            len(ks) == len(dims), f"{here}: '{name}' with {len(ks)} indices, expected {len(dims)}"
        )
        return name, ks

    def claim(self, entry: Any, written: list[int]) -> Claim:
        kind, name, free = entry.get("kind"), str(entry.get("name")), tuple(entry.get("free", ()))
        expect(
            kind in KINDS, f"claim '{name}' is of kind {kind!r:.40}, expected {', '.join(KINDS)}"
        )
        expect(all(d in self.dims for d in free), f"claim '{name}': free {free}, not all declared")
        steps = entry.get("steps", [])
        if kind == "differ":
            steps = [("left", entry.get("left")), ("right", entry.get("right"))]
        expect(len(steps) > (kind != "at_least"), f"claim '{name}' has {len(steps)} steps, too few")
        for step, term in steps:
            good = type(term) is int and 0 <= term < len(written)
            expect(good, f"claim '{name}', step '{step}': {term!r:.20} is no term")
            found = written[term]
            expect(self.entries[found][0] != "lam", f"claim '{name}', step '{step}': an array")
            expect(
                self.depth(found) < len(free), f"claim '{name}', step '{step}': an index is unbound"
            )
        named = tuple((str(step), written[term]) for step, term in steps)
        return Claim(kind, name, free, named, entry.get("witness") or {})

    # --- terms -----------------------------------------------------------------------------------

    def add(self, *entry: Any) -> int:
        """The number of a term, the same for the same term."""
        if entry not in self.numbers:
            self.numbers[entry] = len(self.entries)
            self.entries.append(entry)
        return self.numbers[entry]

    def number(self, value: int) -> int:
        return self.add("num", Fraction(value))

    def parts(self, t: int) -> Iterable[tuple[int, int]]:
        """(child, number of indices that are bound around it)."""
        match self.entries[t]:
            case ("sum", _, body):
                return [(body, 1)]
            case ("lam", dims, body):
                return [(body, len(dims))]
            case ("fun", _, _, arguments):
                return [(a, 0) for a in arguments]
            case ("add" | "mul" | "div", a, b):
                return [(a, 0), (b, 0)]
            case ("sqrt", a):
                return [(a, 0)]
        return []

    def depth(self, t: int) -> int:
        """The largest index that nothing in the term binds, or a negative number."""
        if t not in self.deepest:
            own = self.entries[t][2] if self.entries[t][0] in ("at", "fun") else ()
            below = (self.depth(child) - bound for child, bound in self.parts(t))
            self.deepest[t] = max((*own, *below), default=-1)
        return self.deepest[t]

    def mentions(self, t: int, symbol: str) -> bool:
        """Whether a symbol occurs in a term."""
        seen: set[int] = set()
        waiting = [t]
        while waiting:
            node = waiting.pop()
            if self.entries[node][:2] == ("at", symbol):
                return True
            if node not in seen:
                seen.add(node)
                waiting += [child for child, _ in self.parts(node)]
        return False

    # --- derivatives -----------------------------------------------------------------------------

    def slope(self, t: int, x: str, h: str) -> int | None:
        """The derivative of a term with respect to x along h; None if it is 0."""
        key = (t, x, h)
        if key not in self.slopes:
            self.slopes[key] = self.new_slope(t, x, h)
        return self.slopes[key]

    def new_slope(self, t: int, x: str, h: str) -> int | None:
        def along(part: int) -> int | None:
            return self.slope(part, x, h)

        match self.entries[t]:
            case ("at", name, ks):
                return self.add("at", h, ks) if name == x else None
            case ("sum", dim, body):
                return self.built(along(body), lambda s: self.add("sum", dim, s))
            case ("add", a, b):
                return self.total(along(a), along(b))
            case ("mul", a, b):
                left = self.built(along(a), lambda s: self.add("mul", s, b))
                return self.total(left, self.built(along(b), lambda s: self.add("mul", a, s)))
            case ("div", a, b):
                lost = self.built(along(b), lambda s: self.minus(self.add("mul", t, s)))
                return self.built(self.total(along(a), lost), lambda s: self.add("div", s, b))
            case ("sqrt", a):
                twice = self.add("mul", self.number(2), t)
                return self.built(along(a), lambda s: self.add("div", s, twice))
            case ("fun", name, _, arguments) if any(self.mentions(a, x) for a in arguments):
                scalar = len(arguments) == 1 and self.entries[arguments[0]][0] != "lam"
                expect(
                    scalar,
                    f"the derivative of '{name}' is outside the language, expected one scalar",
                )
                prime = self.prime(t)
                return self.built(along(arguments[0]), lambda s: self.add("mul", prime, s))
        return None

    def built(self, slope: int | None, build: Callable[[int], int]) -> int | None:
        return None if slope is None else build(slope)

    def total(self, a: int | None, b: int | None) -> int | None:
        if a is None or b is None:
            return b if a is None else a
        return self.add("add", a, b)

    def minus(self, a: int) -> int:
        return self.add("mul", self.number(-1), a)

    def prime(self, t: int) -> int:
        """f'(a) of the term f(a)."""
        _, name, ks, (a,) = self.entries[t]
        match name:
            case "tanh":
                return self.add("add", self.number(1), self.minus(self.add("mul", t, t)))
            case "exp":
                return t
            case "erf":
                expect("pi" in self.positive, "erf' needs the positive scalar symbol 'pi'")
                root = self.add("sqrt", self.add("at", "pi", ()))
                bell = self.add("fun", "exp", (), (self.minus(self.add("mul", a, a)),))
                return self.add("mul", self.add("div", self.number(2), root), bell)
        return self.add("fun", f"{name}'", ks, (a,))

    # --- signs -----------------------------------------------------------------------------------

    def is_non_negative(self, t: int) -> bool:
        """Whether a term is >= 0 from its shape: squares, roots, dims, positive symbols."""
        match self.entries[t]:
            case ("num", value):
                return bool(value >= 0)
            case ("dim", _) | ("sqrt", _):
                return True
            case ("at", name, ks):
                return not ks and name in self.positive
            case ("sum", _, body):
                return self.is_non_negative(body)
            case ("mul", a, b) if a == b:
                return True
            case ("add" | "mul" | "div", a, b):
                return self.is_non_negative(a) and self.is_non_negative(b)
        return False
