# SPDX-License-Identifier: Apache-2.0
"""torch.compile: code that is compiled does not call layers, so it runs as written where calls are needed."""

from __future__ import annotations

import weakref
from typing import Any

_waiting: set[int] = set()  # those whose coming step needs calls
_stances: list[Any] = []    # that which runs code as it was written, and the one before it


def _update() -> None:
    from torch._dynamo import eval_frame

    if not _stances:
        _stances[:] = [eval_frame.DynamoStance("force_eager"), eval_frame._stance]
    forced = eval_frame._stance is _stances[0]
    if _waiting and not forced:
        _stances[1] = eval_frame._stance
        eval_frame._set_stance(_stances[0])
    elif not _waiting and forced:  # another one was set by the user
        eval_frame._set_stance(_stances[1])


class EagerCode:
    """While any of these wants it, torch.compile is off in this process, as with
    `torch.compiler.set_stance("force_eager")`; what was compiled stays."""

    def __init__(self) -> None:
        self._number = id(self)
        weakref.finalize(self, _forget, self._number)

    def want(self, wanted: bool) -> None:
        (_waiting.add if wanted else _waiting.discard)(self._number)
        _update()


def _forget(number: int) -> None:
    _waiting.discard(number)
    if _stances:
        _update()
