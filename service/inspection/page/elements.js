// Elements from plain values. Text is always text: nothing that came from outside is read as markup.

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === false) continue;
    if (name === "style") Object.assign(element.style, value);
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== ""));
  return element;
}

function el(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

function badge(life) {
  return el("span", { class: `badge outcome-${life.outcome}`, title: words(life.outcome) }, words(life.outcome));
}

// All stages side by side, to scale with each other: the same picture for fast and slow ones.
function proportions(totals, label) {
  const whole = totals.reduce((sum, { length }) => sum + length, 0);
  const parts = totals.map(({ key, length }) =>
    el("span", {
      class: `part stage-${key}`,
      style: { flexGrow: String(length / whole) },
      title: `${STAGE[key].name}: ${duration(length)} (${share(length, whole)})`,
    }),
  );
  return el("div", { class: "proportions", role: "img", "aria-label": label }, parts);
}

function inWords(totals) {
  const whole = totals.reduce((sum, { length }) => sum + length, 0);
  return totals.map(({ key, length }) => `${STAGE[key].name} ${share(length, whole)}`).join(", ");
}
