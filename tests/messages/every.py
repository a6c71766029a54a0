"""All provoked errors, in the order of the table. Another chapter of messages is one more line here."""

from __future__ import annotations

from tests.messages import (
    changes,
    commands,
    declarations,
    declaring,
    feeding,
    finalizers,
    logs,
    misused,
    probe,
    reads,
    recorders,
    servers,
    states,
    testkit,
    writes,
)
from tests.messages.provoked import Provoked

PROVOKED = Provoked()
reads.provoke(PROVOKED)
misused.provoke(PROVOKED)
states.provoke(PROVOKED)
servers.provoke(PROVOKED)
writes.provoke(PROVOKED)
declarations.provoke(PROVOKED)
declaring.provoke(PROVOKED)
logs.provoke(PROVOKED)
feeding.provoke(PROVOKED)
changes.provoke(PROVOKED)
recorders.provoke(PROVOKED)
probe.provoke(PROVOKED)
commands.provoke(PROVOKED)
testkit.provoke(PROVOKED)
finalizers.provoke(PROVOKED)
