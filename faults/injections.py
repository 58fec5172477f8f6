"""Names and texts that try to leave their place: paths, links, terminal sequences, markup, formulas. None may succeed.

`python -m faults.injections [N]` tries N of them.
"""

import io
import itertools
import json
import os
import random
import stat
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from faults.boxed import TOKEN, Case, NotHeldError, Place, judge_all, sealed
from faults.row import Row, alone

PROPERTY = "path and HTML injection: none succeed"

Judge = Callable[..., None]


def _must(holds: bool, what: str) -> None:
    if not holds:
        raise NotHeldError(what)


# Text

HOSTILE = {
    "a colour": "a\x1b[31mred",
    "a cleared screen": "a\x1b[2J\x1b[H",
    "a window title": "a\x1b]0;owned\x07",
    "a hyperlink": "a\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "the clipboard": "a\x1b]52;c;cm0gLXJmIH4=\x07",
    "a device query": "a\x1b[6n\x1bP+q544e\x1b\\",
    "an 8-bit sequence": "a\x9b31m\x9d0;owned\x9c",
    "bells and backspaces": "safe\x08\x08\x08\x08evil\x07\x7f",
    "an overwritten line": "evil\rm2ac: all is well",
    "a second line": "a\nm2ac: all is well\n",
    "other line breaks": "a\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029b",
    "text turned around": "a\u202egnp.exe\u202c\u2066x\u2069\u200f",
    "text without width": "a\u200b\u200d\ufeff\u00ad\U000e0041b",
    "half a character": "a\udc80\udcff",
    "rich markup": "[bold red]a[/bold red] [link=http://evil]b[/link] [/nonsense] :skull:",
    "a script": "<script>alert(1)</script>",
    "an image": "\"><img src=x onerror='alert(1)'>",
    "a spreadsheet formula": "=cmd|' /C calc'!A0",
    "a format": "{0.__class__} %s %(x)s {",
    "very much": "x" * 100_000,
}


def _unharmed(text: str) -> None:
    """Nothing but printable characters and the ends of our own lines."""
    odd = sorted({c for c in text if not c.isprintable() and c != "\n"})
    _must(not odd, f"{odd!r} reached the terminal in {text[:200]!r}")
    _must(len(text) < 20_000, f"{len(text)} characters reached the terminal")


def _argument(place: Place, text: str, before: list[str], after: list[str]) -> None:
    said = place.command(*before, text, *after)
    _must(said.value == 2, f"{text[:80]!r} was accepted")
    _unharmed(said.text)


def _key_of_configuration(place: Place, text: str) -> None:
    run = place.copy_run()
    _edit(run / "config.json", {text: 1})
    said = place.command("eval", str(run))
    _must(said.value == 2, "an unknown setting was accepted")
    _unharmed(said.text)


def _environment_of_a_run(place: Place, text: str) -> None:
    run = place.copy_run()
    _edit(run / "config.json", {"env": text})
    said = place.command("eval", str(run))
    _must(said.value == 2, "there is no such environment")
    _unharmed(said.text)
    _unharmed(place.go_on(run).text)


def _help_with_a_file(place: Place, text: str) -> None:
    Path("file.json").write_text(json.dumps({"env": text}))
    said = place.command("train", "--config", "file.json", "--help")
    _must(text.isprintable() or said.value == 2, "text that does not print is an environment")
    if said.value == 2:
        _unharmed(said.text)
    else:
        _must(not set(said.text) & {"\x1b", "\x07", "\x9b", "\r"}, "the help steers the terminal")


def _name_of_a_run(place: Place, text: str) -> None:
    """A run directory of that name is told as one path on one line."""
    plain = place.go_on(place.copy_run(done=True))
    name = text.replace("/", "-")[:100]
    (place.root / "run").rename(place.root / name)
    said = place.go_on(place.root / name)
    _unharmed(said.text)
    _must(said.out.count("\n") == plain.out.count("\n"), f"more lines than usual: {said.out!r}")
    (place.root / name / "DONE").unlink()
    _unharmed(place.go_on(place.root / name).text)
    _unharmed(place.command("eval", str(place.root / name), "--episodes", "1").text)


