"""What the documents show is what there is: code runs, files parse, lines are the real lines."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest

from cudaguard.tools.doctor import command as doctor
from cudaguard.tools.main import MODULES, Parser

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCUMENTS = (
    "README.md",
    "docs/howto/activation.md",
    "docs/reference/configuration.md",
    "docs/howto/extensions.md",
    "docs/reference/rules.md",
)


@pytest.fixture
def blocks(root):
    """Returns the code blocks of one language in a document."""

    def blocks(document, language):
        text = (root / document).read_text(encoding="utf-8")
        return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)

    return blocks


@pytest.mark.parametrize("document", DOCUMENTS)
def test_python_runs(child, blocks, document):
    for block in blocks(document, "python"):
        assert child.python(block).stderr == ""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_configuration_is_accepted(child, blocks, document):
    for number, block in enumerate(blocks(document, "toml")):
        if "[project." in block:
            continue  # the metadata of a package
        path = child.write(f"file{number}.toml", block)
        child.python("import cudaguard, sys; cudaguard.install(config=sys.argv[1])", path)


def test_entry_point_of_a_plugin_is_spelled_as_we_read_it(blocks):
    from cudaguard.core.rule_check import GROUP

    (block,) = [
        block for block in blocks("docs/reference/rules.md", "toml") if "[project." in block
    ]
    assert f'[project.entry-points."{GROUP}"]' in block


def test_start_up_line_is_the_one_in_the_wheel(root):
    line = (root / "cudaguard.pth").read_text(encoding="utf-8").strip()
    assert line in (root / "docs/howto/activation.md").read_text(encoding="utf-8")


def test_readme_is_short(root):
    assert len((root / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_every_field_of_a_rule_is_explained(root):
    from cudaguard import Rule
    from cudaguard.core.rule_check import WHEN_KEYS

    text = (root / "docs/reference/rules.md").read_text(encoding="utf-8")
    for name in (*Rule._fields, *WHEN_KEYS):
        assert f"\n| `{name}` |" in text, name


@pytest.fixture(scope="module")
def generate(root):
    """The script that writes the reference."""
    spec = spec_from_file_location("generate", root / "docs" / "generate.py")
    generate = module_from_spec(spec)
    spec.loader.exec_module(generate)
    return generate


def test_generated_tables_and_schema_equal_the_data(generate):
    """Otherwise run `python docs/generate.py`."""
    for path, text in generate.documents().items():
        assert path.read_text(encoding="utf-8") == text, path


def test_generated_tables_name_every_rule_verb_id_and_consumer_once(root, generate):
    from cudaguard.core.rule_check import declared
    from cudaguard.features._index import IDS as DETECTORS
    from cudaguard.features.array_interface.consumers import CONSUMERS
    from cudaguard.tools.doctor.checks import CHECKS
    from cudaguard.tools.explain import RULES

    def names_of(name, part):
        text = (root / "docs" / "reference" / name).read_text(encoding="utf-8")
        table = text.partition(f"<!-- {part}: ")[2].partition(f"<!-- end of {part} -->")[0]
        return re.findall(r"^\| ((?!id |verb |consumer )[^|]*) \|", table, re.MULTILINE)

    assert sorted(names_of("catalog.md", "rules")) == sorted(rule.id for rule in RULES)
    assert names_of("rules.md", "verbs") == [f"`{name}`" for name in declared()]
    assert names_of("consumers.md", "consumers") == [f"`{one.name}`" for one in CONSUMERS]
    ids = set()
    for row in names_of("catalog.md", "ids"):
        first, _, last = row.partition(" to ")
        ids.update(f"CG{n}" for n in range(int(first[2:]), int((last or first)[2:]) + 1))
    assert ids == {*DETECTORS, *CHECKS}


def test_page_counts_every_incident(root, generate):
    document = tomllib.loads((root / "tests" / "coverage.toml").read_text(encoding="utf-8"))
    told = f"{len(document['incident'])} public incidents"
    page = root / "docs" / "reference" / "coverage.md"
    text = page.read_text(encoding="utf-8")
    part = text.partition("<!-- coverage: ")[2].partition("<!-- end of coverage -->")[0]
    assert told in part
    assert re.findall(r"^\| `([\w-]+)` \|", part, re.MULTILINE) == [*document["grades"]]
    assert page in generate.documents()
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert told in readme


def test_every_variable_is_explained(root):
    from cudaguard import config

    text = (root / "docs/reference/configuration.md").read_text(encoding="utf-8")
    for name in (name for name in vars(config) if name.endswith("_VARIABLE")):
        assert f"\n| `{getattr(config, name)}` |" in text, name


def test_every_cause_is_explained(root):
    from cudaguard.system.extensions import CAUSES

    text = (root / "docs/howto/extensions.md").read_text(encoding="utf-8")
    for cause in CAUSES:
        assert f"\n| `{cause}` |" in text, cause


def test_every_rule_that_acts_by_default_says_what_it_repairs(root):
    from cudaguard.tools.explain import RULES

    text = (root / "docs" / "reference" / "catalog.md").read_text(encoding="utf-8")
    text = text.partition("## Repairs by default")[2].partition("\n## ")[0]
    rows = {line[2:7] for line in text.splitlines() if line.startswith("| CG")}
    assert rows == {rule.id for rule in RULES if rule.grade == "automatic"}


def test_options_of_a_command_stand_before_the_program(root):
    """Behind it they are the program's: `cudaguard trace train.py -o trace.json` writes nothing."""
    own = re.compile(
        r"cudaguard (?:run|trace|bisect) [^`\n]*\.py\b[^`\n|#]* "
        r"(?:-o|-n|--(?:mode|report|why|exec|only|format|show|diff|imports|cmd))\b"
    )
    assert own.search("`cudaguard trace train.py -o trace.json`")
    for document in (root / "README.md", *(root / "docs").rglob("*.md")):
        assert not own.findall(document.read_text(encoding="utf-8")), document


