"""Writing statements: expressions with names, and the formulas of `verify.norms` read as algebra.

Here an index has a name; a term is closed when the statement is made, and from then on indices are
de Bruijn indices. Nothing here is trusted: what is proved is the closed term, and `verify prove`
prints it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import count
from typing import Any, NoReturn

from verify.symbolic.trusted import Claim, OutsideLanguageError, Setting, Term, num

_serial = count()


@dataclass(frozen=True)
class Index:
    """A named index over a dimension; no two are the same, whatever they are called."""

    dim: str
    serial: int = field(default_factory=lambda: next(_serial))


def lift(value: Any) -> Expression:
    """An expression as it is, an int or a fraction as a number; a float is refused."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, (int, Fraction)) and not isinstance(value, bool):
        return Expression(num(value))
    raise OutsideLanguageError(f"{value!r} is no exact number: expected an int or a Fraction")


class _Incomparable:
    """What has neither an order nor a truth value: a branch on it would silently take one side."""

    def _refused(self, *_: Any) -> NoReturn:
        raise OutsideLanguageError(
            "a comparison (a max, a min, a clamp, an abs, an if on values) is outside the "
            "language: expected + - * /, square roots, sums over an index and functions known by "
            "name"
        )

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __abs__ = _refused
    __hash__ = object.__hash__