def _line_of_a_log(place: Place, text: str) -> None:
    run = place.copy_run()
    for file in ("metrics.jsonl", "evals.csv"):
        with (run / file).open("a", encoding="utf-8", errors="surrogateescape") as log:
            log.write(text.replace("\n", " ") + "\n")
        _unharmed(place.go_on(run).text)


def _damaged_checkpoint(place: Place, text: str) -> None:
    """The warning about a checkpoint names it and quotes it."""
    from m2ac import SAC

    run = place.copy_run()
    name = text.replace("/", "-")[:100]
    bad = run / "checkpoints" / f"step-9999999999{name}"
    bad.mkdir()
    (bad / "manifest.json").write_text(json.dumps({"format": text, "schema": text, "kind": text}))
    _unharmed(place.call(lambda: SAC.load(run, "Pendulum-v1")).text)
    _unharmed(place.call(lambda: SAC.load(bad, "Pendulum-v1")).text)
    _unharmed(place.go_on(run).text)


def _manifest_of_a_checkpoint(place: Place, text: str) -> None:
    from m2ac import SAC

    run = place.copy_run()
    (step,) = (run / "checkpoints").iterdir()
    values = json.loads((step / "manifest.json").read_text())
    for name in ("schema", "config", "capacity", "sha256"):
        (step / "manifest.json").write_text(sealed({**values, name: {text: text}}))
        _unharmed(place.call(lambda: SAC.load(run, "Pendulum-v1")).text)


def _failing_environment(place: Place, text: str) -> None:
    from m2ac import SAC

    class Fails(_point()):
        def reset(self, **kwargs: Any) -> Any:
            raise RuntimeError(text)

    said = place.call(lambda: SAC(Fails(), random_steps=2).learn(3))
    _must(said.error is not None, "the failure was not told")
    _unharmed(said.text)


def _reward_of_text(place: Place, text: str) -> None:
    from m2ac import SAC

    class Pays(_point()):
        def step(self, action: Any) -> Any:
            obs, _, *rest = super().step(action)
            return obs, text, *rest

    said = place.call(lambda: SAC(Pays(), random_steps=2).learn(3))
    _must(said.error is not None, "text was taken for a reward")
    _unharmed(said.text)


def _point() -> Any:
    """An environment with nothing to it."""
    import gymnasium as gym
    import numpy as np

    class Point(gym.Env[Any, Any]):
        observation_space = action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

        def reset(self, **kwargs: Any) -> Any:
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            return np.zeros(1, np.float32), 0.0, False, False, {}

    return Point


def _message_in_plain_lines(place: Place, text: str) -> None:
    from m2ac.runs.display import PlainDisplay, Status

    stream = io.StringIO()
    display = PlainDisplay(stream)
    display.message(text[:500])
    display.update(Status(1, 2, text[:500]))
    display.close()
    _unharmed(stream.getvalue())
    _must(stream.getvalue().count("\n") == 2, f"more lines than usual: {stream.getvalue()!r}")


def _message_in_the_live_region(place: Place, text: str) -> None:
    from rich.console import Console

    from m2ac.runs.display import RichDisplay, Status

    stream = io.StringIO()
    console = Console(file=stream, width=2_000, force_terminal=True, no_color=True, _environ={})
    display = RichDisplay(console)
    display.message(text[:500])
    said = stream.getvalue()
    _unharmed(said)
    _must(not text.isprintable() or text[:500] in said, f"the text was taken for markup: {said!r}")
    display._status = Status(1, 2, text[:500])
    paper = Console(file=io.StringIO(), width=2_000, record=True, no_color=True, _environ={})
    paper.print(display.render())
    shown = paper.export_text()
    _unharmed(shown)
    _must(not text.isprintable() or text[:500] in shown, f"the phase was taken for markup: {shown!r}")


