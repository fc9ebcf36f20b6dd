# SPDX-License-Identifier: Apache-2.0
"""Which training examples made a network predict what it does? Finds labels that were changed on purpose."""
import torch
from sample_data import images, train
from torch import nn

import spdkfac

torch.manual_seed(1)
(inputs, labels), (test_inputs, test_labels) = images(1000), images(200, test=True)
wrong = torch.randperm(len(labels))[:50]  # labels that somebody got wrong
labels[wrong] = (labels[wrong] + torch.randint(1, 10, (len(wrong),))) % 10
model = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
                      nn.Flatten(), nn.Linear(16 * 36, 10))
train(model, inputs, labels)
loss = nn.CrossEntropyLoss()

data = list(zip(inputs.split(100), labels.split(100), strict=True))
found = spdkfac.curvature(model, data, loss, fisher="mc", ekfac=True)  # second moments as in EK-FAC
gradients = found.example_gradients(model, data, loss)  # in the eigenbasis
queries = found.example_gradients(model, [(test_inputs, test_labels)], loss)
# What removing a training example would do to each test loss, to first order: gᵀ(F + λI)⁻¹h / N.
scores = found.inner(queries, gradients, damping=0.1, mode="mean") / found.examples
for query in range(3):
    best = scores[query].topk(3).indices.tolist()
    print(f"test example {query} of class {test_labels[query]} is helped most by training examples {best} "
          f"of classes {labels[best].tolist()}")
# An example with a wrong label is helped by itself alone.
own = torch.stack([found.inner(one, one, damping=0.1, mode="mean").diagonal() for one in (
    {name: rows[first : first + 100] for name, rows in gradients.items()} for first in range(0, 1000, 100))])
suspects = own.flatten().topk(len(wrong)).indices
hits = torch.isin(suspects, wrong).sum().item()
print(f"of {len(wrong)} wrong labels, {hits} are among the {len(wrong)} examples with the most influence on themselves")
