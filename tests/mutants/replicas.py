"""Seeded bugs of the commands that show replicas."""

from __future__ import annotations

from .mutant import Mutant

FLEET, SHOWN = "cli/shards.py", "tests/cli/test_shards.py::"

REPLICAS: tuple[Mutant, ...] = (
    Mutant(
        "show a replica that has stopped as alive",
        FLEET,
        "    if age is None or age >= timing.lease - timing.margin:\n",
        "    if age is None or age >= 10 * timing.lease:\n",
        21,
        (SHOWN + "test_a_late_replica_handles_nothing_and_its_namespaces_are_named",),
    ),
    Mutant(
        "take any process of the name for the owner of a range",
        FLEET,
        "            ranges = tuple(owned.pop(holder, ()))\n",
        "            ranges = tuple(owned.pop(holder, owned.pop(f'{lease.name}/aa-1', ())))\n",
        21,
        (SHOWN + "test_ranges_of_an_identity_that_has_no_lease_are_unowned",),
    ),
    Mutant(
        "show an edited assignment as if it could be used",
        FLEET,
        "    trouble = read.broken or (",
        "    trouble = (",
        21,
        (SHOWN + "test_an_assignment_that_cannot_be_used_says_why",),
    ),
    Mutant(
        "leave the permissions of replicas out",
        "cli/_rights.py",
        "        rights += self.of_sharding()\n",
        "",
        21,
        (SHOWN + "test_rbac_has_a_role_in_the_namespace_of_the_replicas",),
    ),
)
