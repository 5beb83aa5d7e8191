"""A page in headless Chromium, where that is installed: how wide it is, what it fetches and what it complains of."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium isn't installed")

# The page is in a frame of the width that is asked for: a window can't be as narrow.
FRAME = """<!doctype html><meta charset="utf-8"><iframe style="border:0" width="{width}" height="3000"></iframe>
<pre></pre>
<script>
const frame = document.querySelector("iframe");
frame.onload = () => {{
  const page = frame.contentDocument, root = page.documentElement;
  page.querySelectorAll("details").forEach(one => one.open = true);
  document.querySelector("pre").textContent = JSON.stringify({{
    width: root.scrollWidth,
    fetched: frame.contentWindow.performance.getEntriesByType("resource").map(entry => entry.name),
    background: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
    height: root.scrollHeight,
  }});
}};
frame.srcdoc = {source};
</script>"""


@dataclass(frozen=True)
class Shown:
    """What came of a page: its width and height in pixels, what it fetched, its colour, and the console's errors."""

    width: int
    height: int
    fetched: list[str]
    background: str
    console: list[str]


def shown(source: str, folder: Path, width: int, *, dark: bool = False) -> Shown:
    """Show a page, its details unfolded, in a folder for what the browser writes."""
    assert CHROMIUM is not None
    page = folder / "frame.html"
    # What ends a script must not end this one.
    page.write_text(FRAME.format(width=width, source=json.dumps(source).replace("</", "<\\/")), encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--enable-logging=stderr"]
    command += [f"--user-data-dir={folder / 'profile'}", f"--blink-settings=preferredColorScheme={int(not dark)}"]
    done = subprocess.run([*command, "--virtual-time-budget=5000", page.as_uri()], capture_output=True, text=True)
    found = re.search("<pre>(.+?)</pre>", done.stdout, re.DOTALL)
    assert found is not None, done.stderr
    facts = json.loads(unescape(found[1]))
    return Shown(**facts, console=[line for line in done.stderr.splitlines() if "CONSOLE" in line])
