"""The report page in a real browser: it loads without a word on the console and without asking for anything, its numbers are those
of the other commands, each control does what it says, and names are shown as text.

    python crates/hither/tests/browser/report.py target/debug/hither [--shots DIR]

needs the `playwright` package and Debian's chromium; where either is missing it prints `skipped`. `--shots` keeps a picture of each
page in both themes and at a phone's width. Times are printed and never asserted.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from shutil import which

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sys.exit(print("skipped: no playwright"))

CHROMIUM = which("chromium")
if not CHROMIUM:
    sys.exit(print("skipped: no chromium"))

EVIL = "<img src=x onerror=\"document.title='owned'\">\n'&</script><script>document.title='owned'<!--"


class Lab:
    """A folder with traces and their pages."""

    def __init__(self, hither, folder):
        self.hither = str(Path(hither).resolve())
        self.folder = folder

    def run(self, *arguments, **more):
        return subprocess.run([self.hither, *arguments], cwd=self.folder, check=True, capture_output=True, **more).stdout

    def json(self, *arguments):
        return json.loads(self.run(*arguments, "--json"))

    def record(self, name, *command):
        self.run("record", "-q", "-o", name, "--", *command)

    def page(self, name, *arguments):
        self.run("report", "-q", *arguments, "-o", name)
        path = self.folder / name
        print(f"{name}: {path.stat().st_size:,} bytes")
        assert path.stat().st_size < 10 << 20
        return path.as_uri()


def count(number):
    return f"{number:,}"


def percent(share):
    return "<0.1 %" if 0 < share < 0.0005 else f"{share * 100:.1f} %"


def size(number):
    for unit in ["B", "KiB", "MiB", "GiB"]:
        if number < 1024 or unit == "GiB":
            return f"{number} B" if unit == "B" else f"{number:.2f} {unit}"
        number /= 1024


class Page:
    """A page that is open; everything that it says or asks for is kept."""

    def __init__(self, browser, url, **options):
        self.said, self.asked = [], []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        start = time.monotonic()
        self.page.goto(url)
        self.page.wait_for_function("document.documentElement.dataset.ready === 'true'")
        self.loaded_s = time.monotonic() - start
        self.quiet(url)

    def quiet(self, url=None):
        assert self.said == [], self.said
        others = [asked for asked in self.asked if not asked.startswith(("data:", "file:")) or asked.endswith(("x", "0"))]
        assert others == [], others

    def __getattr__(self, name):
        return getattr(self.page, name)

    def text(self, selector):
        return self.page.locator(selector).first.inner_text()

    def rows(self, section):
        return self.page.locator(f"#{section} tbody tr")

    def cells(self, section, row):
        return self.rows(section).nth(row).locator("td").all_inner_texts()

    def view(self):
        return [int(part) for part in self.page.locator("#picture .body").get_attribute("data-view").split(",")]

    def settled(self):
        """After what was asked for has been drawn."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def ink(self):
        """The pixels of the picture, as a text."""
        self.settled()
        return self.page.evaluate("() => document.querySelector('.plane canvas').toDataURL()")