def _title(place: Place, text: str) -> None:
    """A title is drawn letter by letter: no formula, no LaTeX, no second line, no trace in the file's metadata."""
    import matplotlib
    from matplotlib.mathtext import MathTextParser

    from m2ac.report.curve import draw_learning_curve

    parsed: list[str] = []

    def parse(self: Any, formula: str, *args: Any, **kwargs: Any) -> Any:
        parsed.append(formula)
        raise NotHeldError(f"read as a formula: {formula!r}")

    path = place.root / "curve.png"
    with mock.patch.object(MathTextParser, "parse", parse), matplotlib.rc_context({"text.usetex": True}):
        place.call(lambda: draw_learning_curve([{"step": 1, "return": 2.0}], title=text, path=path))
    _must(not parsed, f"read as a formula: {parsed}")
    chunks = _chunks(path.read_bytes())
    words = [data for kind, data in chunks if kind in (b"tEXt", b"zTXt", b"iTXt", b"eXIf")]
    _must(all(word.startswith(b"Software\0Matplotlib") for word in words), f"metadata of the picture: {words}")
    width, height = struct.unpack(">II", chunks[0][1][:8])
    _must((width, height) == (1200, 750), f"the picture has {width} x {height} pixels")


def _chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    found, at = [], 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        found.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + length]))
        at += 12 + length
    return found


FORMULAS = {
    "a formula": r"$x^2$",
    "a broken formula": r"$\frac{1}{0$ \left( $",
    "a macro": r"$\input{/etc/passwd}$ \write18{touch x}",
    "escapes": "\\ _ ^ { } & % # ~ \\\\ \\n",
    "one dollar": "$",
    "many dollars": "$" * 501,
    "stacked accents": "a" + "\u0301" * 200,
    "no glyphs": "\u4e2d\U0001f480\u0e01",
}


def _stored_text(place: Place, text: str) -> None:
    """Text in JSON is ASCII on lines of our own and comes back as it was."""
    from m2ac.config import RunConfig
    from m2ac.runs.directory import RunDirectory

    config = RunConfig(env=text, out=text)
    run = RunDirectory.open(place.root / "new", config)
    written = (run.path / "config.json").read_bytes()
    _must(written.isascii() and set(written) <= {10, *range(32, 127)}, "config.json is not plain ASCII")
    _must(RunDirectory.read(run.path).config == config, "it came back as something else")
    run.append_metrics({"step": 1, text: text})
    _must(run.metrics.read_bytes().count(b"\n") == 1, "a metric broke its line")
    _must(run.read_metrics() == [{"step": 1, text: text}], "it came back as something else")


def _formula_in_a_table(place: Place, text: str) -> None:
    """A table of numbers holds numbers alone, and is read as such."""
    from m2ac.runs.directory import RunDirectory

    run = place.copy_run()
    with (run / "evals.csv").open("a") as file:
        file.write(f"4,1,7,{text},200,0.5\n")
    said = place.call(lambda: RunDirectory.read(run).read_evals())
    _must(said.error is not None, f"{text!r} was read as a number")
    _unharmed(said.text)


# Names of directories

NAMES = {
    "a way up": "../../../etc/x",
    "a way up with a version": "../evil-v0",
    "two dots": "..",
    "a dot": ".",
    "an absolute path": "/etc/passwd",
    "a namespace": "space/Task-v0",
    "slashes": "//a//b//",
    "backslashes": "..\\..\\a",
    "a leading dash": "-rf",
    "two leading dashes": "--out",
    "a hidden name": ".ssh",
    "a home": "~root/x",
    "a variable": "$HOME/${PATH}",
    "a zero byte": "a\0b",
    "a line break": "a\nb",
    "a full stop at the end": "a/..",
    "coded dots": "%2e%2e%2f",
    "wide dots": "\uff0e\uff0e\uff0fa",
    "a long name": "a" * 300,
    "long letters": "ü" * 300,
    "a very long name": "../" * 50_000,
    "half a character": "\ud800/..",
    "a device": "/dev/null",
    "a bucket": "s3://bucket/x",
    "a module": "package.module:../Id-v0",
    "a shell": "; rm -rf ~ #",
}


