"""The kernel under audit, in one format: how it is run, and what is known of it so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verify.audit.case import Case, make_case
from verify.audit.elimination import Elimination, Observation
from verify.audit.sandbox import Failure, Reply, Sandbox
from verify.finding import Series
from verify.formula import Formula
from verify.kernels.kernel import Kernel
from verify.norms import FORMULAS, formula_named
from verify.numeric import Contract, contracts_for, faults_for, reference
from verify.numeric.activations import Activation

Array = NDArray[Any]

BROKEN = ("crash", "timeout", "memory")  # failures that no input excuses
PATIENCE = 3  # broken calls after which a format is given up


class KernelFailed(Exception):  # noqa: N818 - a kernel's end, not an error of ours
    """A call gave no usable result."""

    def __init__(self, case: Case, failure: Failure) -> None:
        super().__init__(failure.message)
        self.case, self.failure = case, failure


@dataclass(eq=False)
class Subject:
    """A kernel in a sandbox, one format, and what its outputs have told.

    ``claim`` names the contract that the kernel promises ("" for none): a part of a contract's
    name, such as "one cast"; contracts of other names are then no excuse.
    """

    kernel: Kernel
    sandbox: Sandbox
    format: str
    parameters: Sequence[str] = ("weight", "bias")
    has_backward: bool = False
    quick: bool = False
    claim: str = ""
    activations: Sequence[Activation] = ()
    detail: dict[str, str] = field(default_factory=dict)
    series: list[Series] = field(default_factory=list)
    modified: dict[str, Case] = field(default_factory=dict)
    broken: Counter[str] = field(default_factory=Counter)

    @cached_property
    def formula(self) -> Formula:
        """What the kernel claims to compute."""
        return formula_named(self.kernel.formula)

    @cached_property
    def gradient(self) -> Formula | None:
        """The formula of its gradient, if there is one."""
        return FORMULAS.get(f"{self.formula.id}_backward")

    @property
    def is_centred(self) -> bool:
        """Whether the norm subtracts the mean."""
        return self.formula.id in ("layer_norm", "group_norm", "instance_norm")

    @cached_property
    def pool(self) -> Elimination:
        """The forward contracts that are left."""
        return Elimination(self._claimed(contracts_for(self.formula.id, self.format)))

    @cached_property
    def gradient_pool(self) -> Elimination:
        """The backward contracts that are left."""
        return Elimination(contracts_for(f"{self.formula.id}_backward", self.format))

    def _claimed(self, contracts: Sequence[Contract]) -> list[Contract]:
        kept = [c for c in contracts if self.claim in c.name]
        return kept or list(contracts)

    @cached_property
    def wrong(self) -> list[Contract]:
        """What a kernel might compute instead: faults, and contracts other than the claimed one."""
        others = [
            c for c in contracts_for(self.formula.id, self.format) if c not in self.pool.contracts
        ]
        return [*others, *faults_for(self.formula.id, self.format)]

    @property
    def judge(self) -> Contract:
        """The contract whose bound is used: the strictest left, or the loosest of all."""
        return self.pool.best or self.pool.loosest(stable=False)[-1]

    def case(self, name: str, rows: Any, **more: Any) -> Case:
        """A call of the kernel in its format; see `make_case`."""
        return make_case(name, rows, self.formula, self.format, parameters=self.parameters, **more)

    def run(self, case: Case, method: str = "forward") -> tuple[Array | None, ...]:
        """The outputs; raises KernelFailed. Which inputs were written to is remembered."""
        answer = self.sandbox.call(method, case.arrays, case.numbers)
        if isinstance(answer, Failure):
            self.broken[answer.kind] += 1
            raise KernelFailed(case, answer)
        self._note(answer, case)
        return answer.outputs

    def _note(self, reply: Reply, case: Case) -> None:
        for name in reply.modified:
            self.modified.setdefault(name, case)

    def forward(self, case: Case) -> Array:
        """y, of x's shape; raises KernelFailed for anything else."""
        y = self.run(case)[0]
        if y is None or y.shape != case.x.shape:
            came = "None" if y is None else f"shape {y.shape}"
            raise KernelFailed(case, Failure("shape", f"gave {came} for x of shape {case.x.shape}"))
        return y

    def backward(self, case: Case) -> Observation:
        """(dx, dweight, dbias), those that the gradient's formula has."""
        outputs = self.run(case, "backward")
        count = len(self.gradient.outputs) if self.gradient else 0
        return Observation(case, outputs[:count])

    def observe(self, case: Case) -> Array:
        """Run forward, and let the output discard contracts."""
        y = self.forward(case)
        self.pool.observe(case, (y,))
        return y

    def exact(self, case: Case) -> Array:
        """The true y in float64 (correctly rounded there)."""
        arguments = case.arguments(self.formula)
        x = arguments.pop("x")
        result = reference(
            self.formula, x, **arguments, format="float64", num_groups=case.num_groups
        )
        return np.asarray(result[0] if isinstance(result, tuple) else result)

    @property
    def is_given_up(self) -> bool:
        """Whether it crashed or hung so often that more calls are a waste."""
        return sum(self.broken[kind] for kind in BROKEN) >= PATIENCE
