// One request on one time axis: a row for each stage of each life, the pace of its tokens, and its moments.

const MOST_TICKS = 6;

function waterfall(request, data, until) {
  const rows = [axisRow(until)];
  for (const [place, life] of request.lives.entries()) {
    rows.push(...jointRows(request, place, until));
    if (request.lives.length > 1) rows.push(lifeRow(life, place, data));
    for (const stage of stagesOf(life)) rows.push(stageRow(stage, request, until));
    if (life.marks.length > 0) rows.push(paceRow(life, until));
    const moments = momentsOf(life);
    if (moments.length > 0) rows.push(momentsRow(moments, until));
  }
  const grid = el("div", { class: "waterfall" }, rows.flat());
  for (const [place, row] of rows.entries()) {
    for (const cell of row) cell.style.gridRow = String(place + 1);
  }
  const lines = [
    ...ticks(until).map((at) => lineAt(at, until, "tick")),
    ...request.lives.flatMap(momentsOf).map(({ at, kind }) => lineAt(at, until, kind)),
  ];
  const ruler = el("div", { class: "ruler", "aria-hidden": "true" }, lines);
  ruler.style.gridRow = `1 / span ${rows.length}`;
  grid.prepend(ruler);
  return grid;
}

function cells(label, track, figure) {
  return [el("div", { class: "label" }, label), el("div", { class: "track" }, track), el("div", { class: "figure" }, figure)];
}

function percent(ms, until) {
  return until > 0 ? Math.min(Math.max((100 * ms) / until, 0), 100) : 0;
}

function isSeen(ms, until) {
  return ms <= until || until === 0;
}

function lineAt(ms, until, kind) {
  if (!isSeen(ms, until)) return "";
  return el("div", { class: `line ${kind}`, style: { left: `${percent(ms, until)}%` } });
}

// Round numbers from 0 on, at most so many.
function ticks(until) {
  if (!(until > 0)) return [0];
  const power = 10 ** Math.floor(Math.log10(until / MOST_TICKS));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => until / size <= MOST_TICKS);
  return Array.from({ length: Math.floor(until / step + 1e-9) + 1 }, (_, place) => place * step);
}

function axisRow(until) {
  const unit = until >= 2000 ? ["s", 1000] : ["ms", 1];
  const marks = ticks(until).map((at) => {
    const left = percent(at, until);
    const text = `${Number((at / unit[1]).toPrecision(6))}`;
    return el("span", { class: left > 96 ? "at late" : "at", style: { left: `${left}%` } }, at === 0 ? `0 ${unit[0]}` : text);
  });
  const [label, track, figure] = cells("", marks, "");
  for (const cell of [label, track, figure]) cell.classList.add("axis");
  return [label, track, figure];
}

function bar(stage, until) {
  if (!isSeen(stage.start, until)) return "";
  const left = percent(stage.start, until);
  const right = percent(stage.start + stage.length, until);
  return el("div", {
    class: `bar stage-${stage.key}`,
    style: { left: `min(${left}%, 100% - 3px)`, width: `${right - left}%` },
    title: `${STAGE[stage.key].name}: ${exact(stage.length)}, from ${exact(stage.start)} on`,
  });
}

function stageRow(stage, request, until) {
  const length = el("span", { title: exact(stage.length) }, duration(stage.length));
  const part = el("small", {}, share(stage.length, request.duration_ms));
  return cells(STAGE[stage.key].name, bar(stage, until), [length, part]);
}

// What lies between two lives.
function jointRows(request, place, until) {
  const life = request.lives[place];
  const gaps = gapBefore(life).map((gap) => stageRow(gap, request, until));
  if (place === 0 || gaps.length > 0) return gaps;
  const text = `The workers' clocks differ by ${duration(life.overlap_ms)} or more: how long it was on its way is not known.`;
  return [[el("div", { class: "across notice" }, text)]];
}

