"""Every normalisation, once: definitions, algorithms, backward passes, and the identities between them.

Notation: a row x has d elements, mean(x) = sum(x)/d, the divisor is d and never d-1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

from verify.formula import (
    Arithmetic,
    Formula,
    Identity,
    Kind,
    Layout,
    Output,
    Parameter,
    Value,
    lookup,
)

# --- ingredients -------------------------------------------------------------------------------
# A body takes its reciprocal root and its divisor as ingredients, so that the wrong norms found
# in the field (eps outside the root, d-1 for d) are the same body with a wrong ingredient.

Rstd: TypeAlias = Callable[[Arithmetic, Value, Value], Value]
Divisor: TypeAlias = Callable[[Arithmetic, Value], Value]


def mean(ar: Arithmetic, x: Value) -> Value:
    """sum(x) / d."""
    return ar.sum(x) / ar.length(x)


def length(ar: Arithmetic, x: Value) -> Value:
    """The divisor d of every norm here."""
    return ar.length(x)


def length_minus_one(ar: Arithmetic, x: Value) -> Value:
    """The divisor d-1 of the unbiased variance: a fault in a norm."""
    return ar.length(x) - ar.number(1)


def rstd_eps_inside(ar: Arithmetic, variance: Value, eps: Value) -> Value:
    """1 / sqrt(variance + eps)."""
    return ar.number(1) / ar.sqrt(variance + eps)


def rstd_eps_outside(ar: Arithmetic, variance: Value, eps: Value) -> Value:
    """1 / (sqrt(variance) + eps): a fault in a norm that promises eps under the root."""
    return ar.number(1) / (ar.sqrt(variance) + eps)


def rstd_without_eps(ar: Arithmetic, variance: Value, eps: Value) -> Value:
    """1 / sqrt(variance): a fault in a norm that promises eps."""
    return ar.number(1) / ar.sqrt(variance)


# --- root mean square --------------------------------------------------------------------------


def rms_norm(
    ar: Arithmetic,
    x: Value,
    weight: Value,
    bias: Value,
    eps: Value,
    *,
    rstd: Rstd = rstd_eps_inside,
    divisor: Divisor = length,
) -> Value:
    """weight * x / sqrt(sum(x^2)/d + eps) + bias."""
    mean_square = ar.sum(ar.cast(x * x, "square")) / divisor(ar, x)
    x_hat = ar.cast(x * rstd(ar, mean_square, eps), "normalised")
    return x_hat * weight + bias


def gemma_rms_norm(ar: Arithmetic, x: Value, weight: Value, eps: Value) -> Value:
    """(1 + weight) * x / sqrt(sum(x^2)/d + eps): the weight is stored as its distance from 1."""
    return rms_norm(ar, x, ar.cast(ar.number(1) + weight, "gain"), ar.number(0), eps)


def crms_norm(ar: Arithmetic, z: Value, weight: Value, bias: Value, eps: Value) -> Value:
    """weight * z / sqrt((sum(z^2) + sum(z)^2)/d + eps) + bias, with z of length d-1.

    RMSNorm of the zero-mean row (z, -sum z) of length d, read off its first d-1 elements.
    """
    d = ar.length(z) + ar.number(1)
    dropped = ar.sum(z)
    rstd = rstd_eps_inside(ar, (ar.sum(z * z) + dropped * dropped) / d, eps)
    return ar.cast(z * rstd, "normalised") * weight + bias


def narrow_rms_norm(ar: Arithmetic, z: Value, weight: Value, bias: Value, eps: Value) -> Value:
    """weight * z / sqrt(sum(z^2)/d + eps) + bias, with z of length d-1.

    LayerNorm of width d in an orthonormal chart of the zero-mean rows. It equals
    sqrt(d/(d-1)) * RMSNorm(z; eps d/(d-1)) of width d-1, so a stock RMSNorm kernel runs it.
    """
    d = ar.length(z) + ar.number(1)
    rstd = rstd_eps_inside(ar, ar.sum(z * z) / d, eps)
    return ar.cast(z * rstd, "normalised") * weight + bias


# --- centred -----------------------------------------------------------------------------------


def _centred_norm(
    ar: Arithmetic, centred: Value, variance: Value, weight: Value, bias: Value, eps: Value
) -> Value:
    """weight * centred / sqrt(variance + eps) + bias: the tail that every LayerNorm shares."""
    x_hat = ar.cast(centred * rstd_eps_inside(ar, variance, eps), "normalised")
    return x_hat * weight + bias


def layer_norm(
    ar: Arithmetic,
    x: Value,
    weight: Value,
    bias: Value,
    eps: Value,
    *,
    rstd: Rstd = rstd_eps_inside,
    divisor: Divisor = length,
) -> Value:
    """weight * (x - mean x) / sqrt(mean((x - mean x)^2) + eps) + bias, in two passes."""
    centred = x - mean(ar, x)
    variance = ar.sum(ar.cast(centred * centred, "square")) / divisor(ar, x)
    x_hat = ar.cast(centred * rstd(ar, variance, eps), "normalised")
    return x_hat * weight + bias


def layer_norm_one_pass(
    ar: Arithmetic, x: Value, weight: Value, bias: Value, eps: Value
) -> Value:
    """LayerNorm with var x = mean(x^2) - mean(x)^2: unstable once |mean| >> spread."""
    mu = mean(ar, x)
    variance = mean(ar, x * x) - mu * mu
    return _centred_norm(ar, x - mu, variance, weight, bias, eps)


def layer_norm_shifted(
    ar: Arithmetic, x: Value, weight: Value, bias: Value, eps: Value, shift: Value
) -> Value:
    """LayerNorm in one pass over x - shift, for any number ``shift`` near the row's values."""
    return layer_norm_one_pass(ar, x - shift, weight, bias, eps)


