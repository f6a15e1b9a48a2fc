"""The setting by which torch itself copies results that are held: ``generation``, rule CG039.

torch has it from 2.14 on. An older one is given it here, in its own configuration, which otherwise
is the same; what torch makes of it can be seen on a GPU only.
"""

import contextlib
import threading

import torch
import torch._inductor.config as config
from graph_tools import findings, raised, warned
from torch.utils import _config_module

import cudaguard

NAME = "triton.cudagraph_trees_generation_cloning"
RULE = {"enable": ["CG039"]}
IS_THERE = NAME in config._config


@contextlib.contextmanager
def setting():
    """A torch that has it."""
    if not IS_THERE:
        entry = _config_module._ConfigEntry(_config_module._Config(default=None), NAME)
        config._config[NAME] = entry
    try:
        assert values() == [None, None]
        yield
        assert values() == [None, None]
    finally:
        config._config[NAME].user_override.set(_config_module._UNSET_SENTINEL)
        if not IS_THERE:
            del config._config[NAME]
            config._get_dict_dirty_keys_var.set(None)  # all that is kept was made with it
            config._hash_dirty_var.set(True)


def value():
    return config.triton.cudagraph_trees_generation_cloning


def elsewhere(function):
    """What a function returns in another thread."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def values():
    """What torch reads, here and in another thread."""
    return [value(), elsewhere(value)]


def key():
    """What torch's caches have in their keys."""
    return config.save_config_portable(ignore_private_configs=False, readonly_values=True)[NAME]


def compiled():
    return torch.compile(lambda x: x + 1, mode="reduce-overhead")


def touched():
    entries = cudaguard.status().changes
    return [entry for entry in entries if NAME in entry and not entry.endswith("(stays)")]


ON = ["user_visible"] * 2
WORDS = f"torch._inductor.config.{NAME}: 'user_visible' for all threads of the process"


def case_what_a_program_sets_counts_in_its_own_thread_only():
    """Why it is not simply set."""
    with setting():
        config.triton.cudagraph_trees_generation_cloning = "user_visible"
        try:
            assert values() == ["user_visible", None]
        finally:
            config.triton.cudagraph_trees_generation_cloning = None


def case_rule_sets_it_for_all_threads_and_puts_it_back():
    with setting():
        for mode in ("fix", "strict"):
            with warned() as texts, findings() as found, cudaguard.guard(mode, **RULE):
                assert values() == ON
                assert touched() == [WORDS]
            assert values() == [None, None]
            assert touched() == []
            assert texts == found == []
        for mode in ("observe", "warn", "off"):
            with cudaguard.guard(mode, **RULE):
                assert values() == [None, None]
        with cudaguard.guard():
            assert values() == [None, None]


def case_blocks_within_each_other():
    with setting(), cudaguard.guard(**RULE):
        with cudaguard.guard(enable=["CG027"]):
            assert values() == ON
        assert values() == ON
        with cudaguard.guard(disable=["CG039"]):
            assert values() == [None, None]
        assert values() == ON


def case_caches_of_torch_know_of_it():
    """Or they would hand out what was compiled without it."""
    with setting():
        before = (key(), config.get_hash())
        with cudaguard.guard(**RULE):
            assert key() == "user_visible"
            assert config.get_hash() != before[1]
        assert (key(), config.get_hash()) == before


def case_setting_of_the_program_goes_before_it():
    with setting(), config.patch({NAME: None}):
        with cudaguard.guard(**RULE):
            assert values() == [None, "user_visible"]
        with config.patch({NAME: "user_visible"}), cudaguard.guard(**RULE):
            assert values() == ON
        assert values() == [None, None]


def case_another_default_is_left():
    with setting():
        entry = config._config[NAME]
        with cudaguard.guard(**RULE):
            entry.default = "another"
        assert entry.default == "another"
        assert f"{WORDS}: passes through, under a later patch (stays)" in cudaguard.status().changes
        entry.default = None


def case_torch_that_has_it_on_is_left_as_it_is():
    with setting():
        entry = config._config[NAME]
        entry.default = "user_visible"
        with cudaguard.guard(**RULE):
            assert values() == ON
        assert values() == ON
        entry.default = None


def case_graph_safe_asks_for_the_same():
    """Until uninstall(): what comes and goes between is somebody else's."""
    call = compiled()
    with setting():
        try:
            assert cudaguard.graph_safe(call, strategy="generation") is call
            assert values() == ON
            assert touched() == [WORDS]
            with cudaguard.guard(**RULE):
                assert touched() == [WORDS]
            with cudaguard.guard():
                assert values() == ON
            assert values() == ON
            assert cudaguard.graph_safe(compiled(), strategy="generation") is not call
            assert values() == ON
            assert touched() == [WORDS]
        finally:
            cudaguard.uninstall()
        assert touched() == []
        assert values() == [None, None]


def case_graph_safe_takes_over_what_a_rule_has_set():
    with setting():
        try:
            with cudaguard.guard(**RULE):
                cudaguard.graph_safe(compiled(), strategy="generation")
                assert touched() == [WORDS]
            assert values() == ON
        finally:
            cudaguard.uninstall()


def case_installed_guard_is_taken_down():
    with setting():
        guard = cudaguard.install(**RULE)
        assert values() == ON
        cudaguard.install(enable=["CG027"])
        assert values() == ON
        guard.uninstall()


def case_parked_tensors_are_looked_for_beside_it():
    class Encoder(torch.nn.Module):
        def forward(self, x):
            self.last = x * 2
            return x + 1

    encoder = Encoder()
    made = torch.compile(encoder.forward, backend="eager")
    with setting():
        try:
            call = cudaguard.graph_safe(made, strategy="generation", stored_tensors="report")
            with warned() as texts:
                call(torch.ones(2))
        finally:
            cudaguard.uninstall()
    assert texts == ["[CG852] A compiled call stored Encoder.last (2,)."]


def case_callable_without_graphs_asks_for_nothing():
    with setting():
        call = torch.compile(lambda x: x)
        assert cudaguard.graph_safe(call, strategy="generation") is call
        assert values() == [None, None]


def case_torch_without_it():
    if IS_THERE:
        return
    error = raised(cudaguard.GraphError, cudaguard.graph_safe, compiled(), strategy="generation")
    assert "strategy 'generation' needs torch 2.14 or later, whose torch._inductor" in str(error)
    assert torch.__version__ in str(error)
    with warned() as texts, cudaguard.guard(**RULE), cudaguard.guard(enable=["CG027"]):
        assert touched() == []
    (text,) = texts
    assert text.startswith(
        f"[CG896] Rule CG039 has no effect with torch {torch.__version__}: cudaguard cannot set "
    )
    assert text.endswith(f".{NAME}.")
    assert not hasattr(config.triton, NAME.partition(".")[2])
