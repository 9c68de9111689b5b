"""The identities between formulas: claims for every d, to be proved and tried."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from verify.formula import Arithmetic, Identity, Parameter, Value
from verify.norms.backward import (
    layer_norm_backward,
    layer_norm_backward_folded,
)
from verify.norms.catalogue import (
    AFFINE,
    AFFINE_BACKWARD,
    BA,
    CHAN,
    DEFINED,
    GEMMA,
    GEMMA_RMS_NORM,
    JIANG,
    LAYER_NORM_BACKWARD,
    ROW_SHIFT,
)
from verify.norms.forward import (
    gemma_rms_norm,
    layer_norm,
    layer_norm_folded_shift,
    layer_norm_one_pass,
    layer_norm_shifted,
    layer_norm_welford,
    mean,
    narrow_rms_norm,
    rms_norm,
)


def rms_norm_of_centred(ar: Arithmetic, x: Value, weight: Value, bias: Value, eps: Value) -> Value:
    """RMSNorm(x - mean x)."""
    return rms_norm(ar, x - mean(ar, x), weight, bias, eps)


def scaled_rms_norm_of_width_less_one(
    ar: Arithmetic, z: Value, weight: Value, bias: Value, eps: Value
) -> Value:
    """sqrt(d/(d-1)) weight RMSNorm(z; eps d/(d-1)) + bias, an ordinary RMSNorm of width d-1."""
    stretch = (ar.length(z) + ar.number(1)) / ar.length(z)
    return rms_norm(ar, z, ar.sqrt(stretch) * weight, bias, eps * stretch)


def layer_norm_of_shifted(
    ar: Arithmetic, x: Value, weight: Value, bias: Value, eps: Value, shift: Value
) -> Value:
    """LayerNorm(x - shift), which does not depend on the shift."""
    return layer_norm(ar, x - shift, weight, bias, eps)


def _unshifted(
    ar: Arithmetic, x: Value, weight: Value, bias: Value, eps: Value, shift: Value
) -> Value:
    return layer_norm(ar, x, weight, bias, eps)


def rms_norm_of_one_plus_weight(ar: Arithmetic, x: Value, weight: Value, eps: Value) -> Value:
    """RMSNorm with weight 1 + weight and no bias."""
    return rms_norm(ar, x, ar.number(1) + weight, ar.number(0), eps)


def _identity(id: str, left: Any, right: Any, citation: str, *extra: Parameter) -> Identity:
    return Identity(id, left, right, (*AFFINE, *extra), DEFINED, citation)


IDENTITIES = MappingProxyType(
    {
        identity.id: identity
        for identity in (
            _identity(
                "LAYER_NORM_IS_RMS_NORM_OF_CENTRED",
                layer_norm,
                rms_norm_of_centred,
                f"{JIANG}, eq. 1 and 2",
            ),
            _identity("ONE_PASS_IS_TWO_PASS", layer_norm_one_pass, layer_norm, CHAN),
            _identity("WELFORD_IS_TWO_PASS", layer_norm_welford, layer_norm, CHAN),
            _identity("FOLDED_SHIFT_IS_TWO_PASS", layer_norm_folded_shift, layer_norm, BA),
            _identity("SHIFTED_IS_TWO_PASS", layer_norm_shifted, _unshifted, CHAN, ROW_SHIFT),
            _identity(
                "LAYER_NORM_IS_SHIFT_INVARIANT", layer_norm_of_shifted, _unshifted, BA, ROW_SHIFT
            ),
            _identity(
                "NARROW_RMS_NORM_IS_SCALED_RMS_NORM",
                narrow_rms_norm,
                scaled_rms_norm_of_width_less_one,
                JIANG,
            ),
            Identity(
                "GEMMA_RMS_NORM_IS_RMS_NORM_OF_ONE_PLUS_WEIGHT",
                gemma_rms_norm,
                rms_norm_of_one_plus_weight,
                GEMMA_RMS_NORM.parameters,
                DEFINED,
                GEMMA,
            ),
            Identity(
                "FOLDED_BACKWARD_IS_BACKWARD",
                layer_norm_backward_folded,
                layer_norm_backward,
                AFFINE_BACKWARD,
                DEFINED,
                LAYER_NORM_BACKWARD.citation,
            ),
        )
    }
)
