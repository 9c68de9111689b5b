"""The command `verify`: prove theorems, audit kernels, print the truth.

Exit codes: 0 nothing wrong, 1 something violated or hazardous, 2 usage, 3 a kernel could not be
run. Bad input is one line on standard error, never a traceback. Heavy modules are imported by the
commands that need them, so that `verify --help` is quick.
"""

from __future__ import annotations

import sys

from verify.cli import audit as audit
from verify.cli import proofs as proofs
from verify.cli import truth as truth
from verify.cli.base import USAGE, UsageError, app, one_line, typer_error


def _input_errors() -> tuple[type[BaseException], ...]:
    """Every error that means bad input; only those of modules that were loaded can be raised."""
    wanted = {
        "verify.formula": "UnknownFormulaError",
        "verify.formats": "FormatError",
        "verify.kernels.kernel": "KernelError",
        "verify.numeric.rows": "InputError",
        "verify.report.record": "ReportError",
        "verify.symbolic.checkers.answer": "CertificateError",
        "verify.symbolic.theorem": "UnknownTheoremError",
    }
    loaded = ((sys.modules.get(module), name) for module, name in wanted.items())
    found = [getattr(module, name) for module, name in loaded if module is not None]
    return (UsageError, OSError, typer_error(), *found)


def main() -> None:
    """The entry point of the command."""
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except Exception as error:
        if not isinstance(error, _input_errors()):
            raise
        if line := one_line(error):
            print(f"verify: {line}", file=sys.stderr)
        sys.exit(USAGE)
    except KeyboardInterrupt:
        sys.exit(130)
