"""The mutants: each leaves one clause of the rules (docs/design.md, "Exactly-once: the rule") out.

Production code has no switches: a mutant is hunted in a process of its own, where functions of the product do
something else (tests/simulation/overrides.py). Each has a profile of requests and faults that provokes what
the clause is there for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from tests.simulation.overrides import Change
from tests.simulation.profile import DEFAULT, FAULTS, REQUESTS, Profile


@dataclass(frozen=True)
class Mutant:
    """A clause left out."""

    name: str
    clause: str  # the rule, and how often leaving it out went wrong in the model that the rules come from
    without: str  # what the mutant does
    changes: tuple[Change, ...]
    profile: Profile = DEFAULT
    begin: int = 0  # the first seed to try
    seeds: int = 300  # give up after so many
    exhaustive: bool = False  # found by tests/simulation/fencing.py instead of by seeds


def profile_with(
    requests: dict[str, int] | None = None, faults: dict[str, int] | None = None, **changes: Any
) -> Profile:
    """The default profile with some weights and ranges changed."""
    return replace(
        DEFAULT,
        requests=REQUESTS | (requests or {}),
        faults=FAULTS | (faults or {}),
        **changes,
    )


# Requests that become visible after the position has passed them: applications' transactions, slow clocks.
LATE: Final = {"past": 20, "now": 25, "id-now": 15, "id-past": 15}
LATE_FAULTS: Final = {"foreign-stall": 20, "broker-clock-step": 15}
