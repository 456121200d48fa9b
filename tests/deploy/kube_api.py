"""An API server on the loopback, as far as Dynamo's discovery asks one: lists, watches and applied objects.

It permits what the Roles of a namespace permit and nothing else, and remembers what was asked.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, urlsplit

from tests.deploy.kube_store import Store
from tests.deploy.kustomize import Object, documents_of

_PATH = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)/namespaces/(?P<namespace>[^/]+)"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?$"
)
_KINDS = {"endpointslices": "EndpointSlice", "dynamoworkermetadatas": "DynamoWorkerMetadata", "pods": "Pod"}


@dataclass(frozen=True, slots=True, order=True)
class Asked:
    """What somebody wants to do, in the words of a Role."""

    group: str
    resource: str
    verb: str


@dataclass(slots=True)
class Rights:
    """Whose token is whose, and what they may. asked, refused: what was, in all."""

    objects: list[Object]
    namespace: str
    accounts: dict[str, str] = field(default_factory=dict)
    asked: set[Asked] = field(default_factory=set)
    refused: set[Asked] = field(default_factory=set)

    def permits(self, token: str | None, asked: Asked) -> bool:
        """Whether a Role that is bound to the token's account has a rule for it."""
        self.asked.add(asked)
        account = self.accounts.get(token or "")
        if any(_has_rule(role, asked) for role in self._roles_of(account)):
            return True
        self.refused.add(asked)
        return False

    def _roles_of(self, account: str | None) -> list[Object]:
        subject = {"kind": "ServiceAccount", "name": account, "namespace": self.namespace}
        bindings = [
            one for one in self.objects if one["kind"] == "RoleBinding" and subject in one["subjects"]
        ]
        names = {one["roleRef"]["name"] for one in bindings}
        return [one for one in self.objects if one["kind"] == "Role" and one["metadata"]["name"] in names]


def _has_rule(role: Object, asked: Asked) -> bool:
    return any(
        asked.group in rule["apiGroups"]
        and asked.resource in rule["resources"]
        and asked.verb in rule["verbs"]
        for rule in role["rules"]
    )


class KubernetesApi:
    """Answers in threads of its own until it is closed."""

    def __init__(self, store: Store, rights: Rights) -> None:
        handler = type("Handler", (_Handler,), {"store": store, "rights": rights})
        self._store = store
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Watches end, and nobody listens any more."""
        self._store.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: ClassVar[Store]
    rights: ClassVar[Rights]

    def log_message(self, *_: object) -> None:
        """What was asked is kept by the rights."""

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        asked = self._asked("watch" if "watch" in query else "list")
        if asked is None or not self._may(asked):
            return
        labels = dict(
            pair.split("=", 1) for text in query.get("labelSelector", []) for pair in text.split(",")
        )
        if asked.verb == "watch":
            self._stream(asked.resource, labels, int(query["resourceVersion"][0]))
            return
        version, items = self.store.listed(asked.resource, labels)
        head = {"kind": f"{_KINDS[asked.resource]}List", "metadata": {"resourceVersion": str(version)}}
        self._send(200, head | {"apiVersion": self._api_version(), "items": items})

    def do_PATCH(self) -> None:
        """Server-side apply by the only writer: what is sent is what there is afterwards."""
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        asked = self._asked("patch")
        if asked is None or not self._may(asked):
            return
        (one,) = documents_of(body)
        is_new = self.store.get(asked.resource, one["metadata"]["name"]) is None
        # An object that is applied and not there is created, which is a right of its own.
        if is_new and not self._may(Asked(asked.group, asked.resource, "create")):
            return
        one["metadata"]["namespace"] = self.rights.namespace
        self._send(201 if is_new else 200, self.store.put(asked.resource, one))

    def _asked(self, verb: str) -> Asked | None:
        found = _PATH.match(urlsplit(self.path).path)
        if found is None or found["namespace"] != self.rights.namespace or found["resource"] not in _KINDS:
            self._refuse(404, f"nothing is at {self.path}")
            return None
        return Asked(found["group"] or "", found["resource"], verb)

    def _may(self, asked: Asked) -> bool:
        token = (self.headers.get("authorization") or "").removeprefix("Bearer ")
        if self.rights.permits(token, asked):
            return True
        self._refuse(403, f"no right to {asked.verb} {asked.resource}")
        return False

    def _api_version(self) -> str:
        found = _PATH.match(urlsplit(self.path).path)
        assert found is not None
        return "/".join(part for part in (found["group"], found["version"]) if part)

    def _stream(self, resource: str, labels: dict[str, str], after: int) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            for event in self.store.watch(resource, labels, after):
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            # Whoever watched has ended.
            self.close_connection = True

    def _refuse(self, code: int, message: str) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
        self._send(code, status | {"metadata": {}, "reason": "Forbidden" if code == 403 else "NotFound"})

    def _send(self, code: int, body: Object) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle(self) -> None:
        """A client that is killed hangs up in the middle of anything."""
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True
