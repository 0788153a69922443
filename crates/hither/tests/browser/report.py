"""The report page in a real browser: it loads without a word on the console and without asking for
anything, its numbers are those of the other commands, each control does what it says, and names are
shown as text.

    python crates/hither/tests/browser/report.py target/debug/hither [--shots DIR]

needs the `playwright` and `pyarrow` packages and Debian's chromium; where one is missing it prints
`skipped`. `--shots` keeps a picture of each page in both themes and at a phone's width. Times are
printed and never asserted.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sys.exit(print("skipped: no playwright"))

from lab import EVIL, READER, Lab, Page, count, counted, duration, percent, size

CHROMIUM = shutil.which("chromium")
if not CHROMIUM:
    sys.exit(print("skipped: no chromium"))


def numbers(lab, page, trace):
    """What is on the page, word by word, against what the other commands print."""
    stats = lab.json("stat", trace)["stats"]
    advice = lab.json("advise", "-q", trace)
    total = stats["counts"]["total"]
    figure = lambda name: page.text(f"#verdict [data-figure='{name}']")
    concentrated = lambda of: f"{count(stats[of]['for_90_percent'])} make 90 % of references"
    for name, words in {
        "references": [count(stats["references"])],
        "distinct blocks": [count(stats["blocks"]), size(stats["footprint_bytes"])],
        "requests": [count(total["requests"]), percent(stats["sequential_share"]) + " sequential"],
        "read": [size(total["read_bytes"]), size(total["written_bytes"]) + " written"],
        "files": [count(stats["objects"]), concentrated("object_concentration")],
        "call sites": [count(stats["sites"]), concentrated("site_concentration")],
        "processes": [count(stats["processes"]), counted(stats["threads"], "thread")],
        "recorded for": [duration(stats["counts"]["last_ns"] - stats["counts"]["first_ns"])],
    }.items():
        assert figure(name).split("\n") == words, (name, figure(name), words)
    assert page.locator("#verdict .tile").count() == 8
    assert figure("seen").startswith("Seen: all "), figure("seen")
    # A small program's files fit into the memory of any machine.
    assert page.text("#verdict .headline").startswith("It does not matter here")
    said, sure = advice["advice"]["sentences"], advice["advice"]["confidence"]
    assert page.locator("#verdict .more li").all_inner_texts()[: len(said)] == said
    assert figure("confidence") == sure["level"]
    label = page.locator("#verdict .sureness canvas").get_attribute("aria-label")
    assert label.split(": ")[1].split(", ") == [f"{gain * 100:.1f}" for gain in sure["gains"]], (
        label
    )

    results = advice["results"]
    policies = list(dict.fromkeys(result["policy"] for result in results))
    sizes = len(results) // len(policies)
    assert page.rows("ratios").count() == len(policies)
    for row, policy in enumerate(policies):
        of_policy = results[row * sizes : (row + 1) * sizes]
        assert page.cells("ratios", row) == [
            policy,
            *(percent(result["hit_ratio"]) for result in of_policy),
        ]
        titles = (
            page.rows("ratios")
            .nth(row)
            .locator("td span")
            .evaluate_all("(cells) => cells.map((cell) => cell.title)")
        )
        assert titles == [
            f"{count(result['hits'])} hits, {count(result['misses'])} misses"
            for result in of_policy
        ]

    tallies = {row["number"]: row for row in stats["by_site"]}
    large = [site for site in advice["sites"] if site["share"] >= 0.001]
    assert page.rows("sites").count() == min(20, len(large))
    for row, site in enumerate(large[:20]):
        cells, tally = page.cells("sites", row), tallies[site["site"]]
        assert percent(site["share"]) == cells[1].strip()
        moved = size(tally["read_bytes"] + tally["written_bytes"])
        assert cells[2:6] == [
            count(site["references"]),
            count(site["distinct_blocks"]),
            moved,
            site["class"],
        ], (cells, site)
        assert cells[7] == (count(site["period"]) if site["period"] else "-")
        over_time = (
            page.rows("sites")
            .nth(row)
            .locator("canvas")
            .get_attribute("aria-label")
            .removeprefix("over time: ")
        )
        assert (
            sum(
                int(part.split()[0].replace(",", ""))
                for part in over_time.split(", ")
                if over_time and part[0].isdigit()
            )
            <= site["references"]
        )
    moved = lambda row: sum(row[kind] for kind in ("read_bytes", "written_bytes", "mapped_bytes"))
    all_moved = sum(map(moved, stats["by_object"]))
    large = [
        row
        for row in stats["by_object"]
        if row["share"] >= 0.001 or moved(row) > 0.001 * all_moved
    ]
    assert page.rows("files").count() == min(20, len(large))
    for row, file in enumerate(large[:20]):
        cells = page.cells("files", row)
        assert cells[1].strip() == percent(file["share"])
        moved = [size(file[kind]) for kind in ("read_bytes", "written_bytes", "mapped_bytes")]
        assert cells[2:] == [count(file["references"]), count(file["blocks"]), *moved], (
            cells,
            file,
        )

    shape(page, stats, results)
    processes = lab.json("report", "-q", trace)["runs"][0]["processes"]
    for row, process in enumerate(processes[:12]):
        cells = page.cells("processes", row)
        assert [cells[1].strip(), cells[2]] == [
            percent(process["share"]),
            count(process["references"]),
        ]
        assert process["references"] == sum(
            stats["by_thread"][thread["thread"]] for thread in process["threads"]
        )
        assert cells[5].split("\n")[0] == count(len(process["threads"]))


def shape(page, stats, results):
    """Reuse, concentration and classes, under the pointer where they are charts."""
    part = lambda title: page.locator(
        "#shape .body > div", has=page.get_by_role("heading", name=title, exact=True)
    )
    for title, of in {
        "References by file": "object_concentration",
        "References by call site": "site_concentration",
    }.items():
        few = [count(stats[of][f"for_{share}_percent"]) for share in (50, 90, 99)]
        assert (
            part(title).locator(".note").inner_text()
            == f"Half of the references are of {few[0]}, nine tenths of {few[1]}, "
            f"all but a hundredth of {few[2]}."
        )
    classifying = {result["policy"]: result["classes"] for result in results if result["classes"]}
    words = [
        f"{policy}: "
        + ", ".join(
            f"{count(classes[which])} {which}" for which in ("looping", "sequential", "other")
        )
        for policy, classes in classifying.items()
    ]
    assert part("Classes of references").locator(".note").last.inner_text() == "; ".join(words)
    for row, classes in enumerate(classifying.values()):
        titles = (
            part("Classes of references")
            .locator(".barline")
            .nth(row)
            .locator("div")
            .evaluate_all("(parts) => parts.map((part) => part.title)")
        )
        assert titles == [
            f"{which}: {counted(classes[which], 'reference')}"
            for which in ("looping", "sequential", "other")
        ]

    def tips(title):
        """What the chart says from its left to its right."""
        over = part(title).locator(".u-over")
        over.scroll_into_view_if_needed()
        box, found = over.bounding_box(), []
        for step in range(40):
            page.mouse.move(
                box["x"] + (step + 0.5) * box["width"] / 40, box["y"] + box["height"] / 2
            )
            found.append(page.text("#tip"))
        page.mouse.move(0, 0)
        return list(dict.fromkeys(found))

    below = lambda exponent: (
        f"reuse at a distance below {size(2**exponent * stats['block_bytes'])} "
        f"({counted(2**exponent, 'block')})"
    )
    hits = {below(exponent): hits for exponent, hits in enumerate(stats["reuse"]["buckets"])}
    hits["first uses, which no cache serves"] = stats["reuse"]["cold"]
    label = part("Reuse distance").locator(".chart").get_attribute("aria-label")
    cold = percent(stats["reuse"]["cold"] / stats["references"])
    assert label.endswith(f"; first uses, which no cache serves {cold}"), label
    seen = dict(tip.split("\n") for tip in tips("Reuse distance"))
    assert seen == {
        words: f"{counted(hits[words], 'reference')}, {percent(hits[words] / stats['references'])}"
        for words in hits
    }, seen
    for title, of, noun in [
        ("References by file", "by_object", "file"),
        ("References by call site", "by_site", "call site"),
    ]:
        sums, sum_of = {}, 0
        for number, row in enumerate(stats[of]):
            sum_of += row["references"]
            sums[f"the first {counted(number + 1, noun)}"] = percent(sum_of / stats["references"])
        said = [tip.split("\n") for tip in tips(title)]
        assert len(said) > 3 and all(
            second.endswith(f"{noun}s {sums[first]}") for first, second in said
        ), said


def tables(page):
    """Sorting, filtering, showing more."""
    references = lambda: [
        int(text.replace(",", ""))
        for text in page.locator("#files tbody td:nth-child(3)").all_inner_texts()
    ]
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
    page.locator("#files .foot button:not(.unfold)").click()
    assert page.rows("files").count() > shown
    page.locator("#files input").fill("part-7")
    found = page.locator("#files tbody td:first-child").all_inner_texts()
    assert found and all("part-7" in name for name in found), found
    assert "files of" in page.text("#files .found")
    page.locator("#files input").fill("nothing is called that")
    assert page.rows("files").count() == 0
    page.locator("#files input").fill("")


def picture(page, times):
    """Zoom by buttons, keys, wheel and dragging; highlights from table, legend and picture."""
    whole_time = f"{duration(times[0]['time_ns'])} to {duration(times[-1]['time_ns'])} after"
    assert whole_time in page.text("#picture-status"), page.text("#picture-status")
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
    at = lambda x, y: (
        box["x"] + 74 + x * (box["width"] - 88),
        box["y"] + 46 + y * (box["height"] - 86),
    )
    page.mouse.move(*at(0.25, 0.25))
    page.mouse.down()
    page.mouse.move(*at(0.5, 0.75), steps=4)
    page.mouse.up()
    page.settled()
    enlarged = page.view()
    assert (
        abs(enlarged[0] - whole[1] / 4) < whole[1] / 50
        and abs(enlarged[1] - whole[1] / 2) < whole[1] / 50
    ), enlarged
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
    # A click in the picture takes the call site under it: somewhere on the first scan's line there
    # is one.
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


def frames_of(folded):
    """The frames of a flame graph: depth and path of names, with the sum of their stacks."""
    sums = {}
    for line in folded.decode().splitlines():
        stack, weight = line.rsplit(" ", 1)
        names = ["all", *stack.split(";")]
        for depth in range(len(names)):
            path = tuple(names[: depth + 1])
            sums[path] = sums.get(path, 0) + int(weight)
    return sums


def stacks(page, lab, trace, run):
    """The flame graph against the folded stacks of `stat` and `sim`; the frames of a call site."""
    named = lambda frame: (
        frame.get("function") or f"{frame['module'].split('/')[-1]}+{frame['offset']:#x}"
    )
    boxes = page.locator("#stacks [role=treeitem]")
    shown = lambda: boxes.evaluate_all(
        "(all) => all.map((one) => [Number(one.ariaLevel), one.textContent, one.ariaLabel])"
    )

    def drawn(folded, noun):
        sums = frames_of(folded)
        whole = sums[("all",)]
        assert sorted(shown()) == sorted(
            [
                len(path),
                path[-1],
                f"{path[-1]}: {percent(weight / whole)}, {counted(weight, noun)}"
                + own_words(sums, path),
            ]
            for path, weight in sums.items()
            if weight / whole >= 0.001
        )

    def own_words(sums, path):
        below = sum(
            weight
            for other, weight in sums.items()
            if len(other) == len(path) + 1 and other[: len(path)] == path
        )
        own = sums[path] - below
        return f", {count(own)} of them in no frame below" if 0 < own < sums[path] else ""

    drawn(lab.run("stat", trace, "--folded"), "reference")
    words = page.locator("#stacks .controls button").all_inner_texts()
    caches = run["stacks"]["misses"]
    assert words[1:] == [
        f"misses of {cache['policy']} in {size(cache['cache_blocks'] * 4096)}" for cache in caches
    ]
    assert [cache["policy"] for cache in caches][:1] == ["lru"] and len(caches) == 2
    for number, cache in enumerate(caches):
        page.locator("#stacks .controls button").nth(number + 1).click()
        which = ["-p", cache["policy"], "-s", str(cache["cache_blocks"])]
        drawn(lab.run("sim", "-q", trace, *which, "--folded"), "miss")
    page.locator("#stacks .controls button").first.click()

    # By key: down to the first callee and up again, enlarged and back.
    boxes.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    focused = lambda: page.evaluate("() => document.activeElement.ariaLabel")
    name, wide = focused(), boxes.nth(2).bounding_box()["width"]
    assert name == boxes.nth(2).get_attribute("aria-label") and name in page.text("#stacks .status")
    first = shown()
    page.keyboard.press("Enter")
    assert focused() == name and len(shown()) <= len(first)
    assert boxes.nth(2).bounding_box()["width"] == boxes.first.bounding_box()["width"] >= wide
    page.keyboard.press("Escape")
    assert shown() == first and focused() == boxes.first.get_attribute("aria-label")
    # By mouse, with what the pointer shows.
    boxes.nth(3).hover()
    assert page.text("#tip").startswith(boxes.nth(3).get_attribute("aria-label"))
    boxes.nth(3).click()
    assert boxes.nth(3).bounding_box()["width"] == boxes.first.bounding_box()["width"]
    boxes.first.click()
    assert shown() == first

    # A call site's stack, with file and line, below its row; its frames in the graph.
    page.rows("sites").first.click()
    frames = [run["stacks"]["frames"][at] for at in run["stacks"]["stacks"][0]["frames"]]
    lines = page.locator("#sites .details li").evaluate_all(
        "(all) => all.map((one) => [...one.children].map((part) => part.textContent))"
    )
    place = lambda frame: f"{frame['file']}:{frame['line']} · " if frame.get("file") else ""
    assert lines == [[named(frame), place(frame) + frame["module"]] for frame in frames], lines
    assert [name for name, _ in lines][:4] == ["get", "fill_buffer", "scan_table", "query"], lines
    assert "/reader.c:" in lines[0][1], lines
    marked = page.locator("#stacks .frame.on").all_inner_texts()
    assert marked == ["all", *[named(frame) for frame in reversed(frames)]], marked
    page.keyboard.press("Escape")
    page.rows("sites").first.click()
    assert page.locator("#sites .details").count() == 0
    assert page.locator("#stacks .frame.on").count() == 0


def folding(page, run):
    """Call sites below 0.1 % are folded away until they are asked for or found."""
    shares = [site["share"] for site in run["sites"]]
    large = sum(share >= 0.001 for share in shares)
    assert large < len(shares) and page.rows("sites").count() == min(20, large)
    unfold = page.locator("#sites .unfold")
    assert unfold.inner_text() == f"Show {len(shares) - large} below 0.1 %"
    page.locator("#sites input").fill(run["sites"][-1]["signature"])
    assert page.rows("sites").count() == 1 and unfold.is_hidden()
    page.locator("#sites input").fill("")
    unfold.click()
    assert page.rows("sites").count() == min(len(shares), large + 100) and unfold.is_hidden()


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
    assert (
        page.locator(".chart[role=img]").count() == page.locator(".chart[aria-label]").count() >= 3
    )


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
    assert any(
        "<img src=x onerror=" in name and "</script>" not in name or "<script>" in name
        for name in names
    ), names
    # What the test itself does to try the policy is said on the console.
    refused = page.evaluate("""async () => {
        const violations = [];
        document.addEventListener('securitypolicyviolation',
            (event) => violations.push(event.effectiveDirective));
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


def poisoned(page):
    """Where every name is evil: the tables, the legend and what the pointer shows."""
    for run in ["Run B", "Run A"]:
        page.get_by_role("button", name=run).click()
        page.wait_for_selector("#sites tbody tr")
        page.settled()
        assert page.locator("img").count() == 0
        shown = page.page.locator("body").inner_text()
        assert "onerror=" in shown and "owned'<!--" in shown and "\n'&" not in shown
        for section in ["sites", "files", "processes"]:
            assert "<script>document.title='owned'" in page.text(f"#{section} tbody tr"), section
        assert "onerror=" in page.text("#source .facts")
    page.page.locator("#comparison, #sites").first.scroll_into_view_if_needed()
    page.locator("#picture .legend button").first.click()
    assert "document.title='owned'" in page.text("#picture-status")
    page.rows("files").first.click()
    page.page.locator("summary").evaluate_all("(all) => all.forEach((one) => one.click())")
    page.settled()
    assert page.page.title().startswith("<img") and page.locator("script").count() == 2, (
        page.page.title()
    )


def copying(page, document):
    """The command that applies the advice: in the clipboard, or marked where there is none."""
    command = document["runs"][0]["apply"]
    assert page.text("#verdict .apply code") == command
    page.locator("#verdict .apply button").click()
    page.settled()
    assert (
        page.text("#verdict .apply button") == "Copied"
        or page.evaluate("() => getSelection().toString()") == command
    )


def narrow(page):
    """Nothing sticks out to the side of a phone; tables scroll within themselves."""
    page.settled()
    wide = page.evaluate("""() => document.documentElement.scrollWidth <= innerWidth ? []
        : [...document.querySelectorAll('body *')]
        .filter((element) => element.getBoundingClientRect().right > innerWidth + 1
            && !element.closest('.scroll, nav'))
        .map((element) => `${element.tagName}.${element.className}`)""")
    assert wide == [], wide
    # Words have the whole width; a legend's texts are whole, and no two are the same.
    thin = page.locator("td.words").evaluate_all("""(cells) => cells
        .filter((cell) => cell.offsetWidth > 0 && cell.offsetWidth < innerWidth * 0.75)
        .map((cell) => `${cell.offsetWidth}: ${cell.textContent}`)""")
    assert thin == [], thin
    legends(page)


def legends(page):
    for legend in page.locator(".legend").all():
        texts = legend.locator("button, .key").all_inner_texts()
        assert len(set(texts)) == len(texts), texts
    cut = page.locator(".legend span").evaluate_all(
        "(all) => all.filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth)"
        ".map((one) => one.textContent)"
    )
    assert cut == [], cut


def keyboard(page):
    """The first things that Tab comes to: the way past the head, the sections, the theme."""
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    seen = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("() => document.activeElement.id || document.activeElement.tagName"))
    assert {"theme", "A", "CANVAS"} <= seen, seen


