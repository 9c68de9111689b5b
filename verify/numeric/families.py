"""The contracts that kernels are known to keep, and the faults they are known to have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from verify.formats import Rounding, format_named
from verify.formula import Layout
from verify.norms import FAULTS, FORMULAS, formula_named
from verify.numeric.contract import Contract
from verify.numeric.order import EIGHT_LANES, PAIRWISE, SEQUENTIAL

ORDERS = (PAIRWISE, EIGHT_LANES, SEQUENTIAL)

# What LayerNorm kernels do, and whether the way is stable on rows with a large mean.
CENTRED = (
    ("layer_norm", "two-pass", True),
    ("layer_norm_welford", "Welford", True),
    ("layer_norm_folded_shift", "two-pass, mean subtracted after scaling", True),
    ("layer_norm_one_pass", "one-pass variance", False),
)
CENTRED_BACKWARD = (
    ("layer_norm_backward", "direct form", True),
    ("layer_norm_backward_folded", "folded form rstd g + b x + c", True),
)


def _is_centred(formula: str) -> bool:
    return formula.removesuffix("_backward") in ("layer_norm", "group_norm", "instance_norm")


def _algorithms(formula: str) -> tuple[tuple[str, str, bool], ...]:
    if not _is_centred(formula):
        return (("", "", True),)
    return CENTRED_BACKWARD if formula.endswith("_backward") else CENTRED


def _cast_orders(formula: str, fmt: str) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Where kernels round on the way to a format narrower than float32."""
    narrow = format_named(fmt).precision < format_named("float32").precision
    if not narrow:
        return (("", ()),)
    if formula.endswith("_backward"):
        saved = (("saved_mean", fmt), ("saved_rstd", fmt))
        return (("statistics in float32", ()), ("statistics saved in the storage format", saved))
    gain = (("gain", fmt),)
    orders: list[tuple[str, tuple[tuple[str, str], ...]]] = [
        ("weight in float32, one cast", ()),
        ("Llama order: cast, then weight", (("normalised", fmt),)),
    ]
    if formula == "gemma_rms_norm":
        orders.append(("1 + weight rounded", gain))
    if formula.startswith("add_"):
        orders += _residual_policies(fmt)
    return tuple(orders)


def _residual_policies(fmt: str) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    both = (("residual_statistics", fmt), ("residual_normalised", fmt))
    return [("residual rounded first", both), ("mixed: rounded residual normalised", both[1:])]


def _accumulate(fmt: str) -> str:
    return "float64" if fmt == "float64" else "float32"


@lru_cache(maxsize=128)
def contracts_for(formula: str, format: str) -> tuple[Contract, ...]:
    """Right contracts of kernels whose input and output are in ``format``.

    From strictest to loosest: orders of summation outermost, then algorithms, then cast orders;
    unstable ones (one-pass variance, statistics saved in the storage format) come last.
    """
    formula_named(formula), format_named(format)
    return tuple(sorted(_all(formula, format), key=lambda c: not c.stable))


def _all(formula: str, fmt: str) -> Iterable[Contract]:
    for order in ORDERS:
        for algorithm, how, stable in _algorithms(formula):
            for cast, casts in _cast_orders(formula, fmt):
                if "folded_shift" in algorithm and casts:
                    continue  # it never forms the normalised row
                saved = any(point.startswith("saved") for point, _ in casts)
                yield Contract(
                    formula,
                    fmt,
                    name=_name(how, cast, order.name),
                    algorithm=algorithm if algorithm != formula else "",
                    accumulate=_accumulate(fmt),
                    order=order,
                    casts=casts,
                    stable=stable and not saved,
                )


def _name(*parts: str) -> str:
    return ", ".join(p for p in parts if p)


@lru_cache(maxsize=128)
def faults_for(formula: str, format: str) -> tuple[Contract, ...]:
    """Contracts of wrong kernels, each named by its fault, in the orders that kernels sum in."""
    return tuple(
        replace(fault, order=order, name=f"{fault.name} ({order.name})")
        for order in ORDERS
        for fault in _faults(formula, format)
    )


def _faults(formula: str, fmt: str) -> Iterable[Contract]:
    right = Contract(formula, fmt, accumulate=_accumulate(fmt))
    if _takes_ingredients(formula):
        for fault in FAULTS:
            yield replace(right, fault=fault, name=fault, algorithm=_definition(formula))
        yield replace(right, casts=(("square", "float16"),), name="squares rounded to float16")
    for narrow in ("bfloat16", "float16"):
        if format_named(narrow).precision < format_named(right.accumulate).precision:
            yield replace(right, accumulate=narrow, name=f"{narrow} accumulator")
    if fmt not in ("float32", "float64"):
        truncated = replace(right, output_rounding=Rounding.TOWARD_ZERO)
        yield replace(truncated, name="output truncated instead of rounded")


def _definition(formula: str) -> str:
    """The body with ingredients that a laid-out formula shares."""
    return {Layout.GROUPS: "layer_norm", Layout.HEADS: "rms_norm"}.get(FORMULAS[formula].layout, "")


def _takes_ingredients(formula: str) -> bool:
    return formula in ("rms_norm", "qk_norm", "layer_norm", "group_norm", "instance_norm")


def tolerance(contract: Contract, d: int) -> str:
    """The tolerance for rows of width d as a formula with its numbers, from the bound itself.

    For |weight| = 1 and bias 0; of the first output where there are several.
    ``kappa`` = mean|x| / spread. The coefficients are read off the
    bound at a row with kappa 1 and at one with kappa near 64, so they hold near those.
    """
    from verify.numeric.probe import coefficients

    relative, by_kappa = coefficients(contract, d)
    fmt, acc = contract.output_format, format_named(contract.accumulate)
    last = "" if fmt == acc else f" + 2^-{fmt.precision} |y| + {float(fmt.eta):.3g}"
    kappa = f" + {by_kappa:.4g} * 2^-{acc.precision} * kappa" if by_kappa else ""
    return (
        f"|got - y| <= {relative:.5g} * 2^-{acc.precision} |y|{kappa}{last}   "
        f"(d = {d}, {contract.order.name}: height {contract.order.height(d)})"
    )
