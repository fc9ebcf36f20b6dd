# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# # Planning distributed K-FAC
# Which tensors share a message, who inverts which factor, and what does an iteration take? The answers
# need no GPU and no cluster. In a notebook each value shows itself as a table; here they are printed.

# %% A model: from the data of the package, or any model of yours
import torch
from torch import nn

import spdkfac

net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
                    nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(),
                    nn.Linear(128 * 16 * 16, 256), nn.ReLU(), nn.Linear(256, 10))
mine = spdkfac.describe(net, torch.randn(32, 3, 32, 32), name="mine")
resnet = spdkfac.model("resnet50")
print(mine)

# %% A cluster: measured by `spdkfac calibrate`, or one of the data
cluster = spdkfac.cluster("h200-400g-64")
print(repr(cluster), repr(cluster.for_world(16)))

# %% What does an iteration take, and on what?
print(spdkfac.simulate(resnet, cluster))

# %% All algorithms side by side
comparison = spdkfac.compare(resnet, cluster, world=64)
print(comparison)
print("best:", comparison.best())

# %% Who does what: the plan, which a run can follow (`SPDKFACOptimizer(…, plan=plan)`)
plan = spdkfac.plan(mine, cluster, world=8, algorithm="auto")
print(plan.text(mine, cluster))
plan.save("plan.json")
assert spdkfac.Plan.load("plan.json") == plan

# %% What if a process is slow, or batches are larger?
print(repr(spdkfac.simulate(resnet, cluster, slow={3: 1.5})))
print(repr(spdkfac.simulate(resnet, cluster, batch=32, factor_interval=10, inverse_interval=100)))

# %% A page of it, for people who have no notebook
spdkfac.report(comparison, title="ResNet-50 on 64 GPUs").save("planning.html")
