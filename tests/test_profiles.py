"""`pytest --hypothesis-profile=deep` runs at least 50 times the examples, and says so."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent

PROPERTIES = """
from hypothesis import given, settings, strategies as st

@given(st.integers())
def test_plain(n):
    assert n == n

@settings(max_examples=2 * settings.default.max_examples)
@given(st.integers())
def test_scaled(n):
    assert n == n
"""


def run_pytest(folder: Path, *options: str) -> str:
    """What pytest prints over two tiny properties, with this project's conftest beside them."""
    shutil.copy(TESTS / "conftest.py", folder)
    (folder / "test_tiny.py").write_text(PROPERTIES)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def counts(output: str) -> dict[str, int]:
    found = re.findall(r"([\d,]+) cases  \S+::(\w+)", output)
    return {name: int(count.replace(",", "")) for count, name in found}


@pytest.mark.parametrize("workers", ["0", "2"])
def test_deep_prints_how_many_cases_each_property_ran(tmp_path, workers):
    output = run_pytest(tmp_path, "--hypothesis-profile=deep", "-n", workers)
    assert counts(output) == {"test_plain": 1_000, "test_scaled": 2_000}


def test_default_prints_no_counts(tmp_path):
    assert not counts(run_pytest(tmp_path))


def test_deep_is_fifty_times_default_and_has_no_deadline():
    deep, default = settings.get_profile("deep"), settings.get_profile("default")
    assert deep.max_examples >= 50 * default.max_examples
    assert deep.deadline is None


def fixed_numbers_of_examples(source: str) -> list[int]:
    """The lines on which a property fixes its number of examples, which `deep` could not raise."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    given = (
        keyword
        for call in calls
        if getattr(call.func, "attr", getattr(call.func, "id", "")) == "settings"
        for keyword in call.keywords
        if keyword.arg == "max_examples"
    )
    return [each.value.lineno for each in given if "default" not in ast.unparse(each.value)]


def test_no_property_holds_deep_back():
    found = {
        f"{path.relative_to(TESTS)}:{line}"
        for path in TESTS.rglob("*.py")
        for line in fixed_numbers_of_examples(path.read_text())
    }
    assert not found, "write @settings(max_examples=5 * settings.default.max_examples)"


def test_a_fixed_number_of_examples_is_seen():
    planted = "@settings(max_examples=20)\n@given(x)\ndef test_law(x): ...\n"
    assert fixed_numbers_of_examples(planted) == [1]
    assert not fixed_numbers_of_examples(PROPERTIES)