@dataclass(frozen=True, eq=False)
class Expression(_Incomparable):
    """A term under construction, with + - * / and with named indices still free in it."""

    term: Term

    def _of(self, op: str, left: Any, right: Any) -> Any:
        if isinstance(left, Blocks) or isinstance(right, Blocks):
            return NotImplemented
        return Expression(Term.make(op, lift(left).term, lift(right).term))

    def __add__(self, other: Any) -> Any:
        return self._of("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._of("add", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._of("mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._of("mul", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._of("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._of("div", other, self)

    def __neg__(self) -> Expression:
        return Expression(Term.make("mul", num(-1), self.term))

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Blocks) else self + -lift(other)

    def __rsub__(self, other: Any) -> Any:
        return lift(other) + -self

    def at(self, old: Index, new: Index) -> Expression:
        """The same expression with another index in the place of ``old``."""
        return Expression(_replaced(self.term, old, lambda _: new, {}))


def _replaced(
    t: Term,
    old: Index,
    new: Callable[[int], Any],
    seen: dict[tuple[Term, int], Term],
    depth: int = 0,
) -> Term:
    """The term with ``new(depth)`` for the named index ``old``, below ``depth`` binders."""
    if (t, depth) not in seen:
        inner = depth + (len(t.data) if t.op == "lam" else t.op == "sum")
        args = (_replaced(a, old, new, seen, inner) for a in t.args)
        data = t.data
        if t.op in ("at", "fun"):
            data = (data[0], tuple(new(depth) if k == old else k for k in data[1]))
        seen[t, depth] = Term.make(t.op, *args, data=data)
    return seen[t, depth]


def open_index(term: Term) -> Index | None:
    """A named index that is still free in the term, if there is one."""
    met, waiting = {term}, [term]
    while waiting:
        t = waiting.pop()
        if t.op in ("at", "fun"):
            for k in t.data[1]:
                if isinstance(k, Index):
                    return k
        waiting += (new := set(t.args) - met)
        met |= new
    return None


def closed(term: Term, *indices: Index) -> Term:
    """The term with the named indices bound from outside, the last one as de Bruijn index 0."""
    for above, index in enumerate(reversed(indices)):
        term = _replaced(term, index, partial(int.__add__, above), {})
    return term


def total(index: Index, body: Any) -> Expression:
    """The sum of ``body`` over the index."""
    return Expression(Term.make("sum", closed(lift(body).term, index), data=index.dim))


def sqrt(value: Any) -> Expression:
    """The positive square root."""
    return Expression(Term.make("sqrt", lift(value).term))


def array(body: Any, *indices: Index) -> Expression:
    """An array over the indices, as an argument of a function."""
    dims = tuple(index.dim for index in indices)
    return Expression(Term.make("lam", closed(lift(body).term, *indices), data=dims))


def apply(name: str, *arguments: Any, at: Sequence[Index] = ()) -> Expression:
    """f(arguments), a function known by name; ``at`` selects an element if it gives an array."""
    terms = (lift(a).term for a in arguments)
    return Expression(Term.make("fun", *terms, data=(name, tuple(at))))


def derivative(body: Any, symbol: str, direction: str) -> Expression:
    """The directional derivative with respect to a symbol along another of the same shape."""
    return Expression(Term.make("diff", lift(body).term, data=(symbol, direction)))


@dataclass(frozen=True, eq=False)
class Blocks(_Incomparable):
    """A row in blocks, such as (z, -sum z): one expression for each, numbers broadcast."""

    parts: tuple[Expression, ...]

    def _with(self, other: Any, op: Callable[[Any, Any], Any]) -> Blocks:
        others = _blocks_of(other, len(self.parts))
        return Blocks(tuple(op(a, b) for a, b in zip(self.parts, others, strict=True)))

    def __neg__(self) -> Blocks:
        return Blocks(tuple(-part for part in self.parts))

    def __add__(self, other: Any) -> Blocks:
        return self._with(other, lambda a, b: a + b)

    def __radd__(self, other: Any) -> Blocks:
        return self._with(other, lambda a, b: b + a)

    def __sub__(self, other: Any) -> Blocks:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Blocks:
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Blocks:
        return self._with(other, lambda a, b: a * b)

    def __rmul__(self, other: Any) -> Blocks:
        return self._with(other, lambda a, b: b * a)

    def __truediv__(self, other: Any) -> Blocks:
        return self._with(other, lambda a, b: a / b)

    def __rtruediv__(self, other: Any) -> Blocks:
        return self._with(other, lambda a, b: b / a)


def _blocks_of(row: Any, count: int) -> tuple[Any, ...]:
    """The blocks of a row; one value stands for all of them."""
    parts = row.parts if isinstance(row, Blocks) else (row,) * count
    if len(parts) != count:
        raise OutsideLanguageError(f"a row in {len(parts)} blocks: expected {count}, as beside it")
    return parts


@dataclass(frozen=True)
class RowArithmetic:
    """The arithmetic that reads the body of a formula as algebra (see `verify.formula.Arithmetic`).

    A row is one expression in the element's index, or `Blocks` of which each has its index, or
    None for a block of one element. ``states`` gives the closed form of a fold: what the state of
    the whole row is, to be proved by the theorem that uses it.
    """

    indices: tuple[Index | None, ...]
    states: Mapping[str, Callable[[RowArithmetic, Any], tuple[Any, ...]]] = field(
        default_factory=dict
    )

    def number(self, value: int | Fraction) -> Expression:
        return lift(value)

    def length(self, row: Any) -> Expression:
        lengths = [Expression(Term.make("dim", data=i.dim)) if i else lift(1) for i in self.indices]
        return _sum_of(lengths)

    def sum(self, row: Any) -> Expression:
        pairs = zip(self.indices, _blocks_of(row, len(self.indices)), strict=True)
        return _sum_of([total(i, part) if i else lift(part) for i, part in pairs])

    def sum_rows(self, rows: Any) -> Any:
        """The contribution of one row: the gradient of a sum of losses is the sum of gradients."""
        return rows

    def sqrt(self, value: Any) -> Any:
        return self._each(sqrt, value)

    def fold(self, leaves: tuple[Any, ...], merge: Callable[..., tuple[Any, ...]]) -> Any:
        name = getattr(merge, "__name__", type(merge).__name__)
        if name not in self.states:
            known = ", ".join(sorted(self.states)) or "no fold at all"
            raise OutsideLanguageError(
                f"a fold with '{name}' has no closed form here: expected {known}"
            )
        return self.states[name](self, leaves)

    def cast(self, value: Any, point: str) -> Any:
        return value

    def tanh(self, value: Any) -> Any:
        return self._each(lambda a: apply("tanh", a), value)

    def erf(self, value: Any) -> Any:
        return self._each(lambda a: apply("erf", a), value)

    def exp(self, value: Any) -> Any:
        return self._each(lambda a: apply("exp", a), value)

    def pi(self) -> Expression:
        return Expression(Term.make("sym", data="pi"))

    def _each(self, function: Callable[[Any], Expression], value: Any) -> Any:
        if isinstance(value, Blocks):
            return Blocks(tuple(map(function, value.parts)))
        return function(value)


def _sum_of(values: Sequence[Expression]) -> Expression:
    """The sum of one or more expressions."""
    first, *rest = values
    for value in rest:
        first = first + value
    return first


@dataclass
class Statement:
    """Declares symbols and collects the claims of one theorem."""

    dims: dict[str, int] = field(default_factory=lambda: {"n": 1})
    symbols: dict[str, tuple[str, ...]] = field(default_factory=dict)
    positive_symbols: set[str] = field(default_factory=set)
    claims: list[Claim] = field(default_factory=list)

    @property
    def setting(self) -> Setting:
        """The dimensions, shapes and positive symbols declared so far."""
        return Setting(dict(self.dims), dict(self.symbols), frozenset(self.positive_symbols))

    def dimension(self, name: str, least: int = 1) -> Expression:
        """Declares a dimension of at least ``least`` >= 1; returns it as a number."""
        if type(least) is not int or least < 1:
            raise OutsideLanguageError(f"dimension '{name}' from {least!r}: expected an int >= 1")
        self._check_new(name, self.symbols)
        self.dims[name] = least
        return Expression(Term.make("dim", data=name))

    def index(self, dim: str = "n") -> Index:
        """A fresh index over a dimension that is declared."""
        if dim not in self.dims:
            known = ", ".join(self.dims)
            raise OutsideLanguageError(f"no dimension '{dim}': expected one of {known}")
        return Index(dim)

    def numbers(self, names: str, *, positive: bool = False) -> list[Expression]:
        """Declares scalar symbols, separated by blanks."""
        self._declare(names.split(), ())
        self.positive_symbols |= set(names.split()) if positive else set()
        return [Expression(Term.make("sym", data=name)) for name in names.split()]

    def arrays(self, names: str, *indices: Index) -> list[Expression]:
        """Declares indexed symbols; returns their elements at the indices."""
        self._declare(names.split(), tuple(i.dim for i in indices))
        return [Expression(Term.make("at", data=(name, indices))) for name in names.split()]

    def _declare(self, names: Iterable[str], shape: tuple[str, ...]) -> None:
        for name in names:
            self._check_new(name, {**self.dims, **self.symbols})
            self.symbols[name] = shape

    def _check_new(self, name: str, known: Mapping[str, Any]) -> None:
        if name in known:
            raise OutsideLanguageError(f"'{name}' is declared twice: expected another name")

    def equal(self, name: str, *steps: tuple[str, Any], free: Iterable[Index] = ()) -> None:
        """Claims that all steps have one value, for every value of the free indices."""
        self._claim("equal", name, steps, tuple(free))

    def at_least(self, name: str, *steps: tuple[str, Any], free: Iterable[Index] = ()) -> None:
        """Claims that the first step is >= 0: all steps are equal, and the last shows it."""
        self._claim("at_least", name, steps, tuple(free))

    def differ(
        self, name: str, left: Any, right: Any, *, free: Iterable[Index] = (), **witness: Any
    ) -> None:
        """Claims that left = right is false, at dims={..}, values={..} and index=(..).

        A dimension that is not given has its least value.
        """
        exact = {name: _numbers(value) for name, value in witness.pop("values", {}).items()}
        index, dims = tuple(witness.pop("index", ())), self.dims | witness.pop("dims", {})
        if witness:
            raise TypeError(f"differ() got {', '.join(witness)}: expected dims, values and index")
        witness = {"dims": dims, "values": exact, "index": index}
        self._claim("differ", name, (("left", left), ("right", right)), tuple(free), witness)

    def _claim(
        self, kind: str, name: str, steps: Any, free: tuple[Index, ...], witness: Any = None
    ) -> None:
        if name in [claim.name for claim in self.claims]:
            raise OutsideLanguageError(f"two claims are called '{name}': expected another name")
        terms = tuple((label, closed(lift(value).term, *free)) for label, value in steps)
        for label, term in terms:
            if index := open_index(term):
                raise OutsideLanguageError(
                    f"claim '{name}', step '{label}': an index over '{index.dim}' is bound by "
                    "nothing: expected it in free=[..] or under a sum"
                )
        self.claims.append(Claim(kind, name, tuple(i.dim for i in free), terms, witness))


def _numbers(value: Any) -> Any:
    """The numbers of a witness as fractions, in lists for a symbol with indices."""
    if isinstance(value, (list, tuple)):
        return [_numbers(v) for v in value]
    number = lift(value).term
    if number.op != "num":
        raise OutsideLanguageError(f"a witness with '{number.op}': expected ints or Fractions")
    return number.data
