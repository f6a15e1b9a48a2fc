"""The grammar of rules: what fits, and what each refusal says."""

from __future__ import annotations

import ast
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaguard.core.rule import Rule
from cudaguard.core.rule_check import GRADES, check_rule, declared, toml_text
from cudaguard.core.table import table
from cudaguard.errors import RuleError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GOOD = Rule("MINE-1", ("torch",), "It breaks.")
OPT_IN = {"grade": "opt-in"}
REPORT = {"grade": "report"}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"id": "local_7"},
        {"id": "Überprüfung1"},
        {"watch": ("nvidia.dali", "_private", "größe")},
        {"needs": ("numpy", "a.b.c")},
        {"watch": ("a.b",), "needs": ("a", "a.c", "a.bc")},
        {"dist": ("decord<=0.6.0", "eva-decord", "x[extra]>=1,<2", "y; python_version > '3'")},
        {"actions": ({"load_local": "libdecord.so*"},)},
        {"actions": ({"beside": "pxr", "value": "1", "set_env": "A"},), "grade": "report"},
        {"actions": [{"load_local": "a.so"}, {"set_env": "A", "value": "1"}]},
        {"actions": ({"set_env": "A", "value": ""}, {"set_env": "A", "value": "b=c d"}),
         "grade": "opt-in"},
        {"actions": ({"clone_outputs": True, "target": "pkg.Größe"},), "grade": "opt-in"},
        {"actions": ({"preload": "libcublas.so.12"}, {"preload": "nvidia/x/lib/lib*.so.1"})},
        *({"grade": grade} for grade in GRADES),
        {"when": {"python": ">=3.9,<3.14", "platform": "linux", "machine": ["x86_64", "aarch64"]}},
        {"when": {"env": {"A": True, "B": False, "C": "text", "D": ""}, "dists": {"x": ">1"}}},
        {"when": {"python": "", "dists": {"x": ""}, "platform": ("linux",)}},
        {"when": {"unless": [{"x": "==1.*", "y": ">=2"}, {"x": ""}]}},
        {"title": "One line", "links": ("https://example.org",)},
        {"fixed_in": "2.0", "verified": "2026-01-01: x 1.0"},
    ],
    ids=str,
)  # fmt: skip
def test_rule_that_fits_is_given_back_as_it_is(fields):
    rule = GOOD.replace(**fields)
    assert check_rule(rule, "here") is rule


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"id": ""}, "id", "expected a text that is not empty"),
        ({"id": 7}, "id", "expected a text that is not empty, got 7"),
        ({"id": "A B"}, "id", "expected letters, digits, '-' and '_'"),
        ({"id": "--"}, "id", "expected letters, digits"),
        ({"id": "CG500"}, "id", "ids that start with CG belong to the built-in rules"),
        ({"id": "cg1"}, "id", "choose another prefix"),
        ({"why": ""}, "why", "expected a text that is not empty"),
        ({"title": None}, "title", "expected a text, got None"),
        ({"fixed_in": 2.0}, "fixed_in", "expected a text that is not empty, got 2.0"),
        ({"verified": True}, "verified", "expected a text"),
        ({"watch": ()}, "watch", "expected at least one module name"),
        ({"watch": "torch"}, "watch", "got the string 'torch'; write ['torch']"),
        ({"watch": ("",)}, "watch", "expected a list of strings that are not empty"),
        ({"watch": {"torch": 1}}, "watch", "expected a list of strings"),
        ({"watch": ("not a name",)}, "watch", "'not a name' is not a module name such as"),
        ({"watch": ("9a",)}, "watch", "is not a module name"),
        ({"needs": "numpy"}, "needs", "got the string 'numpy'"),
        ({"needs": ("numpy>=1",)}, "needs", "'numpy>=1' is not a module name"),
        ({"needs": ("torch",)}, "needs", "it cannot precede itself"),
        ({"needs": ("torch.nn",)}, "needs", "cannot precede 'torch', which Python imports first"),
        ({"needs": ("library:libfoo.so",)}, "needs", "is not a module name"),
        ({"dist": "decord"}, "dist", "got the string 'decord'"),
        ({"dist": ("decord<=",)}, "dist", "expected a requirement such as 'decord<=0.6.0'"),
        ({"dist": ("x==1.0.0.banana.1",)}, "dist", "expected a requirement"),
        ({"dist": ("x; sys_platform ~= 'abc'",)}, "dist", "expected a requirement"),
        ({"dist": ("a; " + "(" * 20000,)}, "dist", "expected a requirement"),
        ({"actions": "load_local"}, "actions", "expected a list of tables, got 'load_local'"),
        ({"actions": None}, "actions", "expected a list of tables, got None"),
        ({"actions": {"load_local": "x"}}, "actions", "; write [{'load_local': 'x'}]"),
        ({"actions": ("load_local:x",)}, "actions",
         "expected a table such as {'load_local': 'libdecord.so*'}, got 'load_local:x'"),
        ({"actions": (3,)}, "actions", "expected a table such as"),
        ({"actions": ({},)}, "actions", "no key is a verb; expected one of load_local, provide"),
        ({"actions": ({"demolish": "x"},)}, "actions", "no key is a verb; expected one of"),
        ({"actions": ({3: "x"},)}, "actions", "no key is a verb"),
        ({"actions": ({"load_locl": "x"},)}, "actions",
         "'load_locl' is not a verb; did you mean {'load_local': 'x'}?"),
        ({"actions": ({"set_en": "x", "valu": "a"},)}, "actions",
         "did you mean {'set_env': 'x', 'value': 'a'}?"),
        ({"actions": ({"load_local": "x", "preload": "y"},)}, "actions",
         "a table has one verb, not 2; write [{'load_local': 'x'}, {'preload': 'y'}]"),
        *(({"actions": ({"load_local": value},)}, "actions",
           "load_local: expected a file name pattern, got ") for value in ("", " ", 1, None, True,
                                                                           ["a"], {"a": 1})),
        ({"actions": ({"load_local": "x", "names": "*"},)}, "actions",
         ("'names' is not a parameter of load_local, which takes no parameters; did you mean "
          "{'load_local': 'x'}?")),
        ({"actions": ({"set_env": "A"},), **OPT_IN}, "actions", "'value' is missing"),
        *(({"actions": ({"set_env": name, "value": "x"},), **OPT_IN}, "actions",
           "set_env: expected the name of an environment variable, got ") for name in
          ("", "A B", "A=", "A\0", 1)),
        *(({"actions": ({"set_env": "A", "value": value},), **OPT_IN}, "actions",
           "value: expected a text without a zero byte, got ") for value in ("x\0y", 1, True)),
        *(({"actions": ({"preload": path},)}, "actions",
           "expected a path below a folder of sys.path, ")
          for path in ("/lib/libc.so.6", "../lib/x.so", "a/../../x.so", "lib*.so", "", None)),
        *(({"actions": ({"clone_outputs": value, "target": "a.b"},), **OPT_IN}, "actions",
           "clone_outputs: expected true, got ") for value in (1, "true", False, None, 1.0)),
        *(({"actions": ({"clone_outputs": True, "target": name},), **OPT_IN}, "actions",
           "target: expected the full name of a class or function, got ") for name in
          ("", "pkg.", "pkg..Encoder", "pkg.1st", "pkg.Encoder.*", " pkg.Encoder")),
        *(({"actions": ({"clone_outputs": True, "target": "a.b"},), "grade": grade}, "grade",
           ("clone_outputs can change what a program does: grade must be 'opt-in', and the rule is "
           f"switched on by its id; got {grade!r}")) for grade in ("automatic", "report")),
        *(({"actions": ({"load_local": library},)}, "actions", "serves others from the global")
          for library in ("libgomp.so*", "libstdc++.so.6", "libmpi.so", "libcudart.so*")),
        ({"links": "https://x"}, "links", "got the string"),
        ({"links": (b"https://x",)}, "links", "expected a list of strings"),
        ({"grade": "FIX"}, "grade", "got 'FIX', expected one of automatic, opt-in, report"),
        ({"grade": None}, "grade", "expected one of automatic, opt-in, report"),
        ({"grade": []}, "grade", "got [], expected one of"),
        ({"when": "linux"}, "when", "expected a table, got 'linux'"),
        ({"when": [("platform", "linux")]}, "when", "expected a table"),
        ({"when": {"cuda": "12"}}, "when", "unknown key 'cuda', expected one of python, platform"),
        ({"when": {3: "12"}}, "when", "unknown key 3"),
        ({"when": {"python": "3.9"}}, "when.python", "expected a version specifier"),
        ({"when": {"python": ">=three"}}, "when.python", "got '>=three'"),
        ({"when": {"platform": 1}}, "when.platform", "expected a name or a list of names"),
        ({"when": {"machine": ["x", 1]}}, "when.machine", "expected a name or a list"),
        ({"when": {"env": "HOME"}}, "when.env", "expected a table, got 'HOME'"),
        ({"when": {"env": {"HOME": 1}}}, "when.env.HOME", "expected a text, true or false, got 1"),
        ({"when": {"env": {7: True}}}, "when.env", "expected names as keys"),
        ({"when": {"dists": ["x"]}}, "when.dists", "expected a table"),
        ({"when": {"dists": {"x": 1}}}, "when.dists.x", "expected a version specifier"),
        ({"when": {"dists": {"x": "1.0"}}}, "when.dists.x", "got '1.0'"),
        ({"when": {"dists": {7: ""}}}, "when.dists", "expected names as keys"),
        ({"when": {"unless": {"x": ""}}}, "when.unless", "expected a list of tables"),
        ({"when": {"unless": ["x"]}}, "when.unless", "expected tables in the list, got 'x'"),
        ({"when": {"unless": [{"x": "1"}]}}, "when.dists.x", "expected a version specifier"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_refusal_names_origin_rule_field_and_what_fits(fields, field, words):
    rule = GOOD.replace(**fields)
    with pytest.raises(RuleError) as caught:
        check_rule(rule, "the origin")
    message = str(caught.value)
    assert message.startswith(f"the origin: rule {rule.id!r}, {field}: ")
    assert words in message


@pytest.mark.parametrize(
    "value",
    [None, 3, "CG001", {"id": "x"}, (), Rule, object()],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_what_is_no_rule_is_refused(value):
    with pytest.raises(RuleError, match=r"here: expected a cudaguard\.Rule, got "):
        check_rule(value, "here")


def test_reserved_id_may_be_replaced_if_it_is_known():
    rule = GOOD.replace(id="CG001")
    assert check_rule(rule, "here", known=("CG001",)) is rule
    with pytest.raises(RuleError):
        check_rule(rule, "here", known=("CG002",))


# --- arbitrary garbage ---------------------------------------------------------------------------

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.binary(max_size=4)
    | st.sampled_from(["CG001", "torch", ">=1", "x==1", "load_local", "fix", "env", "a;b", "\0"])
)
KEYS = (
    st.sampled_from(["python", "platform", "machine", "env", "dists"])
    | st.sampled_from(sorted(declared()))
    | st.sampled_from(["names", "keep", "value", "parameter", "target"])
    | SCALARS
)
GARBAGE = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.frozensets(SCALARS, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3)
    ),
    max_leaves=8,
)


