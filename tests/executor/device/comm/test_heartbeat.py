"""The heartbeat of ranks: who is silent is named on all that are left; others are left alone."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tnplan.executor.device.comm.heartbeat import Heartbeat, Peer, addresses

EVERY_S, TIMEOUT_S = 0.05, 0.6
TOKEN = b"t" * 16


class Ranks:
    """Heartbeats of ranks on hosts h0, h0, h1, h1, and what they ended with."""

    def __init__(self, size: int, every_s: float = EVERY_S, can_resume: bool = False) -> None:
        sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(size)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        peers = [
            Peer(f"h{rank // 2}", one.getsockname()[1], ("127.0.0.1",), TOKEN)
            for rank, one in enumerate(sockets)
        ]
        self.said: dict[int, tuple[str, bool]] = {}
        self.beats = [
            Heartbeat(rank, peers, one, TIMEOUT_S, self._end(rank), every_s, can_resume)
            for rank, one in enumerate(sockets)
        ]
        self.sockets = sockets
        for beat in self.beats:
            beat.start()

    def _end(self, rank: int):  # type: ignore[no-untyped-def]
        return lambda text, prints: self.said.setdefault(rank, (text, prints))

    def silence(self, *ranks: int) -> None:
        """Nothing comes to or from these ranks any more, good-byes neither."""
        for rank in ranks:
            self.sockets[rank].close()
            self.beats[rank].stop()

    def wait(self, count: int) -> None:
        """Wait until so many ranks have ended."""
        end_s = time.monotonic() + 20
        while len(self.said) < count and time.monotonic() < end_s:
            time.sleep(0.01)

    def wait_until_heard(self) -> None:
        """Wait until all have heard whom they watch."""
        end_s = time.monotonic() + 20
        while any(beat.unheard() for beat in self.beats) and time.monotonic() < end_s:
            time.sleep(0.01)


@pytest.fixture
def four() -> Iterator[Ranks]:
    made = Ranks(4)
    made.wait_until_heard()
    yield made
    for beat in made.beats:
        beat.stop()


def test_all_have_heard_each_other_before_the_second_beat() -> None:
    """So that a host that is lost at once is missed, and on it the others are."""
    made = Ranks(4, every_s=3600.0)
    made.wait_until_heard()
    assert [beat.unheard() for beat in made.beats] == [[]] * 4
    for beat in made.beats:
        beat.stop()


def test_a_silent_rank_is_named_once(four: Ranks) -> None:
    four.silence(3)
    four.wait(3)
    assert [four.said[rank][1] for rank in range(3)] == [True, False, False]
    assert all("rank 3 on h1 did not answer for 0.6 s" in four.said[rank][0] for rank in range(3))


def test_the_loss_of_rank_0_is_said_on_every_host_that_is_left(four: Ranks) -> None:
    four.silence(0)
    four.wait(3)
    assert all("rank 0 on h0" in four.said[rank][0] for rank in (1, 2, 3))
    assert [four.said[rank][1] for rank in (1, 2, 3)] == [False, True, False]


def test_who_says_good_bye_is_not_missed(four: Ranks) -> None:
    four.beats[2].stop()
    time.sleep(2 * TIMEOUT_S)
    assert four.said == {}


@pytest.mark.parametrize("can_resume", [False, True])
def test_a_lost_rank_offers_to_resume_where_there_are_checkpoints_alone(can_resume: bool) -> None:
    made = Ranks(4, can_resume=can_resume)
    made.wait_until_heard()
    made.silence(3)
    made.wait(3)
    remedies = ("start it again", "--resume goes on from its checkpoint, if any")
    assert len(made.said) == 3
    assert all(text.endswith(f"the job is ended; {remedies[can_resume]}") for text, _ in made.said.values())
    for beat in made.beats:
        beat.stop()


def test_what_others_send_changes_nothing(four: Ranks) -> None:
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    end = bytes((1, 0, 0, 0, 1)) + b"end"
    for packet in (b"", b"x" * 2000, b"s" * 16 + end, TOKEN + bytes((1, 0, 0, 0, 9))):
        stranger.sendto(packet, four.sockets[0].getsockname())
    time.sleep(0.3)
    stranger.close()
    assert four.said == {}
    assert all(not beat.unheard() for beat in four.beats)


def test_ranks_that_were_never_heard_are_not_missed() -> None:
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for one in (silent, own):
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in (own, silent)]
    peers = [Peer(f"h{rank}", port, ("127.0.0.1",), TOKEN) for rank, port in enumerate(ports)]
    ended: list[str] = []
    beat = Heartbeat(0, peers, own, TIMEOUT_S, lambda text, prints: ended.append(text), EVERY_S)
    beat.start()
    time.sleep(2 * TIMEOUT_S)
    assert (beat.unheard(), ended) == ([1], [])
    beat.stop()
    silent.close()
    own.close()


def test_the_end_of_a_job_waits_for_no_beat() -> None:
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(("127.0.0.1", 0))
    peers = [Peer("h0", own.getsockname()[1], ("127.0.0.1",), TOKEN)]
    beat = Heartbeat(0, peers, own, 3600.0, lambda text, prints: None, every_s=3600.0)
    beat.start()
    stopped = threading.Thread(target=beat.stop, daemon=True)
    stopped.start()
    stopped.join(30.0)
    assert not stopped.is_alive()


def test_a_host_has_addresses() -> None:
    assert addresses()[-1] == "127.0.0.1"
