"""The inventory as data, and the same without what others should not read."""

from __future__ import annotations

import os

from cudaguard.tools.doctor.inventory import machine
from cudaguard.tools.doctor.inventory.packages import conda_packages, packages

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from cudaguard.system.site import Site

_MATTERS = ("CUDA", "NVIDIA", "TORCH", "PYTORCH", "TRITON", "LD_", "PYTHON", "CONDA", "VIRTUAL_ENV",
            "NCCL", "OMP_", "KMP_", "MKL_", "MAX_JOBS", "CC", "CXX", "PATH", "XLA_", "TF_",
            "JAX_")  # fmt: skip


def inventory(site: Site) -> dict[str, Any]:
    """Return what an issue report has to say of an environment.

    Args:
        site: The environment.
    """
    of_field, others = packages(site.distributions)
    others.update((os.path.basename(one.path), "unreadable") for one in site.unreadable)
    of_conda, other_conda = conda_packages()
    return {
        "system": machine.system(),
        "python": machine.python(),
        "gpu": machine.gpus(),
        "torch": machine.torch(site.version("torch") or ""),
        "tools": machine.tools(site.environ),
        "libraries": machine.libraries(),
        "variables": variables(site.environ),
        "packages": of_field,
        "other_packages": others,
        "conda": of_conda,
        "other_conda": other_conda,
    }


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that CUDA programs heed, sorted."""
    return {name: environ[name] for name in sorted(environ) if name.startswith(_MATTERS)}


def redacted(value: Any, redact: Callable[[str], str], name: str = "") -> Any:
    """Return the inventory with every text redacted.

    A text is judged together with its name: ``HF_TOKEN=...`` is a secret, and ``version=10.3.9.90``
    no address.

    Args:
        value: The inventory, or a part of it.
        redact: As `cudaguard.system.redact.redactor` returns it.
        name: Of that part.
    """
    if isinstance(value, str):
        told = redact(f"{name}={value}")
        before = f"{name}="
        return told[len(before) :] if told.startswith(before) else redact(value)
    if isinstance(value, list):
        return [redacted(one, redact, name) for one in value]
    if isinstance(value, dict):
        is_versions = name.startswith("other_")
        return {
            key: redacted(one, redact, "version" if is_versions else key)
            for key, one in value.items()
        }
    return value
