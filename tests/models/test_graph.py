"""The graph: captured from a module, it is the module; as JSON and back it is itself."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from verify.models.capture import CaptureError, capture
from verify.models.graph import GraphError, Ref, from_json, loads
from verify.models.run import run


class Block(nn.Module):
    """A small Pre-LN block with a tied head, a mask and an operation in place."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(11, 6)
        self.norm = nn.LayerNorm(6)
        self.write = nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight
        self.drop = nn.Dropout(0.5)

    def forward(self, ids):
        x = self.table(ids)
        mask = torch.tril(torch.ones(5, 5, dtype=self.table.weight.dtype)) / 4
        y = mask @ self.write(self.drop(self.norm(x)))
        return self.head(self.norm(x + nn.functional.relu(y, inplace=True)))


@pytest.fixture(scope="module")
def ids():
    return torch.arange(5)[None]


@pytest.fixture(scope="module")
def model(ids):
    return capture(Block(), (ids,))


def test_the_graph_is_the_module(model, ids):
    assert torch.equal(run(model, (ids,))[0], Block().eval()(ids))


def test_it_runs_in_any_dtype(model, ids):
    wide = run(model, (ids,), torch.float64)[0]
    assert wide.dtype is torch.float64
    assert torch.allclose(wide, Block().double().eval()(ids), rtol=1e-14, atol=1e-14)


def test_identities_and_constants_are_no_layers(model):
    ops = [node.base for node in model.graph.nodes]
    assert ops == [
        "embedding",
        "layer_norm",
        "linear",
        "matmul",
        "relu",
        "add",
        "layer_norm",
        "linear",
    ]


def test_tied_tensors_are_one(model):
    assert model.aliases == {"head.weight": "table.weight"}
    assert Ref("table.weight") in model.graph.nodes[-1].args


def test_modules_are_named(model):
    assert [n.path for n in model.graph.nodes][:3] == ["table", "norm", "write"]


def test_capture_leaves_the_module_in_training():
    module = Block().train()
    capture(module, (torch.arange(5)[None],))
    assert module.training


def test_json_and_back(model):
    text = json.dumps(model.graph.to_json(), allow_nan=False)
    assert loads(text) == model.graph


def test_values_are_given_back_as_soon_as_they_are_read(model, ids):
    seen = []
    run(model, (ids,), observe=lambda node, value: seen.append(node.name))
    assert seen == [n.name for n in model.graph.nodes]


def test_an_observer_may_replace_a_value(model, ids):
    def zero(node, value):
        return torch.zeros_like(value) if node.base == "add" else None

    replaced = run(model, (ids,), observe=zero)[0]
    assert torch.equal(replaced[0, 0], replaced[0, 1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema=7), "a graph of schema 7: expected 1"),
        (
            lambda d: d.pop("nodes"),
            "not a graph (KeyError: 'nodes'): expected schema, inputs, nodes",
        ),
        (lambda d: d["nodes"].reverse(), "before it is made: expected nodes in the order"),
        (lambda d: d["nodes"].append(d["nodes"][0]), "two nodes make one name"),
    ],
)
def test_what_is_no_graph_is_refused(model, change, message):
    data = json.loads(json.dumps(model.graph.to_json()))
    change(data)
    with pytest.raises(GraphError) as error:
        from_json(data)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "op", ["system", "linear", "linear.call", "bernoulli.default", "os.system", "__class__.x"]
)
def test_only_operations_of_aten_run(model, ids, op):
    data = json.loads(json.dumps(model.graph.to_json()))
    data["nodes"][0]["op"] = op
    with pytest.raises(GraphError, match="expected a deterministic operation of aten"):
        run(replace(model, graph=from_json(data)), (ids,))


class Branches(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


class WritesItsInput(nn.Module):
    def forward(self, x):
        return x.add_(1)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Branches(), "cannot follow Branches"),
        (WritesItsInput(), "writes into 'x': expected a module whose forward changes no parameter"),
    ],
)
def test_what_cannot_be_captured_is_refused(module, message):
    with pytest.raises(CaptureError) as error:
        capture(module, (torch.ones(2, 3),))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_wrong_number_of_inputs(model):
    with pytest.raises(GraphError, match=r"came 0 inputs: expected 1 \(ids\)"):
        run(model, ())
