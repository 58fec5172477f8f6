"""The source itself: nothing in it executes what it reads, hands text to a shell, or listens on a port."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for part in ("src", "benchmarks", "faults") for path in (ROOT / part).rglob("*.py"))

UNSAFE_MODULES = {
    *("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "jsonpickle", "yaml"),
    *("ruamel", "socket", "socketserver", "http", "xmlrpc", "ftplib", "smtplib", "telnetlib", "asyncio", "urllib"),
    *("requests", "flask", "fastapi", "uvicorn", "aiohttp", "pty", "code", "runpy"),
    *("multiprocessing.connection", "multiprocessing.managers"),
}
UNSAFE_NAMES = {"eval", "exec", "compile", "__import__", "breakpoint", "globals"}
UNSAFE_ATTRIBUTES = {
    *("system", "popen", "getoutput", "execv", "execve", "execvp", "spawnv", "spawnl", "startfile", "posix_spawn"),
    *("create_subprocess_shell", "serve_forever", "unsafe_load", "format_map", "read_pickle"),
}
ALLOWED = {
    ("faults/payloads.py", "import pickle"): "writes the payloads",
    ("faults/payloads.py", "import marshal"): "writes the payloads",
    ("faults/payloads.py", "eval"): "is named in a payload",
    ("faults/payloads.py", "exec"): "is named in a payload",
    ("faults/payloads.py", "compile"): "makes a payload",
    ("faults/payloads.py", ".system"): "is named in a payload",
    ("src/m2ac/runs/cluster.py", "import socket"): "asks whether anybody listens, and listens nowhere",
    ("benchmarks/sb3_resume.py", "import cloudpickle"): "reads what stable-baselines3 itself has just pickled",
    ("benchmarks/sb3_resume.py", "format of a variable"): "of a constant of its own",
}


def unsafe(source: str) -> list[str]:
    """What a source has that it must not have."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"import {name}" for name in names if {name, name.partition(".")[0]} & UNSAFE_MODULES]
        elif isinstance(node, ast.Name) and node.id in UNSAFE_NAMES:
            found.append(node.id)
        elif isinstance(node, ast.Attribute) and node.attr in UNSAFE_ATTRIBUTES:
            found.append(f".{node.attr}")
        elif isinstance(node, ast.Call):
            found += unsafe_call(node)
    return found


def unsafe_call(node: ast.Call) -> list[str]:
    """Calls that are unsafe by what they are given."""
    keywords = {keyword.arg: keyword.value for keyword in node.keywords}
    name = ast.unparse(node.func)
    found = [name] if name in ("torch.load", "pandas.eval") else []
    if "shell" in keywords and not (isinstance(keywords["shell"], ast.Constant) and keywords["shell"].value is False):
        found.append("shell=")
    # A text that is not written here could itself hold fields, such as {0.__class__}.
    if isinstance(node.func, ast.Attribute) and node.func.attr == "format" and not _is_text(node.func.value):
        found.append("format of a variable")
    if name.rpartition(".")[2] in ("load", "loads", "genfromtxt", "fromfile") and name.startswith(("np.", "numpy.")):
        pickles = keywords.get("allow_pickle")
        if not (isinstance(pickles, ast.Constant) and pickles.value is False):
            found.append(name)
    return found


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_source_executes_nothing_that_it_reads_and_listens_nowhere(path: Path) -> None:
    where = path.relative_to(ROOT).as_posix()
    assert [what for what in unsafe(path.read_text(encoding="utf-8")) if (where, what) not in ALLOWED] == []


def test_payloads_are_written_and_never_read() -> None:
    tree = ast.parse((ROOT / "faults" / "payloads.py").read_text(encoding="utf-8"))
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {name for name in used if name.startswith(("pickle.", "marshal."))} == {"pickle.dumps", "marshal.dumps"}
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert not called & {"eval", "exec", "os.system"}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "torch.load(file)",
        "from multiprocessing.managers import BaseManager",
        "import http.server",
        "eval(text)",
        "f = exec",
        "__import__(name)",
        "os.system(text)",
        "np.load(file)",
        "np.load(file, allow_pickle=True)",
        "subprocess.run(text, shell=True)",
        "subprocess.run(text, shell=wanted)",
        "text.format(value)",
        "text.format_map(values)",
        "server.serve_forever()",
        "import yaml",
    ],
)
def test_an_unsafe_source_is_noticed(source: str) -> None:
    assert unsafe(source)


@pytest.mark.parametrize(
    "source",
    [
        "np.load(file, allow_pickle=False)",
        "subprocess.run(['git'])",
        "'{}'.format(1)",
        "jax.eval_shape(f)",
        "_eval(args)",
    ],
)
def test_a_safe_source_passes(source: str) -> None:
    assert unsafe(source) == []
