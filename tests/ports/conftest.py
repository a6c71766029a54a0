"""Operators of others: one of them needs a client that only `make test-clients` installs."""

from __future__ import annotations

import importlib.util

collect_ignore = [] if importlib.util.find_spec("kubernetes") else ["plain.py"]
