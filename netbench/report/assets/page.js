"use strict";
// Views, lists, folded parts and tables. Charts are drawn by charts.js, which has the choices of the reader, too.
const every = (selector, within = document) => [...within.querySelectorAll(selector)];

function choose(view) {
  for (const button of every(".choice [data-view]"))
    button.setAttribute("aria-pressed", String(button.dataset.view === view));
  for (const part of every(".view")) reveal(part, part.dataset.view === view);
}
function pick(list) {
  for (const part of every(`.picked[data-pick="${list.dataset.pick}"]`)) reveal(part, part.dataset.value === list.value);
}
function restore(list) {
  const value = choices.get(list.dataset.pick);
  if ([...list.options].some(option => option.value === value)) list.value = value;
  pick(list);
}
async function reveal(part, shown) {
  part.hidden = !shown;
  if (!shown) return;
  await insertPacked(part);
  drawCharts(part);
}
async function insertPacked(part) {
  const content = part.querySelector(":scope > script");
  if (!content) return;
  content.remove();
  part.insertAdjacentHTML("beforeend", await unpacked(content));
  every("select[data-pick]", part).forEach(restore);
  every("table", part).forEach(makeSortable);
}

// The columns of a table sort its rows, within each block.
const number = text => {
  const match = text.replaceAll(",", "").replace("−", "-").match(/^[≥≤<>~\s]*(-?\d+(\.\d+)?(e-?\d+)?)/);
  return match ? Number(match[1]) : null;
};
function compare(a, b) {
  const [x, y] = [number(a), number(b)];
  if (x !== null && y !== null) return x - y;
  return (x === null) - (y === null) || a.localeCompare(b);
}
function sort(table, heading, index) {
  const descending = heading.getAttribute("aria-sort") === "ascending";
  every("thead th[aria-sort]", table).forEach(other => other.setAttribute("aria-sort", "none"));
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter(row => !row.matches(".block"));
    const texts = new Map(rows.map(row => [row, row.cells[index].textContent.trim()]));
    rows.sort((a, b) => (descending ? -1 : 1) * compare(texts.get(a), texts.get(b)));
    body.append(...rows);
  }
}
function makeSortable(table) {
  if (table.matches(".waterfall, .paper") || table.closest(".numbers") || !table.tHead || table.rows.length < 3) return;
  [...table.tHead.rows[0].cells].forEach((heading, index) => {
    if (heading.matches(".spread") || !heading.textContent || heading.querySelector("button")) return;
    const button = Object.assign(document.createElement("button"), {type: "button", className: "sort"});
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sort(table, heading, index));
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
  });
}

document.addEventListener("click", event => {
  const button = event.target.closest("button[data-view]");
  if (!button) return;
  choose(button.dataset.view);
  choices.set("view", button.dataset.view);
});
// Of what is folded no event bubbles.
document.addEventListener("toggle", async event => {
  if (!event.target.open || event.target.matches(".numbers")) return;
  await insertPacked(event.target);
  drawCharts(event.target);
}, true);
document.addEventListener("change", event => {
  if (!event.target.matches("[data-pick]")) return;
  pick(event.target);
  choices.set(event.target.dataset.pick, event.target.value);
});

// A link leads to what is folded, too.
function goTo(anchor) {
  const target = anchor && document.getElementById(anchor);
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (target) target.scrollIntoView();
}
document.addEventListener("click", event => {
  const link = event.target.closest('a[href^="#"]');
  if (!link) return;
  event.preventDefault();
  choices.anchor = link.getAttribute("href").slice(1);
  choices.write();
  goTo(choices.anchor);
  document.getElementById(choices.anchor)?.querySelector("summary, h2")?.focus?.();
});

every("table").forEach(makeSortable);
const views = every(".choice [data-view]").map(button => button.dataset.view);
function restoreAll() {
  every("select[data-pick]").forEach(restore);
  const chosen = choices.get("view");
  if (views.length) choose(views.includes(chosen) ? chosen : views[0]);
  goTo(choices.anchor);
}
restoreAll();
addEventListener("hashchange", restoreAll);
