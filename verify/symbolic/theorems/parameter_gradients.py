"""Gradients by parameters: weight and bias, eps, and the numbers of element-wise replacements."""

from __future__ import annotations

from typing import Any

from verify.norms.catalogue import BA, DERF, FORMULAS, JIANG, STOLLENWERK, ZHANG, ZHU
from verify.norms.forward import layer_norm, mean, rms_norm, rstd_eps_inside
from verify.symbolic.language import RowArithmetic, Statement, derivative
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import OURS, centred, variance
from verify.symbolic.theorems.gradients import ADJOINT, AUDIT, directed, passes
from verify.symbolic.theorems.jacobians import NOTATION


@theorem(
    statement=r"\frac{\partial\mathcal L}{\partial\gamma} = \sum_{\text{rows}} dy\,\hat x,\quad"
    r" \frac{\partial\mathcal L}{\partial\beta} = \sum_{\text{rows}} dy",
    hypotheses=(
        "for every direction k of the parameter; x_hat is the row before weight and bias",
        "one row, and two rows that share their parameters: any number follows by induction",
    ),
    citation=f"derivative of {ZHANG}, of {BA}, and of {JIANG}, eq. 5",
    used_in=(
        "rms_norm_backward, layer_norm_backward, crms_norm_backward, narrow_rms_norm_backward",
        AUDIT,
    ),
)
def PARAMETER_GRADIENTS(s: Statement) -> None:
    """dweight and dbias are sums over rows, of dy times the normalised row and of dy."""
    i, ar, symbols = directed(s)
    k, other, other_dy = s.arrays("k other other_dy", i)
    dy = symbols["dy"]
    for name in ("rms_norm", "layer_norm", "crms_norm", "narrow_rms_norm"):
        (y,), (_, dweight, dbias) = passes(name, ar, symbols)
        loss = ar.sum(dy * y)
        plain = FORMULAS[name](ar, **symbols | {"weight": 1, "bias": 0})[0]
        s.equal(
            f"{name}: dweight",
            ("D <dy, y> along k in weight", derivative(loss, "weight", "k")),
            ("<dy x_hat, k>", ar.sum(dy * plain * k)),
            ("<dweight, k>", ar.sum(dweight * k)),
        )
        s.equal(
            f"{name}: dbias",
            ("D <dy, y> along k in bias", derivative(loss, "bias", "k")),
            ("<dbias, k>", ar.sum(dbias * k)),
        )
    second = symbols | {"x": other, "dy": other_dy}
    (y,), (_, dweight, _) = passes("layer_norm", ar, symbols)
    (y_second,), (_, dweight_second, _) = passes("layer_norm", ar, second)
    s.equal(
        "rows add up",
        (
            "D (<dy, y> + <dy', y'>) along k in weight",
            derivative(ar.sum(dy * y) + ar.sum(other_dy * y_second), "weight", "k"),
        ),
        ("<dweight + dweight', k>", ar.sum((dweight + dweight_second) * k)),
    )


@theorem(
    statement=r"x = c\,\mathbf 1 \;\Rightarrow\; \hat x = 0,\quad d\gamma = 0,\quad"
    r" dx = \varepsilon^{-1/2}\,Pg",
    hypotheses=("eps > 0; g = weight dy",),
    citation=OURS,
    used_in=("`verify audit`: gradient of a constant row", "padding tokens"),
)
def GRADIENTS_OF_A_CONSTANT_ROW(s: Statement) -> None:
    """A row without spread moves no weight, and its own gradient is as large as eps allows."""
    i, ar, symbols = directed(s, "c")
    c, eps = symbols["c"], symbols["eps"]
    dx, dweight, _ = FORMULAS["layer_norm_backward"](ar, **symbols | {"x": c})
    folded = FORMULAS["layer_norm_backward_folded"](ar, **symbols | {"x": c})
    g = symbols["dy"] * symbols["weight"]
    s.equal("dweight", ("LayerNorm's dweight at c 1", dweight), ("0", 0), free=[i])
    s.equal("dweight, folded", ("folded dweight at c 1", folded[1]), ("0", 0), free=[i])
    s.equal(
        "dx",
        ("LayerNorm's dx at c 1", dx),
        ("r = 1 / sqrt(eps): r P g", rstd_eps_inside(ar, ar.number(0), eps) * centred(ar, g)),
        ("P g / sqrt(eps)", centred(ar, g) / ar.sqrt(eps)),
        free=[i],
    )


