"""The page of a run: escaped, self-contained."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from shoal.config import TrainConfig, to_dict
from shoal.report import write_report
from shoal.runs.store import Run

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


class Tags(HTMLParser):
    """Collects what a browser would see as elements."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def make(tmp_path: Path, rows: int) -> Run:
    run = Run.create(tmp_path, "r", to_dict(TrainConfig(task=HOSTILE)), f"shoal train {HOSTILE}", "task")
    for epoch in range(1, rows + 1):
        run.append(
            {
                "epoch": epoch,
                "steps": 10 * epoch,
                "episodes": epoch,
                "return/mean_100": None if epoch == 1 else 1.0 * epoch,
            }
        )
    run.note({"event": "restart", "text": HOSTILE})
    run.set_status("failed", HOSTILE)
    return run


def test_names_and_errors_are_text_not_markup(tmp_path: Path) -> None:
    """No script, image or handler from data becomes an element; nothing remote is loaded."""
    with make(tmp_path, 5) as run:
        parser = Tags()
        page = write_report(run).read_text()
        parser.feed(page)
    assert "script" not in parser.tags
    assert "img" not in parser.tags
    assert not [name for name, _ in parser.attributes if name.startswith("on")]
    links = [value for name, value in parser.attributes if name in ("src", "href", "xlink:href")]
    assert all(value is None or value.startswith("#") for value in links)
    assert "&lt;script&gt;" in page


def test_a_run_without_epochs_has_a_page(tmp_path: Path) -> None:
    """A run that was killed before its first epoch can be looked at."""
    with make(tmp_path, 0) as run:
        assert "No epoch has been recorded yet" in write_report(run).read_text()


def test_the_same_run_gives_the_same_picture(tmp_path: Path) -> None:
    """The SVG carries no date and no random ids beyond matplotlib's own salt-free ones."""
    with make(tmp_path, 3) as run:
        write_report(run)
        svg = (run.figures / "curves.svg").read_text()
    assert "<dc:date>" not in svg
    assert svg.startswith("<svg")
