# SPDX-License-Identifier: Apache-2.0
"""Mixed precision in one process."""

from __future__ import annotations

import pytest
import torch
from nets import Batch, batch, flat, kfac_over_sgd, loss_of, same_bits, small_net, train
from torch import nn

import spdkfac


def single(step: int) -> Batch:
    return batch(step, dtype=torch.float32)


def test_autocast_follows_full_precision(device: torch.device) -> None:
    models = [small_net(torch.float32) for _ in range(2)]
    losses: list[list[float]] = [[], []]
    for mixed, model in enumerate(models):
        optimizer = kfac_over_sgd(model, kl_clip=0.01)
        for step in range(12):
            images, labels = single(step % 2)
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bool(mixed)):
                loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses[mixed].append(float(loss))
        assert optimizer.counters["factor_updates"] == 12 * 2 * 4
    assert losses[1][-1] < 0.7 * losses[1][0]
    # bf16 keeps eight bits of the mantissa; twelve steps let its rounding grow to some percent.
    assert losses[1][-1] == pytest.approx(losses[0][-1], rel=0.1)


def test_grad_scaler_changes_nothing(device: torch.device) -> None:
    plain, scaled, clipped = (small_net(torch.float32) for _ in range(3))
    train(plain, kfac_over_sgd(plain), map(single, range(3)))
    for model in (scaled, clipped):
        scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
        optimizer = kfac_over_sgd(model, scaler=scaler)
        for step in range(3):
            images, labels = single(step)
            optimizer.zero_grad()
            scaler.scale(loss_of(model, (images, labels))).backward()
            if model is clipped:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), 1e6)
            scaler.step(optimizer)
            scaler.update()
    # Scales are powers of two: no number is rounded otherwise than without.
    assert same_bits(plain, scaled) and same_bits(plain, clipped)


def test_a_batch_that_overflows_is_skipped_and_forgotten(device: torch.device) -> None:
    models = [small_net(torch.float32) for _ in range(2)]
    scalers = [torch.amp.GradScaler(device.type, init_scale=1024.0) for _ in range(2)]
    optimizers = [kfac_over_sgd(model, scaler=scaler)
                  for model, scaler in zip(models, scalers, strict=True)]
    for index in range(2):
        for step in range(4):
            images, labels = single(step)
            overflow = index == 1 and step in (0, 2)
            for again in range(2 if overflow else 1):
                optimizers[index].zero_grad()
                loss = loss_of(models[index], (images, labels))
                if overflow and again == 0:
                    loss = loss * float("inf")
                before = flat(models[index])
                scalers[index].scale(loss).backward()
                scalers[index].step(optimizers[index])
                scalers[index].update()
                if overflow and again == 0:
                    assert torch.equal(flat(models[index]), before)
    assert optimizers[1].counters["steps"] == 4
    assert optimizers[1].counters["nonfinite_factors"] == 0
    assert scalers[1].get_scale() == scalers[0].get_scale() / 4
    assert same_bits(*models)


def test_autocast_with_grad_scaler_and_accumulation(device: torch.device) -> None:
    model = small_net(torch.float32)
    scaler = torch.amp.GradScaler(device.type)
    optimizer = kfac_over_sgd(model, scaler=scaler, kl_clip=0.01)
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        total = 0.0
        for part in range(2):
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = loss_of(model, single(part)) / 2
            total += float(loss)
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(total)
    assert losses[-1] < 0.7 * losses[0]


def test_a_scaler_that_was_not_given_is_an_error(device: torch.device) -> None:
    model = small_net(torch.float32)
    optimizer = kfac_over_sgd(model)
    scaler = torch.amp.GradScaler(device.type)
    scaler.scale(loss_of(model, single(0))).backward()
    with pytest.raises(spdkfac.ConfigError, match="scaler=scaler"):
        scaler.step(optimizer)


def test_frameworks_may_clip_gradients_without_a_scaler(device: torch.device) -> None:
    # Lightning refuses gradient_clip_val, also for bf16-mixed, where an optimizer says this.
    model = small_net(torch.float32)
    assert not kfac_over_sgd(model)._step_supports_amp_scaling
    scaler = torch.amp.GradScaler(device.type)
    assert kfac_over_sgd(model, scaler=scaler)._step_supports_amp_scaling


def test_a_scaler_that_is_switched_off_need_not_be_given(device: torch.device) -> None:
    model = small_net(torch.float32)
    optimizer = kfac_over_sgd(model)
    scaler = torch.amp.GradScaler(device.type, enabled=False)
    scaler.scale(loss_of(model, single(0))).backward()
    scaler.step(optimizer)
    assert optimizer.counters["steps"] == 1


@pytest.mark.gpu
def test_half_precision_on_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    model = small_net(torch.float32).cuda()
    scaler = torch.amp.GradScaler("cuda")
    optimizer = kfac_over_sgd(model, scaler=scaler, kl_clip=0.01)
    losses = []
    for _ in range(12):
        images, labels = (tensor.cuda() for tensor in single(0))
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(float(loss))
    assert losses[-1] < losses[0]
