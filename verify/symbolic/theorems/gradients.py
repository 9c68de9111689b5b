"""Every backward body is the adjoint of its forward body: <dy, D y along h> = <dx, h> for all h.

D is the derivative of the forward body, taken symbol by symbol; dx comes from the backward body.
Both are read from the table of formulas. The equation for all h and dy says that dx is the
gradient of any loss whose gradient by the output y is dy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import mul
from typing import Any

from verify.norms.catalogue import BA, FORMULAS, GEMMA, JIANG, WU, ZHANG
from verify.norms.forward import layer_norm, mean, rms_norm, rstd_eps_inside
from verify.symbolic.language import (
    Blocks,
    Expression,
    Index,
    RowArithmetic,
    Statement,
    derivative,
    lift,
    total,
)
from verify.symbolic.theorem import theorem
from verify.symbolic.theorems.centring import OURS, centred, of_each_block, row
from verify.symbolic.theorems.charts import WIDTH, chart, chart_transposed, decompressed
from verify.symbolic.theorems.jacobians import (
    NOTATION,
    layer_norm_jacobian,
    narrow_jacobian,
    rms_jacobian,
    rms_rstd,
)

ADJOINT = "for every row dy, the gradient by the output, and every direction h of the input"
AUDIT = "`verify audit`: gradients"


def passes(name: str, ar: RowArithmetic, symbols: Mapping[str, Any]) -> tuple[Any, Any]:
    """The outputs of a formula, and the gradients from its backward body, at the symbols."""
    forward, backward = FORMULAS[name], FORMULAS[f"{name}_backward"]
    return forward(ar, **symbols), backward(ar, **symbols)


def directed(s: Statement, *names: str) -> tuple[Index, RowArithmetic, dict[str, Any]]:
    """`row` with dy, a direction h of the row, and the numbers ``names``."""
    i, ar, symbols = row(s, *names)
    return i, ar, symbols | dict(zip(("dy", "h"), s.arrays("dy h", i), strict=True))


@theorem(
    statement=r"\langle dy, D\,\mathrm{RMS}(x)h\rangle = \langle dx, h\rangle,\quad"
    r" dx = r\,\big(g - \hat x\,\overline{\hat xg}\big),\ g = \gamma\,dy",
    hypotheses=(NOTATION, ADJOINT, "a bar is the mean over the row"),
    citation=f"derivative of {ZHANG}",
    used_in=("rms_norm_backward", "qk_norm_backward", AUDIT),
)
def RMS_NORM_BACKWARD_IS_THE_ADJOINT(s: Statement) -> None:
    """RMSNorm's dx is its gradient: the Jacobian is symmetric, so backward applies it to g."""
    _, ar, symbols = directed(s)
    x, eps, g = symbols["x"], symbols["eps"], symbols["dy"] * symbols["weight"]
    (y,), (dx, *_) = passes("rms_norm", ar, symbols)
    s.equal(
        "dx",
        ("D <dy, RMSNorm(x)> along h", derivative(ar.sum(symbols["dy"] * y), "x", "h")),
        ("<g, J h>", ar.sum(g * rms_jacobian(ar, x, eps, symbols["h"]))),
        ("J is symmetric: <J g, h>", ar.sum(rms_jacobian(ar, x, eps, g) * symbols["h"])),
        ("<dx, h>", ar.sum(dx * symbols["h"])),
    )


