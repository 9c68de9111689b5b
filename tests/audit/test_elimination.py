"""Contracts are discarded by proof alone, and never the one that a kernel keeps."""

from __future__ import annotations

import numpy as np
import pytest

from verify.audit import inputs
from verify.audit.case import GROUPS, make_case, shape_of
from verify.audit.check import CHECKS
from verify.audit.elimination import Elimination, Observation, excluded_by, violation
from verify.audit.run import AUDITED
from verify.formula import Layout
from verify.norms import formula_named
from verify.numeric import contracts_for, faults_for


def crafted(formula: str, format: str):
    centred = formula != "rms_norm"
    for name, given in inputs.identification(centred, quick=True):
        yield make_case(name, given.pop("rows"), formula_named(formula), format, **given)


def kept(contract, case):
    return contract.run(case.arguments(contract.body), case.num_groups)


@pytest.mark.parametrize("format", AUDITED)
@pytest.mark.parametrize("formula", ["rms_norm", "layer_norm", "group_norm"])
def test_a_kept_contract_is_never_discarded(formula, format):
    for contract in contracts_for(formula, format)[::3]:
        if "welford" in contract.algorithm and contract.order.lanes == 1:
            continue  # as the others, only slowly
        for case in crafted(formula, format):
            seen = Observation(case, kept(contract, case))
            assert violation(contract, seen) is None, (contract.name, case.name)


@pytest.mark.parametrize("format", ["bfloat16", "float16"])
def test_two_cast_orders_are_told_apart(format):
    ours, llama = contracts_for("rms_norm", format)[:2]
    pool = Elimination(contracts_for("rms_norm", format))
    for case in crafted("rms_norm", format):
        pool.observe(case, kept(llama, case))
    assert pool.best == llama
    assert ours not in pool.remaining
    assert pool.fresh().best == ours


@pytest.mark.parametrize("format", ["float32", "bfloat16"])
def test_every_fault_leaves_no_right_contract(format):
    for fault in faults_for("rms_norm", format)[:7]:
        if format == "bfloat16" and "float16 accumulator" in fault.name:
            continue
        pool = Elimination(contracts_for("rms_norm", format))
        for case in crafted("rms_norm", format):
            pool.observe(case, kept(fault, case))
        assert pool.best is None, fault.name


def test_one_observation_excludes_all_or_none():
    contracts = contracts_for("rms_norm", "float32")
    case = next(crafted("rms_norm", "float32"))
    y = kept(contracts[0], case)[0]
    assert excluded_by(contracts, Observation(case, (y,))) is None
    wrong = excluded_by(contracts, Observation(case, (2 * y,)))
    assert wrong is not None
    assert wrong.got == 2 * y[wrong.index]
    lost = excluded_by(contracts, Observation(case, (np.full_like(y, np.nan),)))
    assert lost is not None


@pytest.mark.parametrize("d", [1, 2, 3, 8, 257, 1000])
@pytest.mark.parametrize("layout", Layout)
def test_a_shape_holds_its_rows(d, layout):
    for rows in (1, 2, 3 * GROUPS):
        shape, features = shape_of(rows, d, layout)
        assert int(np.prod(shape)) == rows * d
        assert features in (d, shape[1])


def test_every_check_explains_itself():
    assert len(CHECKS) >= 18
    for check in CHECKS.values():
        assert check.title
        assert check.why
        assert check.derivation
