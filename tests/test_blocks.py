"""Every code block of the documents is run, or says why not: see docs/_generate/blocks.py."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from .decord_fault import ZLIB_IS_FIRST, has_zlib_first

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "docs"))

from _generate.blocks import blocks_of
from _generate.outputs import needed, run, settled
from generate import pages

ROOT = Path(__file__).resolve().parent.parent
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in pages()}
RUN = [name for name, text in PAGES.items() if any(block.is_run for block in blocks_of(text))]
TEST = re.compile(r"run by (tests/[\w/]+\.py)::(\w+)")


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page):
    for block in blocks_of(PAGES[page]):
        is_told = (
            block.is_run
            or block.is_printed
            or bool(block.file)
            or TEST.fullmatch(block.mark)
            or re.fullmatch(r"not run: \w.{6,}", block.mark)
        )
        assert is_told, f"{page}:{block.line}: is this block run? See docs/_generate/blocks.py"


@pytest.mark.parametrize("page", PAGES)
def test_tests_that_run_blocks_exist_and_read_that_page(page):
    for block in blocks_of(PAGES[page]):
        if told := TEST.fullmatch(block.mark):
            text = (ROOT / told[1]).read_text(encoding="utf-8")
            assert re.search(rf"^def {told[2]}\(", text, re.MULTILINE), block.mark
            assert Path(page).name in text, block.mark


@pytest.mark.parametrize("page", PAGES)
def test_files_of_a_page_are_named_by_its_commands(page):
    """Otherwise nothing runs them."""
    blocks = blocks_of(PAGES[page])
    commands = "".join(block.body for block in blocks if not block.file)
    for block in blocks:
        if block.file:
            assert block.file in commands, f"{page}:{block.line}"


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_commands_print_what_is_shown(page, tmp_path):
    """Otherwise run `python docs/generate.py --outputs`, and look at the change."""
    for module in needed(PAGES[page]):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: it has wheels for x86-64 Linux only")
        if module == "decord" and has_zlib_first():
            pytest.skip(ZLIB_IS_FIRST)
    for shown in run(PAGES[page], tmp_path):
        place = f"{page}:{shown.block.line}"
        assert shown.status == int(shown.block.option("status") or 0), f"{place}: {shown.found}"
        if shown.printed is not None:
            assert settled(shown.found) == settled(shown.printed.body), place


def test_a_block_that_is_not_marked_is_found():
    block = "```console\n$ true\n```\n"
    text = f"# Page\n\n{block}\n<!-- run -->\n{block}\n```text\n```\n"
    unmarked, marked, printed = blocks_of(text)
    assert (unmarked.is_run, marked.is_run, printed.is_printed) == (False, True, True)
    assert (unmarked.mark, unmarked.line) == ("", 3)


def test_what_is_printed_otherwise_is_found(tmp_path):
    page = "<!-- run -->\n```console\n$ echo one\n```\n\n```text\ntwo\n```\n"
    (shown,) = run(page, tmp_path)
    assert (shown.is_right, shown.found) == (False, "one\n")
    (shown,) = run(page.replace("two", "one"), tmp_path)
    assert shown.is_right
    (shown,) = run(page.replace("echo one", "echo one; exit 3"), tmp_path)
    assert not shown.is_right
