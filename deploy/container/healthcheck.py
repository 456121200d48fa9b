"""Whether a server on this machine answers 200: the health check of images and compose files.

python healthcheck.py [URL]; without one it is /health at DYN_SYSTEM_PORT. Kubernetes asks the port itself.
"""

from __future__ import annotations

import http.client
import os
import sys
from urllib.parse import urlsplit

# Below the five seconds that the container's engine waits.
_PATIENCE_S = 3.0


def status_of(url: str) -> int | None:
    """The HTTP status there; None when nobody answers in time."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def main(words: list[str]) -> int:
    """0 when it is well, 1 when not; what was seen goes to standard output, which `docker inspect` keeps."""
    url = words[0] if words else f"http://127.0.0.1:{os.environ.get('DYN_SYSTEM_PORT', '9090')}/health"
    status = status_of(url)
    sys.stdout.write(f"{url}: {'no answer' if status is None else status}\n")
    return 0 if status == http.HTTPStatus.OK else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
