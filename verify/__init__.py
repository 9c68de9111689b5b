"""One formula, many readings: proofs, exact truth and audits for normalisation layers.

The public names are loaded on first use, so that `import verify` loads the standard library alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verify.finding import Finding as Finding
    from verify.finding import Verdict as Verdict
    from verify.finding import Witness as Witness
    from verify.formats import FORMATS as FORMATS
    from verify.formats import Format as Format
    from verify.formats import format_named as format_named
    from verify.formats import round_to as round_to
    from verify.formula import Formula as Formula
    from verify.norms import FORMULAS as FORMULAS
    from verify.norms import formula_named as formula_named
    from verify.numeric import Contract as Contract
    from verify.numeric import allowed as allowed
    from verify.numeric import bound as bound
    from verify.numeric import reference as reference
    from verify.symbolic.prove import Proof as Proof
    from verify.symbolic.prove import prove as prove
    from verify.symbolic.theorem import Theorem as Theorem
    from verify.symbolic.theorem import theorem_named as theorem_named
    from verify.symbolic.theorem import theorem_names as theorem_names

__version__ = "0.1.0"

_MODULE_OF = {
    "Contract": "verify.numeric",
    "FORMATS": "verify.formats",
    "FORMULAS": "verify.norms",
    "Finding": "verify.finding",
    "Format": "verify.formats",
    "Formula": "verify.formula",
    "Proof": "verify.symbolic.prove",
    "Theorem": "verify.symbolic.theorem",
    "Verdict": "verify.finding",
    "Witness": "verify.finding",
    "allowed": "verify.numeric",
    "bound": "verify.numeric",
    "format_named": "verify.formats",
    "formula_named": "verify.norms",
    "prove": "verify.symbolic.prove",
    "reference": "verify.numeric",
    "round_to": "verify.formats",
    "theorem_named": "verify.symbolic.theorem",
    "theorem_names": "verify.symbolic.theorem",
}

__all__ = ["__version__", *_MODULE_OF]  # noqa: PLE0604 - keys of a dict of strings


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(
            f"module 'verify' has no public name {name!r}; it has {', '.join(_MODULE_OF)}"
        )
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
