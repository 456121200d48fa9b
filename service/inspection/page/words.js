// Figures and reasons as people say them. Times are milliseconds.

const STAGES = [
  { key: "intake", name: "Intake", doing: "at the door" },
  { key: "resolve", name: "Resolve", doing: "being checked and prepared" },
  { key: "waiting", name: "Waiting", doing: "waiting for a place in the engine" },
  { key: "prefill", name: "Prefill", doing: "in the engine until the first token" },
  { key: "stream", name: "Stream", doing: "producing tokens" },
  { key: "gap", name: "Between lives", doing: "on the way to another worker" },
  { key: "other", name: "Other", doing: "elsewhere" },
];
const STAGE = Object.fromEntries(STAGES.map((stage) => [stage.key, stage]));
const NOTHING = "–";

function duration(ms) {
  if (ms === null) return NOTHING;
  if (ms < 9.995) return `${ms.toFixed(2)} ms`;
  if (ms < 99.95) return `${ms.toFixed(1)} ms`;
  if (ms < 999.5) return `${ms.toFixed(0)} ms`;
  if (ms < 59_995) return `${(ms / 1000).toFixed(2)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

function exact(ms) {
  return ms === null ? "" : `${ms.toLocaleString("en", { maximumFractionDigits: 3 })} ms`;
}

function share(part, whole) {
  if (!(whole > 0)) return "";
  const percent = (100 * part) / whole;
  return percent > 0 && percent < 1 ? "<1 %" : `${Math.round(percent)} %`;
}

function count(number) {
  return number.toLocaleString("en");
}

function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}

// "2026-11-30T17:20:49.123456Z" as a day and a time of that day, both UTC.
function dayOf(moment) {
  return moment.slice(0, 10);
}

function timeOf(moment) {
  return moment.slice(11, 23);
}

function lastLife(request) {
  return request.lives[request.lives.length - 1];
}

function words(text) {
  return text.replaceAll("_", " ");
}

function reasonOf(life) {
  const reason = life.cancel_reason ?? life.finish_reason ?? life.failure_cause ?? life.reject_reason;
  return reason !== null && !life.outcome.startsWith(reason) ? words(reason) : "";
}

function errorOf(life) {
  return [life.error_kind, life.error].filter((text) => text).join(": ");
}

// Where it was asked, which is where it runs.
function workerName(worker) {
  return worker.url.replace(/^http:\/\//, "").replace(/\/+$/, "") || (worker.instance_id ?? "");
}

// How long it waited for an engine in all its lives; null when it reached none.
function queueOf(request) {
  const known = request.lives.map((life) => life.queue_ms).filter((length) => length !== null);
  return known.length === 0 ? null : known.reduce((sum, length) => sum + length, 0);
}

// A request that was moved ended more than once.
function outcomesOf(request) {
  return [...new Set(request.lives.map((life) => life.outcome))];
}

// The stages of one life on the request's time axis; "execute" as what it consists of.
function stagesOf(life) {
  const stages = [];
  for (const hop of life.hops) {
    const name = hop.name.replace(/^actor\./, "");
    const start = life.start_ms + hop.start_ms;
    if (hop.waiting_ms === null) {
      stages.push({ key: Object.hasOwn(STAGE, name) ? name : "other", start, length: hop.duration_ms });
      continue;
    }
    stages.push({ key: "waiting", start, length: hop.waiting_ms });
    if (hop.prefill_ms !== null) {
      stages.push({ key: "prefill", start: start + hop.waiting_ms, length: hop.prefill_ms });
    }
  }
  return stages;
}

function gapBefore(life) {
  return life.gap_ms === null ? [] : [{ key: "gap", start: life.start_ms - life.gap_ms, length: life.gap_ms }];
}

// Of a request: how long it was in each stage, in all its lives. In the order of STAGES.
function timeByStage(requests) {
  const totals = new Map(STAGES.map((stage) => [stage.key, 0]));
  for (const request of requests) {
    for (const life of request.lives) {
      for (const { key, length } of [...gapBefore(life), ...stagesOf(life)]) {
        totals.set(key, totals.get(key) + length);
      }
    }
  }
  return [...totals].map(([key, length]) => ({ key, length })).filter(({ length }) => length > 0);
}

// The smallest value that so many of them (0 to 1) do not exceed; null when there is none.
function quantile(values, part) {
  const known = values.filter((value) => value !== null).sort((one, other) => one - other);
  if (known.length === 0) return null;
  return known[Math.max(Math.ceil(part * known.length) - 1, 0)];
}
