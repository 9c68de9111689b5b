"""The report on a terminal: a scorecard, what is wrong with its witness, what was skipped."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from verify.finding import Finding, KernelRecord, Report, Verdict
from verify.report.summary import (
    SIGNS,
    SYNTHETIC,
    Score,
    against,
    bad,
    columns,
    plural,
    ratio,
    scores,
    sentence,
    visible,
    witness_lines,
)

NARROW = 96  # columns below which headings are shortened
MANY = 3  # real inputs of a kernel that are listed one by one, whatever was found on them

STYLES: Mapping[Verdict, str] = {
    Verdict.HOLDS: "green",
    Verdict.VIOLATED: "bold red",
    Verdict.HAZARD: "bold yellow",
    Verdict.SKIPPED: "dim",
    Verdict.EXPECTED: "cyan",
    Verdict.PROVED: "green",
    Verdict.REFUTED: "bold red",
    Verdict.UNDECIDED: "magenta",
}
SHORT: Mapping[Verdict, str] = {
    Verdict.VIOLATED: "viol.",
    Verdict.SKIPPED: "skip",
    Verdict.EXPECTED: "exp.",
    Verdict.UNDECIDED: "undec.",
}


def print_report(report: Report, console: Console | None = None) -> None:
    """Print the scorecard and what is wrong; colour where the console is a terminal."""
    console = console or Console()
    for part in _parts(report, console.width):
        console.print(part, markup=False, highlight=False, emoji=False)


def render_text(report: Report, width: int = 100) -> str:
    """What `print_report` prints, as plain text at most ``width`` columns wide."""
    out = io.StringIO()
    print_report(report, Console(file=out, width=width, force_terminal=False, no_color=True))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _parts(report: Report, width: int) -> Iterator[RenderableType]:
    yield from _scorecard(report, narrow=width < NARROW)
    yield from _section("Violated and hazardous", _wrong(report))
    yield from _section("Skipped", _skipped(report))
    yield from _section("Notes", [_item(Text(visible(note))) for note in report.notes])
    yield Rule(style="dim", characters="─")
    yield Text(visible(sentence(report)), style="bold")


def _section(title: str, parts: Sequence[RenderableType]) -> Iterator[RenderableType]:
    if parts:
        yield Text(title, style="bold underline")
        yield Text()
        for part in parts:
            yield part
            yield Text()


def _item(body: RenderableType, sign: str = "•", style: str = "") -> Table:
    """A paragraph that hangs from its sign."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(sign, style=style), body)
    return grid


# ------------------------------------------------------------------------------------- scorecard


def _scorecard(report: Report, *, narrow: bool) -> Iterator[RenderableType]:
    """A block for each kernel: what it is over the whole width, then counts for each input."""
    verdicts = columns(report)
    head = _grid(verdicts, narrow=narrow)
    names = (SHORT.get(verdict, verdict) if narrow else verdict for verdict in verdicts)
    headings = zip(names, verdicts, strict=True)
    head.add_row(Text("kernel and input"), *(Text(n, style=STYLES[v]) for n, v in headings))
    yield from (head, Rule(style="dim", characters="─"))
    for score in scores(report):
        yield from (_identity(score.kernel), _rows(score, verdicts, narrow=narrow), Text())


def _grid(verdicts: Sequence[Verdict], *, narrow: bool) -> Table:
    """The columns that all blocks share."""
    gap = 1 if narrow else 2
    grid = Table.grid(expand=True, padding=(0, 0, 0, gap))
    grid.add_column(ratio=1, overflow="fold")
    for verdict in verdicts:
        width = len(SHORT.get(verdict, verdict) if narrow else verdict)
        grid.add_column(justify="right", no_wrap=True, width=gap + max(width, 5))
    return grid


def _rows(score: Score, verdicts: Sequence[Verdict], *, narrow: bool) -> Table:
    grid = _grid(verdicts, narrow=narrow)
    for name, counts in _lines(score.counts):
        grid.add_row(
            Text(f"  {visible(name)}"), *(_cell(counts[verdict], verdict) for verdict in verdicts)
        )
    return grid


