// All requests of the page together: how they ended, how long they took, where their time went.

function overview(data) {
  const requests = data.requests;
  if (requests.length === 0) return [];
  const totals = timeByStage(requests);
  const whole = totals.reduce((sum, { length }) => sum + length, 0);
  const durations = requests.map((request) => request.duration_ms);
  const firsts = requests.map((request) => request.ttft_ms);
  const gaps = requests.flatMap((request) => request.lives.map((life) => life.itl_p50_ms));
  const queues = requests.map(queueOf);
  return [
    el(
      "div",
      { class: "tiles" },
      tile("Requests", count(requests.length), `${count(requests.filter((request) => request.lives.length > 1).length)} of them moved`),
      tile("Median duration", duration(quantile(durations, 0.5)), tail(durations)),
      tile("Median to engine", duration(quantile(queues, 0.5)), tail(queues)),
      tile("Median first token", duration(quantile(firsts, 0.5)), tail(firsts)),
      tile("Median per token", duration(quantile(gaps, 0.5)), tail(gaps)),
    ),
    proportions(totals, `Where the time of all requests went: ${inWords(totals)}`),
    el(
      "ul",
      { class: "legend" },
      totals.map(({ key, length }) =>
        el("li", { title: STAGE[key].doing }, el("span", { class: `swatch stage-${key}` }), STAGE[key].name, el("small", {}, share(length, whole))),
      ),
    ),
  ];
}

function tile(name, figure, more) {
  return el("div", { class: "tile" }, el("div", { class: "name" }, name), el("div", { class: "number" }, figure), el("div", { class: "more" }, more));
}

function tail(values) {
  const [high, most] = [quantile(values, 0.95), quantile(values, 1)];
  return most === null ? "" : `p95 ${duration(high)}, most ${duration(most)}`;
}

function about(data) {
  const what = data.asked.id !== undefined ? `request ${data.asked.id}` : { last: "the last", slowest: "the slowest", failed: "the failed" }[data.asked.which] + " requests";
  return `dynamo-actor-worker trace of ${what}, ${dayOf(data.made_at)} ${data.made_at.slice(11, 19)} UTC`;
}

function workerList(data) {
  return data.workers.map((worker) => {
    const engine = [worker.engine, worker.model, worker.version && `version ${worker.version}`].filter((text) => text).join(", ");
    return el(
      "li",
      { class: worker.trouble === null ? "worker" : "worker silent" },
      el("span", { class: "id" }, workerName(worker)),
      el("span", { class: "muted" }, worker.trouble ?? [engine, worker.instance_id].filter((text) => text).join(", ")),
    );
  });
}
