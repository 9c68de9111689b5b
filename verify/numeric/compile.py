"""Fast truth: the traced body compiled to loops over balls.

`generate` writes one numba function per (formula, input width, tier): a loop per level of row
sums, one for the elements. Nobody writes a fast norm by hand. It writes balls; `rounding` turns
them into a format. Two tiers share the generator:

* **filter**: row numbers are double-double balls, elements are float64 balls (h, e). Cheap; its
  radius is about 2^-51 of the terms, and an element whose ball holds no rounding boundary of the
  target is decided.
* **full**: everything is a double-double ball (h, l, e). For float64 targets and for what the
  filter leaves open.

The radius is derived by the same walk that writes the operations (docs/truth.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numba
import numpy as np

from verify.formula import Formula, Kind
from verify.numeric import balls
from verify.numeric.tree import Node, trace, walk

LANES = {"filter": 4, "full": 2}
SUPPORTED = frozenset(
    [
        "input",
        "number",
        "length",
        "pi",
        "add",
        "sub",
        "mul",
        "div",
        "sqrt",
        "sum",
        "sum_rows",
        "fold",
        "fold_part",
        "place",
    ]
)


class NotCompilableError(ValueError):
    """The body uses an operation that has no double-double form."""


@dataclass(frozen=True)
class Ball:
    """Names of the parts of a generated value; absent parts are exactly zero.

    ``bits`` is the width of an exact significand (None when rounded); ``total`` names a radius
    of the high part alone, for row numbers.
    """

    h: str
    l: str | None = None
    e: str | None = None
    bits: int | None = None
    total: str | None = None

    @property
    def parts(self) -> str:
        """Arguments for a function of a ball."""
        return f"{self.h}, {self.l or '0.0'}, {self.e or '0.0'}"

    @property
    def spread(self) -> str | None:
        """A radius around the high part alone."""
        if self.total or not self.l:
            return self.total or self.e
        return f"(abs({self.l}) + {self.e})" if self.e else f"abs({self.l})"

    @property
    def exact(self) -> bool:
        return self.l is None and self.e is None


class Writer:
    """The source of one kernel, written by walking the tree."""

    def __init__(self, formula: Formula, bits: int, tier: str) -> None:
        self.formula, self.bits, self.tier = formula, bits, tier
        self.parts = "he" if tier == "filter" else "hle"
        self.roots = trace(formula)
        self.lanes = LANES[tier]
        self.lines: list[str] = []
        self.row_numbers: dict[Node, Ball] = {}
        uses = Counter(a for n in walk(*self.roots) for a in n.args)
        self.used_once = {n for n, count in uses.items() if count == 1}
        unknown = {n.op for n in walk(*self.roots)} - SUPPORTED
        if unknown:
            raise NotCompilableError(f"{formula.id} uses {sorted(unknown)}")

    # --- text ---------------------------------------------------------------------------------

    def put(self, indent: int, text: str) -> None:
        self.lines.append("    " * indent + text)

    def source(self) -> str:
        self._header()
        levels = sorted({n.level for n in walk(*self.roots) if n.op in ("sum", "fold")})
        for level in levels:
            self._reductions(level)
        self._elements()
        return "\n".join(self.lines)

    @property
    def row_roots(self) -> list[int]:
        return [k for k, o in enumerate(self.formula.outputs) if o.kind is Kind.ROW]

    @property
    def column_roots(self) -> list[int]:
        return [k for k, o in enumerate(self.formula.outputs) if o.kind is Kind.FEATURE]

    def _header(self) -> None:
        names = [f"in_{p.name}" for p in self.formula.parameters]
        outs = [f"out{k}_{part}" for k in self.row_roots for part in self.parts]
        sums = [f"col{k}_{part}" for k in self.column_roots for part in "hcea"]
        self.put(0, f"def kernel({', '.join([*names, *outs, *sums])}):")
        rows = [p.name for p in self.formula.parameters if p.kind is Kind.ROW]
        self.put(1, f"n, d = in_{rows[0]}.shape")
        self.put(1, "length = float64(d)")
        self.put(1, "for i in range(n):")
        for p in self.formula.parameters:
            if p.kind is Kind.ROW:
                self.put(2, f"row_{p.name} = in_{p.name}[i]")
            elif p.kind is Kind.FEATURE:
                self.put(2, f"row_{p.name} = in_{p.name}[i % in_{p.name}.shape[0]]")
        for name in outs:
            self.put(2, f"row_{name} = {name}[i]")
        for k in self.column_roots:
            for part in "hcea":
                self.put(2, f"row_col{k}_{part} = col{k}_{part}[i % col{k}_{part}.shape[0]]")

    # --- row numbers --------------------------------------------------------------------------

    def row_number(self, node: Node) -> Ball:
        """The double-double ball of a node that does not vary along the row."""
        if node not in self.row_numbers:
            ball = self._row_number(node)
            if not ball.exact and ball.total is None:
                total = f"t{node.number}"
                self.put(2, f"{total} = abs({ball.l or '0.0'}) + {ball.e or '0.0'}")
                ball = Ball(ball.h, ball.l, ball.e, None, total)
            self.row_numbers[node] = ball
        return self.row_numbers[node]

    def _row_number(self, node: Node) -> Ball:
        if node.op == "input":
            kind = self.formula.parameter(node.payload).kind  # type: ignore[union-attr]
            index = "[i, 0]" if kind is Kind.ROW_NUMBER else ""
            return Ball(f"in_{node.payload}{index}", bits=53)
        if node.op == "length":
            return Ball("length", bits=53)
        if node.op == "pi":
            return Ball(repr(np.pi), repr(balls.PI_LOW), repr(2.0**-104))
        if node.op == "number":
            return self._constant(node)
        return self._operation(2, node, [self.row_number(a) for a in node.args])

    def _constant(self, node: Node) -> Ball:
        top, bottom = node.payload.numerator, node.payload.denominator
        if float(node.payload) == node.payload:
            return Ball(repr(float(node.payload)), bits=max(abs(top).bit_length(), 1))
        if max(abs(top), bottom) >= 2**53:
            raise NotCompilableError(f"constant {node.payload} is too long")
        return self._call(
            2, "div", str(node.number), [Ball(repr(float(top))), Ball(repr(float(bottom)))]
        )

    def _operation(self, indent: int, node: Node, args: list[Ball], suffix: str = "") -> Ball:
        return self._call(indent, node.op, f"{node.number}{suffix}".replace("-", "m"), args)

    def _call(self, indent: int, op: str, name: str, args: list[Ball]) -> Ball:
        """One operation on double-double balls, its result under ``name``."""
        self.put(indent, f"h{name}, l{name}, e{name} = {op}({', '.join(a.parts for a in args)})")
        return Ball(f"h{name}", f"l{name}", f"e{name}")

    # --- values that vary along the row ---------------------------------------------------------

    def element(self, indent: int, node: Node, j: str, suffix: str, made: dict[Node, Ball]) -> Ball:
        """The ball of ``node`` at element ``j``, written where it is first needed."""
        if not node.by_element:
            return self.row_numbers[node]
        if node not in made:
            made[node] = self._element(indent, node, j, suffix, made)
        return made[node]

    def _element(
        self, indent: int, node: Node, j: str, suffix: str, made: dict[Node, Ball]
    ) -> Ball:
        if node.op == "input":
            name = f"v{node.number}{suffix}"
            self.put(indent, f"{name} = float64(row_{node.payload}[{j}])")
            return Ball(name, bits=self.bits)
        if node.op == "mul":
            return self._product(indent, node, j, suffix, made)
        args = [self.element(indent, a, j, suffix, made) for a in node.args]
        if node.op == "div" and not node.args[1].by_element:
            return self._multiply(indent, node, args[0], self._reciprocal(node.args[1]), suffix)
        if self.tier == "full":
            return self._operation(indent, node, args, suffix)
        return self._filtered(indent, node, args, suffix)

    def _factors(self, node: Node) -> list[Node]:
        """The factors of a product whose inner products nobody else needs."""
        out: list[Node] = []
        for a in node.args:
            inner = a.op == "mul" and a.by_element and a in self.used_once
            out.extend(self._factors(a) if inner else [a])
        return out

    def _product(
        self, indent: int, node: Node, j: str, suffix: str, made: dict[Node, Ball]
    ) -> Ball:
        """A product over the reals may be taken in any order: exact factors first."""
        factors = [self.element(indent, f, j, suffix, made) for f in self._factors(node)]
        factors.sort(key=lambda b: (not b.exact, b.total is not None))
        ball = factors[0]
        for k, factor in enumerate(factors[1:]):
            ball = self._multiply(indent, node, ball, factor, f"{suffix}_{k}")
        return ball

    def _multiply(self, indent: int, node: Node, a: Ball, b: Ball, suffix: str) -> Ball:
        name = f"{node.number}{suffix}p"
        if a.bits and b.bits and a.bits + b.bits <= 53:
            self.put(indent, f"h{name} = {a.h} * {b.h}")
            return Ball(f"h{name}", bits=a.bits + b.bits)
        if self.tier == "full":
            return self._call(indent, "mul", name, [a, b])
        self.put(indent, f"h{name} = {a.h} * {b.h}")
        spread = self._product_radius(a, b)
        self.put(indent, f"e{name} = {spread}U * abs(h{name}) + ETA")
        return Ball(f"h{name}", None, f"e{name}")

    @staticmethod
    def _product_radius(a: Ball, b: Ball) -> str:
        """|a| eb + |b| ea + ea eb, without the terms that are exactly zero."""
        ea, eb = a.spread, b.spread
        terms = [f"abs({a.h}) * {eb}" if eb else "", f"abs({b.h}) * {ea}" if ea else ""]
        terms.append(f"{ea} * {eb}" if ea and eb else "")
        return "".join(f"{t} + " for t in terms if t)

    def _reciprocal(self, node: Node) -> Ball:
        return self.row_numbers[self.reciprocals[node]]

    @property
    def reciprocals(self) -> dict[Node, Node]:
        """1/s for every row number s that an element is divided by."""
        one = self.roots[0].tree.number(1)
        return {
            n.args[1]: one / n.args[1]
            for n in walk(*self.roots)
            if n.op == "div" and n.by_element and not n.args[1].by_element
        }

    def _filtered(self, indent: int, node: Node, args: list[Ball], suffix: str) -> Ball:
        """One operation of the filter tier: a float64 value and its radius."""
        name = f"{node.number}{suffix}"
        if node.op in ("add", "sub"):
            return self._filtered_sum(indent, name, "+" if node.op == "add" else "-", *args)
        ball = self._call(indent, node.op, name, args)
        self.put(indent, f"e{name} += abs(l{name})")
        return Ball(ball.h, None, ball.e)

    def _filtered_sum(self, indent: int, name: str, sign: str, a: Ball, b: Ball) -> Ball:
        h = f"h{name}"
        if a.exact and b.exact:
            self.put(indent, f"{h}, l{name} = two_sum({a.h}, {sign}{b.h})")
            return Ball(h, f"l{name}")
        self.put(indent, f"{h} = {a.h} {sign} {b.h}")
        radius = [f"U * abs({h})"]
        for part, mark in ((a.l, "+"), (b.l, sign)):
            if part:
                self.put(indent, f"{h}r = {h} {mark} {part}")
                h = f"{h}r"
                radius.append(f"U * abs({h})")
        radius += [e for e in (a.e, b.e) if e]
        self.put(indent, f"e{name} = {' + '.join(radius)}")
        return Ball(h, None, f"e{name}")

    # --- reductions -------------------------------------------------------------------------------

    def _prepare(self, roots: list[Node]) -> None:
        """Write the row numbers that these elements will use."""
        inverse = self.reciprocals
        for root in roots:
            for node in walk_along_row(root):
                for a in node.args:
                    if not a.by_element:
                        self.row_number(a)
                    if a in inverse and node.op == "div":
                        self.row_number(inverse[a])

    def _reductions(self, level: int) -> None:
        at_level = [n for n in walk(*self.roots) if n.level == level]
        sums = [n for n in at_level if n.op == "sum"]
        self._prepare([n.args[0] for n in sums])
        if sums:
            self._sum_loops(sums)
        for fold in (n for n in at_level if n.op == "fold"):
            self._fold_loop(fold)

    def _sum_loops(self, sums: list[Node]) -> None:
        for node in sums:
            for part in self._sum_parts(node):
                self.put(
                    2, " = ".join(f"{part}{node.number}_{k}" for k in range(self.lanes)) + " = 0.0"
                )
        self.put(2, f"m = d // {self.lanes} * {self.lanes}")
        self.put(2, f"for jj in range(0, m, {self.lanes}):")
        for k in range(self.lanes):
            self._accumulate(3, sums, f"jj + {k}", k)
        self.put(2, "for j in range(m, d):")
        self._accumulate(3, sums, "j", 0)
        for node in sums:
            self._close_sum(node)

    def _sum_parts(self, node: Node) -> str:
        return "scek" if node.args[0].is_nonnegative else "sceka"

    def _accumulate(self, indent: int, sums: list[Node], j: str, lane: int) -> None:
        made: dict[Node, Ball] = {}
        for node in sums:
            ball = self.element(indent, node.args[0], j, f"_{lane}", made)
            s, c = f"s{node.number}_{lane}", f"c{node.number}_{lane}"
            self.put(indent, f"{s}, carry = two_sum({s}, {ball.h})")
            self.put(indent, f"{c} += carry + {ball.l}" if ball.l else f"{c} += carry")
            low = f" + abs({ball.l})" if ball.l else ""
            self.put(indent, f"k{node.number}_{lane} += abs(carry){low}")
            if ball.e:
                self.put(indent, f"e{node.number}_{lane} += {ball.e}")
            if "a" in self._sum_parts(node):
                self.put(indent, f"a{node.number}_{lane} += abs({ball.h})")

    def _close_sum(self, node: Node) -> None:
        """Merge the lanes; compensation loses at most compensation_loss times sum |terms|."""
        n = node.number
        parts = self._sum_parts(node)
        for k in range(1, self.lanes):
            self.put(2, f"s{n}_0, carry = two_sum(s{n}_0, s{n}_{k})")
            self.put(2, f"c{n}_0 += carry + c{n}_{k}")
            self.put(2, f"k{n}_0 += abs(carry)")
        total = {
            p: " + ".join(f"{p}{n}_{k}" for k in range(self.lanes)) for p in parts if p in "eka"
        }
        self.put(2, f"h{n}, l{n} = two_sum(s{n}_0, c{n}_0)")
        size = f"({total['a']})" if "a" in total else f"abs(h{n})"
        loss = f"compensation_loss(d // {self.lanes} + {2 * self.lanes})"
        # nothing was carried: nothing was lost, as in the sum of a constant row
        self.put(2, f"loss = {loss} * {size} if {total['k']} != 0.0 else 0.0")
        self.put(2, f"e{n} = ({total['e']}) * accumulated(d) + loss")
        self.put(2, f"t{n} = abs(l{n}) + e{n}")
        self.row_numbers[node] = Ball(f"h{n}", f"l{n}", f"e{n}", None, f"t{n}")

    def _fold_loop(self, fold: Node) -> None:
        """A fold in the order of the elements; all of it in double-double."""
        places, merged = fold.payload
        width = len(fold.args)
        self._prepare([a for a in fold.args if a.by_element])
        for a in fold.args:
            if not a.by_element:
                self.row_number(a)
        state = [f"f{fold.number}_{k}" for k in range(width)]
        for name in state:
            self.put(2, f"{name}h = {name}l = {name}e = 0.0")
        tier, self.tier = self.tier, "full"
        self.put(2, "for j in range(d):")
        made: dict[Node, Ball] = {}
        leaves = [self.element(3, a, "j", "f", made) for a in fold.args]
        self.put(3, "if j == 0:")
        self._assign(4, state, leaves)
        self.put(3, "else:")
        held = [Ball(f"{s}h", f"{s}l", f"{s}e") for s in state]
        values: dict[Node, Ball] = dict(zip(places, [*held, *leaves], strict=True))
        for node in walk(*merged):
            if node not in values:
                values[node] = self._operation(4, node, [values[a] for a in node.args], "g")
        self._assign(4, state, [values[m] for m in merged])
        self.tier = tier
        for part in (n for n in walk(*self.roots) if n.op == "fold_part" and n.args[0] is fold):
            name = state[part.payload]
            self.put(2, f"{name}e *= accumulated(256 * d)")
            self.put(2, f"t{part.number} = abs({name}l) + {name}e")
            self.row_numbers[part] = Ball(
                f"{name}h", f"{name}l", f"{name}e", None, f"t{part.number}"
            )

    def _assign(self, indent: int, state: list[str], values: list[Ball]) -> None:
        left = ", ".join(f"{s}{part}" for s in state for part in "hle")
        self.put(indent, f"{left} = {', '.join(v.parts for v in values)}")

    # --- outputs --------------------------------------------------------------------------------

    def _elements(self) -> None:
        roots = [r.args[0] if r.op == "sum_rows" else r for r in self.roots]
        self._prepare(roots)
        for root in roots:
            if not root.by_element:
                self.row_number(root)
        self.put(2, "for j in range(d):")
        made: dict[Node, Ball] = {}
        for k, root in enumerate(roots):
            ball = self.element(3, root, "j", "", made)
            if k in self.column_roots:
                self._column(k, ball)
            else:
                self._store(k, ball)

    def _column(self, k: int, ball: Ball) -> None:
        """One more term of a parameter gradient, with its radius and its magnitude."""
        col = f"row_col{k}"
        self.put(3, f"{col}_h[j], carry = two_sum({col}_h[j], {ball.h})")
        self.put(3, f"{col}_c[j] += carry + {ball.l or '0.0'}")
        self.put(3, f"{col}_e[j] += {ball.e or '0.0'}")
        self.put(3, f"{col}_a[j] += abs({ball.h})")

    def _store(self, k: int, ball: Ball) -> None:
        """The ball of one output element; the filter tier has no low part."""
        high, low, radius = ball.h, ball.l or "0.0", ball.e or "0.0"
        if self.tier == "filter" and ball.l:
            # exact sums are rounded to odd: rounding that again to at most 51 bits is right
            odd = f"to_odd({high}, {low})"
            high, radius = (high, ball.spread or "0.0") if ball.e else (odd, "0.0")
        for part, text in {"h": high, "l": low, "e": radius}.items():
            if part in self.parts:
                self.put(3, f"row_out{k}_{part}[j] = {text}")


def walk_along_row(root: Node) -> list[Node]:
    """The nodes below ``root`` that vary along the row, without entering row sums."""
    seen: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node.by_element and node not in seen:
            seen[node] = None
            for a in node.args:
                visit(a)

    visit(root)
    return list(seen)


@numba.njit
def compensation_loss(n: int) -> float:
    """TAU(n): a compensated sum of n terms errs by at most TAU(n) times the sum of |terms|."""
    return 8.0 * (n + 2.0) * (n + 2.0) * balls.U2


@numba.njit
def accumulated(n: int) -> float:
    """What makes good the rounding of n additions of radii, one after the other."""
    return 1.0 + n * (2.0 * balls.U)


def generate(formula: Formula, bits: int, tier: str) -> str:
    """The source of one kernel.

    ``bits``: significand width of the inputs (24 for float32 and narrower, 53 for float64).
    ``tier``: "filter" or "full".
    """
    return Writer(formula, bits, tier).source()


def compiled(formula: Formula, bits: int, tier: str) -> Callable[..., None]:
    """The kernel, ready for arrays; compiled on first use, shared by equal sources."""
    return _compiled_source(generate(formula, bits, tier))


@lru_cache(maxsize=256)
def _compiled_source(source: str) -> Callable[..., None]:
    names = {name: getattr(balls, name) for name in dir(balls) if not name.startswith("_")}
    names |= {"compensation_loss": compensation_loss, "accumulated": accumulated}
    names |= {"float64": np.float64}
    # the text is ours, written from the traced body
    exec(compile(source, "<fast truth>", "exec"), names)  # noqa: S102
    kernel: Callable[..., None] = numba.njit(error_model="numpy", nogil=True)(names["kernel"])
    return kernel
