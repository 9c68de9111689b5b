"""True theorems for the tests of checkers, and wrong siblings of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.symbolic.checkers.sample_certificates import (
    E,
    at,
    certificate,
    diff,
    dim,
    fun,
    lam,
    mean,
    num,
    sqrt,
    square,
    sym,
    total,
)

EPS = sym("eps")
ZERO = num(0)
Vector = Callable[[str], E]


def x(i: str) -> E:
    return at("x", i)


def centred(a: Vector) -> Vector:
    mu = mean(a)
    return lambda i: a(i) - mu


def two_pass(a: Vector, divisor: E | None = None) -> E:
    c = centred(a)
    return total(lambda j: square(c(j))) / (divisor or dim())


def one_pass(a: Vector) -> E:
    return mean(lambda j: square(a(j))) - square(mean(a))


def affine(top: E, root: E, i: str) -> E:
    return at("w", i) * top / root + at("b", i)


def layer_norm(i: str, variance: E | None = None, a: Vector = x) -> E:
    return affine(centred(a)(i), sqrt((variance or two_pass(a)) + EPS), i)


def rms(a: Vector, i: str, eps: E = EPS) -> E:
    return affine(a(i), sqrt(mean(lambda j: square(a(j))) + eps), i)


@dataclass(frozen=True)
class Sample:
    """A true equation and right sides that are wrong."""

    name: str
    left: E
    right: E
    wrong: Mapping[str, E]
    free: tuple[tuple[str, str], ...] = (("i", "n"),)

    def true(self) -> dict[str, Any]:
        return certificate(self.left, self.right, free=self.free)

    def siblings(self) -> list[tuple[str, dict[str, Any]]]:
        return [(k, certificate(self.left, e, free=self.free)) for k, e in self.wrong.items()]


def _rms_of_centred() -> Sample:
    c, v = centred(x), two_pass(x)
    return Sample(
        "LN = RMS of centred",
        layer_norm("i"),
        rms(c, "i"),
        {
            "d+1 for d": affine(c("i"), sqrt(two_pass(x, dim() + 1) + EPS), "i"),
            "no eps": affine(c("i"), sqrt(v), "i"),
            "eps outside": affine(c("i"), sqrt(v) + EPS, "i"),
            "sign of the mean": affine(x("i") + mean(x), sqrt(v + EPS), "i"),
            "mean kept above": affine(x("i"), sqrt(v + EPS), "i"),
            "mean kept below": affine(c("i"), sqrt(mean(lambda j: square(x(j))) + EPS), "i"),
            "no bias": at("w", "i") * c("i") / sqrt(v + EPS),
            "eps twice": affine(c("i"), sqrt(v + 2 * EPS), "i"),
        },
    )


def _one_pass() -> Sample:
    power, mu = mean(lambda j: square(x(j))), mean(x)
    return Sample(
        "one pass = two passes",
        layer_norm("i"),
        layer_norm("i", one_pass(x)),
        {
            "sign": layer_norm("i", power + square(mu)),
            "mean not squared": layer_norm("i", power - mu),
            "no mean": layer_norm("i", power),
            "d+1 for d": layer_norm("i", one_pass(x) * dim() / (dim() + 1)),
            "no eps": affine(x("i") - mu, sqrt(one_pass(x)), "i"),
            "eps outside": affine(x("i") - mu, sqrt(one_pass(x)) + EPS, "i"),
        },
    )


def _shifted() -> Sample:
    s = sym("shift")

    def y(i: str) -> E:
        return x(i) - s

    return Sample(
        "shifted one pass = two passes",
        layer_norm("i"),
        layer_norm("i", one_pass(y), y),
        {
            "shift kept above": affine(x("i") - s, sqrt(one_pass(y) + EPS), "i"),
            "shift lost in the mean": affine(y("i") - mean(x), sqrt(one_pass(y) + EPS), "i"),
            "second moment of x": layer_norm(
                "i", mean(lambda j: square(x(j))) - square(mean(y)), y
            ),
            "no square": layer_norm("i", mean(lambda j: square(y(j))) - mean(y), y),
            "no mean": layer_norm("i", mean(lambda j: square(y(j))), y),
            "no eps": affine(centred(y)("i"), sqrt(one_pass(y)), "i"),
        },
    )


def _narrow() -> Sample:
    n, energy = dim(), total(lambda j: square(at("z", j)))
    stretch = (n + 1) / n

    def scaled(factor: E, eps: E, divisor: E = n) -> E:
        return affine(factor * at("z", "i"), sqrt(energy / divisor + eps), "i")

    return Sample(
        "narrow = scaled RMS",
        affine(at("z", "i"), sqrt(energy / (n + 1) + EPS), "i"),
        scaled(sqrt(stretch), EPS * stretch),
        {
            "eps not stretched": scaled(sqrt(stretch), EPS),
            "not scaled": scaled(num(1), EPS * stretch),
            "no root": scaled(stretch, EPS * stretch),
            "inverted": scaled(sqrt(n / (n + 1)), EPS * stretch),
            "d for d-1": scaled(sqrt(stretch), EPS * stretch, n + 1),
            "no eps": scaled(sqrt(stretch), num(0)),
            "sign": scaled(-sqrt(stretch), EPS * stretch),
        },
    )


def _adjoint(forward: Callable[[str], E], gradient: Callable[[str], E]) -> tuple[E, E]:
    left = total(lambda i: at("g", i) * diff(forward(i), "x", "h"))
    return left, total(lambda i: gradient(i) * at("h", i))


def _rms_adjoint() -> Sample:
    r = 1 / sqrt(mean(lambda j: square(x(j))) + EPS)

    def gw(i: str) -> E:
        return at("g", i) * at("w", i)

    def hat(i: str) -> E:
        return x(i) * r

    def pair(gradient: Callable[[str], E]) -> E:
        return _adjoint(lambda i: rms(x, i), gradient)[1]

    m = mean(lambda j: gw(j) * hat(j))
    unscaled = 1 / sqrt(mean(lambda j: square(x(j))))
    return Sample(
        "RMSNorm adjoint",
        _adjoint(lambda i: rms(x, i), x)[0],
        pair(lambda i: r * (gw(i) - hat(i) * m)),
        {
            "sign": pair(lambda i: r * (gw(i) + hat(i) * m)),
            "no mean term": pair(lambda i: r * gw(i)),
            "no weight in the mean": pair(
                lambda i: r * (gw(i) - hat(i) * mean(lambda j: at("g", j) * hat(j)))
            ),
            "d+1 for d": pair(lambda i: r * (gw(i) - hat(i) * m * dim() / (dim() + 1))),
            "x for x_hat": pair(lambda i: r * (gw(i) - x(i) * m)),
            "no eps": pair(lambda i: unscaled * (gw(i) - hat(i) * m)),
            "no rstd": pair(lambda i: gw(i) - hat(i) * m),
        },
        (),
    )


def _layer_norm_adjoint() -> Sample:
    c, r = centred(x), 1 / sqrt(two_pass(x) + EPS)

    def gw(i: str) -> E:
        return at("g", i) * at("w", i)

    def hat(i: str) -> E:
        return c(i) * r

    def pair(gradient: Callable[[str], E]) -> E:
        return _adjoint(layer_norm, gradient)[1]

    m, mg = mean(lambda j: gw(j) * hat(j)), mean(gw)
    return Sample(
        "LayerNorm adjoint",
        _adjoint(layer_norm, x)[0],
        pair(lambda i: r * (gw(i) - mg - hat(i) * m)),
        {
            "sign of the mean": pair(lambda i: r * (gw(i) + mg - hat(i) * m)),
            "no mean of g": pair(lambda i: r * (gw(i) - hat(i) * m)),
            "no second mean": pair(lambda i: r * (gw(i) - mg)),
            "x for centred x": pair(lambda i: r * (gw(i) - mg - x(i) * r * m)),
            "d+1 for d": pair(lambda i: r * (gw(i) - mg - hat(i) * m * dim() / (dim() + 1))),
            "no eps": pair(lambda i: (gw(i) - mg - hat(i) * m) / sqrt(two_pass(x))),
        },
        (),
    )


def _second_derivative() -> Sample:
    s = sqrt(mean(lambda j: square(x(j))) + EPS)
    hk = mean(lambda j: at("h", j) * at("k", j))
    xh, xk = (mean(lambda j, d=d: x(j) * at(d, j)) for d in ("h", "k"))
    return Sample(
        "second derivative of the root mean square",
        diff(diff(s, "x", "h"), "x", "k"),
        hk / s - xh * xk / (s * s * s),
        {
            "sign": hk / s + xh * xk / (s * s * s),
            "first term alone": hk / s,
            "twice": hk / s - 2 * xh * xk / (s * s * s),
            "one root less": hk / s - xh * xk / (s * s),
            "one direction": hk / s - xh * xh / (s * s * s),
            "d+1 for d": hk / s * dim() / (dim() + 1) - xh * xk / (s * s * s),
        },
        (),
    )


def _tanh() -> Sample:
    alpha = sym("alpha")
    t = fun("tanh", alpha * x("i"))
    slope = at("w", "i") * alpha * at("h", "i")
    return Sample(
        "derivative of DyT",
        diff(at("w", "i") * t + at("b", "i"), "x", "h"),
        slope * (1 - t * t),
        {
            "sign": slope * (1 + t * t),
            "not squared": slope * (1 - t),
            "no alpha": at("w", "i") * at("h", "i") * (1 - t * t),
            "no weight": alpha * at("h", "i") * (1 - t * t),
            "argument without alpha": slope * (1 - square(fun("tanh", x("i")))),
        },
    )


def _erf() -> Sample:
    alpha, a = sym("alpha"), sym("alpha") * x("i") + sym("shift")
    slope = alpha * at("h", "i") * fun("exp", -(a * a))
    root = sqrt(sym("pi"))
    return Sample(
        "derivative of Derf",
        diff(fun("erf", a), "x", "h"),
        slope * 2 / root,
        {
            "pi without root": slope * 2 / sym("pi"),
            "no factor 2": slope / root,
            "exponent's sign": alpha * at("h", "i") * fun("exp", a * a) * 2 / root,
            "no square": alpha * at("h", "i") * fun("exp", -a) * 2 / root,
            "no alpha": at("h", "i") * fun("exp", -(a * a)) * 2 / root,
        },
    )


def _network() -> Sample:
    def step(norm: Vector) -> E:
        return x("i") + fun("f", lam(norm), element=["i"])

    mu = mean(x)
    power = mean(lambda j: square(x(j)))
    return Sample(
        "a network's step",
        step(layer_norm),
        step(lambda i: layer_norm(i, one_pass(x))),
        {
            "no mean in the variance": step(lambda i: layer_norm(i, power)),
            "sign": step(lambda i: layer_norm(i, power + mu * mu)),
            "not centred": step(lambda i: rms(x, i)),
            "no bias": step(lambda i: layer_norm(i, one_pass(x)) - at("b", i)),
            "no residual": step(layer_norm) - x("i"),
            "another function": x("i") + fun("g", lam(layer_norm), element=["i"]),
        },
    )


def _matrix() -> Sample:
    def row(i: str) -> E:
        return total(lambda k: at("A", i, k) * at("v", k), "m")

    def column_mean(k: str) -> E:
        return mean(lambda j: at("A", j, k))

    def applied(entry: Callable[[str], E]) -> E:
        return total(lambda k: entry(k) * at("v", k), "m")

    def a(k: str) -> E:
        return at("A", "i", k)

    c = centred(lambda j: at("b", j))("i")
    return Sample(
        "centred weights give centred writes",
        centred(lambda j: row(j) + at("b", j))("i"),
        applied(lambda k: a(k) - column_mean(k)) + c,
        {
            "bias not centred": applied(lambda k: a(k) - column_mean(k)) + at("b", "i"),
            "sign": applied(lambda k: a(k) + column_mean(k)) + c,
            "not centred": applied(a) + c,
            "m for d": applied(lambda k: a(k) - column_mean(k) * dim() / dim("m")) + c,
            "d+1 for d": applied(lambda k: a(k) - column_mean(k) * dim() / (dim() + 1)) + c,
            "row mean": applied(lambda k: a(k) - total(lambda l: at("A", "i", l), "m") / dim("m"))
            + c,
        },
    )


def _homogeneous() -> Sample:
    c = sym("c")

    def cx(i: str) -> E:
        return c * x(i)

    def plain(a: Vector, eps: E = ZERO) -> E:
        return rms(a, "i", eps)

    return Sample(
        "RMSNorm with eps = 0 is 0-homogeneous",
        plain(x),
        plain(cx),
        {
            "scaled": affine(c * cx("i"), sqrt(mean(lambda j: square(cx(j)))), "i"),
            "not scaled below": affine(cx("i"), sqrt(mean(lambda j: square(x(j)))), "i"),
            "with eps": plain(cx, EPS),
            "sign": plain(lambda i: -cx(i)),
            "no root": affine(cx("i"), mean(lambda j: square(cx(j))), "i"),
            "d+1 for d": affine(cx("i"), sqrt(total(lambda j: square(cx(j))) / (dim() + 1)), "i"),
        },
    )


SAMPLES = (
    _rms_of_centred(),
    _one_pass(),
    _shifted(),
    _narrow(),
    _rms_adjoint(),
    _layer_norm_adjoint(),
    _second_derivative(),
    _tanh(),
    _erf(),
    _network(),
    _matrix(),
    _homogeneous(),
)
