"""One whole transformer in its four forms, run exactly over GF(p) and compared exactly.

What is compared. Pre-LN runs beside Pre-RMSNorm, Pre-CRMSNorm and the narrow RMSNorm of width
d - 1, all with the weights of one network (`forms` converts them). After each block the
stream of each form must be that of Pre-LN up to a multiple of the ones row, token by token, and at
the end the logits must be equal, element by element. The norms are the bodies of `verify.norms`.

*Square roots.* Each norm of each token has an eps of its own: a root r is drawn first, and
eps = r^2 - variance, where the variance is Pre-LN's. So Pre-LN's radicand is the square r^2. Every
form then takes the canonical root (the one that is itself a square) of what its own body computes,
and a form whose radicand has no root is wrong there: it is not the radicand of Pre-LN. An identity
for independent eps contains the one for a single eps. What is gained: each point of the variety
{(x, r, eps): r^2 = variance + eps} is reached by free (x, r), so that no conditioning on residues
is needed and degrees stay small. Activation and attention weights are unknown functions, hashes of
their arguments: what holds for all functions holds for GELU and softmax.

*sqrt(d)* occurs in the weights of the narrow form, and GF(p) holds no orthonormal chart of the
zero-mean rows unless d is a square there (the Gram determinant of these rows is d up to squares).
3, and with it 768 = 3 * 16^2, is no square mod a Mersenne prime above 3, so that the narrow form
is then run, and Pre-LN once more beside it, in GF(2^61 - c) with the least c that has the root.

*What a pass shows.* Of a wrong form, fix the first block that is wrong: as a function of the
stream before it, of its weights, of r and of the unknown functions. It passes with probability at
most 8 (U + 6) (E + T) 2^-59. Here T is the number of tokens, E how many values of unknown functions
the two runs use, and U = T^2 ceil(T heads / d). Take s = 1/r as the variable, so that Pre-LN's
block is polynomial; no value of a variable has probability above 2^-59 (a canonical root is one of
(p - 1) / 2 squares). A polynomial of degree D that is not 0 is 0 with probability <= D 2^-59
(Schwartz 1980; Zippel 1979). A normalised row has degree 3, what is read from it 4, a score 8.
(1) The stream before the block is uniform over all T x d values and independent of the block: the
positions, or the weight of the block before, are uniform and independent of what they meet, unless
the T rows which that weight reads are linearly dependent. Their first T columns are made of U
unknown values at most. That one of these is not fresh, because its argument coincides with another
one, has probability <= 8 U E 2^-59; that the minor, of degree <= 5 T, is 0 if they are, 5 T 2^-59.
(2) The stream's error after the block is linear in the block's unknown values. In a coefficient
(degree 5) one root of the wrong form that is not Pre-LN's may occur, in a difference of arguments
(degree 8) two; s' = s / sqrt(1 + w s^2), w of degree 2, and the norms from the fields of these
roots have degree <= 2 * 5 + 4 = 14 and <= 2 (2 * 8 + 4 + 4) = 48. So a coefficient that is not 0
formally is not 0 here, and its unknown value is fresh, but for a probability of
(14 + 48 E) 2^-59; and then a single value of it hides the error. If all coefficients vanish
formally, what remains is a polynomial without unknown values, like the logits, of no higher degree.

Hypotheses: the hashes behave as random functions and the generator's words as random ones; a wrong
block has no higher degrees than a right one; and a difference that is not 0 over the rationals is
not 0 mod p either. So a pass is evidence, and at one shape; the theorems behind it are proved for
all d elsewhere, without probability. A failure is a point of GF(p) at which the forms differ: it
needs no hypothesis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

from verify.symbolic.network.field import Field, FieldArray, NotASquareError, field_with_root
from verify.symbolic.network.forms import CONVERTED, PRE_LN, Form
from verify.symbolic.network.model import Network, Shape, Weights, is_related
from verify.symbolic.network.mutation import Caught, Mutation, Progress, mutants

__all__ = ["Caught", "Comparison", "FormResult", "Mutation", "Shape", "compare", "mutants"]

LOG2_LARGEST_PROBABILITY = -59


@dataclass(frozen=True)
class FormResult:
    """One form beside Pre-LN over GF(2^61 - c).

    ``broken`` is the first block after which the stream is not Pre-LN's up to a multiple of the
    ones row; ``undefined`` says where the form had no value and why. ``moved`` counts the hidden
    states, of one token after one block, that are not those of Pre-LN; for a narrower stream those
    are compared for which it stands. ``seconds`` is wall time.
    """

    form: str
    field: str
    logits_agree: bool
    broken: str | None
    undefined: str | None
    moved: int
    seconds: float

    @property
    def agrees(self) -> bool:
        """Whether all streams are related and the logits equal."""
        return self.logits_agree and self.broken is None and self.undefined is None


@dataclass(frozen=True)
class Comparison:
    """All forms beside Pre-LN. ``log2_failure``: of the probability that a wrong form passed.

    ``hidden_states`` is their number, T for each block. The module's docstring has the derivation
    of the probability and its hypotheses.
    """

    shape: Shape
    seed: int
    forms: tuple[FormResult, ...]
    pre_ln_seconds: dict[str, float]
    hidden_states: int
    log2_failure: float

    @property
    def agrees(self) -> bool:
        """Whether all forms agree with Pre-LN."""
        return all(form.agrees for form in self.forms)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a report."""
        forms = [asdict(form) | {"agrees": form.agrees} for form in self.forms]
        return asdict(self) | {"forms": forms, "agrees": self.agrees}


