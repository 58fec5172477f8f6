"""Every block of code in README.md and docs/ is tried: what is shown there can be typed.

- `python` blocks of a document are run one after the other in one process, in a directory with a small finished run and
  an export. Numbers of steps are replaced by SMALLER, networks are small (SMALL), and names that stand for the reader's
  own things (`robot`, `my_package`) are in STAGE. A block that begins with `# NAME.py` is saved under that name.
- `sh` blocks, and commands within the text, are read line by line: `m2ac` by its real parser, `make` against the
  Makefile, `python -m` and `pip install` against what there is, all else against ALLOWED.
- `text` blocks are output. Anything else fails, unless the line before says `<!-- not run: REASON -->`.
"""

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from tiny import arguments, tiny

from m2ac import cli
from m2ac.config import RunConfig

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXEMPT = {"text", "{toctree}", "{eval-rst}"}  # output; and what Sphinx reads, which tests/test_docs.py builds
RUN_ELSEWHERE = {"docs/first-look.md"}  # by tests/test_docs_first_look.py, with its outputs
RUN = "runs/Pendulum-v1-m2ac-s0"

SMALLER = {
    "2_500": "70",
    "5_000": "70",
    "25_000": "70",
    "random_steps=1_000": "random_steps=40",
    "random_steps=500": "random_steps=40",
    "random_steps=200": "random_steps=40",
    "range(1_000)": "range(100)",
    "seed in range(4)": "seed in range(2)",
    "episodes=10": "episodes=1",
    "length=5.0": "length=0.5",
}
"""What is shortened before a block is run."""

SMALL = {
    "random_steps": 40,
    "updates_per_step": 1,
    "rollouts_per_update": 4,
    "model_every": 20,
    "model": {"hidden": 8, "layers": 1, "weight_decay": (0.0, 0.0), "members": 3, "elites": 2, "max_epochs": 2},
    "sac": {"hidden": 8, "batch_size": 16},
}
"""Settings that a block does not give."""

STAGE = f"""
import sys, types
import gymnasium as gym, numpy as np
import m2ac.agent, m2ac.live.control
from m2ac.config import UNUSED

small = {SMALL!r}

def shrink(kind):
    whole = kind.__init__
    def __init__(self, *args, **settings):
        unused = UNUSED[settings.get("algo", getattr(self, "algo", "m2ac"))]
        read = {{name: value for name, value in small.items() if name not in unused}}
        whole(self, *args, **{{**read, **settings}})
    kind.__init__ = __init__

shrink(m2ac.agent.Agent)
shrink(m2ac.live.control.Live)

class MyTask(gym.Env):
    observation_space = gym.spaces.Box(-10.0, 10.0, (3,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.uniform(0.4, 1.0, 3).astype(np.float32), {{}}
    def step(self, action):
        obs = self.np_random.uniform(0.2, 1.0, 3).astype(np.float32)
        return obs, 1.0, bool(obs[0] < 0.3), False, {{}}

for name in ("my_package", "my_package.my_module"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["my_package.my_module"].MyTask = MyTask
gym.register("MyTask-v0", MyTask, max_episode_steps=20)

class Robot:
    steps = 0
    @property
    def on(self):
        return self.steps < 60
    def read(self):
        return np.zeros(4)
    def apply(self, action):
        self.steps += 1
        return np.ones(4), 1.0, False

robot, obs = Robot(), np.zeros(3, np.float32)
"""
"""What a reader has and a test has not."""

PLACEHOLDERS = {"my_robot:MyRobot-v0", "my_task:Heater-v0", "my_package.my_module:MyTask-v0"}
"""Environments that stand for the reader's own."""

ALLOWED = {
    "ray start": "Ray's own command; starts a node of a cluster",
    "apt install": "Debian's; what it installs is tried by whoever makes films",
    "cd": "the shell's",
    "git clone": "git's; needs a network",
}
"""Other lines, and why they are not tried."""


class Block(NamedTuple):
    """A fenced block of a document."""

    document: Path
    line: int
    language: str
    code: str
    excuse: str | None


def blocks_of(document: Path) -> list[Block]:
    found, lines, i = [], document.read_text().splitlines(), 0
    while i < len(lines):
        opening = re.fullmatch(r"( *)(```+)(.*)", lines[i])
        if opening:
            end = next(j for j in range(i + 1, len(lines)) if lines[j].strip() == opening[2])
            before = next((line for line in reversed(lines[:i]) if line.strip()), "")
            excuse = re.fullmatch(r"<!-- not run: (\S.*?) -->", before.strip())
            code = "\n".join(line.removeprefix(opening[1]) for line in lines[i + 1 : end])
            found.append(Block(document, i + 1, opening[3].strip(), code, excuse and excuse[1]))
            i = end
        i += 1
    return found