def _default_directory(place: Place, text: str) -> None:
    """The directory of a run with such an environment is one name in `runs`, and can be made."""
    from m2ac.config import RunConfig
    from m2ac.runs.directory import default_out

    out = default_out(RunConfig(env=text))
    parts = Path(out).parts
    _must(len(parts) == 2 and parts[0] == "runs", f"{out!r} is no name in runs")
    name = parts[1]
    _must(name[0] not in ".-" and name.isascii() and len(name) <= 255, f"{name!r} is an odd name")
    _must(out != default_out(RunConfig(env=text + "x")), "another environment has the same directory")
    (place.root / out).mkdir(parents=True)
    _must(os.listdir(place.root) == ["runs"] and os.listdir("runs") == [name], "it was made elsewhere")
    said = place.command("train", "--env", text, "--steps", "4", "--random-steps", "3")
    _must(said.value == 2, "there is no such environment")
    _unharmed(said.text)
    _must(os.listdir(place.root) == ["runs"], "something was made for an environment that there is not")


def _bucket(place: Place, name: str) -> None:
    """A name like that of a network service is one of a directory."""
    from m2ac.runs.tensorboard import TensorBoard

    def write() -> None:
        board = TensorBoard(f"{name}/tensorboard")
        board.write(1, {"a": 1.0})
        board.close()

    place.call(write)
    _must(len(list((place.root / name / "tensorboard").iterdir())) == 1, "it was written elsewhere")


# Links, pipes and devices in a run directory

OWN = (
    "config.json",
    "environment.json",
    "metrics.jsonl",
    "evals.csv",
    "policy.safetensors",
    "lock",
    "DONE",
    "learning_curve.png",
    "tensorboard",
    "checkpoints",
    "checkpoints/STEP",
    "checkpoints/STEP/manifest.json",
    "checkpoints/STEP/state.safetensors",
)
TEMPORARY = (
    ".config.json.PID.tmp",
    ".environment.json.PID.tmp",
    ".metrics.jsonl.PID.tmp",
    ".evals.csv.PID.tmp",
    ".DONE.PID.tmp",
    ".policy.safetensors.tmp",
    ".policy.safetensors.PID.tmp",
    ".learning_curve.png.PID.tmp",
    "checkpoints/.STEP.PID.tmp",
    "checkpoints/.STEP.PID.old",
    "checkpoints/.step-0000000001.1.tmp",
    "checkpoints/.step-0000000001.1.old",
    "checkpoints/step-0000000001",
    "checkpoints/step-0000000009",
)


def _link(target: str) -> Callable[[Path, Path], None]:
    return lambda path, outside: path.symlink_to(target if target.startswith("/") else outside / target)


KINDS: dict[str, Callable[[Path, Path], None]] = {
    "a link to a file": _link("file"),
    "a link to a directory": _link("directory"),
    "a link to a name outside": _link("new"),
    "a link to a device without end": _link("/dev/zero"),
    "a pipe": lambda path, _: os.mkfifo(path),
    "a directory": lambda path, _: path.mkdir(),
    "a link to itself": lambda path, _: path.symlink_to(path.name),
}


def _planted(place: Place, file: str, kind: str) -> None:
    """Something else than a file lies in a run: nothing hangs, and nothing outside is touched."""
    run = place.copy_run()
    outside = _outside(place)
    path = _at(run, file)
    if path.is_dir() and not path.is_symlink():
        path.rename(outside / "kept")
    elif path.exists():
        path.unlink()
    KINDS[kind](path, outside)
    before = _snapshot(outside)
    _use(place, run)
    _unchanged(place, outside, before)


def _moved(place: Place, file: str) -> None:
    """A file or directory of the run lies outside, with a link in its place: what is outside stays as it is."""
    run = place.copy_run()
    outside = _outside(place)
    path = _at(run, file)
    if not path.exists():
        path.write_text("{}\n")
    path.rename(outside / path.name)
    path.symlink_to(outside / path.name)
    before = _snapshot(outside)
    _use(place, run)
    _unchanged(place, outside, before)