def _identity(kernel: KernelRecord) -> RenderableType:
    """Name and version, formula and machine; below it the contract."""
    text = Text(visible(kernel.name), style="bold", overflow="fold")
    on = f"on {kernel.run_on}" if kernel.run_on else ""
    about = ", ".join(filter(None, (kernel.version, kernel.formula, on)))
    text.append(f"  {visible(about)}".rstrip(), style="not bold dim")
    contract = Padding(Text(visible(kernel.contract), overflow="fold"), (0, 0, 0, 2))
    return Group(text, contract) if kernel.contract else text


def _cell(count: int, verdict: Verdict) -> Text:
    return Text(f"{count:,}", style=STYLES[verdict]) if count else Text("·", style="dim")


def _lines(counts: Mapping[str, Counter[Verdict]]) -> Iterator[tuple[str, Counter[Verdict]]]:
    """Synthetic, then each real input; where those are many, the faultless ones as one sum."""
    real = {name: each for name, each in counts.items() if name != SYNTHETIC}
    quiet = [name for name, each in real.items() if not any(v.is_bad for v in each)]
    merged = set(quiet) if len(real) > MANY and len(quiet) > 1 else set()
    for name, each in counts.items():
        if name not in merged:
            yield name, each
    if merged:
        yield f"{len(merged)} real inputs", sum((real[name] for name in quiet), Counter())


# --------------------------------------------------------------------------- what is wrong, and why


def _wrong(report: Report) -> list[RenderableType]:
    """One entry for a kernel, a check and a verdict: the worst finding, and where else."""
    groups: defaultdict[tuple[str, str, Verdict], list[Finding]] = defaultdict(list)
    for finding in bad(report):
        groups[finding.kernel, finding.check, finding.verdict].append(finding)
    return [_entry(findings) for findings in groups.values()]


def _entry(findings: Sequence[Finding]) -> RenderableType:
    worst = max(findings, key=lambda finding: ratio(finding) or 0.0)
    style = STYLES[worst.verdict]
    body = [_title(worst), Text(visible(worst.message))]
    if words := against(worst):
        body.append(Text(visible(words)))
    others = [finding for finding in findings if finding is not worst]
    if others:
        body.append(Text(visible(f"also on {', '.join(map(_where, others))}"), style="dim"))
    return _item(Group(*body, *_witness(worst)), SIGNS[worst.verdict], style)


def _title(finding: Finding) -> Text:
    title = Text(visible(finding.kernel), style="bold")
    title.append(f"  {visible(finding.check)}, {visible(_where(finding))}  ", style="not bold")
    return title.append(str(finding.verdict), style=STYLES[finding.verdict])


def _where(finding: Finding) -> str:
    real = "" if finding.inputs == SYNTHETIC else f" ({finding.inputs})"
    return f"{finding.format}{real}"


def _witness(finding: Finding) -> Iterator[RenderableType]:
    if finding.witness is not None:
        lines = "\n".join(visible(line) for line in witness_lines(finding.witness))
        yield Padding(Text(lines, style="cyan", overflow="fold"), (0, 0, 0, 2))


def _skipped(report: Report) -> list[RenderableType]:
    """One entry a reason, with the kernels and checks that it kept from running."""
    groups: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for finding in report.findings:
        if finding.verdict is Verdict.SKIPPED:
            groups[finding.message][finding.kernel].append(finding.check)
    return [_reason(reason, kernels) for reason, kernels in groups.items()]


def _reason(reason: str, kernels: Mapping[str, Sequence[str]]) -> RenderableType:
    count = sum(map(len, kernels.values()))
    body = Text(visible(reason))
    body.append(f"  ({plural(count, 'finding')})", style="dim")
    for kernel, checks in kernels.items():
        named = ", ".join(dict.fromkeys(checks))
        body.append(f"\n{visible(kernel)}: {visible(named)}", style="dim")
    return _item(body, SIGNS[Verdict.SKIPPED], STYLES[Verdict.SKIPPED])
