"""Every planted defect is caught and named; every right kernel is left in peace."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from verify.audit.run import audit
from verify.audit.sandbox import resolve
from verify.finding import Finding, Report, Verdict
from verify.kernels.kernel import Kernel
from verify.kernels.registry import kernel_named

NORMS = Path(__file__).with_name("wrong_norms.py")
FORMATS = ("float32", "bfloat16", "float16")


def planted(name: str) -> Kernel:
    return replace(resolve(kernel_named(f"{NORMS}:{name}")), patience_s=2.0)


def audited(name: str, *formats: str, checks: tuple[str, ...] | None = None, **more) -> Report:
    report, could_not_run = audit(
        [planted(name)], quick=True, formats=formats, checks=checks, **more
    )
    assert not could_not_run
    return report


def contract_of(name: str, format: str, **more) -> Finding:
    """The finding that says which contract a planted kernel keeps."""
    report = audited(name, format, checks=("contract",), **more)
    return next(f for f in report.findings if f.check == "contract")


def reproduces(finding: Finding, folder: Path) -> bool:
    """Whether the script of a finding shows the fault, in a process of its own."""
    script = folder / "repro.py"
    script.write_text(finding.repro)
    assert len(finding.repro.splitlines()) <= 25
    done = subprocess.run([sys.executable, script], capture_output=True, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stderr.decode()
    return done.returncode == 1


# --- right --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["right_rms", "right_layer", "llama_rms"])
def test_a_right_kernel_is_not_accused(name):
    report = audited(name, *FORMATS)
    assert [f for f in report.findings if f.verdict.is_bad] == []
    assert {f.format for f in report.findings if f.check == "contract"} == set(FORMATS)


@pytest.mark.parametrize(
    ("name", "contract"),
    [("right_rms", "weight in float32, one cast"), ("llama_rms", "Llama order")],
)
@pytest.mark.parametrize("format", ["bfloat16", "float16"])
def test_the_cast_order_is_identified(name, contract, format):
    found = contract_of(name, format)
    assert found.verdict is Verdict.HOLDS
    assert found.message.startswith(f"keeps '{contract}")
    assert "% of elements differ" in found.message


# --- hazardous ----------------------------------------------------------------------------------


def test_one_pass_layer_norm_is_a_hazard_with_a_witness_of_at_most_4_elements(tmp_path):
    found = contract_of("one_pass_layer", "float32")
    assert found.verdict is Verdict.HAZARD
    assert "one-pass variance" in found.message
    assert len(found.witness.inputs["x"][0]) <= 4
    assert abs(found.witness.got - found.witness.expected) > 0.5 * abs(found.witness.expected)
    assert reproduces(found, tmp_path)


# --- wrong --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "format", "fault"),
    [
        ("eps_outside_rms", "float32", "eps outside the square root"),
        ("eps_outside_rms", "bfloat16", "eps outside the square root"),
        ("no_eps_rms", "float32", "no eps"),
        ("d_minus_one_layer", "float32", "divisor d-1 instead of d"),
        ("d_minus_one_layer", "bfloat16", "divisor d-1 instead of d"),
        ("bf16_accumulator_rms", "float32", "bfloat16 accumulator"),
        ("bf16_accumulator_rms", "bfloat16", "bfloat16 accumulator"),
        ("fp16_square_rms", "float32", "squares rounded to float16"),
        ("fp16_square_rms", "bfloat16", "squares rounded to float16"),
        ("truncating_rms", "bfloat16", "output truncated instead of rounded"),
    ],
)
def test_a_fault_is_caught_and_named(name, format, fault, tmp_path):
    found = contract_of(name, format)
    assert found.verdict is Verdict.VIOLATED
    assert found.message.startswith(fault)
    assert found.witness is not None
    assert reproduces(found, tmp_path)


def test_the_other_cast_order_is_caught_and_named_where_one_is_promised(tmp_path):
    found = contract_of("llama_rms", "bfloat16", claim="weight in float32, one cast")
    assert found.verdict is Verdict.VIOLATED
    assert found.message.startswith("Llama order: cast, then weight")
    assert reproduces(found, tmp_path)


def test_a_fault_without_a_name_is_still_caught():
    found = contract_of("doubled_rms", "float32")
    assert found.verdict is Verdict.VIOLATED
    assert found.message.startswith("keeps no right contract")
    assert found.witness.inputs["x"] == [[1.0]]  # as small and plain as can be


def test_truncation_is_half_an_ulp_of_bias():
    report = audited("truncating_rms", "bfloat16", checks=("signed bias",))
    found = next(f for f in report.findings if f.check == "signed bias")
    assert found.verdict is Verdict.VIOLATED
    assert found.measured == pytest.approx(-0.5, abs=0.03)
    assert "truncation" in found.message


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("writing_rms", "inputs unmodified"),
        ("nan_swallowing_rms", "nan and infinity"),
    ],
)
def test_a_broken_promise_is_found_by_the_check_that_is_for_it(name, check):
    report = audited(name, "float32", checks=(check,))
    assert [f.verdict for f in report.findings if f.check == check] == [Verdict.VIOLATED]


def test_a_sum_that_depends_on_the_batch_is_found():
    report, _ = audit(
        [planted("batch_dependent_rms")], formats=["float32"], checks=["batch invariance"]
    )
    assert [f.verdict for f in report.findings if f.check == "batch invariance"] == [
        Verdict.VIOLATED
    ]


# --- ill-behaved --------------------------------------------------------------------------------


def test_a_segfault_is_a_finding_and_the_audit_goes_on():
    report = audited("crashing_rms", "float32", checks=("contract", "sign"))
    found = {f.check: f for f in report.findings}
    assert found["contract"].verdict is Verdict.VIOLATED
    assert "crash" in found["contract"].message
    assert "SIGSEGV" in found["contract"].message
    assert found["sign"].verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("name", "words"),
    [("hanging_rms", "no result within 2 s"), ("ending_rms", "exit code 7")],
)
def test_a_hang_or_an_exit_is_a_finding(name, words):
    report = audited(name, "float32")
    (found,) = report.findings
    assert found.verdict is Verdict.VIOLATED
    assert words in found.message


def test_a_kernel_that_refuses_every_format_could_not_be_run():
    report, could_not_run = audit([planted("refusing_rms")], quick=True, formats=["float32"])
    assert len(could_not_run) == 1
    (found,) = report.findings
    assert found.verdict is Verdict.SKIPPED
    assert "no kernel for float32" in found.message


def test_a_kernel_that_does_not_import_is_skipped_and_could_not_be_run():
    kernel = replace(kernel_named("numpy.rms_norm"), adapter="verify.kernels.no_such:callables")
    report, could_not_run = audit([kernel], formats=["float32"])
    assert could_not_run == ["numpy.rms_norm"]
    assert [f.verdict for f in report.findings] == [Verdict.SKIPPED]
