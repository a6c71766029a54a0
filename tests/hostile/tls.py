"""The TLS of the hostile server: an authority that the victim trusts, and one that it does not."""

from __future__ import annotations

from pathlib import Path

from kopf_selectcache.testing.cluster import authority


class Authorities:
    """Both; the file has the certificate of the trusted one."""

    def __init__(self, folder: Path) -> None:
        self.ca_file = folder / "ca.crt"
        self.trusted = authority(self.ca_file)
        self.other = authority(folder / "other.crt")