def _many_old_ones(place: Place, kind: str) -> None:
    """Checkpoints too many are deleted where they are, not where they point to."""
    run = place.copy_run()
    outside = _outside(place)
    step = _at(run, "checkpoints/STEP")
    for number in range(5):
        (outside / f"step-000000000{number}").mkdir()
        (outside / f"step-000000000{number}" / "inside").write_text("precious")
        if kind == "links" and number < 4:
            (step.parent / f"step-000000000{number}").symlink_to(outside / f"step-000000000{number}")
    if kind == "all":
        step.rename(outside / "kept")
        step.parent.rmdir()
        step.parent.symlink_to(outside)
    before = _snapshot(outside)
    _use(place, run)
    _unchanged(place, outside, before)


def _outside(place: Place) -> Path:
    outside = place.root / "outside"
    (outside / "directory").mkdir(parents=True)
    (outside / "file").write_text("precious\n")
    (outside / "directory" / "file").write_text("precious\n")
    return outside


def _at(run: Path, file: str) -> Path:
    (step,) = (run / "checkpoints").glob("step-*")
    return run / file.replace("STEP", step.name).replace("PID", str(os.getpid()))


def _use(place: Place, run: Path) -> None:
    """All that reads and writes a run."""
    from m2ac import SAC
    from m2ac.runs.directory import EvalRow, Logged, RunDirectory
    from m2ac.runs.policy import load_policy
    from m2ac.runs.tensorboard import TensorBoard

    row: EvalRow = {"step": 4, "episode": 9, "seed": 7, "return": 1.0, "length": 3, "seconds": 0.5}

    def log() -> None:
        board = TensorBoard(run / "tensorboard")
        board.write(4, {"a": 1.0})
        board.close()

    def hold() -> None:
        RunDirectory.open(run, RunDirectory.read(run).config).close()

    reading: list[Callable[[], Any]] = [
        lambda: RunDirectory.read(run).read_metrics(),
        lambda: RunDirectory.read(run).read_evals(),
        lambda: load_policy(run / "policy.safetensors"),
        lambda: SAC.load(run, "Pendulum-v1"),
        hold,
        log,
    ]
    writing: list[Callable[[], Any]] = [
        lambda: RunDirectory.read(run).append_metrics({"step": 4}),
        lambda: RunDirectory.read(run).append_evals([row]),
        lambda: RunDirectory.read(run).cut_back(Logged(0, 0)),
        lambda: RunDirectory.read(run).mark_done({}),
    ]
    for call in reading:
        _unharmed(place.call(call).text)
    _unharmed(place.command("eval", str(run), "--episodes", "1").text)
    _unharmed(place.go_on(run).text)
    for call in writing:
        _unharmed(place.call(call).text)


