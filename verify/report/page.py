"""One self-contained HTML page: what is shown is prepared here, as text; the template lays it out.

What cannot be shown, a plot or a finding, becomes a box that says so, and the page stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, ParamSpec

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from verify.finding import SCHEMA, Finding, KernelRecord, Report, Series, Verdict, Witness
from verify.report import plots
from verify.report.summary import (
    SIGNS,
    SYNTHETIC,
    Score,
    columns,
    element,
    exact,
    listed,
    of_kernel,
    plural,
    quantity,
    ratio,
    scores,
    sentence,
    visible,
)

TEMPLATES = Path(__file__).parent / "templates"
WIDEST = 8  # elements of a row of a witness that are shown
TALLEST = 16  # rows of a witness that are shown

P = ParamSpec("P")


@dataclass(frozen=True)
class Broken:
    """What stands in the place of something that could not be shown."""

    what: str
    error: str
    verdict: str = ""  # a finding that could not be shown is not among those that hold


def render_page(report: Report) -> str:
    """The report as one HTML page; the same report gives the same text, byte for byte."""
    template = _environment().get_template("page.html.jinja")
    return template.render(
        title="Audit of normalisation kernels",
        schema=SCHEMA,
        summary=_safely("the summary", sentence, report),
        notes=[visible(str(note)) for note in report.notes],
        environment=_safely("the environment", _flattened, report.environment),
        signs={str(verdict): sign for verdict, sign in SIGNS.items()},
        colours={each: i % 6 for i, each in enumerate(_formats(report))},
        plots=plots,
        **_about_kernels(report),
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["broken"] = lambda value: isinstance(value, Broken)
    return environment


def _safely(what: str, make: Callable[P, Any], *args: P.args, **named: P.kwargs) -> Any:
    """What ``make`` gives, or a box with its error: one bad record never costs the page."""
    try:
        return make(*args, **named)
    except Exception as error:  # noqa: BLE001 - shown on the page, whatever it is
        return Broken(what, visible(f"{type(error).__name__}: {error}"))


def _about_kernels(report: Report) -> dict[str, Any]:
    cards = _safely("the scorecard", scores, report)
    if isinstance(cards, Broken):
        return {"scorecard": cards, "kernels": [], "verdicts": [], "totals": {}}
    identities = _identities(cards)
    verdicts = columns(report)
    return {
        "scorecard": [_card(score, identities[score.kernel.name]) for score in cards],
        "kernels": list(_kernels(report, cards, identities)),
        "verdicts": [str(verdict) for verdict in verdicts],
        "totals": {str(v): sum(score.total[v] for score in cards) for v in verdicts},
    }


def _identities(cards: Sequence[Score]) -> dict[str, str]:
    """A name for each kernel that may stand in an address: letters, digits and a number."""
    slugs = (re.sub(r"[^a-z0-9]+", "-", card.kernel.name.lower()).strip("-") for card in cards)
    return {
        card.kernel.name: f"kernel-{i}-{slug}"
        for i, (card, slug) in enumerate(zip(cards, slugs, strict=True), 1)
    }


def _card(score: Score, identity: str) -> dict[str, Any]:
    rows = [
        {
            "inputs": visible(name),
            "real": name != SYNTHETIC,
            "counts": {str(verdict): number for verdict, number in counts.items()},
        }
        for name, counts in score.counts.items()
    ]
    return {"kernel": _shown(score.kernel), "id": identity, "rows": rows}


def _shown(kernel: KernelRecord) -> dict[str, str]:
    keys = ("name", "version", "formula", "contract", "run_on")
    return {key: visible(str(getattr(kernel, key))) for key in keys}


def _formats(report: Report) -> list[str]:
    """The formats that are plotted, in the order in which they first appear."""
    return list(dict.fromkeys(series.format for series in report.series))


# --------------------------------------------------------------------------------------- kernels


def _kernels(
    report: Report, cards: Sequence[Score], identities: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    numbers = count(1)
    for score in cards:
        name = score.kernel.name
        yield {
            "kernel": _shown(score.kernel),
            "id": identities[name],
            "worst": str(score.worst or ""),
            "figures": list(_figures(report, name)),
            "groups": list(_groups(of_kernel(report, name), numbers)),
        }


def _figures(report: Report, kernel: str) -> Iterator[Any]:
    series = [each for each in report.series if each.kernel == kernel]
    for name in dict.fromkeys(each.name for each in series):
        drawn: Sequence[Series] = [each for each in series if each.name == name]
        yield _safely(f"the plot “{name}”", plots.figure, drawn)


def _groups(findings: Sequence[Finding], numbers: Iterator[int]) -> Iterator[dict[str, Any]]:
    """Synthetic input first, then each real activation, apart."""
    names = dict.fromkeys(finding.inputs for finding in findings)
    for name in sorted(names, key=lambda each: (each != SYNTHETIC, each)):
        of_input = [finding for finding in findings if finding.inputs == name]
        yield {
            "inputs": visible(name),
            "real": name != SYNTHETIC,
            "count": plural(len(of_input), "finding"),
            "findings": [
                _safely(f"a finding of {finding.check}", _finding, finding, next(numbers))
                for finding in of_input
            ],
        }


# -------------------------------------------------------------------------------------- findings


def _finding(finding: Finding, serial: int) -> dict[str, Any]:
    verdict = Verdict(finding.verdict)
    texts = ("check", "format", "message", "why", "derivation", "citation", "repro", "run_on")
    return {
        **{key: visible(str(getattr(finding, key))) for key in texts},
        "id": f"finding-{serial}",
        "verdict": str(verdict),
        "open": verdict.is_bad,
        "measured": _quantity(finding.measured, finding.unit),
        "bound": _quantity(finding.bound, finding.unit),
        "gauge": _gauge(finding),
        "witness": finding.witness and _witness(finding.witness),
    }


def _quantity(value: float | None, unit: str) -> str:
    return "" if value is None else visible(quantity(value, unit))


def _gauge(finding: Finding) -> dict[str, Any] | None:
    """Measured as a share of the bound, for a bar and in words."""
    share = ratio(finding)
    if share is None:
        return None
    words = f"{share:.0%} of the bound" if share <= 1 else f"{share:,.4g} times the bound"
    return {"beyond": share > 1, "percent": round(min(share, 1.0) * 100), "words": words}


def _witness(witness: Witness) -> dict[str, Any]:
    rows = [
        row
        for name, value in witness.inputs.items()
        for row in _rows(visible(name), value, (), witness.index)
    ]
    return {
        "rows": rows[:TALLEST],
        "more": max(0, len(rows) - TALLEST),
        "width": max((len(row["cells"]) for row in rows[:TALLEST]), default=1),
        "element": element(witness.index),
        "got": exact(witness.got),
        "expected": exact(witness.expected),
        "note": visible(witness.note),
    }


def _rows(
    name: str, value: Any, path: tuple[int, ...], index: tuple[int, ...]
) -> Iterator[dict[str, Any]]:
    """A row of the table for each innermost list of an argument, or for its one number.

    ``hit`` is the column of the output element that the witness is about.
    """
    items = listed(value)
    if items is not None and any(listed(item) is not None for item in items):
        for i, item in enumerate(items):
            yield from _rows(f"{name}[{i}]", item, (*path, i), index)
        return
    cells = [value] if items is None else items
    met = items is not None and bool(index) and path in ((), index[:-1])
    yield {
        "name": name,
        "cells": [exact(cell) for cell in cells[:WIDEST]],
        "more": max(0, len(cells) - WIDEST),
        "hit": index[-1] if met else None,
    }


# ----------------------------------------------------------------------------------- environment


def _flattened(environment: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested mappings as one list of names and texts."""
    rows: list[tuple[str, str]] = []
    for key, value in environment.items():
        if isinstance(value, Mapping):
            rows += _flattened(value, f"{prefix}{key} / ")
        else:
            rows.append((visible(f"{prefix}{key}"), visible(_told(value))))
    return rows


def _told(value: Any) -> str:
    if value is None:
        return "none"
    items = listed(value)
    return str(value) if items is None else ", ".join(map(_told, items))
