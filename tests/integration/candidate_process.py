"""A candidate in a process of its own, for the tests to kill and pause.

Takes one argument, JSON: cluster, node, zookeeper, session_timeout_s, peer_port, silence_s, and yield_s: for
how long it lets a leader that has lost its session go first (null: the product's own time). Says on stdout,
one JSON object a line, what happens to it (`at_ns` is the machine's monotonic clock, the same for every
process), and does what the lines on its stdin say: enter, leave, confirm and within how many seconds, greeted
(by all those ahead of it). SIGTERM and the end of stdin make it leave and end.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from typing import Any

import structlog

import election.candidacy
from election.candidacy import Candidacy, ElectionState
from election.candidates import guid_of, queue_position_of
from election.errors import Unavailable
from election.peer import Peers
from election.session import Session, SessionState
from election.znodes import Znodes

HOST = "127.0.0.1"


def say(event: str, **what: Any) -> None:
    at_ns = time.monotonic_ns()
    sys.stdout.write(json.dumps({"event": event, "at_ns": at_ns, **what}) + "\n")
    sys.stdout.flush()


def say_state(state: ElectionState) -> None:
    say(
        "state",
        role=state.role,
        znode=state.znode,
        since_ms=state.since_ms,
        leader=state.leader,
    )


def say_session(state: SessionState) -> None:
    say("session", status=state.status, session_id=state.session_id)


def obey(command: str, candidacy: Candidacy, session: Session, peers: Peers) -> None:
    if command == "enter":
        candidacy.enter()
    elif command == "greeted":
        ahead = queue_position_of(guid_of(str(candidacy.state.znode)), session.children(candidacy.path)).ahead
        while not all(peers.has_greeted(name) for name in ahead):
            time.sleep(0.002)  # the test has the deadline
        say("greeted", by=len(ahead))
    elif command == "leave":
        say("left", done=candidacy.leave(timeout_s=2.0))
    elif command.startswith("confirm "):
        try:
            say("confirmed", answer=candidacy.confirm(float(command.removeprefix("confirm "))))
        except Unavailable as error:
            say("confirmed", answer=None, why=str(error))


def main() -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    logging.basicConfig(stream=sys.stderr)
    given = json.loads(sys.argv[1])
    if given["yield_s"] is not None:
        election.candidacy._YIELD_S = given["yield_s"]
    session = Session({"hosts": given["zookeeper"]}, given["session_timeout_s"])
    peers = Peers(given["node"], HOST, given["peer_port"], given["silence_s"])
    path = Znodes(given["cluster"]).candidates(0)
    candidacy = Candidacy(
        session, path, peers, node=given["node"], host=HOST, on_change=say_state, is_abreast=lambda: True
    )
    ended = threading.Event()

    def end_with_stdin() -> None:
        for line in sys.stdin:
            obey(line.strip(), candidacy, session, peers)
        ended.set()

    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    session.subscribe(say_session)
    candidacy.start()
    session.start()
    threading.Thread(target=end_with_stdin, daemon=True).start()
    say("started", port=peers.port)
    candidacy.enter()
    ended.wait()
    candidacy.leave()
    candidacy.stop()
    candidacy.join()
    session.stop()
    say("ended")


if __name__ == "__main__":
    main()
