"""Promises of the API server that the tests put in a cluster's place: it refuses, and it misses nothing."""

from __future__ import annotations

import http.client
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.deploy.kube_api import Asked, KubernetesApi, Rights
from tests.deploy.kube_store import Store
from tests.deploy.kustomize import Object

WORKERS = "/apis/nvidia.com/v1alpha1/namespaces/n/dynamoworkermetadatas"


def role(*verbs: str) -> list[Object]:
    """One that permits this on workers' objects, and is bound to the account `a`."""
    rules = [{"apiGroups": ["nvidia.com"], "resources": ["dynamoworkermetadatas"], "verbs": list(verbs)}]
    subject = {"kind": "ServiceAccount", "name": "a", "namespace": "n"}
    return [
        {"kind": "Role", "metadata": {"name": "r"}, "rules": rules},
        {"kind": "RoleBinding", "metadata": {"name": "b"}, "roleRef": {"name": "r"}, "subjects": [subject]},
    ]


class Caller:
    """A client with a token, or without one."""

    def __init__(self, verbs: tuple[str, ...]) -> None:
        self.store = Store()
        self.rights = Rights(role(*verbs), "n", accounts={"secret": "a", "stranger": "other"})
        self.api = KubernetesApi(self.store, self.rights)
        self._address = self.api.url.removeprefix("http://")

    @contextmanager
    def open(
        self, method: str, path: str, token: str | None, body: Object | None = None
    ) -> Generator[http.client.HTTPResponse]:
        """The answer, whose body has not been read."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection = http.client.HTTPConnection(self._address, timeout=10)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            with connection.getresponse() as answer:
                yield answer
        finally:
            connection.close()

    def ask(self, method: str, path: str, token: str | None, body: Object | None = None) -> tuple[int, Any]:
        """Status and decoded body."""
        with self.open(method, path, token, body) as answer:
            return answer.status, json.loads(answer.read())


@pytest.fixture
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    """Of an API whose Role permits what the test says, or everything that discovery needs."""
    made = Caller(getattr(request, "param", ("list", "watch", "create", "patch")))
    yield made
    made.api.close()


def worker(name: str, **data: Any) -> Object:
    """A worker's object."""
    return {"kind": "DynamoWorkerMetadata", "metadata": {"name": name}, "spec": {"data": data}}


@pytest.mark.parametrize("token", [None, "wrong", "stranger"])
def test_only_the_account_with_the_role_may(caller: Caller, token: str | None) -> None:
    """No token, an unknown one, and one of an account without a Role are refused."""
    assert caller.ask("GET", f"{WORKERS}?limit=500", token)[0] == 403
    assert caller.rights.refused == {Asked("nvidia.com", "dynamoworkermetadatas", "list")}


@pytest.mark.parametrize("caller", [("list", "watch", "patch")], indirect=True)
def test_to_create_by_applying_is_a_right_of_its_own(caller: Caller) -> None:
    """Without it a worker's first registration is refused."""
    assert caller.ask("PATCH", f"{WORKERS}/w", "secret", worker("w"))[0] == 403
    assert caller.rights.refused == {Asked("nvidia.com", "dynamoworkermetadatas", "create")}


def test_what_is_applied_is_there(caller: Caller) -> None:
    """First created, then changed, with a generation and a version that rise."""
    first = caller.ask("PATCH", f"{WORKERS}/w", "secret", worker("w"))
    second = caller.ask("PATCH", f"{WORKERS}/w", "secret", worker("w", endpoints=1))
    assert (first[0], second[0]) == (201, 200)
    status, listed = caller.ask("GET", f"{WORKERS}?limit=500", "secret")
    assert status == 200
    (item,) = listed["items"]
    assert item["spec"]["data"] == {"endpoints": 1}
    assert item["metadata"]["generation"] == 2
    assert item["metadata"]["resourceVersion"] == listed["metadata"]["resourceVersion"] == "2"


def test_a_watch_tells_all_that_came_after_its_version(caller: Caller) -> None:
    """What happened between list and watch is not lost, and what is removed is told, too."""
    caller.store.put("dynamoworkermetadatas", worker("old"))
    version = caller.ask("GET", f"{WORKERS}?limit=500", "secret")[1]["metadata"]["resourceVersion"]
    caller.store.put("dynamoworkermetadatas", worker("between"))
    with caller.open("GET", f"{WORKERS}?watch=true&resourceVersion={version}", "secret") as answer:
        caller.store.delete("dynamoworkermetadatas", "old")
        events = [json.loads(answer.readline()) for _ in range(2)]
    told = [(event["type"], event["object"]["metadata"]["name"]) for event in events]
    assert told == [("ADDED", "between"), ("DELETED", "old")]


def test_labels_choose(caller: Caller) -> None:
    """An object without the wanted label is neither listed nor told."""
    labelled = worker("with")
    labelled["metadata"]["labels"] = {"on": "true"}
    caller.store.put("dynamoworkermetadatas", worker("without"))
    caller.store.put("dynamoworkermetadatas", labelled)
    listed = caller.ask("GET", f"{WORKERS}?labelSelector=on%3Dtrue", "secret")[1]
    assert [item["metadata"]["name"] for item in listed["items"]] == ["with"]


@pytest.mark.parametrize(
    "path", [WORKERS.replace("/n/", "/other/"), "/api/v1/namespaces/n/secrets", "/version"]
)
def test_there_is_nothing_else(caller: Caller, path: str) -> None:
    """Another namespace, another kind, another question."""
    assert caller.ask("GET", path, "secret")[0] == 404
