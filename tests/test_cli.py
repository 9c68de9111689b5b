"""The command: exit codes, and one clear line for every bad input."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from verify import __version__

ROOT = Path(__file__).parents[1]
NORMS = "wrong_norms.py"


@pytest.fixture
def folder(tmp_path):
    """A current directory with the planted norms in it."""
    text = (ROOT / "tests" / "planted" / NORMS).read_text()
    (tmp_path / NORMS).write_text(text)
    return tmp_path


def verify(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-m", "verify", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def refused(folder: Path, *arguments: str) -> str:
    """The one line on standard error of bad input."""
    done = verify(folder, *arguments)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("verify: ")
    return lines[0].removeprefix("verify: ")


def saved(folder: Path, name: str, values) -> str:
    np.save(folder / name, np.asarray(values, np.float32))
    return name


# --- good input ---------------------------------------------------------------------------------


def test_the_version(folder):
    assert verify(folder, "--version").stdout == f"normproof {__version__}\n"


def test_help_loads_nothing_heavy(folder):
    code = "import sys; sys.argv = ['verify', '--help']\nfrom verify.cli import main\n"
    code += "try: main()\nexcept SystemExit: pass\n"
    code += (
        "heavy = {'numpy', 'numba', 'torch', 'mpmath'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for command in ("audit", "kernels", "truth"):
        assert command in done.stdout


def test_kernels_are_listed_as_text_and_as_json(folder):
    assert "numpy.rms_norm" in verify(folder, "kernels").stdout
    data = json.loads(verify(folder, "kernels", "--json", "-").stdout)
    assert data["schema"] == 1
    assert {"numpy.rms_norm", "numpy.layer_norm"} <= {k["name"] for k in data["kernels"]}
    assert all(each["reason"] for each in data["skipped"])


def test_the_truth_of_the_demo(folder):
    done = verify(folder, "truth", "layer_norm", "--format", "bfloat16", "--demo", "--json", "-")
    data = json.loads(done.stdout)
    assert data["outputs"]["y"]["value"][0] == [-1.34375, -0.447265625, 0.447265625, 1.34375]
    assert np.all(np.asarray(data["outputs"]["y"]["bound"]) < 0.006)


def test_the_truth_of_a_file(folder):
    x = saved(folder, "x.npy", [[3.0, 4.0]])
    done = verify(folder, "truth", "rms_norm", "--x", x, "--eps", "0", "--save", "y.npy")
    assert done.returncode == 0
    assert "correctly rounded" in done.stdout
    expected = np.float32([3 / np.sqrt(12.5), 4 / np.sqrt(12.5)])
    assert np.array_equal(np.load(folder / "y.npy")[0], expected)


def test_the_truth_of_an_archive(folder):
    np.savez(folder / "in.npz", x=np.ones((1, 2), np.float32), weight=np.float32([2, 3]))
    done = verify(folder, "truth", "rms_norm", "--x", "in.npz", "--eps", "0", "--json", "-")
    assert json.loads(done.stdout)["outputs"]["y"]["value"] == [[2.0, 3.0]]


# --- exit codes ---------------------------------------------------------------------------------

QUICK = ("--quick", "--format", "float32")


@pytest.mark.parametrize(
    ("name", "more", "code"),
    [
        ("right_rms", (), 0),
        ("eps_outside_rms", (), 1),
        ("eps_outside_rms", ("--fail-on", "none"), 0),
        ("one_pass_layer", (), 1),
        ("refusing_rms", (), 3),
    ],
)
def test_exit_codes(folder, name, more, code):
    done = verify(folder, "audit", f"{NORMS}:{name}", *QUICK, *more)
    assert done.returncode == code, done.stderr
    assert name in done.stdout
    report = json.loads((folder / "out" / "findings.json").read_text())
    assert report["kernels"][0]["name"] == f"{NORMS}:{name}"
    assert {"kernel", "check", "format", "verdict", "repro"} <= set(report["findings"][0])
    assert "<html" in (folder / "out" / "report.html").read_text()


def test_json_on_standard_output_is_json_alone(folder):
    done = verify(folder, "audit", f"{NORMS}:refusing_rms", *QUICK, "--json", "-")
    assert json.loads(done.stdout)["schema"] == 1
    assert done.stderr == ""


# --- bad input ----------------------------------------------------------------------------------


def test_a_kernel_that_does_not_exist(folder):
    line = refused(folder, "audit", "numpy.rmsnorm")
    assert line.startswith("unknown kernel 'numpy.rmsnorm': expected one of ")
    assert line.endswith("did you mean 'numpy.rms_norm'?")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("no_such_module:my_rms", "no module named 'no_such_module'"),
        ("missing.py:my_rms", "no file 'missing.py'"),
        (f"{NORMS}:no_such_rms", "has no 'no_such_rms'"),
        (f"{NORMS}:F32", "which formula does"),
        ("broken.py:my_rms", "does not import: ZeroDivisionError"),
        ("other.py:my_rms", "expected (x, weight, eps) or (x, weight, bias, eps)"),
    ],
)
def test_a_callable_that_cannot_be_audited(folder, target, words):
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "other.py").write_text("def my_rms(a, b):\n    return a\n")
    assert words in refused(folder, "audit", target)


def test_an_unknown_format(folder):
    assert refused(folder, "audit", "numpy.rms_norm", "--format", "bf17").startswith(
        "unknown format 'bf17'; expected one of float64, float32"
    )


def test_a_format_that_the_kernel_does_not_take(folder):
    line = refused(folder, "audit", "numpy.rms_norm", "--format", "float64")
    assert line == (
        "kernel 'numpy.rms_norm' takes float32, bfloat16, float16: expected one of them, came "
        "float64; write --format float32"
    )


def test_a_format_that_cannot_be_audited(folder):
    line = refused(folder, "audit", "numpy.rms_norm", "--format", "float8_e5m2")
    assert line.startswith("format 'float8_e5m2' cannot be audited yet: expected one of float64")


def test_an_unknown_contract(folder):
    line = refused(folder, "audit", "numpy.rms_norm", "--contract", "two casts")
    assert line.startswith("unknown contract 'two casts': expected a part of one of ")


def test_an_unknown_formula(folder):
    line = refused(folder, "truth", "lay_norm", "--demo")
    assert line.startswith("unknown formula 'lay_norm': expected one of ")
    assert line.endswith("did you mean 'layer_norm'?")


def test_options_for_callables_without_one(folder):
    line = refused(folder, "audit", "--formula", "rms_norm")
    assert line == "--formula and --array are for callables: write module:callable too"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("audit", "--no-such-option"), "No such option: --no-such-option"),
        (("audit", "--fail-on", "maybe"), "'maybe' is not one of 'violated', 'hazard', 'none'"),
        (("no-such-command",), "No such command 'no-such-command'"),
        (("truth",), "Missing argument 'formula'"),
        (("truth", "rms_norm"), "no rows: write --x FILE.npy, or --demo"),
        (("truth", "rms_norm", "--x", "none.npy"), "cannot open 'none.npy' (No such file"),
        (("truth", "rms_norm", "--x", NORMS), "expected .npy or .npz without pickle"),
    ],
)
def test_a_wrong_command_line(folder, arguments, words):
    assert words in refused(folder, *arguments)


@pytest.mark.parametrize(
    ("eps", "words"),
    [
        ("-1", "eps=-1.0 is negative: rms_norm needs eps >= 0"),
        ("nan", "eps=nan is not finite: write a finite number, e.g. 1e-6"),
    ],
)
def test_a_bad_eps(folder, eps, words):
    assert refused(folder, "truth", "rms_norm", "--demo", "--eps", eps) == words


def test_eps_0_is_allowed_and_a_zero_row_then_gives_nan(folder):
    x = saved(folder, "x.npy", [[0.0, 0.0]])
    done = verify(folder, "truth", "rms_norm", "--x", x, "--eps", "0", "--json", "-")
    assert json.loads(done.stdout)["outputs"]["y"]["value"] == [["nan", "nan"]]


def test_a_weight_of_the_wrong_width(folder):
    x, w = saved(folder, "x.npy", np.ones((2, 4))), saved(folder, "w.npy", np.ones(3))
    line = refused(folder, "truth", "rms_norm", "--x", x, "--weight", w)
    assert line == "weight has shape (3,), x has shape (2, 4): expected weight of shape (4,)"


def test_a_wrong_shape(folder):
    x = saved(folder, "x.npy", np.ones((2, 6)))
    line = refused(folder, "truth", "group_norm", "--x", x, "--num-groups", "4")
    assert line.startswith("num_groups=4 does not divide the 6 channels of x")


def test_integers_are_no_format(folder):
    np.save(folder / "x.npy", np.ones((1, 2), np.int32))
    line = refused(folder, "truth", "rms_norm", "--x", "x.npy")
    assert line.startswith("x has dtype int32: expected a floating format")


def test_a_pickle_is_not_read(folder):
    np.save(folder / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    line = refused(folder, "truth", "rms_norm", "--x", "x.npy")
    assert "expected .npy or .npz without pickle" in line


@pytest.mark.skipif(os.name != "posix", reason="/dev/null is a file of POSIX")
def test_an_unwritable_output_path(folder):
    line = refused(folder, "audit", "numpy.rms_norm", "-o", "/dev/null/out")
    assert line.startswith("cannot write into '/dev/null/out' (")
    assert line.endswith("write -o another-folder")


def test_a_json_path_in_no_folder(folder):
    line = refused(folder, "audit", "numpy.rms_norm", "--json", "no/such/f.json")
    assert line.startswith("cannot write 'no/such/f.json': expected a file in a folder that exists")


def test_a_report_is_never_left_half_written(folder):
    """Bad input leaves an earlier report as it was, and no other file beside it."""
    out = folder / "out"
    out.mkdir()
    (out / "findings.json").write_text("before")
    (out / "report.html").write_text("before")
    refused(folder, "audit", "numpy.rms_norm", "--format", "float64")
    refused(folder, "audit", "nothing.here")
    assert sorted(p.name for p in out.iterdir()) == ["findings.json", "report.html"]
    assert {p.read_text() for p in out.iterdir()} == {"before"}
