"""Formulas read as numbers: exact truth, contracts, error bounds, hard inputs.

Public names are loaded on first use: reading activations should not compile anything.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verify.numeric.contract import Contract as Contract
    from verify.numeric.contract import allowed as allowed
    from verify.numeric.contract import bound as bound
    from verify.numeric.families import contracts_for as contracts_for
    from verify.numeric.families import faults_for as faults_for
    from verify.numeric.families import tolerance as tolerance
    from verify.numeric.rows import InputError as InputError
    from verify.numeric.truth import reference as reference

_HOME = {
    "Contract": "contract",
    "allowed": "contract",
    "bound": "contract",
    "contracts_for": "families",
    "faults_for": "families",
    "tolerance": "families",
    "InputError": "rows",
    "reference": "truth",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'verify.numeric' has no attribute {name!r}")
    return getattr(importlib.import_module(f"verify.numeric.{_HOME[name]}"), name)