function lifeRow(life, place, data) {
  const worker = data.workers[life.worker];
  return [
    el(
      "div",
      { class: "across life" },
      el("strong", {}, `Life ${place + 1}`),
      el("span", { class: "id" }, workerName(worker)),
      badge(life),
      el("span", { class: "muted" }, [reasonOf(life), `${count(life.completion_tokens)} tokens`].filter((text) => text).join(", ")),
    ),
  ];
}

// Tokens a second between two marks, as steps, and a tick for each mark.
function paceRow(life, until) {
  const points = life.marks.map(([at, tokens]) => ({ x: 10 * percent(life.start_ms + at, until), at, tokens }));
  const steps = points.slice(1).map((point, place) => {
    const before = points[place];
    const seconds = (point.at - before.at) / 1000;
    return { from: before.x, to: point.x, rate: seconds > 0 ? (point.tokens - before.tokens) / seconds : 0 };
  });
  const highest = Math.max(...steps.map(({ rate }) => rate), 0);
  const line = steps.map(({ from, to, rate }) => {
    // What counts backwards, or in no time at all, has no rate.
    const part = rate / highest;
    const y = 100 - 84 * (part > 0 ? Math.min(part, 1) : 0);
    return `L${from} ${y}L${to} ${y}`;
  });
  const area = steps.length > 0 ? `M${points[0].x} 100${line.join("")}L${points[points.length - 1].x} 100Z` : "";
  const seen = points.filter(({ at }) => isSeen(life.start_ms + at, until));
  const picture = svg(
    "svg",
    { viewBox: "0 0 1000 100", preserveAspectRatio: "none", class: "pace", role: "img", "aria-label": "Pace of the tokens" },
    svg("path", { class: "rate", d: area }),
    seen.map(({ x }) => svg("path", { class: "mark", d: `M${x} 100V88` })),
  );
  const [first, last] = [points[0], points[points.length - 1]];
  const seconds = (last.at - first.at) / 1000;
  const mean = seconds > 0 ? `${Number(((last.tokens - first.tokens) / seconds).toPrecision(3))} /s` : "";
  const row = cells("Tokens", picture, [el("span", {}, mean), el("small", {}, plural(life.chunks, "chunk"))]);
  for (const cell of row) cell.classList.add("tall");
  return row;
}

// What happened inside the stages, on the request's time axis.
function momentsOf(life) {
  const moments = [];
  if (life.ttft_ms !== null) {
    moments.push({ kind: "first", at: life.ttft_ms, text: life.predecessor === null ? "first token" : "tokens again" });
  }
  for (const [place, at] of life.preempted_ms.entries()) {
    const text = place > 0 ? "" : life.preemptions > 1 ? `preempted ${count(life.preemptions)} times` : "preempted";
    moments.push({ kind: "preempted", at, text });
  }
  if (life.cancelled_ms !== null) {
    moments.push({ kind: "cancelled", at: life.cancelled_ms, text: `ended early: ${words(life.cancel_reason ?? life.outcome)}` });
  }
  return moments.map((moment) => ({ ...moment, at: life.start_ms + moment.at }));
}

// Texts stand beside their moments; one that would lie on another goes a line down.
function momentsRow(moments, until) {
  const seen = moments.filter(({ at }) => isSeen(at, until));
  const pins = seen.map(({ kind, at, text }, place) => {
    const left = percent(at, until);
    return el(
      "div",
      { class: `pin ${kind}${left > 55 ? " late" : ""}`, style: { left: `${left}%`, top: `${1.25 * lineOf(seen, place)}rem` }, title: `${text || kind}: ${exact(at)}` },
      el("span", { class: "pinned" }, text === "" ? "" : `${text}, ${duration(at)}`),
    );
  });
  const row = cells("", pins, "");
  row[1].style.height = `${1.25 * (1 + Math.max(...seen.map((_, place) => lineOf(seen, place)), 0))}rem`;
  return row;
}

function lineOf(moments, place) {
  return moments.slice(0, place + 1).filter(({ text }) => text !== "").length - (moments[place].text === "" ? 0 : 1);
}
