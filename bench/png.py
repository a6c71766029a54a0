"""Draws a picture as PNG, by Pillow, which is imported only where one is wanted. Must say so where there is
no Pillow.
"""

from __future__ import annotations

import importlib.util
from io import BytesIO

from bench.picture import FONT, Dot, Drawing, Line, Point, Text

SCALE = 2
"""So many pixels for one of the drawing: screens have as many."""
FINER = 2
"""So much finer it is drawn than it is kept, so that edges become smooth."""
ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}


def missing() -> str | None:
    """Return why there can be no PNG here, and what to do; None if there can."""
    if importlib.util.find_spec("PIL") is not None:
        return None
    return "a picture in PNG takes Pillow, which is not installed: pip install 'kopf_selectcache[bench]'"


def png(drawn: Drawing) -> bytes:
    from PIL import Image, ImageDraw, ImageFont  # Runs without a picture need none of it.  # noqa: PLC0415

    times = SCALE * FINER
    image = Image.new("RGB", (drawn.width * times, drawn.height * times), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(FONT * times)

    def placed(point: Point) -> Point:
        return point[0] * times, point[1] * times

    for shape in drawn.shapes:
        match shape:
            case Text(at, words, anchor, bold):
                draw.text(
                    placed(at), words, "black", font, ANCHORS[anchor], stroke_width=0.3 * times if bold else 0
                )
            case Line(points, colour, width):
                if len(points) > 1:
                    draw.line([placed(point) for point in points], colour, round(width * times), "curve")
            case Dot(at, colour, _, radius):
                draw.circle(placed(at), radius * times, colour)
    found = BytesIO()
    image.resize((drawn.width * SCALE, drawn.height * SCALE), Image.Resampling.LANCZOS).save(
        found, "PNG", optimize=True
    )
    return found.getvalue()
