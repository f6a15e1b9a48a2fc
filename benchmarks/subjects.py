"""What is measured beside what, and which ratio is the budget.

A budget that was set as a time was set beside a peer's time on one machine; the limit here is
the ratio of the two, which holds on others: 5 ms where ``import wrapt`` takes 55 ms is 5 / 55.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import venv
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import preflight
from benchmarks.child import EXTENSION_WARM_UP, WARM_UP, generated_names
from benchmarks.command_subjects import commands
from benchmarks.harness import Group, Row, Subject

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parent.parent
PEERS = ("wrapt", "ddtrace")
# Modules that may be missing, each with a task that shows whether they work.
PROBES = {
    **{peer: ("child.py", "misses", peer, "0") for peer in PEERS},
    "cuda.core": ("child.py", "views"),
    "nvidia.dali": ("child.py", "constructing_from_proxies", ""),
    "elftools": ("child.py", "importing", "import elftools.elf.elffile"),
    "lief": ("child.py", "importing", "import lief"),
    "torch": ("graphs.py", "calling"),
}
DISTRIBUTIONS = (
    *PEERS,
    "pyelftools",
    "lief",
    "torch",
    "cuda-core",
    "nvidia-dali-cuda120",
    "nvidia-dali-cuda130",
)
GROUP = "cudaguard.rules"
EXTENSIONS, NAMES, FILES = 200, 9000, 50
PARSING = "ast.parse of each file, once"
# "Equal" cannot be measured more finely than two runs of the same thing agree.
EQUAL = 1.05
# The form of coverage's .pth line (7.x: an exec of a few lines that read two variables), with
# variables that nobody sets: coverage itself need not be installed, and nothing is measured.
LINE_LIKE_COVERAGE = (
    "import sys; exec('import os\\n\\n"
    'if os.getenv("BENCHMARK_PEER_START") or os.getenv("BENCHMARK_PEER_CONFIG"):\\n'
    " try:\\n  import benchmark_peer\\n except:\\n  pass\\n else:\\n"
    '  benchmark_peer.process_startup(slug="pth")\')\n'
)
# Reads what DALI reads of an array, and checks it as DALI does.
STAND_IN = """
class TensorGPU:
    def __init__(self, object, layout="", device_id=-1):
        try:
            entries = object.__cuda_array_interface__
        except Exception:
            raise RuntimeError("no array") from None
        shape, data, typestr = entries["shape"], entries["data"], entries["typestr"]
        if not (type(shape) is type(data) is tuple and type(typestr) is str):
            raise RuntimeError("malformed")
        if entries["version"] >= 2 and "mask" in entries:
            raise RuntimeError("masked")
        strides, size, expected = entries.get("strides"), int(typestr[2:]), int(typestr[2:])
        if strides is not None:
            for count, step in zip(shape[::-1], strides[::-1]):
                if step != expected:
                    raise RuntimeError("strided")
                expected *= count
        stream = entries.get("stream", 1)
        if type(stream) is not int:
            raise TypeError("an integer is required")
        self.shape, self.pointer, self.size = list(shape), data[0], size
        self.layout, self.device_id, self.stream, self.owner = layout, device_id, stream, object
