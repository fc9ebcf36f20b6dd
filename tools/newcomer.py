#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows README.md as a newcomer does: every command in it, in order, in a fresh clone, each with its time.

Usage: newcomer.py FOLDER [--bare] [--without COMMAND ...] [--out newcomer.json]

FOLDER is made, and kept. With --bare it becomes a bare Debian 12 first, which has nothing but git, make, and what the
README asks for; this needs root and debootstrap, and takes packages from where this machine takes them. Exit code: 0
if all commands worked, 1 if one did not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLONE = "spdkfac"
# What Debian calls "a C++20 compiler and the headers of Python", with git and make to begin with.
PACKAGES = ["ca-certificates", "git", "make", "g++", "python3-dev", "python3-venv"]
# Where this machine takes packages from.
SOURCES = ["etc/apt", "etc/pip.conf", "etc/resolv.conf", "etc/hosts", "usr/local/share/ca-certificates",
           "usr/share/keyrings"]
KEPT = re.compile(r"(PIP_|SSL_CERT|.*_proxy$|.*_PROXY$|REQUESTS_CA|OMPI_|TERM$|LANG$)")
# The loop around the lines that README.md shows.
BEFORE = """import os

import torch
from torch import nn

if "RANK" in os.environ:
    torch.distributed.init_process_group()
torch.manual_seed(1)
inputs = torch.randn(4096, 16)
targets = torch.sin(inputs.sum(1, keepdim=True) / 2)
model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
"""
AFTER = """
losses = []
for step in range(200):
    chosen = torch.randint(len(inputs), (256,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs[chosen]), targets[chosen])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
assert losses[-1] < losses[0] / 10
if "RANK" in os.environ:
    torch.distributed.destroy_process_group()
"""


def commands(readme: str) -> list[str]:
    """All lines of its `sh` blocks, then all `make …` of its prose, in order, each once."""
    blocks = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
    found: list[str] = []
    for language, text in blocks.findall(readme):
        if language == "sh":
            found += [re.sub(r"\s+#.*", "", line) for line in text.replace("\\\n", "").splitlines()]
        if language == "diff":
            found.append("python train.py")
    found += [" ".join(words) for words in re.findall(r"`(make)\s+([a-z]+)`", blocks.sub("", readme))]
    return list(dict.fromkeys(line for line in found if line.strip()))


def program(readme: str) -> str:
    """train.py: the lines of the diff after it was applied, in a loop."""
    diff = re.search(r"^```diff\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    if not diff:
        raise SystemExit("newcomer: README.md shows no diff of a training loop")
    return BEFORE + "".join(f"{line[1:]}\n" for line in diff[1].splitlines() if line[0] != "-") + AFTER


class Machine:
    """Runs shell commands in a folder, or in a bare Debian inside it."""

    def __init__(self, folder: Path, bare: bool) -> None:
        self.folder = folder
        self.bare = bare
        self.home = folder / "root" if bare else folder
        self.environment = {name: value for name, value in os.environ.items() if KEPT.match(name)}
        self.environment |= {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
        if bare:
            self.environment |= {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                 "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}

    def make(self) -> None:
        if self.folder.exists() and any(self.folder.iterdir()):
            raise SystemExit(f"newcomer: {self.folder} is not empty; name a folder to make")
        if self.bare and (os.geteuid() != 0 or not shutil.which("debootstrap")):
            raise SystemExit("newcomer: --bare needs root and debootstrap (apt-get install debootstrap)")
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.bare:
            apt = " ".join(path.read_text() for path in Path("/etc/apt").glob("sources.list*/*.sources"))
            apt += " ".join(path.read_text() for path in Path("/etc/apt").glob("sources.list"))
            mirror = re.search(r"https?://\S+/debian/?(?=\s)", apt)
            subprocess.run(["debootstrap", "--variant=minbase", "bookworm", self.folder,
                            *([mirror[0]] if mirror else [])], check=True, stdout=subprocess.DEVNULL)
            (self.folder / "etc/apt/sources.list").unlink(missing_ok=True)
            for name in SOURCES:
                source, target = Path("/", name), self.folder / name
                if source.is_dir():
                    shutil.copytree(source, target, dirs_exist_ok=True)
                elif source.exists():
                    shutil.copy(source, target)

    def run(self, command: str, folder: Path, log: Path) -> int:
        inner = ["bash", "-c", f"cd {shlex.quote(str(folder))} && {command}"]
        if self.bare:
            # The mounts end with the process.
            root = shlex.quote(str(self.folder))
            mounts = (f"mount --rbind /dev {root}/dev && mount -t sysfs sysfs {root}/sys && "
                      f"mount -t proc proc {root}/proc")
            inner = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c",
                     f"{mounts} && exec chroot {root} {shlex.join(inner)}"]
        with log.open("a") as out:
            out.write(f"$ {command}\n")
            out.flush()
            return subprocess.run(inner, env=self.environment, stdin=subprocess.DEVNULL, stdout=out,
                                  stderr=subprocess.STDOUT, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="to make")
    parser.add_argument("--bare", action="store_true", help="make it a bare Debian 12")
    parser.add_argument("--without", action="append", default=[],
                        help="a command to leave out, such as 'make reproduce'")
    parser.add_argument("--out", type=Path, help="also write the times there, as JSON")
    options = parser.parse_args()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    all_commands = commands(readme)
    if unknown := set(options.without) - set(all_commands):
        raise SystemExit(f"newcomer: README.md has no command {', '.join(sorted(unknown))}; "
                         f"it has: {', '.join(all_commands)}")
    folder = options.folder.resolve()
    machine = Machine(folder, options.bare)
    machine.make()
    log = folder / "newcomer.log"

    # Git clones what is committed; in a bare machine, from a bundle.
    bundle = machine.home / "spdkfac.bundle"
    subprocess.run(["git", "-C", ROOT, "bundle", "create", "--quiet", bundle, "HEAD"], check=True)
    home = Path("/root") if options.bare else folder
    steps: list[tuple[str, Path]] = []
    if options.bare:
        steps.append((f"apt-get update && apt-get install -y --no-install-recommends {' '.join(PACKAGES)}", home))
    steps.append((f"git clone spdkfac.bundle {CLONE}", home))
    inside = home / CLONE
    wanted = [command for command in all_commands if command not in options.without]
    if any(command.startswith("pip ") for command in wanted):
        steps.append(("python3 -m venv env", inside))
    steps += [(command, inside) for command in wanted]

    rows: list[dict[str, object]] = []
    for command, where in steps:
        if command == "python train.py":
            (machine.home / CLONE / "train.py").write_text(program(readme), encoding="utf-8")
        # make brings an environment of its own.
        inside_env = not command.startswith("make") and (machine.home / CLONE / "env").exists()
        activate = ". env/bin/activate && " if inside_env else ""
        print(f"{command:60.60} ", end="", flush=True)
        begin = time.monotonic()
        status = machine.run(activate + command, where, log)
        seconds = time.monotonic() - begin
        rows.append({"command": command, "seconds": round(seconds, 1), "exit_code": status})
        print(f"{seconds:8.1f} s" + ("" if status == 0 else f"   exit code {status}"), flush=True)
    failed = [str(row["command"]) for row in rows if row["exit_code"] != 0]
    total = sum(float(str(row["seconds"])) for row in rows)
    print(f"newcomer: {len(rows)} commands in {total / 60:.1f} min; "
          + (f"failed: {', '.join(failed)}; see {log}" if failed else "all worked"))
    if options.out:
        options.out.write_text(json.dumps({"commands": rows}, indent=2) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