def numbers(lab, page, trace):
    """What is on the page, word by word, against what the other commands print."""
    stats = lab.json("stat", trace)["stats"]
    advice = lab.json("advise", "-q", trace)
    figure = lambda name: page.text(f"#verdict [data-figure='{name}']")
    assert figure("references").split("\n")[0] == count(stats["references"])
    assert figure("distinct blocks").split("\n") == [count(stats["blocks"]), size(stats["footprint_bytes"])]
    assert figure("requests").split("\n") == [count(stats["counts"]["total"]["requests"]), percent(stats["sequential_share"]) + " sequential"]
    assert figure("read").split("\n")[0] == size(stats["counts"]["total"]["read_bytes"])
    assert figure("call sites").split("\n")[0] == count(stats["sites"])
    assert page.text("#verdict .headline") == advice["advice"]["sentences"][0]
    said, sure = advice["advice"]["sentences"][1:], advice["advice"]["confidence"]
    assert page.locator("#verdict .more li").all_inner_texts()[: len(said)] == said
    assert figure("confidence") == sure["level"]
    label = page.locator("#verdict .sureness canvas").get_attribute("aria-label")
    assert label.split(": ")[1].split(", ") == [f"{gain * 100:.1f}" for gain in sure["gains"]], label

    results = advice["results"]
    policies = list(dict.fromkeys(result["policy"] for result in results))
    sizes = len(results) // len(policies)
    for row, policy in enumerate(policies):
        expected = [percent(result["hit_ratio"]) for result in results[row * sizes : (row + 1) * sizes]]
        assert page.cells("ratios", row) == [policy, *expected]

    for row, site in enumerate(advice["sites"][:5]):
        cells = page.cells("sites", row)
        assert percent(site["share"]) == cells[1].strip()
        assert cells[2:4] == [count(site["references"]), count(site["distinct_blocks"])]
        assert cells[5] == site["class"]
    for row, file in enumerate(stats["by_object"][:5]):
        cells = page.cells("files", row)
        assert cells[1].strip() == percent(file["share"])
        assert cells[2:6] == [count(file["references"]), count(file["blocks"]), size(file["read_bytes"]), size(file["written_bytes"])], (cells, file)


def tables(page):
    """Sorting, filtering, showing more."""
    references = lambda: [int(text.replace(",", "")) for text in page.locator("#files tbody td:nth-child(3)").all_inner_texts()]
    head = page.locator("#files thead th").nth(2)
    assert page.locator("#files thead th").nth(1).get_attribute("aria-sort") == "descending"
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert references() == sorted(references(), reverse=True)
    page.keyboard.press("Enter")  # The head keeps the focus.
    assert head.get_attribute("aria-sort") == "ascending"
    assert references() == sorted(references())
    page.keyboard.press("Enter")

    shown = page.rows("files").count()
    page.locator("#files .foot button").click()
    assert page.rows("files").count() > shown
    page.locator("#files input").fill("part-7")
    found = page.locator("#files tbody td:first-child").all_inner_texts()
    assert found and all("part-7" in name for name in found), found
    assert "files of" in page.text("#files .found")
    page.locator("#files input").fill("nothing is called that")
    assert page.rows("files").count() == 0
    page.locator("#files input").fill("")


def picture(page):
    """Zoom by buttons, keys, wheel and dragging; highlighting from the table, the legend and the picture."""
    plane = page.locator(".plane canvas")
    plane.scroll_into_view_if_needed()
    whole, first = page.view(), page.ink()
    width = lambda: page.view()[1] - page.view()[0]

    page.get_by_role("button", name="Zoom in").click()
    page.settled()
    assert width() < whole[1] and page.ink() != first
    page.get_by_role("button", name="Zoom out").click()
    page.get_by_role("button", name="Show all").click()
    page.settled()
    assert page.view() == whole

    plane.focus()
    for key in ["+", "ArrowLeft", "ArrowDown"]:
        before = page.view()
        page.keyboard.press(key)
        page.settled()
        assert page.view() != before, key
    page.keyboard.press("0")
    page.settled()
    assert page.view() == whole and page.ink() == first

    box = plane.bounding_box()
    at = lambda x, y: (box["x"] + 74 + x * (box["width"] - 88), box["y"] + 10 + y * (box["height"] - 50))
    page.mouse.move(*at(0.25, 0.25))
    page.mouse.down()
    page.mouse.move(*at(0.5, 0.75), steps=4)
    page.mouse.up()
    page.settled()
    enlarged = page.view()
    assert abs(enlarged[0] - whole[1] / 4) < whole[1] / 50 and abs(enlarged[1] - whole[1] / 2) < whole[1] / 50, enlarged
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.settled()
    assert width() < enlarged[1] - enlarged[0]
    page.mouse.dblclick(*at(0.5, 0.5))
    page.settled()
    assert page.view() == whole

    # From the table to the picture, by mouse and by key.
    selected = lambda: page.locator("#picture .body").get_attribute("data-selected")
    if selected():
        page.keyboard.press("Escape")
    first = page.ink()
    row = page.rows("sites").nth(1)
    row.click()
    assert row.get_attribute("aria-selected") == "true" and selected()
    assert page.ink() != first
    assert "highlighted" in page.text("#picture-status")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.rows("sites").nth(0).get_attribute("aria-selected") == "true"
    assert row.get_attribute("aria-selected") == "false"
    page.keyboard.press("Space")
    assert selected() == "" and page.ink() == first
    # From the legend to the table.
    chip = page.locator("#picture .legend button").first
    chip.click()
    assert page.locator("#sites tr[aria-selected=true]").count() == 1
    plane.focus()
    page.keyboard.press("Escape")
    assert page.locator("#sites tr[aria-selected=true]").count() == 0
    # A click in the picture takes the call site under it: somewhere on the first scan's line there is one.
    page.settled()
    for step in range(200):
        page.mouse.move(*at(0.15, 1 - step / 200))
        if page.locator("#tip").is_visible():
            assert "reference" in page.text("#tip")
            page.mouse.click(*at(0.15, 1 - step / 200))
            break
    assert page.locator("#sites tr[aria-selected=true]").count() == 1
    page.keyboard.press("Escape")

    # By class.
    page.locator("#picture [data-mode=class]").click()
    by_class = page.ink()
    assert by_class != first
    page.locator("#picture .legend [data-class=looping]").click()
    assert page.ink() != by_class and "looping" in page.text("#picture-status")
    page.locator("#picture [data-mode=site]").click()
    assert page.ink() == first
    # A file's blocks.
    page.rows("files").nth(0).click()
    page.settled()
    assert page.view()[3] - page.view()[2] < whole[3] or whole[3] < 20
    page.rows("files").nth(0).click()
    page.settled()
    assert page.view() == whole


