"""The pictures of README.md and docs/, each for a light and a dark page. It measures nothing.

`python -m bench.illustrations` writes them. The palette is in canvas.py, and each picture is a function of
scenes.py, figures.py or recording.py.
"""
