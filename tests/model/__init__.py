"""The model of a group of streams: the rule of the visible record, all that can happen, and what readers may
rely on. `python -m tests.model` explores it."""
