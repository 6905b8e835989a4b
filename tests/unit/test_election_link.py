from __future__ import annotations

import errno

import pytest

from election.link import BEAT, Link, Peer, greeting

GUID, OTHER_GUID = "a" * 32, "b" * 32
NOW_S = 100.0


def connected() -> Link:
    link = Link("name", Peer("n1", GUID, "127.0.0.1", 17400))
    link.connecting()
    link.connected()
    return link


def greeted() -> Link:
    link = connected()
    assert link.heard(greeting("n1", GUID), NOW_S) == "go on"
    assert link.stage == "greeted"
    return link


def lost() -> Link:
    """One that greeted once, and was accepted again without a greeting."""
    link = greeted()
    assert link.ended() == "reconnect"
    link.connecting()
    link.connected()
    return link


def test_a_refusal_after_a_greeting_means_gone() -> None:
    link = greeted()
    link.ended()
    link.connecting()
    assert link.failed(errno.ECONNREFUSED, "refused") == "gone"


def test_a_refusal_without_a_greeting_means_nothing() -> None:
    link = connected()
    link.ended()
    link.connecting()
    assert link.failed(errno.ECONNREFUSED, "refused") == "retry"


@pytest.mark.parametrize("code", [errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ECONNRESET])
def test_every_other_failure_means_nothing(code: int) -> None:
    link = lost()
    link.connecting()
    assert link.failed(code, "failed") == "retry"


def test_a_reconnect_that_ends_without_a_greeting_means_nothing() -> None:
    assert lost().ended() == "retry"


@pytest.mark.parametrize("guid", [OTHER_GUID, None])
def test_another_candidacy_of_the_same_node_means_gone(guid: str | None) -> None:
    assert lost().heard(greeting("n1", guid), NOW_S) == "gone"
    assert connected().heard(greeting("n1", guid), NOW_S) == "gone"


@pytest.mark.parametrize(
    "answer",
    [greeting("n2", GUID), greeting("n2", OTHER_GUID), b"\n", b"SSH-2.0-OpenSSH\n", b"\xff" * 512, b"a b\n"],
)
def test_what_another_node_or_program_says_means_nothing(answer: bytes) -> None:
    link = lost()
    assert link.heard(answer, NOW_S) == "retry"
    assert "check its peer_host" in link.why


def test_a_greeting_may_come_in_pieces() -> None:
    link = connected()
    for byte in greeting("n1", GUID):
        assert link.heard(bytes([byte]), NOW_S) == "go on"
    assert link.stage == "greeted"


def test_what_a_greeted_peer_says_afterwards_is_ignored() -> None:
    assert greeted().heard(greeting("n1", OTHER_GUID), NOW_S) == "go on"


def test_attempts_get_rarer_up_to_one_a_second_and_begin_anew_after_a_greeting() -> None:
    link = connected()
    delays_s = []
    for _ in range(20):
        link.ended()
        delays_s.append(link.next_delay_s())
    assert delays_s == sorted(delays_s)
    assert (delays_s[0], delays_s[-1]) == (0.0005, 1.0)
    link.connecting()
    link.connected()
    link.heard(greeting("n1", GUID), NOW_S)
    link.ended()
    assert link.next_delay_s() == 0.00025


SILENCE_S = 0.5
LATER_S = NOW_S + 2 * SILENCE_S


def beaten() -> Link:
    link = greeted()
    link.heard(BEAT, NOW_S)
    return link


def test_what_has_never_beaten_is_never_silent() -> None:
    link = greeted()
    assert (link.has_beaten, link.is_silent(LATER_S, SILENCE_S)) == (False, False)


def test_a_beat_that_comes_with_the_greeting_counts() -> None:
    link = connected()
    link.heard(greeting("n1", GUID) + BEAT, NOW_S)
    assert (link.has_beaten, link.is_silent(LATER_S, SILENCE_S)) == (True, True)


def test_what_has_beaten_is_silent_only_once_its_time_is_over() -> None:
    assert not beaten().is_silent(NOW_S + SILENCE_S - 0.001, SILENCE_S)
    assert beaten().is_silent(NOW_S + SILENCE_S, SILENCE_S)


def test_what_beats_again_is_silent_no_more() -> None:
    link = beaten()
    link.heard(BEAT, LATER_S)
    assert not link.is_silent(LATER_S, SILENCE_S)


def test_what_beats_is_judged_anew_on_each_connection() -> None:
    link = beaten()
    link.ended()
    link.connecting()
    link.connected()
    link.heard(greeting("n1", GUID), NOW_S)
    assert not link.is_silent(LATER_S, SILENCE_S)


def test_who_has_not_listened_begins_anew() -> None:
    link = beaten()
    link.excuse(LATER_S)
    assert not link.is_silent(LATER_S, SILENCE_S)


def test_an_excuse_is_no_beat() -> None:
    link = greeted()
    link.excuse(NOW_S)
    assert not link.has_beaten
