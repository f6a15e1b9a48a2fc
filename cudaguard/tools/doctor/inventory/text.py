"""The inventory for a terminal, and for the text of an issue."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from cudaguard.tools.layout import Page

_WIDTH = 11


def write(found: Mapping[str, Any], page: Page) -> None:
    """Write the inventory.

    Args:
        found: As `cudaguard.tools.doctor.inventory.document.inventory` returns it.
        page: Where to; a verbose one gets the packages of other fields too.
    """
    system, python, gpu, torch = (found[key] for key in ("system", "python", "gpu", "torch"))
    for title, lines in (
        ("system", _system(system)),
        ("Python", (_python(python), python["prefix"])),
        ("driver", (_driver(gpu),)),
        ("GPUs", gpus_told(gpu)),
        ("torch", (_torch(torch),)),
        ("tools", (f"{k} {v}" if v else f"no {k}" for k, v in found["tools"].items())),
        ("libraries", (f"{k}: {v}" for k, v in found["libraries"].items())),
        ("variables", (f"{k}={v}" for k, v in found["variables"].items())),
    ):
        _titled(title, lines, page)
    for key in ("packages", "conda"):
        _table(key, found[key], page)
        others = found["other_packages" if key == "packages" else "other_conda"]
        if page.verbose:
            _table("others", ({"name": k, "version": v} for k, v in others.items()), page)
        elif others:
            _titled("", (f"and {len(others)} more (--verbose)",), page)


def gpus_told(gpu: Mapping[str, Any]) -> list[str]:
    """Return the GPUs, those of a kind together, as in ``8 x NVIDIA H100 80GB HBM3``."""
    models: list[str] = gpu["models"]
    if not models:
        count = gpu["pci_devices"]
        return [f"{count} on the PCI bus, models unknown" if count else "none"]
    return [f"{models.count(model)} x {model}" for model in dict.fromkeys(models)]


def _table(title: str, packages: Iterable[Mapping[str, str]], page: Page) -> None:
    """Write packages as a table: name, version, source, build."""
    rows = [
        [one.get(key, "") for key in ("name", "version", "source", "build")] for one in packages
    ]
    widths = [max((len(row[at]) for row in rows), default=0) for at in range(3)]
    for at, row in enumerate(rows):
        cells = "".join(f"{cell:<{width}}  " for cell, width in zip(row, widths) if width)
        page.add(row[3], lead=f"{'' if at else title:<{_WIDTH}}{cells}", hanging=_WIDTH + 2)


def _titled(title: str, lines: Iterable[str], page: Page) -> None:
    for at, line in enumerate(filter(None, lines)):
        page.add(line, lead=f"{'' if at else title:<{_WIDTH}}", hanging=_WIDTH + 2)


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
