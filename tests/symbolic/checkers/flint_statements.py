"""Theorems and their wrong siblings, over norms that are written out for these tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.symbolic.checkers.flint_builder import (
    Term,
    at,
    certificate,
    diff,
    dim,
    fun,
    lam,
    lift,
    mean,
    one_i,
    sqrt,
    sym,
    total,
)

EPS, N, M = sym("eps"), dim("n"), dim("m")
Row = Callable[[str], Term]


def row(name: str) -> Row:
    return lambda i: at(name, i)


def centred(x: Row) -> Row:
    return lambda i: x(i) - mean("j", x("j"))


def two_pass(x: Row, divisor: Term = N) -> Term:
    return total("j", (x("j") - mean("k", x("k"))) * (x("j") - mean("k", x("k")))) / divisor


def one_pass(x: Row) -> Term:
    return mean("j", x("j") * x("j")) - mean("j", x("j")) * mean("j", x("j"))


def square(x: Row, divisor: Term = N) -> Term:
    return total("j", x("j") * x("j")) / divisor


def affine(y: Term, i: str = "i") -> Term:
    return y * at("w", i) + at("b", i)


def normal(c: Row, variance: Term, eps: Term = EPS) -> Row:
    return lambda i: c(i) / sqrt(variance + eps)


def layer_norm(x: Row, variance: Term | None = None, eps: Term = EPS) -> Row:
    return normal(centred(x), variance or two_pass(x), eps)


def rms(x: Row, eps: Term = EPS) -> Row:
    return normal(x, square(x), eps)


X, Z = row("x"), row("z")
LN = affine(layer_norm(X)("i"))


def pairing(gradient: Row, direction: str = "h") -> Term:
    return total("i", gradient("i") * at(direction, "i"))


def pulled_back(y: Row) -> Term:
    return total("i", at("dy", "i") * diff(affine(y("i")), "x", "h"))


def g(i: str) -> Term:
    return at("dy", i) * at("w", i)


def rms_backward(i: str, sign: int = -1, divisor: Term = N) -> Term:
    r = lift(1) / sqrt(square(X) + EPS)
    x_hat = X(i) * r
    return r * (g(i) + lift(sign) * x_hat * (total("q", g("q") * X("q") * r) / divisor))


def layer_norm_backward(
    i: str, *, centre_g: bool = True, divisor: Term = N, eps: Term = EPS, sign: int = -1
) -> Term:
    r = lift(1) / sqrt(two_pass(X) + eps)
    x_hat: Row = lambda j: centred(X)(j) * r  # noqa: E731 - a formula, not a function
    gg = g(i) - mean("q", g("q")) if centre_g else g(i)
    return r * (gg + lift(sign) * x_hat(i) * (total("q", g("q") * x_hat("q")) / divisor))


def folded_backward(i: str) -> Term:
    r = lift(1) / sqrt(two_pass(X) + EPS)
    mu, sum_g = mean("q", X("q")), total("q", g("q"))
    b = (sum_g * mu - total("q", g("q") * X("q"))) * r * r * r / N
    return r * g(i) + b * X(i) + (-(b * mu) - sum_g * r / N)


def narrow(divisor: Term | None = None, eps: Term = EPS) -> Term:
    return affine(normal(Z, square(Z, divisor or N + 1), eps)("i"))


def scaled_narrow(stretch: Term, eps_stretch: Term) -> Term:
    return sqrt(stretch) * at("w", "i") * rms(Z, EPS * eps_stretch)("i") + at("b", "i")


def crms_variance(sign: int = 1) -> Term:
    s = total("j", Z("j"))
    return (total("j", Z("j") * Z("j")) + lift(sign) * s * s) / (N + 1) + EPS


def decompressed_variance(scale: int = 1) -> Term:
    """RMSNorm's mean square of the row (z, -scale sum z)."""
    last = lift(-scale) * total("j", Z("j"))
    return (total("j", Z("j") * Z("j")) + last * last) / (N + 1) + EPS


def network_step(norm: Row, act: str = "f") -> Term:
    """One residual write that reads the whole normalised row through an unknown network."""
    return at("x", "i") + fun(act, lam("j", norm("j")), select=("i",))


def matmul(i: str, v: Row) -> Term:
    return total("r", at("A", i, "r") * v("r"), "m")


def column_mean(k: str) -> Term:
    return mean("q", at("A", "q", k))


def centred_matmul(i: str, v: Row) -> Term:
    return total("r", (at("A", i, "r") - column_mean("r")) * v("r"), "m")


def dyisru(i: str) -> Term:
    return X(i) / sqrt(X(i) * X(i) + sym("beta"))


def dyisru_backward(i: str, power: int = 3) -> Term:
    r = lift(1) / sqrt(X(i) * X(i) + sym("beta"))
    cube = r * r * r if power == 3 else r
    return at("dy", i) * at("w", i) * sym("beta") * cube


ALPHA = sym("alpha")
TANH = fun("tanh", ALPHA * X("i"))
ERF = fun("erf", ALPHA * X("i"))
Y = row("y")
# d/dt d/du of r = (S/n + eps)^(-1/2) along h, then k
R = lift(1) / sqrt(square(X) + EPS)
XH, XK, HK = (mean("q", at(a, "q") * at(b, "q")) for a, b in (("x", "h"), ("x", "k"), ("h", "k")))

