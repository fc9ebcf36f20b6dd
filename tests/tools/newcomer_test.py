#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/newcomer.py finds every command of a README, runs them in a clone, and says which one failed."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import newcomer

README = """# A project
`make last` repeats it.

```sh
touch made   # a comment
ls \\
  made
```

```diff
+import math
 rate = 1
-rate = 2
+rate = math.pi
```

```python
never_run()
```

```sh
ls absent
touch made
```
"""


class NewcomerTest(unittest.TestCase):
    def test_commands_are_those_of_the_text_each_once(self) -> None:
        self.assertEqual(newcomer.commands(README),
                         ["touch made", "ls   made", "python train.py", "ls absent", "make last"])

    def test_the_program_has_the_lines_of_the_diff_after_it(self) -> None:
        text = newcomer.program(README)
        self.assertIn("\nimport math\nrate = 1\nrate = math.pi\n", text)
        self.assertNotIn("rate = 2", text)

    def test_the_projects_own_readme_makes_a_program(self) -> None:
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        compile(newcomer.program(readme), "train.py", "exec")
        for command in ("pip install .", "python train.py", "make train", "make test"):
            self.assertIn(command, newcomer.commands(readme))

    def test_what_fails_is_named(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source, out = Path(folder, "source"), Path(folder, "out.json")
            source.mkdir()
            (source / "README.md").write_text(README, encoding="utf-8")
            git = ["git", "-C", str(source), "-c", "user.name=a", "-c", "user.email=a@b"]
            for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "one"]):
                subprocess.run([*git, *words], check=True)
            arguments = ["newcomer.py", str(Path(folder, "run")), "--without", "python train.py",
                         "--without", "make last", "--out", str(out)]
            text = io.StringIO()
            with (mock.patch.object(newcomer, "ROOT", source), mock.patch.object(sys, "argv", arguments),
                  contextlib.redirect_stdout(text)):
                self.assertEqual(newcomer.main(), 1)
            self.assertIn("failed: ls absent", text.getvalue())
            rows = json.loads(out.read_text(encoding="utf-8"))["commands"]
            self.assertEqual([row["exit_code"] == 0 for row in rows[-3:]], [True, True, False])
            self.assertTrue(Path(folder, "run/spdkfac/made").exists())


if __name__ == "__main__":
    unittest.main()
