"""Command lines and configuration files that are malformed, each in one way, given to the command itself."""

import io
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from faults.told import Words, lacking
from m2ac.cli import main

FILE = "given.json"
HELP = "See m2ac train --help."
DEFAULT = "leave it out for its default"
ENVS = "See m2ac envs."
OF_A_RUN = "give the config.json of a run"


class Typed(NamedTuple):
    """A command line, the files it may stumble over, and what is said about it."""

    line: tuple[str, ...]
    words: Words
    files: Mapping[str, str | bytes] = {}
    shown: bool = False  # whether the display is on when it fails, so that progress is shown before

    @property
    def name(self) -> str:
        """The line as typed, and the file that it names."""
        given = self.files.get(FILE)
        return " ".join(("m2ac", *self.line)) + (f" with {given[:60]!r}" if given is not None else "")

    def failure(self, scratch: Path) -> str:
        """Why the case does not hold, nothing if it does."""
        for name, content in self.files.items():
            path = scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        out, err = io.StringIO(), io.StringIO()
        with chdir(scratch), redirect_stdout(out), redirect_stderr(err):
            code = main(list(self.line))
        wanted = 1 if self.shown else 2  # it came to run, or it did not
        if code != wanted or out.getvalue():
            return f"exit code {code}, said {out.getvalue()!r}"
        lines = err.getvalue().splitlines(keepends=True)
        message = "".join(lines[-1:] if self.shown else lines)
        return lacking(message, self.words) if message.startswith("m2ac: ") else f"said {err.getvalue()!r}"


def _train(line: str, place: str, value: str, remedy: str, **files: str) -> Typed:
    return Typed(("train", *line.split()), Words(place, value, remedy), files)


def _file(content: str | bytes, place: str, value: str, remedy: str) -> Typed:
    return Typed(("train", "--config", FILE), Words(place, value, remedy), {FILE: content})


NAMES = [
    Typed(("trian",), Words("command", '"trian"', 'Perhaps you meant "train"?')),
    Typed(("",), Words("command", '""', "See m2ac --help.")),
    Typed(("TRAIN",), Words("command", '"TRAIN"', "See m2ac --help.")),
    _train("--hrizon 3", "options", "--hrizon, 3", 'Perhaps you meant "--horizon"?'),
    _train("--mask 0.5", "options", "--mask, 0.5", HELP),
    _train("-s 3", "options", "-s, 3", HELP),
    _train("more", "options", "more", HELP),
    _train("--tensorboard yes", "options", "yes", HELP),
    _train("--env", "--env", "Missing value", HELP),
    _train("--config", "--config", "needs a file", "such as the config.json of a run"),
    _train("--algo ppo", "--algo", "'ppo'", "('m2ac', 'mbpo', 'sac')"),
    _train("--rhythm weekly", "--rhythm", "'weekly'", "('mbpo', 'epoch')"),
    _train("--env HalfCheeta-v5", "no environment", '"HalfCheeta-v5"', 'Perhaps you meant "HalfCheetah-v5"?'),
    _train("--env Péndulum", "no environment", '"Péndulum"', 'Perhaps you meant "Pendulum"?'),
    Typed(("train", "--env", "\x1b[2J\u202e"), Words("no environment", r"\x1b[2J\u202e", ENVS)),
    Typed(("train", "--env", ""), Words("env", "an empty string", "see m2ac envs")),
    _train("--env :Pendulum-v1", 'the module ""', '":Pendulum-v1"', "PYTHONPATH"),
    _train("--env nowhere:Id-v0", 'the module "nowhere"', '"nowhere:Id-v0"', "install it or add its directory"),
    _train("--env faults.odd_envs:Sond-v0", "no environment", ":Sond-v0", '"faults.odd_envs:Sound-v0"?'),
    _train("--env CartPole-v1", "the action space", "Discrete(2)", "use another library"),
    _train("--env Blackjack-v1", "the observation space", "Tuple(Discrete(32)", "FlattenObservation"),
]

