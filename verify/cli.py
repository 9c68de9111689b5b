"""The command `verify`: audit kernels, list them, print the truth.

Exit codes: 0 nothing wrong, 1 something violated or hazardous, 2 usage, 3 a kernel could not be
run. Bad input is one line on standard error, never a traceback. Heavy modules are imported by the
commands that need them, so that `verify --help` is quick.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from verify.audit.run import Progress
    from verify.finding import Report
    from verify.kernels.kernel import Kernel

app = typer.Typer(
    name="verify",
    help="Proofs, exact truth and rigorous audits for normalisation layers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

USAGE = 2
COULD_NOT_RUN = 3


class UsageError(ValueError):
    """Bad input to a command: one line, what came, what was expected, what to write."""


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


def _version(value: bool) -> None:
    if value:
        print(f"normproof {sys.modules['verify'].__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Proofs, exact truth and rigorous audits for normalisation layers."""


# ------------------------------------------------------------------------------------------- audit


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
    _make_folder(out)
    _check_writable(json_to)
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


def _make_folder(out: Path) -> None:
    """The output folder exists and takes files, before minutes are spent."""
    probe = out / ".verify-can-write"
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"cannot write into '{out}' ({error.strerror}): expected a folder that may be written "
            "to; write -o another-folder"
        ) from None


def _check_writable(json_to: str | None) -> None:
    if json_to is None or json_to == "-":
        return
    path = Path(json_to)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(
            f"cannot write '{json_to}': expected a file in a folder that exists; "
            "write --json FILE, or --json - for standard output"
        )


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Progress | None]:
    """A bar on standard error, where that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (BarColumn(24), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def advance(kernel: str, format: str, check: str, done: int, total: int) -> None:
            words = f"{kernel} {format}: {check}"
            bar.update(task, description=words, completed=done, total=total)

        yield advance


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


# ----------------------------------------------------------------------------------------- kernels


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
        "schema": _schema(),
        "environment": _environment(),
        "kernels": [_described(kernel) for kernel in found],
        "skipped": [{"name": name, "reason": reason} for name, reason in missing],
    }
    _emit(data, json_to)


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


def _schema() -> int:
    from verify.finding import SCHEMA

    return SCHEMA


def _environment() -> dict[str, Any]:
    from verify.audit.run import environment

    return environment()


def _emit(data: Any, json_to: str) -> None:
    from verify.report import write_atomically

    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    if json_to == "-":
        sys.stdout.write(text)
    else:
        write_atomically(json_to, text)


# ------------------------------------------------------------------------------------------- truth


@app.command()
def truth(
    formula: Annotated[str, typer.Argument(help="rms_norm, layer_norm, ...")],
    format: Annotated[str, typer.Option("--format", help="Format of the output.")] = "float32",
    x: Annotated[
        Path | None, typer.Option("--x", help="Rows: .npy, or .npz with x, weight, bias, ...")
    ] = None,
    weight: Annotated[Path | None, typer.Option(help="Weight, as .npy.")] = None,
    bias: Annotated[Path | None, typer.Option(help="Bias, as .npy.")] = None,
    dy: Annotated[Path | None, typer.Option(help="The gradient of y, as .npy.")] = None,
    eps: Annotated[float, typer.Option(help="eps >= 0.")] = 1e-5,
    num_groups: Annotated[int | None, typer.Option(help="For group norms.")] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Two rows of our own.")] = False,
    save: Annotated[Path | None, typer.Option(help="Write the output there, as .npy.")] = None,
    json_to: Annotated[
        str | None, typer.Option("--json", help="Write it as JSON to FILE ('-': stdout).")
    ] = None,
) -> None:
    """Print the correctly rounded output of a formula, and how far a right kernel may be off."""
    from verify.formats import format_named
    from verify.norms import formula_named

    found, fmt = formula_named(formula), format_named(format)
    files = {"x": x, "weight": weight, "bias": bias, "dy": dy}
    arrays = _demo(found.id) if demo else _arrays(files)
    if demo and x is not None:
        raise UsageError("came both --demo and --x: expected one of them")
    names = {p.name for p in found.parameters}
    numbers = {n: eps for n in ("eps",) if n in names}
    _print_truth(found.id, fmt.name, {**arrays, **numbers}, num_groups, save, json_to)


def _demo(formula: str) -> dict[str, Any]:
    """Two rows: an easy one, and one with a large mean."""
    import numpy as np

    rows = np.array([[1, 2, 3, 4], [1000, 1001, 1002, 1003]], np.float32)
    given: dict[str, Any] = {"x": rows}
    if formula.endswith("_backward"):
        given["dy"] = np.ones_like(rows)
    return given


def _arrays(files: dict[str, Path | None]) -> dict[str, NDArray[Any]]:
    """The arrays in the files; an .npz given as x holds them all."""
    if files["x"] is None:
        raise UsageError("no rows: write --x FILE.npy, or --demo")
    arrays: dict[str, NDArray[Any]] = {}
    for name, path in files.items():
        if path is not None:
            arrays |= _loaded(name, path)
    if "x" not in arrays:
        raise UsageError(f"'{files['x']}' holds {', '.join(arrays)}: expected an array called x")
    return arrays


def _loaded(name: str, path: Path) -> dict[str, NDArray[Any]]:
    """One file; pickle stays off, since data must not be able to run code."""
    import zipfile

    import numpy as np

    try:
        content = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())[:100]
        reason = "it holds Python objects, or is of another kind" if "pickle" in reason else reason
        raise UsageError(
            f"cannot read '{path}' for {name} ({reason}): expected .npy or .npz without pickle; "
            "write it with numpy.save"
        ) from None
    if isinstance(content, np.ndarray):
        return {name: content}
    with content as archive:
        return {each: archive[each] for each in archive.files}


def _print_truth(
    formula: str,
    format: str,
    arguments: dict[str, Any],
    num_groups: int | None,
    save: Path | None,
    json_to: str | None,
) -> None:
    """The truth, and the bound of the strictest contract in that format, if there is one."""
    import numpy as np

    from verify.norms import formula_named
    from verify.numeric import reference

    given = dict(arguments)
    eps = given.pop("eps", None)
    result = reference(
        formula, given.pop("x"), eps=eps, format=format, num_groups=num_groups, **given
    )
    outputs = result if isinstance(result, tuple) else (result,)
    names = [o.name for o in formula_named(formula).outputs]
    contract, limits = _bounds(formula, format, arguments, num_groups, len(outputs))
    if save is not None:
        np.save(save, outputs[0])
    if json_to is not None:
        _emit(_truth_json(formula, format, names, outputs, contract, limits), json_to)
        return
    for name, output, limit in zip(names, outputs, limits, strict=True):
        print(f"{name} ({format}, {output.shape}), correctly rounded:")
        print(np.array2string(np.asarray(output, np.float64), precision=9, threshold=64))
        if limit is not None:
            print(f"at most this far off in a kernel that keeps '{contract}':")
            print(np.array2string(limit, precision=3, threshold=64))


def _bounds(
    formula: str, format: str, arguments: dict[str, Any], num_groups: int | None, count: int
) -> tuple[str, list[Any]]:
    """The strictest contract's name and its bound for each output; None where there is none."""
    from verify.numeric import bound, contracts_for

    contract = next(iter(contracts_for(formula, format)), None)
    if contract is None:
        return "", [None] * count
    return contract.name or contract.describe(), list(bound(contract, arguments, num_groups))


