"""Two workers serve one request through the framework's own prefill router, on TensorRT-LLM's double."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.roles import Roles, kill
from tests.e2e.waiting import wait_until
from tests.e2e.word_model import word_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

QUESTION = "w5 w6 w7"


def words(count: int) -> list[str]:
    """What the engine without a model answers."""
    return [word_of(1000 + i) for i in range(count)]


@pytest.fixture(scope="module")
def pair(word_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    """One of each, asked by the framework for their health, for tests that leave them as they were."""
    canary = {"DYN_HEALTH_CHECK_ENABLED": "true", "DYN_CANARY_WAIT_TIME": "1"}
    with Roles(tmp_path_factory.mktemp("pair"), word_model, environ=canary) as roles:
        roles.add_prefill()
        roles.add_decode()
        yield roles.wait_ready()


class TestServed:
    def test_the_answer_is_that_of_one_worker(self, pair: Roles) -> None:
        """All tokens once, from the first on, which the prefill worker chose; usage is exact."""
        reader = pair.ask(QUESTION, max_tokens=9).finish()
        assert reader.error is None
        assert reader.text.split() == words(9)
        assert reader.reason == "length"
        usage = reader.pieces[-1].usage
        assert usage is not None
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 9)
        pair.wait_at_rest()

    def test_one_token_is_an_answer_too(self, pair: Roles) -> None:
        """The prefill worker has computed it already; the decode worker says it."""
        status, body = pair.stack.chat(QUESTION, max_tokens=1)
        assert status == 200, body
        assert body["choices"][0]["message"]["content"].split() == words(1)
        assert body["usage"]["completion_tokens"] == 1
        pair.wait_at_rest()

    def test_many_at_once(self, pair: Roles) -> None:
        """Every decode gets the cache of its own prompt."""
        readers = [pair.ask(f"w{5 + i} w6", max_tokens=12) for i in range(24)]
        for reader in readers:
            assert reader.finish().error is None
            assert reader.text.split() == words(12)
        pair.wait_at_rest()

    def test_the_bypass_of_a_client_is_no_reason_to_leave_a_cache_lying(self, pair: Roles) -> None:
        """The framework's router makes the prefill all the same: it is used."""
        status, body = pair.stack.chat(
            QUESTION, max_tokens=4, nvext={"annotations": ["x-bypass-remote-prefill"]}
        )
        assert status == 200, body
        assert body["choices"][0]["message"]["content"].split() == words(4)
        pair.wait_at_rest()

    def test_several_choices_are_refused_by_name(self, pair: Roles) -> None:
        """They would all begin with the one token that the prefill worker chose."""
        status, body = pair.stack.chat(QUESTION, max_tokens=4, n=2, temperature=0.8)
        assert status >= 400, body
        assert "sampling_options.n" in json.dumps(body)
        pair.wait_at_rest()

    def test_each_answers_its_health_check_alone(self, pair: Roles) -> None:
        """The framework asks: a role is no reason to be thought dead, and probes are in no count."""
        for worker in (*pair.prefills, *pair.decodes):
            before = worker.status()["started"]
            assert worker.is_healthy()
            assert worker.status()["started"] == before

    def test_what_each_registers_as(self, pair: Roles) -> None:
        """By its role, under the component that manifests expect."""
        assert pair.registered == {("prefill", "prefill"), ("backend", "decode")}


def test_however_a_prefill_ends_the_answer_goes_on(word_model: Path, tmp_path: Path) -> None:
    """The framework would take a prefill that says "stop" for the whole answer: none says so (A60)."""
    with Roles(tmp_path / "stack", word_model) as roles:
        roles.add_prefill(context_finish="stop")
        # An older release, too, whose ids of requests are made of one number.
        roles.add_prefill(context_finish="not_finished", has_machine_ids=True)
        roles.add_decode()
        roles.wait_ready()
        for _ in range(6):
            assert roles.ask(QUESTION, max_tokens=3).finish().text.split() == words(3)
        roles.wait_at_rest()
        assert all(worker.status()["outcomes"]["completed"] for worker in roles.prefills)