@theorem(
    statement=r"\frac{\partial\,\mathrm{norm}(x)}{\partial\varepsilon} = -\frac{r^2}2\,"
    r"\gamma\,\hat x,\quad"
    r" \frac{\partial\mathcal L}{\partial\varepsilon} = -\frac{r^2}2\langle g, \hat x\rangle"
    r" = -\frac1{2\varepsilon}\langle dx, x\rangle",
    hypotheses=(NOTATION, "g = weight dy; the last form for eps > 0"),
    citation=OURS,
    used_in=("the cost of a wrong eps", "a trainable eps"),
)
def GRADIENT_BY_EPS(s: Statement) -> None:
    """A norm falls by r^2/2 of itself per unit of eps; dx along x says by how much a loss does."""
    i, ar, symbols = directed(s)
    x, eps, g = symbols["x"], symbols["eps"], symbols["dy"] * symbols["weight"]
    (step,) = s.numbers("step")
    squares = {"rms_norm": mean(ar, x * x), "layer_norm": variance(ar, x)}
    for name, square in squares.items():
        (y,), (dx, *_) = passes(name, ar, symbols)
        r = rstd_eps_inside(ar, square, eps)
        x_hat = (rms_norm if name == "rms_norm" else layer_norm)(ar, x, 1, 0, eps)
        s.equal(
            f"{name}, by eps",
            ("D y", derivative(y, "eps", "step")),
            ("-r^2/2 times the output without bias", -r * r / 2 * (y - symbols["bias"]) * step),
            ("-r^2/2 weight x_hat", -r * r / 2 * symbols["weight"] * x_hat * step),
            free=[i],
        )
        s.equal(
            f"a loss behind {name}, by eps",
            ("D <dy, y>", derivative(ar.sum(symbols["dy"] * y), "eps", "step")),
            ("-r^2/2 <g, x_hat>", -r * r / 2 * ar.sum(g * x_hat) * step),
            ("-<dx, x> / (2 eps)", -ar.sum(dx * x) / (2 * eps) * step),
        )


@theorem(
    statement=r"dx = \gamma\,dy\,\alpha(1-t^2),\quad d\alpha = \langle\gamma\,dy, x(1-t^2)\rangle,"
    r"\quad \alpha\,d\alpha = \langle dx, x\rangle,\quad t = \tanh(\alpha x)",
    hypotheses=(ADJOINT, "dalpha is the sum over the row; rows add up, as alpha is one number"),
    citation=f"derivative of {ZHU}",
    used_in=("dyt_backward", AUDIT),
)
def DYT_BACKWARD_IS_THE_ADJOINT(s: Statement) -> None:
    """DyT's dx and dweight are its gradients, and that of alpha is a reduction over every row."""
    _, ar, symbols = _element_wise(s, "alpha")
    x, alpha, dy, weight = (symbols[name] for name in ("x", "alpha", "dy", "weight"))
    (y,), (dx, *_) = _claimed(s, "dyt", ar, symbols)
    (change,) = s.numbers("change")
    t = ar.tanh(alpha * x)
    dalpha = ar.sum(weight * dy * x * (1 - t * t))
    s.equal(
        "dalpha",
        ("D <dy, DyT(x)> by alpha", derivative(ar.sum(dy * y), "alpha", "change")),
        ("<weight dy, x (1 - t^2)>", change * dalpha),
    )
    s.equal(
        "dalpha from dx",
        ("alpha dalpha", alpha * dalpha),
        ("<dx, x>", ar.sum(dx * x)),
    )


