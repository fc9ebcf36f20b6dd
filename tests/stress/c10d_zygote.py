# SPDX-License-Identifier: Apache-2.0
"""Forks processes that have torch loaded already, for c10d_faults.py.

Reads jobs as JSON lines; answers with the processes of a job, then how each of them ended.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import traceback
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import torch
import torch.distributed as dist
from nets import batch, kfac_over_sgd, loss_of, small_net

import spdkfac

FAILED = 7


def newest(folder: Path) -> Path | None:
    return max(folder.glob("step-*.pt"), default=None)


def save(job: dict[str, Any], step: int, model: torch.nn.Module,
         optimizer: spdkfac.SPDKFACOptimizer) -> None:
    """As users do it: all take part, the first process writes and renames."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    if dist.get_rank() > 0:
        return
    folder = Path(job["folder"])
    temporary = folder / "saving.tmp"
    torch.save(state, temporary)
    temporary.rename(folder / f"step-{step:04}.pt")


def train(job: dict[str, Any], rank: int, progress: Path) -> None:
    phase = "join"
    try:
        dist.init_process_group("gloo", init_method=job["store"], rank=rank,
                                world_size=job["world"],
                                timeout=timedelta(seconds=3 * job["timeout"]))
        dist.barrier()  # on busy cores processes start seconds apart; from here on they are together
        phase = "start"
        model = small_net()
        optimizer = kfac_over_sgd(model, timeout=job["timeout"], **job["options"])
        first = 0
        if job["resume"] and (file := newest(Path(job["folder"]))) is not None:
            state = torch.load(file, weights_only=True)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            first = int(file.stem[5:])
        phase = "steps"
        for step in range(first, job["steps"]):
            progress.write_text(str(step), encoding="utf-8")
            if job["fault"] in ("raise", "exit") and (rank, step) == (job["victim"], job["at"]):
                if job["fault"] == "raise":
                    raise ValueError("stress: this rank gives up")
                os._exit(0)
            optimizer.zero_grad()
            loss_of(model, batch(step, rank)).backward()
            optimizer.step()
            if (step + 1) % job["every"] == 0:
                save(job, step + 1, model, optimizer)
        values = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        (Path(job["folder"]) / f"end-{rank}").write_bytes(values.numpy().tobytes())
        phase = "end"
        dist.destroy_process_group()
    except Exception as error:
        sys.stderr.write(f"{phase}: {type(error).__name__}: {error}\n")
        if not isinstance(error, (spdkfac.CommError, ValueError)):
            traceback.print_exc()
        sys.stderr.flush()
        if job["hard"]:
            os._exit(FAILED)
        sys.exit(FAILED)


def child(job: dict[str, Any], rank: int) -> None:
    folder = Path(job["folder"])
    log = os.open(folder / f"err-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(number, target)
    faulthandler.register(signal.SIGUSR1)
    train(job, rank, folder / f"at-{rank}")


warnings.simplefilter("ignore")
torch.set_num_threads(1)
print("ready", flush=True)
for line in sys.stdin:
    parsed = json.loads(line)
    pids = []
    is_child = False
    for own_rank in range(parsed["world"]):
        pid = os.fork()
        if pid == 0:
            is_child = True
            child(parsed, own_rank)
            break
        pids.append(pid)
    if is_child:
        break  # ends as any program does
    print(json.dumps(pids), flush=True)
    for _ in pids:
        pid, status = os.wait()
        print(json.dumps([pid, os.waitstatus_to_exitcode(status)]), flush=True)
