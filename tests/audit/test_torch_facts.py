"""What the first audit finds in torch 2.13 on a CPU; each was measured before it was written."""

from __future__ import annotations

from importlib import metadata

import pytest

from verify.audit.run import audit
from verify.finding import Finding, Verdict
from verify.kernels.registry import kernel_named


def _torch() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return "none"


pytestmark = pytest.mark.skipif(
    not _torch().startswith("2.13."), reason=f"the facts are of torch 2.13, here is {_torch()}"
)


def findings(kernel: str, format: str, *checks: str) -> list[Finding]:
    report, could_not_run = audit([kernel_named(kernel)], formats=[format], checks=checks)
    assert not could_not_run
    return [f for f in report.findings if f.check in checks]


@pytest.mark.parametrize("format", ["bfloat16", "float16"])
def test_rms_norm_multiplies_by_the_weight_in_float32_and_casts_once(format):
    (found,) = findings("torch.rms_norm", format, "contract")
    assert found.verdict is Verdict.HOLDS
    assert found.message.startswith("keeps 'weight in float32, one cast")
    share = int(found.message.partition("(")[2].partition("%")[0])
    assert 20 <= share <= 30  # of the elements differ from the Llama order


def test_layer_norm_in_float32_keeps_two_pass_or_welford():
    contract, accuracy = findings("torch.layer_norm", "float32", "contract", "accuracy")
    assert contract.verdict is accuracy.verdict is Verdict.HOLDS
    assert "two-pass" in contract.message
    assert "Welford" in contract.message


def test_group_norm_is_one_pass_in_channels_last_and_right_in_contiguous():
    found = findings("torch.group_norm", "float32", "contract", "layout")
    assert found[0].verdict is Verdict.HOLDS
    layouts = found[1:]
    assert [f.verdict for f in layouts if "channels_last" not in f.message] == 3 * [Verdict.HOLDS]
    (wrong,) = (f for f in layouts if "channels_last" in f.message)
    assert wrong.verdict is Verdict.HAZARD
    assert "one-pass variance" in wrong.message
    assert abs(wrong.witness.got) > 10 * abs(wrong.witness.expected)


def test_layer_norm_in_bf16_misses_the_bias_on_a_constant_row():
    (found,) = findings("torch.layer_norm", "bfloat16", "constant row")
    assert found.verdict is Verdict.HAZARD
    assert found.measured == 0.0625  # 2.9375 for 3


def test_layer_norm_in_float32_has_a_gradient_for_the_weight_of_a_constant_row():
    (found,) = findings("torch.layer_norm", "float32", "gradient of a constant row")
    assert found.verdict is Verdict.HAZARD
    assert found.measured == pytest.approx(0.008, rel=0.01)


def test_layer_norm_of_rows_of_1e30_is_nan():
    found = findings("torch.layer_norm", "float32", "range")
    assert found[0].verdict is Verdict.EXPECTED
    assert "give nan" in found[0].message


def test_layer_norm_in_bf16_sums_gradients_over_rows_in_bf16():
    (found,) = findings("torch.layer_norm", "bfloat16", "gradients")
    assert found.verdict is Verdict.VIOLATED
    assert found.message.startswith(("dweight", "dbias"))
    assert "100% of it is what a sum over rows in bfloat16 gives" in found.message
    assert "at worst dweight as a whole is off by" in found.message
    assert "'mean 32" in found.message
