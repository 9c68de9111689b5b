"""Every notebook runs from top to bottom without an error, and shows what a run of it has made."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from verify import theorem_names

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
TOOLS = ("nbclient", "nbformat", "ipykernel", "matplotlib")
TIMEOUT = 600  # seconds for one cell: a hang is cut off, a busy machine is not
LARGEST = 600_000  # bytes
# A folder of the machine that made the outputs; an image is no text and may hold any letters.
ABSOLUTE = re.compile(r"(?<![\w.~/-])/(?:work|tmp|home|root|Users|mnt|usr|opt)\b\S*")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
THEOREM = re.compile(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`")

Notebook = dict[str, Any]


def missing() -> str:
    """Which of the tools that execute notebooks are not installed."""
    return ", ".join(tool for tool in TOOLS if importlib.util.find_spec(tool) is None)


needs_tools = pytest.mark.skipif(bool(missing()), reason=f"not installed: {missing()}")
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def execute(path: Path) -> None:
    """Runs all cells in the notebook's folder; nothing is written. Raises at the first error."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=TIMEOUT, kernel_name="python3", resources=resources).execute()


def load(path: Path) -> Notebook:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


# --- what is wrong with a notebook as it is committed -------------------------------------------


def code_cells(notebook: Notebook) -> list[Notebook]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def texts(notebook: Notebook) -> Iterator[str]:
    """Sources and outputs, but for images."""
    for cell in notebook["cells"]:
        yield joined(cell["source"])
        for output in cell.get("outputs", []):
            yield joined(output.get("text", ""))
            yield from output.get("traceback", [])
            for kind, data in output.get("data", {}).items():
                if not kind.startswith("image/"):
                    yield joined(data) if isinstance(data, (str, list)) else json.dumps(data)


def faults(notebook: Notebook, folder: Path = FOLDER) -> list[str]:
    """What keeps a notebook from being shown: one line for each fault."""
    return [
        *faults_of_outputs(notebook),
        *(
            f"absolute path: {found}"
            for text in texts(notebook)
            for found in ABSOLUTE.findall(text)
        ),
        *faults_of_prose(notebook, folder),
    ]


def faults_of_outputs(notebook: Notebook) -> Iterator[str]:
    cells = code_cells(notebook)
    counts = [cell["execution_count"] for cell in cells]
    if not cells or counts != list(range(1, len(cells) + 1)):
        yield f"not executed once from top to bottom: {counts}"
    outputs = [output for cell in cells for output in cell["outputs"]]
    if not outputs:
        yield "no outputs"
    yield from (f"error output: {o['ename']}" for o in outputs if o["output_type"] == "error")
    yield from (f"stderr: {joined(o['text'])[:80]}" for o in outputs if o.get("name") == "stderr")
    if any("execution" in cell["metadata"] for cell in cells):
        yield "times of execution: they change with each run"


def faults_of_prose(notebook: Notebook, folder: Path) -> Iterator[str]:
    """Links that lead nowhere, and names of theorems that do not exist."""
    prose = [joined(c["source"]) for c in notebook["cells"] if c["cell_type"] == "markdown"]
    if not prose or not prose[0].startswith("# "):
        yield "no title"
    for text in prose:
        local = (link for link in LINK.findall(text) if "://" not in link)
        yield from (f"broken link: {link}" for link in local if not (folder / link).exists())
        unknown = set(THEOREM.findall(text)) - set(theorem_names())
        yield from (f"no theorem {name}" for name in sorted(unknown))


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


@each_notebook
def test_it_is_committed_as_it_ran(path: Path) -> None:
    assert faults(load(path)) == []


@each_notebook
def test_it_is_no_burden(path: Path) -> None:
    assert path.stat().st_size <= LARGEST


@needs_tools
@each_notebook
def test_it_runs(path: Path) -> None:
    execute(path)


# --- planted defects ----------------------------------------------------------------------------