@pytest.fixture(scope="module")
def slow(word_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Roles]:
    """A step takes long, and so does a transfer."""
    with Roles(tmp_path_factory.mktemp("slow"), word_model, step_ms=400, drain_s=1) as roles:
        # Nothing is freed by itself while a test lasts.
        roles.add_prefill(kept_ms=120_000)
        roles.add_decode(transfer_s=1.0)
        yield roles.wait_ready()


class TestLeft:
    """Where a client leaves, the next one is served, and no memory is held for nobody."""

    def _check_next(self, slow: Roles) -> None:
        slow.wait_at_rest()
        status, body = slow.stack.chat(QUESTION, max_tokens=2)
        assert status == 200, body
        assert body["choices"][0]["message"]["content"].split() == words(2)

    def test_while_its_prompt_is_computed(self, slow: Roles) -> None:
        """The prefill worker hears nothing of it; the decode worker fetches the cache for nobody."""
        client = slow.begin(QUESTION, max_tokens=50)
        slow.prefills[0].wait_status(lambda state: state["live"] == 1)
        client.close()
        self._check_next(slow)

    def test_while_its_cache_is_under_way(self, slow: Roles) -> None:
        """The decode worker's engine hears of it with the first token, not before."""
        client = slow.begin(QUESTION, max_tokens=50)
        slow.decodes[0].wait_status(lambda state: state["in_flight"] == 1)
        assert slow.waiting == 1
        client.close()
        slow.decodes[0].wait_status(lambda state: state["live"] == 0)
        assert slow.waiting == 1
        assert slow.decodes[0].status()["in_flight"] == 1
        self._check_next(slow)

    def test_while_it_is_answered(self, slow: Roles) -> None:
        """The decode worker's engine stops at once."""
        client = slow.begin(QUESTION, max_tokens=1000)
        client.getresponse().readline()
        client.close()
        slow.decodes[0].wait_status(lambda state: state["outcomes"]["cancelled"] >= 1)
        self._check_next(slow)


class TestLost:
    def test_a_prefill_worker_that_is_killed_while_it_computes(
        self, word_model: Path, tmp_path: Path
    ) -> None:
        """The frontend asks the other one; the answer is whole."""
        with Roles(tmp_path / "stack", word_model, step_ms=1500) as roles:
            first, second = roles.add_prefill(), roles.add_prefill()
            roles.add_decode()
            roles.wait_ready()
            reader = roles.ask(QUESTION, max_tokens=2)
            wait_until(lambda: first.status()["live"] or second.status()["live"], "no prefill")
            victim, other = (first, second) if first.status()["live"] else (second, first)
            kill(victim)
            reader.finish()
            assert reader.error is None, reader.error
            assert reader.text.split() == words(2)
            assert other.status()["outcomes"]["completed"] == 1

    def test_a_prefill_worker_that_is_killed_before_its_cache_was_fetched(
        self, word_model: Path, tmp_path: Path
    ) -> None:
        """That request fails alone: the decode worker lives, and serves with the other prefill worker."""
        with Roles(tmp_path / "stack", word_model, drain_s=1) as roles:
            victim = roles.add_prefill(kept_ms=60_000)
            decode = roles.add_decode(transfer_s=4.0)
            roles.wait_ready()
            reader = roles.ask(QUESTION, max_tokens=4)
            decode.wait_status(lambda state: state["in_flight"] == 1)
            kill(victim)
            assert reader.finish().error is not None
            decode.wait_status(lambda state: state["in_flight"] == 0)
            roles.add_prefill(kept_ms=60_000)
            roles.prefills.remove(victim)
            roles.stack.workers.remove(victim)
            roles.wait_ready()

            def is_served() -> bool:
                return roles.stack.chat(QUESTION, max_tokens=2)[0] == 200

            wait_until(is_served, decode.log, 40, every_s=0.5)
            assert decode.status()["outcomes"]["failed"] == 1

    def test_a_decode_worker_that_is_killed_before_it_fetched_its_cache(
        self, word_model: Path, tmp_path: Path
    ) -> None:
        """The frontend asks both again; what nobody fetches is pending for its time-out and no longer."""
        with Roles(tmp_path / "stack", word_model) as roles:
            prefill = roles.add_prefill(kept_ms=4000)
            decodes = [roles.add_decode(transfer_s=2.0) for _ in range(2)]
            roles.wait_ready()
            reader = roles.ask(QUESTION, max_tokens=5)
            wait_until(lambda: any(worker.status()["in_flight"] for worker in decodes), "no decode")
            (victim,) = [worker for worker in decodes if worker.status()["in_flight"]]
            kill(victim)
            for workers in (roles.decodes, roles.stack.workers):
                workers.remove(victim)
            reader.finish()
            assert reader.error is None, reader.error
            assert reader.text.split() == words(5)
            assert prefill.status()["outcomes"]["completed"] == 2
            prefill.wait_status(lambda state: state["pending_transfers"] == 0)


