"""What a bundle of ``cudaguard doctor`` tells of the user: planted names and secrets."""

from __future__ import annotations

import json
import os
import platform
import pwd

import pytest

from .doctor import in_bundle
from .doctor import planted as planted

SECRETS = {
    "HF_TOKEN": "hf_abcdefghijklmnop",
    "TORCH_SECRET": "s3cret-value",
    "PYTHON_INDEX_PASSWORD": "hunter22",
    "NVIDIA_API_KEY": "nvapi-0123456789",
    "CUDA_URL": "https://someone:pa55word@example.org/simple?token=tt11tt22&x=1",
    "TORCH_AUTHORIZATION": "Bearer abc.def-ghi",
    "PYTORCH_REMARK": "the key is sk-abcdef0123456789 and AKIAABCDEFGHIJKLMNOP",
}
SAID = ("hf_abc", "s3cret", "hunter22", "nvapi-", "someone", "pa55word", "tt11tt22", "abc.def",
        "sk-abc", "AKIA")  # fmt: skip


@pytest.fixture
def env(tmp_path):
    """A user called wilhelmina, whose home is a folder of the test."""
    home = tmp_path / "home" / "wilhelmina"
    home.mkdir(parents=True)
    paths = f"{home}/lib:/scratch/wilhelmina_runs/{platform.node()}:/data/wilhelminas"
    return {**SECRETS, "HOME": str(home), "USER": "wilhelmina", "LD_LIBRARY_PATH": paths}


def test_bundle_tells_neither_who_nor_where_nor_secrets(planted, env, child):
    status, out, _ = planted.run("--bundle", "report.md", env=env)
    text = (child.folder / "report.md").read_text()
    for secret in (*SAID, env["HOME"], "wilhelmina", platform.node()):
        assert secret not in text.replace("/data/wilhelminas", ""), secret
    assert '"LD_LIBRARY_PATH": "~/lib:/scratch/<user>_runs/<host>:/data/wilhelminas"' in text
    assert "https://<secret>@example.org/simple?token=<secret>&x=1" in text
    assert text.startswith("# cudaguard doctor\n")
    assert "checks: " in out
    document, _ = in_bundle(text)
    assert document["environment"]["python"] == platform.python_version()
    assert status == 0 or document["summary"]["fail"]


def test_bundle_as_it_is_on_request(planted, env, child):
    planted.run("--bundle", "report.md", "--no-redact", env=env)
    text = (child.folder / "report.md").read_text()
    assert f'"LD_LIBRARY_PATH": "{env["LD_LIBRARY_PATH"]}"' in text


def test_bundle_names_what_is_installed_and_what_is_set(planted, child):
    planted.distribution("some-thing", "1.2.3")
    planted.run("--bundle", "report.md", env={"CUDA_VISIBLE_DEVICES": "0,1", "UNRELATED": "x"})
    text = (child.folder / "report.md").read_text()
    _, inventory = in_bundle(text)
    assert inventory["other_packages"]["some-thing"] == "1.2.3"
    assert inventory["variables"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert "UNRELATED" not in text


def test_json_is_redacted_and_text_is_not(planted, env):
    """A command in the text is there to be typed."""
    planted.write("half-1.0.dist-info/METADATA", "Name: half\n")
    env["HOME"] = str(planted.folder)
    _, out, _ = planted.run("--only", "CG905", "--format", "json", env=env)
    (found,) = json.loads(out)["checks"][0]["findings"]
    assert found["evidence"] == ["~/half-1.0.dist-info"]
    _, out, _ = planted.run("--only", "CG905", "--format", "json", "--no-redact", env=env)
    (found,) = json.loads(out)["checks"][0]["findings"]
    assert found["evidence"] == [f"{planted.folder}/half-1.0.dist-info"]
    assert str(planted.folder) in planted.run("--only", "CG905", env=env)[1]


@pytest.mark.parametrize("name", ["python", "status", "torch"])
def test_account_with_a_name_that_the_report_uses_leaves_it_a_report(planted, env, name):
    """As containers have it; `checks` holds the document against its schema."""
    told = planted.checks("--only", "CG905", env={**env, "USER": name, "HOME": f"/home/{name}"})
    assert told[1]["CG905"]["status"] == "ok"


def test_annotations_are_redacted(planted, env):
    """The logs of a workflow are public."""
    planted.write("half-1.0.dist-info/METADATA", "Name: half\n")
    env["HOME"] = str(planted.folder)
    told = ("--only", "CG905", "--format", "github")
    assert "%0A~/half-1.0.dist-info%0A" in planted.run(*told, env=env)[1]
    assert (
        f"%0A{planted.folder}/half-1.0.dist-info%0A"
        in planted.run(*told, "--no-redact", env=env)[1]
    )


def test_home_folder_of_the_account_counts_beside_that_of_the_environment(planted, env, child):
    """Jobs and containers set HOME to a folder of their own."""
    home = pwd.getpwuid(os.getuid()).pw_dir
    planted.run("--bundle", "report.md", env={**env, "CUDA_CACHE_PATH": f"{home}/cache"})
    _, inventory = in_bundle((child.folder / "report.md").read_text())
    assert inventory["variables"]["CUDA_CACHE_PATH"] == "~/cache"


def test_bundle_that_cannot_be_written(planted):
    status, out, err = planted.run("--bundle", "no/such/report.md", "--only", "CG905")
    assert status == 3
    assert "no faults found in 1 check" in out
    assert "no/such/report.md cannot be written" in err


def test_working_directory_is_no_password(planted, env, child):
    """As shells tell it in PWD: paths below it are what a report is about."""
    env = {**env, "PWD": str(child.folder), "CUDA_CACHE_PATH": f"{child.folder}/cache"}
    planted.run("--bundle", "report.md", env=env)
    _, inventory = in_bundle((child.folder / "report.md").read_text())
    assert inventory["variables"]["CUDA_CACHE_PATH"] == f"{child.folder}/cache"
