"""Which kernels are on this machine, told from metadata: no kernel's package is imported.

A library is one module in ``third_party`` or ``ours`` that declares ``KERNELS``, a tuple of
`Kernel` records, and the factory that they name. There is nothing else to register.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import shutil
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from verify.kernels import ours, third_party
from verify.kernels.kernel import Kernel, KernelError, did_you_mean
from verify.kernels.third_party.user_callable import kernel_for


def _compiler() -> str | None:
    """Why there is no C++ compiler, or None."""
    wanted = (os.environ.get("CXX", ""), "g++", "clang++")
    found = any(shutil.which(name) for name in wanted if name)
    return None if found else "no C++ compiler (g++ or clang++) on PATH"


def _headers() -> str | None:
    """Why Python cannot be embedded in C++, or None."""
    header = Path(sysconfig.get_path("include"), "Python.h")
    return None if header.is_file() else f"no Python headers ({header})"


# What a kernel may need beside its package: a function that says why it is not there.
NEEDS: Mapping[str, Callable[[], str | None]] = {
    "C++ compiler": _compiler,
    "Python headers": _headers,
}


def declared() -> tuple[Kernel, ...]:
    """Every kernel that an adapter declares, whether or not it can run here."""
    return tuple(kernel for name in _adapters() for kernel in _kernels_of(name))


def _adapters() -> Iterator[str]:
    for room in (ours, third_party):
        for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
            yield module.name


def _kernels_of(name: str) -> tuple[Kernel, ...]:
    found: tuple[Kernel, ...] = importlib.import_module(name).KERNELS
    return found


def why_not(kernel: Kernel) -> str | None:
    """Why a kernel cannot run here, or None."""
    try:
        metadata.version(kernel.package)
    except metadata.PackageNotFoundError:
        return f"package {kernel.package} is not installed"
    reasons = (NEEDS[need]() for need in kernel.needs)
    return next((reason for reason in reasons if reason is not None), None)


def discover() -> list[Kernel]:
    """The kernels that can run here, by name, each with its package's version."""
    found = [kernel for kernel in declared() if why_not(kernel) is None]
    return sorted(
        (replace(kernel, version=metadata.version(kernel.package)) for kernel in found),
        key=lambda kernel: kernel.name,
    )


def skipped() -> list[tuple[str, str]]:
    """The kernels that cannot run here, by name, each with the reason."""
    reasons = ((kernel.name, why_not(kernel)) for kernel in declared())
    return sorted((name, reason) for name, reason in reasons if reason is not None)


def kernel_named(name: str, *, formula: str | None = None, array: str = "auto") -> Kernel:
    """The kernel of that name, or the callable at ``module:callable`` or ``file.py:callable``.

    ``formula`` and ``array`` are for a user's callable: what it computes, and what it is given.
    Raises KernelError in one line.
    """
    if ":" in name:
        return kernel_for(name, formula=formula, array=array)
    found = {kernel.name: kernel for kernel in discover()}
    if name in found:
        return _of_formula(found[name], formula)
    reason = dict(skipped()).get(name)
    if reason is not None:
        raise KernelError(f"kernel '{name}' cannot run here: {reason}")
    raise KernelError(
        f"unknown kernel '{name}': expected one of {', '.join(found)}, or module:callable"
        f"{did_you_mean(name, found)}"
    )


def _of_formula(kernel: Kernel, formula: str | None) -> Kernel:
    """The kernel, unless it is asked to be another formula than it is."""
    if formula not in (None, kernel.formula):
        raise KernelError(
            f"kernel '{kernel.name}' computes {kernel.formula}: expected no formula, or that one; "
            f"came '{formula}'"
        )
    return kernel
