"""The table of formulas: parameters, outputs, domain and citation of every body."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from verify.formula import Arithmetic, Formula, Kind, Layout, Output, Parameter, Value, lookup
from verify.norms.backward import (
    add_layer_norm_backward,
    add_rms_norm_backward,
    crms_norm_backward,
    derf_backward,
    dyisru_backward,
    dyt_backward,
    gemma_rms_norm_backward,
    layer_norm_backward,
    layer_norm_backward_folded,
    narrow_rms_norm_backward,
    rms_norm_backward,
)
from verify.norms.forward import (
    add_layer_norm,
    add_rms_norm,
    crms_norm,
    derf,
    dyisru,
    dyt,
    gemma_rms_norm,
    layer_norm,
    layer_norm_folded_shift,
    layer_norm_one_pass,
    layer_norm_shifted,
    layer_norm_welford,
    length_minus_one,
    narrow_rms_norm,
    rms_norm,
    rstd_eps_outside,
    rstd_without_eps,
)

X = Parameter("x", Kind.ROW)
DY = Parameter("dy", Kind.ROW)
RESIDUAL = Parameter("residual", Kind.ROW)
DRESIDUAL_OUT = Parameter("dresidual_out", Kind.ROW, default=0)
WEIGHT = Parameter("weight", Kind.FEATURE, default=1)
WEIGHT_AROUND_ZERO = Parameter("weight", Kind.FEATURE, default=0)
BIAS = Parameter("bias", Kind.FEATURE, default=0)
EPS = Parameter("eps", Kind.NUMBER)
ALPHA = Parameter("alpha", Kind.NUMBER)
BETA = Parameter("beta", Kind.NUMBER)
SHIFT = Parameter("shift", Kind.NUMBER, default=0)
ROW_SHIFT = Parameter("shift", Kind.ROW_NUMBER)

Y = (Output("y"),)
Y_AND_RESIDUAL = (Output("y"), Output("residual"))
GRADIENTS = (Output("dx"), Output("dweight", Kind.FEATURE), Output("dbias", Kind.FEATURE))
GRADIENTS_OF_SUM = (Output("dx"), Output("dresidual"), *GRADIENTS[1:])

DEFINED = "finite rows, eps >= 0; eps = 0 needs a row whose mean square (variance) is not 0"
ANY_ROW = "finite rows, any finite parameters"

ZHANG = "Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4"
BA = "Ba, Kiros & Hinton 2016, arXiv:1607.06450, eq. 3 and 4"
JIANG = "Jiang, Gu, Zhu & Pan 2023, arXiv:2305.14858"
CHAN = "Chan, Golub & LeVeque 1983, The American Statistician 37(3), eq. 2.1"
WU = "Wu & He 2018, arXiv:1803.08494, eq. 7"
ULYANOV = "Ulyanov, Vedaldi & Lempitsky 2016, arXiv:1607.08022"
HENRY = "Henry et al. 2020, arXiv:2010.04245; per-head RMSNorm as in Dehghani et al. 2023"
GEMMA = "Gemma Team 2024, arXiv:2403.08295 (weights stored around 0)"
ZHU = "Zhu, Chen, He, LeCun & Liu 2025, arXiv:2503.10622"
DERF = "arXiv:2512.10938"
STOLLENWERK = "Stollenwerk 2025, arXiv:2503.21708"

AFFINE = (X, WEIGHT, BIAS, EPS)
AFFINE_BACKWARD = (X, WEIGHT, EPS, DY)


def _forward(id: str, body: Callable[..., Any], citation: str, **options: Any) -> Formula:
    options = {"parameters": AFFINE, "outputs": Y, "domain": DEFINED} | options
    return Formula(id=id, body=body, citation=citation, **options)


def _backward(of: Formula, body: Callable[..., Any], **options: Any) -> Formula:
    options = {"parameters": AFFINE_BACKWARD, "outputs": GRADIENTS, "domain": of.domain} | options
    return Formula(
        id=options.pop("id", f"{of.id}_backward"),
        body=body,
        citation=f"derivative of {of.id} ({of.citation})",
        layout=of.layout,
        differentiates=of.id,
        **options,
    )


def _with_residual(of: Formula) -> tuple[Parameter, ...]:
    return (X, RESIDUAL, *of.parameters[1:])


RMS_NORM = _forward("rms_norm", rms_norm, ZHANG)
LAYER_NORM = _forward("layer_norm", layer_norm, BA)
CRMS_NORM = _forward("crms_norm", crms_norm, f"{JIANG}, eq. 5")
NARROW_RMS_NORM = _forward("narrow_rms_norm", narrow_rms_norm, f"after {JIANG}, isometric chart")
GEMMA_RMS_NORM = _forward(
    "gemma_rms_norm", gemma_rms_norm, GEMMA, parameters=(X, WEIGHT_AROUND_ZERO, EPS)
)
QK_NORM = replace(RMS_NORM, id="qk_norm", citation=HENRY, layout=Layout.HEADS)
GROUP_NORM = replace(LAYER_NORM, id="group_norm", citation=WU, layout=Layout.GROUPS)
INSTANCE_NORM = replace(GROUP_NORM, id="instance_norm", citation=ULYANOV)
ADD_RMS_NORM = _forward(
    "add_rms_norm", add_rms_norm, ZHANG, parameters=_with_residual(RMS_NORM), outputs=Y_AND_RESIDUAL
)
ADD_LAYER_NORM = _forward(
    "add_layer_norm",
    add_layer_norm,
    BA,
    parameters=_with_residual(LAYER_NORM),
    outputs=Y_AND_RESIDUAL,
)
DYT = _forward("dyt", dyt, ZHU, parameters=(X, WEIGHT, BIAS, ALPHA), domain=ANY_ROW)
DERF_NORM = _forward("derf", derf, DERF, parameters=(X, WEIGHT, BIAS, ALPHA, SHIFT), domain=ANY_ROW)
DYISRU = _forward(
    "dyisru",
    dyisru,
    STOLLENWERK,
    parameters=(X, WEIGHT, BIAS, BETA),
    domain="finite rows, beta > 0, or beta = 0 and no zero element",
)

_ALGORITHM = {"definition": "layer_norm"}
LAYER_NORM_ONE_PASS = _forward("layer_norm_one_pass", layer_norm_one_pass, BA, **_ALGORITHM)
LAYER_NORM_WELFORD = _forward("layer_norm_welford", layer_norm_welford, CHAN, **_ALGORITHM)
LAYER_NORM_FOLDED_SHIFT = _forward(
    "layer_norm_folded_shift", layer_norm_folded_shift, BA, **_ALGORITHM
)
LAYER_NORM_SHIFTED = _forward(
    "layer_norm_shifted",
    layer_norm_shifted,
    CHAN,
    parameters=(X, WEIGHT, BIAS, EPS, ROW_SHIFT),
    **_ALGORITHM,
)

RMS_NORM_BACKWARD = _backward(RMS_NORM, rms_norm_backward)
LAYER_NORM_BACKWARD = _backward(LAYER_NORM, layer_norm_backward)
LAYER_NORM_BACKWARD_FOLDED = _backward(
    LAYER_NORM,
    layer_norm_backward_folded,
    id="layer_norm_backward_folded",
    definition="layer_norm_backward",
)
CRMS_NORM_BACKWARD = _backward(CRMS_NORM, crms_norm_backward)
NARROW_RMS_NORM_BACKWARD = _backward(NARROW_RMS_NORM, narrow_rms_norm_backward)
GEMMA_RMS_NORM_BACKWARD = _backward(
    GEMMA_RMS_NORM,
    gemma_rms_norm_backward,
    parameters=(X, WEIGHT_AROUND_ZERO, EPS, DY),
    outputs=GRADIENTS[:2],
)
QK_NORM_BACKWARD = _backward(QK_NORM, rms_norm_backward)
GROUP_NORM_BACKWARD = _backward(GROUP_NORM, layer_norm_backward)
INSTANCE_NORM_BACKWARD = _backward(INSTANCE_NORM, layer_norm_backward)
_SUM_BACKWARD = {
    "parameters": (X, RESIDUAL, WEIGHT, EPS, DY, DRESIDUAL_OUT),
    "outputs": GRADIENTS_OF_SUM,
}
ADD_RMS_NORM_BACKWARD = _backward(ADD_RMS_NORM, add_rms_norm_backward, **_SUM_BACKWARD)
ADD_LAYER_NORM_BACKWARD = _backward(ADD_LAYER_NORM, add_layer_norm_backward, **_SUM_BACKWARD)
DYT_BACKWARD = _backward(DYT, dyt_backward, parameters=(X, WEIGHT, ALPHA, DY))
DERF_BACKWARD = _backward(DERF_NORM, derf_backward, parameters=(X, WEIGHT, ALPHA, SHIFT, DY))
DYISRU_BACKWARD = _backward(DYISRU, dyisru_backward, parameters=(X, WEIGHT, BETA, DY))

FORMULAS = MappingProxyType({f.id: f for f in tuple(globals().values()) if isinstance(f, Formula)})


def formula_named(name: str) -> Formula:
    """The formula of that id; raises UnknownFormulaError, naming the nearest, if there is none."""
    return lookup(name, FORMULAS)


FAULTS: Mapping[str, dict[str, Any]] = MappingProxyType(
    {
        "eps outside the square root": {"rstd": rstd_eps_outside},
        "no eps": {"rstd": rstd_without_eps},
        "divisor d-1 instead of d": {"divisor": length_minus_one},
    }
)


def faulty(formula: Formula, fault: str) -> Formula:
    """The same body with one wrong ingredient; for bodies that take ingredients."""
    ingredients: dict[str, Any] = FAULTS[fault]

    def body(ar: Arithmetic, *arguments: Value) -> Any:
        return formula.body(ar, *arguments, **ingredients)

    return replace(formula, id=f"{formula.id} ({fault})", body=body, definition=None)
