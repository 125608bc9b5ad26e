"""The log: one JSON object per line, which may be read in a terminal."""

import json

from transcendent.gate.logs import _dump


def test_what_strangers_send_controls_no_terminal():
    entry = {"path": "/\x9b31mred\u202egnp", "exception": "Traceback\n  \x1b[2J", "status": 404}
    line = _dump(entry).decode()
    assert line.isprintable()
    assert json.loads(line) == {
        "path": "/\\x9b31mred\\u202egnp",
        "exception": "Traceback\n  \\x1b[2J",
        "status": 404,
    }
