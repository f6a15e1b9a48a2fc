"""The scan for rule plug-ins, on real folders; `importlib_metadata` is asked for comparison."""

from __future__ import annotations

import sys

import importlib_metadata
import pytest

from cudaguard.core.rule_check import GROUP, Entry, scan_plugins

POINTS = f"[{GROUP}]\nmod = plug:RULE\n"


def write(folder, text=POINTS):
    folder.mkdir(parents=True)
    (folder / "entry_points.txt").write_text(text, encoding="utf-8")


def values(path):
    """Return the values found, by module."""
    return {
        module: [entry.value for entry in entries]
        for module, entries in scan_plugins([str(folder) for folder in path]).items()
    }


def reference(path):
    """Return what the reference implementation finds on the same path."""
    found: dict[str, list[str]] = {}
    seen = set()
    for dist in importlib_metadata.distributions(path=[str(folder) for folder in path]):
        name = dist._normalized_name
        if name not in seen:
            seen.add(name)
            for point in dist.entry_points:
                if point.group == GROUP:
                    found.setdefault(point.name, []).append(point.value.partition(" ")[0])
    return found


@pytest.mark.parametrize(
    "name",
    ["plug-1.0.dist-info", "plug.egg-info", "plug-1.0-py3.9.egg-info", "My.Plug-2.dist-info"],
)
def test_entry_is_found_with_its_origin(tmp_path, name):
    write(tmp_path / name)
    assert scan_plugins([str(tmp_path)]) == {"mod": (Entry("mod", "plug:RULE", name),)}
    assert reference([tmp_path]) == values([tmp_path])


@pytest.mark.parametrize("name", ["plug-1.0", "plug.dist-info.bak", "dist-info", "plug.egg-link"])
def test_other_folders_are_not_looked_into(tmp_path, name):
    write(tmp_path / name)
    assert scan_plugins([str(tmp_path)]) == {}


def test_several_distributions_for_one_module_all_count(tmp_path):
    write(tmp_path / "one-1.dist-info", f"[{GROUP}]\nmod = one:R\nmore = one:S\n")
    write(tmp_path / "two-1.dist-info", f"[{GROUP}]\nmod = two:R\n")
    found = values([tmp_path])
    assert sorted(found["mod"]) == ["one:R", "two:R"]
    assert found["more"] == ["one:S"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("plug-1.0.dist-info", "plug-2.0.dist-info"),
        ("plug.egg-info", "plug-2.0.dist-info"),
        ("My_Plug-1.dist-info", "my_plug-2.dist-info"),
        ("my.plug-1.dist-info", "my_plug-2.dist-info"),
    ],
)
def test_first_folder_on_the_path_wins_between_two_versions(tmp_path, first, second):
    write(tmp_path / "a" / first, f"[{GROUP}]\nmod = old:R\n")
    write(tmp_path / "b" / second, f"[{GROUP}]\nmod = new:R\n")
    path = [tmp_path / "a", tmp_path / "b"]
    assert values(path) == {"mod": ["old:R"]}
    assert values(path[::-1]) == {"mod": ["new:R"]}
    assert reference(path) == values(path)


def test_shadowing_distribution_without_entry_points_hides_the_shadowed_ones(tmp_path):
    # `import` takes the first one too: the second one's module cannot even be imported.
    (tmp_path / "a" / "plug-1.dist-info").mkdir(parents=True)
    write(tmp_path / "b" / "plug-2.dist-info")
    path = [tmp_path / "a", tmp_path / "b"]
    assert values(path) == reference(path) == {}


def test_folder_that_stands_on_the_path_twice_is_read_once(tmp_path):
    write(tmp_path / "plug-1.dist-info")
    assert values([tmp_path, tmp_path]) == {"mod": ["plug:RULE"]}


def test_empty_entry_means_the_working_directory(tmp_path, monkeypatch):
    write(tmp_path / "plug-1.dist-info")
    monkeypatch.chdir(tmp_path)
    assert set(scan_plugins([""])) == {"mod"}


def test_what_cannot_be_read_is_skipped(tmp_path):
    (tmp_path / "folder-1.dist-info" / "entry_points.txt").mkdir(parents=True)
    (tmp_path / "file-1.egg-info").write_text("Name: file\n")
    (tmp_path / "dangling-1.dist-info").symlink_to(tmp_path / "nowhere")
    (tmp_path / "empty-1.dist-info").mkdir()
    write(tmp_path / "good-1.dist-info")
    (tmp_path / "loop-1.dist-info").mkdir()
    link = tmp_path / "loop-1.dist-info" / "entry_points.txt"
    link.symlink_to(link)
    path = [str(tmp_path / "missing"), "/dev/null", "nul\0", str(tmp_path)]
    assert {name: len(entries) for name, entries in scan_plugins(path).items()} == {"mod": 1}


@pytest.mark.parametrize(
    "entry", [None, 0, 3, b"bytes", [], object()], ids=lambda entry: type(entry).__name__
)
def test_what_is_no_string_on_the_path_is_ignored_as_by_import(tmp_path, entry):
    write(tmp_path / "plug-1.dist-info")
    assert set(scan_plugins([entry, str(tmp_path)])) == {"mod"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("[other]\nmod = plug:R\n", {}),
        (f"[other]\nx = y:z\n[{GROUP}]\nmod = plug:R\n[more]\nz = q:r\n", {"mod": ["plug:R"]}),
        (f"[{GROUP}]\n\n# note\n  mod   =   plug:R  \n", {"mod": ["plug:R"]}),
        (f"[{GROUP}]\r\nmod=plug:R\r\n", {"mod": ["plug:R"]}),
        (f"[{GROUP}]\nmod = plug:R [extra, more]\n", {"mod": ["plug:R"]}),
        (f"[{GROUP}]\na.b = plug:R\nmod = plug.sub:C.rules\n",
         {"a.b": ["plug:R"], "mod": ["plug.sub:C.rules"]}),
        (f"[{GROUP}.more]\nmod = plug:R\n", {}),
        (f"[x{GROUP}]\nmod = plug:R\n", {}),
    ],
)  # fmt: skip
def test_grammar_of_the_file(tmp_path, text, expected):
    write(tmp_path / "plug-1.dist-info", text)
    assert values([tmp_path]) == expected
    assert reference([tmp_path]) == expected


@pytest.mark.parametrize(
    "data",
    [
        f"[{GROUP}]\nno equals sign\n".encode(), f"[{GROUP}]\n=\n= value\nname =\n".encode(),
        f"[{GROUP}\nmod = plug:R\n".encode(), f"[{GROUP}]\n\xff\xfe = \xfe\n".encode("latin-1"),
        f"[{GROUP}]\n".encode() + bytes(range(256)), f"[{GROUP}]".encode("utf-16"), b"\0" * 4096,
    ],
    ids=range(7),
)  # fmt: skip
def test_malformed_file_never_raises_and_costs_no_other_distribution(tmp_path, data):
    (tmp_path / "bad-1.dist-info").mkdir()
    (tmp_path / "bad-1.dist-info" / "entry_points.txt").write_bytes(data)
    write(tmp_path / "good-1.dist-info")
    assert values([tmp_path])["mod"] == ["plug:RULE"]


def test_path_of_this_interpreter_can_be_scanned_and_agrees_with_the_reference():
    assert set(scan_plugins(sys.path)) == {
        point.name
        for dist in importlib_metadata.distributions()
        for point in dist.entry_points
        if point.group == GROUP
    }