"""


def groups(folder: Path, modules: int, distributions: int, starts: int) -> tuple[Group, ...]:
    """Return everything there is to measure; `prepare` writes what it needs to `folder`."""
    return (
        start_up(folder),
        plugin_scan(folder, distributions),
        order_plan(folder),
        finder_call(),
        unwatched(folder, modules),
        watched(folder, modules),
        native(folder, min(modules, EXTENSIONS)),
        extensions(folder),
        normalizing(),
        constructing(folder),
        protecting(),
        texts(modules * 1000),
        activation(folder, starts),
        commands(),
    )


def prepare(folder: Path, modules: int, distributions: int) -> None:
    """Write modules, distributions and virtual environments to an empty folder."""
    write_modules(folder / "modules", modules)
    write_distributions(folder / "site", distributions)
    line = (ROOT / "cudaguard.pth").read_text(encoding="utf-8")
    for name, text in (("empty", ""), ("ours", line), ("coverage-like", LINE_LIKE_COVERAGE)):
        site = make_environment(folder / name)
        for file in (site / "benchmark.pth", folder / f"{name}.pth"):
            file.write_text(text, encoding="utf-8")
    boot = (ROOT / "_cudaguard_boot.py").read_text(encoding="utf-8")
    # In a folder of its own: the import of one module lists the folder it lies in.
    (folder / "empty-module").mkdir()
    (folder / "empty-module" / "empty_module.py").write_text("", encoding="utf-8")
    if shutil.which("cc"):
        build_libraries(folder / "native", min(modules, EXTENSIONS))
        build_extension(folder / "extension")
    backend = folder / "consumer" / "nvidia" / "dali" / "backend.py"
    backend.parent.mkdir(parents=True)
    # Packages, or the real one would go before it.
    for package in (backend.parent, backend.parent.parent):
        (package / "__init__.py").write_text("", encoding="utf-8")
    backend.write_text(STAND_IN, encoding="utf-8")
    write_program(folder / "program")
    (folder / "boot").mkdir()
    (folder / "boot" / "_cudaguard_boot.py").write_text(boot, encoding="utf-8")


def write_modules(folder: Path, count: int) -> None:
    """Write modules of one line, and one more to warm up with."""
    folder.mkdir()
    for name in (WARM_UP, *generated_names(count)):
        (folder / f"{name}.py").write_text("x = 1\n", encoding="utf-8")


def build_libraries(folder: Path, count: int) -> None:
    """Compile extension modules, and a package with a library of many names."""
    package = folder / "benchmark_package"
    package.mkdir(parents=True)
    names = [EXTENSION_WARM_UP, *generated_names(count)]
    extensions = "".join(f"void *PyInit_{name}(void) {{ return create(); }}\n" for name in names)
    sources = {
        folder / "extensions.c": "void *PyModule_Create2(void *, int);\n"
        "static struct { long head[5]; const char *name, *doc; long size; void *rest[5]; } module\n"
        ' = {{1}, "benchmark", 0, -1};\n'
        "static void *create(void) { return PyModule_Create2(&module, 1013); }\n" + extensions,
        package / "names.c": "".join(f"int benchmark_{n}(void) {{ return {n}; }}\n"
                                     for n in range(NAMES)),
    }  # fmt: skip
    for source, text in sources.items():
        source.write_text(text, encoding="utf-8")
        command = ["cc", "-shared", "-fPIC", "-o", source.with_suffix(".so"), source]
        subprocess.run(command, check=True)
    for name in names:  # a file each: one file is mapped once
        shutil.copy(folder / "extensions.so", folder / f"{name}.so")


def build_extension(folder: Path) -> None:
    """Assemble a library of many names, and an extension that asks for some of them."""
    folder.mkdir()
    every = preflight.NAMES // preflight.ASKED
    lines = {preflight.LIBRARY: [".text"], preflight.EXTENSION: [".data"]}
    for number in range(preflight.NAMES):
        name = preflight.name_of(number)
        lines[preflight.LIBRARY] += [f".globl {name}", f".type {name}, @function", f"{name}:"]
        if number % every == 0:
            lines[preflight.EXTENSION].append(f".quad {name}")
    for file, text in lines.items():
        source = (folder / file).with_suffix(".s")
        source.write_text("\n".join((*text, "")), encoding="utf-8")
        others = [f"-l:{preflight.LIBRARY}"] if file == preflight.EXTENSION else []
        command = ["cc", "-shared", "-nostdlib", f"-Wl,-soname,{file}", "-o", file, source.name]
        subprocess.run([*command, f"-L{folder}", *others], check=True, cwd=folder)


def write_distributions(site: Path, count: int) -> None:
    """Write installed distributions as pip leaves them; every third one has entry points."""
    site.mkdir()
    for number in range(count):
        name = f"benchmark_dist{number}"
        info = site / f"{name}-1.{number}.dist-info"
        info.mkdir()
        files = {
            "INSTALLER": "pip\n",
            "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.{number}\n"
            + "Classifier: Programming Language :: Python\n" * 20,
            "RECORD": f"{name}/__init__.py,,\n" * 30,
            "WHEEL": "Wheel-Version: 1.0\nGenerator: benchmarks\n",
        }
        if number % 3 == 0:
            files["entry_points.txt"] = f"[console_scripts]\n{name} = {name}:main\n"
        if number == count // 2:
            files["entry_points.txt"] = f"[{GROUP}]\nsome_module = {name}:RULES\n"
        for file, text in files.items():
            (info / file).write_text(text, encoding="utf-8")


def make_environment(folder: Path) -> Path:
    """Make a virtual environment without pip and return its site-packages."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    return next(folder.glob("lib/python*/site-packages"))


