"""Modules that are made safe in place."""

import copy
import io
import pickle

import torch
from graph_tools import Pool, raised

import cudaguard

ONE, TWO = torch.ones(2, 2), torch.full((2, 2), 2.0)


class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x):
        return {"features": self.layer(x) * self.scale}


def held(module):
    """What is held of a first call, after a second one."""
    with torch.no_grad():
        expected = Encoder.forward(getattr(module, "_orig_mod", module), ONE)["features"]
        first = module(ONE)["features"]
        module(TWO)
    return torch.equal(first, expected)


def case_module_that_was_wrapped_by_torch_compile():
    plain = torch.compile(Encoder(), backend=Pool())
    assert not held(plain)
    compiled = torch.compile(Encoder(), backend=Pool())
    names = list(compiled.state_dict())
    safe = cudaguard.graph_safe(compiled)
    assert safe is compiled
    assert held(safe)
    assert type(safe) is type(plain)
    assert isinstance(safe, torch.nn.Module)
    assert list(safe.state_dict()) == names == list(plain.state_dict())
    assert len(list(safe.parameters())) == 2
    assert safe.load_state_dict(plain.state_dict()).missing_keys == []
    assert safe.eval().training is False
    assert safe.layer is safe._orig_mod.layer
    assert cudaguard.graph_safe(safe) is safe
    assert not hasattr(safe.forward.__wrapped__, "_cudaguard_of")  # one layer, not two


def case_module_that_was_compiled_in_place():
    plain = Encoder()
    plain.compile(backend=Pool())
    assert not held(plain)
    module = Encoder()
    module.compile(backend=Pool())
    assert cudaguard.graph_safe(module) is module
    assert held(module)
    assert type(module) is Encoder
    assert sorted(module.state_dict()) == ["layer.bias", "layer.weight", "scale"]
    cudaguard.graph_safe(module)
    assert not hasattr(module._compiled_call_impl.__wrapped__, "_cudaguard_of")


def case_module_whose_forward_was_compiled():
    """As SAM2 does with its image encoder."""
    module = Encoder()
    module.forward = torch.compile(module.forward, backend=Pool())
    assert not held(module)
    assert cudaguard.graph_safe(module) is module
    assert held(module)


def case_copies_and_pickles_of_a_module_that_was_compiled_in_place():
    """torch drops what is compiled from both; a copy computes the same, uncompiled."""
    module = Encoder()
    module.compile(backend=Pool())
    cudaguard.graph_safe(module)
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    for other in (copy.deepcopy(module), torch.load(file, weights_only=False)):
        assert other._compiled_call_impl is None
        assert held(other)


def case_pickles_of_a_module_that_was_wrapped_by_torch_compile():
    """They are torch's own, and need nothing of ours."""
    safe = torch.compile(Encoder(), backend="eager")
    before = len(pickle.dumps(safe))
    cudaguard.graph_safe(safe)
    data = pickle.dumps(safe)
    assert b"cudaguard" not in data
    assert len(data) == before
    other = pickle.loads(data)
    assert torch.equal(other(ONE)["features"], safe(ONE)["features"])
    assert list(other.state_dict()) == list(safe.state_dict())


def case_training_through_a_module():
    torch.manual_seed(1)
    module = Encoder()
    other = copy.deepcopy(module)
    module.compile(backend="aot_eager")
    cudaguard.graph_safe(module)
    for each in (module, other):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            each(ONE)["features"].square().sum().backward()
            optimizer.step()
    assert torch.equal(module.layer.weight, other.layer.weight)


def case_module_that_is_not_compiled_itself_is_refused():
    """A wrapper on it would go with its copies, and compute with the weights of the first."""
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    module[0].compile(backend="eager")
    error = raised(cudaguard.GraphError, cudaguard.graph_safe, module)
    assert "this Sequential is not compiled itself" in str(error)
    assert cudaguard.graph_safe(module[0]) is module[0]
    twin = copy.deepcopy(module)
    for parameter in twin.parameters():
        parameter.data.zero_()
    assert torch.equal(twin(torch.ones(1, 2)), torch.zeros(1, 2))