def chan_merge(
    n: Value, mu: Value, m2: Value, n_right: Value, mu_right: Value, m2_right: Value
) -> tuple[Value, Value, Value]:
    """Counts, means and sums of squared deviations of two sets, merged into those of the union."""
    total = n + n_right
    delta = mu_right - mu
    share = n_right / total
    return total, mu + delta * share, m2 + m2_right + delta * delta * (n * share)


def layer_norm_welford(
    ar: Arithmetic, x: Value, weight: Value, bias: Value, eps: Value
) -> Value:
    """LayerNorm with mean and variance by merging the elements' statistics."""
    leaves = (ar.number(1), x, ar.number(0))
    count, mu, m2 = ar.fold(leaves, chan_merge)
    return _centred_norm(ar, x - mu, m2 / count, weight, bias, eps)


def layer_norm_folded_shift(
    ar: Arithmetic, x: Value, weight: Value, bias: Value, eps: Value
) -> Value:
    """LayerNorm as x * scale + (bias - mean * scale): the mean is subtracted after scaling."""
    mu = mean(ar, x)
    centred = x - mu
    scale = rstd_eps_inside(ar, mean(ar, centred * centred), eps) * weight
    return x * scale + (bias - mu * scale)


# --- residual added in the same kernel -----------------------------------------------------------


def add_rms_norm(
    ar: Arithmetic, x: Value, residual: Value, weight: Value, bias: Value, eps: Value
) -> tuple[Value, Value]:
    """RMSNorm of h = x + residual, and h.

    The points "residual_statistics" and "residual_normalised" say which of the two uses of h
    sees it rounded: both (round, then normalise), neither (float32 throughout), or only the
    second (mixed): the three policies found in the field.
    """
    h = x + residual
    seen, normalised = (ar.cast(h, f"residual_{use}") for use in ("statistics", "normalised"))
    rstd = rstd_eps_inside(ar, mean(ar, seen * seen), eps)
    return ar.cast(normalised * rstd, "normalised") * weight + bias, h


def add_layer_norm(
    ar: Arithmetic, x: Value, residual: Value, weight: Value, bias: Value, eps: Value
) -> tuple[Value, Value]:
    """LayerNorm of h = x + residual, and h; the same two rounding points as `add_rms_norm`."""
    h = x + residual
    seen, normalised = (ar.cast(h, f"residual_{use}") for use in ("statistics", "normalised"))
    mu = mean(ar, seen)
    variance = mean(ar, (seen - mu) * (seen - mu))
    return _centred_norm(ar, normalised - mu, variance, weight, bias, eps), h


# --- element-wise replacements -------------------------------------------------------------------


def dyt(ar: Arithmetic, x: Value, weight: Value, bias: Value, alpha: Value) -> Value:
    """weight * tanh(alpha x) + bias."""
    return weight * ar.cast(ar.tanh(alpha * x), "normalised") + bias


def derf(
    ar: Arithmetic, x: Value, weight: Value, bias: Value, alpha: Value, shift: Value
) -> Value:
    """weight * erf(alpha x + shift) + bias."""
    return weight * ar.cast(ar.erf(alpha * x + shift), "normalised") + bias


def dyisru(ar: Arithmetic, x: Value, weight: Value, bias: Value, beta: Value) -> Value:
    """weight * x / sqrt(x^2 + beta) + bias: RMSNorm with the other elements' energy frozen."""
    return x * rstd_eps_inside(ar, x * x, beta) * weight + bias