@theorem(
    statement=r"dx = \gamma\,dy\,\alpha\,\tfrac2{\sqrt\pi}e^{-a^2},\quad"
    r" \alpha\,d\alpha = \langle dx, x\rangle,\quad \alpha\,ds = \textstyle\sum_i dx_i,\quad"
    r" a = \alpha x+s",
    hypotheses=(ADJOINT, "s is the shift; dalpha and ds are sums over the row, and rows add up"),
    citation=f"derivative of {DERF}",
    used_in=("derf_backward", AUDIT),
)
def DERF_BACKWARD_IS_THE_ADJOINT(s: Statement) -> None:
    """Derf's dx and dweight are its gradients; those of alpha and shift are sums of dx."""
    _, ar, symbols = _element_wise(s, "alpha", "shift")
    s.numbers("pi", positive=True)
    x, alpha, dy = (symbols[name] for name in ("x", "alpha", "dy"))
    (y,), (dx, *_) = _claimed(s, "derf", ar, symbols)
    (change,) = s.numbers("change")
    loss = ar.sum(dy * y)
    s.equal(
        "dalpha",
        ("alpha times D <dy, Derf(x)> by alpha", alpha * derivative(loss, "alpha", "change")),
        ("<dx, x>", change * ar.sum(dx * x)),
    )
    s.equal(
        "dshift",
        ("alpha times D <dy, Derf(x)> by shift", alpha * derivative(loss, "shift", "change")),
        ("sum of dx", change * ar.sum(dx)),
    )


@theorem(
    statement=r"dx = \gamma\,dy\,\beta r^3,\quad"
    r" \frac{\partial\mathcal L_i}{\partial\beta} = -\tfrac12\gamma_i\,dy_i\,x_i r_i^3,\quad"
    r" -2\beta\,\frac{\partial\mathcal L_i}{\partial\beta} = x_i\,dx_i,\quad"
    r" r_i = 1/\sqrt{x_i^2+\beta}",
    hypotheses=("element by element, as each has a root of its own; dbeta is the sum over all",),
    citation=f"derivative of {STOLLENWERK}",
    used_in=("dyisru_backward", AUDIT),
)
def DYISRU_BACKWARD_IS_THE_ADJOINT(s: Statement) -> None:
    """DyISRU's dx, dweight and dbias are its gradients, and dbeta is -<dx, x> / (2 beta)."""
    i, ar, symbols = directed(s)
    (symbols["beta"],), (change,) = s.numbers("beta", positive=True), s.numbers("change")
    x, beta, dy, weight, h = (symbols[k] for k in ("x", "beta", "dy", "weight", "h"))
    (y,), (dx, dweight, dbias) = passes("dyisru", ar, symbols)
    for name, gradient in (("x", dx), ("weight", dweight), ("bias", dbias)):
        s.equal(
            f"d{name}",
            (f"dy times D DyISRU(x) along h in {name}", dy * derivative(y, name, "h")),
            (f"d{name} h", gradient * h),
            free=[i],
        )
    r = rstd_eps_inside(ar, x * x, beta)
    by_beta = dy * derivative(y, "beta", "change")
    s.equal(
        "dbeta, of one element",
        ("dy times D DyISRU(x) by beta", by_beta),
        ("-weight dy x r^3 / 2", -weight * dy * x * r * r * r / 2 * change),
        free=[i],
    )
    s.equal(
        "dbeta from dx",
        ("-2 beta times D <dy, DyISRU(x)> by beta", -2 * beta * by_beta),
        ("x dx", x * dx * change),
        free=[i],
    )


def _element_wise(s: Statement, *names: str) -> tuple[Any, RowArithmetic, dict[str, Any]]:
    """`directed`, with a direction k of weight and of bias."""
    i, ar, symbols = directed(s, *names)
    (symbols["k"],) = s.arrays("k", i)
    return i, ar, symbols


def _claimed(
    s: Statement, name: str, ar: RowArithmetic, symbols: dict[str, Any]
) -> tuple[Any, Any]:
    """`passes`, with the claims that dx, dweight and dbias are the gradients of <dy, y>."""
    (y,), gradients = passes(name, ar, symbols)
    loss = ar.sum(symbols["dy"] * y)
    for by, direction, gradient in zip(("x", "weight", "bias"), "hkk", gradients, strict=True):
        s.equal(
            f"d{by}",
            (f"D <dy, y> along {direction} in {by}", derivative(loss, by, direction)),
            (f"<d{by}, {direction}>", ar.sum(gradient * symbols[direction])),
        )
    return (y,), gradients
