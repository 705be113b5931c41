"""What is published is what is stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness import pages
from benchmarks.harness.figures import PageError

STAMP = {
    "commit": "abcdef0123",
    "dirty": False,
    "machine": "2-core VM, Intel(R) Xeon(R) Processor",
    "date": "2026-11-19",
}
SECTION = '{{ about("speed") }}\n\n{{ every("speed") }}\n'


def row(name: str, value: float | None, target: float | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": "%", "target": target, "better": "higher", **more}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """One result with two rows, one page, no figures in the README."""
    for folder in ("benchmarks/results", "benchmarks/pages", "benchmarks/vector", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "benchmarks/vector/speed.py").touch()
    (tmp_path / "README.md").write_text("# A project\n")
    store(tmp_path, "speed", [row("steps, small", 91.25, 93.0), row("steps, large", 97.0, 93.0)])
    template(tmp_path, SECTION)
    return tmp_path


def store(root: Path, name: str, rows: list[dict[str, Any]], **more: Any) -> None:
    result = {"command": f"python -m benchmarks.vector.{name} --store", **STAMP, "rows": rows, **more}
    (root / f"benchmarks/results/{name}.json").write_text(json.dumps(result))


def template(root: Path, text: str, name: str = "results") -> None:
    (root / f"benchmarks/pages/{name}.md").write_text(text)


def page(root: Path, name: str = pages.RESULTS) -> str:
    return pages.made(root)[0][name]


def test_pages_are_what_the_stored_results_give() -> None:
    """Every result has a section, every target is shown, and nobody has edited a figure."""
    wrong = pages.wrong()
    assert not wrong, "\n\n".join(wrong)


def test_the_readme_has_six_figures_on_one_page() -> None:
    """And leads to each one's file."""
    text = page(pages.ROOT, "README.md")
    assert len(text.splitlines()) <= 120
    assert text.count("[file](benchmarks/results/") == 6


def test_a_line_has_value_target_and_verdict_and_its_stamp(repository: Path) -> None:
    """All from the file."""
    text = page(repository)
    assert (
        "[speed.json](../benchmarks/results/speed.json); `python -m benchmarks.vector.speed`; 2-core VM, Intel Xeon"
        in text
    )
    assert "2026-11-19; commit abcdef0." in text
    assert "| steps, small | 91.2 % | at least 93 %, not met |" in text
    assert "| steps, large | 97 % | at least 93 % |" in text


def test_what_a_reader_must_know_of_a_figure_is_told(repository: Path) -> None:
    """A busy machine, uncommitted changes, a value from another result, a range, no value."""
    store(
        repository, "speed",
        [
            row("busy", 91.25, note="other programs had up to 20% of the cores: not comparable"),
            row("lent", 5.0, measured="stored", date="2026-01-02"),
            row("ranged", 1.234, detail={"median": 1.234, "low": 1.1, "high": 1.35}),
            row("lower end", 2.5, note="lower end of the 95 % interval; mean 3.20, upper 3.80; 10 seeds"),
            row("none", None, 3.0, note="0 of 3 seeds stored"),
        ],
        load_before=1.53, dirty=True,
    )  # fmt: skip
    template(
        repository,
        '{{ about("speed") }}\n'
        + "".join(f'{{{{ line("speed", "{name}", "L") }}}}\n' for name in ("busy", "lent", "ranged", "lower", "none")),
    )
    text = page(repository)
    assert "; load 1.5 before it began; " in text
    assert "commit abcdef0 with uncommitted changes" in text
    assert "| L (other programs had up to 20% of the cores: not comparable) | 91.2 % | |" in text
    assert "| L (stored 2026-01-02) | 5 % | |" in text
    assert "| L | 1.23 % [1.10, 1.35] | |" in text
    assert "| L | 3.20 % [2.50, 3.80] | |" in text
    assert "| L | not measured (0 of 3 seeds stored) | at least 3 % |" in text


def test_runs_tell_their_own_machines_and_commits(repository: Path) -> None:
    """Where a result was made in several sittings."""
    runs = [{**STAMP, "commit": "1111111aa", "date": "2026-11-17"}, {**STAMP, "machine": "another", "dirty": True}]
    store(repository, "speed", [row("steps", 1.0)], runs=runs)
    assert "2-core VM, Intel Xeon and another; 2026-11-17 to 2026-11-19" in page(repository)
    assert "commits 1111111, abcdef0 in part with uncommitted changes" in page(repository)


def test_a_page_that_was_edited_is_found_and_made_again(repository: Path) -> None:
    """With the lines that differ."""
    (repository / pages.RESULTS).write_text(page(repository))
    assert pages.wrong(repository) == []
    (repository / pages.RESULTS).write_text(page(repository).replace("91.2", "99.9"))
    (said,) = pages.wrong(repository)
    assert "docs/results.md is not what benchmarks/results gives: run `make results`" in said
    assert "-| steps, small | 99.9 %" in said
    assert "+| steps, small | 91.2 %" in said