def start_up(folder: Path) -> Group:
    """The first lines of a program."""
    place = str(folder / "empty-module")
    with_empty = f"import sys; sys.path.insert(0, {place!r}); import empty_module"
    return Group(
        "First lines of a program",
        (
            Subject("an empty module", ("importing", with_empty)),
            Subject("import importlib.metadata", ("importing", "import importlib.metadata")),
            Subject("import wrapt", ("importing", "import wrapt"), "wrapt"),
            Subject("import cudaguard", ("importing", "import cudaguard")),
            Subject("install()", ("importing", "import cudaguard; cudaguard.install()")),
            Subject("install(), again", ("importing", "import cudaguard; cudaguard.install()")),
            Subject("install(1000 rules)", ("installing", "1000")),
        ),
        (
            Row("import cudaguard", "import cudaguard", "import wrapt", 2 / 55, "2/55 ms"),
            Row("import cudaguard", "import cudaguard", "import importlib.metadata"),
            Row("import cudaguard", "import cudaguard", "an empty module"),
            Row("  + install()", "install()", "import wrapt", 5 / 55, "5/55 ms"),
            Row("  + install()", "install()", "import importlib.metadata"),
            Row("  + install(), 1000 more rules", "install(1000 rules)", "import wrapt"),
            Row("  + install(), 1000 more rules", "install(1000 rules)", "install()"),
            Row("noise: install() twice", "install(), again", "install()"),
        ),
    )


def order_plan(folder: Path) -> Group:
    """What the import of a package costs whose order the program's sources decide."""
    program = str(folder / "program")
    return Group(
        f"Order plan of a program of {FILES} files",
        (
            Subject("plan, the last file decides", ("planning", program, "needed")),
            Subject("plan, no file decides", ("planning", program, "absent")),
            Subject(PARSING, ("parsing_all", program)),
        ),
        (
            Row("plan, the last file decides", "plan, the last file decides", PARSING),
            Row("plan, again", "plan, the last file decides:again", PARSING),
            Row("plan, no file decides", "plan, no file decides", PARSING),
        ),
    )


def write_program(folder: Path) -> None:
    """Write a program of ordinary files: a class with methods, and functions."""
    folder.mkdir()
    method = "    def method{0}(self, value=0, *, more=None):\n        " + "\n        ".join(
        f"value = self.step(value + {n}, more=more) or [value] * {n}" for n in range(12)
    )
    body = "\n\n".join(method.format(n) for n in range(5))
    for n in range(FILES):
        last = "import needed\n" if n == FILES - 1 else ""
        text = f"import json\nimport logging\n{last}\nLOG = logging.getLogger(__name__)\n"
        (folder / f"part{n}.py").write_text(f"{text}\n\nclass Part{n}:\n{body}\n")
    imports = "".join(f"import part{n}\n" for n in range(FILES))
    (folder / "main.py").write_text(f"import first\n{imports}", encoding="utf-8")


def plugin_scan(folder: Path, distributions: int) -> Group:
    """Looking for rule plug-ins, as part of `install`."""
    site = str(folder / "site")
    return Group(
        f"Plug-in scan of {distributions} distributions",
        (
            Subject("scan", ("plugins_by_cudaguard", site)),
            Subject("entry_points()", ("plugins_by_metadata", site, GROUP)),
        ),
        (
            Row("scan, in install()", "scan", "entry_points()", 5 / 45, "5/45 ms"),
            Row("scan, and its imports", "scan:with imports", "entry_points()"),
            Row(
                "scan, in install()",
                "scan",
                "entry_points():without imports",
                beside="entry_points(), imported",
            ),
        ),
    )


def finder_call() -> Group:
    """The one thing that every import of every module pays for."""
    subjects = (
        Subject("cudaguard", ("misses", "cudaguard", "0")),
        Subject("cudaguard, 1000 more rules", ("misses", "cudaguard", "1000")),
        Subject("wrapt", ("misses", "wrapt", "0"), "wrapt"),
        Subject("ddtrace", ("misses", "ddtrace", "0"), "ddtrace"),
    )
    return Group(
        "One finder call for a module nobody watches, in the same interpreter as the ideal",
        subjects,
        tuple(
            Row(
                subject.name,
                subject.name,
                f"{subject.name}:ideal",
                1.5 if subject.name.startswith("cudaguard") else math.inf,
                beside="ideal finder",
            )
            for subject in subjects
        ),
    )


def hooks(which: str, folder: Path, count: int) -> tuple[Subject, ...]:
    """The generated modules imported under each hook."""

    def subject(name: str, hook: str, further: int = 0) -> Subject:
        task = ("imports", hook, which, str(further), str(folder / "modules"), str(count))
        return Subject(name, task, hook if hook in PEERS else "")

    return (
        subject("no hook", "none"),
        subject("no hook, again", "none"),
        subject("ideal hook", "ideal"),
        subject("cudaguard", "cudaguard"),
        subject("cudaguard, 10 more rules", "cudaguard", 10),
        subject("cudaguard, 1000 more rules", "cudaguard", 1000),
        subject("wrapt", "wrapt"),
        subject("ddtrace", "ddtrace"),
    )


