"""What runs in the fresh interpreters: ``python child.py <task> <arguments>``.

Run as a script and importing next to nothing, so that whatever a subject imports is paid for
while the clock runs. Prints one ``name value`` line per measured value, in CPU seconds.
"""

from __future__ import annotations

import sys
from time import process_time

NOBODY_IMPORTS_THIS = "benchmark_module_nobody_imports"
WARM_UP = "benchmark_warm_up"
EXTENSION_WARM_UP = "benchmark_e_warm_up"


def generated_names(count):
    """The names of the generated modules (written to disk by `subjects.write_modules`)."""
    return [f"benchmark_m{number:04d}" for number in range(count)]


# --- the ideals: the least that any hook of this kind must do --------------------------

_watched: dict[str, object] = {}


class IdealFinder:
    """One look-up in one dictionary; here a global one, which is the fastest kind."""

    def find_spec(self, name, path=None, target=None):
        if name not in _watched:
            return None
        for finder in sys.meta_path:
            if finder is not self:
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    spec.loader = IdealLoader(spec.loader)
                    return spec
        return None


class IdealLoader:
    """Puts the real loader back and calls one function before and one after the import."""

    __slots__ = ("real",)

    def __init__(self, real):
        self.real = real

    def create_module(self, spec):
        nothing(spec)
        return self.real.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.real
        self.real.exec_module(module)
        nothing(module)


def nothing(_):
    """The hook function of every peer: only the way to it is measured."""


# --- the hooks: each is told which modules to watch and how many further rules to hold ---


def no_hook(*_):
    """Python as it is."""


def ideal(watched, _further):
    _watched.update(dict.fromkeys(watched))
    sys.meta_path.insert(0, IdealFinder())


def cudaguard(watched, further):
    import cudaguard as package

    rules = further_rules(package.Rule, further)
    if watched:
        rules.append(package.Rule("BENCHMARK", tuple(watched), "a rule that asks for nothing"))
    package.install(rules=rules)


def traced(_watched, _further):
    """As under `cudaguard trace`: a line in a file per event."""
    import atexit
    import os
    import tempfile

    import cudaguard as package
    from cudaguard.core.lifecycle import activation

    descriptor, path = tempfile.mkstemp(prefix="benchmark-trace-")
    os.close(descriptor)
    atexit.register(os.unlink, path)  # after the last look, which is registered later
    package.install("observe")
    activation.core.journal.record_to(path)
    activation.trace()


def further_rules(rule, count):
    """Rules for modules that the benchmark does not import."""
    return [
        rule(f"BENCHMARK-{number}", (f"benchmark_other{number}",), "a rule for another module")
        for number in range(count)
    ]


def wrapt(watched, _further):
    from wrapt import register_post_import_hook

    for name in watched or [NOBODY_IMPORTS_THIS]:
        register_post_import_hook(nothing, name)


def ddtrace(watched, _further):
    from ddtrace.internal.module import ModuleWatchdog

    ModuleWatchdog.install()
    for name in watched or [NOBODY_IMPORTS_THIS]:
        ModuleWatchdog.register_module_hook(name, nothing)


HOOKS = {
    "none": no_hook,
    "ideal": ideal,
    "cudaguard": cudaguard,
    "traced": traced,
    "wrapt": wrapt,
    "ddtrace": ddtrace,
}


# --- tasks ---------------------------------------------------------------------------


def importing(statement):
    """The CPU time of one import statement, or several, in a fresh interpreter."""
    start = process_time()
    exec(statement, {})
    print("cpu", process_time() - start)


def installing(further):
    """Import the package, build that many rules, and put the guard up with them."""
    start = process_time()
    from cudaguard import Rule, install

    install(rules=further_rules(Rule, int(further)))
    print("cpu", process_time() - start)


def imports(hook, which, further, folder, count):
    """Import the generated modules under a hook; per module.

    The clock starts after the import of one more module of the same kind, so that what a hook
    loads once, at its first hit, is not spread over the modules. It is ``first`` here.
    """
    names = generated_names(int(count))
    sys.path.insert(0, folder)
    HOOKS[hook]([WARM_UP, *names] if which == "watched" else [], int(further))
    before_first = process_time()
    __import__(WARM_UP)
    start = process_time()
    for name in names:
        __import__(name)
    end = process_time()
    print("cpu", (end - start) / len(names))
    print("first", start - before_first)


def extensions(hook, folder, count):
    """Import the compiled extension modules under a hook; per module.

    ctypes has been imported, as by any program with numpy in it: without it nobody looks.
    """
    import ctypes  # noqa: F401

    names = generated_names(int(count))
    sys.path.insert(0, folder)
    HOOKS[hook]([], 0)
    __import__(EXTENSION_WARM_UP)
    start = process_time()
    for name in names:
        __import__(name)
    print("cpu", (process_time() - start) / len(names))


