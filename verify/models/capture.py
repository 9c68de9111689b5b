"""From a `torch.nn.Module` to a graph: `torch.export`, then what is no layer taken out.

Taken out are identities (dropout in evaluation, conversions to the dtype a value has already) and
everything that depends on constants alone (masks, positions, rotary tables), which becomes a
constant tensor; what is left are the layers.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from verify.models.graph import DType, Graph, Input, Model, Node, Ref
from verify.models.run import evaluate

# the argument that says what the identity passes on is the first of each
_IDENTITIES = frozenset({"alias", "detach", "lift_fresh_copy", "contiguous", "clone", "dropout"})
_CONVERSIONS = frozenset({"to", "_to_copy", "type_as"})
_VIEWS = frozenset(
    {"reshape", "view", "flatten", "unflatten", "transpose", "permute", "t", "expand", "slice"}
    | {"select", "narrow", "squeeze", "unsqueeze", "split", "chunk", "unbind", "getitem"}
    | {"diagonal", "unfold", "movedim"}
)


class CaptureError(ValueError):
    """A module that cannot be made into a graph: one line with the reason."""


def capture(
    module: torch.nn.Module,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    name: str = "",
) -> Model:
    """The graph of ``module`` in evaluation, as it runs on ``inputs`` (whose shapes are fixed).

    Raises CaptureError where `torch.export` cannot follow the module (control flow that depends
    on data, calls out of torch). The module is left as it was.
    """
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(module, tuple(inputs), dict(kwargs or {}), strict=False)
    except Exception as error:  # noqa: BLE001 - torch.export raises what the module raises
        reason = next((l for l in str(error).splitlines() if l.strip()), type(error).__name__)
        raise CaptureError(
            f"cannot follow {type(module).__name__} ({reason.strip()[:200]}): expected a module "
            "that torch.export takes, without control flow that depends on data"
        ) from None
    finally:
        module.train(was_training)
    return from_program(program, module, name or type(module).__name__)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what torch and transformers say of their own code while they are traced."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


@dataclass
class _Reader:
    """What is known while a program is read: names of values, and the tensors kept."""

    tensors: dict[str, Any]
    names: dict[str, str]
    nodes: list[Node] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    dtypes: dict[str, str] = field(default_factory=dict)
    written: dict[str, list[str]] = field(default_factory=dict)

    def argument(self, raw: Any) -> Any:
        """A torch argument as a graph holds it."""
        if isinstance(raw, torch.fx.Node):
            return Ref(self.names[raw.name])
        if isinstance(raw, torch.dtype):
            return DType(str(raw).removeprefix("torch."))
        if isinstance(raw, torch.device):
            return raw.type
        if isinstance(raw, tuple | list):
            return tuple(self.argument(each) for each in raw)
        if raw is None or isinstance(raw, bool | int | float | str):
            return raw
        raise CaptureError(f"an argument of kind {type(raw).__name__} ({raw}): expected numbers")


def from_program(program: Any, module: torch.nn.Module, name: str) -> Model:
    """The graph of an exported program; ``module`` gives the tensors their shared names."""
    targets = {s.arg.name: s.target for s in program.graph_signature.input_specs if s.target}
    held = {**program.state_dict, **program.constants}
    first, aliases = _shared_names(held)
    reader = _Reader({first.get(t, t): held[t].detach() for t in targets.values()}, {})
    for node in program.graph.nodes:
        _read(reader, node, targets, first)
    outputs = tuple(
        reader.names[s.arg.name]
        for s in program.graph_signature.output_specs
        if str(s.kind).endswith("USER_OUTPUT") and getattr(s.arg, "name", None) is not None
    )
    parameters = frozenset(first.get(n, n) for n, _ in module.named_parameters())
    model = Model(Graph(tuple(reader.inputs), tuple(reader.nodes), outputs), reader.tensors)
    return _tidied(replace(model, parameters=parameters, aliases=aliases, name=name))


def _shared_names(held: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Tied tensors: each name to the first name of its storage, and the later names alone."""
    seen: dict[tuple[Any, ...], str] = {}
    first: dict[str, str] = {}
    for name, tensor in held.items():
        key = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
        first[name] = seen.setdefault(key if tensor.numel() else (name,), name)
    return first, {name: one for name, one in first.items() if name != one}


def _read(reader: _Reader, node: Any, targets: Mapping[str, str], first: Mapping[str, str]) -> None:
    if node.op == "placeholder":
        _read_placeholder(reader, node, targets, first)
    elif node.op == "call_function":
        _read_call(reader, node)
    elif node.op != "output":
        raise CaptureError(f"the exported graph holds '{node.op}' ({node.name}): expected calls")