VALUES = [
    _train("--seed -1", "seed", "got -1", "in [0, 2**32)"),
    _train("--seed 99999999999999999999", "seed", "got 99999999999999999999", "in [0, 2**32)"),
    _train("--seed 0x10", "--seed", "'0x10'", "must be a whole number"),
    _train("--seed=", "--seed", "got ''", "must be a whole number"),
    _train("--steps 1e6", "--steps", "'1e6'", "a whole number"),
    _train("--steps -5", "steps", "got -5", "must be at least 3"),
    _train("--steps nan", "--steps", "'nan'", "a whole number"),
    _train("--horizon 0", "horizon", "got 0", "use --algo sac"),
    _train("--horizon 100000", "horizon", "got 100000", "must be at most 23169"),
    _train("--random-steps 1", "random_steps", "got 1", "must be at least 2"),
    _train("--updates-per-step 0", "updates_per_step", "got 0", "leave it out"),
    _train("--mask.rate 1.5", "mask.rate", "got 1.5", "use 1 to keep everything"),
    _train("--mask.rate nan", "mask.rate", "got nan", 'a finite number or "paper"'),
    _train("--mask.rate half", "--mask.rate", "'half'", 'a number or "paper"'),
    _train("--mask.penalty -1", "mask.penalty", "got -1.0", "at least 0"),
    _train("--mask.penalty inf", "mask.penalty", "got inf", DEFAULT),
    _train("--model.hidden 0", "model.hidden", "got 0", "most tasks use 200"),
    _train("--model.weight-decay a b", "--model.weight-decay", "'a', 'b'", HELP),
    _train("--model.weight-decay 0 0", "model.weight_decay", "got 2", "give as many, 0 for none"),
    _train("--model.holdout-share 1", "model.holdout_share", "got 1.0", "in (0, 1)"),
    _train("--model.min-log-variance 3", "model.min_log_variance", "got 3.0", "lower it"),
    _train("--replay.real-share 2", "replay.real_share", "got 2.0", "MBPO has 0.05"),
    _train("--sac.discount 1", "sac.discount", "got 1.0", "0.99"),
    _train("--sac.learning-rate 0", "sac.learning_rate", "got 0.0", "0.0003"),
    _train("--eval-episodes 0", "eval_episodes", "got 0", "raise eval_every"),
    _train("--checkpoint-minutes 0", "checkpoint_minutes", "got 0.0", "a large number"),
    _train("--step-timeout 0", "step_timeout", "got 0.0", "leave it out for no limit"),
    _train("--step-timeout soon", "--step-timeout", "'soon'", "a number"),
    _train("--step-timeout 1e9", "step_timeout", "got 1000000000.0", "leave it out for no limit"),
]

TOGETHER = [
    _train("--algo sac --horizon 3", "horizon", "got 3", "leave it out"),
    _train("--algo sac --mask.stop hardstop", "mask settings", "stop=hardstop", "use --algo m2ac"),
    _train("--algo mbpo --mask.penalty 0.5", "algo=mbpo", "mask.penalty=0.5", "use --algo m2ac"),
    _train("--model.members 1 --model.elites 1", "model.members", "got 1", "use --algo mbpo"),
    _train("--model.elites 1 --mask.rest elites", "model.elites", "got 1", "mask.rest=all"),
    _train("--model.elites 9", "model.elites", "got 9", "raise model.members"),
    _train("--steps 100 --random-steps 100", "random_steps", "got 100", "raise steps"),
    _train("--replay.capacity 100", "replay.capacity", "got 100", "leave it out"),
]