def misses(hook, further):
    """One call of a finder for a module nobody watches, and of the ideal one, in turns."""
    HOOKS[hook]([], int(further))
    subject, peer = caller_of(sys.meta_path[0]), caller_of(IdealFinder())
    started = process_time()
    subject(1)
    slow = process_time() - started > 50e-6  # ten calls: a finder that searches by itself
    rounds, loops = (5, 5) if slow else (20, 500)
    times = [(timed(subject, loops), timed(peer, 500)) for _ in range(rounds)]
    print("cpu", min(ours for ours, _ in times))
    print("ideal", min(theirs for _, theirs in times))


def caller_of(finder):
    return loop_of("finder.find_spec('nope')", finder=finder)


def loop_of(call, **names):
    """A loop of ten calls, compiled anew: a shared one would be specialized for neither."""
    ten_calls = f"  {call}\n" * 10
    exec(f"def loop(number):\n for _ in range(number):\n{ten_calls}", names)
    return names["loop"]


def timed(loop, number):
    start = process_time()
    loop(number)
    return (process_time() - start) / (number * 10)


class Array:
    """Exports a new dictionary at each read, as the arrays of all libraries do."""

    def __init__(self, **changes):
        # Nobody reads at the address; DALI makes no call of CUDA for a device that it is told.
        common = {"shape": (4, 4), "typestr": "<f4", "data": (0x1000, False), "version": 3}
        self.interface = {**common, **changes}

    @property
    def __cuda_array_interface__(self):
        return dict(self.interface)


def mending_proxy(array):
    """What would be handed to everybody in place of an array, and mends what it shows each time."""
    import wrapt

    class Proxy(wrapt.ObjectProxy):
        @property
        def __cuda_array_interface__(self):
            shown = dict(self.__wrapped__.__cuda_array_interface__)
            for field in ("shape", "strides"):
                given = shown.get(field)
                if given is not None and (
                    type(given) is not tuple or any(type(count) is not int for count in given)
                ):
                    shown[field] = tuple(int(count) for count in given)
            pointer, is_read_only = shown["data"]
            if type(pointer) is not int or type(is_read_only) is not bool:
                shown["data"] = (int(pointer), bool(is_read_only))
            if shown["typestr"][:1] not in "<>|":
                shown["typestr"] = "<" + shown["typestr"].lstrip("=")
            for field in ("mask", "stream"):
                if shown.get(field, self) is None:
                    del shown[field]
            if shown.get("stream") == 0:
                raise ValueError("which stream?")
            return shown

    return Proxy(array)


def in_turns(loops, rounds=20, number=200):
    """The least time of each loop, per call; they take turns in this interpreter."""
    least = {name: timed(loop, 1) for name, loop in loops.items()}
    for _ in range(rounds):
        for name, loop in loops.items():
            least[name] = min(least[name], timed(loop, number))
    return least


def normalizing():
    """`normalize` of an array that needs nothing, and what it is beyond a read of the property."""
    from cudaguard import normalize

    array = Array()
    assert normalize(array) is array
    mended = Array(shape=[4, 4])
    read = "array.__cuda_array_interface__"
    times = in_turns(
        {
            "cpu": loop_of("normalize(array)", normalize=normalize, array=array),
            "for DALI": loop_of(
                "normalize(array, consumer='dali')", normalize=normalize, array=array
            ),
            "corrected": loop_of("normalize(array)", normalize=normalize, array=mended),
            "property": loop_of(read, array=array),
            "property again": loop_of(read, array=array),
        }
    )
    times["beyond"] = times["cpu"] - times["property"]
    print_all(times)


def proxies():
    """One read of the property through a wrapt proxy: a plain one, and one that mends."""
    import wrapt

    read = "array.__cuda_array_interface__"
    plain, mending = wrapt.ObjectProxy(Array()), mending_proxy(Array())
    print_all(in_turns({"cpu": loop_of(read, array=mending), "plain": loop_of(read, array=plain)}))


def views():
    """cuda.core's view of an array that needs nothing, which orders no streams."""
    from cuda.core import Device
    from cuda.core.utils import StridedMemoryView

    device = Device(0)
    device.set_current()
    # The driver is asked about the address.
    memory = device.allocate(64, stream=device.create_stream())
    array = Array(data=(int(memory.handle), False))
    view = StridedMemoryView.from_cuda_array_interface
    print_all(in_turns({"cpu": loop_of("view(array, -1)", view=view, array=array)}))


