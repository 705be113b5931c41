"""A folder of seeds or a comparison may come from anybody: going on with it imports what the user names, no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal import cli
from shoal.comparison.facts import source_digest
from shoal.comparison.folder import ComparisonFolder
from shoal.comparison.loop import check_named
from shoal.comparison.plan import Arm, Plan
from shoal.config import to_dict
from shoal.tasks.presets import config_for

OPTIONS = {
    "imports": {"imports": ("strange",)},
    "id": {"task": "strange:Thing-v0"},
    "wrapper": {"wrappers": ("strange:Wrapper",)},
    "callback": {"callbacks": ("strange:Callback",)},
    "tracker": {"track": "tensorboard,strange:Tracker"},
    "plan": {},
}


@pytest.mark.parametrize("way", OPTIONS)
@pytest.mark.parametrize("alone", [True, False], ids=["seeds", "comparison"])
def test_no_module_of_the_folder_is_imported(
    way: str, alone: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused with the command to type; the folder stays as it is, and whoever names the module goes on."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strange.py").write_text("open('imported', 'w').close()\n")
    config = to_dict(config_for("CartPole-v1").replace(**OPTIONS[way]))
    plan = Plan(
        task="CartPole-v1", arms=tuple(Arm(name, config) for name in "ab"[: 1 if alone else 2]), seeds=2, seed=0,
        held_out=2, match="samples", primary="final", threshold=None, code=source_digest(), alone=alone,
        imports=("strange",) if way == "plan" else (),
    )  # fmt: skip
    folder = ComparisonFolder.create(plan, "runs", "theirs", "shoal")
    folder.run.close()
    command = ["train", "--resume", "theirs"] if alone else ["compare", "theirs"]
    with pytest.raises(SystemExit) as ended:
        cli.main(command)
    said = capsys.readouterr().err
    assert ended.value.code == 2, said
    assert "names modules to import: strange" in said
    assert f"shoal {' '.join(command[:-1])} runs/theirs --import strange\n" in said
    assert not (tmp_path / "imported").exists()
    assert (folder.path / "config.json").exists()
    check_named(folder, ["strange"], "shoal")  # raises nothing
