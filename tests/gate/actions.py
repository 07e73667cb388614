"""A runner of GitHub Actions that is large enough for action.yml and the workflow of docs/ci.md.

It evaluates expressions and conditions, runs shell steps as the service does, and records the steps that use actions.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_EXPRESSION = re.compile(r"\$\{\{(.*?)\}\}")
_PATH = re.compile(r"(?<![\w'.-])[a-z_]+(?:\.[A-Za-z_][\w-]*)+")
_SHELLS = {"bash": ["bash", "--noprofile", "--norc", "-eo", "pipefail"], None: ["bash", "-e"]}

Context = Mapping[str, Any]


@dataclass
class Job:
    """The state of a job on a runner."""

    workspace: Path
    env: dict[str, str]
    github: Context = field(default_factory=dict)
    summary: str = ""
    """The summaries of all steps."""
    log: str = ""
    used: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """The actions that were used, and their inputs."""

    def run(
        self,
        steps: list[dict[str, Any]],
        *,
        inputs: Mapping[str, str] | None = None,
        actions: Mapping[str, Callable[[dict[str, str]], tuple[bool, dict[str, str]]]] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> tuple[bool, dict[str, dict[str, str]]]:
        """Run steps; return whether all succeeded, and the outputs of those that have an id.

        `actions` execute steps that use them, by name without the version; others succeed without outputs.
        """
        succeeded = True
        outputs: dict[str, dict[str, str]] = {}
        for step in steps:
            context = {"inputs": inputs or {}, "github": self.github, "steps": outputs}
            condition = step.get("if", "success()")
            if "always()" not in condition and not succeeded:
                continue
            if not value(condition, context):
                continue
            if "uses" in step:
                given = {key: filled(text, context) for key, text in step.get("with", {}).items()}
                self.used.append((step["uses"], given))
                action = (actions or {}).get(step["uses"].partition("@")[0], lambda _: (True, {}))
                done, found = action(given)
            else:
                own = {key: filled(text, context) for key, text in step.get("env", {}).items()}
                done, found = self._shell(step, {**(env or {}), **own})
            succeeded = succeeded and done
            if "id" in step:
                outputs[step["id"]] = {"outputs": found}
        return succeeded, outputs

    def _shell(self, step: dict[str, Any], env: Mapping[str, str]) -> tuple[bool, dict[str, str]]:
        files = {name: self.workspace.parent / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_ENV")}
        for file in files.values():
            file.write_text("")
        script = self.workspace.parent / "step.sh"
        script.write_text(step["run"])
        shell = [*_SHELLS[step.get("shell")], str(script)]
        environment = {**self.env, **env, **{name: str(file) for name, file in files.items()}}
        done = subprocess.run(
            shell, cwd=self.workspace, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            check=False,
        )  # fmt: skip
        self.log += done.stdout
        self.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        self.env |= pairs(files["GITHUB_ENV"])
        return done.returncode == 0, pairs(files["GITHUB_OUTPUT"])


def pairs(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def filled(text: Any, context: Context) -> str:
    """Return a value of a step with its expressions evaluated."""
    if isinstance(text, bool):
        return str(text).lower()
    return _EXPRESSION.sub(lambda m: str(value(m[1], context)), str(text))


def value(expression: str, context: Context) -> Any:
    """Evaluate an expression of paths, texts, `==`, `!=`, `&&`, `||`, always() and success()."""
    code = _PATH.sub(lambda m: repr(looked_up(m[0], context)), expression.strip())
    code = code.replace("&&", " and ").replace("||", " or ")
    return eval(code, {"__builtins__": {}}, {"always": lambda: True, "success": lambda: True})


def looked_up(path: str, context: Context) -> Any:
    found: Any = context
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return "" if found is None else found


def runner_environment(folder: Path, workspace: Path, path: str) -> dict[str, str]:
    """Return the environment that the service gives every step."""
    temporary = folder / "runner-temp"
    temporary.mkdir(exist_ok=True)
    kept = {name: text for name, text in os.environ.items() if name in ("HOME", "LANG", "PYTHONPATH", "TMPDIR")}
    return {
        **kept,
        "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_WORKSPACE": str(workspace),
        "GITHUB_REPOSITORY": "owner/model",
        "RUNNER_TEMP": str(temporary),
    }
