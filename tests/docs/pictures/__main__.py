"""Write the pictures: `make pictures`, or `python -m tests.docs.pictures`."""

from __future__ import annotations

from tests.docs.pictures.files import written

if __name__ == "__main__":
    for file in written():
        print(file)
