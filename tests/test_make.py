"""`make setup` installs once, pins torch, and keeps a GPU build of torch where there is one.

pip is replaced by a script that writes down how it was called, so that nothing is downloaded. The
interpreter is wrapped, to have a torch beside it and to make environments without pip, for speed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CLEAN = {k: v for k, v in os.environ.items() if k not in {"MAKEFLAGS", "MAKELEVEL", "VENV"}}

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(folder: Path, *arguments: str) -> str:
    command = ["make", *arguments]
    done = subprocess.run(
        command, cwd=folder, env=CLEAN, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def interpreter(folder: Path, build: str = "cuda=None, hip=None") -> Path:
    """An interpreter beside which lies a torch that can say of what build it is, and no more."""
    torch = folder / "lent" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text(
        f"from types import SimpleNamespace\nversion = SimpleNamespace({build})\n"
    )
    python = folder / "python-with-torch"
    python.write_text(
        "#!/bin/sh\n"
        'if [ "$2" = venv ]; then set -- "$@" --without-pip; fi\n'
        f'PYTHONPATH="{torch.parent}" exec "{sys.executable}" "$@"\n'
    )
    python.chmod(0o755)
    return python


@pytest.fixture
def environment(tmp_path):
    """Make an environment in a copy of what make reads; its pip takes notes and does nothing."""

    def made(**build: str) -> tuple[Path, str]:
        for name in ("Makefile", "constraints.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, tmp_path)
        python = f"PYTHON={interpreter(tmp_path, **build)}"
        make(tmp_path, python, ".venv/bin/pip")
        pip = tmp_path / ".venv" / "bin" / "pip"
        pip.write_text('#!/bin/sh\necho "$@" >> pip-calls\n')
        pip.chmod(0o755)
        return tmp_path, python

    return made


def pip_calls(folder: Path) -> list[str]:
    return (folder / "pip-calls").read_text().splitlines()


def lent_folder_seen(folder: Path) -> bool:
    where = "import sys; print(*sys.path)"
    python = folder / ".venv" / "bin" / "python"
    done = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True)
    return str(folder / "lent") in done.stdout.split()


def torch_pins(folder: Path) -> list[str]:
    lines = (folder / ".venv" / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line.startswith("torch==")]


def test_torch_is_pinned_and_a_second_setup_does_not_call_pip(environment):
    folder, python = environment()
    make(folder, python, "setup")
    make(folder, python, "setup")
    (call,) = pip_calls(folder)
    assert call.endswith("-e .[dev,torch,real]")
    assert torch_pins(folder) == ["torch==2.13.0"]
    assert not lent_folder_seen(folder)


@pytest.mark.parametrize("build", ["cuda='12.8', hip=None", "cuda=None, hip='6.4'"])
def test_a_gpu_build_of_torch_is_kept(environment, build):
    folder, python = environment(build=build)
    make(folder, python, "setup")
    (call,) = pip_calls(folder)
    assert call.endswith("-e .[dev,real]")
    assert torch_pins(folder) == []
    assert lent_folder_seen(folder)


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt"])
def test_a_changed_requirement_calls_pip_again(environment, changed):
    folder, python = environment()
    make(folder, python, "setup")
    newer = (folder / ".venv" / "ready").stat().st_mtime + 1
    os.utime(folder / changed, (newer, newer))
    make(folder, python, "setup")
    assert len(pip_calls(folder)) == 2


def test_help_is_the_default_and_names_every_target():
    named = make(ROOT)
    assert named == make(ROOT, "help")
    for target in ("setup", "audit", "test", "lint", "notebooks", "third-party", "bench"):
        assert f"\n{target} " in f"\n{named}"
