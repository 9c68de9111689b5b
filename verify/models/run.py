"""The torch reading of a graph: its operations called by name, in any dtype."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from verify.models.graph import DType, Graph, GraphError, Model, Node, Ref, mapped

Observer = Callable[[Node, Any], Any]

# Operations that reach outside their arguments, or draw random numbers, are not part of a model.
_REFUSED = ("rand", "bernoulli", "set_", "resize", "from_file", "_assert", "record_stream", "copy_")


def operation(node: Node) -> Callable[..., Any]:
    """The function of a node; raises GraphError for what is not an operation of aten."""
    if node.op == "getitem":
        return operator.getitem
    base, _, overload = node.op.partition(".")
    packet = getattr(torch.ops.aten, base, None) if base.isidentifier() else None
    found = getattr(packet, overload, None) if overload.isidentifier() else None
    if not isinstance(found, OpOverload) or base.startswith(_REFUSED):
        raise GraphError(
            f"node '{node.name}' asks for '{node.op}': expected a deterministic operation of aten "
            "with its overload, such as linear.default"
        )
    return found


def run(
    model: Model,
    inputs: Sequence[Any],
    dtype: torch.dtype | None = None,
    observe: Observer | None = None,
) -> tuple[Any, ...]:
    """The outputs of a model for ``inputs`` (tensors in the shapes of `Graph.inputs`).

    ``dtype``: every floating tensor, and every floating dtype named in the graph, becomes this
    one; None runs as captured. ``observe(node, value)`` sees each value as it is made; what it
    returns, unless None, is used in its place. Raises GraphError.
    """
    values = _start(model, inputs, dtype)
    last = _last_uses(model.graph)
    with torch.no_grad():
        for position, node in enumerate(model.graph.nodes):
            values[node.name] = value = evaluate(node, values, dtype)
            if observe is not None and (new := observe(node, value)) is not None:
                values[node.name] = new
            for name in last.get(position, ()):
                del values[name]
    return tuple(values[name] for name in model.graph.outputs)


def _start(model: Model, inputs: Sequence[Any], dtype: torch.dtype | None) -> dict[str, Any]:
    names = [i.name for i in model.graph.inputs]
    if len(names) != len(inputs):
        raise GraphError(
            f"came {len(inputs)} inputs: expected {len(names)} ({', '.join(names) or 'none'})"
        )
    given = {name: cast(value, dtype) for name, value in zip(names, inputs, strict=True)}
    return {name: cast(tensor, dtype) for name, tensor in model.tensors.items()} | given


def evaluate(node: Node, values: Mapping[str, Any], dtype: torch.dtype | None = None) -> Any:
    """The value of one node."""
    args, kwargs = arguments(node, values, dtype)
    try:
        return operation(node)(*args, **kwargs)
    except (RuntimeError, TypeError, IndexError, NotImplementedError) as error:
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise GraphError(
            f"'{node.name}' ({node.op}) in '{node.path}' cannot be run: {line}"
        ) from None


def arguments(
    node: Node, values: Mapping[str, Any], dtype: torch.dtype | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A node's arguments as torch takes them."""

    def leaf(argument: Any) -> Any:
        if isinstance(argument, Ref):
            return values[argument.name]
        if isinstance(argument, DType):
            followed = dtype if argument.is_floating and dtype is not None else None
            return followed or getattr(torch, argument.name)
        return argument

    lists = mapped(node.args, leaf), mapped(dict(node.kwargs), leaf)
    return tuple(map(_as_list, lists[0])), {k: _as_list(v) for k, v in lists[1].items()}


def _as_list(argument: Any) -> Any:
    """Torch takes lists where a graph, which can be hashed and compared, holds tuples."""
    return list(map(_as_list, argument)) if isinstance(argument, tuple) else argument


def cast(value: Any, dtype: torch.dtype | None) -> Any:
    """A floating tensor in ``dtype``; anything else as it is."""
    if dtype is None or not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.to(dtype)


def _last_uses(graph: Graph) -> dict[int, list[str]]:
    """Which intermediate values are read no more after each node: their memory is given back."""
    last: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        last |= dict.fromkeys(node.refs(), position)
    made = {n.name for n in graph.nodes} - set(graph.outputs)
    found: dict[int, list[str]] = {}
    for name, position in last.items():
        if name in made:
            found.setdefault(position, []).append(name)
    return found