@theorem(
    statement=r"\langle dy, D\,\mathrm{LN}(x)h\rangle = \langle dx, h\rangle,\quad"
    r" dx = r\,\big(g - \bar g - \hat x\,\overline{\hat xg}\big),\ g = \gamma\,dy,\quad"
    r" \textstyle\sum_i dx_i = 0",
    hypotheses=(NOTATION, ADJOINT, "a bar is the mean over the row"),
    citation=f"derivative of {BA}",
    used_in=("layer_norm_backward", AUDIT),
)
def LAYER_NORM_BACKWARD_IS_THE_ADJOINT(s: Statement) -> None:
    """LayerNorm's dx is its gradient, and sums to 0, as a shift of the row changes nothing."""
    _, ar, symbols = directed(s)
    x, eps, g = symbols["x"], symbols["eps"], symbols["dy"] * symbols["weight"]
    (y,), (dx, *_) = passes("layer_norm", ar, symbols)
    s.equal(
        "dx",
        ("D <dy, LayerNorm(x)> along h", derivative(ar.sum(symbols["dy"] * y), "x", "h")),
        ("<g, J h>", ar.sum(g * layer_norm_jacobian(ar, x, eps, symbols["h"]))),
        ("J is symmetric: <J g, h>", ar.sum(layer_norm_jacobian(ar, x, eps, g) * symbols["h"])),
        ("<dx, h>", ar.sum(dx * symbols["h"])),
    )
    s.equal("dx sums to 0", ("sum of dx", ar.sum(dx)), ("Pg and x_hat sum to 0", 0))


@theorem(
    statement=r"\langle dy, D\,\mathrm{LN}(x)h\rangle = \langle r\,g + b\,x + c\mathbf 1, h\rangle,"
    r"\quad b = \tfrac{r^3}d\big(\bar x\,\textstyle\sum g - \sum gx\big),"
    r"\quad c = -b\,\bar x - \tfrac rd\sum g",
    hypotheses=(
        NOTATION,
        ADJOINT,
        "exact arithmetic: b x + c cancels when the mean of the row is large",
    ),
    citation=f"derivative of {BA}; the folded form is that of CPU kernels",
    used_in=("layer_norm_backward_folded", AUDIT),
)
def FOLDED_BACKWARD_IS_BACKWARD(s: Statement) -> None:
    """LayerNorm's dx by one multiply-add for each element is the same gradient."""
    i, ar, symbols = directed(s)
    x, h = symbols["x"], symbols["h"]
    (y,), (dx, dweight, dbias) = passes("layer_norm", ar, symbols)
    folded = FORMULAS["layer_norm_backward_folded"](ar, **symbols)
    r, x_hat = rms_rstd(ar, centred(ar, x), symbols["eps"]), layer_norm(ar, x, 1, 0, symbols["eps"])
    g = symbols["dy"] * symbols["weight"]
    b = -r * r * mean(ar, g * x_hat)
    s.equal(
        "dx",
        ("r g + b x + c", folded[0]),
        ("b = -r^2 mean(g x_hat)", r * g + b * x - (b * mean(ar, x) + r * mean(ar, g))),
        ("c takes the mean from g and from b x", r * centred(ar, g) + b * centred(ar, x)),
        ("LayerNorm's dx", dx),
        free=[i],
    )
    s.equal("dweight", ("folded", folded[1]), ("LayerNorm's", dweight), free=[i])
    s.equal("dbias", ("folded", folded[2]), ("LayerNorm's", dbias), free=[i])
    s.equal(
        "it is the adjoint",
        ("D <dy, LayerNorm(x)> along h", derivative(ar.sum(symbols["dy"] * y), "x", "h")),
        ("<r g + b x + c, h>", ar.sum(folded[0] * h)),
    )


@theorem(
    statement=r"\langle dy, D\,\mathrm{Gemma}(x)h\rangle = \langle dx, h\rangle,\quad"
    r" dx = r\,\big(g - \hat x\,\overline{\hat xg}\big),\ g = (1+\gamma)\,dy",
    hypotheses=(NOTATION, ADJOINT),
    citation=f"derivative of RMSNorm with weights stored around 0, {GEMMA}",
    used_in=("gemma_rms_norm_backward", AUDIT),
)
def GEMMA_RMS_NORM_BACKWARD_IS_THE_ADJOINT(s: Statement) -> None:
    """Gemma's dx is that of RMSNorm with gain 1 + weight, and so is its dweight."""
    i, ar, symbols = directed(s)
    weight, dy, h = symbols["weight"], symbols["dy"], symbols["h"]
    (k,) = s.arrays("k", i)
    (y,), (dx, dweight) = passes("gemma_rms_norm", ar, symbols)
    jacobian = rms_jacobian(ar, symbols["x"], symbols["eps"], h)
    s.equal(
        "dx",
        ("D <dy, y> along h", derivative(ar.sum(dy * y), "x", "h")),
        ("<dy + weight dy, J h>", ar.sum((dy + weight * dy) * jacobian)),
        ("<dx, h>", ar.sum(dx * h)),
    )
    s.equal(
        "dweight",
        ("D <dy, y> along k", derivative(ar.sum(dy * y), "weight", "k")),
        ("<dweight, k>", ar.sum(dweight * k)),
    )


