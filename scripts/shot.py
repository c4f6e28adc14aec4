"""How was docs/report.png made? A part of a report page, as Chromium draws it.

echoless pretrain shapes:4000 --out plain --recipe demo --max-steps 300 --alpha-min 1.0
echoless pretrain shapes:4000 --out faded --recipe demo --max-steps 300 --alpha-min 0.6
echoless report plain faded --out report.html
python scripts/shot.py report.html docs/report.png
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright


def shoot(page: Path, picture: Path) -> None:
    """From the alphas to the first three curves of training, with few colours so that it stays small."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_context(color_scheme="light", viewport={"width": 1280, "height": 900}).new_page()
        tab.goto(page.resolve().as_uri())
        top = tab.locator("#what .charts").bounding_box()
        end = tab.locator("#training figure").nth(3).bounding_box()
        assert top is not None and end is not None
        part = {"x": 0, "y": top["y"] - 14, "width": 1280, "height": end["y"] - top["y"] + 6}
        data = tab.screenshot(full_page=True, clip=part)
        browser.close()
    Image.open(io.BytesIO(data)).convert("RGB").quantize(64, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    shoot(Path(sys.argv[1]), Path(sys.argv[2]))
