"""Listings fit into a terminal, and no cell is read as markup."""

import re

import pytest

from transcendent._utils.listing import Listing, figure, latex

GROUPED = Listing(
    head=["name", "all", "kept", "AURC"],
    rows=[["first", "0.1", "0.25", "0.0123"], ["second", "1", "2", "3"]],
    groups=[("error of", 2), ("", 1)],
)


def test_headings_of_groups_are_over_their_columns():
    assert GROUPED.as_text().splitlines() == [
        "         error of",
        "name    all  kept    AURC",
        "first   0.1  0.25  0.0123",
        "second    1     2       3",
    ]
    wider = Listing(["name", "a", "b"], [["x", "1", "2"]], [("a long heading", 1), ("too", 1)])
    assert wider.as_text().splitlines() == [
        "      a long heading  too",
        "name               a    b",
        "x                  1    2",
    ]


@pytest.mark.parametrize("name", ["x" * 400, "some words " * 40, "\x1b[31m" * 60, ""])
def test_a_long_name_is_wrapped_within_the_width(name):
    table = Listing(["name", *["figure"] * 10], [[name, *["0.0123"] * 10], ["other", *["1"] * 10]])
    lines = table.as_text().splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) <= 6
    assert "\x1b" not in table.as_text()
    narrow = Listing(["name", "figure"], [[name, "0.0123"]]).as_text().splitlines()
    assert max(map(len, narrow)) <= 100


def test_a_cell_cannot_forge_a_row():
    table = Listing(["class", "objects"], [["a\nfake", "1"]])
    assert table.as_text() == "class    objects\na\\nfake        1"


def test_latex_has_rules_groups_and_as_many_cells_as_columns():
    lines = GROUPED.as_latex().splitlines()
    assert lines[:2] == [r"\begin{tabular}{lrrr}", r"\toprule"]
    assert lines[2] == r"& \multicolumn{2}{c}{error of} & \multicolumn{1}{c}{} \\"
    assert lines[3] == r"\cmidrule(lr){2-3}"
    assert lines[5] == r"\midrule"
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    assert {line.count("&") for line in lines if "&" in line and "multicolumn" not in line} == {3}


def test_a_name_is_not_read_as_an_argument_of_the_row_before_it():
    lines = Listing(["rejector", "F1"], [["[ICE]", "1"], ["*star", "2"]]).as_latex().splitlines()
    assert lines[4:6] == [r"{}[ICE] & 1 \\", r"{}*star & 2 \\"]


def test_special_characters_of_latex_are_escaped():
    assert latex(r"a_b & 5% #1 {$x$} ~^\ <c>" + "\n0.1 ± –") == (
        r"a\_b \& 5\% \#1 \{\$x\$\} \textasciitilde{}\textasciicircum{}\textbackslash{}"
        r" \textless{}c\textgreater{} 0.1 $\pm$ --"
    )


def test_cells_headings_and_notes_are_escaped_in_html():
    hostile = "<script>&'\""
    page = Listing([hostile] * 2, [[hostile] * 2], [(hostile, 1)]).as_html(hostile, [hostile])
    assert "<script" not in page
    assert page.count("&lt;script&gt;&amp;&#x27;&quot;") == 7
    assert re.findall("<t[rhd]", page) == ["<tr", "<th", "<th", "<tr", "<th", "<th", "<tr", "<th", "<td"]


def test_small_figures_have_one_decimal_more():
    values = (0.12345, 0.012345, -0.012345, float("nan"))
    assert [figure(v) for v in values] == ["0.123", "0.0123", "-0.0123", "–"]


def test_columns_of_text_are_aligned_to_the_left():
    rows = [["a", "active", "12"], ["b", "–", "3"]]
    assert Listing(["name", "state", "gates"], rows, texts=["state"]).as_text().splitlines() == [
        "name  state   gates",
        "a     active     12",
        "b     –           3",
    ]
