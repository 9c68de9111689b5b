"""Bad input: one line that says what came, what was expected, and what to write."""

from __future__ import annotations

import numpy as np
import pytest

from verify.formats import FormatError
from verify.formula import UnknownFormulaError
from verify.numeric import reference
from verify.numeric.rows import InputError

X = np.ones((2, 6), np.float32)
IMAGE = np.ones((2, 6, 3), np.float32)
HEADS = np.ones((2, 3, 6), np.float32)

MESSAGES = {
    "eps missing": (
        ("layer_norm", X),
        {},
        "layer_norm needs eps: write eps=...",
    ),
    "x missing": (
        ("layer_norm", None),
        {"eps": 1e-5},
        "layer_norm needs x: write x=...",
    ),
    "dy missing": (
        ("rms_norm_backward", X),
        {"eps": 1e-5},
        "rms_norm_backward needs dy: write dy=...",
    ),
    "eps negative": (
        ("layer_norm", X),
        {"eps": -1e-5},
        "eps=-1e-05 is negative: layer_norm needs eps >= 0",
    ),
    "eps NaN": (
        ("layer_norm", X),
        {"eps": float("nan")},
        "eps=nan is not finite: write a finite number, e.g. 1e-6",
    ),
    "eps a string": (
        ("layer_norm", X),
        {"eps": "small"},
        "eps must be one number, not str",
    ),
    "integers": (
        ("layer_norm", X.astype(np.int32)),
        {"eps": 1e-5},
        (
            "x has dtype int32: expected a floating format such as float32 or bfloat16, "
            "write x.astype('float32')"
        ),
    ),
    "weight of another width": (
        ("layer_norm", X, np.ones(5, np.float32)),
        {"eps": 1e-5},
        "weight has shape (5,), x has shape (2, 6): expected weight of shape (6,)",
    ),
    "weight of heads of another shape": (
        ("qk_norm", HEADS, np.ones((2, 6), np.float32)),
        {"eps": 1e-5},
        "weight has shape (2, 6), x has shape (2, 3, 6): expected weight of shape (6,) or (3, 6)",
    ),
    "dy of another shape": (
        ("layer_norm_backward", X),
        {"eps": 1e-5, "dy": X[:1]},
        "dy has shape (1, 6), x has shape (2, 6): expected the same shape",
    ),
    "a shift for each element": (
        ("layer_norm_shifted", X),
        {"eps": 1e-5, "shift": X},
        "shift has shape (2, 6): expected one number a row, (2,)",
    ),
    "a scalar x": (
        ("layer_norm", 1.0),
        {"eps": 1e-5},
        "x of layer_norm has shape (): expected (..., d)",
    ),
    "no channels": (
        ("group_norm", X[0]),
        {"eps": 1e-5, "num_groups": 1},
        "x of group_norm has shape (6,): expected (N, C, ...)",
    ),
    "no heads": (
        ("qk_norm", X[0]),
        {"eps": 1e-5},
        "x of qk_norm has shape (6,): expected (..., heads, d)",
    ),
    "empty rows": (
        ("layer_norm", X[:, :0]),
        {"eps": 1e-5},
        "x of layer_norm has rows of length 0 (shape (2, 0)): expected d >= 1",
    ),
    "groups that do not divide": (
        ("group_norm", IMAGE),
        {"eps": 1e-5, "num_groups": 4},
        (
            "num_groups=4 does not divide the 6 channels of x (shape (2, 6, 3)): "
            "write num_groups=k with k a divisor"
        ),
    ),
    "groups for a layer norm": (
        ("layer_norm", X),
        {"eps": 1e-5, "num_groups": 2},
        "layer_norm does not take num_groups",
    ),
    "an argument of another formula": (
        ("layer_norm", X),
        {"eps": 1e-5, "dy": X},
        "layer_norm does not take dy: its arguments are x, weight, bias, eps",
    ),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_input_error_says_what_came_and_what_was_expected(case):
    positional, named, message = MESSAGES[case]
    with pytest.raises(InputError) as caught:
        reference(*positional, **named)
    assert str(caught.value) == message
    assert "\n" not in message


def test_unknown_formula_names_the_nearest():
    with pytest.raises(UnknownFormulaError) as caught:
        reference("layernorm", X, eps=1e-5)
    message = str(caught.value)
    assert message.startswith("unknown formula 'layernorm': expected one of add_layer_norm, ")
    assert message.endswith("; did you mean 'layer_norm'?")
    assert "\n" not in message


def test_unknown_format_names_the_nearest():
    with pytest.raises(FormatError) as caught:
        reference("layer_norm", X, eps=1e-5, format="bfloat61")
    message = str(caught.value)
    assert message.startswith("unknown format 'bfloat61'; expected one of float64, float32, ")
    assert message.endswith("write 'bfloat16' if that is meant")
    assert "\n" not in message


def test_nan_into_a_format_without_one_is_refused_in_one_line():
    with pytest.raises(FormatError) as caught:
        reference("layer_norm", X, eps=0.0, format="float4_e2m1fn")
    assert "NaN cannot be rounded to float4_e2m1fn" in str(caught.value)
    assert "\n" not in str(caught.value)
