"""worked_examples.txt: scripted probes of the real CybORG, repeated line by line."""

from __future__ import annotations

from typing import Any

from shoal.cage2.simulator.network import (
    DISCOVER,
    ESCALATE,
    EXPLOIT,
    FAILED,
    FTP_TRAVERSAL,
    HTTPS_RFI,
    IMPACT,
    RED_SLEEP,
    SCAN,
    SSH_BRUTE_FORCE,
    SUCCEEDED,
    UNKNOWN,
)


def script(hand: Any, host: str, lines: list[tuple[str, int, int, int, float, str]]) -> None:
    """Each line: Blue's action, red's type, its exploit, then red's success, the reward, the host's bits."""
    for number, (blue, red, exploit, success, reward, bits) in enumerate(lines):
        got = hand.step(blue, red, host, exploit)
        assert (*got, hand.shows(host)) == (success, reward, bits), f"line {number}"


def test_impact_and_restore_of_the_server(hand: Any) -> None:
    """A: an impacted server costs 10 a step until Restore, after which it can never be stopped again."""
    hand.hold("Enterprise2")
    ssh = SSH_BRUTE_FORCE
    lines = [
        ("Sleep", SCAN, -1, SUCCEEDED, 0.0, "1000"),
        ("Sleep", EXPLOIT, ssh, SUCCEEDED, 0.0, "1101"),
        ("Sleep", IMPACT, -1, FAILED, 0.0, "0001"),
        ("Sleep", ESCALATE, -1, SUCCEEDED, -1.0, "0001"),
        ("Sleep", IMPACT, -1, SUCCEEDED, -11.0, "0001"),
        ("Sleep", RED_SLEEP, -1, UNKNOWN, -11.0, "0001"),
        ("Remove Op_Server0", RED_SLEEP, -1, UNKNOWN, -11.0, "0010"),
        ("Restore Op_Server0", RED_SLEEP, -1, UNKNOWN, -1.0, "0000"),
        ("Sleep", RED_SLEEP, -1, UNKNOWN, 0.0, "0000"),
        ("Sleep", EXPLOIT, ssh, SUCCEEDED, 0.0, "1101"),
        ("Sleep", IMPACT, -1, SUCCEEDED, 0.0, "0001"),
        ("Sleep", ESCALATE, -1, SUCCEEDED, -1.0, "0001"),
        ("Sleep", IMPACT, -1, SUCCEEDED, -1.0, "0001"),
        ("Sleep", RED_SLEEP, -1, UNKNOWN, -1.0, "0001"),
    ]
    script(hand, "Op_Server0", lines)


def test_restore_before_any_impact_disarms_it(hand: Any) -> None:
    """B: a Restore of Op_Server0 before the first Impact has the same lasting effect."""
    hand.hold("Enterprise2")
    hand.step("Restore Op_Server0")
    hand.step("Sleep", SCAN, "Op_Server0")
    hand.step("Sleep", EXPLOIT, "Op_Server0", SSH_BRUTE_FORCE)
    hand.step("Sleep", ESCALATE, "Op_Server0")
    assert hand.step("Sleep", IMPACT, "Op_Server0") == (SUCCEEDED, -1.0)
    assert hand.shows("Op_Server0") == "0001"


def test_blue_acts_before_red_in_the_same_step(hand: Any) -> None:
    """C: Remove and Restore defeat a same-step escalation; a same-step exploit survives a Restore."""
    hand.step("Sleep", SCAN, "Enterprise1")
    lines = [
        ("Sleep", EXPLOIT, HTTPS_RFI, SUCCEEDED, 0.0, "1101"),
        ("Remove Enterprise1", ESCALATE, -1, FAILED, 0.0, "0010"),
        ("Sleep", EXPLOIT, HTTPS_RFI, SUCCEEDED, 0.0, "1101"),
        ("Restore Enterprise1", ESCALATE, -1, FAILED, -1.0, "0000"),
        ("Restore Enterprise1", EXPLOIT, HTTPS_RFI, SUCCEEDED, -1.0, "1101"),
        ("Analyse Enterprise1", RED_SLEEP, -1, UNKNOWN, 0.0, "0011"),
        ("Remove Enterprise1", RED_SLEEP, -1, UNKNOWN, 0.0, "0010"),
        ("Analyse Enterprise1", RED_SLEEP, -1, UNKNOWN, 0.0, "0011"),
        ("Sleep", ESCALATE, -1, FAILED, 0.0, "0011"),
    ]
    script(hand, "Enterprise1", lines)