# --- backward passes -----------------------------------------------------------------------------
# g = dy * weight. Parameter gradients sum over all rows.


def rms_norm_backward(
    ar: Arithmetic, x: Value, weight: Value, eps: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dx = rstd (g - x_hat mean(g x_hat)), dweight = sum_rows(dy x_hat), dbias = sum_rows(dy)."""
    rstd = ar.cast(rstd_eps_inside(ar, mean(ar, x * x), eps), "saved_rstd")
    return _rms_vjp(ar, x * rstd, rstd, weight, dy)


def _rms_vjp(
    ar: Arithmetic, x_hat: Value, rstd: Value, weight: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """The adjoint of x -> x rstd(x) at x_hat, and the gradients of the affine part."""
    g = dy * weight
    dx = rstd * (g - x_hat * mean(ar, g * x_hat))
    return dx, ar.sum_rows(dy * x_hat), ar.sum_rows(dy)


def gemma_rms_norm_backward(
    ar: Arithmetic, x: Value, weight: Value, eps: Value, dy: Value
) -> tuple[Value, Value]:
    """As RMSNorm's with gain 1 + weight; there is no bias."""
    gain = ar.cast(ar.number(1) + weight, "gain")
    return rms_norm_backward(ar, x, gain, eps, dy)[:2]


def layer_norm_backward(
    ar: Arithmetic, x: Value, weight: Value, eps: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dx = rstd (g - mean g - x_hat mean(g x_hat)), dweight and dbias as RMSNorm's."""
    mu = mean(ar, x)
    centred = x - mu
    rstd = ar.cast(rstd_eps_inside(ar, mean(ar, centred * centred), eps), "saved_rstd")
    x_hat = (x - ar.cast(mu, "saved_mean")) * rstd
    g = dy * weight
    dx = rstd * ((g - mean(ar, g)) - x_hat * mean(ar, g * x_hat))
    return dx, ar.sum_rows(dy * x_hat), ar.sum_rows(dy)


def layer_norm_backward_folded(
    ar: Arithmetic, x: Value, weight: Value, eps: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dx = rstd g + b x + c with b = (sum(g) mean - sum(g x)) rstd^3/d, c = -b mean - rstd sum(g)/d.

    The same gradient in the form that CPU kernels use: one multiply-add per element, but b x + c
    cancels when |mean| is large.
    """
    mu = mean(ar, x)
    centred = x - mu
    rstd = ar.cast(rstd_eps_inside(ar, mean(ar, centred * centred), eps), "saved_rstd")
    mu = ar.cast(mu, "saved_mean")
    g = dy * weight
    sum_g = ar.sum(g)
    b = (sum_g * mu - ar.sum(g * x)) * rstd * rstd * rstd / ar.length(x)
    c = ar.number(0) - b * mu - sum_g * rstd / ar.length(x)
    return rstd * g + b * x + c, ar.sum_rows(dy * (x - mu) * rstd), ar.sum_rows(dy)


def crms_norm_backward(
    ar: Arithmetic, z: Value, weight: Value, eps: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dz = rstd (g - (z + sum z) rstd^2 sum(g z)/d), with z of length d-1."""
    d = ar.length(z) + ar.number(1)
    dropped = ar.sum(z)
    rstd = rstd_eps_inside(ar, (ar.sum(z * z) + dropped * dropped) / d, eps)
    return _short_vjp(ar, z, z + dropped, rstd, weight, dy)


def narrow_rms_norm_backward(
    ar: Arithmetic, z: Value, weight: Value, eps: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dz = rstd (g - z rstd^2 sum(g z)/d), with z of length d-1."""
    d = ar.length(z) + ar.number(1)
    rstd = rstd_eps_inside(ar, ar.sum(z * z) / d, eps)
    return _short_vjp(ar, z, z, rstd, weight, dy)


def _short_vjp(
    ar: Arithmetic, z: Value, half_gradient: Value, rstd: Value, weight: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """The adjoint for rows of length d-1; ``half_gradient`` is half the gradient of d*variance."""
    d = ar.length(z) + ar.number(1)
    g = dy * weight
    dz = rstd * (g - half_gradient * (rstd * rstd * (ar.sum(g * z) / d)))
    return dz, ar.sum_rows(dy * (z * rstd)), ar.sum_rows(dy)


def add_rms_norm_backward(
    ar: Arithmetic,
    x: Value,
    residual: Value,
    weight: Value,
    eps: Value,
    dy: Value,
    dresidual_out: Value,
) -> tuple[Value, Value, Value, Value]:
    """dx = dresidual = (RMSNorm's dx at h = x + residual) + dresidual_out, dweight, dbias."""
    dh, dweight, dbias = rms_norm_backward(ar, x + residual, weight, eps, dy)
    dx = dh + dresidual_out
    return dx, dx, dweight, dbias


def add_layer_norm_backward(
    ar: Arithmetic,
    x: Value,
    residual: Value,
    weight: Value,
    eps: Value,
    dy: Value,
    dresidual_out: Value,
) -> tuple[Value, Value, Value, Value]:
    """dx = dresidual = (LayerNorm's dx at h = x + residual) + dresidual_out, dweight, dbias."""
    dh, dweight, dbias = layer_norm_backward(ar, x + residual, weight, eps, dy)
    dx = dh + dresidual_out
    return dx, dx, dweight, dbias


def dyt_backward(
    ar: Arithmetic, x: Value, weight: Value, alpha: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dx = dy weight alpha (1 - t^2), dweight = sum_rows(dy t), dbias; t = tanh(alpha x)."""
    t = ar.tanh(alpha * x)
    dx = dy * weight * alpha * (ar.number(1) - t * t)
    return dx, ar.sum_rows(dy * t), ar.sum_rows(dy)


def derf_backward(
    ar: Arithmetic, x: Value, weight: Value, alpha: Value, shift: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dx = dy weight alpha (2/sqrt(pi)) exp(-a^2), dweight = sum_rows(dy erf a), a = alpha x + shift."""
    a = alpha * x + shift
    slope = ar.number(2) / ar.sqrt(ar.pi()) * ar.exp(ar.number(0) - a * a)
    return dy * weight * alpha * slope, ar.sum_rows(dy * ar.erf(a)), ar.sum_rows(dy)


def dyisru_backward(
    ar: Arithmetic, x: Value, weight: Value, beta: Value, dy: Value
) -> tuple[Value, Value, Value]:
    """dx = dy weight beta / (x^2 + beta)^(3/2), dweight = sum_rows(dy x / sqrt(x^2 + beta)), dbias."""
    rstd = rstd_eps_inside(ar, x * x, beta)
    dx = dy * weight * (beta * rstd * rstd * rstd)
    return dx, ar.sum_rows(dy * (x * rstd)), ar.sum_rows(dy)


# --- the table -----------------------------------------------------------------------------------

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

_AFFINE = (X, WEIGHT, BIAS, EPS)
_AFFINE_BACKWARD = (X, WEIGHT, EPS, DY)


def _forward(id: str, body: Callable[..., Any], citation: str, **options: Any) -> Formula:
    options = {"parameters": _AFFINE, "outputs": Y, "domain": DEFINED} | options
    return Formula(id=id, body=body, citation=citation, **options)


def _backward(of: Formula, body: Callable[..., Any], **options: Any) -> Formula:
    options = {"parameters": _AFFINE_BACKWARD, "outputs": GRADIENTS, "domain": of.domain} | options
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
DERF_NORM = _forward(
    "derf", derf, DERF, parameters=(X, WEIGHT, BIAS, ALPHA, SHIFT), domain=ANY_ROW
)
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

FORMULAS = MappingProxyType(
    {f.id: f for f in tuple(globals().values()) if isinstance(f, Formula)}
)


def formula_named(name: str) -> Formula:
    """The formula of that id; raises UnknownFormulaError, naming the nearest, if there is none."""
    return lookup(name, FORMULAS)


# --- wrong siblings: what is found in the field under the right name --------------------------------

FAULTS = MappingProxyType(
    {
        "eps outside the square root": {"rstd": rstd_eps_outside},
        "no eps": {"rstd": rstd_without_eps},
        "divisor d-1 instead of d": {"divisor": length_minus_one},
    }
)


def faulty(formula: Formula, fault: str) -> Formula:
    """The same body with one wrong ingredient, named as the fault; bodies that take ingredients only."""
    ingredients = FAULTS[fault]

    def body(ar: Arithmetic, *arguments: Value) -> Any:
        return formula.body(ar, *arguments, **ingredients)

    return replace(formula, id=f"{formula.id} ({fault})", body=body, definition=None)


# --- identities ------------------------------------------------------------------------------------


def rms_norm_of_centred(
    ar: Arithmetic, x: Value, weight: Value, bias: Value, eps: Value
) -> Value:
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
    return Identity(id, left, right, (*_AFFINE, *extra), DEFINED, citation)


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
            _identity(
                "SHIFTED_IS_TWO_PASS", layer_norm_shifted, _unshifted, CHAN, ROW_SHIFT
            ),
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
                _AFFINE_BACKWARD,
                DEFINED,
                LAYER_NORM_BACKWARD.citation,
            ),
        )
    }
)
