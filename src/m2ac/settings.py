"""Frozen dataclasses as settings: checked when made, changed by dotted name, written to JSON and read back.

What can be set in this project is in `config`; here is how any such setting behaves.
"""

import dataclasses
import difflib
import functools
import numbers
import sys
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar

from m2ac.escaping import visible_line

C = TypeVar("C")


class UserError(Exception):
    """Something that the user can mend; the message says what is wrong and the remedy, and needs no traceback.

    It may quote what a user or a file gave, so it is always one line without anything that steers a terminal.
    """

    def __init__(self, message: str) -> None:
        super().__init__(visible_line(message))


class ConfigError(UserError):
    """A setting that cannot work; the message names the field, the value received and the remedy.

    Not a ValueError: tyro would take that for a word it could not parse and wrap the message in its own.
    """


def perhaps(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the nearest known name, or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f' Perhaps you meant "{near[0]}"?' if near else ""


def check(holds: bool, message: str) -> None:
    """Refuse a setting with that message unless the condition holds."""
    if not holds:
        raise ConfigError(message)


def at_least(name: str, value: float | None, low: float, remedy: str) -> None:
    """Refuse a value below `low`; None is for later."""
    check(value is None or value >= low, f"{name} must be at least {low}, got {value}; {remedy}")


def positive(name: str, value: float | None, remedy: str) -> None:
    """Refuse zero and below; None is for later."""
    check(value is None or value > 0, f"{name} must be positive, got {value}; {remedy}")


def override(config: C, values: Mapping[str, Any]) -> C:
    """`config` with some values replaced; keys may be dotted ("mask.rate") and values may be nested mappings."""
    return _overridden(config, values, "")


def _overridden(config: Any, values: Mapping[str, Any], prefix: str) -> Any:
    names = [f.name for f in dataclasses.fields(config)]
    changes: dict[str, Any] = {}
    groups: dict[str, dict[str, Any]] = {}  # all of a group at once: its values may be valid only together
    for key, value in values.items():
        name, dot, inner = str(key).partition(".")
        if name not in names:
            raise _no_setting(type(config), prefix, str(key))
        if not dataclasses.is_dataclass(getattr(config, name)):
            check(not dot, f'there is no setting "{prefix}{key}": {prefix}{name} has no parts; set it itself')
            changes[name] = value
        elif dot:
            groups.setdefault(name, {})[inner] = value
        elif isinstance(value, Mapping):
            groups.setdefault(name, {}).update(value)
        else:
            changes[name] = value
    for name, inside in groups.items():
        changes[name] = _overridden(changes.get(name, getattr(config, name)), inside, f"{prefix}{name}.")
    return dataclasses.replace(config, **changes)


ELSEWHERE: Mapping[str, str] = {
    "gamma": "discount",
    "tau": "target_rate",
    "ent_coef": "temperature",
    "buffer_size": "capacity",
    "learning_starts": "random_steps",
    "gradient_steps": "updates_per_step",
    "policy_kwargs": "hidden",
    "n_steps": "rollout",
    "n_epochs": "epochs",
    "gae_lambda": "gae",
    "clip_range": "clip",
    "vf_coef": "critic_weight",
    "max_grad_norm": "gradient_norm",
}
"""What stable-baselines3 calls a setting, and how it is called here."""


def _no_setting(kind: Any, prefix: str, name: str) -> ConfigError:
    """The refusal of an unknown name, with the nearest known one, also where that is inside a group."""
    if any(name in _hints(larger) for larger in kind.__subclasses__()):
        option = name.replace("_", "-")
        return ConfigError(
            f'"{name}" is a setting of a run, not of an agent; m2ac train --{option} takes it, and so does Live where '
            f"it has a meaning there"
        )
    known, wanted = _hints(kind), ELSEWHERE.get(name, name)
    found = [wanted] if wanted in known else []
    found += [
        f"{group}.{f.name}"
        for group, hint in known.items()
        if dataclasses.is_dataclass(hint)
        for f in dataclasses.fields(hint)
        if f.name == wanted
    ]
    names = '" or "'.join(found)
    hint = f' Perhaps you meant "{names}"?' if found else perhaps(name, known)
    group, dot, part = name.partition(".")
    if dot and dataclasses.is_dataclass(_hints(kind).get(group)):  # of a file, where groups are nested
        return ConfigError(f'there is no setting "{prefix}{name}"; write it as {{"{group}": {{"{part}": …}}}}')
    if not hint:
        hint = " m2ac train --help lists them all."
    return ConfigError(f'there is no setting "{prefix}{name}".{hint.replace(chr(34), chr(34) + prefix, 1)}')


def differing(config: Any, other: Any) -> str:
    """The fields in which two configurations of one kind differ, with the first one's values."""
    names = [f.name for f in dataclasses.fields(config)]
    return ", ".join(f"{n}={getattr(config, n)}" for n in names if getattr(config, n) != getattr(other, n))


def to_dict(config: Any) -> dict[str, Any]:
    """Plain values for JSON."""
    return dataclasses.asdict(config)


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by dotted name: {"mask.rate": …}."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def from_dict(kind: type[C], values: Mapping[str, Any]) -> C:
    """The inverse of `to_dict`, with every name and type checked."""
    return _build(kind, values, "")


def _build(kind: Any, values: Any, prefix: str) -> Any:
    if not isinstance(values, Mapping):
        named, example = prefix.rstrip(".") or "the configuration", next(iter(_hints(kind)))
        raise ConfigError(
            f'{named} must be a group of settings, got {_shown(values)}; write it as {{"{example}": …}} or leave it out'
        )
    hints = _hints(kind)
    built = {}
    for name, value in values.items():
        if name not in hints:
            raise _no_setting(kind, prefix, str(name))
        group = dataclasses.is_dataclass(hints[name])
        built[name] = _build(hints[name], value, f"{prefix}{name}.") if group else value
    return kind(**built)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    """The annotated type of every field."""
    return typing.get_type_hints(kind)


def set_types(config: Any, prefix: str = "") -> None:
    """Give every field exactly its annotated type, or refuse it: a value of JSON or of NumPy is as good as our own."""
    for name, hint in _hints(typing.cast(Any, type(config))).items():
        object.__setattr__(config, name, _coerce(getattr(config, name), hint, f"{prefix}{name}"))


def _coerce(value: Any, hint: Any, name: str) -> Any:
    """The value as the annotated type: lists become tuples, whole numbers may stand for floats."""
    for option in _options(hint):
        fits, coerced = _as_type(value, option)
        if fits:
            return coerced
    words = [word for option in _options(hint) for word in _words(option)]
    suggestion = perhaps(value, words) if isinstance(value, str) else ""
    remedy = f".{suggestion}" if suggestion else "; leave it out for its default"
    raise ConfigError(f"{name} must be {_described(hint)}, got {_shown(value)}{remedy}")


def _shown(value: Any) -> str:
    """The value as text, without the middle of what is very long."""
    try:
        text = repr(value)
    except ValueError:
        return "a number with too many digits to show"
    return text if len(text) <= 200 else f"{text[:100]} … {text[-50:]}"


def _options(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _words(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a Literal."""
    return typing.get_args(hint) if typing.get_origin(hint) is Literal else ()


def _as_type(value: Any, hint: Any) -> tuple[bool, Any]:
    """Whether the value can stand for the type, and as what."""
    if _words(hint):
        return isinstance(value, str) and value in _words(hint), value
    if typing.get_origin(hint) is tuple:
        items = [_as_type(item, typing.get_args(hint)[0]) for item in value] if isinstance(value, list | tuple) else []
        return isinstance(value, list | tuple) and all(fits for fits, _ in items), tuple(item for _, item in items)
    if isinstance(value, bool):
        return hint is bool, value
    if hint is int:
        whole = isinstance(value, numbers.Integral) and abs(int(value)) < 10**1000  # Python shows few more digits
        return whole, int(value) if whole else value
    if hint is float:
        finite = isinstance(value, numbers.Real) and abs(typing.cast(Any, value)) <= sys.float_info.max
        return finite, float(value) if finite else value
    return isinstance(value, hint), value


def _described(hint: Any) -> str:
    if _words(hint):
        return " or ".join(f'"{word}"' for word in _words(hint))
    if len(_options(hint)) > 1:
        return " or ".join(_described(option) for option in _options(hint))
    if typing.get_origin(hint) is tuple:
        return "a list whose every entry is " + _described(typing.get_args(hint)[0])
    plain = {int: "a whole number", float: "a finite number", bool: "true or false", str: "text", type(None): "none"}
    return plain.get(hint, f"a group of settings ({hint.__name__})")
