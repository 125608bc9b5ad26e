"""The documentation as it is built: every public name is described in full; pages work, and fit a screen."""

import codeop
import importlib
import inspect
import json
import re
import runpy
import shutil
import subprocess
import sys
from html import unescape
from inspect import get_annotations
from pathlib import Path
from types import SimpleNamespace, UnionType

import pytest

import transcendent
from tests.gate.pages import people
from tests.watched.sockets import watching

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    str(page.relative_to(ROOT / "docs").with_suffix(".html")) for page in (ROOT / "docs").rglob("*.md")
)
INK = "#7b7f86"  # of text, axes and grids
PUBLIC = ["transcendent", *(f"transcendent.{name}" for name in transcendent._SUBPACKAGES)]
NEVER_CALLED = (
    transcendent.Rejector,
    transcendent.measures.Measure,
    transcendent.thresholds.Search,
    transcendent.monitoring.DriftMonitor,  # but by DriftMonitor.of
    transcendent.monitoring.ObservedDecisions,  # but by DriftMonitor.observe
)
SOUGHT = (
    *("tutorial", "PyTorch", "reject option", "selective classification"),
    *("active learning", "MAPIE", "delay", "cite"),
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocstrings_handlers.python")
    folder = tmp_path_factory.mktemp("site") / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]  # --quiet: never strict
    environment = watching(folder.with_name("sockets.log"))
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_build_opens_no_network_socket(site):
    log = site.with_name("sockets.log")
    assert not log.exists() or "network" not in log.read_text()


@pytest.fixture(scope="module")
def browser():
    if not shutil.which("chromium"):
        pytest.skip("there is no chromium to open the pages in")
    with people.chromium() as browser:
        yield browser


@pytest.fixture
def opened(browser):
    """Open pages from the folder. A request to elsewhere, or what the console says, is a failure."""
    watched = people.Watched()
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    watched.watch(page, "file://")
    yield page
    context.close()
    assert not watched.faults


def text(html):
    return " ".join(unescape(re.sub(r"<[^>]+>", "", html)).replace("¶", "").split())


@pytest.fixture(scope="module")
def entries(site):
    """For each heading its signature, and what each name in its lists of parameters or attributes is."""
    page = (site / "reference/api.html").read_text("utf-8")
    found = {}
    for block in re.split(r'(?=<h\d id="[^"]+" class="doc doc-heading")', page)[1:]:
        heading = text(re.match(r"<h\d.*?</h\d>", block, re.DOTALL)[0])
        signature = re.search(r'<div class="doc-signature.*?</div>', block, re.DOTALL)
        items = map(text, re.findall(r"<li class=\"doc-section-item[^>]+>\s*(<b>.*?)</li>", block, re.DOTALL))
        described = {name: item for item in items for name in item.split(" (")[0].split(", ")}
        found[heading] = (text(signature[0]) if signature else "", described)
    return found


def public_names():
    for module in map(importlib.import_module, PUBLIC):
        own = [name for name, value in vars(module).items() if isinstance(value, type)]
        for name in getattr(module, "__all__", own):
            yield f"{module.__name__}.{name}", getattr(module, name)


def parameters(value):
    """The parameters of a function or class; none of a union, or of an error, which the package raises."""
    is_called = not isinstance(value, UnionType) and value not in NEVER_CALLED
    if not is_called or (isinstance(value, type) and issubclass(value, Exception)):
        return None
    return inspect.signature(value).parameters


def test_every_public_name_has_its_signature_in_the_reference(entries):
    assert not {path for path, _ in public_names()} - set(entries)
    for path, value in public_names():
        if (given := parameters(value)) is not None:
            signature = entries[path][0]
            assert signature.startswith(f"{path.rpartition('.')[2]}("), path
            assert set(given) <= set(re.findall(r"(?<=[(,\s*])\w+", signature)), path


def test_every_parameter_is_described_in_the_reference(entries):
    """Parameters of a result are its attributes, and described as such."""
    undescribed = [
        f"{path}({name})"
        for path, value in public_names()
        for name in parameters(value) or ()
        if not {name, f"*{name}", f"**{name}"} & set(entries[path][1])
    ]
    assert not undescribed


def test_nothing_else_is_described_as_a_parameter(entries):
    """A paragraph below a list of parameters would be."""
    for path, value in public_names():
        known = parameters(value) or ()
        if isinstance(value, type):
            known = {*known, *dir(value), *get_annotations(value)}
        described = {name.lstrip("*") for name in entries[path][1]}
        assert all(name in known or name.endswith("_") for name in described), path


def test_defaults_in_the_reference_match_the_signatures(entries):
    checked = 0
    for path, value in public_names():
        for name, item in entries[path][1].items():
            default = re.search(r", default: (.+?) ?\) –", item)
            if default and default[1] != "MAX_BYTES":
                assert eval(default[1], {}) == parameters(value)[name].default, (path, name)
                checked += 1
    assert checked > 100


def test_choices_keep_their_quotes(entries):
    assert (
        '({"year", "quarter", "month", "week", "day"} or None'
        in entries["transcendent.backtest"][1]["period"]
    )
    assert '({"kept", "rejected"}, default: ' in entries["transcendent.metrics.F1"][1]["of"]


