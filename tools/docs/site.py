# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs: what the site of docs/ has besides the files in docs/.

- References of Python and C++, made from the package and the public headers, and the help of every verb.
- A page for every file outside of docs/ that a page links to, and links that lead there.
- Pictures in the colours that the reader has chosen.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
import cpp_reference  # noqa: E402
import python_reference  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^(```.*?^```$|~~~.*?^~~~$)", re.S | re.M)
NAMED = re.compile(r"^```([\w+-]+) (\S+)$", re.M)  # a block that check_console.py writes to a file
PICTURE = re.compile(r'<picture>\s*<source[^>]*srcset="(?P<dark>[^"]+)"[^>]*>\s*'
                     r'<img alt="(?P<alt>[^"]*)" src="(?P<light>[^"]+)"[^>]*>\s*</picture>')
LANGUAGES = {".py": "python", ".cpp": "cpp", ".h": "cpp", ".txt": "cmake", ".sh": "bash", ".json": "json"}
WANTED = ("CHANGELOG.md", "CONTRIBUTING.md")  # of the navigation, though no page may link to them


def links(text: str) -> Iterator[str]:
    for found in LINK.finditer(FENCE.sub("", text)):
        yield found[2]


def target(origin: str, link: str) -> str:
    """The place in the repository that a link on a page of the repository means."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def place(path: str) -> str:
    """Where the site has a file or folder of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if (ROOT / path).is_dir():
        return place(f"{path}/README.md") if (ROOT / path / "README.md").is_file() else f"project/{path}/index.md"
    return f"project/{path}" if path.endswith(".md") else f"project/{path}.md"


def rewritten(text: str, origin: str) -> str:
    """The text with links to where the site has their targets."""
    here = posixpath.dirname(place(origin))

    def moved(match: re.Match[str]) -> str:
        path = target(origin, match[2])
        if path.startswith("..") or not (ROOT / path).exists() or (ROOT / path).suffix in (".svg", ".png"):
            return match[0]
        return match[1] + posixpath.relpath(place(path), here) + match[3]
    parts = FENCE.split(text)
    return "".join(part if FENCE.fullmatch(part) else LINK.sub(moved, part) for part in parts)


def listing(path: Path) -> str:
    language = "cmake" if path.name == "CMakeLists.txt" else LANGUAGES.get(path.suffix, "text")
    return f"````{language}\n{path.read_text(encoding='utf-8').rstrip()}\n````\n"


def page_of(path: str) -> str:
    """A file or folder outside of docs/ as a page."""
    whole = ROOT / path
    if whole.is_dir():
        files = sorted(each for each in whole.iterdir() if each.is_file())
        return f"# {path}\n\n" + "\n".join(f"## {each.name}\n\n{listing(each)}" for each in files)
    text = whole.read_text(encoding="utf-8")
    return rewritten(text, path) if path.endswith(".md") else f"# {path}\n\n{listing(whole)}"


def outside(files: Files) -> Iterator[str]:
    """What pages of docs/ link to outside of it, and what that links to, each once."""
    todo = [(f"docs/{file.src_uri}", (ROOT / "docs" / file.src_uri).read_text(encoding="utf-8"))
            for file in files.documentation_pages()]
    seen: set[str] = set()
    waiting = list(WANTED)
    while todo or waiting:
        if todo:
            origin, text = todo.pop()
            waiting += [target(origin, link) for link in links(text)]
            continue
        path = waiting.pop()
        if path.startswith(("docs/", "..")) or path in seen or not (ROOT / path).exists():
            continue
        if (ROOT / path).is_dir() and (ROOT / path / "README.md").is_file():
            waiting.append(f"{path}/README.md")
            continue
        seen.add(path)
        yield path
        if path.endswith(".md"):
            todo.append((path, (ROOT / path).read_text(encoding="utf-8")))


def help_page() -> str:
    text = (ROOT / "tests/golden/help.md").read_text(encoding="utf-8")
    return "# Help of the program\n\nThe help of the program and of every verb.\n\n" + text[text.index("```"):]


def on_files(files: Files, config: Any) -> Files:
    made = {"reference/python.md": python_reference.page(ROOT / "python/spdkfac"),
            "reference/cpp.md": cpp_reference.page(ROOT / "src"), "reference/help.md": help_page()}
    for path in outside(files):
        made[place(path)] = page_of(path)
    for uri, text in made.items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    if page.file.generated_by is None:
        markdown = rewritten(markdown, f"docs/{page.file.src_uri}")
    markdown = NAMED.sub(r'```\1 title="\2"', markdown)
    return PICTURE.sub(r'<div class="picture" markdown>![\g<alt>](\g<light>#only-light)'
                       r'![\g<alt>](\g<dark>#only-dark)</div>', markdown)