def sound() -> Notebook:
    """A small notebook with nothing wrong in it."""
    prose = "# A title\n\nSee [proofs](../docs/proofs.md#top) and `CENTRING_IS_A_PROJECTION`."
    output = {"output_type": "stream", "name": "stdout", "text": ["1/2 of a/tmp/b\n"]}
    code = {"execution_count": 1, "metadata": {}, "outputs": [output], "source": ["print(1)"]}
    cells = [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": prose},
        {"cell_type": "code", "id": "b"} | code,
    ]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_a_sound_notebook_has_no_fault() -> None:
    assert faults(sound()) == []


def with_output(output: Notebook) -> Callable[[Notebook], Any]:
    return lambda notebook: code_cells(notebook)[0]["outputs"].append(output)


def with_prose(text: str) -> Callable[[Notebook], Any]:
    cell = {"cell_type": "markdown", "id": "c", "metadata": {}, "source": [text]}
    return lambda notebook: notebook["cells"].append(cell)


def with_cell(**changes: Any) -> Callable[[Notebook], Any]:
    return lambda notebook: code_cells(notebook)[0].update(changes)


ERROR = {"output_type": "error", "ename": "ValueError", "evalue": "", "traceback": []}
RESULT = {"output_type": "execute_result", "execution_count": 1, "metadata": {}}
PLANTED: dict[str, tuple[Callable[[Notebook], Any], str]] = {
    "a cell that was not executed": (with_cell(execution_count=None), "not executed"),
    "a cell that was executed out of order": (with_cell(execution_count=7), "not executed"),
    "outputs cleared": (with_cell(outputs=[]), "no outputs"),
    "an error": (with_output(ERROR), "error output: ValueError"),
    "a warning": (
        with_output({"output_type": "stream", "name": "stderr", "text": "Warning: deprecated"}),
        "stderr: Warning",
    ),
    "a path in a source": (with_cell(source="open('/home/someone/x')"), "absolute path: /home/"),
    "a path in a text": (
        with_output(RESULT | {"data": {"text/plain": ["<File '/tmp/ab/c.py'>"]}}),
        "absolute path: /tmp/ab",
    ),
    "a path in a page": (
        with_output(RESULT | {"data": {"text/html": "<a href='/work'>"}}),
        "absolute path: /work",
    ),
    "a path in an error": (
        with_output(ERROR | {"traceback": ["File /root/x.py:1"]}),
        "absolute path: /root/x.py",
    ),
    "times": (with_cell(metadata={"execution": {}}), "times of execution"),
    "a broken link": (with_prose("[there](nowhere.ipynb)"), "broken link: nowhere.ipynb"),
    "a theorem that does not exist": (
        with_prose("By `LAYER_NORM_IS_BATCH_NORM` all is well."),
        "no theorem LAYER_NORM_IS_BATCH_NORM",
    ),
    "no title": (lambda notebook: notebook["cells"].pop(0), "no title"),
}


@pytest.mark.parametrize("defect", PLANTED)
def test_a_planted_defect_is_named(defect: str) -> None:
    plant, named = PLANTED[defect]
    notebook = sound()
    plant(notebook)
    assert any(fault.startswith(named) for fault in faults(notebook))


def test_letters_of_an_image_are_no_path() -> None:
    notebook = sound()
    with_output(RESULT | {"data": {"image/png": "iVBOR /tmp/ab /home/x"}})(notebook)
    assert faults(notebook) == []


def written(notebook: Notebook, folder: Path, source: str) -> Path:
    code_cells(notebook)[0]["source"] = source
    path = folder / "planted.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return path


@needs_tools
def test_a_notebook_without_an_error_runs(tmp_path: Path) -> None:
    execute(written(sound(), tmp_path, "import verify"))


@needs_tools
def test_a_planted_error_is_caught(tmp_path: Path) -> None:
    from nbclient.exceptions import CellExecutionError

    with pytest.raises(CellExecutionError, match="two is not three"):
        execute(written(sound(), tmp_path, "assert 2 == 3, 'two is not three'"))