def said_of(rule):
    """Return the words of the refusal, or None if the rule fits; any other error passes."""
    try:
        assert check_rule(rule, "here") is rule
    except RuleError as error:
        return str(error)
    return None


@pytest.mark.parametrize("field", Rule._fields)
@settings(max_examples=60)
@given(value=GARBAGE)
def test_garbage_in_any_field_is_a_rule_error_and_nothing_else(field, value):
    rule = GOOD.replace(**{field: value})
    message = said_of(rule)
    assert message is None or message.startswith("here: rule ")


@settings(max_examples=200)
@given(tables=st.lists(st.dictionaries(KEYS, GARBAGE, max_size=3), max_size=2))
def test_garbage_in_tables_is_a_rule_error_and_nothing_else(tables):
    for grade in GRADES:
        message = said_of(GOOD.replace(actions=tables, grade=grade))
        assert message is None or message.startswith("here: rule ")


def test_corrected_table_fits_where_one_is_proposed():
    wrong = {"set_en": 3, "valu": "a"}
    message = said_of(GOOD.replace(actions=[wrong], grade="report"))
    shown = message.partition("did you mean ")[2].rstrip("?")
    assert shown == "{'set_env': 'XLA_PYTHON_CLIENT_PREALLOCATE', 'value': 'a'}"
    assert said_of(GOOD.replace(actions=[ast.literal_eval(shown)], grade="report")) is None


# --- the declarations ----------------------------------------------------------------------------


def test_no_verb_is_a_parameter_of_any():
    verbs = declared()
    assert not {parameter.name for verb in verbs.values() for parameter in verb.parameters} & set(
        verbs
    )


def test_verbs_have_names_of_their_own_and_every_module_of_the_table_declares_some():
    names = [verb.name for entry in table.index.TABLES for verb in table.resolve(entry)]
    assert len(set(names)) == len(names) == len(declared())


@pytest.mark.parametrize("verb", declared().values(), ids=lambda verb: verb.name)
def test_examples_of_a_verb_fit_and_its_meaning_is_one_short_sentence(verb):
    table = {verb.name: verb.example, **{item.name: item.example for item in verb.parameters}}
    assert check_rule(GOOD.replace(actions=[table], grade=verb.grades[-1]), "here")
    assert set(verb.grades) <= set(GRADES)
    assert verb.meaning.endswith(".")
    assert ". " not in verb.meaning
    assert len(verb.meaning.split()) <= 20
    assert verb.name.islower()


@settings(max_examples=60)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_values_shown_as_toml_are_read_back(text):
    value = {"key": text, text: [text, True]}
    assert tomllib.loads(f"x = {toml_text(value)}")["x"] == value