THEOREMS: dict[str, dict[str, Any]] = {
    "LN is RMS of centred": one_i(LN, affine(rms(centred(X))("i"))),
    "one pass is two pass": one_i(affine(layer_norm(X, one_pass(X))("i")), LN),
    "LN is shift invariant": one_i(layer_norm(lambda i: X(i) - sym("c"))("i"), layer_norm(X)("i")),
    "folded shift": one_i(
        at("w", "i") * X("i") / sqrt(two_pass(X) + EPS)
        + (at("b", "i") - mean("j", X("j")) * at("w", "i") / sqrt(two_pass(X) + EPS)),
        LN,
    ),
    "narrow is a scaled RMSNorm": one_i(narrow(), scaled_narrow((N + 1) / N, (N + 1) / N)),
    "CRMS is RMS of decompressed": one_i(
        Z("i") / sqrt(crms_variance()), Z("i") / sqrt(decompressed_variance())
    ),
    "norm of a norm": one_i(
        rms(rms(X))("i"), X("i") / sqrt((lift(1) + EPS) * square(X) + EPS * EPS)
    ),
    "scale of a row": one_i(
        rms(lambda i: sym("s") * X(i), sym("s") * sym("s") * EPS)("i"), rms(X)("i")
    ),
    "roots multiply": certificate(
        sqrt(square(X) + EPS) * sqrt(square(Z) + EPS), sqrt((square(X) + EPS) * (square(Z) + EPS))
    ),
    "RMSNorm adjoint": certificate(pulled_back(rms(X)), pairing(rms_backward)),
    "LayerNorm adjoint": certificate(pulled_back(layer_norm(X)), pairing(layer_norm_backward)),
    "one-pass LayerNorm adjoint": certificate(
        pulled_back(layer_norm(X, one_pass(X))), pairing(layer_norm_backward)
    ),
    "folded backward": one_i(folded_backward("i"), layer_norm_backward("i")),
    "DyISRU adjoint": certificate(pulled_back(dyisru), pairing(dyisru_backward)),
    "double diff": certificate(
        diff(diff(R, "x", "h"), "x", "k"), -(HK * R * R * R) + lift(3) * XH * XK * R * R * R * R * R
    ),
    "directions may be differentiated": certificate(
        diff(diff(square(X), "x", "h"), "h", "k"), lift(2) * XK
    ),
    "tanh": one_i(diff(TANH, "x", "h"), ALPHA * at("h", "i") * (lift(1) - TANH * TANH)),
    "erf": one_i(
        diff(ERF, "x", "h"),
        lift(2)
        / sqrt(sym("pi"))
        * fun("exp", -(ALPHA * ALPHA * X("i") * X("i")))
        * ALPHA
        * at("h", "i"),
    ),
    "unknown function's derivative": certificate(
        diff(total("i", fun("f", X("i") + X("i"))), "x", "h"),
        lift(2) * total("i", fun("f'", lift(2) * X("i")) * at("h", "i")),
    ),
    "network step": one_i(
        network_step(layer_norm(X)),
        network_step(rms(centred(X))),
        network_step(layer_norm(X, one_pass(X))),
    ),
    "network of a network": one_i(
        network_step(rms(lambda j: fun("g", layer_norm(X)(j)))),
        network_step(rms(lambda j: fun("g", rms(centred(X))(j)))),
    ),
    "matrix centring": one_i(centred(lambda i: matmul(i, Y))("i"), centred_matmul("i", Y)),
    "norm of a matrix product": one_i(
        layer_norm(lambda i: matmul(i, Y))("i"), rms(lambda i: centred_matmul(i, Y))("i")
    ),
    "function of matrix elements": certificate(
        total("i", total("k", fun("f", at("A", "i", "k") + at("A", "i", "k")), "m")),
        total("k", total("i", fun("f", lift(2) * at("A", "i", "k"))), "m"),
    ),
    "two free indices": certificate(
        (X("i") + X("l")) * (X("i") - X("l")),
        X("i") * X("i") - X("l") * X("l"),
        free={"i": "n", "l": "n"},
    ),
    "sum of reciprocals": certificate(
        total("i", X("i") / (X("i") + 1)), N - total("i", lift(1) / (X("i") + 1))
    ),
}

