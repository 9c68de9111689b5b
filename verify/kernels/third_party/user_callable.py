"""Any callable that a user names, as ``package.module:callable`` or ``path/to/file.py:callable``.

`kernel_for` reads the text and imports nothing; the callable itself is imported by `callables`, in
the child process, with the current directory (or the file's own) first on the path. Arguments are
given by parameter *name*, so the order does not matter. They are torch tensors if an annotation
says so, or, without annotations of either kind, if the module has imported torch; else NumPy
arrays. ``array="torch"`` or ``"numpy"`` decides it instead.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from verify.kernels.kernel import Callables, Kernel, KernelError, did_you_mean
from verify.kernels.torch_arrays import callables_of
from verify.norms import FORMULAS

KERNELS: tuple[Kernel, ...] = ()  # users name them

ADAPTER = "verify.kernels.third_party.user_callable:callables"
FORMS = "write package.module:callable or path/to/file.py:callable"
SHAPES = "(x, weight, eps) or (x, weight, bias, eps)"
ARRAYS = ("auto", "numpy", "torch")
LAYOUTS = ("contiguous", "strided", "offset", "expanded")

ROLES: Mapping[str, tuple[str, ...]] = {
    "x": ("x", "input", "hidden_states", "hidden", "inp"),
    "weight": ("weight", "w", "gamma", "scale"),
    "bias": ("bias", "b", "beta"),
    "eps": ("eps", "epsilon", "variance_epsilon"),
    "num_groups": ("num_groups", "groups", "n_groups"),
}

# The first of these that occurs in a callable's name says which formula it computes.
WORDS = (
    (r"gemma", "gemma_rms_norm"),
    (r"rms", "rms_norm"),
    (r"group", "group_norm"),
    (r"layer|(^|_)ln(_|$)", "layer_norm"),
)

KNOWN = tuple(
    name
    for name, formula in FORMULAS.items()
    if formula.definition is None
    and formula.differentiates is None
    and {p.name for p in formula.parameters} <= set(ROLES)
)


# ------------------------------------------------------------------ in the parent: nothing imported


def guess_formula(name: str) -> str | None:
    """The formula that a callable's name speaks of, or None.

    >>> guess_formula("LlamaRMSNorm"), guess_formula("fast_ln"), guess_formula("normalise")
    ('rms_norm', 'layer_norm', None)
    """
    lower = name.lower()
    return next((formula for word, formula in WORDS if re.search(word, lower)), None)


def _formula(target: str, given: str | None) -> str:
    """The formula that was asked for, or guessed."""
    if given is None:
        found = guess_formula(target.rpartition(":")[2])
        if found is None:
            raise KernelError(
                f"which formula does {target} compute? Its name does not say: expected a name with "
                f"rms, layer, ln or group in it, or write --formula with one of {', '.join(KNOWN)}"
            )
        return found
    if given not in KNOWN:
        raise KernelError(
            f"unknown formula '{given}' for a callable: expected one of {', '.join(KNOWN)}"
            f"{did_you_mean(given, KNOWN)}"
        )
    return given


def _split(target: str) -> tuple[str, str]:
    """Module (or file) and callable of ``module:callable``."""
    place, _, name = target.rpartition(":")
    if not place or not all(part.isidentifier() for part in name.split(".")):
        raise KernelError(f"'{target}' names no callable: {FORMS}")
    return place, name


def _folder(target: str, place: str) -> Path:
    """The folder that goes first on the path; raises if the module or file is not there."""
    if place.endswith(".py"):
        path = Path(place).absolute()
        if not path.is_file():
            raise KernelError(f"no file '{place}' for {target}: {FORMS}")
        return path.parent
    if not all(part.isidentifier() for part in place.split(".")):
        raise KernelError(f"'{target}' names no callable: {FORMS}")
    if not _is_there(place.partition(".")[0]):
        raise KernelError(
            f"no module named '{place}' for {target}, neither installed nor in the current "
            f"directory: {FORMS}"
        )
    return Path.cwd()


def _is_there(top: str) -> bool:
    """Whether a top-level module can be found; it is not imported."""
    importlib.invalidate_caches()
    if top in sys.modules or PathFinder.find_spec(top, [str(Path.cwd())]) is not None:
        return True
    return importlib.util.find_spec(top) is not None


def _version(place: str) -> str:
    try:
        return metadata.version(place.partition(".")[0])
    except metadata.PackageNotFoundError:
        return ""


def kernel_for(target: str, *, formula: str | None = None, array: str = "auto") -> Kernel:
    """Describe a user's callable; raises KernelError in one line if the text cannot be right.

    Whether it imports, and takes the right arguments, is found out in the child process.
    """
    place, _ = _split(target)
    if array not in ARRAYS:
        raise KernelError(f"arrays of '{array}' for {target}: expected one of {', '.join(ARRAYS)}")
    folder = _folder(target, place)
    chosen = _formula(target, formula)
    return Kernel(
        name=target,
        formula=chosen,
        adapter=ADAPTER,
        package=place.partition(".")[0] if not place.endswith(".py") else place,
        version="" if place.endswith(".py") else _version(place),
        arguments={"target": target, "folder": str(folder), "formula": chosen, "array": array},
        weight_formats=("same", "float32"),
        layouts=(*LAYOUTS, "channels_last") if chosen == "group_norm" else LAYOUTS,
    )


# -------------------------------------------------------------------- in the child: the real import


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")


def _import(place: str, folder: str) -> ModuleType:
    """Import a module by name or from its file; raises KernelError in one line."""
    sys.path.insert(0, folder)
    try:
        return (
            _import_file(Path(folder, Path(place).name))
            if place.endswith(".py")
            else (importlib.import_module(place))
        )
    except ModuleNotFoundError as error:
        if error.name is not None and f"{place}.".startswith(f"{error.name}."):
            raise KernelError(f"no module named '{error.name}' for '{place}': {FORMS}") from error
        raise KernelError(f"'{place}' does not import: {_reason(error)}") from error
    except (Exception, SystemExit) as error:
        raise KernelError(f"'{place}' does not import: {_reason(error)}") from error


def _import_file(path: Path) -> ModuleType:
    """Import one file, under a name that hides no other module."""
    spec = importlib.util.spec_from_file_location(f"audited_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise KernelError(f"'{path.name}' is no Python file: {FORMS}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _attribute(module: ModuleType, target: str, name: str) -> Callable[..., Any]:
    """The callable of that (dotted) name; raises KernelError in one line."""
    found: Any = module
    for part in name.split("."):
        names = dir(found)
        if part not in names:
            raise KernelError(
                f"{target.rpartition(':')[0]} has no '{name}': expected the name of a callable in "
                f"it{did_you_mean(part, names)}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise KernelError(
            f"{target} is of type {type(found).__name__}: expected a callable f{SHAPES}"
        )
    return found


def roles_of(parameters: Sequence[inspect.Parameter]) -> dict[str, str]:
    """Which parameter plays which role, by name: {"x": "hidden_states", ...}."""
    names = [p.name for p in parameters]
    found = ((role, next((n for n in words if n in names), "")) for role, words in ROLES.items())
    return {role: name for role, name in found if name}


def _parameters(found: Callable[..., Any], target: str) -> list[inspect.Parameter]:
    """The parameters of a callable that have a name."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError) as error:
        raise KernelError(
            f"{target} has no signature that Python can read: expected f{SHAPES}; wrap it in a "
            "function that has one"
        ) from error
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p for p in signature.parameters.values() if p.kind not in variadic]


