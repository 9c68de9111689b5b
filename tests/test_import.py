"""`import verify` loads the standard library alone; each public name is there when asked for."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import verify

ROOT = Path(__file__).parents[1]

LOADED = """
import sys
before = set(sys.modules)
import verify
tops = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(tops - sys.stdlib_module_names - {"verify"}))
"""


def foreign_modules(folder: Path) -> list[str]:
    """What `import verify`, from a folder, loads from outside the standard library."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_import_loads_the_standard_library_alone():
    assert foreign_modules(ROOT) == []


def test_an_eager_import_is_seen(tmp_path):
    shutil.copytree(ROOT / "verify", tmp_path / "verify")
    with (tmp_path / "verify" / "__init__.py").open("a") as init:
        init.write("\nimport numpy\n")
    assert "numpy" in foreign_modules(tmp_path)


@pytest.mark.parametrize("name", sorted(verify.__all__))
def test_public_name_is_there(name):
    assert getattr(verify, name) is not None
    assert name in dir(verify)


def test_names_for_type_checkers_are_the_lazy_ones():
    body = ast.parse(Path(verify.__file__).read_text()).body
    guarded = next(node for node in body if isinstance(node, ast.If))
    homes = {line.names[0].asname: line.module for line in guarded.body}
    assert homes == verify._MODULE_OF


def test_a_name_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(AttributeError, match=r"no public name 'layernorm'; it has .*reference"):
        verify.layernorm  # noqa: B018 - looking it up is the test