def peers_beside(base: str, names: Iterable[str]) -> tuple[Row, ...]:
    return tuple(Row(name, name, base) for name in names)


def with_more_rules() -> tuple[Row, ...]:
    names = ("cudaguard, 10 more rules", "cudaguard, 1000 more rules")
    return tuple(Row(name, name, "cudaguard", EQUAL, "equal") for name in names)


def unwatched(folder: Path, count: int) -> Group:
    """Whole imports of modules that nobody watches: for information, see README.md."""
    return Group(
        f"Import of {count} tiny modules that are not watched, per module",
        hooks("unwatched", folder, count),
        (
            *peers_beside("no hook", ("cudaguard", "ideal hook", "wrapt", "ddtrace")),
            *peers_beside("ideal hook", ("cudaguard",)),
            *with_more_rules(),
            Row("noise: no hook twice", "no hook, again", "no hook"),
        ),
    )


def watched(folder: Path, count: int) -> Group:
    """Whole imports of modules for which there is a rule that asks for nothing."""
    return Group(
        f"Import of {count} tiny modules that are all watched, per module",
        hooks("watched", folder, count),
        (
            Row("cudaguard", "cudaguard", "no hook", 50 / 47, "+3/47 us"),
            *peers_beside("no hook", ("ideal hook", "wrapt", "ddtrace")),
            *peers_beside("ideal hook", ("cudaguard",)),
            *peers_beside("wrapt", ("cudaguard",)),
            *with_more_rules(),
            Row(
                "cudaguard, its first hit",
                "cudaguard:first",
                "wrapt:first",
                beside="wrapt, its first hit",
            ),
            Row("noise: no hook twice", "no hook, again", "no hook"),
        ),
    )


def native(folder: Path, count: int) -> Group:
    """What loading a library costs where the look at the global scope is on."""
    place = str(folder / "native")

    def subject(name: str, hook: str) -> Subject:
        return Subject(name, ("extensions", hook, place, str(count)), "cc")

    return Group(
        f"Native libraries: import of {count} tiny extension modules, per module",
        (
            subject("no hook", "none"),
            subject("no hook, again", "none"),
            subject("cudaguard", "cudaguard"),
            subject("cudaguard trace", "traced"),
        ),
        (
            Row("cudaguard, with its look", "cudaguard", "no hook"),
            Row("cudaguard trace", "cudaguard trace", "no hook"),
            Row("noise: no hook twice", "no hook, again", "no hook"),
        ),
    )


def extensions(folder: Path) -> Group:
    """Whether an extension would load, told in advance."""
    place = str(folder / "extension")

    def subject(name: str, task: str, requires: str) -> Subject:
        return Subject(name, (task, place), requires, script="preflight.py")

    peers = ("pyelftools", "lief", "nm -D", "fork and dlopen", "fresh interpreter")
    return Group(
        f"Extensions: would one load that asks for {preflight.ASKED} of {preflight.NAMES} names?",
        (
            subject("check_extension()", "checking", "cc"),
            subject("pyelftools", "by_elftools", "cc elftools"),
            subject("lief", "by_lief", "cc lief"),
            subject("nm -D", "by_nm", "cc nm"),
            subject("fork and dlopen", "by_fork", "cc"),
            subject("fresh interpreter", "by_interpreter", "cc"),
        ),
        tuple(
            Row(
                "check_extension()",
                "check_extension()",
                peer,
                1.5 / 3400 if peer == "pyelftools" else math.inf,
                "1.5/3400 ms" if peer == "pyelftools" else "",
            )
            for peer in peers
        ),
    )


def normalizing() -> Group:
    """What a library pays that calls `normalize` for each array."""
    return Group(
        "Arrays: normalize() of one that needs nothing, and one read of its property",
        (
            Subject("normalize()", ("normalizing",)),
            Subject("wrapt proxy", ("proxies",), "wrapt"),
            Subject("cuda.core", ("views",), "cuda.core"),
        ),
        (
            Row(
                "normalize(), beyond the property",
                "normalize():beyond",
                "wrapt proxy",
                0.5 / 1.2,
                "0.5/1.2 us",
                "wrapt proxy that mends",
            ),
            Row("normalize()", "normalize()", "normalize():property", beside="the property"),
            Row(
                "normalize(consumer=)",
                "normalize():for DALI",
                "normalize():property",
                beside="the property",
            ),
            Row(
                "normalize(), corrected",
                "normalize():corrected",
                "normalize():property",
                beside="the property",
            ),
            Row(
                "wrapt proxy, plain",
                "wrapt proxy:plain",
                "normalize():property",
                beside="the property",
            ),
            Row("normalize()", "normalize()", "cuda.core", beside="cuda.core's StridedMemoryView"),
            Row(
                "noise: the property twice",
                "normalize():property again",
                "normalize():property",
                beside="the property",
            ),
        ),
    )


