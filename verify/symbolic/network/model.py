"""One Pre-LN transformer over GF(p), its weights, and how each of its forms runs it.

Every matrix is (in, out) and acts as y = x W + b. The only functions that are not rational are
hashes: the activation of one element, and the attention weight of (query i, key j) as a function of
the whole row of scores of query i, which leaves room for softmax, scale and mask. Equal arguments
give equal values in all forms; beyond that, nothing is assumed of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from hashlib import blake2b, shake_256
from typing import Any

import numpy as np

from verify.symbolic.network.field import Field, FieldArithmetic, FieldArray
from verify.symbolic.network.forms import PRE_LN, Form


def require_int(name: str, value: Any, least: int) -> None:
    """Raises ValueError, in one line, for what is no int of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r}: expected an int >= {least}")


@dataclass(frozen=True)
class Shape:
    """The sizes of a transformer. Raises ValueError, in one line, for sizes that make none."""

    layers: int = 12
    width: int = 768
    ffn: int = 3072
    tokens: int = 8
    heads: int = 12
    vocabulary: int = 1024

    def __post_init__(self) -> None:
        for each in fields(self):
            require_int(each.name, getattr(self, each.name), 1)
        if self.width % self.heads:
            raise ValueError(
                f"width={self.width}, heads={self.heads}: expected a width that heads divides"
            )
        if self.tokens < 2:
            raise ValueError(f"tokens={self.tokens}: expected at least 2, of one content")
        if min(self.width - 1, self.ffn) < self.tokens:
            raise ValueError(
                f"width={self.width}, ffn={self.ffn}, tokens={self.tokens}: expected fewer tokens "
                "than the width and no more than ffn, so that a block can write any stream"
            )

    @property
    def blocks(self) -> list[str]:
        """What writes to the residual stream, in order."""
        pairs = ((f"layers.{i}.attention", f"layers.{i}.mlp") for i in range(self.layers))
        return ["embedding", *(block for pair in pairs for block in pair)]


def _key(*parts: Any) -> bytes:
    return blake2b("|".join(map(str, parts)).encode(), digest_size=16).digest()


@dataclass(frozen=True)
class Weights:
    """All that is random, a function of the seed and the name; uniform over GF(p)."""

    shape: Shape
    field: Field
    seed: int

    def __post_init__(self) -> None:
        require_int("seed", self.seed, 0)

    def generator(self, name: str) -> np.random.Generator:
        """The random numbers of that name, from their beginning."""
        return np.random.default_rng(int.from_bytes(_key(self.seed, name), "little"))

    def tensor(self, name: str, *size: int) -> FieldArray:
        """The tensor of that name; the same name has the same values at each call."""
        return self.field.draw(self.generator(name), *size)

    def rows(self, writer: str) -> int:
        """How many rows a writer has: one for each element that it reads, and 1 for a bias."""
        s = self.shape
        kinds = {
            "embedding": s.vocabulary,
            "positions": s.tokens,
            "attention.out.weight": s.width,
            "mlp.out.weight": s.ffn,
        }
        return kinds.get(writer.split(".", 2)[-1], 1)

    def writer(self, name: str) -> FieldArray:
        """A tensor whose rows have the width of the stream."""
        return self.tensor(name, self.rows(name), self.shape.width)

    def contents(self) -> FieldArray:
        """(tokens, vocabulary): each token a mixture of all entries; the first two are alike.

        A table looked up is the case of one entry each; mixtures read every row of it.
        """
        drawn = self.tensor("contents", self.shape.tokens - 1, self.shape.vocabulary)
        return FieldArray(self.field, np.concatenate([drawn.words[:1], drawn.words]))

    def roots(self, site: str) -> FieldArray:
        """(tokens, 1): the roots that Pre-LN is to take at a norm; never 0."""
        size = (self.shape.tokens, 1)
        drawn = self.generator(f"{site}.roots").integers(1, self.field.prime, size, np.uint64)
        return FieldArray(self.field, drawn)

    def activation(self, value: FieldArray) -> FieldArray:
        """An unknown function of each element."""
        key = _key(self.seed, "activation")
        data = np.ascontiguousarray(value.words).tobytes()
        each = (data[i : i + 8] for i in range(0, len(data), 8))
        digests = b"".join(blake2b(word, digest_size=8, key=key).digest() for word in each)
        return self._from_digests(digests, value.shape)

    def attention_weights(self, scores: FieldArray) -> FieldArray:
        """An unknown function of query i, key j and row i of the scores, (heads, i, j)."""
        t, key = self.shape.tokens, _key(self.seed, "attention")
        rows = np.ascontiguousarray(scores.words).reshape(-1, t)
        digests = (
            shake_256(key + (i % t).to_bytes(8, "little") + row.tobytes()).digest(8 * t)
            for i, row in enumerate(rows)
        )
        return self._from_digests(b"".join(digests), scores.shape)

    def _from_digests(self, digests: bytes, shape: tuple[int, ...]) -> FieldArray:
        return self.field.reduced(np.frombuffer(digests, np.uint64).reshape(shape))