def _truth_json(
    formula: str,
    format: str,
    names: Sequence[str],
    outputs: Sequence[Any],
    contract: str,
    limits: Sequence[Any],
) -> dict[str, Any]:
    import numpy as np

    return {
        "schema": _schema(),
        "environment": _environment(),
        "formula": formula,
        "format": format,
        "contract": contract,
        "outputs": {
            name: {
                "value": _plain(np.asarray(output, np.float64).tolist()),
                "bound": None if limit is None else _plain(limit.tolist()),
            }
            for name, output, limit in zip(names, outputs, limits, strict=True)
        },
    }


def _plain(value: Any) -> Any:
    """Nested lists with NaN and infinities as words."""
    from verify.finding import finite_or_text

    return [_plain(v) for v in value] if isinstance(value, list) else finite_or_text(value)


# -------------------------------------------------------------------------------------------- main


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return (
            f"cannot open '{error.filename}' ({error.strerror}): expected a file that can be read; "
            "write another path"
        )
    worded = getattr(error, "format_message", error.__str__)  # typer's name the parameter
    message = " ".join(worded().split())
    return (
        f"{message.rstrip('.')}; see `verify --help`" if _is_typer(error) and message else message
    )


def _is_typer(error: BaseException) -> bool:
    return isinstance(error, _typer_error())


def _typer_error() -> type[BaseException]:
    """The base of typer's errors: click's, of which newer versions of typer carry a copy."""
    return next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def _input_errors() -> tuple[type[BaseException], ...]:
    """Every error that means bad input; only those of modules that were loaded can be raised."""
    wanted = {
        "verify.formula": "UnknownFormulaError",
        "verify.formats": "FormatError",
        "verify.kernels.kernel": "KernelError",
        "verify.numeric.rows": "InputError",
        "verify.report.record": "ReportError",
    }
    loaded = ((sys.modules.get(module), name) for module, name in wanted.items())
    found = [getattr(module, name) for module, name in loaded if module is not None]
    return (UsageError, OSError, _typer_error(), *found)


def main() -> None:
    """The entry point of the command."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except Exception as error:
        if not isinstance(error, _input_errors()):
            raise
        if line := _one_line(error):
            print(f"verify: {line}", file=sys.stderr)
        sys.exit(USAGE)
    except KeyboardInterrupt:
        sys.exit(130)
