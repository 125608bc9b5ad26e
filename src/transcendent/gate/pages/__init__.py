"""Pages of the gate for people: the desk of analysts and the wall."""