def constructor(folder):
    """Returns what makes loops that construct tensors of an array, and the rules for the guard.

    Args:
        folder: Where a stand-in for DALI lies; empty for the real one, which has rules of ours.
    """
    from cudaguard import Rule

    rules = []
    if folder:
        sys.path.insert(0, folder)
        actions = ({"normalize_argument": "TensorGPU.__init__", "parameter": "object"},)
        rules = [Rule("BENCHMARK", ("nvidia.dali.backend",), "a stand-in", actions=actions)]
    from nvidia.dali.backend import TensorGPU

    def loop(array):
        return loop_of("tensor(array, device_id=0)", tensor=TensorGPU, array=array)

    return loop, rules


def constructing(folder):
    """A constructor that reads an array, as it is and under the guard."""
    from cudaguard import install, uninstall

    loop, rules = constructor(folder)
    canonical = Array()
    raw = {"raw": loop(canonical), "raw again": loop(canonical)}
    guarded = {
        "cpu": loop(canonical),
        # As PyCUDA exports them, and as hardly anybody does.
        "None": loop(Array(strides=(16, 4), stream=None)),
        "list": loop(Array(shape=[4, 4])),
    }
    least = {}
    for _ in range(10):
        for is_guarded, loops in ((False, raw), (True, guarded)):
            if is_guarded:
                install("fix", rules=rules)
            for name, cpu in in_turns(loops, 2, 100).items():
                least[name] = min(cpu, least.get(name, cpu))
            uninstall()
    print_all(least)


def constructing_from_proxies(folder):
    """The same unguarded, given wrapt proxies."""
    loop, _ = constructor(folder)
    print_all(in_turns({"cpu": loop(mending_proxy(Array())), "raw": loop(Array())}))


def print_all(times):
    for name, cpu in times.items():
        print(name, cpu)


def plugins_by_cudaguard(site):
    """The scan as `install` does it, and with what it must import first."""
    start = process_time()
    from cudaguard.core.rule_check import scan_plugins

    only_this_site(site)
    middle = process_time()
    found = scan_plugins(sys.path)
    end = process_time()
    assert found, "the generated plug-in was not found"
    print("cpu", end - middle)
    print("with imports", end - start)


def plugins_by_metadata(site, group):
    """The same question put to the standard library."""
    only_this_site(site)
    start = process_time()
    from importlib.metadata import entry_points

    middle = process_time()
    if sys.version_info >= (3, 10):
        found = list(entry_points(group=group))
    else:
        found = entry_points().get(group, ())
    end = process_time()
    assert found, "the generated plug-in was not found"
    print("cpu", end - start)
    print("without imports", end - middle)


def planning(program, wanted):
    """Read what the program imports, as at the import of a package with an order."""
    from cudaguard.core.import_plan import ImportGraph
    from cudaguard.system.source import Module

    sys.path.insert(0, program)
    main = Module("__main__", "", f"{program}/main.py")

    def plan():
        start = process_time()
        graph = ImportGraph([wanted], [main], sys.modules, "first")
        found = graph.reaches(main) and [
            getattr(step, "module", "") for step in graph.follow(graph.code(main).steps())
        ]
        assert (wanted in (found or ())) is (wanted == "needed")
        return process_time() - start

    print("cpu", plan())
    print("again", plan())


def parsing_all(program):
    """Parse each file of a program."""
    import ast
    from pathlib import Path

    texts = [path.read_bytes() for path in Path(program).glob("*.py")]
    start = process_time()
    for text in texts:
        ast.parse(text)
    print("cpu", process_time() - start)


def only_this_site(site):
    """Replace the distributions installed here, whose number is nobody's business."""
    sys.path[:] = [site, *(part for part in sys.path if "-packages" not in part)]


def start():
    """All CPU time of this interpreter so far: its start, `site` and its ``.pth`` lines."""
    print("cpu", process_time())


def pth_line(path):
    """What `site` does with one line of a ``.pth`` file that begins with ``import``."""
    with open(path, encoding="utf-8") as file:
        line = file.read()
    start = process_time()
    exec(line)
    print("cpu", process_time() - start)


def boot(folder):
    """What `site` does with a ``.start`` file (Python 3.15): import the module and call it."""
    sys.path.append(folder)
    start = process_time()
    import _cudaguard_boot

    _cudaguard_boot.start()
    print("cpu", process_time() - start)


TASKS = (
    planning,
    parsing_all,
    importing,
    installing,
    imports,
    extensions,
    misses,
    normalizing,
    proxies,
    views,
    constructing,
    constructing_from_proxies,
    planning,
    parsing_all,
    plugins_by_cudaguard,
    plugins_by_metadata,
    start,
    pth_line,
    boot,
)

if __name__ == "__main__":
    sys.path.pop(0)  # this folder
    {task.__name__: task for task in TASKS}[sys.argv[1]](*sys.argv[2:])