@theorem(
    statement=r"dz = r\,\big(g - (z+\textstyle\sum z)\,\tfrac{r^2}d\sum gz\big)"
    r"\ \text{(CRMS)},\quad dz = r\,\big(g - z\,\tfrac{r^2}d\sum gz\big)\ \text{(narrow)}",
    hypotheses=(WIDTH, ADJOINT, "z has length n = d - 1, g = weight dy"),
    citation=f"derivative of {JIANG}, eq. 5",
    used_in=("crms_norm_backward", "narrow_rms_norm_backward", AUDIT),
)
def SHORT_NORMS_BACKWARD_IS_THE_ADJOINT(s: Statement) -> None:
    """The dz of CRMSNorm and of the narrow norm are their gradients; CRMSNorm's sees sum z."""
    _, ar, symbols = directed(s)
    z, eps, h = symbols["x"], symbols["eps"], symbols["h"]
    g, d = symbols["dy"] * symbols["weight"], ar.length(z) + 1
    dropped = ar.sum(z)
    r = rstd_eps_inside(ar, (ar.sum(z * z) + dropped * dropped) / d, eps)
    (y,), (dz, *_) = passes("crms_norm", ar, symbols)
    change = ar.sum(z * h) + dropped * ar.sum(h)
    s.equal(
        "CRMSNorm",
        ("D <dy, CRMSNorm(z)> along h", derivative(ar.sum(symbols["dy"] * y), "x", "h")),
        (
            "D (|z|^2 + (sum z)^2)/2 = <z, h> + sum z sum h",
            r * (ar.sum(g * h) - r * r * ar.sum(g * z) / d * change),
        ),
        ("<dz, h>", ar.sum(dz * h)),
    )
    (y,), (dz, *_) = passes("narrow_rms_norm", ar, symbols)
    s.equal(
        "the narrow norm",
        ("D <dy, narrow(z)> along h", derivative(ar.sum(symbols["dy"] * y), "x", "h")),
        ("<g, J h>", ar.sum(g * narrow_jacobian(ar, z, eps, h))),
        ("J is symmetric: <J g, h>", ar.sum(narrow_jacobian(ar, z, eps, g) * h)),
        ("<dz, h>", ar.sum(dz * h)),
    )


@theorem(
    statement=r"dz_{\mathrm{CRMS}}(z, dy) = D^\top dx_{\mathrm{LN}}\big(Dz, (dy, 0)\big),\quad"
    r" dx_{\mathrm{LN}}(Qz, dy) = Q\,dz_{\mathrm{narrow}}(z, Q^\top dy)",
    hypotheses=(
        WIDTH,
        "D^T u is u less its last element; the dropped element's output is not read: dy is 0 there",
        "Q is the isometry of THE_HOUSEHOLDER_CHART_IS_AN_ISOMETRY; there, weight 1",
    ),
    citation=f"{OURS}, after {JIANG}",
    used_in=("crms_norm_backward and narrow_rms_norm_backward by the kernels of LayerNorm",),
)
def GRADIENTS_ARE_PULLED_BACK_THROUGH_CHARTS(s: Statement) -> None:
    """The short norms' gradients are LayerNorm's at the long row, back through the chart."""
    i, ar, symbols = row(s)
    z, weight, eps = symbols["x"], symbols["weight"], symbols["eps"]
    (dy,) = s.arrays("dy", i)
    last_weight, last_dy = s.numbers("last_weight last_dy")
    wide = RowArithmetic((i, None))
    long = {"x": decompressed(ar, z), "eps": eps, "weight": Blocks((weight, last_weight))}
    long |= {"dy": Blocks((dy, lift(0)))}
    dz = FORMULAS["crms_norm_backward"](ar, x=z, weight=weight, eps=eps, dy=dy)[0]
    by_rms, by_layer = (
        FORMULAS[f"{name}_backward"](wide, **long)[0].parts for name in ("rms_norm", "layer_norm")
    )
    s.equal(
        "CRMSNorm",
        ("CRMSNorm's dz", dz),
        ("D^T RMSNorm's dx at Dz", by_rms[0] - by_rms[1]),
        ("D^T takes a mean away: D^T LayerNorm's dx at Dz", by_layer[0] - by_layer[1]),
        free=[i],
    )
    long = {"x": chart(ar, z), "weight": 1, "eps": eps, "dy": Blocks((dy, last_dy))}
    short = {"x": z, "weight": 1, "eps": eps, "dy": chart_transposed(ar, long["dy"])}
    of_each_block(
        s,
        "the narrow norm",
        wide,
        ("LayerNorm's dx at Qz", FORMULAS["layer_norm_backward"](wide, **long)[0]),
        ("Q dz, at z and Q^T dy", chart(ar, FORMULAS["narrow_rms_norm_backward"](ar, **short)[0])),
    )


