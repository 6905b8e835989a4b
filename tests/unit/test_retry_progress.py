"""How a message that kills its process is found, by nothing but what is committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayline.retry.progress import CLOSED, MOST_UNCOMMITTED, OPEN, Mark, PartitionProgress, State

MAX_DEATHS = 3


@pytest.mark.parametrize("mark", [CLOSED, OPEN, Mark(State.IN_HAND, 1), Mark(State.IN_HAND, 12)])
def test_a_mark_is_read_as_it_was_committed(mark: Mark) -> None:
    assert Mark.parse(mark.metadata) == mark


@pytest.mark.parametrize(
    "metadata", [None, "", "another program's", "delayline-retry", "delayline-retry open x"]
)
def test_what_another_program_has_committed_is_closed(metadata: str | None) -> None:
    assert Mark.parse(metadata) == CLOSED


def test_after_a_good_end_one_commit_comes_before_the_first_message_and_none_before_others() -> None:
    progress = PartitionProgress(5, CLOSED)
    assert progress.mark_before(5) == OPEN
    progress.marked(5)
    assert not progress.finished(5)
    assert progress.mark_before(6) is None


def test_no_more_than_the_most_are_handled_without_a_commit() -> None:
    progress = PartitionProgress(0, CLOSED)
    progress.marked(0)
    at_once = [offset for offset in range(MOST_UNCOMMITTED) if progress.finished(offset)]
    assert at_once == [MOST_UNCOMMITTED - 1]


def test_after_a_death_each_message_is_marked_as_long_as_it_may_be_the_cause() -> None:
    progress = PartitionProgress(0, OPEN)
    for offset in range(MOST_UNCOMMITTED):
        assert progress.mark_before(offset) == Mark(State.IN_HAND, 1)
        progress.marked(offset)
        assert progress.finished(offset)
        progress.committed()
    assert progress.mark_before(MOST_UNCOMMITTED) is None
    assert progress.mark_at_release() == CLOSED


def test_a_mark_commits_what_was_before_so_that_no_later_commit_takes_its_place() -> None:
    progress = PartitionProgress(0, OPEN)
    progress.marked(0)
    progress.finished(0)  # and the commit after it fails
    progress.marked(1)
    assert progress.uncommitted == 0


def test_a_partition_that_was_not_touched_is_left_as_it_was_found() -> None:
    assert PartitionProgress(5, Mark(State.IN_HAND, 2)).mark_at_release() is None


def test_a_message_that_is_let_go_unfinished_keeps_the_count_it_was_found_with() -> None:
    progress = PartitionProgress(5, Mark(State.IN_HAND, 2))
    progress.marked(5)
    assert (progress.next_offset, progress.mark_at_release()) == (5, Mark(State.IN_HAND, 2))


class Partition:
    """A partition and its group's commit, read by one process after the other."""

    def __init__(self, messages: int, poison: set[int]) -> None:
        self.messages, self.poison = messages, poison
        self.commit, self.mark = 0, CLOSED
        self.calls: Counter[int] = Counter()
        self.dead_letters: list[int] = []

    def run(self, commits_by_time: Iterator[bool], stop_after: int) -> bool:
        """One process: until it dies, or stops in good order. Whether it has come to the end."""
        progress = PartitionProgress(self.commit, self.mark)
        for offset in range(self.commit, min(self.messages, self.commit + stop_after)):
            if progress.times_in_hand(offset) >= MAX_DEATHS:
                self.dead_letters.append(offset)
            else:
                if mark := progress.mark_before(offset):
                    self.commit, self.mark = offset, mark
                    progress.marked(offset)
                self.calls[offset] += 1
                if offset in self.poison:
                    return False
            if progress.finished(offset) or next(commits_by_time):
                self.commit, self.mark = progress.next_offset, OPEN
                progress.committed()
        if mark := progress.mark_at_release():
            self.commit, self.mark = progress.next_offset, mark
        return self.commit == self.messages


@given(
    messages=st.integers(1, 30),
    poison=st.sets(st.integers(0, 29)),
    commits=st.lists(st.booleans(), min_size=1, max_size=7),
    stops=st.lists(st.integers(1, 40), min_size=1, max_size=4),
)
def test_each_poison_and_nothing_else_is_a_dead_letter_after_few_deaths(
    messages: int, poison: set[int], commits: list[bool], stops: list[int]
) -> None:
    poison &= set(range(messages))
    partition = Partition(messages, poison)
    by_time = (commits[number % len(commits)] for number in count())
    for process in count():
        assert process < 100 + 6 * messages, "it comes to an end"
        if partition.run(by_time, stops[process % len(stops)]):
            break
    assert partition.dead_letters == sorted(poison)
    assert all(partition.calls[offset] in (MAX_DEATHS, MAX_DEATHS + 1) for offset in poison)
    assert set(range(messages)) == set(partition.calls)
