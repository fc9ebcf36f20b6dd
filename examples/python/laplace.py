# SPDX-License-Identifier: Apache-2.0
"""How sure is a network? Laplace approximations of its last layer, and of all layers."""
import torch
from sample_data import images, train
from torch import nn
from torch.func import functional_call, jvp

import spdkfac

torch.manual_seed(1)
(inputs, labels), (test_inputs, test_labels) = images(1000), images(1000, test=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10))
train(model, inputs, labels)
loss = nn.CrossEntropyLoss()


def report(name: str, outputs: torch.Tensor) -> None:
    probabilities = outputs.detach().softmax(-1).mean(0)
    right, sure = (probabilities.argmax(1) == test_labels).float().mean(), probabilities.max(1).values.mean()
    test_loss = nn.functional.nll_loss(probabilities.log(), test_labels)
    print(f"{name:10} accuracy {100 * right:.1f} %, confidence {100 * sure:.1f} %, test loss {test_loss:.3f}")


report("one model", model(test_inputs)[None])
weights = {name: p.detach() for name, p in model.named_parameters()}
data = list(zip(inputs.split(100), labels.split(100), strict=True))
for name, layers in (("last layer", ["5"]), ("all layers", None)):
    found = spdkfac.curvature(model, data, loss, fisher="exact", layers=layers)
    # The posterior's precision is N·F + prior·I; the prior with the most evidence is taken.
    square = sum(float(weights[one].square().sum()) for one in found.parameters)
    prior = max((10.0 ** power for power in range(-2, 4)), key=lambda p: found.numel * torch.tensor(p).log()
                - p * square - found.logdet(p, scale=found.examples))
    drawn = found.unflatten(found.sample(50, prior, scale=found.examples))  # offsets from the weights
    here = {one: weights[one] for one in found.parameters}
    # The network is taken as linear in its weights, as the approximation does.
    report(name, torch.stack([torch.add(*jvp(lambda own: functional_call(model, {**weights, **own}, (test_inputs,)),
                                             (here,), ({one: offsets[i] for one, offsets in drawn.items()},)))
                              for i in range(50)]))