def test_ci_runs_the_readmes_test_command(root):
    command = 'python -m pip install -e ".[test]" && python -m pytest\n'
    assert f"$ {command}" in (root / "README.md").read_text(encoding="utf-8")
    assert f"    {command}" in (root / ".ci" / "run").read_text(encoding="utf-8")


def test_every_promise_of_the_security_model_names_tests_that_exist(root):
    text = (root / "docs" / "explanation" / "security.md").read_text(encoding="utf-8")
    rows = [row for row in text.splitlines() if row.startswith("| ") and "promise" not in row]
    assert len(rows) > 10
    for row in rows:
        tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert tests, row
        for file, name in tests:
            assert f"\ndef {name}(" in (root / file).read_text(encoding="utf-8"), name


# How many lines of a file touch the process, and words that the page has for it.
TOUCHES = re.compile(
    r"\b(?:setattr|StandIn|register|register_at_fork|register_after_fork|Finalize|enable|signal"
    r"|putenv|unsetenv|set_lazy_imports_filter|meta_path\.insert)\((?!self\._load|cls)"
    r"|environ\[.*\] =|modules\[name\] =|vars\(signals\)\[|\w\._bootstrap =|worker\.run ="
    r"|spec\.loader = G"
)
TOUCHED = {
    "core/lifecycle.py": (4, "`CUDAGUARD` in `os.environ`", "lazy-import filter"),
    "core/record.py": (12, "`faulthandler`, with", "`os.wait`", "finalizer", "`_set_worker_signal"),
    "core/replace.py": (
        2,
        "functions and classes of a module that a rule names",
    ),
    "features/cuda_graphs/functions.py": (1, "the verbs of CUDA graphs"),
    "features/cuda_init/detector.py": (4, "two at-fork functions", "`torch.cuda._lazy_init`"),
    "features/cuda_init/repair.py": (2, "| an environment variable", "| a module replaced"),
    "features/import_order/qt_plugins.py": (4, "| `QT_QPA_PLATFORM_PLUGIN_PATH`"),
    "hooks/finder.py": (1, "| one finder on"),
    "hooks/last_error.py": (1, "| one `atexit` function"),
    "hooks/loader.py": (2, "| `__spec__.loader` of a watched module"),
    "hooks/own_imports.py": (2, "more entries in `sys.modules`"),
    "kernel/__init__.py": (
        6,
        "| `ExtensionFileLoader.create_module` |",
        "| `sys.setdlopenflags` |",
    ),
    "kernel/loads.py": (1, "| `ctypes.CDLL.__init__` |"),
    "tools/run/_site/sitecustomize.py": (2, "| the handler of SIGINT |"),
}


def test_page_lists_whatever_of_ours_touches_the_process(root):
    page = (root / "docs/explanation/how-it-works.md").read_text(encoding="utf-8")
    counts = {}
    for file in (root / "cudaguard").rglob("*.py"):
        name = file.relative_to(root / "cudaguard").as_posix()
        lines = file.read_text(encoding="utf-8").splitlines()
        counts[name] = sum(TOUCHES.search(line) is not None for line in lines)
        if name == "system/child.py" or (name.startswith("tools/") and "_site" not in name):
            counts[name] = 0  # processes of our own
    assert {name: n for name, n in counts.items() if n} == {n: c for n, (c, *_) in TOUCHED.items()}
    assert [words for _, *all_ in TOUCHED.values() for words in all_ if words not in page] == []
    rows = page.partition("## What we touch")[2].splitlines()
    assert {row.count(" | ") for row in rows if row.startswith("| ")} == {1, 2}  # with the reason


def test_issue_templates_ask_for_the_report_of_doctor(root):
    templates = sorted((root / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    forms = [one.read_text(encoding="utf-8") for one in templates if one.name != "config.yml"]
    assert len(forms) == 2
    parser = Parser(prog="doctor")
    doctor.configure(parser)
    for form in forms:
        (options,) = set(re.findall(r"`cudaguard doctor (--[^`]+)`", form))
        assert parser.parse_args(options.split()).bundle == "report.md"


def test_hook_of_pre_commit_is_a_command(root):
    text = (root / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    (command,) = re.findall(r"^  entry: cudaguard (\S+)$", text, re.MULTILINE)
    assert command in MODULES
