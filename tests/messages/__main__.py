"""`python -m tests.messages` writes the table of messages anew."""

from __future__ import annotations

from tests.messages.every import PROVOKED
from tests.messages.provoked import TABLE

if __name__ == "__main__":
    TABLE.write_text(PROVOKED.write())
