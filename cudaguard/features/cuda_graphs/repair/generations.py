"""Have torch itself copy results that are still held when a graph is about to overwrite them.

A value that a program sets in torch's configuration counts in its own thread only. What holds for
all threads is the default, which a program's own setting still goes before. torch reads it when it
compiles: what was compiled before stays as it is, on both sides of the switch.

Source: torch 2.15, ``torch/utils/_config_module.py``, ``torch/_inductor/compile_fx.py``.
"""

from __future__ import annotations

from cudaguard.core.replace import Replaced

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MODULE = "torch._inductor.config"
SETTING = "triton.cudagraph_trees_generation_cloning"
_VALUE = "user_visible"


def is_known(config: Any) -> bool:
    """Return True if this torch has the setting, where a default can be set.

    Args:
        config: ``torch._inductor.config``, imported.
    """
    parts = ("_hash_dirty_var", "_mark_get_dict_dirty")
    return hasattr(_entry(config), "default") and all(hasattr(config, part) for part in parts)


def is_on(config: Any) -> bool:
    """Return True if it is on by default, for any reason."""
    return bool(_entry(config).default == _VALUE)


class GenerationCloning(Replaced):
    """The default of torch's setting; put back as attributes are.

    Args:
        config: ``torch._inductor.config``, which has it.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        self._before = _entry(config).default
        self._set(_VALUE)

    def is_in_place(self, owner: Any) -> bool:
        """Return True if this configuration was given, and no other default was set."""
        return owner is self._config and is_on(owner)

    def undo(self) -> bool:
        """Put the default back; False if somebody has set another one since."""
        if not self.is_in_place(self._config):
            return False
        self._set(self._before)
        return True

    def _set(self, value: object) -> None:
        _entry(self._config).default = value
        # What is set goes into the keys of torch's caches, and is kept there until it is told.
        self._config._hash_dirty_var.set(True)
        self._config._mark_get_dict_dirty(SETTING)


def _entry(config: Any) -> Any:
    return getattr(config, "_config", {}).get(SETTING)
