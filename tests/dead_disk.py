"""A file system that does not answer, as a network disk whose server is gone: made with FUSE."""

from __future__ import annotations

import contextlib
import ctypes
import os

import pytest

_MNT_DETACH = 2


@contextlib.contextmanager
def dead_disk(folder):
    """Mount one on a folder; whoever looks at it waits until the end of the block, or is killed."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        kernel = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        pytest.skip(f"it takes FUSE: {error}")
    options = f"fd={kernel},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"dead", os.fsencode(folder), b"fuse", 0, options.encode()):
        os.close(kernel)
        pytest.skip(f"it takes the right to mount: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        os.close(kernel)  # whoever waits gets an error
        libc.umount2(os.fsencode(folder), _MNT_DETACH)