WRONG: dict[str, dict[str, Any]] = {
    "LN with d-1": one_i(
        affine(layer_norm(X, two_pass(X, N - 1))("i")), affine(rms(centred(X))("i"))
    ),
    "LN without eps": one_i(layer_norm(X, eps=lift(0))("i"), layer_norm(X)("i")),
    "eps outside the root": one_i(centred(X)("i") / (sqrt(two_pass(X)) + EPS), layer_norm(X)("i")),
    "LN is RMS": one_i(LN, affine(rms(X)("i"))),
    "LN without bias": one_i(LN, layer_norm(X)("i") * at("w", "i")),
    "one pass with a plus": one_i(
        layer_norm(X, mean("j", X("j") * X("j")) + mean("j", X("j")) * mean("j", X("j")))("i"),
        layer_norm(X)("i"),
    ),
    "RMS is shift invariant": one_i(rms(lambda i: X(i) - sym("c"))("i"), rms(X)("i")),
    "narrow without eps scaling": one_i(narrow(), scaled_narrow((N + 1) / N, lift(1))),
    "narrow without root": one_i(
        narrow(), (N + 1) / N * at("w", "i") * rms(Z, EPS * (N + 1) / N)("i") + at("b", "i")
    ),
    "narrow upside down": one_i(narrow(), scaled_narrow(N / (N + 1), (N + 1) / N)),
    "narrow with n": one_i(narrow(N), scaled_narrow((N + 1) / N, (N + 1) / N)),
    "CRMS with a minus": one_i(
        Z("i") / sqrt(crms_variance(-1)), Z("i") / sqrt(decompressed_variance())
    ),
    "CRMS decompressed twice": one_i(
        Z("i") / sqrt(crms_variance()), Z("i") / sqrt(decompressed_variance(2))
    ),
    "norm of a norm is a norm": one_i(rms(rms(X))("i"), rms(X)("i")),
    "scale without eps": one_i(rms(lambda i: sym("s") * X(i))("i"), rms(X)("i")),
    "roots add": certificate(sqrt(square(X)) + sqrt(square(Z)), sqrt(square(X) + square(Z))),
    "root of a square": one_i(sqrt(X("i") * X("i")), X("i")),
    "root of d": certificate(sqrt(N), lift(2)),
    "RMSNorm adjoint, sign": certificate(
        pulled_back(rms(X)), pairing(lambda i: rms_backward(i, sign=1))
    ),
    "RMSNorm adjoint, divisor": certificate(
        pulled_back(rms(X)), pairing(lambda i: rms_backward(i, divisor=N + 1))
    ),
    "RMSNorm adjoint of LayerNorm": certificate(pulled_back(layer_norm(X)), pairing(rms_backward)),
    "LayerNorm adjoint, no mean term": certificate(
        pulled_back(layer_norm(X)), pairing(lambda i: layer_norm_backward(i, centre_g=False))
    ),
    "LayerNorm adjoint, d-1": certificate(
        pulled_back(layer_norm(X)), pairing(lambda i: layer_norm_backward(i, divisor=N - 1))
    ),
    "LayerNorm adjoint, no eps": certificate(
        pulled_back(layer_norm(X)), pairing(lambda i: layer_norm_backward(i, eps=lift(0)))
    ),
    "LayerNorm adjoint, sign": certificate(
        pulled_back(layer_norm(X)), pairing(lambda i: layer_norm_backward(i, sign=1))
    ),
    "DyISRU adjoint, power": certificate(
        pulled_back(dyisru), pairing(lambda i: dyisru_backward(i, 1))
    ),
    "double diff, factor": certificate(
        diff(diff(R, "x", "h"), "x", "k"), -(HK * R * R * R) + lift(2) * XH * XK * R * R * R * R * R
    ),
    "double diff, missing term": certificate(
        diff(diff(R, "x", "h"), "x", "k"), lift(3) * XH * XK * R * R * R * R * R
    ),
    "tanh, sign": one_i(diff(TANH, "x", "h"), ALPHA * at("h", "i") * (lift(1) + TANH * TANH)),
    "tanh, no chain rule": one_i(diff(TANH, "x", "h"), at("h", "i") * (lift(1) - TANH * TANH)),
    "tanh is odd, not even": one_i(fun("tanh", -X("i")), fun("tanh", X("i"))),
    "erf, sign in exp": one_i(
        diff(ERF, "x", "h"),
        lift(2)
        / sqrt(sym("pi"))
        * fun("exp", ALPHA * ALPHA * X("i") * X("i"))
        * ALPHA
        * at("h", "i"),
    ),
    "unknown function is linear": one_i(fun("f", X("i") + X("i")), lift(2) * fun("f", X("i"))),
    "network step, uncentred": one_i(network_step(layer_norm(X)), network_step(rms(X))),
    "network step, other function": one_i(
        network_step(layer_norm(X)), network_step(layer_norm(X), "g")
    ),
    "network step, no skip": one_i(
        network_step(layer_norm(X)), network_step(layer_norm(X)) - at("x", "i")
    ),
    "matrix centring over the wrong index": one_i(
        centred(lambda i: matmul(i, Y))("i"),
        total("k", (at("A", "i", "k") - mean("l", at("A", "i", "l"), "m")) * Y("k"), "m"),
    ),
    "matrix not centred": one_i(centred(lambda i: matmul(i, Y))("i"), matmul("i", Y)),
    "two free indices, equal by accident": certificate(
        X("i") - X("l"), lift(0), free={"i": "n", "l": "n"}
    ),
    "only for n = 3": certificate((N - 3) * total("i", X("i")), lift(0)),
    "only for n < 9": certificate(
        (N - 1) * (N - 2) * (N - 3) * (N - 4) * (N - 5) * (N - 6) * (N - 7) * (N - 8) * sym("c"),
        lift(0),
    ),
}
