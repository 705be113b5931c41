"""The library names no application."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "shoal"
LIBRARY = (
    "core", "compiled", "vector", "learn", "runs", "search", "environments", "tasks", "cli", "testing", "training.py",
    "evaluation.py", "held_out_curve.py", "origin.py",
           "evaluation_command.py", "held_out.py", "journal.py", "stopping.py", "report.py", "config.py",
    "callbacks.py", "comparison", "tuning", "doctor.py", "playing.py", "recording.py", "saved_run.py", "signals.py",
    "starting.py", "together.py", "launching.py", "__init__.py",
    "__main__.py",
)  # fmt: skip
ALLOWED = {"tasks/aliases.py"}  # names in run folders of earlier versions


def test_the_library_names_no_application() -> None:
    """rides and cage2 are found as tasks of anybody's are: by entry points."""
    files = [path for part in LIBRARY for path in (SRC / part, *(SRC / part).rglob("*.py")) if path.is_file()]
    assert len(files) > 100
    named = [
        f"{path.relative_to(SRC)}:{number}: {line.strip()}"
        for path in files
        if str(path.relative_to(SRC)) not in ALLOWED
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(r"\b(shoal[./ ])?(rides|cage2)\b", line)
    ]
    assert not named


def test_every_package_is_looked_at() -> None:
    """What is neither of the library nor an application is a room that nobody has been told of."""
    there = {path.name for path in SRC.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there - set(LIBRARY) == {"rides", "cage2", "extras.py"}  # extras are those of pyproject.toml


ASKED_BY_NAME = {  # where somebody's environment is met for the first time, and where a name is what is asked for
    "vector/adapt.py", "vector/api.py", "compiled/compile.py", "compiled/env.py", "compiled/vector.py",
    "testing/contract.py",
}  # fmt: skip


def test_no_environment_is_asked_for_an_attribute_by_its_name() -> None:
    """What an environment may offer stands in a class (core/protocols.py); an attribute of that name means nothing."""
    environments = re.compile(r"(^|[._])(envs?|environments?|made|batch|stepper)$")
    found = []
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id in ("hasattr", "getattr") and environments.search(ast.unparse(node.args[0])):
                found.append((str(path.relative_to(SRC)), ast.unparse(node)))
    assert [one for one in found if one[0] not in ASKED_BY_NAME and "'__name__'" not in one[1]] == []


def test_no_domain_of_a_search_is_asked_for_an_attribute_by_its_name() -> None:
    """What a domain may have beside its pulls has a default in search/domain.py:Domain."""
    found = []
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
                continue
            asked = ast.unparse(node.args[0])
            if node.func.id in ("hasattr", "getattr") and re.search(r"(^|[._])(domain|brought)(_class\(.*\))?$", asked):
                found.append(f"{path.relative_to(SRC)}: {ast.unparse(node)}")
    assert found == []


def test_few_errors_of_types_are_silenced() -> None:
    """Below 20; most are of torch, Gymnasium and the overridden functions of compiled environments."""
    assert sum(path.read_text().count("type: " + "ignore") for path in SRC.rglob("*.py")) < 20


def test_modules_of_tests_have_one_name_each_where_their_folder_is_no_package() -> None:
    """pytest refuses the second of two, and runs none of its tests."""
    found: dict[str, Path] = {}
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        if not (path.parent / "__init__.py").exists():
            assert path.name not in found, f"{path} and {found[path.name]} have one name: rename one"
            found[path.name] = path
