from transcendent._utils.text import columns, visible


def test_nothing_steers_the_terminal():
    hostile = "a\x1b[2Jb\n\x9bc…\u202e\r"
    assert visible(hostile) == "a\\x1b[2Jb\\n\\x9bc…\\u202e\\r"
    assert visible(hostile, keep="\n") == "a\\x1b[2Jb\n\\x9bc…\\u202e\\r"


def test_a_cell_cannot_forge_a_row():
    assert columns([["class", "objects"], ["a\nfake", "1"]]) == "class    objects\na\\nfake        1"
