// The requests as a table: sorted by any column, narrowed by outcome and text, each opened where it stands.

const COLUMNS = [
  {
    key: "arrived", title: "Arrived (UTC)", kind: "medium", isDescendingFirst: true,
    value: (request) => request.arrived_at,
    cell: (request) => el("time", { datetime: request.arrived_at, title: request.arrived_at }, timeOf(request.arrived_at)),
  },
  {
    key: "outcome", title: "Outcome",
    value: (request) => `${request.outcome} ${reasonOf(lastLife(request))}`,
    cell: (request) => [badge(lastLife(request)), el("span", { class: "reason", title: reasonOf(lastLife(request)) }, reasonOf(lastLife(request)))],
  },
  {
    key: "duration", title: "Duration", isFigure: true, isDescendingFirst: true,
    value: (request) => request.duration_ms,
    cell: (request) => el("span", { title: exact(request.duration_ms) }, duration(request.duration_ms)),
  },
  {
    key: "time", title: "Where it went", kind: "medium bars",
    value: (request) => {
      const largest = timeByStage([request]).reduce((one, other) => (other.length > one.length ? other : one), { key: "other", length: 0 });
      return STAGES.findIndex(({ key }) => key === largest.key) + largest.length / (request.duration_ms + 1) / 2;
    },
    cell: (request) => {
      const totals = timeByStage([request]);
      return proportions(totals, inWords(totals));
    },
  },
  figure("queue", "To engine", queueOf),
  figure("ttft", "First token", (request) => request.ttft_ms),
  figure("itl", "Per token", (request) => lastLife(request).itl_p50_ms),
  {
    key: "tokens", title: "Tokens", kind: "wide", isFigure: true, isDescendingFirst: true,
    value: (request) => request.completion_tokens,
    cell: (request) => `${count(request.lives[0].prompt_tokens)} → ${count(request.completion_tokens)}`,
  },
];

function figure(key, title, value) {
  return {
    key, title, value, kind: "wide", isFigure: true, isDescendingFirst: true,
    cell: (request) => el("span", { title: exact(value(request)) }, duration(value(request))),
  };
}

const REQUEST = {
  key: "request", title: "Request",
  value: (request) => request.lives[0].engine_id,
};

function requestTable(data) {
  const rows = data.requests.map((request, place) => requestRow(request, place, data));
  const body = el("tbody");
  const columns = [REQUEST, ...COLUMNS];
  const heads = columns.map((column) => headCell(column, () => sortBy(column)));
  const empty = el("p", { class: "empty", hidden: true }, "No request is left: another word, or other outcomes?");
  let sorted = { column: null, isDescending: false };

  function sortBy(column) {
    const isAgain = sorted.column === column;
    sorted = { column, isDescending: isAgain ? !sorted.isDescending : Boolean(column.isDescendingFirst) };
    for (const [place, head] of heads.entries()) {
      const direction = sorted.isDescending ? "descending" : "ascending";
      if (columns[place] === column) head.setAttribute("aria-sort", direction);
      else head.removeAttribute("aria-sort");
    }
    const values = new Map(rows.map((row) => [row, column.value(row.request)]));
    rows.sort((one, other) => compared(values.get(one), values.get(other), sorted.isDescending));
    body.append(...rows.flatMap(({ line, more }) => [line, more]));
  }

  function narrow(isWanted) {
    for (const row of rows) row.show(isWanted(row.request));
    empty.hidden = rows.some((row) => !row.line.hidden);
  }

  body.append(...rows.flatMap(({ line, more }) => [line, more]));
  if (rows.length > 0) rows[0].open();
  return [
    filters(data, narrow),
    el("table", {}, el("thead", {}, el("tr", {}, heads)), body),
    empty,
  ];
}

// What is not known comes last, in both directions.
function compared(one, other, isDescending) {
  if (one === null || other === null) return (one === null) - (other === null);
  const order = one < other ? -1 : Number(one > other);
  return isDescending ? -order : order;
}

function headCell(column, onclick) {
  const button = el("button", { type: "button", onclick }, column.title, el("span", { class: "arrow", "aria-hidden": "true" }));
  return el("th", { scope: "col", class: `${column.kind ?? ""} ${column.isFigure ? "figures" : ""}` }, button);
}

function requestRow(request, place, data) {
  const id = `request-${place}`;
  const toggle = el("button", { type: "button", class: "toggle", "aria-expanded": "false", "aria-controls": id, title: request.context_id }, el("span", { class: "id" }, request.context_id));
  const moved = request.lives.length > 1 ? el("span", { class: "lives" }, `${request.lives.length} lives`) : null;
  const line = el(
    "tr",
    { class: "request", onclick: flip },
    el("td", { class: "name" }, toggle, moved),
    COLUMNS.map((column) => el("td", { class: `${column.kind ?? ""} ${column.isFigure ? "figures" : ""}` }, column.cell(request))),
  );
  const more = el("tr", { class: "more", id, hidden: true }, el("td", { colspan: String(COLUMNS.length + 1) }));
  const row = { request, line, more, open: () => turn(true), show };

  function flip() {
    turn(toggle.getAttribute("aria-expanded") === "false");
  }
  function turn(isOpen) {
    toggle.setAttribute("aria-expanded", String(isOpen));
    line.classList.toggle("open", isOpen);
    more.hidden = !isOpen;
    more.firstChild.replaceChildren(...(isOpen ? [detail(request, data)] : []));
  }
  function show(isWanted) {
    line.hidden = !isWanted;
    more.hidden = !isWanted || toggle.getAttribute("aria-expanded") === "false";
  }
  return row;
}

// A word in an id, an outcome, a reason or a worker's name; and outcomes to choose from, of any life.
function filters(data, narrow) {
  const outcomes = [...new Set(data.requests.flatMap(outcomesOf))].sort();
  const chosen = new Set();
  const word = el("input", { type: "search", placeholder: "Filter by id, reason, worker", "aria-label": "Filter by id, reason or worker", oninput: apply });
  const buttons = outcomes.map((outcome) => {
    const number = data.requests.filter((request) => outcomesOf(request).includes(outcome)).length;
    const button = el("button", { type: "button", class: `chip outcome-${outcome}`, "aria-pressed": "false", onclick: choose }, words(outcome), el("small", {}, count(number)));
    function choose() {
      if (!chosen.delete(outcome)) chosen.add(outcome);
      button.setAttribute("aria-pressed", String(chosen.has(outcome)));
      apply();
    }
    return button;
  });
  function apply() {
    const wanted = word.value.trim().toLowerCase();
    narrow((request) => (chosen.size === 0 || outcomesOf(request).some((outcome) => chosen.has(outcome))) && textOf(request, data).includes(wanted));
  }
  return el("div", { class: "filters" }, word, el("div", { class: "chips", role: "group", "aria-label": "Outcomes" }, buttons));
}

function textOf(request, data) {
  const texts = request.lives.flatMap((life) => [
    life.context_id, String(life.engine_id), life.trace_id ?? "", life.x_request_id ?? "", words(life.outcome), reasonOf(life), errorOf(life), workerName(data.workers[life.worker]), data.workers[life.worker].instance_id ?? "",
  ]);
  return texts.join("\n").toLowerCase();
}
