"""The grammar of rules: what fits, and what each refusal says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaguard.core.rule_check import check_rule
from cudaguard.errors import RuleError
from cudaguard.model import GRADES, Rule

GOOD = Rule("MINE-1", ("torch",), "It breaks.")
OPT_IN = {"grade": "opt-in"}


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
        {"actions": ("local_scope:libdecord.so*",)},
        {"actions": ("demote:libdecord.so*", "hide:*")},
        {"actions": ("hide:std", "keep:DECORD*", "hide:*llvm*", "demote:a.so", "demote:b.so")},
        {"actions": ("local_scope:a.so", "demote:a.so", "hide:zlib"), "grade": "report"},
        {"actions": ("deepbind:my_plugin*.so",), "grade": "opt-in"},
        {"actions": ("env:A=", "env:A=b=c d", "substitute:a.b"), "grade": "opt-in"},
        *({"grade": grade} for grade in GRADES),
        {"when": {"python": ">=3.9,<3.14", "platform": "linux", "machine": ["x86_64", "aarch64"]}},
        {"when": {"env": {"A": True, "B": False, "C": "text", "D": ""}, "dists": {"x": ">1"}}},
        {"when": {"python": "", "dists": {"x": ""}, "platform": ("linux",)}},
        {"title": "One line", "links": ("https://example.org",)},
        {"fixed_in": "2.0", "verified": "2026-01-01: x 1.0"},
    ],
    ids=str,
)
def test_rule_that_fits_is_given_back_as_it_is(fields):
    rule = GOOD.replace(**fields)
    assert check_rule(rule, "here") is rule


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"id": ""}, "id", "expected a text that is not empty"),
        ({"id": "  "}, "id", "expected a text that is not empty"),
        ({"id": 7}, "id", "expected a text that is not empty, got 7"),
        ({"id": None}, "id", "expected a text"),
        ({"id": "A B"}, "id", "expected letters, digits, '-' and '_'"),
        ({"id": "A,B"}, "id", "expected letters, digits"),
        ({"id": "+A"}, "id", "expected letters, digits"),
        ({"id": "--"}, "id", "expected letters, digits"),
        ({"id": "CG500"}, "id", "ids that start with CG belong to the built-in rules"),
        ({"id": "cg1"}, "id", "choose another prefix"),
        ({"why": ""}, "why", "expected a text that is not empty"),
        ({"why": None}, "why", "expected a text that is not empty, got None"),
        ({"title": None}, "title", "expected a text, got None"),
        ({"title": ["x"]}, "title", "expected a text, got ['x']"),
        ({"fixed_in": 2.0}, "fixed_in", "expected a text that is not empty, got 2.0"),
        ({"fixed_in": ""}, "fixed_in", "expected a text"),
        ({"verified": True}, "verified", "expected a text"),
        ({"watch": ()}, "watch", "expected at least one module name"),
        ({"watch": "torch"}, "watch", "got the string 'torch'; write ['torch']"),
        ({"watch": ("",)}, "watch", "expected a list of strings that are not empty"),
        ({"watch": (1,)}, "watch", "expected a list of strings"),
        ({"watch": {"torch": 1}}, "watch", "expected a list of strings"),
        ({"watch": None}, "watch", "expected a list of strings"),
        ({"watch": ("not a name",)}, "watch", "'not a name' is not a module name such as"),
        ({"watch": ("a..b",)}, "watch", "is not a module name"),
        ({"watch": (".a",)}, "watch", "is not a module name"),
        ({"watch": ("a-b",)}, "watch", "is not a module name"),
        ({"watch": ("9a",)}, "watch", "is not a module name"),
        ({"needs": "numpy"}, "needs", "got the string 'numpy'"),
        ({"needs": ("numpy>=1",)}, "needs", "'numpy>=1' is not a module name"),
        ({"needs": ("torch",)}, "needs", "it cannot precede itself"),
        ({"needs": ("torch.nn",)}, "needs", "cannot precede 'torch', which Python imports first"),
        ({"needs": ("library:libfoo.so",)}, "needs", "is not a module name"),
        ({"dist": "decord"}, "dist", "got the string 'decord'"),
        ({"dist": ("decord<=",)}, "dist", "expected a requirement such as 'decord<=0.6.0'"),
        ({"dist": ("<1",)}, "dist", "expected a requirement"),
        ({"dist": ("x==1.0.0.banana.1",)}, "dist", "expected a requirement"),
        ({"dist": ("x; sys_platform ~= 'abc'",)}, "dist", "expected a requirement"),
        ({"dist": ("a; " + "(" * 20000,)}, "dist", "expected a requirement"),
        ({"actions": ("local_scope",)}, "actions", "expected verb:argument with one of"),
        ({"actions": ("local_scope:",)}, "actions", "expected verb:argument"),
        ({"actions": ("env:A",), **OPT_IN}, "actions", "got 'env:A', expected a default for"),
        ({"actions": ("env:=x",), **OPT_IN}, "actions", "expected a default for a variable"),
        ({"actions": ("env:A B=x",), **OPT_IN}, "actions", "expected a default for a variable"),
        ({"actions": ("env:A=x\0y",), **OPT_IN}, "actions", "expected a default for a variable"),
        (
            {"actions": ("substitute:a b",), **OPT_IN},
            "actions",
            "expected a module for the watched",
        ),
        ({"actions": ("demolish:x",)}, "actions", "local_scope: a file name pattern"),
        ({"actions": "local_scope:x"}, "actions", "got the string"),
        ({"actions": ("demote:x.so",)}, "actions", "hide must say which names, as in hide:std"),
        (
            {"actions": ("demote:x.so", "keep:X*")},
            "actions",
            "demote says of which library, hide must say which names",
        ),
        (
            {"actions": ("hide:std",)},
            "actions",
            "hide and keep belong to demote:<file name pattern>, which is missing",
        ),
        ({"actions": ("keep:X*",)}, "actions", "hide and keep belong to demote:"),
        (
            {"actions": ("local_scope:x.so", "hide:*")},
            "actions",
            "hide and keep belong to demote:",
        ),
        ({"actions": ("demote:", "hide:*")}, "actions", "demote: a file name pattern, as in"),
        ({"actions": ("demote:x.so", "hide:")}, "actions", "hide: names to hide from others"),
        ({"actions": ("demote:x.so", "hide")}, "actions", "got 'hide', expected verb:argument"),
        ({"actions": ("deepbind:x.so",)}, "grade", "grade must be 'opt-in', and the rule is "),
        ({"actions": ("deepbind:x.so",), "grade": "automatic"}, "grade", "switched on by its id"),
        ({"actions": ("deepbind:x.so",), "grade": "report"}, "grade", "can change what a program"),
        *(
            ({"actions": (f"{verb}:{library}", *hide)}, "actions", "serves others from the global")
            for verb, hide in (("local_scope", ()), ("demote", ("hide:*",)))
            for library in ("libgomp.so*", "libstdc++.so.6", "libmpi.so", "libcudart.so*")
        ),
        ({"links": "https://x"}, "links", "got the string"),
        ({"links": (b"https://x",)}, "links", "expected a list of strings"),
        ({"grade": "FIX"}, "grade", "got 'FIX', expected one of fix, opt-in, warn"),
        ({"grade": None}, "grade", "expected one of fix, opt-in, warn"),
        ({"grade": []}, "grade", "got [], expected one of"),
        ({"when": "linux"}, "when", "expected a table, got 'linux'"),
        ({"when": [("platform", "linux")]}, "when", "expected a table"),
        ({"when": {"cuda": "12"}}, "when", "unknown key 'cuda', expected one of python, platform"),
        ({"when": {3: "12"}}, "when", "unknown key 3"),
        ({"when": {"python": 3}}, "when.python", "expected a version specifier such as"),
        ({"when": {"python": "3.9"}}, "when.python", "expected a version specifier"),
        ({"when": {"python": ">=three"}}, "when.python", "got '>=three'"),
        ({"when": {"platform": 1}}, "when.platform", "expected a name or a list of names"),
        ({"when": {"platform": {"a": 1}}}, "when.platform", "expected a name or a list"),
        ({"when": {"machine": ["x", 1]}}, "when.machine", "expected a name or a list"),
        ({"when": {"env": "HOME"}}, "when.env", "expected a table, got 'HOME'"),
        ({"when": {"env": {"HOME": 1}}}, "when.env.HOME", "expected a text, true or false, got 1"),
        ({"when": {"env": {"HOME": None}}}, "when.env.HOME", "expected a text, true or false"),
        ({"when": {"env": {7: True}}}, "when.env", "expected names as keys"),
        ({"when": {"env": {"": True}}}, "when.env", "expected names as keys"),
        ({"when": {"dists": ["x"]}}, "when.dists", "expected a table"),
        ({"when": {"dists": {"x": 1}}}, "when.dists.x", "expected a version specifier"),
        ({"when": {"dists": {"x": "1.0"}}}, "when.dists.x", "got '1.0'"),
        ({"when": {"dists": {7: ""}}}, "when.dists", "expected names as keys"),
    ],
    ids=lambda value: str(value)[:40],
)
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


def test_condition_that_can_be_checked_needs_no_packaging_when_it_names_no_version():
    rule = GOOD.replace(when={"platform": "linux", "env": {"A": True}}, needs=("numpy",))
    assert check_rule(rule, "here") is rule


# --- arbitrary garbage ---------------------------------------------------------------------------

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.binary(max_size=4)
    | st.sampled_from(["CG001", "torch", ">=1", "x==1", "local_scope:x", "fix", "env", "a;b", "\0"])
)
KEYS = st.sampled_from(["python", "platform", "machine", "env", "dists"]) | SCALARS
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


@pytest.mark.parametrize("field", Rule.__slots__)
@settings(max_examples=60)
@given(value=GARBAGE)
def test_garbage_in_any_field_is_a_rule_error_and_nothing_else(field, value):
    rule = GOOD.replace(**{field: value})
    message = said_of(rule)
    assert message is None or message.startswith("here: rule ")


@settings(max_examples=60)
@given(requirement=st.text(alphabet="abx019.-_<>=!~*;,[]() '\"@:/+\n", max_size=25))
def test_no_requirement_text_makes_the_grammar_raise_anything_else(requirement):
    message = said_of(GOOD.replace(dist=(requirement,)))
    assert message is None or ", dist: " in message


@settings(max_examples=60)
@given(specifier=st.text(alphabet="ab019.-_<>=!~*, +", max_size=20))
def test_no_specifier_text_makes_the_grammar_raise_anything_else(specifier):
    message = said_of(GOOD.replace(when={"python": specifier}))
    assert message is None or ", when.python: " in message