def log2_failure(shape: Shape, forms: int = 1) -> float:
    """log2 of the bound in the module's docstring, for a number of forms together."""
    t = shape.tokens
    used = 2 * shape.layers * t * (shape.ffn + shape.heads * t)
    independent = t * t * -(-t * shape.heads // shape.width)
    bound = 8 * (independent + 6) * (used + t) * forms
    return min(0.0, math.log2(bound) + LOG2_LARGEST_PROBABILITY)


@dataclass
class Run:
    """A form under way: its stream, and what was found so far."""

    network: Network
    stream: FieldArray | None = None
    logits: FieldArray | None = None
    broken: str | None = None
    undefined: str | None = None
    moved: int = 0
    seconds: float = 0.0

    def advance(self, block: str) -> None:
        """The stream after the block, or the logits; a form that has no value stays without."""
        if self.undefined:
            return
        start = perf_counter()
        try:
            if self.stream is None:
                self.stream = self.network.embedded()
            elif block == "head":
                self.logits = self.network.logits(self.stream)
            else:
                self.stream = self.network.after(block, self.stream)
        except (NotASquareError, ZeroDivisionError) as error:
            self.undefined = f"{block}: {error}"
        self.seconds += perf_counter() - start

    def compare(self, block: str, pre_ln: FieldArray) -> None:
        """Holds the stream after a block against Pre-LN's."""
        if self.undefined or self.stream is None:
            return
        ar, form = self.network.ar, self.network.form
        if not is_related(ar, form, pre_ln, self.stream):
            self.broken = self.broken or block
        self.moved += int((pre_ln - form.expand(ar, self.stream)).words.any(axis=-1).sum())

    def result(self, pre_ln: FieldArray) -> FormResult:
        """The verdict on the form, given Pre-LN's logits."""
        return FormResult(
            self.network.form.name,
            str(self.network.weights.field),
            self.logits is not None and self.logits.same(pre_ln),
            self.broken,
            self.undefined,
            self.moved,
            self.seconds,
        )


@dataclass(frozen=True)
class _Side:
    """Pre-LN and the forms that run beside it over one field."""

    weights: Weights
    forms: Sequence[Form]
    seconds: dict[str, float] = field(default_factory=dict)

    def results(self) -> Iterator[FormResult | str]:
        """Runs all block by block: the label of each step, then the result of each form."""
        eps: dict[str, FieldArray] = {}
        pre_ln = Run(Network(PRE_LN, self.weights, eps))
        runs = [Run(Network(form, self.weights, eps)) for form in self.forms]
        for block in [*self.weights.shape.blocks, "head"]:
            for run in (pre_ln, *runs):
                run.advance(block)
                if run is not pre_ln and block != "head":
                    assert pre_ln.stream is not None
                    run.compare(block, pre_ln.stream)
                yield f"{run.network.form.name}, {block}"
        assert pre_ln.logits is not None
        self.seconds[str(self.weights.field)] = pre_ln.seconds
        for run in runs:
            yield run.result(pre_ln.logits)


def _sides(shape: Shape, seed: int, forms: Sequence[Form]) -> list[_Side]:
    """The forms by field: 2^61 - 1, and where sqrt(d) is needed the next that has it."""
    by_field: dict[Field, list[Form]] = {}
    for form in forms:
        home = field_with_root(shape.width) if form.needs_root else Field()
        by_field.setdefault(home, []).append(form)
    return [_Side(Weights(shape, home, seed), some) for home, some in by_field.items()]


def compare(
    shape: Shape,
    seed: int,
    progress: Progress | None = None,
    forms: Sequence[Form] = CONVERTED,
) -> Comparison:
    """Pre-LN against each of the other forms, on random weights and tokens of that seed.

    ``progress(done, total, label)`` is told each block of each form. Raises ValueError for a
    negative seed.
    """
    sides = _sides(shape, seed, forms)
    steps = (len(shape.blocks) + 1) * sum(1 + len(side.forms) for side in sides)
    found: list[FormResult] = []
    seconds: dict[str, float] = {}
    done = 0
    for side in sides:
        for each in side.results():
            if isinstance(each, FormResult):
                found.append(each)
                continue
            done += 1
            if progress is not None:
                progress(done, steps, each)
        seconds |= side.seconds
    states = shape.tokens * len(shape.blocks)
    return Comparison(shape, seed, tuple(found), seconds, states, log2_failure(shape, len(forms)))