BLOCKS = [block for document in DOCUMENTS for block in blocks_of(document)]


def name_of(document: Path) -> str:
    return str(document.relative_to(ROOT))


def where(block: Block) -> str:
    return f"{name_of(block.document)}:{block.line}"


def commands_of(code: str) -> list[list[str]]:
    """The words of each command; without comments, variables before it, and programs that only start another."""
    found = []
    for line in re.sub(r"\\\n", " ", code).splitlines():
        words = shlex.split(line, comments=True)
        for part in " \0 ".join(words).replace(" \0 && \0 ", "\1").replace(" \0 & \0 ", "\1").split("\1"):
            command = [word for word in part.split(" \0 ") if word]
            while command and (command[0] in ("srun", "nohup", "taskset") or re.match(r"\w+=", command[0])):
                command = command[3 if command[0] == "taskset" else 1 :]
            if command:
                found.append([command[0].removeprefix(".venv/bin/"), *command[1:]])
    return found


@pytest.mark.parametrize("block", BLOCKS, ids=where)
def test_a_block_is_of_a_kind_that_is_tried_or_says_why_not(block):
    assert block.language in {"python", "sh"} | EXEMPT or block.excuse, (
        f"{where(block)}: label the block python, sh or text, or write <!-- not run: REASON --> before it"
    )


class Parsed(Exception):  # noqa: N818
    """The command line was understood."""


@pytest.fixture
def only_parse(monkeypatch, tmp_path):
    """Commands end once they have understood what was typed."""
    from m2ac.envs import find_task
    from m2ac.experiments.figures import find_experiment

    parse = importlib.import_module("m2ac.cli.parsing").parse

    def parse_and_end(kind, args, prog, **more):
        result = parse(kind, args, prog, **more)
        if isinstance(result, RunConfig) and result.env not in PLACEHOLDERS:
            find_task(result.env)
        if prog == "m2ac reproduce":
            find_experiment(result.name)
        raise Parsed

    for entry in cli.COMMANDS.values():
        module = importlib.import_module(f"m2ac.cli.{entry.partition(':')[0]}")
        monkeypatch.setattr(module, "parse", parse_and_end)
    monkeypatch.chdir(tmp_path)


def check_m2ac(args: list[str], capsys) -> None:
    try:
        code = cli.main(args)
    except Parsed:
        return
    assert code == 0, capsys.readouterr().err


def check_make(args: list[str]) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    wanted = [arg for arg in args if "=" not in arg]
    assert wanted, "make without a target"
    assert set(wanted) <= targets, f"the Makefile has no {set(wanted) - targets}"


