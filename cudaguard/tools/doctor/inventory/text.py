"""The inventory for a terminal, and for the text of an issue."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

_WIDTH = 11


def text(found: Mapping[str, Any], *, verbose: bool = False) -> str:
    """Return the inventory as lines.

    Args:
        found: As `cudaguard.tools.doctor.inventory.document.inventory` returns it.
        verbose: With the packages of other fields.
    """
    system, python, gpu, torch = (found[key] for key in ("system", "python", "gpu", "torch"))
    lines = [
        *_titled("system", _system(system)),
        *_titled("Python", (_python(python), python["prefix"])),
        *_titled("driver", (_driver(gpu),)),
        *_titled("GPUs", gpus_told(gpu)),
        *_titled("torch", (_torch(torch),)),
        *_titled("tools", (f"{k} {v}" if v else f"no {k}" for k, v in found["tools"].items())),
        *_titled("libraries", (f"{k}: {v}" for k, v in found["libraries"].items())),
        *_titled("variables", (f"{k}={v}" for k, v in found["variables"].items())),
    ]
    for key, title in (("packages", "packages"), ("conda", "conda")):
        lines += _titled(title, table(found[key]))
        others = found["other_packages" if key == "packages" else "other_conda"]
        if verbose:
            lines += _titled("others", table({"name": k, "version": v} for k, v in others.items()))
        elif others:
            lines += _titled("", (f"and {len(others)} others: -v lists them",))
    return "\n".join(lines)


def gpus_told(gpu: Mapping[str, Any]) -> list[str]:
    """Return the GPUs, those of a kind together, as in ``8 x NVIDIA H100 80GB HBM3``."""
    models: list[str] = gpu["models"]
    if not models:
        count = gpu["pci_devices"]
        return [f"{count} on the PCI bus, models unknown" if count else "none"]
    return [f"{models.count(model)} x {model}" for model in dict.fromkeys(models)]


def table(packages: Iterable[Mapping[str, str]]) -> list[str]:
    """Return packages as lines with columns: name, version, source, build."""
    rows = [
        [one.get(key, "") for key in ("name", "version", "source", "build")] for one in packages
    ]
    widths = [max((len(row[at]) for row in rows), default=0) for at in range(3)]
    return [
        "  ".join((*(f"{c:<{w}}" for c, w in zip(row, widths)), row[3])).rstrip() for row in rows
    ]


def _titled(title: str, lines: Iterable[str]) -> list[str]:
    found = [line for line in lines if line]
    return [f"{title if not at else '':<{_WIDTH}}{line}" for at, line in enumerate(found)]


def _system(system: Mapping[str, Any]) -> list[str]:
    below = (system["os"], f"kernel {system['kernel']} {system['machine']}", system["libc"],
             system["kind"])  # fmt: skip
    memory = system["memory_bytes"]
    hardware = (system["cpu"], f"{system['cpus']} CPUs", f"{memory / 2**30:.0f} GiB" * bool(memory))
    return [
        ", ".join(filter(None, below)),
        ", ".join(filter(None, hardware)),
        system["instructions"],
    ]


def _python(python: Mapping[str, str]) -> str:
    words = (f"{python['implementation']} {python['version']} ({python['build']})",
             python["compiler"], python["threads"], python["kind"])  # fmt: skip
    return ", ".join(filter(None, words))


def _driver(gpu: Mapping[str, Any]) -> str:
    words = (f"kernel module {gpu['driver']}" if gpu["driver"] else "",
             f"{gpu['library']} {gpu['library_version']}".strip())  # fmt: skip
    return ", ".join(filter(None, words)) or "none"


def _torch(torch: Mapping[str, str]) -> str:
    if not torch:
        return "not installed"
    words = (torch["version"] or "without metadata",
             *(f"{key} {torch[key]}" for key in ("cuda", "hip", "xpu") if key in torch),
             f"commit {torch['commit'][:12]}" if "commit" in torch else "",
             "debug build" if torch.get("debug") == "True" else "", torch["folder"])  # fmt: skip
    return ", ".join(filter(None, words))