def test_a_result_without_a_section_is_found(repository: Path) -> None:
    """And the least of a section is given, which then serves."""
    store(repository, "images", [row("frames", 3.0)])
    (said,) = pages.made(repository)[1]
    assert "benchmarks/results/images.json has no section in docs/results.md: add one to benchmarks/pages" in said
    template(repository, SECTION + said.partition("The least is\n")[2])
    assert pages.made(repository)[1] == []
    assert "| frames | 3 % | |" in page(repository)


def test_a_target_is_never_left_out(repository: Path) -> None:
    """A missed one least of all."""
    template(repository, '{{ line("speed", "steps, large") }}\n')
    (said,) = pages.made(repository)[1]
    assert "does not show 'steps, small' of benchmarks/results/speed.json, which has a target" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{{ figure("speed", "stops") }}',
            r"line 2: expected one row .*speed.json with 'stops' .* got 0 of these:\n.*small\n",
        ),
        ('{{ figure("speed", "steps") }}', r"line 2: .* got 2 of these:\n    steps, small\n    steps, large"),
        ('{{ figure("sped", "steps") }}', r"line 2: expected benchmarks/results/sped.json, there is none: store it"),
        ('{{ data("speed")["runs"] }}', r"line 2: 'dict object' has no attribute 'runs'"),
        ('{{ figures("speed") }}', r"line 2: 'figures' is undefined"),
        ('{{ figure("speed" }}', r"line 2: unexpected '}'"),
    ],
)
def test_what_is_not_there_is_named_with_its_place(repository: Path, text: str, said: str) -> None:
    """The template, its line, the file, and the rows that there are."""
    template(repository, "# Results\n" + text)
    with pytest.raises(PageError, match=r"benchmarks/pages/results.md, " + said):
        pages.made(repository)


def test_a_section_may_wait_for_its_result(repository: Path) -> None:
    """It appears by itself."""
    template(repository, SECTION + '{% if stored("later") %}\n## Later\n\n{{ every("later") }}\n{% endif %}\n')
    assert "## Later" not in page(repository)
    assert pages.made(repository)[1] == []
    store(repository, "later", [row("frames", 3.0)])
    assert "## Later\n\n| figure | value | target |\n|---|---|---|\n| frames | 3 % | |" in page(repository)


def test_figures_within_another_page(repository: Path) -> None:
    """Between two marks, by a template of their own; one that no page asks for is found."""
    (repository / "README.md").write_text("Fast:\n<!-- figures: few -->\nold\n<!-- end of figures -->\nEnd.\n")
    with pytest.raises(PageError, match=r"expected the template benchmarks/pages/few.md"):
        pages.made(repository)
    template(repository, 'It is {{ figure("speed", "large") }}, {{ link("speed", "file") }}.\n', "few")
    text = page(repository, "README.md")
    assert "-->\nIt is 97 %, [file](benchmarks/results/speed.json).\n<!-- end of figures -->\nEnd.\n" in text
    (repository / "README.md").write_text("Fast.\n")
    assert "benchmarks/pages/few.md is of no page" in pages.made(repository)[1][0]


# -- the tables of one result ------------------------------------------------------------------------


def learned(who: str, seed: int, mean: float, cpu_s: float) -> dict[str, Any]:
    return {"who": who, "task": "Hopper-v5", "seed": seed, "mean": mean, "cpu_s": cpu_s, **STAMP}


def test_learning_shows_every_seed_and_how_many_are_wanting(repository: Path) -> None:
    """A mean of fewer seeds than wanted meets nothing and misses nothing."""
    title = "Hopper-v5, no flags, 1,000,000 steps: greedy held-out return, mean of 3 seeds"
    rows = [
        row(title, 5.0, 2000.0, unit="return"),
        row("Hopper-v5: CPU-seconds over SB3's", 9.0, 0.5, unit="x", better="lower"),
    ]
    runs = [learned("shoal", 202, 1500.0, 60.0), learned("shoal", 201, 1000.0, 80.0), learned("sb3", 201, 900.0, 100.0)]
    template(repository, SECTION + "{{ learned_without_options() }}\n")
    store(repository, "default_learning", rows, runs=runs)
    assert "| Hopper-v5 | 1,250.0 (2 of 3 seeds) | at least 2,000 | 1,000.0, 1,500.0 | 900.0 |" in page(repository)
    assert "| Hopper-v5 | 80, 60 | 100 | 0.70 (2 and 1 seeds) | at most 0.5, not met |" in page(repository)
    elsewhere = [{**run, "machine": "another"} if run["who"] == "sb3" else run for run in runs]
    store(repository, "default_learning", rows, runs=elsewhere)
    assert "| 80, 60 | 100 | not measured (no machine has run seeds of both: shoal ran on " in page(repository)
    store(repository, "default_learning", rows, runs=[*runs, learned("shoal", 203, 1700.0, 50.0)])
    assert "| Hopper-v5 | 1,400.0 | at least 2,000, not met | 1,000.0, 1,500.0, 1,700.0 | 900.0 |" in page(repository)


