"""The catalogue of formulas: complete, cited, written over the arithmetic alone, and once."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from verify.formula import Kind, UnknownFormulaError
from verify.norms import FAULTS, FORMULAS, IDENTITIES, faulty, formula_named
from verify.numeric import exact
from verify.numeric.tree import trace, walk

ROOT = Path(__file__).parents[1]

ASKED_FOR = {
    "layer_norm",
    "rms_norm",
    "crms_norm",
    "narrow_rms_norm",
    "group_norm",
    "instance_norm",
    "qk_norm",
    "gemma_rms_norm",
    "add_rms_norm",
    "add_layer_norm",
    "dyt",
    "derf",
    "dyisru",
}
ALGORITHMS = {
    "layer_norm_one_pass",
    "layer_norm_shifted",
    "layer_norm_welford",
}


def test_the_catalogue_holds_every_norm_its_algorithms_and_its_gradient():
    assert set(FORMULAS) >= ASKED_FOR | ALGORITHMS | {f"{name}_backward" for name in ASKED_FOR}


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=lambda f: f.id)
def test_every_formula_states_what_it_is(formula):
    assert formula.statement
    assert formula.domain
    assert re.search(r"\d{4}", formula.citation), "a citation has a year or an arXiv number"
    for other in (formula.definition, formula.differentiates):
        assert other is None or other in FORMULAS


@pytest.mark.parametrize("formula", FORMULAS.values(), ids=lambda f: f.id)
def test_every_body_is_written_over_the_arithmetic_alone(formula):
    """Tracing refuses floats: a float literal would choose a format behind the reader's back."""
    outputs = trace(formula)
    assert len(outputs) == len(formula.outputs)
    for output, node in zip(formula.outputs, outputs, strict=True):
        assert (node.op == "sum_rows") == (output.kind is Kind.FEATURE)


def test_a_float_in_a_body_is_caught():
    planted = replace(FORMULAS["rms_norm"], body=lambda ar, x, weight, bias, eps: x * 0.5)
    with pytest.raises(TypeError, match=r"only ints and fractions as constants, not 0\.5"):
        trace(planted)


def test_a_shared_subexpression_is_one_node():
    """x * x twice is one product: the square in RMSNorm's gradient is the forward's square."""
    nodes = list(walk(*trace(FORMULAS["layer_norm_backward"])))
    assert len(nodes) == len({(n.op, n.payload, n.args) for n in nodes})


def test_the_divisor_is_d_and_d_minus_one_is_another_function():
    x = np.array([[1.0, 2.0, 4.0]])
    arguments = {"x": x, "weight": np.ones((1, 3)), "bias": np.zeros((1, 3)), "eps": 0.0}
    for name in ("rms_norm", "layer_norm"):
        right = exact.element(exact.evaluate(FORMULAS[name], arguments)[0], 0, 2)
        wrong_formula = faulty(FORMULAS[name], "divisor d-1 instead of d")
        wrong = exact.element(exact.evaluate(wrong_formula, arguments)[0], 0, 2)
        low, high = wrong.enclosure(80)
        assert right.compare(low) > 0 < right.compare(high)


def test_identities_and_faults_are_named_by_content():
    assert len(IDENTITIES) >= 9
    assert all(name == name.upper() for name in IDENTITIES)
    assert set(FAULTS) == {"eps outside the square root", "no eps", "divisor d-1 instead of d"}


def test_an_unknown_formula_names_the_nearest():
    with pytest.raises(UnknownFormulaError, match=r"unknown formula 'rmsnorm': .*'rms_norm'\?"):
        formula_named("rmsnorm")


def norms_written_by_hand(folder: Path) -> list[str]:
    """Lines that take the root of a mean or of a variance outside the bodies and the kernels."""
    pattern = re.compile(r"sqrt\(.*\.(mean|var)\(|\.(mean|var)\(.*sqrt|\.std\(")
    return [
        f"{path.relative_to(folder)}:{number}"
        for path in sorted(folder.rglob("*.py"))
        if "kernels" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]


def test_nobody_writes_a_norm_a_second_time(tmp_path):
    assert norms_written_by_hand(ROOT / "verify") == []
    (tmp_path / "planted.py").write_text("y = x / np.sqrt((x * x).mean(-1) + eps)\n")
    assert norms_written_by_hand(tmp_path) == ["planted.py:1"]