def check_python(args: list[str]) -> None:
    if args[0] != "-m":
        assert (ROOT / args[0]).is_file(), f"there is no {args[0]}"
        return
    done = subprocess.run(
        [sys.executable, "-m", args[1], "--help"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    options = {arg.partition("=")[0] for arg in args[2:] if arg.startswith("--")}
    unknown = [option for option in options if not re.search(rf"{option}\b", done.stdout)]
    assert not unknown, f"python -m {args[1]} --help does not name {unknown}"


def check_pip(args: list[str]) -> None:
    assert args[0] == "install"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for arg in args[1:]:
        found = re.fullmatch(r"(?:m2ac|\.)(?:\[([\w,]+)\])?", arg)
        assert found or arg in ("pygame-ce",), f"what is {arg}?"
        assert not found or set((found[1] or "docs").split(",")) <= set(extras), f"{arg} has an unknown extra"


def check_command(words: list[str], capsys) -> None:
    program, args = words[0], words[1:]
    checks = {"make": check_make, "python": check_python, "pip": check_pip}
    if program == "m2ac":
        check_m2ac(args, capsys)
    elif program in checks:
        checks[program](args)
    else:
        assert program in ALLOWED or " ".join(words[:2]) in ALLOWED, f"{shlex.join(words)} is not on the list ALLOWED"


SHELL = [block for block in BLOCKS if block.language == "sh" and not block.excuse]


@pytest.mark.parametrize("block", SHELL, ids=where)
def test_every_line_of_a_shell_block_can_be_typed(block, only_parse, capsys):
    for words in commands_of(block.code):
        check_command(words, capsys)


def inline(document: Path) -> list[str]:
    """Commands within the text, but for those that name their arguments in capitals, brackets or dots."""
    text = re.sub(r"^ *```.*?^ *```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    spans = re.findall(r"(?<!`)`((?:m2ac|make|python -m|pip install) [^`]+)`", text)
    return [span for span in spans if not re.search(r"[\[|…$]| [A-Z][A-Z_]*\b", span.replace("'m2ac[", "'m2ac<"))]


@pytest.mark.parametrize("document", [each for each in DOCUMENTS if inline(each)], ids=name_of)
def test_every_command_within_the_text_can_be_typed(document, only_parse, capsys):
    for span in dict.fromkeys(inline(document)):
        for words in commands_of(span):
            if len(words) == 2 and words[0] == "m2ac" and words[1] in cli.COMMANDS:
                continue  # the command is only named
            check_command(words, capsys)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory):
    """A directory with a finished run and its export, which examples may take for granted."""
    folder = tmp_path_factory.mktemp("workshop")
    small = {**tiny("m2ac"), "horizon": 1, "steps": 60, "eval_episodes": 1, "final_episodes": 1}
    for command in (["train", *arguments(small), "--out", RUN], ["export", RUN, "--formats", "numpy"]):
        done = subprocess.run(
            [Path(sys.executable).parent / "m2ac", *command],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    for name in ("policy.py", "policy.npz"):
        shutil.copy(folder / RUN / "export" / name, folder)
    return folder


def program_of(blocks: list[Block]) -> str:
    """The blocks as one program, shortened; each tells its place where it fails."""
    parts = [STAGE]
    for block in blocks:
        code = block.code
        for long, short in SMALLER.items():
            code = re.sub(rf"(?<![\w]){re.escape(long)}(?![\w])" if long[0].isdigit() else re.escape(long), short, code)
        file = re.match(r"# (\w+\.py)\n", code)
        if file:
            parts.append(f"open({file[1]!r}, 'w').write({code!r})\nimport {file[1].removesuffix('.py')}")
        else:
            parts.append(f"exec(compile({code!r}, {where(block)!r}, 'exec'))")
    return "\n".join(parts)


PYTHON = {
    document: [block for block in blocks_of(document) if block.language == "python" and not block.excuse]
    for document in DOCUMENTS
    if name_of(document) not in RUN_ELSEWHERE
}


@pytest.mark.parametrize("document", [each for each, blocks in PYTHON.items() if blocks], ids=name_of)
def test_the_python_of_a_document_runs(document, workshop, tmp_path):
    shutil.copytree(workshop, tmp_path, dirs_exist_ok=True)
    (tmp_path / "blocks.py").write_text(program_of(PYTHON[document]))
    done = subprocess.run(
        [sys.executable, "blocks.py"],
        cwd=tmp_path,
        env={**os.environ, "SDL_VIDEODRIVER": "dummy"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_wrong_line_is_noticed(only_parse, capsys):
    for wrong in (
        "m2ac trian",
        "m2ac train --horizn 3",
        "m2ac train --env HalfCheeta",
        "m2ac reproduce nosy",
        "make breakfast",
        "python -m benchmarks.learning run --kernel 0",
        "pip install 'm2ac[everything]'",
        "conda activate m2ac",
    ):
        with pytest.raises(AssertionError):
            check_command(commands_of(wrong)[0], capsys)


def test_every_shortening_is_needed():
    code = "\n".join(block.code for blocks in PYTHON.values() for block in blocks)
    assert [long for long in SMALLER if long not in code] == []


def test_a_block_is_excused_by_a_reason_and_not_without_one(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```\nx\n```\n\n<!-- not run: needs a GPU -->\n\n```python\nx\n```\n\n<!-- not run: -->\n```sh\nx\n```\n"
    )
    assert [(block.language, block.line, block.excuse) for block in blocks_of(page)] == [
        ("", 1, None),
        ("python", 7, "needs a GPU"),
        ("sh", 12, None),
    ]


def test_a_line_of_shell_is_taken_apart_into_its_commands():
    line = "A=1 taskset -c 0 m2ac train --seed 0 & .venv/bin/m2ac eval \\\n 'a b'  # both\n#SBATCH --array=1-640"
    assert commands_of(line) == [["m2ac", "train", "--seed", "0"], ["m2ac", "eval", "a b"]]
