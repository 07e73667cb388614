"""action.yml and the examples of docs/ci.md: their shell steps run as the services run them."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from actions import Job, filled, runner_environment, value
from pairs import stored

from xlamem import cli
from xlamem.gate.config import _KEYS, _LIMITS
from xlamem.gate.formats import FORMATS
from xlamem.gate.formats.as_markdown import MARKER

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = ACTION["runs"]["steps"]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
DOCS = (ROOT / "docs" / "ci.md").read_text()
DEFAULTS = {name: spec["default"] for name, spec in ACTION["inputs"].items()}
REPORTS = ["report.json", "report.md", "report.txt", "report.xml"]


def example(name: str) -> str:
    """Return the block of docs/ci.md that begins with the name of its file."""
    (text,) = re.findall(rf"```\w+\n# {re.escape(name)}\n(.*?)```", DOCS, re.S)
    return str(text)


WORKFLOW = yaml.safe_load(example(".github/workflows/memory.yml"))
JOB = WORKFLOW["jobs"]["memory"]["steps"]

PYTHON = f"""#!/usr/bin/env bash
echo "python $*" >>"$LOG"
case "$*" in
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m pip install "*) cp "$(dirname "$LOG")/bin/xlamem" "$(dirname "$0")/xlamem" ;;
memory.py) [[ $XLA_FLAGS =~ --xla_dump_to=([^ ]+) ]] && cp -r "$COMPILED" "${{BASH_REMATCH[1]}}" ;;
*) exec {shlex.quote(sys.executable)} "$@" ;;
esac
"""
"""Stands for Python: makes environments, installs xlamem, and compiles, without the network and without JAX."""
XLAMEM = f"""#!/usr/bin/env bash
exec {shlex.quote(sys.executable)} -c 'import sys; from xlamem.cli import main; sys.exit(main())' "$@"
"""
GH = """#!/usr/bin/env bash
printf '%s\\n' "gh $*" >>"$LOG"
case "$*" in *--paginate*) cat "$COMMENTS" ;; esac
"""
PIP = """#!/usr/bin/env bash
echo "pip $*" >>"$LOG"
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Dumps before and after the donations are lost."""
    return next(p for p in stored() if p.name == "cpu-donation-removed-decode").unpack(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def baseline(programs: tuple[Path, Path]) -> Path:
    path = programs[0].parent / "xlamem-baseline.json"
    assert cli.main(["check", str(programs[0]), "--baseline", str(path), "--bless"]) == 0
    return path


@pytest.fixture
def job(tmp_path: Path, baseline: Path) -> Job:
    """A job on a runner, in a repository with a baseline and the source of the model."""
    workspace, bin_ = tmp_path / "workspace", tmp_path / "bin"
    for folder in (workspace / ".git", workspace / "train", bin_):
        folder.mkdir(parents=True)
    (workspace / "train" / "program.py").write_text("\n" * 300)
    shutil.copy(baseline, workspace)
    for name, text in (("python3", PYTHON), ("python", PYTHON), ("xlamem", XLAMEM), ("gh", GH), ("pip", PIP)):
        (bin_ / name).write_text(text)
        (bin_ / name).chmod(0o755)
    environment = runner_environment(tmp_path, workspace, str(bin_))
    (tmp_path / "log").write_text("")
    (tmp_path / "comments").write_text("")
    names = {"LOG": "log", "COMMENTS": "comments"}
    environment |= {name: str(tmp_path / file) for name, file in names.items()}
    return Job(workspace, environment)


def logged(job: Job) -> list[str]:
    return Path(job.env["LOG"]).read_text().splitlines()


def check(job: Job, **inputs: str) -> tuple[bool, dict[str, str]]:
    """Use the action; return whether it succeeded, and its outputs."""
    given = {**DEFAULTS, **{name.replace("_", "-"): text for name, text in inputs.items()}}
    done, outputs = job.run(STEPS, inputs=given, env={"GITHUB_ACTION_PATH": str(ROOT)})
    context = {"steps": outputs}
    return done, {name: filled(spec["value"], context) for name, spec in ACTION["outputs"].items()}


# -- structure -----------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [*STEPS, *JOB], ids=lambda step: step.get("name", step.get("uses")))
def test_inputs_reach_scripts_through_the_environment(step: dict[str, Any]) -> None:
    """What is put into a script by an expression would be executed."""
    assert ("run" in step) != ("uses" in step)
    assert "${{" not in step.get("run", "")
    if step in STEPS and "run" in step:
        assert step["shell"] == "bash"


def test_the_interface_of_the_action() -> None:
    assert ACTION["runs"]["using"] == "composite"
    used = set(re.findall(r"inputs\.([\w-]+)", json.dumps(STEPS)))
    assert used == set(ACTION["inputs"])
    for name, spec in {**ACTION["inputs"], **ACTION["outputs"]}.items():
        assert re.fullmatch("[a-z-]+", name)
        assert spec["description"].endswith(".")
    table = re.findall(r"^\| `([\w-]+)` \| .* \| `?([^|`]*)`? \|$", DOCS.split("| input |")[1].split("\n\n")[0], re.M)
    assert [name for name, _ in table] == list(ACTION["inputs"])
    assert all(default == DEFAULTS[name] for name, default in table if DEFAULTS[name])


def test_formats_keys_and_options_are_documented() -> None:
    rows = "\n".join(re.findall(r"^\| `.*", DOCS, re.M))
    for name in (*FORMATS, *_KEYS, *_LIMITS):
        assert f"`{name}`" in rows, name
    for option in ("--bless", "--prune", "--ratchet", "--source-root", "--output", "--max-device-total", "--config"):
        assert option in DOCS


def test_every_step_is_there() -> None:
    """Reports are kept also if the check fails."""
    assert [step.get("uses", "run").partition("@")[0] for step in STEPS] == [
        "actions/setup-python", "run", "run", "actions/upload-artifact",
    ]  # fmt: skip
    assert STEPS[-1]["if"] == "always()"


# -- the action ----------------------------------------------------------------------------------


def test_green(job: Job, programs: tuple[Path, Path]) -> None:
    done, outputs = check(job, paths=str(programs[0]))
    assert (done, outputs) == (True, {"exit-code": "0"})
    assert [uses.partition("@")[0] for uses, _ in job.used] == ["actions/setup-python", "actions/upload-artifact"]
    assert job.summary.startswith(f"{MARKER}\n**passed: 1 program checked, 1 passed**")
    assert "::error" not in job.log
    assert sorted(os.listdir(job.workspace / "xlamem-report")) == REPORTS


def test_red(job: Job, programs: tuple[Path, Path]) -> None:
    """The check fails with its exit code, after everything is written, and the reports are kept."""
    done, outputs = check(job, paths=str(programs[1]))
    assert (done, outputs) == (False, {"exit-code": "1"})
    assert job.used[-1] == (
        STEPS[-1]["uses"],
        {"name": "xlamem-report", "path": "xlamem-report", "if-no-files-found": "ignore"},
    )
    annotations = [line for line in job.log.splitlines() if line.startswith("::error ")]
    assert len(annotations) == 1
    assert annotations[0].startswith("::error file=train/program.py,line=191,title=jit_decode_step")
    report = job.workspace / "xlamem-report"
    assert sorted(os.listdir(report)) == REPORTS
    assert job.summary == (report / "report.md").read_text()
    assert ElementTree.parse(report / "report.xml").getroot().get("failures") == "2"
    assert json.loads((report / "report.json").read_text())["exit_code"] == 1
    shown = re.search(r"^::stop-commands::(xlamem-\d+)\n(.*)^::\1::$", job.log, re.M | re.S)
    assert shown
    assert shown[2] == (report / "report.txt").read_text()


def test_nothing_to_check(job: Job) -> None:
    """A wrong use is an annotation, a summary and a comment too; reports of an earlier run do not stay."""
    report = job.workspace / "xlamem-report"
    report.mkdir()
    (report / "report.xml").write_text("earlier")
    done, outputs = check(job, paths="none")
    assert (done, outputs) == (False, {"exit-code": "2"})
    assert "::error title=xlamem check::none does not exist" in job.log
    assert "none does not exist" in job.summary
    assert sorted(os.listdir(report)) == ["report.md", "report.txt"]
    assert "none does not exist" in (report / "report.md").read_text()


def test_inputs(job: Job, programs: tuple[Path, Path]) -> None:
    a, b = programs
    (job.workspace / "ci").mkdir()
    (job.workspace / "ci" / "my budget.toml").write_text("[[budget]]\ndevice_total = '1TiB'\ngrowth = '70 %'\n")
    done, _ = check(
        job, paths=f"{a}\n\n{b}\n", config="ci/my budget.toml", baseline=str(a), source_root="train",
        report="out/my report", artifact="x", python="3.12",
    )  # fmt: skip
    assert done
    data = json.loads((job.workspace / "out" / "my report" / "report.json").read_text())
    assert data["config"] == "ci/my budget.toml"
    assert data["baseline"] == str(a)
    assert len(data["programs"]) == 2
    assert job.used[0][1] == {"python-version": "3.12", "update-environment": "false"}
    assert job.used[-1][1]["name"] == "x"


@pytest.mark.parametrize("text", ['"; touch hacked; "$(touch hacked)`touch hacked`\'', "a\ntouch hacked", "--help"])
def test_inputs_are_not_executed(job: Job, programs: tuple[Path, Path], text: str) -> None:
    names = ("paths", "config", "baseline", "source_root", "report")
    _, outputs = check(job, version="installed", **dict.fromkeys(names, text))
    assert outputs["exit-code"] == "2"
    _, outputs = check(job, version="installed", paths=str(programs[0]), report=text)
    assert outputs["exit-code"] == "0"
    assert sorted(os.listdir(job.workspace / text)) == REPORTS
    assert not (job.workspace / "hacked").exists()


@pytest.mark.parametrize(
    ("inputs", "requirement", "n_used"),
    [
        ({}, str(ROOT), 2),
        ({"version": "0.3.0", "python": ""}, "xlamem==0.3.0", 1),
        ({"version": "installed"}, None, 1),
    ],
)
def test_installation(
    job: Job, programs: tuple[Path, Path], inputs: dict[str, str], requirement: str | None, n_used: int
) -> None:
    assert check(job, paths=str(programs[0]), **inputs)[0]
    assert len(job.used) == n_used
    venv = f"{job.env['RUNNER_TEMP']}/xlamem-venv"
    assert logged(job) == ([] if requirement is None else [
        f"python -m venv {venv}", f"python -m pip install --quiet --disable-pip-version-check {requirement}",
    ])  # fmt: skip
    assert Path(venv).exists() == (requirement is not None)


# -- the workflow --------------------------------------------------------------------------------


def run_workflow(job: Job, compiled: Path, **github: Any) -> bool:
    """Run the workflow of docs/ci.md on what Python compiles."""
    job.github = {"token": "secret", "repository": "owner/model", **github}
    job.env["COMPILED"] = str(compiled)
    actions: dict[str, Callable[[dict[str, str]], Any]] = {"OWNER/xlamem": lambda given: check(job, **given)}
    return job.run(JOB, actions=actions)[0]


def pull_request(repository: str) -> dict[str, Any]:
    return {"event": {"pull_request": {"number": 7, "head": {"repo": {"full_name": repository}}}}}


def test_the_workflow_is_green(job: Job, programs: tuple[Path, Path]) -> None:
    assert run_workflow(job, programs[0], event={})
    assert sorted(os.listdir(job.workspace / "dumps")) == sorted(os.listdir(programs[0]))
    assert "python memory.py" in logged(job)
    assert not [line for line in logged(job) if line.startswith("gh ")]
    assert job.used[-1][0].startswith("actions/upload-artifact")


def test_the_workflow_is_red_and_comments(job: Job, programs: tuple[Path, Path]) -> None:
    assert not run_workflow(job, programs[1], **pull_request("owner/model"))
    assert "❌ failed" in job.summary
    find, write = [line for line in logged(job) if line.startswith("gh ")]
    assert "--paginate repos/owner/model/issues/7/comments" in find
    assert write == "gh api --silent repos/owner/model/issues/7/comments --field body=@xlamem-report/report.md"
    assert f'startswith("{MARKER}")' in find


def test_the_workflow_updates_its_comment(job: Job, programs: tuple[Path, Path]) -> None:
    Path(job.env["COMMENTS"]).write_text("123\n456\n")
    assert run_workflow(job, programs[0], **pull_request("owner/model"))
    assert logged(job)[-1] == (
        "gh api --silent --method PATCH repos/owner/model/issues/comments/123 --field body=@xlamem-report/report.md"
    )


def test_forks_do_not_comment(job: Job, programs: tuple[Path, Path]) -> None:
    assert not run_workflow(job, programs[1], **pull_request("fork/model"))
    assert not [line for line in logged(job) if line.startswith("gh ")]


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_comment_is_found() -> None:
    """The filter of the workflow, on comments as the service returns them."""
    script = next(step["run"] for step in JOB if step.get("name") == "Comment")
    (filter_,) = re.findall(r"own='(.*)'", script)
    comments = [{"id": 1, "body": "Nice"}, {"id": 2, "body": f"{MARKER}\n**passed**"}, {"id": 3, "body": f"> {MARKER}"}]
    done = subprocess.run(["jq", filter_], input=json.dumps(comments), text=True, capture_output=True, check=True)
    assert done.stdout.split() == ["2"]


# -- other services ------------------------------------------------------------------------------


def test_gitlab(job: Job, programs: tuple[Path, Path]) -> None:
    """The script of the job runs, and its artifacts exist, also on failure."""
    spec = yaml.safe_load(example(".gitlab-ci.yml"))["memory"]
    assert spec["artifacts"]["when"] == "always"
    environment = {**job.env, **spec["variables"], "COMPILED": str(programs[1])}
    done = subprocess.run(
        ["bash", "-e", "-c", "\n".join(spec["script"])], cwd=job.workspace, env=environment, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "failed: 1 program checked, 1 failed, 0 passed"
    for name in (*spec["artifacts"]["paths"], spec["artifacts"]["reports"]["junit"]):
        assert (job.workspace / name).stat().st_size


def test_pre_commit(job: Job, programs: tuple[Path, Path]) -> None:
    """The hooks of the example run in their order, into an empty directory."""
    (hook,) = HOOKS
    compile_, published = yaml.safe_load(example(".pre-commit-config.yaml"))["repos"]
    (used,) = published["hooks"]
    assert used["id"] == hook["id"]
    assert (hook["language"], hook["pass_filenames"], hook["always_run"]) == ("python", False, True)
    (job.workspace / "dumps").mkdir()
    commands = [compile_["hooks"][0]["entry"], f"{hook['entry']} {' '.join(used['args'])}"]
    for compiled, code in zip(programs, (0, 1), strict=True):
        options: dict[str, Any] = {"cwd": job.workspace, "env": {**job.env, "COMPILED": str(compiled)}}
        assert [subprocess.run(shlex.split(c), check=False, **options).returncode for c in commands] == [0, code]


# -- the runner of this file ---------------------------------------------------------------------


def test_the_runner_evaluates_expressions() -> None:
    context = {"inputs": {"python": "3.13", "source-root": ""}, "github": {"event": {}}}
    assert value("inputs.python != '' && inputs.version != 'installed'", context)
    assert not value("always() && github.event.pull_request.head.repo == inputs.python", context)
    assert filled("a ${{ inputs.python }}${{ inputs.source-root }}", context) == "a 3.13"


def test_a_step_that_fails_stops_the_job(job: Job) -> None:
    steps = [{"run": "false"}, {"run": "touch a"}, {"run": "touch b", "if": "always()"}]
    assert job.run(steps)[0] is False
    assert [(job.workspace / name).exists() for name in "ab"] == [False, True]
