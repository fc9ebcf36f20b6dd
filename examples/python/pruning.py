# SPDX-License-Identifier: Apache-2.0
"""Which weights can go? Pruning by curvature beside pruning by size."""
import torch
from sample_data import images, train
from torch import nn

import spdkfac

torch.manual_seed(1)
(inputs, labels), (test_inputs, test_labels) = images(2000), images(1000, test=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
train(model, inputs, labels)
loss = nn.CrossEntropyLoss()

data = list(zip(inputs.split(200), labels.split(200), strict=True))
found = spdkfac.curvature(model, data, loss, fisher="exact")
weights = found.flatten({name: p.detach() for name, p in model.named_parameters()})
# What the loss rises by when a weight goes and the others make up for it (optimal brain surgeon): w²/2[F⁻¹]ᵢᵢ.
cost = weights.square() / (2 * found.diagonal(-1, damping=1e-4))


def accuracy(flat: torch.Tensor) -> float:
    model.load_state_dict(found.unflatten(flat))
    with torch.no_grad():
        return 100 * float((model(test_inputs).argmax(1) == test_labels).float().mean())


print(f"all weights: accuracy {accuracy(weights):.1f} %")
for share in (0.5, 0.8, 0.9, 0.95):
    results = []
    for name, score in (("size", weights.abs()), ("curvature", cost)):
        kept = score >= score.kthvalue(int(share * len(weights))).values
        results.append(f"by {name} {accuracy(weights * kept):.1f} %")
    print(f"{100 * share:.0f} % of weights gone: {', '.join(results)}")