def charts(page):
    plot = page.locator("#ratios .u-over")
    image = lambda: page.evaluate("() => document.querySelector('#ratios canvas').toDataURL()")
    first = image()
    lru = page.locator("#ratios .legend button", has_text="lru")
    lru.click()
    page.settled()
    assert lru.get_attribute("aria-pressed") == "false" and image() != first
    lru.click()
    page.settled()
    assert image() == first
    page.locator("#ratios .scale").click()
    page.settled()
    assert image() != first
    plot.hover(position={"x": 400, "y": 150})
    assert "cache of" in page.text("#tip") and "lru" in page.text("#tip")
    assert page.locator(".chart[role=img]").count() == page.locator(".chart[aria-label]").count() >= 3


def theme(page):
    ground = lambda: page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    before, was = ground(), page.locator("html").get_attribute("data-theme")
    page.locator("#theme").click()
    assert ground() != before and page.locator("html").get_attribute("data-theme") != was
    page.locator("#theme").click()
    assert ground() == before


def safety(page):
    """Names are text, and had one become markup, nothing would run and nothing be fetched."""
    assert "owned" not in page.title()
    assert page.locator("img").count() == 0
    names = page.locator("#files tbody td:first-child").all_inner_texts()
    assert any("<img src=x onerror=" in name and "</script>" not in name or "<script>" in name for name in names), names
    # What the test itself does to try the policy is said on the console.
    refused = page.evaluate("""async () => {
        const violations = [];
        document.addEventListener('securitypolicyviolation', (event) => violations.push(event.effectiveDirective));
        const script = document.createElement('script');
        script.textContent = "document.title = 'owned'";
        document.body.append(script);
        const image = document.createElement('div');
        image.innerHTML = '<img src="http://127.0.0.1:9/x" onerror="document.title=1">';
        document.body.append(image);
        const fetched = await fetch('http://127.0.0.1:9/').then(() => true, () => false);
        await new Promise((done) => setTimeout(done, 50));
        image.remove();
        return [fetched, violations.sort()];
    }""")
    assert refused[0] is False
    for directive in ["connect-src", "img-src", "script-src-elem"]:
        assert directive in refused[1], refused
    assert "owned" not in page.title()
    page.said.clear()
    page.asked.clear()


def narrow(page):
    """Nothing sticks out to the side of a phone; tables scroll within themselves."""
    page.settled()
    wide = page.evaluate("""() => document.documentElement.scrollWidth <= innerWidth ? [] : [...document.querySelectorAll('body *')]
        .filter((element) => element.getBoundingClientRect().right > innerWidth + 1 && !element.closest('.scroll, nav'))
        .map((element) => `${element.tagName}.${element.className}`)""")
    assert wide == [], wide


