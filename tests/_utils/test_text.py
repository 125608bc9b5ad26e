from transcendent._utils.text import counted, visible


def test_nothing_steers_the_terminal():
    hostile = "a\x1b[2Jb\n\x9bc…\u202e\r"
    assert visible(hostile) == "a\\x1b[2Jb\\n\\x9bc…\\u202e\\r"
    assert visible(hostile, keep="\n") == "a\\x1b[2Jb\n\\x9bc…\\u202e\\r"


def test_a_number_with_its_noun():
    assert [counted(1, "class"), counted(2, "class"), counted(1200, "month")] == [
        "1 class",
        "2 classes",
        "1,200 months",
    ]
