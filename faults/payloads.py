"""Code hidden in every file that is loaded, in every form that some library would execute. None may run.

`python -m faults.payloads [N]` tries N of them.
"""

import base64
import bz2
import gzip
import hashlib
import io
import json
import lzma
import marshal
import os
import pickle
import random
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from faults.boxed import SECRET, TOKEN, Case, NotHeldError, Place, judge_all, sealed
from faults.row import Row, alone

PROPERTY = "code-execution payloads in every file that is loaded: none run"
DEFAULT = 90

Bytes = Callable[[Path], bytes]
"""The content of a file that would make the given one if it were executed."""


class _Calls:
    """An object whose unpickling calls a function."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.call


def _source(marker: Path) -> str:
    return f"open({str(marker)!r}, 'w').close()  # {TOKEN}\n"


def _shell(marker: Path) -> str:
    return f"touch {marker}"


def _pickled(marker: Path, protocol: int = 4, *, how: str = "system") -> bytes:
    calls = {
        "system": _Calls(os.system, _shell(marker)),
        "exec": _Calls(exec, _source(marker)),
        "eval": _Calls(eval, _source(marker)),
        "popen": _Calls(subprocess.Popen, ["touch", str(marker)]),
        "open": _Calls(io.open, str(marker), "w"),
    }
    return pickle.dumps(calls[how], protocol)


def _by_hand(marker: Path) -> bytes:
    return f"cos\nsystem\n(V{_shell(marker)}\ntR.".encode()


def _npy(marker: Path) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([_Calls(os.system, _shell(marker))], dtype=object), allow_pickle=True)
    return file.getvalue()


def _npz(marker: Path) -> bytes:
    file = io.BytesIO()
    weights: Any = {"0.weight": np.array([_Calls(os.system, _shell(marker))], dtype=object)}
    np.savez(file, **weights)
    return file.getvalue()


def _zip(marker: Path, **files: Bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), content(marker))
    return file.getvalue()


def _torch(marker: Path) -> bytes:
    return _zip(marker, archive__data_dot_pkl=_pickled, archive__version=lambda _: b"3\n")


def _old_torch(marker: Path) -> bytes:
    return b"".join(pickle.dumps(part, 2) for part in (0x1950A86A20F9469CFC6C, 1001, "")) + _pickled(marker, 2)


def _marshalled(marker: Path) -> bytes:
    return marshal.dumps(compile(_source(marker), TOKEN, "exec"))


def _pyc(marker: Path) -> bytes:
    import importlib.util

    return importlib.util.MAGIC_NUMBER + bytes(12) + _marshalled(marker)


def _safetensors(header: dict[str, Any], data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _metadata(marker: Path) -> bytes:
    code = {"code": _source(marker), "pickle": base64.b64encode(_pickled(marker)).decode(), "py/object": "os.system"}
    return _safetensors(
        {"__metadata__": code, "0.weight": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)
    )


def _tensor_names(marker: Path) -> bytes:
    name = f"__import__('os').system('{_shell(marker)}')"
    return _safetensors({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, bytes(4))


def _object_dtype(marker: Path) -> bytes:
    data = _pickled(marker)
    return _safetensors({"0.weight": {"dtype": "O", "shape": [1], "data_offsets": [0, len(data)]}}, data)


def _pickle_inside(marker: Path) -> bytes:
    data = _pickled(marker)
    entry = {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}
    return _safetensors({"0.weight": entry, "0.bias": entry}, data)


def _yaml(tag: str) -> Bytes:
    return lambda marker: f'!!python/{tag}:os.system ["{_shell(marker)}"]\n'.encode()


def _json(make: Callable[[Path], Any]) -> Bytes:
    return lambda marker: json.dumps(make(marker)).encode() + b"\n"


WHOLE_FILES: dict[str, Bytes] = {
    **{f"a pickle of protocol {p}": partial(_pickled, protocol=p) for p in range(6)},
    **{f"a pickle that calls {how}": partial(_pickled, how=how) for how in ("exec", "eval", "popen", "open")},
    "a pickle by hand": _by_hand,
    "an object array": _npy,
    "an archive of object arrays": _npz,
    "a torch archive": _torch,
    "an old torch file": _old_torch,
    "a joblib file": lambda marker: zlib.compress(_pickled(marker)),
    "a pickle in gzip": lambda marker: gzip.compress(_pickled(marker)),
    "a pickle in bz2": lambda marker: bz2.compress(_pickled(marker)),
    "a pickle in xz": lambda marker: lzma.compress(_pickled(marker)),
    "marshalled code": _marshalled,
    "compiled Python": _pyc,
    "Python source": lambda marker: _source(marker).encode(),
    "an archive with __main__.py": partial(_zip, ____main___dot_py=lambda marker: _source(marker).encode()),
    "a shell script": lambda marker: f"#!/bin/sh\n{_shell(marker)}\n".encode(),
    "YAML that applies": _yaml("object/apply"),
    "YAML that makes new": _yaml("object/new"),
    "YAML that names": lambda marker: f"!!python/name:os.system\n# {_shell(marker)}\n".encode(),
    "jsonpickle": _json(lambda marker: {"py/object": "os.system", "py/newargs": [_shell(marker)]}),
    "jsonpickle that reduces": _json(
        lambda marker: {"py/reduce": [{"py/function": "os.system"}, {"py/tuple": [_shell(marker)]}]}
    ),
    "a Keras lambda": _json(
        lambda marker: {"class_name": "Lambda", "config": base64.b64encode(_marshalled(marker)).decode()}
    ),
    "a Hydra target": _json(lambda marker: {"_target_": "os.system", "_args_": [_shell(marker)]}),
    "safetensors with code as metadata": _metadata,
    "safetensors with code as a name": _tensor_names,
    "safetensors of objects": _object_dtype,
    "safetensors around a pickle": _pickle_inside,
}

VALUES: dict[str, Callable[[Path], Any]] = {
    "a call": lambda marker: f"__import__('os').system('{_shell(marker)}')",
    "a statement": _source,
    "a lambda": lambda marker: f"lambda: {_source(marker)}",
    "a format string": lambda _: "{0.__class__.__init__.__globals__}{os.environ[" + SECRET + "]}{" + SECRET + "}",
    "a percent string": lambda _: f"%({SECRET})s %s %n %100000000d",
    "a shell substitution": lambda marker: f"$({_shell(marker)}) `{_shell(marker)}` ${{{SECRET}}} ; {_shell(marker)}",
    "a template": lambda _: "{{ cycler.__init__.__globals__.os.environ['" + SECRET + "'] }}<%= 7*7 %>${7*7}",
    "a YAML tag": lambda marker: f'!!python/object/apply:os.system ["{_shell(marker)}"]',
    "a pickle in base64": lambda marker: base64.b64encode(_pickled(marker)).decode(),
    "a jsonpickle": lambda marker: {"py/object": "os.system", "py/newargs": [_shell(marker)]},
    "a class": lambda marker: {"__class__": "os.system", "__module__": "os", "args": [_shell(marker)]},
    "a Hydra target": lambda marker: {"_target_": "os.system", "_args_": [_shell(marker)]},
    "a gin reference": lambda marker: f"@os.system('{_shell(marker)}')",
}

MODULES = (
    f"{TOKEN}_module:Env-v0",
    f"{TOKEN}_module:Pendulum-v1",
    f"{TOKEN}_package.inside:Env-v0",
    f"./{TOKEN}_module:Env-v0",
    f"../{TOKEN}_module:Env-v0",
    f"/tmp/{TOKEN}_module:Env-v0",
    f"{TOKEN}_module.py:Env-v0",
    f"os:system('{TOKEN}')",
    f"{TOKEN}_module:x:Env-v0",
    f"{TOKEN}_module: Env-v0",
    "antigravity:Env-v0",
)
"""Environments whose module a file must not have imported."""

FILES = (
    "config.json",
    "environment.json",
    "metrics.jsonl",
    "evals.csv",
    "policy.safetensors",
    "lock",
    "DONE",
    "manifest.json",
    "state.safetensors",
    "--config",
)

SITES: dict[str, tuple[tuple[str, ...], ...]] = {
    "config.json": (("env",), ("out",), ("algo",), ("mask", "rate"), ("sac",), ("__reduce__",), ("asked", "env")),
    "environment.json": (("command",), ("earlier",), ("packages", "jax"), ("__class__",)),
    "manifest.json": (
        ("kind",),
        ("bytes", "state.safetensors"),
        ("versions",),
        ("logged",),
        ("format",),
        ("config", "env"),
        ("config", "seed"),
        ("asked",),
        ("own",),
        ("elapsed",),
        ("step",),
        ("capacity",),
        ("obs_dim",),
        ("sha256",),
        ("learns_termination",),
        ("__reduce__",),
    ),
    "DONE": (("mean_return",), ("step",), ("__reduce__",)),
    "metrics.jsonl": (("note",), ("step",), ("__reduce__",), ("trust/share_kept",)),
    "--config": (("env",), ("out",), ("algo",), ("mask", "rate"), ("sac",), ("__reduce__",), ("asked", "env")),
}
"""Where in a JSON file a value is put."""


def _path(run: Path, file: str) -> Path:
    if file in ("manifest.json", "state.safetensors"):
        (step,) = (run / "checkpoints").glob("step-*")
        return step / file
    return run / ("config.json" if file == "--config" else file)


def _plant(run: Path, file: str, content: bytes) -> None:
    """Replace a file; the manifest vouches for a state, so that the check of its sum is passed."""
    path = _path(run, file)
    before = path.read_bytes()
    path.write_bytes(content)
    if file == "state.safetensors":
        by = {hashlib.sha256(before).hexdigest(): hashlib.sha256(content).hexdigest(), len(before): len(content)}
        manifest = path.with_name("manifest.json")
        manifest.write_text(sealed(_replaced(json.loads(manifest.read_text()), by)))


def _replaced(value: Any, by: dict[Any, Any]) -> Any:
    if isinstance(value, dict):
        return {key: _replaced(item, by) for key, item in value.items()}
    return by.get(value, value) if isinstance(value, str | int) and not isinstance(value, bool) else value


def _use(place: Place, run: Path, file: str) -> Iterator[str]:
    """Everything that reads the file; what reached the user."""
    from m2ac import SAC
    from m2ac.runs import checkpoint
    from m2ac.runs.directory import RunDirectory
    from m2ac.runs.policy import load_policy

    if file == "--config":
        for more in ([], ["--help"]):
            yield place.command("train", "--config", str(run / "config.json"), "--steps", "-1", *more).text
        return
    step = _path(run, "manifest.json").parent
    calls: list[Callable[[], Any]] = [lambda: RunDirectory.read(run)]
    if file in ("metrics.jsonl", "evals.csv"):
        calls += [lambda: RunDirectory.read(run).read_metrics(), lambda: RunDirectory.read(run).read_evals()]
    if file == "policy.safetensors":
        calls += [lambda: load_policy(run / file)]
    if file in ("manifest.json", "state.safetensors"):
        calls += [
            lambda: checkpoint.load(step),
            lambda: checkpoint.load_newest(run / "checkpoints", warn=print),
            lambda: SAC.load(run, "Pendulum-v1"),
            lambda: SAC.load(step, "Pendulum-v1"),
        ]
    for call in calls:
        yield place.call(call).text
    if file == "config.json":
        yield place.command("resume", str(run)).text
    if file in ("config.json", "policy.safetensors", "DONE"):
        yield place.command("eval", str(run), "--episodes", "1").text
    yield place.go_on(run).text


def _tried(place: Place, file: str, plant: Callable[[Path, Path], None]) -> None:
    """Plant, use, and see that nothing ran and nothing was told."""
    run = place.copy_run(done=file == "DONE")
    plant(run, place.marker)
    place.watch.seen.clear()  # of what making the payload took
    for text in _use(place, run, file):
        place.check()
        if os.environ[SECRET] in text:
            raise NotHeldError(f"the message holds a secret: {text[:200]!r}")


def _whole(place: Place, file: str, content: Bytes, *, after: bool) -> None:
    def plant(run: Path, marker: Path) -> None:
        before = _path(run, file).read_bytes() if after else b""
        _plant(run, file, before + content(marker) + (b"\n" if after else b""))

    _tried(place, file, plant)


def _value(place: Place, file: str, site: tuple[str, ...], make: Callable[[Path], Any]) -> None:
    def plant(run: Path, marker: Path) -> None:
        path = _path(run, file)
        text = path.read_text()
        lines = text.splitlines() if file == "metrics.jsonl" else [text]
        values = json.loads(lines[-1])
        inner = values
        for name in site[:-1]:
            inner = inner.setdefault(name, {})
        inner[site[-1]] = make(marker)
        last = sealed(values) if file == "manifest.json" else json.dumps(values) + "\n"
        path.write_text("".join(f"{line}\n" for line in lines[:-1]) + last)

    _tried(place, file, plant)


def _module(place: Place, env: str, file: str) -> None:
    """A file names a module, which lies where Python would find it."""
    inside = place.root / f"{TOKEN}_package"
    inside.mkdir()
    for path in (place.root / f"{TOKEN}_module.py", inside / "__init__.py", inside / "inside.py"):
        path.write_text(f"import gymnasium\n{_source(place.marker)}gymnasium.register('Env-v0', 'x:y')\n")
    sys.path.insert(0, str(place.root))
    sys.modules.pop("antigravity", None)
    _value(place, file, ("asked", "env") if file == "--config" else ("env",), lambda _: env)


def _repository(place: Place, line: str) -> None:
    """The working directory is a repository whose configuration names a command; a run notes its commit."""
    from m2ac.runs.environment import describe_environment

    identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    file = place.root / "file"
    file.write_text("one")
    for command in (["init", "-q"], ["add", "file"], [*identity, "commit", "-q", "-m", "m"]):
        subprocess.run(["git", *command], cwd=place.root, check=True)
    (place.root / ".gitattributes").write_text("* filter=evil\n")
    with (place.root / ".git" / "config").open("a") as config:
        config.write(line.replace("COMMAND", f'"{_shell(place.marker)}; cat"'))
    file.write_text("two")
    state = place.call(describe_environment).value["git"]
    if state is None or len(state["commit"]) != 40:
        raise NotHeldError(f"the commit is not told: {state}")


REPOSITORIES = {
    "a file system monitor": "[core]\nfsmonitor = COMMAND\n",
    "a filter": '[filter "evil"]\nclean = COMMAND\nsmudge = COMMAND\n',
    "a filter process": '[filter "evil"]\nprocess = COMMAND\nrequired = true\n',
    "a pager and an external diff": "[core]\npager = COMMAND\n[diff]\nexternal = COMMAND\n",
}


def _cases() -> Iterator[Case]:
    for name, content in WHOLE_FILES.items():
        for file in FILES:
            yield Case(f"{name} as {file}", partial(_whole, file=file, content=content, after=False))
        for file in ("metrics.jsonl", "evals.csv"):
            yield Case(f"{name} after the lines of {file}", partial(_whole, file=file, content=content, after=True))
    for name, make in VALUES.items():
        for file, sites in SITES.items():
            for site in sites:
                yield Case(f"{name} as {'.'.join(site)} of {file}", partial(_value, file=file, site=site, make=make))


def _special() -> Iterator[Case]:
    for env in MODULES:
        for file in ("config.json", "--config"):
            yield Case(f"the module of {env!r} in {file}", partial(_module, env=env, file=file))
    for name, line in REPOSITORIES.items():
        yield Case(f"{name} in the repository around", partial(_repository, line=line))


def _shuffled(cases: Iterator[Case]) -> list[Case]:
    """In an order of which any part is a fair sample."""
    mixed = list(cases)
    random.Random(0).shuffle(mixed)
    return mixed


CASES = [*_shuffled(_special()), *_shuffled(_cases())]


def run(n: int, scratch: Path) -> Row:
    """Try n cases, a third of them modules and repositories as long as there are such."""
    special = min(len(list(_special())), n // 3)
    chosen = [*range(special), *range(len(list(_special())), len(CASES))][:n]
    verdicts = judge_all("faults.payloads", chosen, scratch)
    failures = [f"{CASES[i].name}: {said}" for i, said in zip(chosen, verdicts, strict=True) if said is not None]
    return Row(PROPERTY, len(chosen), len(chosen) - len(failures), failures)


if __name__ == "__main__":
    alone(run, DEFAULT)
