"""The pages of two programs and of many in a browser: numbers, selection, links, search and order."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browsing import settle
from conftest import DUMPS
from pairs import Pair, stored

import xlamem
from xlamem.compare.difference import Diff, diff
from xlamem.compare.verdict import signed
from xlamem.formatting import size
from xlamem.page.writing import report

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytest_plugins = "chromium"

Show = Callable[..., "Page"]
MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def pair() -> Pair:
    return next(p for p in stored() if p.name == "v5e-layer-added-sgd")


@pytest.fixture(scope="module")
def difference(pair: Pair) -> Diff:
    return diff(*pair.sides())


@pytest.fixture(scope="module")
def compared(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report(*pair.sides()).save(tmp_path_factory.mktemp("pair") / "report.html")


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report(DUMPS, capacity="1MiB").save(tmp_path_factory.mktemp("dumps") / "report.html")


def texts(found: Locator) -> list[str]:
    return [text.strip() for text in found.all_inner_texts()]


def python_sign(text: str) -> str:
    return text.replace(MINUS, "-")


def choose(page: Page, group: str, name: str) -> None:
    page.locator("#changes").get_by_role("group", name=group).get_by_role("button", name=name).click()


# -- two programs --------------------------------------------------------------------------------


def test_a_comparison_states_what_changed(show: Show, compared: Path, difference: Diff) -> None:
    page, d = show(compared), difference
    assert page.locator("#difference .headline").inner_text() == d.verdict
    figures = [python_sign(text) for text in texts(page.locator("#difference .figure"))]
    assert figures == [signed(d.device_total_change), signed(d.peak_change)]
    assert [d.device_total_change > 0, d.peak_change > 0] == page.locator("#difference .figure").evaluate_all(
        "figures => figures.map(figure => figure.classList.contains('up'))")  # fmt: skip
    assert page.locator("#changes [aria-pressed=true]").all_inner_texts() == ["Device memory", "Must fit"]
    amounts = page.locator("#edits .number").evaluate_all("all => all.map(it => [it.innerText, it.className])")
    assert any(text for text, _ in amounts)
    assert all((text[:1] == "+", text[:1] == MINUS) == ("up" in kind, "down" in kind) for text, kind in amounts)
    edits = texts(page.locator("#edits .edit-words"))
    assert edits[0].startswith(d.verdict.split(": ", 1)[1].split(" (")[0])
    shown = [text for text in d.edits["text"].to_pylist() if any(edit.startswith(text) for edit in edits)]
    assert len(shown) == len(edits)  # as in the verdict: names keep their case


def test_a_comparison_without_peaks(show: Show, tmp_path: Path) -> None:
    """One side has no live ranges: nothing is stated of what is in use."""
    a, b = DUMPS / "cpu-jaxlib-0.9.1-mlp_grad", tmp_path / "b"
    shutil.copytree(DUMPS / "cpu-jaxlib-0.12.0-multiheap", b, ignore=shutil.ignore_patterns("*-live-range.txt"))
    page = show(report(a, b).save(tmp_path / "report.html"))
    assert len(texts(page.locator("#difference .figure"))) == 1
    choose(page, "Number", "By buffer")
    settle(page)
    total = diff(a, b).accounts.to_pylist()[0]
    numbers = texts(page.locator(".waterfall tbody td.number"))
    assert (numbers[0], numbers[-1]) == (size(total["reserved_a"]), size(total["reserved_b"]))
    assert "in use" not in page.locator("#difference").inner_text().lower()
    assert "in use" not in page.locator("#changes").inner_text().lower()


@pytest.mark.parametrize("number", ["Must fit", "In use at the peak"])
def test_the_rows_of_a_waterfall_are_those_of_the_difference(
    show: Show, compared: Path, difference: Diff, number: str
) -> None:
    page, d = show(compared), difference
    choose(page, "Number", number)
    rows = [python_sign(text) for text in texts(page.locator(".waterfall tbody td.number"))]
    total = d.accounts.to_pylist()[0]
    kind = "reserved" if number == "Must fit" else "peak"
    assert (rows[0], rows[-1]) == (size(total[f"{kind}_a"]), size(total[f"{kind}_b"]))
    exact = page.locator(".waterfall tbody td.number").evaluate_all("cells => cells.map(c => c.title)")
    n_bytes = [int(re.search(r"([\d,]+) bytes", text)[1].replace(",", "")) for text in exact]  # type: ignore[index]
    changes = [-n if text.startswith("-") else n for n, text in zip(n_bytes, exact, strict=True)]
    assert changes[0] + sum(changes[1:-1]) == changes[-1]


def test_memory_spaces_can_be_chosen(show: Show, compared: Path, difference: Diff) -> None:
    page, d = show(compared), difference
    choose(page, "Memory space", "vmem")
    (row,) = [row for row in d.accounts.to_pylist() if row["account"] == "vmem"]
    choose(page, "Number", "In use at the peak")
    assert texts(page.locator(".waterfall .total td.number")) == [size(row["peak_a"]), size(row["peak_b"])]


def test_a_row_makes_its_buffers_stand_out(show: Show, compared: Path) -> None:
    page = show(compared)
    assert "no buffer" not in page.locator("#maps h3").nth(1).inner_text()
    choose(page, "Number", "In use at the peak")
    row = page.locator("button.row-label").first
    row.click()
    page.locator("#maps .status", has_text="[*]").wait_for()
    assert row.get_attribute("aria-pressed") == "true"
    settle(page)  # the two sides are drawn one after the other
    page.locator("#maps h3").nth(0).filter(has_text="no buffer of this change").wait_for()
    page.locator("#maps h3").nth(1).filter(has_text="1 buffer of this change").wait_for()
    settle(page)
    page.get_by_role("button", name="Show new and gone buffers").click()
    page.locator("#maps .status", has_text="other side").wait_for()


def test_selecting_a_buffer_selects_its_partner(show: Show, compared: Path) -> None:
    page = show(compared)
    details = page.locator("#maps .two-columns").nth(1)
    details.get_by_role("button").first.click()  # the largest at the peak of A
    details.locator("h3", has_text="the same buffer").wait_for()
    settle(page)  # the two sides are drawn one after the other
    names = details.locator(".name").all_inner_texts()
    assert names.count("params__embedding__.1") >= 2


def test_the_cursor_of_both_timelines_moves_together(show: Show, compared: Path, difference: Diff) -> None:
    page, d = show(compared), difference
    total = d.accounts.to_pylist()[0]
    words = page.locator(".aligned-side .status")
    page.get_by_role("button", name="Peak of B").click()
    assert f"step {total['peak_step_b']:,}: {size(total['peak_b'])} in use" in words.nth(1).inner_text()
    page.get_by_role("button", name="Peak of A").click()
    assert f"step {total['peak_step_a']:,}: {size(total['peak_a'])} in use" in words.nth(0).inner_text()
    before = texts(words)
    page.locator(".aligned-area").focus()
    page.keyboard.press("Shift+ArrowRight")
    assert all(new != old for new, old in zip(texts(words), before, strict=True))


def test_both_programs_can_be_opened(show: Show, compared: Path) -> None:
    page = show(compared)
    assert "627 steps" in page.locator(".program-header").inner_text()
    page.get_by_role("button", name="Open A").click()
    page.locator(".program-header", has_text="372 steps").wait_for()
    page.wait_for_url("**#program=0*")


def test_equal_programs_have_no_waterfall(show: Show, tmp_path: Path, pair: Pair) -> None:
    a, _ = pair.sides()
    page = show(report(a, a).save(tmp_path / "same.html"))
    assert "Nothing changed" in page.locator("#difference .headline").inner_text()
    assert page.locator("#changes").count() == 0


# -- many programs -------------------------------------------------------------------------------


def names(page: Page) -> list[str]:
    return texts(page.locator("#directory tbody .row-title"))


def test_a_directory_lists_its_programs(show: Show, listed: Path) -> None:
    page = show(listed)
    dumps = xlamem.find(DUMPS)
    assert page.locator("#directory tbody tr").count() == len(dumps)
    assert texts(page.locator("#directory tbody tr").first.locator("td.number"))[-1] == "200.05 MiB"
    states = texts(page.locator("#directory .state"))
    assert {re.sub(r'^\W+', '', text) for text in states} == {"fits", "does not fit", "not known"}
    assert f"{len(dumps)} programs" in page.locator("#directory .headline").inner_text()


def test_programs_are_searched_and_ordered(show: Show, listed: Path) -> None:
    page = show(listed)
    page.get_by_role("searchbox", name="Search programs").fill("donate_adam")
    assert set(names(page)) == {"jit_m_donate_adam"}
    assert "of 39" in page.locator("#directory .status").inner_text()
    page.get_by_role("searchbox", name="Search programs").fill("")
    page.locator("#directory").get_by_role("button", name="Program").click()
    ordered = [name.split()[0].lower() for name in names(page)]
    assert ordered == sorted(ordered)
    assert page.locator("#directory [aria-sort=ascending]").inner_text().startswith("Program")


def test_a_program_is_opened_and_left(show: Show, listed: Path) -> None:
    page = show(listed)
    first = names(page)[1]
    page.locator("#directory tbody a").nth(1).click()
    page.wait_for_selector(".program-header")
    settle(page)
    assert page.locator(".program-header h2").inner_text() == first
    assert page.locator("#directory").is_hidden()
    page.go_back()
    page.wait_for_selector("#directory", state="visible")
    assert page.locator(".program-header").count() == 0
    page.go_forward()
    page.wait_for_selector(".program-header")
    page.get_by_role("link", name="All programs").click()
    page.wait_for_selector("#directory", state="visible")


def test_an_address_leads_to_a_program(show: Show, listed: Path) -> None:
    page = show(listed, "program=2")
    page.wait_for_selector(".program-header")
    assert page.locator("#directory").is_hidden()


def test_a_folder_has_the_pages_of_its_programs(show: Show, tmp_path: Path) -> None:
    index = report(DUMPS, max_bytes=200_000, max_programs=2).save(tmp_path / "report.html")
    assert index.name == "index.html"
    page = show(index)
    assert page.locator("#directory tbody a").count() == 2
    assert "largest 2 of" in page.locator("#directory").inner_text()
    page.locator("#directory tbody a").first.click()
    page.wait_for_url("**/programs/001-*.html")
    page.wait_for_selector("#verdict")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("which", ["compared", "listed"])
def test_nothing_is_wider_than_the_window(
    show: Show, request: pytest.FixtureRequest, width: int, which: str
) -> None:
    page = show(request.getfixturevalue(which), width=width)
    scrolled: Any = page.evaluate("document.querySelector('.overview').scrollWidth")
    assert scrolled <= width
