"""`verify audit` and `verify kernels`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from verify.cli.base import (
    COULD_NOT_RUN,
    UsageError,
    app,
    check_writable,
    emit,
    environment,
    make_folder,
    progress_bar,
    schema,
)

if TYPE_CHECKING:
    from verify.audit.run import Progress
    from verify.finding import Report
    from verify.kernels.kernel import Kernel


class FailOn(StrEnum):
    """What makes `verify audit` end with 1."""

    VIOLATED = "violated"  # nothing but a violation
    HAZARD = "hazard"  # a violation or a hazard
    NONE = "none"  # nothing that was found


class ArrayKind(StrEnum):
    """What a user's callable is given."""

    AUTO = "auto"
    NUMPY = "numpy"
    TORCH = "torch"


@app.command()
def audit(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Kernels by NAME, module:callable or file.py:callable; all if none."),
    ] = None,
    formula: Annotated[
        str | None, typer.Option(help="What a callable computes, if its name does not say.")
    ] = None,
    array: Annotated[ArrayKind, typer.Option(help="What a callable is given.")] = ArrayKind.AUTO,
    format: Annotated[
        list[str] | None, typer.Option("--format", help="Formats to audit; all if none.")
    ] = None,
    contract: Annotated[
        str, typer.Option(help="The contract that is promised: a part of its name.")
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer inputs, two formats.")] = False,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for findings.json and report.html.")
    ] = Path("out"),
    json_to: Annotated[
        str | None, typer.Option("--json", help="Write the findings there too ('-': stdout).")
    ] = None,
    fail_on: Annotated[FailOn, typer.Option(help="What ends with exit code 1.")] = FailOn.HAZARD,
) -> None:
    """Audit kernels: error against proved bounds, contracts, laws, layouts, gradients."""
    from verify.audit.run import audit as run_audit

    kernels = _kernels(names or [], formula, array.value)
    formats = [_format(name) for name in format or []]
    _check_contract(contract, kernels)
    make_folder(out)
    check_writable(json_to)
    with _progress(quiet=json_to == "-") as progress:
        report, could_not_run = run_audit(
            kernels, quick=quick, formats=formats or None, claim=contract, progress=progress
        )
    _write(report, out, json_to)
    raise typer.Exit(_exit_code(report, could_not_run, fail_on))


def _kernels(names: Sequence[str], formula: str | None, array: str) -> list[Kernel]:
    """The kernels named, or all that are here."""
    from verify.audit.sandbox import resolve
    from verify.kernels.kernel import KernelError
    from verify.kernels.registry import discover, kernel_named

    if not names:
        if formula is not None or array != "auto":
            raise UsageError("--formula and --array are for callables: write module:callable too")
        return discover()
    found = [kernel_named(name, formula=formula, array=array) for name in names]
    try:
        return [resolve(k) if "target" in k.arguments else k for k in found]
    except KernelError as error:
        raise UsageError(str(error)) from None


def _format(name: str) -> str:
    """A format that can be audited, by name."""
    from verify.audit.run import AUDITED
    from verify.formats import format_named

    known = format_named(name).name
    if known not in AUDITED:
        raise UsageError(
            f"format '{known}' cannot be audited yet: expected one of {', '.join(AUDITED)}"
        )
    return known


def _check_contract(claim: str, kernels: Sequence[Kernel]) -> None:
    """A promised contract must be one of those known."""
    from verify.numeric import contracts_for

    if not claim:
        return
    known = [c.name for k in kernels for f in k.formats for c in contracts_for(k.formula, f)]
    if not any(claim in name for name in known):
        raise UsageError(
            f"unknown contract '{claim}': expected a part of one of "
            f"{'; '.join(dict.fromkeys(known))}"
        )


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Progress | None]:
    """The bar, told of kernels, formats and checks."""
    with progress_bar(quiet=quiet) as advance:
        if advance is None:
            yield None
            return
        yield lambda kernel, format, check, done, total: advance(
            f"{kernel} {format}: {check}", done, total
        )


def _write(report: Report, out: Path, json_to: str | None) -> None:
    """Files, whole or not at all; then the scorecard, unless standard output is for JSON."""
    from verify.report import dumps, print_report, write_json, write_page

    write_json(report, out / "findings.json")
    write_page(report, out / "report.html")
    if json_to == "-":
        sys.stdout.write(dumps(report))
        return
    if json_to is not None:
        write_json(report, json_to)
    print_report(report)
    print(f"\nwritten: {out / 'findings.json'}, {out / 'report.html'}")


def _exit_code(report: Report, could_not_run: Sequence[str], fail_on: FailOn) -> int:
    """1 for what was found, 3 for a kernel that could not be run; with `none`, 0."""
    from verify.finding import Verdict

    if fail_on is FailOn.NONE:
        return 0
    verdicts = {finding.verdict for finding in report.findings}
    bad = {Verdict.VIOLATED, Verdict.REFUTED}
    bad |= {Verdict.HAZARD} if fail_on is FailOn.HAZARD else set()
    if verdicts & bad:
        return 1
    return COULD_NOT_RUN if could_not_run else 0


@app.command()
def kernels(
    json_to: Annotated[
        str | None, typer.Option("--json", help="Write it as JSON to FILE ('-': stdout).")
    ] = None,
) -> None:
    """List the kernels on this machine, and those that cannot run here, with the reason."""
    from verify.kernels.registry import discover, skipped

    found, missing = discover(), skipped()
    if json_to is None:
        _print_kernels(found, missing)
        return
    data = {
        "schema": schema(),
        "environment": environment(),
        "kernels": [_described(kernel) for kernel in found],
        "skipped": [{"name": name, "reason": reason} for name, reason in missing],
    }
    emit(data, json_to)


def _print_kernels(found: Sequence[Kernel], missing: Sequence[tuple[str, str]]) -> None:
    width = max((len(k.name) for k in found), default=0)
    for k in found:
        told = [*k.formats, *(["gradient"] if k.has_backward else [])]
        print(f"{k.name:{width}}  {k.formula:10}  {k.package} {k.version}  {', '.join(told)}")
    for name, reason in missing:
        print(f"{name:{width}}  skipped: {reason}")


def _described(kernel: Kernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "version": f"{kernel.package} {kernel.version}".strip(),
        "formula": kernel.formula,
        "formats": list(kernel.formats),
        "layouts": list(kernel.layouts),
        "has_backward": kernel.has_backward,
        "run_on": kernel.run_on,
    }
