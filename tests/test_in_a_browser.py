"""Pages in a real browser: no fault on the console, nothing asked of the network, what moves does move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import Browser, check_page, opened
from hostile import HOSTILE
from shoal.cage2.commands import play
from shoal.cage2.timeline import timeline
from shoal.config import TrainConfig, to_dict
from shoal.report import write_report
from shoal.runs.folder import Run
from shoal.runs.page import Part, page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened() as found:
        yield found


@pytest.fixture(scope="module")
def run_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run whose every name is hostile."""
    folder = tmp_path_factory.mktemp("runs")
    with Run.create(folder, "r", to_dict(TrainConfig(task=HOSTILE)), f"shoal train {HOSTILE}", "task") as run:
        for epoch in range(1, 31):
            run.append({"epoch": epoch, "steps": 100 * epoch, "return/mean_100": float(epoch), HOSTILE: 1.0})
        run.note({"event": "restart", "text": HOSTILE})
        return write_report(run)


def test_a_run_is_silent_and_asks_for_nothing(browser: Browser, run_page: Path) -> None:
    """Also where every name in it is an attack: no dialog, no script, no request; the attack is read as text."""
    check_page(browser, run_page)
    assert HOSTILE in browser.run("document.querySelector('.event').textContent")
    assert browser.run("document.querySelectorAll('script').length") == 1
    assert browser.run("document.querySelectorAll('img').length") == 0


def test_a_script_from_elsewhere_does_not_run(browser: Browser, run_page: Path, tmp_path: Path) -> None:
    """Should anything ever slip through unescaped, the browser itself refuses it; and what it would fetch."""
    spoiled = tmp_path / "spoiled.html"
    bad = "<script>document.title = 'bad'</script><img src='http://127.0.0.1:9/x.png' onerror='document.title=1'>"
    spoiled.write_text(run_page.read_text().replace("<h1>", bad + "<h1>"))
    browser.open(spoiled)
    assert browser.run("document.title") == "r"
    assert any("Content Security Policy" in fault for fault in browser.faults)


def test_values_show_under_the_pointer_and_by_keys(browser: Browser, run_page: Path) -> None:
    """The nearest epoch's value; arrow keys go on from there, Escape ends it."""
    browser.open(run_page)
    middle = browser.run(
        "(() => { const s = document.querySelector('svg[data-chart]'); s.scrollIntoView({block: 'center'}); "
        "const b = s.getBoundingClientRect(); return [b.x + b.width * .55, b.y + b.height / 2] })()"
    )
    browser.move(*middle)
    assert browser.run("document.querySelector('.tip').hidden") is False
    words = browser.run("document.querySelector('.tip').textContent")
    steps = int(words.split()[0].replace(",", ""))
    assert 1000 < steps < 2200
    assert f"last 100 episodes: {steps // 100}" in words
    browser.move(1, 1)
    assert browser.run("document.querySelector('.tip').hidden") is True
    browser.run("document.querySelector('svg[data-chart]').focus()")
    browser.key("Home")
    browser.key("ArrowRight")
    assert browser.run("document.querySelector('.tip').textContent").startswith("200 environment steps")
    browser.key("Escape")
    assert browser.run("document.querySelector('.tip').hidden") is True


def test_the_slider_of_an_episode_moves_its_picture_and_words(browser: Browser, tmp_path: Path) -> None:
    """By keys, on a phone too, where the picture is pushed along; the button plays it."""
    played = play("decoy-first", horizon=30)
    body = timeline(played["picture"], played["lines"], "an episode")
    path = tmp_path / "episode.html"
    path.write_text(page("e", "e", "", "", [], [Part("Episode", body)]))
    check_page(browser, path)
    veils = "document.querySelectorAll('.veil:not(.off)').length"
    assert browser.run(veils) == 0, "the end is shown first"
    said = "document.querySelector('.said').textContent"
    assert played["lines"][-1].endswith(browser.run(said))
    browser.run("document.querySelector('input[type=range]').focus()")
    browser.key("Home")
    assert browser.run(veils) == 30
    assert "before the first step" in browser.run(said)
    for _ in range(3):
        browser.key("ArrowRight")
    assert browser.run(veils) == 27
    assert played["lines"][2].endswith(browser.run(said))
    assert browser.run("document.querySelector('output').textContent") == "3 of 30"
    browser.run("document.querySelector('.stage').dataset.ms = 5; document.querySelector('.stage button').click()")
    browser.run("new Promise(done => { const t = setInterval(() => { if (!document.querySelector('.veil:not(.off)')) "
                "{ clearInterval(t); done(); } }, 20); })")  # fmt: skip
    assert browser.run("document.querySelector('.stage button').getAttribute('aria-label')") == "play"
    assert browser.faults == []
