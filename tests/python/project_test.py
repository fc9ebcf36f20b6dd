# SPDX-License-Identifier: Apache-2.0
"""Workflows, templates, the container file and the citation say what is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted(path.name for path in (GITHUB / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8")))
VERSION = ".".join(re.findall(r"(?m)^#define SPDKFAC_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$",
                              (ROOT / "src/spdkfac/version.h").read_text(encoding="utf-8")))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def make_targets(command: str) -> list[str]:
    return re.findall(r"\bmake ([a-z]+)", command)


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_call_the_targets_that_people_call(name: str) -> None:
    workflow = load(GITHUB / "workflows" / name)
    assert workflow["name"] == name.removesuffix(".yml")
    assert workflow["permissions"] == {"contents": "read"}
    called = []
    for job in workflow["jobs"].values():
        assert {"runs-on", "timeout-minutes", "steps"} <= job.keys()
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step), step
            assert re.fullmatch(r"actions/[\w-]+@v\d+", step.get("uses", "actions/checkout@v4"))
            called += make_targets(step.get("run", "").partition("apt-get")[0])
    assert called and set(called) <= TARGETS, called


def test_workflows_run_when_they_should() -> None:
    """YAML reads the key `on` as True."""
    runs = {name: load(GITHUB / "workflows" / name)[True] for name in WORKFLOWS}
    assert runs == {"quick.yml": ["push"], "full.yml": ["pull_request"], "wheels.yml": {"push": {"tags": ["v*"]}}}


def test_issue_templates_are_forms() -> None:
    forms = [path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"]
    assert len(forms) >= 2
    for path in forms:
        form = load(path)
        assert {"name", "description", "body"} <= form.keys()
        names = [field["id"] for field in form["body"]]
        assert len(set(names)) == len(names)
        for field in form["body"]:
            assert field["type"] in {"textarea", "input"} and field["attributes"]["label"]


def instructions(text: str) -> list[tuple[str, str]]:
    """Of a container file: each with its words, without comments."""
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", text))
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in joined.splitlines() if line.strip()]


def test_steps_of_the_container_file_exist() -> None:
    steps = instructions((ROOT / "Containerfile").read_text(encoding="utf-8"))
    known = {"ARG", "FROM", "RUN", "WORKDIR", "COPY", "ENV", "CMD"}
    assert {name for name, _ in steps} <= known
    assert [name for name, _ in steps if name in ("FROM", "COPY")] == ["FROM", "COPY"]
    system = {"apt-get", "rm", "mkdir", "echo", "printf", "cmake"}
    installed = {".venv/bin/pip"}  # by tools/setup.sh --torch
    presets = {preset["name"] for preset in load(ROOT / "CMakePresets.json")["buildPresets"]}
    ran = []
    for name, words in steps:
        for command in words.split("&&") if name == "RUN" else []:
            first, *rest = shlex.split(command)
            ran.append(first)
            if first not in system | installed:
                assert (ROOT / first).stat().st_mode & 0o111, f"{first} is no program"
            if first == "cmake" and "--preset" in rest:
                assert rest[rest.index("--preset") + 1] in presets
    assert ran.index("tools/setup.sh") < ran.index("cmake") < ran.index(".venv/bin/pip")
    ignored = (ROOT / ".containerignore").read_text(encoding="utf-8")
    assert ignored == (ROOT / ".dockerignore").read_text(encoding="utf-8")
    assert {"build", ".venv"} <= set(ignored.split())


def test_the_citation_is_complete() -> None:
    citation = load(ROOT / "CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["version"] == VERSION
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Shi", "Zhang", "Li"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert paper["title"] in " ".join(re.sub("[{}]", "", readme).split())  # BibTeX keeps capitals in braces


def test_the_changelog_has_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"(?m)^## \[(\d+\.\d+\.\d+)\](?: - (\d{4}-\d\d-\d\d))?$", changelog)
    assert [version for version, _ in released] == [VERSION, "0.1.0"]
    assert released[0][1] == str(load(ROOT / "CITATION.cff")["date-released"])
