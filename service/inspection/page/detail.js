// Everything that is known of one request.

function detail(request, data) {
  const whole = request.duration_ms;
  const first = request.ttft_ms;
  const drawing = el("div", { class: "drawing" }, waterfall(request, data, whole));
  const beginning = request.lives[0];
  return el(
    "div",
    { class: "detail" },
    el("p", { class: "verdict" }, verdict(request)),
    troubles(request),
    // The way to the first token is a sliver of a long answer: it can be looked at alone.
    first !== null && first > 0 && first < whole / 2 ? zoom(request, data, drawing) : null,
    drawing,
    el("dl", { class: "facts" }, request.lives.flatMap((life, place) => facts(life, place, request, data))),
    beginning.trace_id === null || beginning.is_sampled ? null : el("p", { class: "muted" }, "Its trace was not sampled: no tracing back-end has it."),
  );
}

// Where most of the time went, in one sentence, and what ended it.
function verdict(request) {
  const totals = timeByStage([request]);
  const largest = totals.reduce((one, other) => (other.length > one.length ? other : one), { key: "other", length: 0 });
  const last = lastLife(request);
  const parts = [];
  if (largest.length > 0) {
    parts.push(
      el("strong", {}, `${share(largest.length, request.duration_ms)} of ${duration(request.duration_ms)}`),
      ` went by ${STAGE[largest.key].doing} (${duration(largest.length)}). `,
    );
  }
  const reason = reasonOf(last);
  parts.push(`It ended as ${words(last.outcome)}${reason ? ` (${reason})` : ""}`);
  parts.push(last.outcome === "completed" ? "." : `, in phase ${words(last.phase)}.`);
  return parts;
}

function troubles(request) {
  const last = lastLife(request);
  const texts = [];
  if (errorOf(last) !== "") texts.push(errorOf(last));
  if (last.is_moved) texts.push("A frontend can have continued it on another worker, which was not asked or has forgotten it.");
  if (request.is_beginning_missing) texts.push("It began on another worker, which was not asked or has forgotten it.");
  return texts.map((text) => el("p", { class: "notice" }, text));
}

function zoom(request, data, drawing) {
  const ranges = [
    ["Whole request", request.duration_ms],
    ["Until the first token", request.ttft_ms * 1.05],
  ];
  const buttons = ranges.map(([text, until], place) =>
    el("button", { type: "button", "aria-pressed": String(place === 0), onclick: () => choose(place, until) }, text),
  );
  function choose(chosen, until) {
    for (const [place, button] of buttons.entries()) button.setAttribute("aria-pressed", String(place === chosen));
    drawing.replaceChildren(waterfall(request, data, until));
  }
  return el("div", { class: "segments", role: "group", "aria-label": "Time axis" }, buttons);
}

// Of one choice, or how many of the choices ended by which.
function finishReasons(life) {
  if (life.n === 1) return life.finish_reason ?? "";
  const reasons = life.finish_reasons.map((reason) => words(reason ?? "an error"));
  return [...new Set(reasons)].map((reason) => `${count(reasons.filter((other) => other === reason).length)} ${reason}`).join(", ");
}

function facts(life, place, request, data) {
  const worker = data.workers[life.worker];
  const known = [
    ["Arrived", `${dayOf(life.arrived_at)} ${timeOf(life.arrived_at)} UTC`],
    ["Worker", workerName(worker)],
    ["Instance", worker.instance_id ?? ""],
    ["Engine", [worker.engine, worker.model].filter((text) => text).join(", ")],
    ["Version", worker.version ?? ""],
    ["Engine's id", String(life.engine_id)],
    ["Context", place === 0 ? life.context_id : ""],
    ["Caller's id", life.x_request_id ?? ""],
    ["Trace", life.trace_id ?? ""],
    ["Span", life.span_id ?? ""],
    ["Continues", life.predecessor === null ? "" : `span ${life.predecessor.span_id}`],
    ["Prompt", `${plural(life.prompt_tokens, "token")}${life.cached_tokens > 0 ? `, ${count(life.cached_tokens)} cached` : ""}`],
    ["Answer", `${plural(life.completion_tokens, "token")} in ${plural(life.chunks, "chunk")}`],
    ["Asked for", life.max_tokens === null ? "" : `at most ${plural(life.max_tokens, "token")}`],
    ["Choices", life.n > 1 ? String(life.n) : ""],
    ["Until the engine", life.queue_ms === null ? "" : exact(life.queue_ms)],
    ["First token", life.ttft_ms === null ? "" : exact(life.ttft_ms)],
    ["Between tokens", life.itl_mean_ms === null ? "" : `mean ${exact(life.itl_mean_ms)}${life.itl_p50_ms === null ? "" : `, median ${exact(life.itl_p50_ms)}`}`],
    ["Duration", exact(life.duration_ms)],
    ["Finish reason", finishReasons(life)],
    ["Refused field", life.refused_field ?? ""],
    ["Failed by", life.failure_cause === null ? "" : words(life.failure_cause)],
  ];
  const heading = request.lives.length > 1 ? [el("div", { class: "heading" }, `Life ${place + 1}`)] : [];
  return [
    ...heading,
    ...known.filter(([, text]) => text !== "").map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))),
  ];
}