def constructing(folder: Path) -> Group:
    """Constructors that read an array, with the guard before them."""
    subjects, rows = [], []
    # The budgets are those of DALI's own constructor; the stand-in's is cheaper.
    for name, place, requires, limits in (
        ("DALI", "", "nvidia.dali", (1.25, 1.6)),
        ("stand-in", str(folder / "consumer"), "", (math.inf, math.inf)),
    ):
        proxied = f"{name}, proxies"
        subjects += [
            Subject(name, ("constructing", place), requires),
            Subject(proxied, ("constructing_from_proxies", place), requires or "wrapt"),
        ]
        for what, value, peer, limit in (
            ("canonical", name, name, limits[0]),
            ("corrected: stream None", f"{name}:None", name, limits[1]),
            ("corrected: list as shape", f"{name}:list", name, math.inf),
            ("wrapt proxy, unguarded", proxied, proxied, math.inf),
            ("noise: unguarded twice", f"{name}:raw again", name, math.inf),
        ):
            rows.append(Row(f"{name}, {what}", value, f"{peer}:raw", limit, beside="unguarded"))
    return Group("Arrays: TensorGPU(array) through the guard", tuple(subjects), tuple(rows))


def protecting() -> Group:
    """What `graph_safe` adds to a compiled callable, on the CPU."""
    by_hand = "by hand: tree_map, clone()"
    rows = [
        Row("graph_safe, clone", "calls:clone", peer, beside=beside)
        for peer, beside in (("calls", "bare"), ("calls:by hand", by_hand))
    ]
    for label, value in (("clone", "clone"), (by_hand, "by hand")):
        row = Row(f"memory held, {label}", f"calls:bytes of {value}", "calls:bytes of")
        rows.append(row._replace(beside="bare", is_memory=True))
    rows.append(Row("noise: bare twice", "calls:again", "calls", beside="bare"))
    return Group(
        "graph_safe: one call of a compiled function that returns small tensors, on the CPU",
        (Subject("calls", ("calling",), "torch", script="graphs.py"),),
        tuple(rows),
    )


def texts(size: int) -> Group:
    """Lines of a megabyte: a log, and those that hold patterns up."""
    return Group(
        f"Texts: a line of {size // 1000} kB explained, and one pass over a log",
        (Subject("texts", ("measuring", str(size)), script="texts.py"),),
        (
            Row("explain(), the worst line", "texts:explain", "texts:pass", 500 / 65, "0.5 s/65 ms",
                "one pass"),
            Row("explain(), a log", "texts:explain a log", "texts:pass", beside="one pass"),
        ),
    )  # fmt: skip


def activation(folder: Path, starts: int) -> Group:
    """What every start of every Python pays for where the package is merely installed."""

    def a_start(name: str, environment: str) -> Subject:
        return Subject(name, ("start",), "", str(folder / environment / "bin" / "python"), starts)

    def a_line(name: str, environment: str) -> Subject:
        return Subject(name, ("pth_line", str(folder / f"{environment}.pth")))

    return Group(
        "Interpreter start where CUDAGUARD is not set",
        (
            a_start("start, empty .pth", "empty"),
            a_start("start, empty .pth, again", "empty"),
            a_start("start, our .pth", "ours"),
            a_start("start, coverage-like .pth", "coverage-like"),
            a_line("our line", "ours"),
            a_line("coverage-like line", "coverage-like"),
            Subject("boot module", ("boot", str(folder / "boot"))),
        ),
        (
            Row("our .pth line", "our line", "coverage-like line", 1.0),
            Row(
                "boot module, as by a .start file",
                "boot module",
                "coverage-like line",
                250 / 89,
                "250/89 us",
            ),
            Row("whole start, our .pth", "start, our .pth", "start, coverage-like .pth"),
            Row("whole start, our .pth", "start, our .pth", "start, empty .pth"),
            Row("whole start, coverage-like", "start, coverage-like .pth", "start, empty .pth"),
            Row("noise: empty .pth twice", "start, empty .pth, again", "start, empty .pth"),
        ),
    )