def _check(target: str, parameters: Sequence[inspect.Parameter], formula: str) -> dict[str, str]:
    """The roles of the parameters; raises KernelError in one line for any other signature."""
    roles = roles_of(parameters)
    shown = f"{target} has the parameters ({', '.join(p.name for p in parameters)}): expected "
    wanted = SHAPES.replace("eps", "eps, num_groups") if formula == "group_norm" else SHAPES
    needed = ("x", "weight", "eps", *(("num_groups",) if formula == "group_norm" else ()))
    for role in needed:
        if role not in roles:
            raise KernelError(
                f"{shown}{wanted}, by name; none of them is called {' or '.join(ROLES[role])}"
            )
    for p in parameters:
        if p.name not in roles.values() and p.default is inspect.Parameter.empty:
            raise KernelError(f"{shown}{wanted}, by name; give '{p.name}' a default")
    return roles


def _wants_torch(found: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> bool:
    """Annotations decide; without any that do, whether the callable's module imported torch."""
    words = " ".join(
        f"{getattr(p.annotation, '__module__', '')} {p.annotation}"
        for p in parameters
        if p.annotation is not inspect.Parameter.empty
    )
    if re.search(r"\btorch\b|\bTensor\b", words):
        return True
    if re.search(r"\bnumpy\b|\bnp\.|\bndarray\b|\bNDArray\b", words):
        return False
    inner = inspect.unwrap(found)
    module = sys.modules.get(getattr(inner, "__module__", None) or type(inner).__module__)
    values = vars(module).values() if module is not None else ()
    names = (v.__name__ for v in values if isinstance(v, ModuleType))
    return any(name == "torch" or name.startswith("torch.") for name in names)


def _by_name(
    found: Callable[..., Any],
    parameters: Sequence[inspect.Parameter],
    roles: Mapping[str, str],
    target: str,
) -> Callable[..., Any]:
    """``found`` as a norm (x, weight, bias, eps, **extra), whatever its parameters are called."""
    role_of = {name: role for role, name in roles.items()}
    used = [p for p in parameters if p.name in role_of]
    bare = [p.name for p in used if p.kind is inspect.Parameter.POSITIONAL_ONLY]

    def norm(x: Any, weight: Any, bias: Any, eps: float, **extra: Any) -> Any:
        values = {"x": x, "weight": weight, "bias": bias, "eps": eps, **extra}
        if bias is not None and "bias" not in roles:
            raise KernelError(f"{target} has no bias: expected None")
        named = {p.name: values[role_of[p.name]] for p in used if role_of[p.name] in values}
        first = [named.pop(name) for name in bare]
        return found(*first, **named)

    return norm


def _numpy_kernel(norm: Callable[..., Any], target: str) -> Callables:
    """A norm of NumPy arrays; it has no gradient."""

    def forward(
        x: np.ndarray,
        weight: np.ndarray | None,
        bias: np.ndarray | None,
        eps: float,
        **extra: Any,
    ) -> np.ndarray:
        y = norm(x, weight, bias, eps, **extra)
        if not isinstance(y, np.ndarray | np.generic):
            raise KernelError(
                f"{target} gave {type(y).__name__}: expected one numpy.ndarray (if it works on "
                "torch tensors, annotate it so or write --array torch)"
            )
        return np.asarray(y)

    return Callables(forward)


def callables(target: str, folder: str, formula: str, array: str) -> Callables:
    """Import the callable and check it; raises KernelError in one line."""
    place, name = _split(target)
    found = _attribute(_import(place, folder), target, name)
    parameters = _parameters(found, target)
    roles = _check(target, parameters, formula)
    norm = _by_name(found, parameters, roles, target)
    use_torch = array == "torch" or (array == "auto" and _wants_torch(found, parameters))
    kernel = callables_of(norm) if use_torch else _numpy_kernel(norm, target)
    return Callables(
        kernel.forward,
        kernel.backward,
        parameters=tuple(role for role in ("weight", "bias") if role in roles),
        detail={"array": "torch" if use_torch else "numpy"},
    )
