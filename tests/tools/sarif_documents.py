"""SARIF documents of the three commands that write them, from real runs."""

from __future__ import annotations

import json
import sys

CUDAGUARD = (sys.executable, "-m", "cudaguard")
RULES = "[[rules]]\nid = 'LOCAL1'\nwatch = ['b']\nneeds = ['a']\nwhy = 'b wants a first'\n"
NOTEBOOK = {
    "nbformat": 4,
    "metadata": {},
    "cells": [{"cell_type": "code", "source": "\nimport b\nimport a\n"}],
}


def written(child, *command, **env):
    """Run a command with ``--format sarif``; returns its status and the document."""
    done = child.command(*CUDAGUARD, *command, "--format", "sarif", check=False, env=env)
    return done.returncode, json.loads(done.stdout)


def of_lint(child):
    child.write("cudaguard.toml", RULES)
    child.write("a folder/träin%.py", "x = '😀'; import b\nimport a\n")
    child.write("a folder/notes.ipynb", json.dumps(NOTEBOOK))
    return written(child, "lint", "--config", "cudaguard.toml", "a folder")


def of_extension(child):
    child.write("ext#1.so", "no library")
    return written(child, "check-extension", "ext#1.so")


def of_doctor(child):
    """Of distributions that are planted: what is installed here differs."""
    for name, version in (("decord", "0.6.0"), ("torch", "2.9.1")):
        text = f"Name: {name}\nVersion: {version}\n"
        child.write(f"site/{name}-{version}.dist-info/METADATA", text)
    only = ("--only", "CG901", "--only", "CG905")
    return written(child, "doctor", *only, PYTHONPATH=str(child.folder / "site"))


ALL = {"lint": of_lint, "check-extension": of_extension, "doctor": of_doctor}
