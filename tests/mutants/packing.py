"""Seeded bugs in the packing of objects."""

from __future__ import annotations

from .mutant import Mutant

RECORD, PACKED_RECORDS = "core/store/record.py", "core/store/packing.py"
PACKED, SHARED = "tests/core/store/test_siblings.py::test_7_", "tests/informer/test_packing.py::test_7_"
STILL = "tests/informer/test_packing.py::test_"

PACKING: tuple[Mutant, ...] = (
    Mutant(
        "take equal bytes of two groups for the same object",
        RECORD,
        "(self.stored == other.stored and (self.packing is other.packing or not self.stored))",
        "self.stored == other.stored",
        7,
        (PACKED + "equal_bytes_of_two_groups_are_different_objects",),
    ),
    Mutant(
        "exchange the bytes of an object before its packing",
        RECORD,
        "        self.packing = packing\n        self.stored = stored\n",
        "        self.stored = stored\n        self.packing = packing\n",
        7,
        (PACKED + "an_object_is_read_as_it_is_in_the_midst_of_its_packing",),
    ),
    Mutant(
        "read the packing of an object before its bytes",
        RECORD,
        "see `replace`.\n        return stored if self.packing is None else self.packing.unpack(stored)",
        "\n        return self.stored if self.packing is None else self.packing.unpack(self.stored)",
        7,
        (PACKED + "an_object_is_read_as_it_is_if_it_is_packed_in_the_midst_of_the_read",),
    ),
    Mutant(
        "let a template follow the changes of its object",
        PACKED_RECORDS,
        "                _exchange(record, packed, template, tally)\n",
        "                _exchange(record, packed, template, tally); template.stored = self.pack(data)\n",
        7,
        (PACKED + "a_change_of_the_object_of_a_template_leaves_its_siblings",),
    ),
    Mutant(
        "pack an object against the template of another group",
        PACKED_RECORDS,
        "        compressor = self._compressors.get(template)\n",
        "        compressor = next(iter(self._compressors.values()), None)\n",
        7,
        (PACKED + "groups_that_resemble_each_other_stay_apart",),
    ),
    Mutant(
        "keep templates without records",
        PACKED_RECORDS,
        "self._templates: WeakValueDictionary[str, Template] = WeakValueDictionary()",
        "self._templates: dict[str, Template] = {}",
        7,
        (PACKED + "a_template_exists_as_long_as_its_records",),
    ),
    Mutant(
        "end the packing of a cache by a mistake in it",
        "informer/environment.py",
        "            await environment.rest()\n",
        "            return\n",
        8,
        (
            "tests/informer/test_informers_failures.py::test_a_mistake_in_packing_is_logged_and_packing_goes_on",
        ),
    ),
    Mutant(
        "pack a replayed object instead of the newer one",
        "informer/background.py",
        "        if held is not None and not is_newer(record.version, held.version):\n",
        "        if False:\n",
        8,
        (STILL + "a_replayed_event_does_not_keep_the_newer_object_from_being_packed",),
    ),
    Mutant(
        "share the stored bytes of another object",
        "informer/background.py",
        " or not held.is_same(record):",
        ":",
        7,
        (
            SHARED + "an_object_of_another_uid_is_not_taken_for_the_stored_one",
            SHARED + "an_object_of_another_version_is_not_taken_for_the_stored_one",
        ),
    ),
    Mutant(
        "return the object of a former record that had the same identity",
        "core/store/record.py",
        "self.record = record  #",
        "self.record = None  #",
        7,
        ("tests/core/store/test_often_read.py::test_7_the_object_of_one_record_is_never_that_of_another",),
    ),
)
