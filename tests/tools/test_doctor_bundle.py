"""What a bundle of ``cudaguard doctor`` and its JSON show: planted names and secrets."""

from __future__ import annotations

import platform

import pytest

from .doctor import PURE, in_bundle
from .doctor import planted as planted


@pytest.fixture
def env(tmp_path):
    """A user called wilhelmina, whose home is a folder of the test."""
    home = tmp_path / "home" / "wilhelmina"
    home.mkdir(parents=True)
    return {
        "HOME": str(home), "USER": "wilhelmina", "NVIDIA_API_KEY": "s3cret-1",
        "HF_TOKEN": "s3cret-2",
        "LD_LIBRARY_PATH": f"{home}/lib:/scratch/wilhelmina_runs:/home/bob/lib",
    }  # fmt: skip


def test_bundle_shows_neither_users_nor_secrets(planted, env, child):
    status, out, _ = planted.run("--bundle", "report.md", env=env)
    text = (child.folder / "report.md").read_text()
    for planted_word in ("s3cret", "wilhelmina", "bob", "HF_TOKEN"):
        assert planted_word not in text
    assert '"LD_LIBRARY_PATH": "~/lib:/scratch/USER_runs:/home/USER/lib"' in text
    assert text.startswith("# cudaguard doctor\n")
    assert "checks: " in out
    document, _ = in_bundle(text)
    assert document["environment"]["python"] == platform.python_version()
    assert status == 0 or document["summary"]["fail"]


def test_bundle_names_what_is_installed_and_what_is_set(planted, child):
    planted.distribution("some-thing", "1.2.3", WHEEL=PURE)
    planted.run("--bundle", "report.md", env={"CUDA_VISIBLE_DEVICES": "0,1", "UNRELATED": "x"})
    text = (child.folder / "report.md").read_text()
    _, inventory = in_bundle(text)
    assert inventory["packages"]["some-thing"].startswith("1.2.3")
    assert inventory["variables"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "UNRELATED" not in text


def test_odd_metadata_ends_no_check_and_fills_no_bundle(planted, child):
    planted.distribution("torch", INSTALLER="x" * 5_000_000, RECORD='"' + "a" * 200_000)
    planted.distribution("odd", METADATA=f"Name: {'a' * 5_000_000}\nVersion: 1\n")
    wrong = ",".join(f"NO{n}" for n in range(2000))
    status, checks = planted.checks("--bundle", "report.md", env={"CUDAGUARD_RULES": wrong})
    assert status == 0
    assert checks["CG909"]["reason"].endswith("the first 100 of 2,000 findings")
    assert "broken" not in [check["status"] for check in checks.values()]
    assert len((child.folder / "report.md").read_text()) < 300_000


@pytest.mark.parametrize(("format", "is_whole"), [("json", False), ("text", True)])
def test_home_is_whole_in_text_alone(planted, env, format, is_whole):
    """A command in the text is there to be typed."""
    planted.write("half-1.0.dist-info/METADATA", "Name: half\n")
    env["HOME"] = str(planted.folder)
    _, out, _ = planted.run("--only", "CG905", "--format", format, env=env)
    assert (f"{planted.folder}/half-1.0.dist-info" in out) == is_whole
    assert ("~/half-1.0.dist-info" in out) != is_whole


@pytest.mark.parametrize("name", ["python", "status", "torch"])
def test_account_with_a_name_that_the_report_uses_leaves_it_a_report(planted, env, name):
    """As containers have it; `checks` holds the document against its schema."""
    told = planted.checks("--only", "CG905", env={**env, "USER": name, "HOME": f"/home/{name}"})
    assert told[1]["CG905"]["status"] == "ok"


def test_bundle_that_cannot_be_written(planted):
    status, out, err = planted.run("--bundle", "no/such/report.md", "--only", "CG905")
    assert status == 3
    assert "no faults found in 1 check" in out
    assert "no/such/report.md cannot be written" in err