@dataclass
class Network:
    """One form of the network, with the weights that this form needs, made when they are used.

    ``eps`` holds a value for each norm and token, set by Pre-LN (`chosen_eps`) and shared by all
    forms. ``changed`` replaces writers, by name, after their conversion: a planted fault.
    """

    form: Form
    weights: Weights
    eps: dict[str, FieldArray]
    changed: Mapping[str, FieldArray] = field(default_factory=dict)

    @property
    def ar(self) -> FieldArithmetic:
        """The arithmetic of the field of the weights."""
        return FieldArithmetic(self.weights.field)

    def writer(self, name: str) -> FieldArray:
        """The tensor of that name as this form has it."""
        if name in self.changed:
            return self.changed[name]
        return self.form.write(self.ar, self.weights.writer(name))

    def embedded(self) -> FieldArray:
        """(tokens, width of the stream): contents through the embedding, plus positions."""
        return self.weights.contents() @ self.writer("embedding") + self.writer("positions")

    def hidden(self, block: str, stream: FieldArray) -> FieldArray:
        """(tokens, .): what the block's output projection reads."""
        return (self._attended if block.endswith("attention") else self._activated)(block, stream)

    def written(self, block: str, stream: FieldArray, hidden: FieldArray) -> FieldArray:
        """The stream after the block."""
        out = f"{block}.out"
        return stream + hidden @ self.writer(f"{out}.weight") + self.writer(f"{out}.bias")

    def after(self, block: str, stream: FieldArray) -> FieldArray:
        """The stream after the block, from the one before it."""
        return self.written(block, stream, self.hidden(block, stream))

    def logits(self, stream: FieldArray) -> FieldArray:
        """(tokens, vocabulary): final norm and head."""
        (read,) = self._read("final", stream, {"head": self.weights.shape.vocabulary})
        return read

    def _activated(self, block: str, stream: FieldArray) -> FieldArray:
        (read,) = self._read(block, stream, {f"{block}.in": self.weights.shape.ffn})
        return self.weights.activation(read)

    def _attended(self, block: str, stream: FieldArray) -> FieldArray:
        s = self.weights.shape
        names = {f"{block}.{part}": s.width for part in ("query", "key", "value")}
        query, key, value = (self._by_head(part) for part in self._read(block, stream, names))
        mixed = self.weights.attention_weights(query @ key.T) @ value  # (heads, tokens, .)
        return FieldArray(mixed.field, np.swapaxes(mixed.words, 0, 1)).reshape(s.tokens, s.width)

    def _by_head(self, read: FieldArray) -> FieldArray:
        """(tokens, width) -> (heads, tokens, width / heads)."""
        s = self.weights.shape
        parts = read.reshape(s.tokens, s.heads, s.width // s.heads)
        return FieldArray(read.field, np.swapaxes(parts.words, 0, 1))

    def _read(self, block: str, stream: FieldArray, readers: dict[str, int]) -> list[FieldArray]:
        """The stream through the block's norm and each of the readers, of the width given."""
        width, tensor = self.weights.shape.width, self.weights.tensor
        gain, shift = (tensor(f"{block}.norm.{part}", 1, width) for part in ("weight", "bias"))
        if self.form.pull is None:
            rows = self._normalised(block, stream, gain, shift)
        else:
            rows = self._normalised(block, stream, self.ar.number(1), self.ar.number(0))
        results = []
        for name, size in readers.items():
            weight, bias = tensor(f"{name}.weight", width, size), tensor(f"{name}.bias", 1, size)
            if self.form.pull is not None:
                bias = bias + shift @ weight
                weight = self.form.pull(self.ar, weight * gain.T)
            results.append(rows @ weight + bias)
        return results

    def _normalised(
        self, block: str, stream: FieldArray, gain: FieldArray, shift: FieldArray
    ) -> FieldArray:
        if self.form is PRE_LN:
            self.eps[block] = chosen_eps(self.weights, block, stream)
        rows: FieldArray = self.form.norm(self.ar, stream, gain, shift, self.eps[block])
        return rows


def chosen_eps(weights: Weights, site: str, stream: FieldArray) -> FieldArray:
    """(tokens, 1): the eps with which LayerNorm takes the root of r^2, r drawn first.

    eps = r^2 - variance, the variance being what LayerNorm's own body takes the root of at eps 0.
    """
    seen: list[FieldArray] = []

    def recorded(radicand: FieldArray) -> FieldArray:
        seen.append(radicand)
        return radicand.each(lambda *_: 1)

    ar = FieldArithmetic(weights.field, recorded)
    PRE_LN.norm(ar, stream, ar.number(1), ar.number(0), ar.number(0))
    (variance,) = seen
    root = weights.roots(site)
    return root * root - variance


def is_related(ar: FieldArithmetic, form: Form, pre_ln: FieldArray, stream: FieldArray) -> bool:
    """Whether a stream is that of Pre-LN up to a multiple of the ones row for each token.

    The row for which it stands must have mean 0, and its distance from Pre-LN's be constant.
    """
    row = form.expand(ar, stream)
    gap = pre_ln - row
    return not (ar.sum(row).words.any() or (gap - gap[..., :1]).words.any())
