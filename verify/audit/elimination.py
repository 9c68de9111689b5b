"""Elimination: of all contracts that kernels keep, those that the observations do not exclude.

A contract is discarded only by proof: an output outside the set that *any* kernel keeping it may
give. A contract that guarantees nothing on some input is never discarded by that input.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.audit.case import Case
from verify.numeric import Contract, allowed

Array = NDArray[Any]
Outputs = Sequence[Array | None]


@dataclass(frozen=True, eq=False)
class Observation:
    """What a kernel gave for one case."""

    case: Case
    outputs: tuple[Array | None, ...]

    def only(self, k: int) -> Observation:
        """One output of it."""
        kept = (output if i == k else None for i, output in enumerate(self.outputs))
        return Observation(self.case, tuple(kept))


@dataclass(frozen=True, eq=False)
class Violation:
    """An output that no kernel keeping ``contract`` can give: ``got`` outside [low, high]."""

    contract: Contract
    observation: Observation
    output: int
    index: tuple[int, ...]
    got: float
    low: float
    high: float

    @property
    def case(self) -> Case:
        """The input."""
        return self.observation.case

    def sentence(self) -> str:
        """Where it was seen, in a few words."""
        limits = (
            f"{self.low:.9g}" if self.low == self.high else f"{self.low:.9g} to {self.high:.9g}"
        )
        return f"on '{self.case.name}' it gives {self.got:.9g} where only {limits} is allowed"


def violation(contract: Contract, seen: Observation) -> Violation | None:
    """The output that lies farthest outside what ``contract`` allows, or None."""
    case = seen.case
    limits = allowed(contract, case.arguments(contract.body), case.num_groups)
    for k, (got, (low, high)) in enumerate(zip(seen.outputs, limits, strict=False)):
        if got is None or got.size == 0:
            continue
        values = np.asarray(got, dtype=np.float64)
        with np.errstate(invalid="ignore"):
            lost = np.isnan(values) & np.isfinite(low) & np.isfinite(high)
            outside = (values < low) | (values > high) | lost
        if outside.any():
            return _farthest(contract, seen, k, values, low, high, outside)
    return None


def _farthest(
    contract: Contract,
    seen: Observation,
    k: int,
    got: Array,
    low: Array,
    high: Array,
    outside: Array,
) -> Violation:
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.maximum(low - got, got - high)
        scale = np.maximum(np.abs(low), np.abs(high)) + 1e-30
    score = np.where(outside, np.nan_to_num(distance / scale, nan=np.inf, posinf=1e300), -1.0)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(score)), got.shape))
    ends = float(got[index]), float(low[index]), float(high[index])
    return Violation(contract, seen, k, index, *ends)


@dataclass(eq=False)
class Family:
    """One algorithm and one cast order, in several orders of summation, tightest first.

    The bound grows with the height of the sum, so what is allowed in one order is allowed in all
    later ones: only the first that is left has to be tried.
    """

    contracts: list[Contract]
    at: int = 0
    violations: list[Violation] = field(default_factory=list)
    tried: int = 0  # observations that the contract at ``at`` has been held against

    @property
    def survivor(self) -> Contract | None:
        """The tightest contract that is left."""
        return self.contracts[self.at] if self.at < len(self.contracts) else None

    def hold_against(self, seen: Sequence[Observation]) -> None:
        """Discard what the observations exclude; the latest excluder is tried first."""
        while (contract := self.survivor) is not None and self.tried < len(seen):
            order = list(seen[self.tried :])
            if self.violations and self.violations[-1].observation in order:
                last = self.violations[-1].observation
                order = [last, *(o for o in order if o is not last)]
            found = next((v for o in order if (v := violation(contract, o)) is not None), None)
            if found is None:
                self.tried = len(seen)
            else:
                self.violations.append(found)
                self.at, self.tried = self.at + 1, 0


class Elimination:
    """The contracts of one formula in one format, and the observations so far."""

    def __init__(self, contracts: Iterable[Contract]) -> None:
        self.contracts = tuple(contracts)
        groups: dict[Any, list[Contract]] = {}
        for contract in self.contracts:
            key = (contract.algorithm, contract.casts, contract.stable)
            groups.setdefault(key, []).append(contract)
        for group in groups.values():
            group.sort(key=lambda c: c.order.height(1 << 12))
        self.families = [Family(group) for group in groups.values()]
        self.observations: list[Observation] = []

    def observe(self, case: Case, outputs: Outputs) -> None:
        """Add an observation and discard what it excludes."""
        self.observations.append(Observation(case, tuple(outputs)))
        for family in self.families:
            family.hold_against(self.observations)

    def fresh(self) -> Elimination:
        """The same contracts before any observation."""
        return Elimination(self.contracts)

    @property
    def remaining(self) -> list[Contract]:
        """The tightest contract left of each family, strictest first, stable ones first."""
        left = [f.survivor for f in self.families if f.survivor is not None]
        return sorted(left, key=self.contracts.index)

    @property
    def best(self) -> Contract | None:
        """The strictest stable contract that is left, else the strictest unstable one."""
        return next(iter(self.remaining), None)

    @property
    def violations(self) -> list[Violation]:
        """The last exclusion in each family that is not what it was."""
        return [f.violations[-1] for f in self.families if f.violations]

    @property
    def dead(self) -> list[Violation]:
        """The exclusion of the loosest contract of each family that nothing is left of."""
        return [f.violations[-1] for f in self.families if f.survivor is None]

    def loosest(self, *, stable: bool = True) -> list[Contract]:
        """The widest contract of each family."""
        return [f.contracts[-1] for f in self.families if f.contracts[-1].stable or not stable]


def excluded_by(contracts: Iterable[Contract], seen: Observation) -> Violation | None:
    """If the one observation excludes *every* contract, the nearest one's violation, else None."""
    found: list[Violation] = []
    for contract in contracts:
        each = violation(contract, seen)
        if each is None:
            return None
        found.append(each)
    return min(found, key=_distance) if found else None


def _distance(v: Violation) -> float:
    apart = max(v.low - v.got, v.got - v.high)
    return float("inf") if math.isnan(apart) else apart


def worst_of(contracts: Sequence[Contract], seen: Iterable[Observation]) -> Violation | None:
    """Of the observations that exclude every contract, the one farthest off for its size."""
    found = (excluded_by(contracts, each) for each in seen)
    return max((v for v in found if v is not None), key=_relative, default=None)


def _relative(v: Violation) -> float:
    return _distance(v) / (max(abs(v.low), abs(v.high)) + 1e-30)
