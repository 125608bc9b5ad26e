"""Pages of the gate, for people: sign in, desk, wall."""

__all__: list[str] = []
