"""Terms written out at concrete dimensions: one variable for each coordinate, sums as sums."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

from verify.symbolic.checkers.flint_scale import Scales
from verify.symbolic.checkers.flint_terms import Problem
from verify.symbolic.checkers.flint_values import Field, Key, Value


def coordinate(name: str, indices: Sequence[int]) -> str:
    """The variable of one element of a symbol."""
    return "_".join((name, *map(str, indices)))


class Evaluation:
    """The values of terms at ``dims``; ``env[k]`` is the value of de Bruijn index k."""

    def __init__(
        self, problem: Problem, scales: Scales, dims: Mapping[str, int], terms: Sequence[int]
    ) -> None:
        """Room for the symbols and functions that ``terms`` mention."""
        self.problem, self.scales, self.dims = problem, scales, dims
        self.table = problem.table
        reached = self.table.reachable(terms)
        names = sorted({self.table.nodes[t][1] for t in reached if self._is_symbol(t)})
        variables = [coordinate(s, place) for s in names for place in self._places(s)]
        positive = [s for s in names if s in problem.positive]
        calls = sum(self._count(t) for t in reached if self.table.nodes[t][0] == "fun")
        self.field = Field(variables, positive, calls)
        self.calls: dict[Key, int] = {}  # ("fun", term, indices) -> its variable
        self._known: dict[tuple[int, tuple[int, ...]], Value] = {}

    def _is_symbol(self, t: int) -> bool:
        return self.table.nodes[t][0] in ("sym", "at")

    def _places(self, symbol: str) -> list[tuple[int, ...]]:
        shape = self.problem.symbols[symbol]
        return list(itertools.product(*(range(self.dims[n]) for n in shape)))

    def _count(self, t: int) -> int:
        """At most so many instances of a function term."""
        most = max(self.dims.values(), default=1)
        count = 1
        for dim in self.table.uses[t].values():
            count *= self.dims.get(dim, most)
        return count

    def value(self, t: int, env: tuple[int, ...]) -> Value:
        """The value of t; raises NowhereDefinedError where t has no value at all."""
        key = (t, self.place(t, env))
        if key not in self._known:
            self._known[key] = self._value(t, env)
        return self._known[key]

    def place(self, t: int, env: tuple[int, ...]) -> tuple[int, ...]:
        """The values of the indices that t mentions."""
        return tuple(env[k] for k in sorted(self.table.uses[t]))

    def _value(self, t: int, env: tuple[int, ...]) -> Value:
        field = self.field
        match self.table.nodes[t]:
            case ("num", value):
                return field.constant(value)
            case ("dim", n):
                return field.constant(self.dims[n])
            case ("sym", name):
                return field.variable(name)
            case ("at", name, indices):
                return field.variable(coordinate(name, [env[k] for k in indices]))
            case ("sum", n, body):
                total = field.zero
                for i in range(self.dims[n]):
                    total = field.add(total, self.value(body, (i, *env)))
                return total
            case ("sqrt", a):
                key = ("root", t, self.place(t, env))
                return field.root(self.value(a, env), key, self._scale(a))
            case ("fun", name, selected, arguments):
                return self._call(t, name, tuple(env[k] for k in selected), arguments, env)
            case (op, a, b):
                return self._operation(op)(self.value(a, env), self.value(b, env))
        raise AssertionError(f"term {t} is no scalar")

    def _operation(self, op: str) -> Callable[[Value, Value], Value]:
        field = self.field
        if op == "div":
            return lambda a, b: field.mul(a, field.inverse(b))
        return field.add if op == "add" else field.mul

    def _scale(self, radicand: int) -> list[tuple[Key, Value, int]]:
        return [
            (key, self.field.constant(self.scales.at(value, self.dims)), exponent)
            for key, value, exponent in self.scales.of(radicand)
        ]

    def _call(
        self,
        t: int,
        name: str,
        selected: tuple[int, ...],
        arguments: Sequence[int],
        env: tuple[int, ...],
    ) -> Value:
        entries = tuple(tuple(self._entries(a, env)) for a in arguments)
        made = self.field.function(name, selected, entries)
        self.calls["fun", t, self.place(t, env)] = made.generator
        return self.field.variable(self.field.names[made.generator])

    def _entries(self, argument: int, env: tuple[int, ...]) -> list[Value]:
        """All entries of an array argument, or the one of a scalar."""
        node = self.table.nodes[argument]
        if node[0] != "lam":
            return [self.value(argument, env)]
        places = itertools.product(*(range(self.dims[n]) for n in node[1]))
        return [self.value(node[2], (*reversed(place), *env)) for place in places]
