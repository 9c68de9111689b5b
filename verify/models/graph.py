"""A whole model as a list of operations: the graph of which everything in this room is a reading.

A `Graph` names values and says which aten operation made each; the tensors themselves (parameters,
buffers, constants) are kept beside it in a `Model`. It is data: it can be read, rewritten, written
as JSON and run (`verify.models.run`), and nothing in it can execute but the operations of aten
that `ALLOWED` names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SCHEMA = 1


class GraphError(ValueError):
    """A graph that cannot be read: one line, what came, what was expected, what to write."""


@dataclass(frozen=True)
class Ref:
    """The value called ``name``, as an argument of a node."""

    name: str


@dataclass(frozen=True)
class DType:
    """A torch dtype as an argument of a node, by its name: ``float32``."""

    name: str

    @property
    def is_floating(self) -> bool:
        """Whether values of it are rounded reals, and so follow the dtype that a run asks for."""
        return self.name.startswith(("float", "bfloat"))


@dataclass(frozen=True)
class Node:
    """One operation: ``name`` is the value it makes, ``op`` is ``layer_norm.default``.

    ``path`` is the module it was written in (``transformer.h.3.ln_1``, empty at the top);
    ``shape`` and ``dtype`` are those of its value in the run that was captured (None and empty
    for an operation of several values, whose parts are ``getitem`` nodes).
    """

    name: str
    op: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""
    shape: tuple[int, ...] | None = None
    dtype: str = ""

    @property
    def base(self) -> str:
        """The operation without its overload: ``layer_norm``."""
        return self.op.partition(".")[0]

    def refs(self) -> Iterator[str]:
        """Names of the values that it reads, in the order of its arguments."""
        return _refs((self.args, tuple(self.kwargs.values())))

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, whether it was given by position or by name."""
        if position < len(self.args):
            return self.args[position]
        return self.kwargs.get(name, default)


@dataclass(frozen=True)
class Input:
    """A value that the caller gives."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can be run; each name is made once."""

    inputs: tuple[Input, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]

    def node(self, name: str) -> Node:
        """The node that makes ``name``."""
        return self.by_name[name]

    @property
    def by_name(self) -> dict[str, Node]:
        """Nodes by the value they make."""
        return {node.name: node for node in self.nodes}

    def readers(self) -> dict[str, list[Node]]:
        """For each value, the nodes that read it, each once."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.refs()):
                found.setdefault(name, []).append(node)
        return found

    def without_dead_nodes(self) -> Graph:
        """The same function without what no output depends on."""
        wanted, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if node.name in wanted:
                wanted.update(node.refs())
                kept.append(node)
        return replace(self, nodes=tuple(reversed(kept)))

    def rewritten(self, change: Callable[[Node], Iterable[Node]]) -> Graph:
        """Each node replaced by those that ``change`` gives for it."""
        return replace(self, nodes=tuple(new for node in self.nodes for new in change(node)))

    def renamed(self, names: Mapping[str, str]) -> Graph:
        """The same function with each reader of ``old`` reading ``names[old]`` instead."""

        def moved(name: str) -> str:
            while name in names:
                name = names[name]
            return name

        nodes = tuple(
            replace(n, args=renamed(n.args, moved), kwargs=renamed(n.kwargs, moved))
            for n in self.nodes
        )
        return replace(self, nodes=nodes, outputs=tuple(map(moved, self.outputs)))

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` reads it back."""
        return {
            "schema": SCHEMA,
            "inputs": [[i.name, list(i.shape), i.dtype] for i in self.inputs],
            "nodes": [_node_to_json(n) for n in self.nodes],
            "outputs": list(self.outputs),
        }


@dataclass(frozen=True)
class Model:
    """A graph and the tensors that its nodes name; ``aliases`` maps tied names to the one kept.

    ``parameters`` names those of ``tensors`` that are trained; the others are buffers and
    constants of the capture (masks, rotary tables).
    """

    graph: Graph
    tensors: Mapping[str, Any]
    parameters: frozenset[str] = frozenset()
    aliases: Mapping[str, str] = field(default_factory=dict)
    name: str = "model"


