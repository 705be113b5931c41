"""The folder of a search or a comparison, taken for a run, says what it is and which command takes it; and so on."""

from __future__ import annotations

from pathlib import Path

import pytest

import shoal
from shoal import cli
from shoal.runs.folder import Run

KINDS = {
    "search": ("a search", "shoal search --resume runs/it", "below runs/it/pulls"),
    "comparison": ("a comparison", "shoal compare runs/it", "in runs/it/runs"),
    "seeds": ("a training with several seeds", "shoal train --resume runs/it", "in runs/it/runs"),
    "task": ("a training run", "shoal train --resume runs/it", ""),
}
TRAINING, SEARCH = "not of a training run", "not of a search"
WRONG = [
    *((kind, ["train", "--resume", "it"], TRAINING) for kind in ("search", "comparison")),
    *((kind, ["evaluate", "it"], TRAINING) for kind in ("search", "comparison", "seeds")),
    *((kind, ["play", "it"], TRAINING) for kind in ("search", "comparison", "seeds")),
    *((kind, ["train", "CartPole-v1", "--init-from", "it"], TRAINING) for kind in ("search", "comparison", "seeds")),
    *((kind, ["search", "--resume", "it"], SEARCH) for kind in ("task", "comparison", "seeds")),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("kind", "command", "wanted"), WRONG, ids=lambda value: value if isinstance(value, str) else value[0]
)
def test_a_folder_of_another_kind(
    kind: str, command: list[str], wanted: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one message, with the command to type; the folder stays as it is."""
    Run.create(here, "it", {kind: {}}, "shoal", "it").close()
    with pytest.raises(SystemExit) as ended:
        cli.main(command)
    said = capsys.readouterr().err
    what, cure, inside = KINDS[kind]
    assert ended.value.code == 2, said
    assert f"runs/it is the folder of {what}, {wanted}. To go on with it:\n  {cure}\n" in said
    assert inside in said
    assert "Traceback" not in said
    assert [path.name for path in here.iterdir()] == ["it"]


def test_from_python(here: Path) -> None:
    """The command is to be typed as it is; the words of the shell stay in it."""
    Run.create(here, "it", {"seeds": {}}, "shoal", "it").close()
    for call in (lambda: shoal.train(resume="it"), lambda: shoal.evaluate("it"), lambda: shoal.load_policy("it")):
        with pytest.raises(
            ValueError, match=r"several seeds, not of a training run.*\n  shoal train --resume runs/it\n"
        ):
            call()
