"""What all tests share."""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

import cudaguard.api  # noqa: F401  # hands the features to the core

from .gallery import IS_SKIPPED
from .gallery import words_as_approved as words_as_approved
from .kept import PIP, Kept, kept_by_user, make_environment, run_python
from .native_fixtures import driver_stubs as driver_stubs
from .processes import Child
from .processes import clean_environment as clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent

# Hypothesis without time limits: these tests say nothing about speed.
settings.register_profile("cudaguard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("cudaguard")

# A shell has what it starts with `&` ignore the keys of the terminal, and all children inherit it.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (getattr(signal, "SIGQUIT", None), signal.SIG_DFL),
):
    if _number is not None and signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

# Files whose tests drive whole commands, wait for limits, or try very many inputs.
SLOW = frozenset((ROOT / "tests/slow.txt").read_text(encoding="utf-8").split())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow ones, before any are deselected by their marks."""
    for item in items:
        if item.path.relative_to(ROOT / "tests").with_suffix("").as_posix() in SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def child(tmp_path: Path) -> Child:
    """Runs code in fresh interpreters whose working folder is `tmp_path`."""
    return Child(tmp_path)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from this checkout unless ``$CUDAGUARD_TEST_WHEEL`` is one that was."""
    if os.environ.get("CUDAGUARD_TEST_WHEEL"):
        return Path(os.environ["CUDAGUARD_TEST_WHEEL"])
    folder = tmp_path_factory.mktemp("wheel")
    run_python(sys.executable, *PIP, "wheel", "--no-deps", "-w", folder, ROOT)
    (built,) = folder.glob("cudaguard-*.whl")
    return built


@pytest.fixture(scope="session")
def wheel_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that has the wheel, and sees what else is here."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    python = make_environment(folder, "--no-deps", str(wheel), with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    # What lies there is found, but no .pth file of it is run: of cudaguard there is the wheel only.
    (packages / "here.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return python


@pytest.fixture(scope="session")
def editable_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with an editable install of this checkout."""
    folder = tmp_path_factory.mktemp("editable") / "venv"
    return make_environment(folder, "--editable", str(ROOT), with_pip=False)


@pytest.fixture(scope="session")
def kept() -> Iterator[Kept]:
    """Folders that outlive this run: see `Kept`."""
    kept = kept_by_user()
    yield kept
    kept.clean()
    kept.release()


@pytest.fixture(scope="session")
def cached_environment(kept: Kept) -> Callable[..., Path]:
    """Returns the interpreter of an environment with exactly the pins given; it is only read."""
    return kept.environment


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Have the gallery know which tests were skipped."""
    outcome: Any = yield
    if call.when == "call":
        item.stash[IS_SKIPPED] = outcome.get_result().skipped
