# SPDX-License-Identifier: Apache-2.0
"""Batch scripts of examples/slurm under a stand-in for Slurm, and manifests of examples/kubernetes by their fields."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from devices import DEVICE

import spdkfac

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TASKS = 2

# What Slurm does for `srun COMMAND`: all tasks, each with its numbers. `srun --mpi=pmix` makes MPI ranks of them.
SRUN = """#!/bin/bash
if [ "$1" = --mpi=pmix ]; then shift; exec mpirun --allow-run-as-root --oversubscribe -n "$SLURM_NTASKS" "$@"; fi
pids=()
for ((task = 0; task < SLURM_NTASKS; ++task)); do
  SLURM_PROCID=$task SLURM_LOCALID=$task "$@" & pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit $status
"""
# As many names as in a large job: more than a pipe holds.
SCONTROL = '#!/bin/bash\n[ "$*" = "show hostnames node[1-2]" ] && printf "127.0.0.1\\n" && seq -f node%g 2 20000\n'


@pytest.fixture
def slurm(tmp_path: Path) -> dict[str, str]:
    """An environment inside a job of two tasks."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL),
                       ("python", f'#!/bin/bash\nexec "{sys.executable}" "$@"\n')):
        (commands / name).write_text(text, encoding="utf-8")
        (commands / name).chmod(0o755)
    return {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", "SLURM_JOB_ID": str(os.getpid()),
            "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NTASKS": str(TASKS), "SLURM_CPUS_PER_TASK": "1",
            "GLOO_SOCKET_IFNAME": "lo", "CUDA_VISIBLE_DEVICES": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def submit(script: str, folder: Path, environment: dict[str, str], *arguments: str | Path) -> str:
    done = subprocess.run(["bash", str(EXAMPLES / "slurm" / script), *map(str, arguments)], cwd=folder, env=environment,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("script", sorted(path.name for path in (EXAMPLES / "slurm").glob("*.sbatch")))
def test_batch_scripts_are_bash_with_directives_first(script: str) -> None:
    path = EXAMPLES / "slurm" / script
    assert subprocess.run(["bash", "-n", str(path)], capture_output=True, check=False).returncode == 0
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60 and lines[0] == "#!/bin/bash"
    # sbatch reads directives up to the first command.
    command = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    directives = [number for number, line in enumerate(lines) if line.startswith("#SBATCH")]
    assert directives and max(directives) < command
    for number in directives:
        assert re.fullmatch(r"#SBATCH --[a-z-]+=\S+", lines[number])


@pytest.mark.skipif(DEVICE != "cpu", reason="examples compute on the CPU here")
def test_python_under_slurm_continues(tmp_path: Path, slurm: dict[str, str]) -> None:
    script = EXAMPLES / "python/distributed_checkpoint.py"
    first = submit("python.sbatch", tmp_path, slurm, script, "state", "--steps", "10")
    second = submit("python.sbatch", tmp_path, slurm, script, "state", "--steps", "10")
    losses = [float(loss) for loss in re.findall(r"step \d+ loss ([\d.]+)", first + second)]
    assert re.findall(r"step (\d+) loss", first + second) == ["0", "9", "10", "19"]
    assert losses[-1] < losses[0]


def test_the_program_under_slurm_continues(tmp_path: Path, slurm: dict[str, str]) -> None:
    program = os.environ.get("SPDKFAC")
    if program is None or not Path(program).with_name("spdkfac-torch").exists():
        pytest.skip("the program with LibTorch is not built ($SPDKFAC)")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if "MPI none" in version or shutil.which("mpirun") is None:
        pytest.skip("no MPI")
    environment = {**slurm, "PATH": f"{Path(program).parent}:{slurm['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    flags = ["--data", "synthetic", "--synthetic-examples", "64", "--batch", "8", "--algorithm", "spd-kfac",
             "--cluster-file", write_cluster(tmp_path)]
    submit("program.sbatch", tmp_path, environment, *flags, "--max-steps", "2")
    again = submit("program.sbatch", tmp_path, environment, *flags, "--max-steps", "4")
    assert re.search(r"resum|continu|step 2", again, re.IGNORECASE), again
    assert list((tmp_path / "checkpoints").iterdir())


def write_cluster(folder: Path) -> Path:
    """Costs of two ranks, so that nothing is measured."""
    path = folder / "cluster.json"
    path.write_text(json.dumps(spdkfac.cluster("ethernet-10g-16").for_world(TASKS).to_json()), encoding="utf-8")
    return path


# --- manifests ---


def manifest(name: str) -> dict[str, Any]:
    text = (EXAMPLES / "kubernetes" / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    loaded: dict[str, Any] = yaml.safe_load(text)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", loaded["metadata"]["name"])
    return loaded


def check_pod(template: dict[str, Any]) -> dict[str, Any]:
    """What Kubernetes wants of a pod; its only container."""
    assert template.keys() <= {"metadata", "spec"}
    spec = template["spec"]
    assert spec.keys() <= {"containers", "volumes"}
    container: dict[str, Any]
    container, = spec["containers"]
    assert container.keys() <= {"name", "image", "command", "args", "resources", "volumeMounts"}
    mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
    assert mounted == {volume["name"] for volume in spec.get("volumes", [])}
    for words in (container.get("command", []), container.get("args", [])):
        assert all(isinstance(word, str) for word in words)
    return container


def test_the_manifest_for_python_has_the_fields_of_a_pytorchjob() -> None:
    job = manifest("pytorchjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    spec = job["spec"]
    assert spec.keys() <= {"runPolicy", "nprocPerNode", "pytorchReplicaSpecs", "elasticPolicy"}
    assert isinstance(spec["nprocPerNode"], str), "a text in this version of the operator"
    assert spec["runPolicy"]["cleanPodPolicy"] in {"None", "Running", "All"}
    replicas = spec["pytorchReplicaSpecs"]
    assert replicas.keys() == {"Master", "Worker"} and replicas["Master"]["replicas"] == 1
    for replica in replicas.values():
        assert replica["restartPolicy"] in {"Always", "OnFailure", "Never", "ExitCode"}
        container = check_pod(replica["template"])
        assert container["name"] == "pytorch"
        launcher, script, *_ = container["command"]
        assert launcher == "torchrun" and script.startswith("/opt/spdkfac/")
        assert (EXAMPLES.parent / script.removeprefix("/opt/spdkfac/")).exists()
        assert int(spec["nprocPerNode"]) == container["resources"]["limits"]["nvidia.com/gpu"]


def test_the_manifest_for_the_program_has_the_fields_of_an_mpijob() -> None:
    job = manifest("mpijob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    spec = job["spec"]
    assert spec.keys() <= {"slotsPerWorker", "runPolicy", "mpiImplementation", "mpiReplicaSpecs", "sshAuthMountPath"}
    assert spec["mpiImplementation"] in {"OpenMPI", "Intel", "MPICH"}
    replicas = spec["mpiReplicaSpecs"]
    assert replicas.keys() == {"Launcher", "Worker"} and replicas["Launcher"]["replicas"] == 1
    launcher, worker = (check_pod(replicas[name]["template"]) for name in ("Launcher", "Worker"))
    command = launcher["command"] + launcher["args"]
    assert command[0] == "mpirun"
    assert int(command[command.index("-n") + 1]) == replicas["Worker"]["replicas"] * spec["slotsPerWorker"]
    assert command[command.index("spdkfac") + 1] == "train"
    assert "command" not in worker, "the operator runs sshd there"
    assert worker["resources"]["limits"]["nvidia.com/gpu"] == spec["slotsPerWorker"]
    assert worker["image"] == launcher["image"]


def test_flags_of_manifests_and_scripts_exist() -> None:
    """By the help that comes with the data."""
    known = set(re.findall(r"--[a-z-]+", (EXAMPLES.parent / "data/help/train.txt").read_text(encoding="utf-8")))
    arguments = manifest("mpijob.yaml")["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]["args"]
    script = (EXAMPLES / "slurm/program.sbatch").read_text(encoding="utf-8").partition("set -euo pipefail")[2]
    given = {word for word in arguments if word.startswith("--")} | set(re.findall(r"--[a-z-]+", script)) - {"--mpi"}
    assert given <= known, given - known