def _snapshot(path: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below a directory: what it is, when it was changed, what it holds."""
    found = {}
    for file in sorted(path.rglob("*")):
        status = file.lstat()
        content = file.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[str(file.relative_to(path))] = (status.st_mode, status.st_mtime_ns, content)
    return found


def _unchanged(place: Place, outside: Path, before: dict[str, tuple[Any, ...]]) -> None:
    after = _snapshot(outside)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    _must(not changed, f"outside of the run these changed: {changed}")
    _must(sorted(os.listdir(place.root)) == ["outside", "run"], f"beside the run: {os.listdir(place.root)}")


def _saved_over(place: Place, kind: str) -> None:
    """Saving an agent replaces a checkpoint or nothing."""
    from m2ac import SAC

    outside = _outside(place)
    agent = SAC.load(place.copy_run(), "Pendulum-v1")
    path = place.root / "run" / "saved"
    if kind == "a directory of the user's":
        path = outside / "directory"
    elif kind == "a file of the user's":
        path = outside / "file"
    else:
        KINDS[kind](path, outside)
    before = _snapshot(outside)
    _unharmed(place.call(lambda: agent.save(path)).text)
    _unchanged(place, outside, before)


def _edit(file: Path, values: dict[str, Any]) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


SINKS: dict[str, Judge] = {
    "as a command": partial(_argument, before=[], after=[]),
    "as an environment": partial(_argument, before=["train", "--env"], after=[]),
    "as an environment's module": lambda place, text: _argument(place, f"{text}:Id-v0", ["train", "--env"], []),
    "as a run": partial(_argument, before=["eval"], after=[]),
    "as a file of settings": partial(_argument, before=["train", "--config"], after=[]),
    "as an argument of train": partial(_argument, before=["train"], after=[]),
    "as an option": lambda place, text: _argument(place, f"--{text}", ["train"], ["1"]),
    "as a number": partial(_argument, before=["train", "--steps"], after=[]),
    "as a choice": partial(_argument, before=["train", "--algo"], after=[]),
    "as an argument of envs": partial(_argument, before=["envs"], after=[]),
    "as a setting in config.json": _key_of_configuration,
    "as the environment of a run": _environment_of_a_run,
    "in the help": _help_with_a_file,
    "as the name of a run": _name_of_a_run,
    "as a line of a log": _line_of_a_log,
    "as the name of a checkpoint": _damaged_checkpoint,
    "in a manifest": _manifest_of_a_checkpoint,
    "raised by an environment": _failing_environment,
    "as a reward": _reward_of_text,
    "as a message in plain lines": _message_in_plain_lines,
    "as a message in the live region": _message_in_the_live_region,
    "in a title": _title,
    "in JSON": _stored_text,
}


Group = list[Case]


def _texts() -> Iterator[Group]:
    for sink, judge in SINKS.items():
        yield [Case(f"{name} {sink}", partial(judge, text=text)) for name, text in HOSTILE.items()]
    yield [Case(f"{name} in a title", partial(_title, text=text)) for name, text in FORMULAS.items()]
    tables = ("=1+1", "+1+1|x", "@SUM(1)", "-2+3+cmd|' /C calc'!A0", '"=1"', "1\t=2", "0x10")
    yield [Case(f"the formula {text!r} in evals.csv", partial(_formula_in_a_table, text=text)) for text in tables]


def _names() -> Iterator[Group]:
    yield [Case(f"{name} as the directory of a run", partial(_default_directory, text=t)) for name, t in NAMES.items()]
    buckets = ("s3:bucket", "gs:bucket", "s3-bucket:x", "http:host", f"{TOKEN}:x")
    yield [Case(f"a directory with the name {name}", partial(_bucket, name=name)) for name in buckets]


def _files() -> Iterator[Group]:
    for file in (*OWN, *TEMPORARY):
        cases = [Case(f"{kind} as {file}", partial(_planted, file=file, kind=kind)) for kind in KINDS]
        if file in OWN:
            cases.append(Case(f"{file} moved outside behind a link", partial(_moved, file=file)))
        yield cases
    yield [
        Case(f"old checkpoints outside, {kind} behind a link", partial(_many_old_ones, kind=kind))
        for kind in ("links", "all")
    ]
    places = ("a directory of the user's", "a file of the user's", *KINDS)
    yield [Case(f"an agent saved over {kind}", partial(_saved_over, kind=kind)) for kind in places]


def _mixed(*groups: Group) -> list[Case]:
    """One of each group in turn, so that the first of them are a fair sample of all."""
    rng = random.Random(0)
    for group in groups:
        rng.shuffle(group)
    return [case for turn in itertools.zip_longest(*groups) for case in turn if case is not None]


CASES = _mixed(*_texts(), *_names(), *_files())
DEFAULT = 120


def run(n: int, scratch: Path) -> Row:
    """Try the first n cases."""
    chosen = range(min(n, len(CASES)))
    verdicts = judge_all("faults.injections", chosen, scratch)
    failures = [f"{CASES[i].name}: {said}" for i, said in zip(chosen, verdicts, strict=True) if said is not None]
    return Row(PROPERTY, len(chosen), len(chosen) - len(failures), failures)


if __name__ == "__main__":
    alone(run, DEFAULT)