class TestStopped:
    def test_a_prefill_worker_lives_until_its_cache_was_fetched(
        self, word_model: Path, tmp_path: Path
    ) -> None:
        """SIGTERM between the hand-off and the transfer: the request is answered whole, and the code is 0."""
        with Roles(tmp_path / "stack", word_model) as roles:
            prefill = roles.add_prefill(kept_ms=3000)
            decode = roles.add_decode(transfer_s=2.0)
            roles.wait_ready()
            reader = roles.ask(QUESTION, max_tokens=6)
            decode.wait_status(lambda state: state["in_flight"] == 1)
            assert prefill.status()["pending_transfers"] == 1
            prefill.send(signal.SIGTERM)
            reader.finish()
            assert reader.error is None, reader.error
            assert reader.text.split() == words(6)
            assert prefill.child.exit_code is None
            assert prefill.child.wait(20) == 0
            assert "transfers.left_behind" not in prefill.log()

    def test_a_prefill_worker_that_is_drained_by_hand_says_when_it_may_go(
        self, word_model: Path, tmp_path: Path
    ) -> None:
        """Not while somebody may read from it, though it has no request."""
        with Roles(tmp_path / "stack", word_model) as roles:
            prefill = roles.add_prefill(kept_ms=6000)
            roles.add_decode()
            roles.wait_ready()
            assert roles.stack.chat(QUESTION, max_tokens=2)[0] == 200
            drained = prefill.control("drain", {"timeout_s": 5})
            assert (drained["state"], drained["live"]) == ("drained", 0)
            assert (drained["pending_transfers"], drained["safe_to_delete"]) == (1, False)
            state = prefill.wait_status(lambda state: state["safe_to_delete"], timeout_s=30)
            assert state["pending_transfers"] == 0


@pytest.mark.slow
def test_a_real_model_says_with_two_workers_what_it_says_alone(tiny_model: Path, tmp_path: Path) -> None:
    """Their greedy text is that of plain generation; what the prefill worker found in its cache is told."""
    short, long = "Once upon a time", "The capital of France is " * 20
    found: list[str] = []
    cached: list[int] = []
    with Roles(tmp_path / "two", tiny_model, step_ms=1) as roles:
        roles.add_prefill()
        roles.add_decode()
        stack = roles.wait_ready().stack
        for prompt in (short, long, long):
            status, body = stack.complete(prompt, max_tokens=8, temperature=0)
            assert status == 200, body
            found.append(body["choices"][0]["text"])
            cached.append(body["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert found == [generated(tiny_model, prompt, 8) for prompt in (short, long, long)]
    assert cached[:2] == [0, 0]
    assert cached[2] > 0


def generated(model: Path, prompt: str, tokens: int) -> str:
    """The model's own answer in this process, without a worker."""
    import torch
    import transformers

    auto: Any = transformers.AutoModelForCausalLM
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(model)
    asked = tokenizer(prompt, return_tensors="pt")
    with torch.inference_mode():
        said = auto.from_pretrained(model).generate(**asked, max_new_tokens=tokens, do_sample=False)[0]
    answer: str = tokenizer.decode(said[asked["input_ids"].shape[1] :], skip_special_tokens=True)
    return answer
