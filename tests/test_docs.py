"""The documentation names code that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def defined(path: Path) -> set[str]:
    """Functions, classes and methods of a module: `name`, or `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_functions_named_by_a_page_exist(page: Path) -> None:
    """`learn/gae.py:gae` in a page is a function of src/shoal/learn/gae.py."""
    for path, name in re.findall(r"`([a-z_0-9/]+\.py):([A-Za-z_.]+)`", page.read_text()):
        file = ROOT / "src" / "shoal" / path
        assert file.exists(), f"{page.name} names {path}"
        assert name in defined(file), f"{page.name} names {name} of {path}"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Relative links and pictures exist."""
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
