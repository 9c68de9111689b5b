"""Findings in, pages out: terminal, JSON, HTML.

`record` needs the standard library alone; rich and jinja2 are imported when something is drawn.

    >>> from verify.finding import Report
    >>> from verify.report import from_json, to_json
    >>> from_json(to_json(Report(environment={"python": "3.13"}, kernels=(), findings=())))
    Report(environment={'python': '3.13'}, kernels=(), findings=(), series=(), notes=())
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verify.report.record import (
    ReportError,
    dumps,
    from_json,
    loads,
    read_json,
    to_json,
    write_atomically,
    write_json,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from verify.finding import Report

__all__ = [
    "ReportError",
    "dumps",
    "from_json",
    "loads",
    "print_report",
    "read_json",
    "render_page",
    "render_text",
    "to_json",
    "write_atomically",
    "write_json",
    "write_page",
]


def render_page(report: Report) -> str:
    """The report as one self-contained HTML page; the same report gives the same text."""
    from verify.report import page

    return page.render_page(report)


def write_page(report: Report, path: str | Path) -> None:
    """Write the HTML page, whole or not at all. Raises ReportError in one line."""
    write_atomically(path, render_page(report))


def render_text(report: Report, width: int = 100) -> str:
    """What `print_report` prints, as plain text at most ``width`` columns wide."""
    from verify.report import terminal

    return terminal.render_text(report, width)


def print_report(report: Report, console: Console | None = None) -> None:
    """Print the scorecard and what is wrong; colour where the console is a terminal."""
    from verify.report import terminal

    terminal.print_report(report, console)
