"""What is printed, at two widths, with and without a terminal."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from tests.report.sample import CANCELLATION, sample
from tests.report.test_record import REPORTS
from verify.finding import Finding, KernelRecord, Report, Verdict
from verify.report import print_report, render_text
from verify.report.summary import SIGNS

WIDTHS = pytest.mark.parametrize("width", [80, 100])


def words(text: str) -> str:
    """The text with its lines joined."""
    return re.sub(r"\s+", " ", text)


def row(text: str, kernel: str, inputs: str) -> list[str]:
    """The counts in the scorecard of one kernel on one input."""
    block = text.split(f"\n{kernel} ", 1)[1].split("\n\n", 1)[0]
    line = next(line for line in block.splitlines() if line.strip().startswith(inputs))
    return line.strip().removeprefix(inputs).split()


@WIDTHS
def test_no_line_is_wider_than_the_terminal(width):
    assert max(map(cell_len, render_text(sample(), width).splitlines())) <= width


@given(REPORTS, st.integers(60, 120))
def test_any_report_fits_any_terminal(report, width):
    lines = render_text(report, width).split("\n")
    assert max(map(cell_len, lines)) <= width


@settings(max_examples=settings.default.max_examples)
@given(REPORTS)
def test_no_control_character_reaches_the_terminal(report):
    text = render_text(report)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", text)


@WIDTHS
def test_every_kernel_is_told_with_its_contract(width):
    text = words(render_text(sample(), width))
    for kernel in sample().kernels:
        about = ", ".join(filter(None, (kernel.version, kernel.formula, "on cpu")))
        assert f"{kernel.name} {about}" in text
        assert kernel.contract in text


@WIDTHS
def test_counts_stand_apart_for_synthetic_and_for_each_real_input(width):
    text = render_text(sample(), width)
    name = "torch.group_norm[channels_last]"
    assert row(text, name, "synthetic") == ["36", "1", "1", "·", "·"]
    assert row(text, name, "glassllm block 3") == ["3", "·", "·", "·", "·"]
    assert row(text, name, "whisper tiny.en encoder 2") == ["3", "1", "·", "·", "·"]


def test_headings_are_whole_words_where_there_is_room():
    first = render_text(sample(), 100).splitlines()[0]
    assert first.split() == [
        *("kernel", "and", "input", "holds", "violated", "hazard", "skipped", "expected")
    ]


@WIDTHS
def test_what_is_wrong_is_told_with_its_witness(width):
    text = words(render_text(sample(), width))
    assert "✗ torch.group_norm[channels_last] accuracy, float32 violated" in text
    assert CANCELLATION.message in text
    assert "measured 31,416 ulp, bound 7.5 ulp (4,189 times the bound)" in text
    assert "x = [1000, 1000.25, 999.75, 1000.5] eps = 1e-05" in text
    assert "y[1] = 0.44921875, expected 0.447205544" in text


@WIDTHS
def test_findings_of_one_check_are_told_once_and_where_else(width):
    text = words(render_text(sample(), width))
    assert text.count("torch.group_norm[channels_last] accuracy") == 1
    assert (
        "also on float32 (whisper tiny.en encoder 2), float32 (smollm2 layer 12 residual)" in text
    )


@WIDTHS
def test_skipped_ones_are_grouped_by_reason(width):
    text = words(render_text(sample(), width))
    assert (
        "– no C++ compiler (g++ or clang++) on PATH (2 findings) torch.compile(rms_norm): all "
        "torch.compile(layer_norm): all" in text
    )
    assert (
        "– the kernel has no backward pass (3 findings) mine.fast_norm:forward: gradients" in text
    )


@WIDTHS
def test_notes_and_the_summary_come_last(width):
    text = words(render_text(sample(), width))
    assert "• torch.compile was not audited" in text
    assert text.rstrip().endswith(
        "5 kernels audited (2 more could not be), 236 findings: 189 on synthetic input, 47 on real "
        "activations. 1 kernel is in violation (3 findings), 2 kernels are hazardous (2 findings)."
    )


def test_a_report_in_which_nothing_is_wrong_has_no_section_about_it():
    kernel = KernelRecord("k", "1", "rms_norm", "c", "cpu")
    text = render_text(Report({}, (kernel,), (Finding("k", "a", "f", Verdict.HOLDS, "m"),)))
    assert "Violated" not in text
    assert "Skipped" not in text
    assert "Nothing is violated, nothing is hazardous." in words(text)


def test_an_empty_report_is_told():
    assert "0 kernels audited, 0 findings" in render_text(Report({}, (), ()))


def test_faultless_real_inputs_are_summed_where_they_are_many():
    names = [f"layer {i}" for i in range(9)]
    findings = [Finding("k", "a", "f", Verdict.HOLDS, "m", inputs=name) for name in names]
    findings.append(Finding("k", "a", "g", Verdict.VIOLATED, "m", inputs="layer 4"))
    text = render_text(Report({}, (), tuple(findings)))
    assert row(text, "k", "8 real inputs") == ["8", "·", "·", "·", "·"]
    assert row(text, "k", "layer 4") == ["1", "1", "·", "·", "·"]


def test_verdicts_of_identities_get_columns_when_they_are_given():
    finding = Finding("T1", "proof", "every d", Verdict.REFUTED, "false at d = 1")
    text = render_text(Report({}, (), (finding,)))
    assert text.splitlines()[0].endswith("expected  refuted")
    assert "✗ T1  proof, every d  refuted" in text


def test_markup_in_a_message_is_text():
    finding = Finding("k", "a", "f", Verdict.VIOLATED, "[bold red]:smile:[/] \x1b[31mred")
    assert "[bold red]:smile:[/] ␛[31mred" in render_text(Report({}, (), (finding,)))


def test_colour_is_for_terminals():
    plain, colour = io.StringIO(), io.StringIO()
    print_report(sample(), Console(file=plain, width=100))
    print_report(
        sample(), Console(file=colour, width=100, force_terminal=True, color_system="standard")
    )
    assert "\x1b[" not in plain.getvalue()
    assert "\x1b[1;31m" in colour.getvalue()


def test_each_verdict_has_a_sign():
    assert set(SIGNS) == set(Verdict)