def test_the_credit_study_shows_seeds_difference_and_target(repository: Path) -> None:
    """While the reference has not priced the days, the own oracle's prices are said to be those."""

    def title(prices: str) -> str:
        return f"rides, scratch: trained less lookahead:pooled, net gain a day, by the {prices} prices"

    def part(name: str, own: float, reference: float | None) -> dict[str, Any]:
        return {"name": name, "own": [own, own], "reference": None if reference is None else [reference] * 2, **STAMP}

    note = "lower end of the 95 % interval; mean 1.50, upper 2.10; 2 seeds at 19.00, 20.00, lookahead:pooled at 18.00"
    greedy = row(
        "rides, scratch: most probable offers less sampled ones", 1.2, 1.0, unit="min", better="lower", note="CPU"
    )
    rows = [
        row(title("reference"), None, 0.5, unit="min", note="0 of 5 seeds stored"),
        row(title("own"), 0.9, unit="min", note=note),
        greedy,
    ]
    parts = [
        part("lookahead:pooled", 18.0, None),
        part("scratch seed 201", 19.0, None),
        part("scratch seed 202", 20.0, None),
    ]
    template(repository, SECTION + "{{ credit_study() }}\n")
    store(repository, "rides_credit", rows, parts=parts)
    line = "| `scratch` | `lookahead:pooled` | 19.00, 20.00 (own oracle) | 18.00 | not measured | at least 0.5 min | "
    assert line + "+1.50 min [0.90, 2.10] |" in page(repository)
    assert "| scratch: most probable offers less sampled ones (CPU) | 1.20 min | at most 1 min, not met |" in page(
        repository
    )
    rows[0] = row(title("reference"), 0.4, 0.5, unit="min", note=note.replace("mean 1.50", "mean 1.40"))
    parts = [
        part("lookahead:pooled", 18.0, 17.5),
        part("scratch seed 201", 19.0, 18.5),
        part("scratch seed 202", 20.0, 19.5),
    ]
    store(repository, "rides_credit", rows, parts=parts)
    line = "| 18.50, 19.50 | 17.50 | +1.40 min [0.40, 2.10] | at least 0.5 min, not met | +1.50 min [0.90, 2.10] |"
    assert line in page(repository)


def test_the_branch_test_is_a_table_of_credits(repository: Path) -> None:
    """From the rows of the branch test itself, on days made up; and the pictures are drawn from theirs."""
    import numpy as np

    from benchmarks.rides import credit_branch

    rng = np.random.default_rng(0)
    truth = rng.normal(2, 5, 50)
    found = {
        "truth": truth,
        "again": truth + 1,
        "second": truth + 1,
        "patient": truth,
        "differ": np.arange(50) < 20,
        "taught truth": truth,
        "taught again": truth,
    }
    for share in credit_branch.SHARES:
        found |= {
            f"{place} {share}": truth + place for place in (credit_branch.WIDER, credit_branch.PLAIN, credit_branch.OWN)
        }
        found[f"taught {share}"] = truth - 3
    rows = [one.to_json() for one in credit_branch.summarise(found, "policy scratch 201")]
    template(repository, SECTION + '{{ about("credit_branch") }}\n\n{{ credit_bias() }}\n')
    store(repository, "credit_branch", rows, days=50)
    text = page(repository)
    assert "| rebuilt, 50% asked generously | 0.00 +- 0.00 | 1.00 +- 0.00 | 2.00 +- 0.00 |" in text
    assert "| 1.00, at least 0.8 | 1.00, at most 0.4 min, not met |" in text
    assert "| negotiated again | 1.00 +- 0.00 |" in text

    curve = [[0, 0.0, 0.0, -1.5], [256, 4.0, 12.0, 9.0]]
    part = {
        "name": "scratch seed 201",
        "own": [1.0],
        "reference": [],
        "curve": curve,
        "levels": {"myopic": 9.0},
        **STAMP,
    }
    higher = {**part, "name": "scratch seed 202", "curve": [curve[0], [256, 4.0, 14.0, 9.0]]}
    store(repository, "rides_credit", [row("rides, a", 1.0)], parts=[part, higher])
    noise = [
        row(f"rides, {stage}: gradient noise scale, GAE 0", value)
        for stage, value in (("untrained", 20.0), ("trained", None))
    ]
    store(repository, "credit_noise", noise)
    made = pages.made(repository)[0]
    assert "from nothing (2)" in made["docs/images/rides-learning.svg"]
    assert ">myopic<" in made["docs/images/rides-learning.svg"]
    assert made["docs/images/rides-noise.svg"].count("<circle") == 3  # two of the legend, and one that could be told