def _read_placeholder(
    reader: _Reader, node: Any, targets: Mapping[str, str], first: Mapping[str, str]
) -> None:
    if node.name in targets:
        target = targets[node.name]
        reader.names[node.name] = first.get(target, target)
        reader.dtypes[reader.names[node.name]] = _dtype(node)
        return
    value = node.meta.get("val")
    reader.names[node.name], reader.dtypes[node.name] = node.name, _dtype(node)
    if isinstance(value, torch.Tensor):
        reader.inputs.append(Input(node.name, tuple(map(int, value.shape)), _dtype(node)))


def _read_call(reader: _Reader, node: Any) -> None:
    op = _op_name(node)
    if op.startswith("_assert"):
        return
    if op.partition(".")[0].endswith("_") and not op.startswith("_"):
        op = _out_of_place(reader, node, op)
    args = tuple(reader.argument(a) for a in node.args)
    kwargs = {
        k: reader.argument(v)
        for k, v in node.kwargs.items()
        if k not in ("device", "layout", "pin_memory", "memory_format") and v is not None
    }
    if (same := _passed_on(op, args, node, reader)) is not None:
        reader.names[node.name] = same
        return
    reader.names[node.name], reader.dtypes[node.name] = node.name, _dtype(node)
    if node.name in reader.written:  # whoever reads the old value from now on reads this one
        reader.names |= dict.fromkeys(reader.written[node.name], node.name)
    value = node.meta.get("val")
    shape = tuple(map(int, value.shape)) if isinstance(value, torch.Tensor) else None
    reader.nodes.append(Node(node.name, op, args, kwargs, _path(node), shape, _dtype(node)))


def _out_of_place(reader: _Reader, node: Any, op: str) -> str:
    """An operation that writes into its first argument, as one that makes a new value.

    Later readers of the old value read the new one. Refused where others share the memory: of a
    parameter, and of a view into another value.
    """
    target = reader.names[node.args[0].name]
    maker = next((n for n in reader.nodes if n.name == target), None)
    if maker is None or maker.base in _VIEWS:
        raise CaptureError(
            f"'{op}' in '{_path(node)}' writes into '{target}': expected a module whose forward "
            "changes no parameter, no input and no view in place"
        )
    reader.written[node.name] = [raw for raw, name in reader.names.items() if name == target]
    base, _, overload = op.partition(".")
    return f"{base.removesuffix('_')}.{overload}"


def _op_name(node: Any) -> str:
    if getattr(node.target, "__name__", "") == "getitem":
        return "getitem"
    # what was contiguous is no longer made so: reshape is view for every layout
    name = str(node.target).replace("aten.view.default", "aten.reshape.default")
    if not name.startswith("aten."):
        raise CaptureError(
            f"the exported graph calls '{name}': expected operations of aten; "
            "export the module without gradient switches and custom operators"
        )
    return name.removeprefix("aten.")


def _passed_on(op: str, args: tuple[Any, ...], node: Any, reader: _Reader) -> str | None:
    """The name of the value that the operation hands on unchanged, if it does."""
    base = op.partition(".")[0]
    if not args or not isinstance(args[0], Ref):
        return None
    if base in _CONVERSIONS:
        return args[0].name if _dtype(node) == reader.dtypes.get(args[0].name) else None
    if base == "dropout" and node.args[2:3] == (True,):
        raise CaptureError("dropout that is on: expected a module in evaluation; call .eval()")
    return args[0].name if base in _IDENTITIES else None


def _dtype(node: Any) -> str:
    value = node.meta.get("val")
    return str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else ""


def _path(node: Any) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    path = next(reversed(stack.values()))[0] if stack else ""
    return str(path).removeprefix("L['self'].").removeprefix("L['self']")


def _tidied(model: Model) -> Model:
    """Constants evaluated, dead nodes and unused tensors gone."""
    graph = model.graph.without_dead_nodes()
    values: dict[str, Any] = {n: t for n, t in model.tensors.items() if n not in model.parameters}
    kept = []
    for node in graph.nodes:
        if all(name in values for name in node.refs()):
            values[node.name] = evaluate(node, values)
        else:
            kept.append(node)
    graph = replace(graph, nodes=tuple(kept))
    read = {name for node in kept for name in node.refs()} | set(graph.outputs)
    tensors = {n: t for n, t in {**model.tensors, **values}.items() if n in read}
    return replace(model, graph=graph, tensors=tensors)