@dataclass(frozen=True)
class GroupArithmetic(RowArithmetic):
    """A row over two indices, channel and position: one group of GroupNorm."""

    def length(self, row: Any) -> Expression:
        return _product([RowArithmetic((index,)).length(row) for index in self.indices])

    def sum(self, row: Any) -> Expression:
        for index in self.indices:
            row = RowArithmetic((index,)).sum(row)
        return lift(row)


def _product(factors: Sequence[Expression]) -> Expression:
    return reduce(mul, factors)


@theorem(
    statement=r"\langle dy, D\,\mathrm{GN}(x)h\rangle = \langle dx, h\rangle,\quad"
    r" d\gamma_c = \textstyle\sum_p dy_{cp}\,\hat x_{cp},\quad d\beta_c = \sum_p dy_{cp}",
    hypotheses=(
        NOTATION,
        ADJOINT,
        "a row is one group of one sample: x_cp, channel c and position p; weight_c, bias_c",
        "samples add up: PARAMETER_GRADIENTS",
    ),
    citation=f"derivative of {WU}",
    used_in=("group_norm_backward", "instance_norm_backward: one channel in each group", AUDIT),
)
def GROUP_NORM_BACKWARD_IS_THE_ADJOINT(s: Statement) -> None:
    """GroupNorm's dx is LayerNorm's over channels and positions, weighed channel by channel."""
    s.dimension("channels")
    s.dimension("positions")
    c, p = s.index("channels"), s.index("positions")
    x, dy, h = s.arrays("x dy h", c, p)
    weight, bias, k = s.arrays("weight bias k", c)
    (eps,) = s.numbers("eps", positive=True)
    ar, channels = GroupArithmetic((p, c)), RowArithmetic((c,))
    symbols = {"x": x, "weight": weight, "bias": bias, "eps": eps, "dy": dy}
    (y,), (dx, dweight, dbias) = passes("group_norm", ar, symbols)
    loss, g = ar.sum(dy * y), dy * weight
    s.equal(
        "dx",
        ("D <dy, GroupNorm(x)> along h", derivative(loss, "x", "h")),
        ("<g, J h>", ar.sum(g * layer_norm_jacobian(ar, x, eps, h))),
        ("J is symmetric: <J g, h>", ar.sum(layer_norm_jacobian(ar, x, eps, g) * h)),
        ("<dx, h>", ar.sum(dx * h)),
    )
    s.equal("dx sums to 0 over the group", ("sum of dx", ar.sum(dx)), ("0", 0))
    for name, gradient in (("weight", dweight), ("bias", dbias)):
        s.equal(
            f"d{name}",
            (f"D <dy, GroupNorm(x)> along k in {name}", derivative(loss, name, "k")),
            (f"<k, d{name} summed over positions>", channels.sum(k * total(p, gradient))),
        )