def keyboard(page):
    """The first things that Tab comes to: the way past the head, the sections, the theme."""
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("() => document.activeElement.id || document.activeElement.tagName"))
    assert {"theme", "A", "CANVAS"} <= seen, seen


def compared(page):
    assert page.locator("#comparison").is_visible()
    assert "fewer references than A" in page.text("#comparison .headline")
    title = page.title()
    page.get_by_role("button", name="Run B").click()
    page.wait_for_function("before => document.title !== before", arg=title)
    page.wait_for_selector("#sites tbody tr")
    assert "of B" in page.evaluate("() => getComputedStyle(document.querySelector('#verdict h2'), '::after').content")
    page.get_by_role("button", name="Run A").click()
    page.wait_for_function("before => document.title === before", arg=title)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("hither")
    parser.add_argument("--shots", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        lab = Lab(asked.hither, Path(folder))
        parts = lab.folder / "parts"
        parts.mkdir()
        for number in range(80):
            (parts / f"part-{number}").write_bytes(f"{number:015}\n".encode() * 2000)
        (parts / EVIL.replace("/", "\u2215")).write_text("0\n" * 90_000)
        scan = "for i in 1 2 3; do cat parts/* >copy; done; sort parts/part-1* >copy; grep -c 7 parts/* >copy"
        lab.record("a.hither", "sh", "-c", scan)
        lab.record("b.hither", "sh", "-c", "cat parts/* >copy; cat parts/* >copy")
        lab.run("record", "-q", "-o", "empty.hither", "--", "true")
        lab.run("gen", "-q", "cfd{points=12}", "-o", "memory.hither")
        pages = {
            "one": lab.page("one.html", "a.hither"),
            "two": lab.page("two.html", "a.hither", "b.hither"),
            "empty": lab.page("empty.html", "empty.hither"),
            "memory": lab.page("memory.html", "memory.hither", "--nodes", "4"),
        }
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        open_page = lambda name, **options: Page(browser, pages[name], **{"viewport": {"width": 1280, "height": 900}, **options})

        page = open_page("one")
        print(f"one.html: ready after {page.loaded_s:.2f} s")
        keyboard(page)
        numbers(lab, page, "a.hither")
        tables(page)
        picture(page)
        charts(page)
        theme(page)
        page.quiet()
        assert page.page.pdf(prefer_css_page_size=True).startswith(b"%PDF")
        page.quiet()
        safety(page)

        page = open_page("two")
        compared(page)
        page.quiet()

        page = open_page("memory")
        assert page.locator("#nodes").is_visible() and page.locator("#nodes img").count() == 3
        placements = lab.json("sim", "memory.hither", "--nodes", "4")["results"]
        assert page.locator("#nodes tbody tr").count() == len(placements)
        assert page.cells("nodes", 0)[2] == percent(placements[0]["local_hit_ratio"])
        assert all(page.locator("#nodes img").evaluate_all("(images) => images.map((image) => image.naturalWidth > 0)"))
        page.quiet()

        page = open_page("empty")
        assert "nothing to cache" in page.text("#verdict .headline")
        page.quiet()

        for name in pages:
            for kind, options in {
                "light": {"color_scheme": "light"},
                "dark": {"color_scheme": "dark"},
                "phone": {"viewport": {"width": 375, "height": 812}, "device_scale_factor": 2, "has_touch": True},
            }.items():
                page = open_page(name, **options)
                assert page.locator("html").get_attribute("data-theme") == ("dark" if kind == "dark" else "light")
                if kind == "phone":
                    narrow(page)
                page.quiet()
                if asked.shots:
                    asked.shots.mkdir(parents=True, exist_ok=True)
                    page.screenshot(path=asked.shots / f"{name}-{kind}.png", full_page=True)
                    if kind == "light":
                        page.page.pdf(path=asked.shots / f"{name}.pdf", prefer_css_page_size=True)
                page.context.close()
        browser.close()
    print("the page does what it says")


main()
