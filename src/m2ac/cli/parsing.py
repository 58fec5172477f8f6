"""What is typed, as settings: tyro's answer or its complaint as one line, and what a file may give."""

import io
import itertools
import json
import re
import shlex
import sys
from contextlib import redirect_stderr
from typing import Any

from m2ac.config import ASKED, LIVE, RunConfig
from m2ac.resolving import as_written
from m2ac.settings import ConfigError, check, from_dict


def parse(kind: type[Any], args: list[str], prog: str, *, default: Any = None, description: str | None = None) -> Any:
    """tyro's result, or its complaint as one line."""
    import tyro

    said = io.StringIO()
    given = {} if default is None else {"default": default}
    try:
        with redirect_stderr(said):
            return tyro.cli(kind, args=args, prog=prog, description=description, **given)
    except SystemExit as end:
        if not end.code:
            raise
        raise ConfigError(f"{one_line(said.getvalue())} See {prog} --help.") from None


def one_line(box: str) -> str:
    """The message of one of tyro's boxes, with its first suggestion; a terminal without Unicode has rules for boxes."""
    lines = [line.strip("│╭╮╰╯ ") for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()]
    sections: list[list[str]] = [[]]
    for line in lines[1:]:  # after the title
        if line and not line.strip("─-"):
            sections.append([])
        elif line:
            sections[-1].append(line)
    sections = [section for section in sections if section]
    message = " ".join(" ".join(sections[0]).split()).rstrip(".") + "."
    message = _plainly(message)
    for section in sections[1:]:
        if section[0].startswith("Perhaps you meant") and len(section) > 1:
            message += f' Perhaps you meant "{section[1].split()[0]}"?'
    return message


def _plainly(message: str) -> str:
    """tyro's complaint about a value in the words of our own."""
    for pattern, words in (
        (r"no type matching (?P<kind>\S+) could.* from \[(?P<value>.*?)\]\..*", None),
        (r"invalid literal for int\(\) with base 10: (?P<value>.*)\.", "a whole number"),
        (r"could not convert string to float: (?P<value>.*)\.", "a number"),
        (r"Could not find valid parse for arguments: \[(?P<value>.*)\]\.", "as the help says"),
    ):
        found = re.fullmatch(rf"Error parsing (?P<name>\S+): {pattern}", message)
        if found:
            kind = words or " or ".join(_KINDS.get(k, f'"{k.strip("{}")}"') for k in found["kind"].split("|"))
            return f"{found['name']} must be {kind}, got {found['value']}."
    return message


_KINDS = {"INT": "a whole number", "FLOAT": "a number", "{None}": "None"}


def check_data_is_given(args: list[str]) -> None:
    """Refuse --data without a file, which tyro takes for no logs; an empty variable of the shell leads to it."""
    for option, value in itertools.pairwise([*args, "--"]):
        check(
            option != "--data" or not value.startswith("--") or "--help" in args,
            "--data needs at least one file, such as log.csv; leave --data out to begin without logs",
        )


def with_config_file(args: list[str]) -> tuple[list[str], RunConfig | None]:
    """Take `--config FILE` out of the arguments; the file's values are the defaults of the others."""
    for i, arg in enumerate(args):
        name, _, value = arg.partition("=")
        if name != "--config":
            continue
        rest = args[:i] + args[i + 1 :]
        if not value:
            if len(args) == i + 1:
                raise ConfigError("--config needs a file, such as the config.json of a run")
            value, rest = args[i + 1], args[:i] + args[i + 2 :]
        values = _config_file(value)
        try:
            default = from_dict(RunConfig, values)
            check(default.env.isprintable(), f"env must be printable text, got {default.env!r}; see m2ac envs")
        except ConfigError as error:
            raise ConfigError(f"--config {value}: {error}") from None
        if not any(arg.partition("=")[0] == "--env" for arg in rest):
            confirmed_env(default.env, None, where=f"--config {value}")
        return rest, default
    return args, None


def _config_file(path: str) -> Any:
    """The settings in a run's `config.json`, or whatever else is in the file."""
    from m2ac.runs.directory import LARGEST_CONFIG

    remedy = "give the config.json of a run"
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST_CONFIG + 1)
        check(len(text) <= LARGEST_CONFIG, f"--config {path} has more than {LARGEST_CONFIG} bytes; {remedy}")
        values = json.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read --config {path}: {error.strerror}; {remedy}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--config {path} is not JSON: {error}; {remedy}") from None
    if isinstance(values, dict):
        # What was asked for, not what it came to: with another task or algorithm that would come to something else.
        values = as_written(values[ASKED]) if ASKED in values else values
    if isinstance(values, dict):
        values.pop("out", None)  # the file's run has that directory
    return values


def confirmed_env(stored: str, named: str | None, *, where: str) -> str:
    """The environment that a file stores, where the user names it too or it imports no module.

    `package.module:Id-v0` imports, hence runs, whatever module it names. The command line may ask for that; a file,
    which may have come from anybody, may not.
    """
    if stored == LIVE:
        check(
            named is not None,
            f"{where} is of a control loop, which cannot be played; add --env ID of a simulation with the same "
            f"observations and actions",
        )
        assert named is not None
        return named
    module, _, _ = stored.rpartition(":")
    if named is None and module and module not in sys.modules:
        raise ConfigError(
            f"{where} has the environment {stored!r}, for which a module of code would be imported; "
            f"if you trust it, add --env {shlex.quote(stored)}"
        )
    remedy = f"give --env {shlex.quote(stored)}" if module else "leave it out"
    check(named in (None, stored), f"{where} has the environment {stored!r}, got --env {named!r}; {remedy}")
    return stored