FILES = [
    _train("--config nowhere.json", "--config", "nowhere.json: No such file", OF_A_RUN),
    _train("--config .", "--config .", "Is a directory", OF_A_RUN),
    _file("", f"--config {FILE}", "line 1 column 1", OF_A_RUN),
    _file('{"seed": ', f"--config {FILE}", "line 1 column 10", OF_A_RUN),
    _file("[" * 100_000, f"--config {FILE}", "recursion", OF_A_RUN),
    _file(bytes(range(256)), f"--config {FILE}", "Expecting value: line 1 column 1", OF_A_RUN),
    _file("[1]", FILE, "got [1]", 'write it as {"algo": …}'),
    _file("null", FILE, "got None", 'write it as {"algo": …}'),
    _file('{"asked": 3}', FILE, "got 3", 'write it as {"algo": …}'),
    _file('{"mask": 0.5}', "mask must be a group", "got 0.5", 'write it as {"rate": …}'),
    _file('{"mask.rate": 0.5}', FILE, '"mask.rate"', 'write it as {"mask": {"rate": …}}'),
    _file('{"mask": {"rate": {"rate": 1}}}', "mask.rate", "got {'rate': 1}", DEFAULT),
    _file('{"mask": {"rate": NaN}}', "mask.rate", "got nan", 'a finite number or "paper"'),
    _file('{"sac": {"temperature": Infinity}}', "sac.temperature", "got inf", DEFAULT),
    _file('{"seed": 1e400}', "seed", "got inf", "must be a whole number"),
    _file('{"seed": ' + "9" * 4000 + "}", "seed", "9999 … 9999", DEFAULT),
    _file('{"seed": true}', "seed", "got True", "must be a whole number"),
    _file('{"env": null}', "env", "got None", "must be text"),
    _file('{"steps": 100.5}', "steps", "got 100.5", DEFAULT),
    _file('{"seed": 1, "seed": -2}', "seed", "got -2", "in [0, 2**32)"),
    _file('{"horzon": 3}', FILE, '"horzon"', 'Perhaps you meant "horizon"?'),
    _file('{"hörizon": 3}', FILE, '"hörizon"', 'Perhaps you meant "horizon"?'),
    _file('{"zzz": 3}', FILE, '"zzz"', "m2ac train --help lists them all"),
    _file('{"rate": 0.5}', FILE, '"rate"', 'Perhaps you meant "mask.rate"?'),
    _file('{"model": {"weight_decay": "1e-5"}}', "model.weight_decay", "got '1e-5'", "must be a list"),
    _file('{"algo": ["m2ac"]}', "algo", "got ['m2ac']", '"m2ac" or "mbpo" or "sac"'),
    _file('{"algo": "sac", "horizon": 4}', "horizon", "got 4", "leave it out"),
    _file('{"tensorboard": "yes"}', "tensorboard", "got 'yes'", "must be true or false"),
]

PLACES = [
    Typed(("train", "--out", "file/run"), Words("the run directory", "'file/run'", "another --out"), {"file": ""}),
    Typed(("train", "--out", "/proc/nowhere/run"), Words("the run directory", "'/proc/nowhere/run'", "another --out")),
    Typed(
        ("train", "--out", "run"),
        Words("'run/config.json'", 'no setting "version"', "choose another --out"),
        {"run/config.json": '{"version": 9}'},
    ),
    Typed(
        ("train", "--out", "run"),
        Words("'run/config.json'", "line 1 column 2", "choose another --out"),
        {"run/config.json": "{"},
    ),
    Typed(("train", "--out", "run"), Words("'run'", "DONE", "choose another --out"), {"run/DONE": "{}"}),
    Typed(("eval",), Words("RUN", "Missing from m2ac eval", "See m2ac eval --help.")),
    Typed(("eval", "nowhere"), Words("run directory", "'nowhere'", "that m2ac train has written")),
    Typed(("eval", "x", "--episodes", "0"), Words("episodes", "got 0", "ten give a first impression")),
    Typed(("eval", "x", "--episodes", "many"), Words("--episodes", "'many'", "must be a whole number")),
    Typed(("envs", "--all"), Words("m2ac envs", "'--all'", "leave them out")),
    Typed(("bench", "--jsn", "x"), Words("options", "--jsn, x", 'Perhaps you meant "--json"?')),
]


def _run_of(env: str, place: str, value: str, remedy: str, *more: str, shown: bool = False) -> Typed:
    settings = "--algo sac --steps 20 --random-steps 10 --sac.hidden 16 --no-tensorboard --out run"
    return Typed(
        ("train", "--env", f"faults.odd_envs:{env}", *settings.split(), *more), Words(place, value, remedy), shown=shown
    )


RUNS = [
    _run_of(
        "FailingMake-v0", 'cannot make the environment "faults.odd_envs:FailingMake-v0"', r"robot.xml\x1b[31m", "mend"
    ),
    _run_of("LeavingMake-v0", "LeavingMake-v0", "SystemExit: licence expired", "mend it there"),
    _run_of("NotAnEnv-v0", "NotAnEnv-v0", "dict", "mend it there"),
    _run_of("Forgotten-v0", "observation_space", "<NoSpaces<", "in its constructor"),
    _run_of("Raising-v0", "train episode 0 (seed", "OSError: serial port lost", "mend it there", shown=True),
    _run_of("Leaving-v0", "train episode 0 (seed", "SystemExit: 0", "mend it there", shown=True),
    _run_of("Hanging-v0", "step 3", "for 0.2 s", "(--step-timeout)", "--step-timeout", "0.2", shown=True),
]

CASES = [*NAMES, *VALUES, *TOGETHER, *FILES, *PLACES, *RUNS]
