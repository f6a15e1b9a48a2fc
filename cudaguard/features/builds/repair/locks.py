"""The lock of a build: taken from a builder that was killed, waited for where one is alive."""

from __future__ import annotations

import os
import time

from cudaguard.core.caller import frame_outside_of
from cudaguard.core.loader import ON_PURPOSE
from cudaguard.core.request import Done, WouldDo
from cudaguard.features.builds.locks import LockFacts, command_of, identity, look
from cudaguard.features.builds.messages import builds as wording
from cudaguard.features.builds.policy import YOUNG, state_of
from cudaguard.features.builds.repair.actions import take_over
from cudaguard.files import ours
from cudaguard.system.redact import redacted_arguments

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cudaguard.core.permit import Permit
    from cudaguard.core.request import Request

PATIENCE = 30.0  # seconds, until it is said for whom we wait
_BETWEEN_LOOKS = 5.0  # seconds: a look at all processes costs about ten milliseconds


def lock_class(request: Request, original: Any, permit: Permit) -> type:
    """Return torch's lock with another way to acquire it.

    Args:
        request: Is told.
        original: ``torch.utils.file_baton.FileBaton``.
        permit: What may be done, at every call.
    """
    acquire = original.try_acquire

    def try_acquire(self: Any) -> Any:
        """As torch's; comes back only once the lock is ours, or its holder has let it go."""
        acquired = acquire(self)
        if acquired or not permit.looks:
            return acquired
        try:
            taken = _wait(request, permit, os.path.abspath(self.lock_file_path), self.wait_seconds)
        except ON_PURPOSE:
            raise
        except ours(Exception) as error:
            request.reporter.broken("looking at the lock of a build", error)
            return acquired
        if taken is None:
            return acquired
        self.fd = taken
        return True

    members = {name: vars(original).get(name) for name in ("__doc__", "__module__")}
    return type(original.__name__, (original,), {**members, "try_acquire": try_acquire})


def _wait(request: Request, permit: Permit, path: str, pause: float) -> int | None:
    """Wait until a lock is let go (None), or take it from the dead (its descriptor)."""
    began = time.monotonic()
    next_look = began
    is_told = False
    while permit.looks and os.path.exists(path):  # it may be switched off meanwhile
        now = time.monotonic()
        if now >= next_look:
            next_look = now + _BETWEEN_LOOKS
            which = identity(path)
            lock = look(path)
            if which is None or lock is None:
                continue
            state = state_of(**lock._asdict())
            if state == "young":
                next_look = now + max(pause, min(YOUNG, YOUNG - lock.age))  # clocks differ
            if state == "stale" and permit.acts:
                ours = take_over(path, which)
                if ours is not None:
                    _tell_removed(request, path, lock)
                    return ours
                next_look = now  # somebody else is about to
            elif state == "stale" and not is_told:
                is_told = True
                finding = wording.stale_lock(path, lock.age, is_removed=False)
                request.tell(WouldDo(finding), frame_outside_of("torch"))
            elif not is_told and now - began >= PATIENCE:
                is_told = True
                _tell_waiting(request, path, state, lock)
        time.sleep(pause)
    return None


def _tell_removed(request: Request, path: str, lock: LockFacts) -> None:
    finding = wording.stale_lock(path, lock.age, is_removed=True)
    request.tell(Done(path, wording.REMOVED, left=finding), frame_outside_of("torch"))


def _tell_waiting(request: Request, path: str, state: str, lock: LockFacts) -> None:
    whom = tuple(
        (pid, " ".join(redacted_arguments(command_of(pid))).strip())
        for pid in lock.holders or lock.workers
    )
    why = wording.why_unknown(state, lock.elsewhere, lock.hidden)
    finding = wording.waiting(path, state, whom, why)
    request.tell(WouldDo(finding), frame_outside_of("torch"))
