"""The patch of `ExtensionFileLoader.create_module`: put up once, taken down only if it is ours."""

from __future__ import annotations

START = """
import sys, importlib.util, glob
from importlib.machinery import ExtensionFileLoader as Loader
original = Loader.create_module
import cudaguard
RULE = cudaguard.Rule("LOCAL1", ("target",), "test", needs=("prereq",))
def on(): cudaguard.install(rules=[RULE])
calls = []
def patch():
    before = Loader.create_module
    def create_module(self, spec):
        calls.append(spec.name)
        return before(self, spec)
    Loader.create_module = create_module
    return create_module
def load():
    spec = importlib.util.spec_from_file_location("target", glob.glob("target.*.so")[0])
    return importlib.util.module_from_spec(spec)
def prepared():
    sys.modules.pop("prereq", None)
    load()
    return "prereq" in sys.modules
"""


def test_uninstall_restores_the_original(native):
    native.extension("target")
    native.modules("prereq.py")
    lines = native.bare(
        START,
        """
        for _ in range(2):
            on()
            print(Loader.create_module is original, prepared())
            cudaguard.uninstall()
            print(Loader.create_module is original, prepared())
        """,
    ).lines
    assert lines == ["False True", "True False"] * 2


def test_patched_method_looks_the_same(native):
    look = """
        import inspect, pickle
        method = Loader.create_module
        print(method.__module__, method.__qualname__, method.__doc__, inspect.signature(method))
        print(pickle.loads(pickle.dumps(method)) is method)
    """
    plain = native.bare(START, look)
    assert native.bare(START, "on()", look).lines == plain.lines
    assert plain.lines[-1] == "True"


def test_later_patch_of_somebody_else_stays_and_ours_passes_through(native):
    native.extension("target")
    native.modules("prereq.py")
    lines = native.bare(
        START,
        """
        on()
        theirs = patch()
        print(prepared(), calls)
        cudaguard.uninstall()
        print(Loader.create_module is theirs, prepared(), calls)
        """,
    ).lines
    assert lines == ["True ['target']", "True False ['target', 'target']"]


def test_install_again_above_a_patch_of_somebody_else(native):
    """The layer of ours that is buried below theirs must stay dead: nothing happens twice."""
    native.extension("target")
    native.child.write("prereq.py", "import ran; ran.names.append('attempt'); 1 / 0")
    lines = native.bare(
        START,
        """
        import ran, warnings
        warnings.simplefilter("ignore")
        on()
        theirs = patch()
        on()
        print(Loader.create_module is theirs)
        cudaguard.uninstall()
        on()
        load()
        print(calls, ran.names)
        cudaguard.uninstall()
        print(Loader.create_module is theirs, prepared())
        """,
    ).lines
    assert lines == ["True", "['target'] ['attempt', 'target']", "True False"]


def test_earlier_patch_of_somebody_else_is_called_and_restored(native):
    native.extension("target")
    native.modules("prereq.py")
    lines = native.bare(
        START,
        """
        theirs = patch()
        on()
        print(prepared(), calls)
        cudaguard.uninstall()
        print(Loader.create_module is theirs)
        """,
    ).lines
    assert lines == ["True ['target']", "True"]


def test_odd_specs_are_answered_as_by_python(native):
    """Whoever makes a spec of his own hears what Python says of it, and nothing of ours."""
    for number in range(4):
        native.extension(f"odd{number}")
    look = """
        import importlib, pathlib, types
        loader = Loader("odd0", glob.glob("odd0.*.so")[0])
        class Text(str):
            __hash__ = str.__hash__
            def __contains__(self, part): raise ZeroDivisionError
        class Lazy:
            name = property(lambda self: "odd1")
            origin = property(lambda self: glob.glob("odd1.*.so")[0])
        def show(word, **fields):
            try:
                print(word, loader.create_module(types.SimpleNamespace(**fields)).answer())
            except Exception as error:
                print(word, type(error).__name__, error)
        path = loader.path
        show("plain", name="odd0", origin=path)
        print(loader.create_module(Lazy()).answer(), loader.create_module(spec=Lazy()).answer())
        show("text", name=Text("odd2"), origin=Text(glob.glob("odd2.*.so")[0]))
        show("path", name="odd3", origin=pathlib.Path(path))
        show("bytes", name="odd3", origin=path.encode())
        show("number", name="odd3", origin=3)
        show("no origin", name="odd3")
        show("nowhere", name="odd3", origin=None)
        show("zero byte", name="odd3", origin="a\\0b")
        show("nameless", origin=path)
        show("numbered", name=5, origin=path)
        try:
            loader.create_module(None)
        except AttributeError as error:
            print(error)
        """
    plain = native.bare(START, look)
    for switch in ("on()", "cudaguard.install()"):  # awake and asleep
        guarded = native.bare(START, switch, look)
        assert (guarded.lines, guarded.err) == (plain.lines, "")
    assert plain.lines[:3] == ["plain 42", "42 42", "text 42"]
