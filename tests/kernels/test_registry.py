"""What is on the machine is told without importing it, and what is not says why."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from verify.kernels import registry
from verify.kernels.kernel import Kernel, KernelError
from verify.kernels.registry import declared, discover, kernel_named, skipped, why_not
from verify.norms import FORMULAS

ROOT = Path(__file__).parents[2]
NAMES = {
    "numpy.layer_norm",
    "numpy.rms_norm",
    "torch.compile.group_norm",
    "torch.compile.layer_norm",
    "torch.compile.rms_norm",
    "torch.group_norm",
    "torch.layer_norm",
    "torch.rms_norm",
}


def test_every_declared_kernel_is_found_or_skipped_with_its_reason():
    found = [kernel.name for kernel in discover()]
    left = dict(skipped())
    assert {*found, *left} >= NAMES
    assert not set(found) & set(left)
    assert all(left.values())
    assert len({kernel.name for kernel in declared()}) == len(declared())


@pytest.mark.parametrize("kernel", declared(), ids=lambda kernel: kernel.name)
def test_a_record_names_things_that_exist(kernel):
    module, _, factory = kernel.adapter.partition(":")
    assert callable(getattr(importlib.import_module(module), factory))
    assert kernel.formula in FORMULAS
    assert set(kernel.needs) <= set(registry.NEEDS)
    assert kernel.run_on == "cpu"


def test_versions_are_the_packages_own():
    kernel = kernel_named("numpy.rms_norm")
    assert kernel.version == metadata.version("numpy")


def test_discovery_imports_no_kernels_package():
    run = (
        "import sys; from verify.kernels.registry import discover, skipped; "
        "discover(); skipped(); assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", run], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_without_a_compiler_the_compiled_kernels_are_skipped(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    reason = "no C++ compiler (g++ or clang++) on PATH"
    assert dict(skipped())["torch.compile.rms_norm"] == reason
    with pytest.raises(KernelError) as error:
        kernel_named("torch.compile.rms_norm")
    assert str(error.value) == f"kernel 'torch.compile.rms_norm' cannot run here: {reason}"


def test_a_package_that_is_not_installed_is_the_reason():
    kernel = Kernel(name="k", formula="rms_norm", adapter="m:f", package="no-such-package")
    assert why_not(kernel) == "package no-such-package is not installed"


def test_an_unknown_kernel_is_told_the_nearest():
    with pytest.raises(KernelError) as error:
        kernel_named("numpy.rmsnorm")
    line = str(error.value)
    assert line.startswith("unknown kernel 'numpy.rmsnorm': expected one of numpy.layer_norm, ")
    assert line.endswith("or module:callable; did you mean 'numpy.rms_norm'?")
    assert "\n" not in line


def test_a_known_kernel_is_not_another_formula():
    with pytest.raises(KernelError, match="computes rms_norm: expected no formula, or that one"):
        kernel_named("numpy.rms_norm", formula="layer_norm")
    assert kernel_named("numpy.rms_norm", formula="rms_norm") == kernel_named("numpy.rms_norm")
