"""`python -m tests.messages` writes the table of messages anew."""

from __future__ import annotations

import logging

from tests.messages.every import PROVOKED
from tests.messages.provoked import TABLE

if __name__ == "__main__":
    logging.getLogger().addHandler(logging.NullHandler())
    before = TABLE.read_text()
    TABLE.write_text(after := PROVOKED.write())
    print(f"{TABLE.name}: {'unchanged' if after == before else 'updated'}")
