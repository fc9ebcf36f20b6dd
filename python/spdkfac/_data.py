# SPDX-License-Identifier: Apache-2.0
"""The layer tables and cost models that come with the package."""

from __future__ import annotations

from pathlib import Path

from .errors import ConfigError

FOLDER = Path(__file__).parent / "data"


def names(kind: str) -> list[str]:
    """What there is of a kind: `models` or `clusters`."""
    return sorted(path.stem for path in (FOLDER / kind).glob("*.json"))


def text(kind: str, name_or_path: str | Path) -> tuple[str, str]:
    """The JSON text of a name of the data or of a file, and what to call it in errors."""
    path = Path(name_or_path)
    if isinstance(name_or_path, str) and path.suffix != ".json" and len(path.parts) == 1:
        if name_or_path not in names(kind):
            raise ConfigError(f'{kind}: there is no "{name_or_path}"; choose one of '
                              f'{", ".join(names(kind))}, or give the path of a .json file')
        path = FOLDER / kind / f"{name_or_path}.json"
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); check the path") from error
