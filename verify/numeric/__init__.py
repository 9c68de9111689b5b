"""Formulas read as numbers: exact truth, contracts, error bounds, hard inputs."""

from verify.numeric.contract import Contract as Contract
from verify.numeric.contract import allowed as allowed
from verify.numeric.contract import bound as bound
from verify.numeric.families import contracts_for as contracts_for
from verify.numeric.families import faults_for as faults_for
from verify.numeric.families import tolerance as tolerance
from verify.numeric.rows import InputError as InputError
from verify.numeric.truth import reference as reference
