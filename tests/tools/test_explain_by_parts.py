"""Messages that are made from the grammars: actors, acts and numbers that no report has shown."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

import cudaguard
from cudaguard.core.known_errors import sections_in
from cudaguard.system.runtimes import RUNTIMES
from cudaguard.system.statuses import status_table

from ..documents import SAID

STATUSES = status_table().statuses
# What has an id of its own; of the rest a general one says number and meaning.
OTHERS = {"CG881", "CG748"}
OWN = {
    "CG743": "710", "CG745": "2", "CG749": "900 902 903 904 905 906 907 908 910 913",
    "CG718": "201", "CG816": "400 709", "CG893": "98 209", "CG899": "218 222", "CG715": "35 36",
    "CG865": "803", "CG866": "804", "CG778": "802", "CG750": "214 220 226", "CG777": "701 720 912",
    "CG744": "700 714 715 716 717 718 719", "CG897": "209", "CG747": "901",
}  # fmt: skip
ID_OF = {int(number): id for id, numbers in OWN.items() for number in numbers.split()}


def ways_to_say(status):
    """Yield the messages that have a status."""
    yield from (f"call failed: {say(one)}" for one in status.names for say in (str, str.lower))
    if status.library == "cuda":
        yield f"CUDA error {status.number}"
        yield from map(": ".join, product(("CUDA error", "cuInit failed"), status.words))


@pytest.mark.parametrize("status", STATUSES, ids=lambda one: f"{one.names[0]}-{one.number}")
def test_every_status_is_explained_by_name_number_and_words(status):
    for text in ways_to_say(status):
        found = cudaguard.explain(text)
        if status.library == "cuda" and status.number in ID_OF:
            assert found.id in {ID_OF[status.number], "CG893"}, text
        elif found.id in OTHERS:
            assert status.meaning.partition(",")[0] in found.what
            assert found.remedy
        assert "{" not in str(found)


def absent(library, number):
    """Yield what loaders say of a library that is not there."""
    name = library[3:]
    yield f"ImportError: {library}.so.{number}: cannot open shared object file: No such file"
    yield f"Error loading shared library {library}.so.{number}: No such file or directory"
    yield f"OSError: Could not load library {library}.so.{number}"
    yield f"RuntimeError: Library {name}64_{number}.dll is not found or cannot be loaded"
    yield f"Could not load dynamic library '{name}64_{number}.dll'; dlerror: not found"
    yield f"Unable to load any of {{{library}.so.{number}.1, {library}.so.{number}}}"


NVIDIAS = [of for of, one in RUNTIMES.items() if one.wheel and of not in ("libcudnn", "libnccl")]


@pytest.mark.parametrize("library", NVIDIAS)
def test_every_absent_library_names_its_package(library):
    for text in (text for number in (11, 12, 13) for text in absent(library, number)):
        found = cudaguard.explain(text)
        assert (found.id, "nvidia-" in found.remedy) == ("CG868", True), text
    if library in ("libcudart", "libcublas", "libnvrtc", "libnvJitLink"):
        for number, suffix in ((11, "-cu11"), (12, "-cu12"), (13, "")):
            found = cudaguard.explain(next(absent(library, number)))
            wheel = f"nvidia-{RUNTIMES[library].wheel.replace('_', '-')}{suffix}"
            assert f" {wheel}, where nvidia-smi shows" in found.remedy
            assert found.command.endswith(wheel) is (number < 13)


@pytest.mark.parametrize("act", SAID["act"])
def test_what_the_loader_refuses_is_explained_for_any_member(act):
    for member in SAID["members"]:
        found = cudaguard.explain(f"ImportError: /opt/venv/lib/{member}: {act}")
        assert found.id == SAID["act"][act]
        if "version" not in act:
            assert member in found.what


@pytest.mark.parametrize("grammar", SAID["grammar"], ids=lambda grammar: "-".join(grammar["ids"]))
def test_text_that_a_grammar_makes_is_explained(grammar):
    for form, member in product(grammar["forms"], grammar["members"]):
        found = cudaguard.explain(form.format(member))
        assert found.id in grammar["ids"], form.format(member)
        assert "{" not in found.what + found.remedy + found.command


@pytest.mark.parametrize("text", SAID["worn"])
def test_what_a_terminal_or_launcher_adds_hides_nothing(text):
    assert cudaguard.explain(text).id == "CG778"


@pytest.mark.parametrize("text", SAID["general"])
def test_text_that_nobody_described_has_a_general_answer_that_says_so(text):
    found = cudaguard.explain(text)
    assert (found.id, "general answer" in found.consequence) == ("CG756", True)


PARTS = sections_in(str(Path(cudaguard.__file__).parent / "core" / "parts.ini"))
PACKAGES = re.sub(r"\(\?:.*?\)", "(", PARTS["packages"]["{who}"][0])
# Who speaks, in a word that the grammar takes for it; what is said of it; the acts it may have.
WHO = [
    *((next(word for word in (who, *re.findall(r"\w+", one)) if re.search(one, word)), who,
       [*PARTS["any"], *PARTS["acts"]]) for who, (one, *_) in PARTS["actors"].items()),
    *((who, who, [*PARTS["any"]]) for who in re.findall(r"(?<=[|>])[a-z\d]+(?=[|)])", PACKAGES)),
]  # fmt: skip


@pytest.mark.parametrize(("word", "who", "acts"), WHO, ids=lambda one: str(one)[:12])
def test_each_actor_is_told_with_each_act(word, who, acts):
    for act in acts:
        found = cudaguard.explain(f"RuntimeError: {word}: {SAID['phrases'][act]}")
        assert found.remedy
        if found.id == "CG756":
            assert found.what == f"{act}.".format(who=who)


@pytest.mark.parametrize("act", [*PARTS["said"], *PARTS["after"], *PARTS["advised"]])
def test_act_that_counts_whoever_speaks_does_so_in_texts_of_this_field_alone(act):
    found = cudaguard.explain(SAID["told"][act].replace("ACME", "vllm"))
    assert re.fullmatch(re.sub(r"\\{\w+\\}", ".+", re.escape(f"{act}.")), found.what)
    assert "ACME" not in SAID["told"][act] or cudaguard.explain(SAID["told"][act]) is None


def test_what_the_message_itself_advises_goes_first():
    said = "RuntimeError: vllm: rows=2 is {}. {} rows=1 or off. Please report it at x.org"
    both = cudaguard.explain(said.format("unsupported", "Please use")).remedy
    assert both.startswith('do as it says: "Please use rows=1 or off"; else update')
    alone = cudaguard.explain(said.format("odd", "Try")).remedy
    assert alone == 'do as it says: "Try rows=1 or off"'
    assert cudaguard.explain(said.format("odd", "It has")) is None


SHORT = [words for one in STATUSES if one.library == "cuda" for words in one.words
         if words.count(" ") < 3 and "CUDA" not in words]  # fmt: skip


@pytest.mark.parametrize("words", SHORT)
def test_words_of_others_say_nothing(words):
    assert cudaguard.explain(f"ftp error: {words}") is None
