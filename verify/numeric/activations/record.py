"""What one piece of real input is, and how its bytes become arrays."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Float32: TypeAlias = NDArray[np.float32]


class ActivationUnavailable(Exception):  # noqa: N818 - a state of the machine, not a fault
    """Real input that cannot be had here; the message is one line and says what to install."""


@dataclass(frozen=True)
class Activation:
    """What enters one norm of a trained model, with that norm's parameters.

    ``x``: (rows, d), ``weight, bias``: (d,), all float32; ``bias`` is None where the norm has none.
    ``site`` names the point of the residual stream, ``formula`` the norm that reads it there,
    ``provenance`` is a JSON object (package, weights, sha256, licence, model, input, norm, ...).
    """

    source: str
    site: str
    formula: str
    x: Float32
    weight: Float32 | None
    bias: Float32 | None
    eps: float
    provenance: str


def bytes_of(path: Path, remedy: str) -> bytes:
    """The content of a file; raises ActivationUnavailable, saying ``remedy``."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ActivationUnavailable(f"{remedy} ({type(error).__name__})") from error


def arrays_of(name: str, content: bytes) -> dict[str, Any]:
    """The arrays of an ``.npz``. Pickle stays off: data must not be able to run code."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except Exception as error:  # zipfile, zlib and NumPy each have their own for a bad file
        raise ActivationUnavailable(f"{name} is refused: {error}") from error