FRAMES = """<!doctype html><body><script>
const names = NAMES, found = {};
for (const name of names) {
  const frame = document.createElement("iframe");
  frame.style = "width: 1280px; height: 900px; border: 0";
  frame.onload = () => {
    const page = frame.contentDocument, right = page.querySelector("article").getBoundingClientRect().right;
    const shown = [...page.querySelectorAll("article :is(pre > code, table, img)")];
    const sticksOut = e => e.scrollWidth > e.clientWidth || e.getBoundingClientRect().right > right + 1;
    found[name] = [shown.length, shown.filter(sticksOut).map(e => e.textContent.slice(0, 80))];
    if (Object.keys(found).length == names.length) document.title = JSON.stringify(found);
  };
  frame.src = name;
  document.body.append(frame);
}
</script>"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium to open the pages in")
def test_code_tables_and_pictures_fit_a_screen_of_1280_pixels(site, tmp_path):
    (site / "frames.html").write_text(FRAMES.replace("NAMES", json.dumps(PAGES)), "utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
    where = [f"--user-data-dir={tmp_path}", "--virtual-time-budget=20000", "--dump-dom"]
    command = ["chromium", *options, *where, (site / "frames.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    title = re.search(r"<title>(.+?)</title>", done.stdout, re.DOTALL)
    found = json.loads(unescape(title[1]))
    assert sum(count for count, _ in found.values()) > 150
    assert not {name: wide for name, (_, wide) in found.items() if wide}


@pytest.mark.slow
def test_pages_request_nothing_from_elsewhere(site, opened):
    for name in PAGES:
        opened.goto((site / name).as_uri())


@pytest.mark.slow
def test_the_search_finds_words_of_other_libraries_and_other_fields(site, opened):
    opened.goto((site / "index.html").as_uri())
    box = opened.locator("[data-md-component=search-query]")
    box.click()
    ready = opened.locator(".md-search-result__meta", has_text="Type to start searching")
    ready.wait_for(state="attached")  # the index is loaded
    for words in SOUGHT:
        box.click()
        box.fill("")
        box.press_sequentially(words)
        first = opened.locator(".md-search-result__item").first
        first.locator("mark").first.wait_for(state="attached")
        marked = " ".join(first.locator("mark").all_text_contents()).lower()
        assert all(word.lower() in marked for word in words.split()), (words, marked)
        box.fill("")
        box.press("Backspace")
        opened.locator(".md-search-result__item").first.wait_for(state="detached")


@pytest.mark.slow
@pytest.mark.parametrize(("page", "words"), [("index", ">>>"), ("learn/tutorials/ten_minutes", "def draw")])
def test_code_is_copied_without_prompts_and_output(site, opened, page, words):
    """An interpreter takes it line by line."""
    (site / "paste.html").write_text('<meta charset="utf-8"><textarea></textarea>', "utf-8")
    opened.goto((site / f"{page}.html").as_uri())
    block = opened.locator(".highlight").filter(has_text=words).first
    shown = block.locator("code").text_content()
    block.hover()
    block.locator("[data-clipboard-target]").click()
    opened.goto((site / "paste.html").as_uri())
    opened.locator("textarea").focus()
    opened.keyboard.press("Control+V")
    copied = opened.locator("textarea").input_value().splitlines()
    prompts = [line for line in shown.splitlines() if line.startswith((">>>", "..."))]
    assert list(filter(None, copied)) == [line[4:] for line in prompts if line[4:]]
    typed = ""
    for line in copied:
        typed = f"{typed}\n{line}" if typed else line
        if codeop.compile_command(typed):
            typed = ""
    assert not typed


def test_tutorials_can_be_downloaded_as_notebooks(site):
    tutorials = [site / name for name in PAGES if name.startswith("learn/tutorials/")]
    assert tutorials
    for page in tutorials:
        (link,) = re.findall(r'<a href="(\S+?\.ipynb)" download', page.read_text("utf-8"))
        assert json.loads(page.with_name(link).read_text("utf-8"))["cells"]


def test_every_page_has_a_card_for_other_sites(site):
    for name in PAGES:
        (card,) = re.findall(r'<meta property="og:image" content="(.+?)">', (site / name).read_text("utf-8"))
        assert ((site / name).parent / card).is_file()


def test_the_source_is_linked_once_it_has_an_address(tmp_path):
    addresses = runpy.run_path(str(ROOT / "docs/addresses.py"))
    declared = (ROOT / "pyproject.toml").read_text("utf-8")
    for address in ("", "https://x.example/s"):
        placed = re.sub('^repository = ".*?"', f'repository = "{address}"', declared, flags=re.MULTILINE)
        (tmp_path / "pyproject.toml").write_text(placed)
        found = addresses["on_config"](SimpleNamespace(config_file_path=tmp_path / "mkdocs.yml"))
        assert (found.repo_url, found.repo_name) == (address or None, "Source")


def test_pictures_have_the_colours_that_the_script_gives_them():
    subprocess.run([sys.executable, ROOT / "benchmarks/pictures.py", "--check"], check=True)


@pytest.mark.parametrize("picture", sorted((ROOT / "docs/images").glob("*.svg")), ids=lambda path: path.stem)
def test_pictures_read_on_light_and_dark_pages(picture):
    svg = picture.read_text("utf-8")
    drawn = re.sub(r"<pattern.*?</pattern>|#000000; stroke-width: 2\"", "", svg, flags=re.DOTALL)
    tones = set(re.findall(r"#[0-9a-f]{6}\b", drawn))
    assert {INK} < tones
    assert all(contrast(tone, "#1e2129") > 3 and contrast(tone, "#ffffff") > 2 for tone in tones), tones


def contrast(one, other):
    """The ratio of luminances that WCAG defines."""
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour):
    shares = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in shares]
    return sum(weight * x for weight, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
