"""Draw a picture as PNG with Pillow, which is imported only when needed. Without Pillow, the reason is
reported.
"""

from __future__ import annotations

import importlib.util
from io import BytesIO

from bench.picture import FONT, Dot, Drawing, Line, Point, Text

SCALE = 2
"""The pixels of one unit of the drawing: screens have that density."""
FINER = 2
"""The factor of oversampling, so that edges are smooth."""
ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}


def missing() -> str | None:
    """Return why no PNG can be drawn here, with the remedy; None if it can."""
    if importlib.util.find_spec("PIL") is not None:
        return None
    return "a picture in PNG takes Pillow, which is not installed: pip install 'kopf_selectcache[bench]'"


def png(drawn: Drawing) -> bytes:
    from PIL import Image, ImageDraw, ImageFont  # Runs without a picture do not need Pillow.  # noqa: PLC0415

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