@theorem(
    statement=r"\mathcal L = \langle dy, \mathrm{norm}(x+s)\rangle + \langle du, x+s\rangle:"
    r"\quad dx = ds = dx_{\mathrm{norm}}(x+s) + du",
    hypotheses=(
        ADJOINT,
        "s is the residual stream and u = x + s the sum that is passed on, du its gradient",
    ),
    citation=f"derivative of {ZHANG} and of {BA}",
    used_in=("add_rms_norm_backward", "add_layer_norm_backward", AUDIT),
)
def RESIDUAL_SUM_BACKWARD_IS_THE_ADJOINT(s: Statement) -> None:
    """Behind a residual sum both inputs get the norm's gradient and that of the sum itself."""
    i, ar, symbols = directed(s)
    names = ("residual", "dresidual_out", "k")
    symbols |= dict(zip(names, s.arrays(" ".join(names), i), strict=True))
    dy, passed = symbols["dy"], symbols["dresidual_out"]
    at_sum = symbols | {"x": symbols["x"] + symbols["residual"]}
    for name in ("rms_norm", "layer_norm"):
        (y, u), (dx, dresidual, dweight, dbias) = passes(f"add_{name}", ar, symbols)
        loss = ar.sum(dy * y) + ar.sum(passed * u)
        alone = FORMULAS[f"{name}_backward"](ar, **at_sum)
        for by, direction, gradient, parts in (
            ("x", "h", dx, alone[0] + passed),
            ("residual", "h", dresidual, alone[0] + passed),
            ("weight", "k", dweight, alone[1]),
            ("bias", "k", dbias, alone[2]),
        ):
            s.equal(
                f"add_{name}, by {by}",
                (f"D (<dy, y> + <du, u>) along {direction}", derivative(loss, by, direction)),
                ("the norm's gradient at u, and du", ar.sum(parts * symbols[direction])),
                (f"<d{by}, {direction}>", ar.sum(gradient * symbols[direction])),
            )
    s.equal(
        "LayerNorm leaves the mean of the stream's gradient as it is",
        ("mean dx", mean(ar, FORMULAS["add_layer_norm_backward"](ar, **symbols)[0])),
        ("LayerNorm's dx sums to 0: mean du", mean(ar, passed)),
    )


@theorem(
    statement=r"\langle dx, x\rangle = \varepsilon r^2\,\langle g, \hat x\rangle,\quad"
    r" \langle dx, h\rangle = r\,\langle g, h\rangle\ \text{for}\ h\perp\hat x",
    hypotheses=(
        NOTATION,
        "g = weight dy; h is any row less its part along x_hat, and for LayerNorm less its mean",
    ),
    citation=OURS,
    used_in=(f"{AUDIT}: sums that a right kernel keeps small", "tests without a reference"),
)
def GRADIENTS_SEE_THE_INVARIANCES(s: Statement) -> None:
    """What a norm does not see, its gradient is orthogonal to; elsewhere the gradient is r g."""
    _, ar, symbols = directed(s)
    x, eps, h = symbols["x"], symbols["eps"], symbols["h"]
    g = symbols["dy"] * symbols["weight"]
    for name, norm, row_x, row_h in (
        ("rms_norm", rms_norm, x, h),
        ("layer_norm", layer_norm, centred(ar, x), centred(ar, h)),
    ):
        dx = FORMULAS[f"{name}_backward"](ar, **symbols)[0]
        r, x_hat = rms_rstd(ar, row_x, eps), norm(ar, x, 1, 0, eps)
        s.equal(
            f"{name}: along the row",
            ("<dx, x>", ar.sum(dx * x)),
            ("<g, J x>, J x = eps r^3 x", ar.sum(g * (eps * r * r * r * row_x))),
            ("eps r^2 <g, x_hat>", eps * r * r * ar.sum(g * x_hat)),
        )
        across = row_h - row_x * (ar.sum(row_x * row_h) / ar.sum(row_x * row_x))
        s.equal(
            f"{name}: along what is orthogonal to it",
            ("<dx, h>", ar.sum(dx * across)),
            ("r <g, h>", r * ar.sum(g * across)),
        )
