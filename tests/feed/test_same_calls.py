"""An operator with one watch calls Kopf's handlers as with two: the same calls in the same order, the same
patches, and the same objects at the end.
"""

from __future__ import annotations

from collections.abc import Callable

from .comparing import NO_MANAGED_FIELDS, require_same
from .recording import Wire
from .running import ONE, TWO, Mode, Operated, Options, World
from .scripts import lives


def play(world: World, mode: Mode, wire: Wire, options: Options | None = None) -> Operated:
    run = Operated(world, mode, wire, options or Options())
    lives(run)
    return run


def test_all_kinds_of_handlers_are_called_as_with_two_watches(
    new_world: Callable[..., World], wire: Wire, server: str
) -> None:
    two, one = (play(new_world(), mode, wire) for mode in (TWO, ONE))
    require_same(two.recorder, one.recorder, NO_MANAGED_FIELDS)
    assert two.kopfs_own_watches
    assert not one.kopfs_own_watches
    # The embedded server has none of objects that nobody has applied.
    assert two.recorder.has_managed_fields is (server == "real")
    assert not one.recorder.has_managed_fields
