"""The pictures of README.md and docs/, each for a light and a dark page.

`python -m tests.docs.pictures` writes them. The palette is in picture.py, and each picture is a function of
scenes.py, figures.py or recording.py.
"""