def test_ssh_sessions_cannot_be_removed(hand: Any) -> None:
    """D: an SSH session survives Remove and leaves no file until red escalates."""
    hand.step("Sleep", SCAN, "Enterprise0")
    lines = [
        ("Sleep", EXPLOIT, SSH_BRUTE_FORCE, SUCCEEDED, 0.0, "1101"),
        ("Analyse Enterprise0", RED_SLEEP, -1, UNKNOWN, 0.0, "0001"),
        ("Remove Enterprise0", RED_SLEEP, -1, UNKNOWN, 0.0, "0010"),
        ("Sleep", ESCALATE, -1, SUCCEEDED, -1.0, "0010"),
        ("Analyse Enterprise0", RED_SLEEP, -1, UNKNOWN, -1.0, "0011"),
    ]
    script(hand, "Enterprise0", lines)


def test_decoys_mask_and_sharpen_what_blue_sees(hand: Any) -> None:
    """E: a fresh decoy hides a scan of few ports, turns a decoy hit into an exploit; Restore wipes it."""
    lines = [
        ("DecoyTomcat Enterprise0", SCAN, -1, SUCCEEDED, 0.0, "0000"),
        ("Sleep", EXPLOIT, HTTPS_RFI, FAILED, 0.0, "1000"),
        ("DecoyApache Enterprise0", EXPLOIT, HTTPS_RFI, FAILED, 0.0, "1101"),
        ("DecoyHarakaSMPT Enterprise0", SCAN, -1, SUCCEEDED, 0.0, "1001"),
        ("DecoyApache Enterprise0", SCAN, -1, SUCCEEDED, 0.0, "1001"),
        ("Restore Enterprise0", EXPLOIT, HTTPS_RFI, FAILED, -1.0, "0000"),
    ]
    script(hand, "Enterprise0", lines)


def test_operational_is_closed_without_an_enterprise_session(hand: Any) -> None:
    """F: without an Enterprise session scans of Operational come back empty, sweeps and exploits fail."""
    assert hand.step("Sleep", SCAN, "Op_Server0") == (SUCCEEDED, 0.0)
    assert hand.shows("Op_Server0") == "0000"
    assert hand.step("Sleep", EXPLOIT, "Op_Server0", -1) == (FAILED, 0.0)
    assert hand.step("Sleep", DISCOVER, "Operational") == (FAILED, 0.0)
    hand.hold("Enterprise1")
    assert hand.step("Sleep", SCAN, "Op_Server0") == (SUCCEEDED, 0.0)
    assert hand.shows("Op_Server0") == "1000"
    hand.s.user_fixed = 0
    assert hand.step("Sleep", EXPLOIT, "Op_Server0", SSH_BRUTE_FORCE) == (FAILED, 0.0)
    assert hand.shows("Op_Server0") == "0000"


def test_the_foothold_on_user0_returns(hand: Any) -> None:
    """G: Restore of User0 costs 1 and red's first session comes back."""
    hand.step("Sleep", SCAN, "User0")
    lines = [
        ("Sleep", EXPLOIT, FTP_TRAVERSAL, SUCCEEDED, 0.0, "1101"),
        ("Restore User0", RED_SLEEP, -1, UNKNOWN, -1.0, "0000"),
        ("Sleep", ESCALATE, -1, SUCCEEDED, 0.0, "0000"),
    ]
    script(hand, "User0", lines)


def test_defender_never_falls(hand: Any) -> None:
    """H: an exploit of Defender fails, noisily."""
    hand.step("Sleep", SCAN, "Defender")
    lines = [
        ("Sleep", EXPLOIT, SSH_BRUTE_FORCE, FAILED, 0.0, "1101"),
        ("Restore Defender", RED_SLEEP, -1, UNKNOWN, -1.0, "0000"),
        ("Monitor", RED_SLEEP, -1, UNKNOWN, 0.0, "0000"),
    ]
    script(hand, "Defender", lines)
