"""What a lane's process is told by its standard input, and who has told it nothing."""

from __future__ import annotations

import os

import pytest

from ops.errors import OperatorError
from ops.lanes import orders
from ops.lanes.orders import Orders


@pytest.mark.parametrize("typed", [b"", b"hello\n", b"\xff\n", b"{}\n"])
def test_who_starts_a_lane_s_process_by_hand_is_told_how_it_is_done(
    monkeypatch: pytest.MonkeyPatch, typed: bytes
) -> None:
    read, write = os.pipe()
    monkeypatch.setattr(orders, "STDIN", read)
    os.write(write, typed)
    os.close(write)
    with pytest.raises(OperatorError, match=r"^a lane's process is started by 'delayline node run --lanes'"):
        Orders.receive()
    os.close(read)