def renamed(argument: Any, name: Callable[[str], str]) -> Any:
    """An argument with every reference renamed."""
    return mapped(argument, lambda leaf: Ref(name(leaf.name)) if isinstance(leaf, Ref) else leaf)


def mapped(argument: Any, change: Callable[[Any], Any]) -> Any:
    """``change`` done to every leaf of an argument."""
    if isinstance(argument, tuple | list):
        return tuple(mapped(each, change) for each in argument)
    if isinstance(argument, Mapping):
        return {key: mapped(each, change) for key, each in argument.items()}
    return change(argument)


def _refs(argument: Any) -> Iterator[str]:
    if isinstance(argument, Ref):
        yield argument.name
    elif isinstance(argument, tuple | list):
        for each in argument:
            yield from _refs(each)


# --------------------------------------------------------------------------------------------- JSON


def _node_to_json(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "op": node.op,
        "args": [_to_json(a) for a in node.args],
        "kwargs": {k: _to_json(v) for k, v in node.kwargs.items()},
        "path": node.path,
        "shape": None if node.shape is None else list(node.shape),
        "dtype": node.dtype,
    }


def _to_json(argument: Any) -> Any:
    """References and dtypes as one-key objects; infinities, which JSON lacks, likewise."""
    if isinstance(argument, Ref):
        return {"ref": argument.name}
    if isinstance(argument, DType):
        return {"dtype": argument.name}
    if isinstance(argument, tuple | list):
        return [_to_json(each) for each in argument]
    if isinstance(argument, float) and not abs(argument) < float("inf"):
        return {"float": str(argument)}
    return argument


def _from_json(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(_from_json(each) for each in data)
    if isinstance(data, dict):
        ((kind, value),) = data.items()
        return {"ref": Ref, "dtype": DType, "float": float}[kind](value)
    return data


def from_json(data: Any) -> Graph:
    """A graph as `Graph.to_json` gave it; raises GraphError for anything else.

    Every name is checked: a node reads only what stands before it or is an input or a tensor, and
    its operation is one of aten's (`verify.models.run` refuses the others).
    """
    try:
        if data["schema"] != SCHEMA:
            raise GraphError(f"a graph of schema {data['schema']!r}: expected {SCHEMA}")
        inputs = tuple(Input(str(n), tuple(s), str(t)) for n, s, t in data["inputs"])
        nodes = tuple(_node_from_json(each) for each in data["nodes"])
        graph = Graph(inputs, nodes, tuple(map(str, data["outputs"])))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, GraphError):
            raise
        raise GraphError(
            f"not a graph ({type(error).__name__}: {error}): expected schema, inputs, nodes and "
            "outputs as `verify convert` writes them"
        ) from None
    _check_names(graph)
    return graph


def _node_from_json(data: Mapping[str, Any]) -> Node:
    return Node(
        str(data["name"]),
        str(data["op"]),
        _from_json(data["args"]),
        {str(k): _from_json(v) for k, v in data["kwargs"].items()},
        str(data["path"]),
        None if data["shape"] is None else tuple(data["shape"]),
        str(data["dtype"]),
    )


def _check_names(graph: Graph) -> None:
    later = set(graph.by_name)
    if len(later) != len(graph.nodes):
        raise GraphError("two nodes make one name: expected each name once")
    for node in graph.nodes:
        if wrong := later.intersection(node.refs()):
            raise GraphError(
                f"node '{node.name}' reads '{min(wrong)}' before it is made: expected nodes in the "
                "order in which they run"
            )
        later.discard(node.name)


def loads(text: str) -> Graph:
    """A graph from JSON text; raises GraphError."""
    try:
        return from_json(json.loads(text))
    except json.JSONDecodeError as error:
        raise GraphError(
            f"not JSON (line {error.lineno}): expected a graph as `verify convert` writes it"
        ) from None
