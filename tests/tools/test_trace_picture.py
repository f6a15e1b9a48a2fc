"""The picture of a trace in a real browser: is all of it there, in its place, light and dark?"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="programs are supervised on Linux only"
)
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
TRACE = (sys.executable, "-m", "cudaguard", "trace")
DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"
# Of every text: where it begins and ends, and what it says; and of every bar.
MEASURE = """
<script>
const box = e => { const b = e.getBBox(); return [b.x, b.y, b.x + b.width, b.y + b.height]; };
const all = name => [...document.querySelectorAll('svg ' + name)];
const view = document.querySelector('svg').viewBox.baseVal;
document.title = 'measured';
const out = document.createElement('pre');
out.id = 'measured';
out.textContent = JSON.stringify({
  width: view.width, height: view.height,
  texts: all('text').map(e => [e.textContent, getComputedStyle(e).fill, ...box(e)]),
  bars: all('g > rect, g > path').map(e => [getComputedStyle(e).fill, ...box(e)]),
  back: getComputedStyle(document.querySelector('svg')).backgroundColor,
  resources: performance.getEntriesByType('resource').length,
});
document.body.append(out);
</script>
"""
PROGRAM = """
import ctypes, sqlite3, ssl
import {long}
ctypes.CDLL({taker!r}, ctypes.RTLD_GLOBAL)
import pack
"""


@pytest.fixture(scope="session")
def browser():
    """Runs a headless browser on a file; returns what it prints."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"there is no browser here (none of {', '.join(BROWSERS)})")

    def run(path, *options):
        command = [found, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={path.parent / 'profile'}", *options, path.as_uri()]
        done = subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def crashed(child, tmp_path_factory):
    """Traces a program in which all that can be shown happens; returns the folder of pictures."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler (cc)")
    codes = {
        "libtaker.so": "void jpeg_CreateDecompress(void) {}",
        "libcrashing_with_a_name_that_is_much_too_long_for_its_column_of_the_picture.so": (
            "#include <stdlib.h>\n__attribute__((constructor)) static void die(void) { abort(); }"
        ),
    }
    for name, code in codes.items():
        source = child.write("code.c", code)
        command = [compiler, "-shared", "-fPIC", "-o", child.folder / name, source]
        subprocess.run(command, check=True, timeout=120)
    taker, crashing = (child.folder / name for name in codes)
    long = "a_module_" + "with_a_long_name_" * 5
    child.write(f"{long}.py", "import decimal, lzma, bz2")
    child.write("pack.py", f"import ctypes\nctypes.CDLL({str(crashing)!r})\n")
    path = child.write(
        f"main_{'of_a_long_name_' * 4}.py", PROGRAM.format(long=long, taker=str(taker))
    )
    child.command(*TRACE, "-o", "t.svg", "-o", "t.html", path, check=False)
    return child.folder


def measured(browser, folder, *options):
    page = folder / "measured.html"
    text = (folder / "t.html").read_text(encoding="utf-8")
    page.write_text(text.replace("</body>", MEASURE + "</body>"), encoding="utf-8")
    dumped = browser(page, *options, "--dump-dom")
    (told,) = re.findall(r'<pre id="measured">(.*?)</pre>', dumped, re.DOTALL)
    for name, sign in (("lt", "<"), ("gt", ">"), ("amp", "&")):
        told = told.replace(f"&{name};", sign)
    return json.loads(told)


def test_nothing_runs_out_or_lies_over_something_else(browser, crashed):
    seen = measured(browser, crashed)
    texts = [(words, *place) for words, _, *place in seen["texts"]]
    assert len(texts) > 15
    for words, left, top, right, bottom in texts:
        assert left >= 0, words
        assert right <= seen["width"], words
        assert top >= 0, words
        assert bottom <= seen["height"], words
        if words.startswith(("import ", "dlopen ")) and words != "import":  # left of the chart
            assert right <= 350, words
    for number, (words, left, top, right, bottom) in enumerate(texts):
        for other, x, y, end, low in texts[number + 1 :]:
            apart = right <= x or end <= left or bottom - 2 <= y or low - 2 <= top
            assert apart, (words, other)
    assert all(right <= 800 for _, left, _, right, _ in seen["bars"] if left >= 350)
    assert seen["resources"] == 0


def test_what_matters_is_in_the_picture(browser, crashed):
    texts = [words for words, *_ in measured(browser, crashed)["texts"]]
    assert any(words.startswith("✕ died of SIGABRT in libcrashing") for words in texts)
    assert any(words.startswith("CG812") for words in texts)
    assert any(words.startswith("dlopen libcrashing") and words.endswith("…") for words in texts)
    assert "import pack" in texts


def luminance(color):
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
def test_all_words_can_be_read_in_light_and_dark(browser, crashed, scheme):
    seen = measured(browser, crashed, scheme)
    back = luminance(seen["back"])
    assert (back < 0.1) == (scheme == DARK)
    for words, color, *_ in seen["texts"]:
        light, dark = sorted((luminance(color), back), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5, (words, color)  # WCAG 2, level AA
