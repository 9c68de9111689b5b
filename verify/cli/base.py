"""The application, and what its commands share: usage errors, folders, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

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


def make_folder(out: Path) -> None:
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


def check_writable(json_to: str | None) -> None:
    """A file for JSON can be written, before minutes are spent."""
    if json_to is None or json_to == "-":
        return
    path = Path(json_to)
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise UsageError(
            f"cannot write '{json_to}': expected a file in a folder that exists; "
            "write --json FILE, or --json - for standard output"
        )


def schema() -> int:
    """The number of the layout of what is written as JSON."""
    from verify.finding import SCHEMA

    return SCHEMA


def environment() -> dict[str, Any]:
    """The versions and the machine that the figures belong to."""
    from verify.audit.run import environment

    return environment()


def emit(data: Any, json_to: str) -> None:
    """Write JSON to a file, whole or not at all, or to standard output for '-'."""
    from verify.report import write_atomically

    text = json.dumps(data, indent=1, allow_nan=False) + "\n"
    if json_to == "-":
        sys.stdout.write(text)
    else:
        write_atomically(json_to, text)


Advance: TypeAlias = Callable[
    [str, int, int], None
]  # what is done now, how many are done, of how many


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[Advance | None]:
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

        def advance(words: str, done: int, total: int) -> None:
            bar.update(task, description=words, completed=done, total=total)

        yield advance


def one_line(error: BaseException) -> str:
    """What is said of bad input."""
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
    return isinstance(error, typer_error())


def typer_error() -> type[BaseException]:
    """The base of typer's errors: click's, of which newer versions of typer carry a copy."""
    return next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
