"""Hypothesis profiles, and the count of cases that each property ran under `deep`.

Profiles are registered when this file is imported, which pytest does before it reads
`--hypothesis-profile`; so `pytest --hypothesis-profile=deep` works from the repository root.

A property never states a number of examples of its own, which would hold `deep` back: an expensive
or a cheap one scales the profile's, `@settings(max_examples=5 * settings.default.max_examples)`.
"""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import HealthCheck, settings

EXAMPLES = {"default": 20, "ci": 40, "deep": 1_000}
COUNT = "cases of a property"

# Compilation, or a machine under load, makes a draw slow: a time limit would fail at random.
_STEADY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("default", max_examples=EXAMPLES["default"], **_STEADY)
settings.register_profile(
    "ci", max_examples=EXAMPLES["ci"], derandomize=True, database=None, print_blob=True, **_STEADY
)
settings.register_profile("deep", max_examples=EXAMPLES["deep"], print_blob=True, **_STEADY)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def cases_run(statistics: str) -> int:
    """The number of valid cases in Hypothesis' statistics of one property, over all phases.

    >>> cases_run("3 passing, 0 failing, and 1 invalid test cases; 2 passing, 1 failing, and 0")
    6
    """
    found = re.findall(r"(\d+) passing(?: examples)?, (\d+) failing", statistics)
    return sum(int(passing) + int(failing) for passing, failing in found)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Carry the count in the report: the one thing that pytest-xdist brings back from a worker."""
    report = yield
    if call.when == "teardown" and hasattr(item, "hypothesis_statistics"):
        report.user_properties.append((COUNT, cases_run(item.hypothesis_statistics)))
    return report


def pytest_terminal_summary(terminalreporter, config):
    """Under `deep`, print how many cases each property ran."""
    if config.getoption("--hypothesis-profile") != "deep":
        return
    counts = {
        report.nodeid: dict(report.user_properties)[COUNT]
        for reports in terminalreporter.stats.values()
        for report in reports
        if COUNT in dict(getattr(report, "user_properties", ()))
    }
    terminalreporter.section(f"cases run by each of {len(counts)} properties")
    for nodeid, count in sorted(counts.items()):
        terminalreporter.write_line(f"{count:8,} cases  {nodeid}")
