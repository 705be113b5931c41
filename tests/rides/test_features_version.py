"""A run of rides knows which columns its policy reads."""

from __future__ import annotations

import importlib

import pytest

from shoal.learn.deploy import DeployedPolicy
from shoal.rides import observe
from shoal.rides.env import RidesVectorEnv


def test_the_version_follows_from_the_columns() -> None:
    """The same names in another order are another version, without anybody's having to think of it."""
    version = RidesVectorEnv.features_version
    assert version == observe.FEATURES_VERSION
    assert version.startswith("rides-")
    source = importlib.util.find_spec("shoal.rides.observe").loader.get_source("shoal.rides.observe")
    swapped = source.replace('"hour_sin",\n        "hour_cos"', '"hour_cos",\n        "hour_sin"')
    assert swapped != source
    names = {"__name__": observe.__name__}
    exec(compile(swapped, "swapped", "exec"), names)
    assert names["FEATURES_VERSION"] != version


def test_a_policy_of_other_columns_is_not_played() -> None:
    """One saved before there were versions is."""
    policy = object.__new__(DeployedPolicy)
    for saved in (None, observe.FEATURES_VERSION):
        policy.features_version = saved
        policy.check_features(observe.FEATURES_VERSION)
    policy.features_version = "rides-00000000"
    with pytest.raises(ValueError, match="trained on features rides-00000000, this environment gives rides-"):
        policy.check_features(observe.FEATURES_VERSION)
