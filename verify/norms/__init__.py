"""Every normalisation, once: definitions, algorithms, backward passes, identities."""

from verify.norms.catalogue import FAULTS as FAULTS
from verify.norms.catalogue import FORMULAS as FORMULAS
from verify.norms.catalogue import faulty as faulty
from verify.norms.catalogue import formula_named as formula_named
from verify.norms.forward import rms_norm as rms_norm
from verify.norms.identities import IDENTITIES as IDENTITIES
