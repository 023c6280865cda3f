"""What all tests share: Hypothesis profiles, devices, files that lie beside a checkout."""

from __future__ import annotations

import gc
import os
import random
import signal
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.kernels.compress_devices import make_device
from tests.support.kernels.emulator import needs_compiler
from tests.support.kernels.gpus import needs_gpus
from tests.support.patches import NotedPatch
from tests.support.root import ROOT
from tnplan.planner.hardware.profile import load_profile

settings.register_profile("local", max_examples=20, deadline=None)
settings.register_profile(
    "ci", max_examples=20, deadline=None, derandomize=True, print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.register_profile("many", settings.get_profile("ci"), max_examples=200)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if "CI" in os.environ else "local"))


def leave_out_of_collections() -> None:
    """Leave all that there is out of collections of garbage: communicators collect it whenever they close,
    and would go through every library and every test."""
    gc.collect()
    gc.freeze()


def pytest_configure() -> None:
    """Let commands that tests start hear interrupts, which shells make their background jobs ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _warn_of_forks() -> None:
    """Warn of each fork, as JAX does where a test before has loaded it: an error, in any order of tests."""
    warnings.warn("a process with threads is forked", RuntimeWarning, stacklevel=2)


os.register_at_fork(before=_warn_of_forks)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options for a part of the tests in another order, so that none needs what others leave behind."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")
    parser.addoption("--share", type=float, default=1.0, help="of them only so many, by the same seed")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle the tests where `--shuffle` says so; all workers do it alike."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)
        del items[round(config.getoption("--share") * len(items)) :]


def pytest_report_header(config: pytest.Config) -> str | None:
    """Name the seed, with which a run is repeated."""
    seed = config.getoption("--shuffle")
    return None if seed is None else f"shuffled: --shuffle {seed} --share {config.getoption('--share')}"


def pytest_collection_finish() -> None:
    """Leave out what was imported and collected."""
    leave_out_of_collections()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Leave out what the tests of a file have imported and compiled."""
    if nextitem is not None and nextitem.path != item.path:
        leave_out_of_collections()


@pytest.fixture
def monkeypatch() -> Iterator[pytest.MonkeyPatch]:
    """pytest's; fails where a module was imported that keeps what was changed."""
    made = NotedPatch()
    yield made
    made.undo()
    assert made.left_behind() == [], "import it before the change"


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("emulated", marks=needs_compiler),
        pytest.param("gpu", marks=needs_gpus(1)),
    ],
)
def device(request: pytest.FixtureRequest) -> Any:
    """Where the codec's kernels run; some files have a device of their own."""
    return make_device(request.param)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the checkout."""
    return ROOT


class SharedData:
    """Files that lie beside the checkout for its developers, and are not part of it."""

    def __truediv__(self, name: str) -> Path:
        """The path of ../shared/data/`name`; where it is absent the test is skipped, naming it."""
        path = ROOT.parent / "shared" / "data" / name
        if not path.exists():
            pytest.skip(f"needs ../shared/data/{name}, which is not here")
        return path

    __call__ = __truediv__


@pytest.fixture(scope="session")
def shared() -> SharedData:
    """`shared / "paths/x.json"` is that file, or skips the test."""
    return SharedData()


@pytest.fixture(autouse=True, scope="session")
def known_core() -> Iterator[None]:
    """Estimates without `hardware` are for a shipped core, wherever the tests run."""
    shipped = replace(load_profile("cpu"), name="this machine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tnplan.questions.circuit.this_machine", lambda options, measure=False: shipped)
        yield


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, also where these tests were started in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
