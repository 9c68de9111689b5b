"""Mutants of the Pre-RMSNorm network: one writer not centred as it should be, found and named.

A mutant is run beside Pre-LN, and the first block is named after which its stream is no longer that
of Pre-LN less its mean. Which tensor of the block is at fault is read off the same streams: see
`tensor_at_fault`. Where a mutant was changed plays no part; what has the honest network's weights
and the honest network's input has its output, which is therefore not computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from verify.symbolic.network.field import Field, FieldArray
from verify.symbolic.network.forms import PRE_LN, PRE_RMS_NORM, centred
from verify.symbolic.network.model import Network, Shape, Weights, is_related, require_int

Progress: TypeAlias = Callable[[int, int, str], None]
KINDS = ("tensor", "row", "entry")


@dataclass(frozen=True)
class Mutation:
    """A writer that is left uncentred, one row of it, or one entry moved by ``shift``, not 0.

    Raises ValueError for another kind.
    """

    tensor: str
    kind: str
    row: int = 0
    column: int = 0
    shift: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind={self.kind!r}: expected one of {', '.join(KINDS)}")

    def apply(self, network: Network) -> FieldArray:
        """The tensor as the mutant has it."""
        words = network.writer(self.tensor).words.copy()
        raw = network.weights.writer(self.tensor)
        if self.kind == "tensor":
            return raw
        if self.kind == "row":
            words[self.row] = raw.words[self.row]
        else:
            at = (slice(self.row, self.row + 1), slice(self.column, self.column + 1))
            words[at] = (FieldArray(raw.field, words[at]) + self.shift).words
        return FieldArray(raw.field, words)


@dataclass(frozen=True)
class Caught:
    """What was planted, and the tensor that the streams name: None for a mutant not caught."""

    mutation: Mutation
    named: str | None

    @property
    def is_caught(self) -> bool:
        """Whether the mutant was told from the honest network, and its tensor rightly named."""
        return self.named == self.mutation.tensor

    def to_json(self) -> dict[str, Any]:
        """Plain values for a report."""
        return asdict(self.mutation) | {"named": self.named, "is_caught": self.is_caught}


@dataclass(frozen=True)
class Step:
    """One block of the honest run: what its projections read, and the streams after it."""

    hidden: FieldArray | None  # None: the embedding
    stream: FieldArray
    pre_ln: FieldArray


@dataclass(frozen=True)
class Honest:
    """The Pre-RMSNorm network and its run beside Pre-LN, block by block."""

    network: Network
    steps: Mapping[str, Step]

    def with_changes(self, changed: Mapping[str, FieldArray]) -> Network:
        """The same network with other writers."""
        return Network(PRE_RMS_NORM, self.network.weights, self.network.eps, changed)

    def is_related(self, block: str, stream: FieldArray) -> bool:
        """Whether a stream is that of Pre-LN after the block, less its mean."""
        pre_ln = self.steps[block].pre_ln
        return is_related(self.network.ar, PRE_RMS_NORM, pre_ln, stream)


def honest_run(shape: Shape, seed: int, tick: Callable[[str], None] = lambda _: None) -> Honest:
    """Pre-LN and Pre-RMSNorm over GF(2^61 - 1); ``tick`` is told each block."""
    weights = Weights(shape, Field(), seed)
    eps: dict[str, FieldArray] = {}
    pre_ln, network = Network(PRE_LN, weights, eps), Network(PRE_RMS_NORM, weights, eps)
    steps = {"embedding": Step(None, network.embedded(), pre_ln.embedded())}
    tick("embedding")
    step = steps["embedding"]
    for block in shape.blocks[1:]:
        reference = pre_ln.after(block, step.pre_ln)
        hidden = network.hidden(block, step.stream)
        step = Step(hidden, network.written(block, step.stream, hidden), reference)
        steps[block] = step
        tick(block)
    return Honest(network, steps)


def first_broken(honest: Honest, mutant: Network) -> tuple[str, FieldArray] | None:
    """The first block after which the mutant's stream is not Pre-LN's less its mean; that stream.

    The mutant differs from the honest network in writers only.
    """
    before: FieldArray | None = None
    for block in honest.steps:
        after = _after(honest, mutant, block, before)
        if not honest.is_related(block, after):
            return block, after
        before = after
    return None


def _after(honest: Honest, mutant: Network, block: str, before: FieldArray | None) -> FieldArray:
    step = honest.steps[block]
    changed = any(block in (name, _block_of(name)) for name in mutant.changed)
    if before is None:
        return mutant.embedded() if changed else step.stream
    assert step.hidden is not None
    # A stream that is related to Pre-LN's is determined by it: it is the honest one.
    return mutant.written(block, before, step.hidden) if changed else step.stream


def _block_of(tensor: str) -> str:
    """The block that a writer belongs to."""
    return "embedding" if tensor == "positions" else tensor.partition(".out.")[0]


def tensor_at_fault(honest: Honest, block: str, stream: FieldArray) -> str:
    """The writer of the block that explains by how much the stream is wrong at each token.

    A wrong bias is wrong by the same row at every token, a wrong weight by a row that depends on
    what the token reads. A wrong embedding is wrong alike at the first two tokens, which have one
    content, and a wrong table of positions is not.
    """
    gap = stream - centred(honest.network.ar, honest.steps[block].pre_ln)
    if block == "embedding":
        alike = gap[0].same(gap[1]) and bool(gap.words[0].any())
        return "embedding" if alike else "positions"
    alike = bool((gap.words == gap.words[:1]).all())
    return f"{block}.out.bias" if alike else f"{block}.out.weight"


def trial(honest: Honest, mutation: Mutation) -> Caught:
    """Plants one mutation and says what the streams name."""
    mutant = honest.with_changes({mutation.tensor: mutation.apply(honest.network)})
    broken = first_broken(honest, mutant)
    return Caught(mutation, tensor_at_fault(honest, *broken) if broken else None)


def writers(shape: Shape) -> list[str]:
    """The names of all tensors that are written to the stream."""
    outputs = (f"{block}.out" for block in shape.blocks[1:])
    pairs = ((f"{out}.weight", f"{out}.bias") for out in outputs)
    return ["embedding", "positions", *(name for pair in pairs for name in pair)]


def drawn_mutations(weights: Weights, count: int) -> list[Mutation]:
    """Mutations drawn independently: the writer, the kind, and where, uniformly each."""
    rng = weights.generator("mutations")
    names = writers(weights.shape)
    mutations = []
    for _ in range(count):
        name, kind = names[rng.integers(len(names))], KINDS[rng.integers(len(KINDS))]
        row, column = rng.integers(weights.rows(name)), rng.integers(weights.shape.width)
        shift = rng.integers(1, weights.field.prime)
        mutations.append(Mutation(name, kind, int(row), int(column), int(shift)))
    return mutations


def mutants(shape: Shape, count: int, seed: int, progress: Progress | None = None) -> list[Caught]:
    """``count`` mutants of the Pre-RMSNorm network, each with the tensor that its streams name.

    ``progress(done, total, label)`` is told each step. Raises ValueError for a count below 1 and a
    negative seed.
    """
    require_int("count", count, 1)
    total, done = len(shape.blocks) + count, 0

    def tick(label: str) -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total, label)

    honest = honest_run(shape, seed, tick)
    found = []
    for mutation in drawn_mutations(honest.network.weights, count):
        found.append(trial(honest, mutation))
        tick(f"{mutation.tensor}, {mutation.kind}")
    return found