def compared(page, document):
    assert page.locator("#comparison").is_visible()
    comparison = document["comparison"]
    unit = {"count": count, "bytes": size, "share": percent, "ns": duration}
    figures = [
        row.locator("td").all_inner_texts()
        for row in page.locator("#comparison .grid tbody tr").all()
    ]
    expected = [
        [figure["name"], *(unit[figure["unit"]](figure[run]) for run in "ab")]
        for figure in comparison["figures"]
        if figure["a"] or figure["b"]
    ]
    assert [row[:3] for row in figures] == expected, figures
    misses = page.locator("#comparison .block").first.locator("tbody td small").all_inner_texts()
    assert misses == [
        f"{count(cache['a']['misses'])} → {count(cache['b']['misses'])}"
        for cache in comparison["caches"]
    ]
    for table, rows in [(1, comparison["sites"]), (2, comparison["files"])]:
        rows = [pair for pair in rows if max(pair["a"]["share"], pair["b"]["share"]) >= 0.001]
        lines = page.locator("#comparison .block").nth(table).locator("tbody tr")
        assert lines.count() == min(12, len(rows))
        for line, pair in zip(lines.all(), rows):
            cells = line.locator("td").all_inner_texts()
            assert cells[1:5] == [
                count(pair["a"]["references"]),
                count(pair["b"]["references"]),
                percent(pair["a"]["share"]),
                percent(pair["b"]["share"]),
            ], (cells, pair)
    assert "fewer references than A" in page.text("#comparison .headline")
    title = page.title()
    page.get_by_role("button", name="Run B").click()
    page.wait_for_function("before => document.title !== before", arg=title)
    page.wait_for_selector("#sites tbody tr")
    assert "of B" in page.evaluate(
        "() => getComputedStyle(document.querySelector('#verdict h2'), '::after').content"
    )
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
            (parts / f"part-{number}").write_bytes(f"{number:015}\n".encode() * 10_000)
        (parts / EVIL.replace("/", "\u2215")).write_text("0\n" * 90_000)
        scan = (
            "for i in 1 2 3; do cat parts/* >copy; done; "
            "sort parts/part-1* >copy; grep -c 7 parts/* >copy"
        )
        lab.record("a.hither", "sh", "-c", scan)
        lab.record("b.hither", "sh", "-c", "cat parts/* >copy; cat parts/* >copy")
        (lab.folder / "reader.c").write_text(READER)
        subprocess.run(
            ["gcc", "-g", "-O1", "-fno-optimize-sibling-calls", "-o", "reader", "reader.c"],
            cwd=lab.folder,
            check=True,
        )
        (lab.folder / "large").write_bytes(bytes(1 << 24))
        three = "./reader; sort parts/part-1* >copy; grep -c 7 parts/part-7"
        lab.record("c.hither", "sh", "-c", three)
        evil = lab.poisoned("b.hither")
        cramped = lab.cramped("a.hither")
        lab.run("record", "-q", "-o", "empty.hither", "--", "true")
        lab.run("gen", "-q", "cfd{points=12}", "-o", "memory.hither")
        pages = {
            "one": lab.page("one.html", "a.hither"),
            "two": lab.page("two.html", "a.hither", "b.hither"),
            "stacks": lab.page("stacks.html", "c.hither"),
            "evil": lab.page("evil.html", evil, evil),
            "cramped": lab.page("cramped.html", cramped),
            "empty": lab.page("empty.html", "empty.hither"),
            "memory": lab.page("memory.html", "memory.hither", "--nodes", "4"),
        }
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        open_page = lambda name, **options: Page(
            browser, pages[name], **{"viewport": {"width": 1280, "height": 900}, **options}
        )

        page = open_page("one")
        print(f"one.html: ready after {page.loaded_s:.2f} s")
        keyboard(page)
        numbers(lab, page, "a.hither")
        tables(page)
        picture(page, lab.json("report", "-q", "a.hither")["runs"][0]["times"])
        charts(page)
        theme(page)
        assert page.locator("#verdict .apply").count() == 0, "its files fit"
        page.quiet()
        assert page.page.pdf(prefer_css_page_size=True).startswith(b"%PDF")
        page.quiet()
        safety(page)

        page = open_page("cramped")
        copying(page, lab.json("report", "-q", cramped))
        page.quiet()

        page = open_page("stacks")
        run = lab.json("report", "-q", "c.hither")["runs"][0]
        stacks(page, lab, "c.hither", run)
        folding(page, run)
        legends(page)
        page.quiet()

        page = open_page("two")
        compared(page, lab.json("report", "-q", "a.hither", "b.hither"))
        page.quiet()

        page = open_page("evil")
        poisoned(page)
        page.quiet()

        page = open_page("memory")
        placements = lab.json("place", "memory.hither", "--nodes", "4")["results"]
        # There is a picture of moves only where something moved.
        moved = any(placed["migrations"] + placed["replications"] for placed in placements)
        assert page.locator("#nodes").is_visible()
        assert page.locator("#nodes img").count() == 2 + moved
        assert page.locator("#nodes tbody tr").count() == len(placements)
        for row, placed in enumerate(placements):
            times = [duration(placed[name]) for name in ("access_latency_ns", "modelled_time_ns")]
            moves = [count(placed[name]) for name in ("migrations", "replications")]
            expected = [
                placed["placement"],
                placed["nodes"],
                percent(placed["local_hit_ratio"]),
                f"{placed['hops']:.2f}",
                times[0],
                *moves,
                times[1],
            ]
            assert page.cells("nodes", row) == expected, (page.cells("nodes", row), expected)
        assert all(
            page.locator("#nodes img").evaluate_all(
                "(images) => images.map((image) => image.naturalWidth > 0)"
            )
        )
        page.quiet()

        page = open_page("empty")
        assert "referenced no block" in page.text("#verdict .headline")
        page.quiet()

        for name in pages:
            for kind, options in {
                "light": {"color_scheme": "light"},
                "dark": {"color_scheme": "dark"},
                "phone": {
                    "viewport": {"width": 375, "height": 812},
                    "device_scale_factor": 2,
                    "has_touch": True,
                },
            }.items():
                page = open_page(name, **options)
                assert page.locator("html").get_attribute("data-theme") == (
                    "dark" if kind == "dark" else "light"
                )
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
