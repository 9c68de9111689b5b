"""Who may import whom: the contracts hold on the tree, and each fails on a planted import."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = PYPROJECT["tool"]["importlinter"]["contracts"]

# room: an import that its contract must refuse. A package nobody uses stands for all of those.
PLANTED = {
    "verify.formula": "numpy",
    "verify.formats": "verify.formula",
    "verify.finding": "verify.formats",
    "verify.norms": "verify.numeric",
    "verify.symbolic": "verify.numeric",
    "verify.symbolic.checkers": "verify.symbolic.trusted",
    "verify.symbolic.network": "verify.symbolic.trusted",
    "verify.numeric": "torch",
    "verify.numeric.strategies": "torch",
    "verify.kernels": "verify.numeric",
    "verify.models": "verify.audit",
    "verify.audit": "torch",
    "verify.report": "verify.audit",
    "verify.cli": "torch",
}


def lint_imports(folder: Path) -> tuple[int, str]:
    """The exit code of import-linter on a tree, and its output with line breaks undone."""
    run = "from importlinter.cli import lint_imports_command as run; run()"
    command = [sys.executable, "-c", run, "--no-cache"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.fixture
def tree(tmp_path):
    """A copy of what import-linter reads, to plant defects in."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "verify", tmp_path / "verify")
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "room_contract.py", tmp_path / "tests")
    return tmp_path


def plant(tree: Path, room: str, line: str) -> None:
    home = tree.joinpath(*room.split("."))
    path = home / "planted.py" if home.is_dir() else home.with_suffix(".py")
    with path.open("a") as file:
        file.write(f"\n{line}\n")


def test_the_rooms_are_kept():
    code, output = lint_imports(ROOT)
    assert code == 0, output


@pytest.mark.parametrize(("room", "imported"), PLANTED.items())
def test_a_planted_import_is_named(tree, room, imported):
    plant(tree, room, f"import {imported}")
    code, output = lint_imports(tree)
    (name,) = (each["name"] for each in CONTRACTS if each.get("room") == room)
    assert code == 1, output
    assert f"{name} BROKEN" in output
    assert f"imports {imported}" in output


def test_every_room_has_a_planted_import():
    assert set(PLANTED) == {each["room"] for each in CONTRACTS if each["type"] == "only"}


@pytest.mark.parametrize(
    ("room", "line", "complaint"),
    [
        ("numeric", "import hypothesis", "(line 2) imports hypothesis"),
        (
            "numeric",
            "import verify.numeric.strategies",
            "(line 2) imports verify.numeric.strategies",
        ),
        ("numeric", "def later():\n    import torch", "(line 3) imports torch"),
        ("report", "import nobody_thought_of", "(line 2) imports nobody_thought_of"),
        ("audit", "from verify import reference", "(line 2) imports verify"),
    ],
    ids=["hypothesis", "strategies", "lazy", "unknown package", "the public names"],
)
def test_what_a_row_does_not_name_is_refused(tree, room, line, complaint):
    plant(tree, f"verify.{room}", line)
    code, output = lint_imports(tree)
    assert code == 1, output
    assert f"verify.{room}.planted {complaint}" in output


def test_a_chain_of_imports_from_judge_to_judged_is_seen(tree):
    plant(tree, "verify.numeric", "import verify.audit.planted")
    plant(tree, "verify.audit", "import torch")
    assert "the judge never imports the judged BROKEN" in lint_imports(tree)[1]


def test_a_room_that_does_not_exist_is_an_error(tree):
    pyproject = tree / "pyproject.toml"
    pyproject.write_text(pyproject.read_text().replace('"verify.report"', '"verify.reports"'))
    code, output = lint_imports(tree)
    assert code == 1, output
    assert "names verify.reports, which does not exist" in output
