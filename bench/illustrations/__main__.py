"""Write the pictures: `make pictures`, or `python -m bench.illustrations`."""

from __future__ import annotations

from bench.illustrations.files import written

if __name__ == "__main__":
    for file in written():
        print(file)
