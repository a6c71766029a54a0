"""The program that keeps records by the event handlers of the Python client's informer: `python -m
bench.contenders.informer_records`.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from bench.contenders.informer import answer_from, make_informer
from bench.contenders.results import former_records, write_departure, write_entry


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    informer, former = make_informer(), former_records()

    def enter(pod: Any) -> None:
        """Write the record. The first pod is added after all of the list are in the cache: then those that
        have departed before the start are known.
        """
        for uid in former - {each.metadata.uid for each in informer.cache.list()}:
            write_departure(uid)
        former.clear()
        write_entry(pod.metadata.uid)

    informer.add_event_handler("ADDED", enter)
    informer.add_event_handler("MODIFIED", enter)
    informer.add_event_handler("DELETED", lambda pod: write_departure(pod.metadata.uid))
    answer_from(informer)
    informer.start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
