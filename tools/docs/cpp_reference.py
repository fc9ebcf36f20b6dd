# SPDX-License-Identifier: Apache-2.0
"""The C++ reference: declarations and contracts of the headers that spdkfac.h includes, as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SECTION = re.compile(r"^// (.+)$")
INCLUDE = re.compile(r'^#include "(spdkfac/[^"]+)"')
NAME = re.compile(r"\b(?:class|struct|enum class|enum|union)\s+(?:\[\[\w+\]\]\s*)?(?:SPDKFAC_\w+\s+)?(\w+)\s*"
                  r"(?:final\s*)?[:{;]")
ALIAS = re.compile(r"\busing (\w+) =")
CONSTANT = re.compile(r"\bconstexpr\s+[\w:<>, ]+?[ &*](\w+)\s*(?:=|\{)")
FUNCTION = re.compile(r"([\w~]+|operator\s*[^\s(]+)\s*\(")
ACCESS = re.compile(r"^ (public|protected|private):$")


@dataclass
class Declaration:
    name: str
    comment: list[str]
    lines: list[str]


def page(source: Path) -> str:
    """Every header that `source`/spdkfac/spdkfac.h includes, under the title that it has there."""
    text = ["# C++ reference\n\nEverything that `#include <spdkfac/spdkfac.h>` declares, in namespace `spdkfac`, as "
            "its headers say it. [The C++ library](../cpp.md) is the guide.\n"]
    comment: list[str] = []
    for line in (source / "spdkfac/spdkfac.h").read_text(encoding="utf-8").splitlines():
        if found := INCLUDE.match(line):
            if comment:
                text.append(f"## {' '.join(comment).partition(':')[0].rstrip('.')}\n")
                comment = []
            text.append(header(source, found[1]))
        elif found := SECTION.match(line):
            comment.append(found[1])
        else:
            comment = []
    return "\n".join(text)


def header(source: Path, name: str) -> str:
    text = (source / name).read_text(encoding="utf-8")
    parts = [f"### {name}\n"]
    for declaration in declarations(text):
        if declaration.name:
            parts.append(f"#### {declaration.name} {{ #{anchor(name, declaration.name)} }}\n")
        if declaration.comment:
            parts.append(prose(declaration.comment) + "\n")
        if declaration.lines:
            parts.append("```cpp\n" + "\n".join(declaration.lines) + "\n```\n")
    return "\n".join(parts)


def anchor(header_name: str, name: str) -> str:
    return re.sub(r"\W+", "-", f"{header_name.removeprefix('spdkfac/')}-{name}".lower()).strip("-")


def prose(comment: list[str]) -> str:
    """Paragraphs; indented lines are examples."""
    parts = []
    for line in comment:
        if line.startswith("  "):
            parts.append(f"\n```cpp\n{line.strip()}\n```\n")
        else:
            parts.append(re.sub(r"([<>*_])", r"\\\1", line))
    return "\n".join(parts).replace("\n```\n\n\n```cpp", "")


def declarations(text: str) -> Iterator[Declaration]:
    """What stands in namespace spdkfac, one by one; overloads that follow each other are one."""
    last: Declaration | None = None
    for found in pieces(text):
        if last and not found.comment and found.name == last.name and found.name:
            last.lines += found.lines
            continue
        if last:
            yield last
        last = found
    if last:
        yield last


def pieces(text: str) -> Iterator[Declaration]:
    comment: list[str] = []
    lines: list[str] = []
    for line in inside(text):
        if not lines and not line.strip():
            if comment:
                yield Declaration("", comment, [])
            comment = []
        elif not lines and line.startswith("//"):
            comment.append(line.removeprefix("//").removeprefix(" ").rstrip())
        else:
            lines.append(line)
            joined = "\n".join(code_of(each) for each in lines)
            if joined.count("{") == joined.count("}") and joined.count("(") == joined.count(")") \
                    and joined.rstrip().endswith((";", "}")):
                yield Declaration(name_of(joined), comment, public(without_bodies(lines)))
                comment, lines = [], []


def inside(text: str) -> Iterator[str]:
    """The lines in the namespace, without preprocessor, blank lines joined."""
    within, continued = False, False
    for line in text.splitlines():
        directive = continued or line.startswith("#")
        continued = directive and line.endswith("\\")
        if directive or "SPDX" in line:
            continue
        if re.match(r"^namespace spdkfac \{$", line):
            within = True
        elif re.match(r"^\}  // namespace spdkfac$", line):
            within = False
        elif within:
            yield line


def code_of(line: str) -> str:
    """Without comments and strings, whose brackets do not count."""
    return re.sub(r'//.*$', "", re.sub(r'"(?:\\.|[^"\\])*"', '""', line))


def name_of(code: str) -> str:
    head = code.split("{", 1)[0] if re.match(r"\s*(template.*?>\s*)?(class|struct|enum|union)\b", code, re.S) else code
    for pattern in (NAME, ALIAS, CONSTANT, FUNCTION):
        if found := pattern.search(head + ("{" if head is not code else "")):
            return re.sub(r"\s+", "", found[1])
    return ""


def public(lines: list[str]) -> list[str]:
    """Without what is private."""
    kept, shown = [], True
    for line in lines:
        if found := ACCESS.match(line):
            shown = found[1] != "private"
        elif not shown and re.match(r"^\}", line):
            shown = True
        if shown:
            kept.append(line)
    while len(kept) > 1 and kept[-1].startswith("}") and not kept[-2].strip():
        del kept[-2]
    return kept


def without_bodies(lines: list[str]) -> list[str]:
    """Inline functions as declarations: their bodies are not part of the interface."""
    text = "\n".join(lines)
    if not re.match(r"\s*(template.*?>\s*)?(class|struct|enum|union)\b", text, re.S):
        return re.sub(r"\)((?: const| noexcept| override)*)\s*\{.*\}\s*$", r")\1;", text, flags=re.S).split("\n")
    text = re.sub(r"(?m)^(  [^/\n]*?\)) : \w+[({][^\n]*\{\}$", r"\1;", text)  # with initialisers
    text = re.sub(r"(?m)^(  [^/\n]*\)(?: const| noexcept| override)*) \{ [^\n]* \}$", r"\1;", text)
    text = re.sub(r"(?ms)^(  \S[^\n]*\)(?: const| noexcept| override)*) \{\n(?:    [^\n]*\n|\n)*  \}$", r"\1;", text)
    return text.split("\n")
