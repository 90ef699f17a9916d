"""A certificate authority for one test, by the openssl program: keys and certificates that nobody else has."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates in a folder of its own, which must lie under the system's temp folder for a broker to see."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._name = name
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"),
            *("-subj", f"/CN=redrive test {name}", "-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def sign(self, common_name: str, *, alternative_names: str = "") -> Certificate:
        """`alternative_names` as openssl has them: "DNS:localhost,IP:127.0.0.1"."""
        stem = f"{self._name}-{common_name}"
        made = Certificate(certificate=self._folder / f"{stem}.pem", key=self._folder / f"{stem}.key")
        request, extensions = self._folder / f"{stem}.csr", self._folder / f"{stem}.ext"
        _openssl(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-subj", f"/CN={common_name}", "-keyout", str(made.key), "-out", str(request)),
        )
        extensions.write_text(f"subjectAltName={alternative_names}\n" if alternative_names else "")
        _openssl(
            *("x509", "-req", "-days", "2", "-in", str(request), "-CA", str(self.certificate)),
            *("-CAkey", str(self._key), "-CAcreateserial", "-extfile", str(extensions)),
            *("-out", str(made.certificate)),
        )
        made.key.chmod(0o644)  # the broker may run as another user
        return made


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
