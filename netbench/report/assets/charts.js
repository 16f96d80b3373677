"use strict";
// Charts: drawn by plotly from the figures in the page. For other scripts: choices, unpacked, drawCharts.
(() => {
const every = (selector, within = document) => [...within.querySelectorAll(selector)];

// The choices of the reader, kept in the address behind its anchor: #loss&unit=kfps&hide=bridge
const choices = {
  anchor: "",
  values: new Map(),
  read() {
    const parts = location.hash.slice(1).split("&").filter(Boolean);
    const pairs = parts.filter(part => part.includes("="));
    choices.anchor = decodeURIComponent(parts.find(part => !part.includes("=")) ?? "");
    if (pairs.length) choices.values = new Map(pairs.map(pair => pair.split("=").map(decodeURIComponent)));
    return pairs.length > 0;
  },
  write() {
    const pairs = [...choices.values].map(pair => pair.map(encodeURIComponent).join("="));
    const hash = [encodeURIComponent(choices.anchor), ...pairs].filter(Boolean).join("&");
    if (hash || location.hash) history.replaceState(null, "", `#${hash}`);
  },
  get: (name, fallback = "") => choices.values.get(name) ?? fallback,
  set(name, value) {
    if (value) choices.values.set(name, value);
    else choices.values.delete(name);
    choices.write();
  },
};
choices.read();

async function unpackedText({textContent}) {
  const bytes = Uint8Array.from(atob(textContent), sign => sign.charCodeAt(0));
  const {readable, writable} = new DecompressionStream("gzip");
  const writer = writable.getWriter();
  writer.write(bytes);
  writer.close();
  return new Response(readable).text();
}
const unpacked = async script =>
  JSON.parse(script.type === "application/json" ? script.textContent : await unpackedText(script));
const contentOf = figure => figure.content ??= unpacked(figure.querySelector(":scope > script"));

let library;
const plotly = () => library ??= unpackedText(document.getElementById("plotly")).then(text => {
  const script = document.createElement("script");
  script.textContent = text;
  document.head.append(script);
  return globalThis.Plotly ?? globalThis.moduleName;
});

const light = JSON.parse(document.getElementById("light").textContent);
function coloured(figure, onPaper) {
  const page = getComputedStyle(document.documentElement);
  const colour = (_, name, pale) => (onPaper ? light[name] : page.getPropertyValue(`--${name}`).trim()) + (pale ? "59" : "");
  return JSON.parse(JSON.stringify(figure).replace(/var\(--([a-z0-9]+)(-pale)?\)/g, colour));
}

// Pixels.
const LEFT = 72, RIGHT = 16, ABOVE = 30, HEIGHT = 236, BELOW = 50, MODEBAR = 26, NARROWEST = 440, LETTER = 6.6, ROW = 20;
const DECADES = 1e4;
const nameOf = (letter, number, more = "") => `${letter}${more}${number ? number + 1 : ""}`;
const hidden = () => new Set(choices.get("hide").split(",").filter(Boolean).map(decodeURIComponent));

// The figure for a width: subplots in columns, axes in the chosen unit and scale, hidden series.
function arranged({data, layout}, width) {
  const {panels} = layout.meta;
  const columns = Math.max(1, Math.min(panels.length, Math.floor((width + 28) / NARROWEST)));
  const rows = Math.ceil(panels.length / columns);
  const across = width / columns - LEFT - RIGHT;
  const axes = (letter, change) => panels.forEach((panel, number) => {
    const axis = layout[nameOf(letter, number, "axis")];
    change(axis, panel, number, data.filter(trace => (trace[`${letter}axis`] ?? "") === nameOf(letter, number)));
  });
  const entries = data.filter(trace => trace.showlegend !== false).map(trace => 48 + LETTER * trace.name.length);
  const widest = Math.max(1, ...entries);
  const fits = entries.reduce((sum, entry) => sum + entry + 6, 0) < width;
  const legend = entries.length ? fits ? 1 : Math.ceil(entries.length / Math.max(1, Math.floor(width / widest))) : 0;

  let below = BELOW;
  axes("x", axis => {
    axis.nticks = Math.max(2, Math.min(9, Math.floor(across / 70)));
    if (axis.type !== "category") return;
    const longest = Math.max(...axis.ticktext.map(text => text.length));
    const upright = longest * LETTER + 8 > across / axis.ticktext.length;
    axis.tickangle = upright ? -90 : 0;
    if (upright) below = Math.max(below, BELOW + longest * LETTER - 12);
  });
  axes("x", (axis, panel, number, traces) => {
    const bars = traces.filter(trace => trace.type === "bar");
    const room = 0.8 * across / (axis.ticktext?.length ?? 1) / Math.max(1, layout.barmode === "stack" ? 1 : bars.length);
    for (const bar of bars) {
      bar.textangle = bar.text.some(text => LETTER * text.length + 8 > room) ? -90 : 0;
      bar.textfont = {size: room < 16 ? 9 : 11};
      if (room < 11) bar.textposition = "none";  // the tooltip and the table have it
    }
  });
  for (const letter of ["x", "y"]) axes(letter, (axis, panel, number, traces) => scaled(letter, axis, panel, traces));

  const above = (entries.length ? legend * ROW + 6 : 0) + MODEBAR + ABOVE;
  const step = HEIGHT + below + ABOVE;
  const plots = rows * step - below - ABOVE;
  const [wide, gap] = [width - LEFT - RIGHT, LEFT + RIGHT];
  axes("x", (axis, _, number) => {
    const left = (number % columns) * (across + gap);
    axis.domain = [left / wide, Math.min(1, (left + across) / wide)];
  });
  axes("y", (axis, _, number) => {
    const top = Math.floor(number / columns) * step;
    axis.domain = [Math.max(0, 1 - (top + HEIGHT) / plots), 1 - top / plots];
  });
  const height = above + plots + below;
  Object.assign(layout, {width, height, margin: {l: LEFT, r: RIGHT, t: above, b: below}, autosize: false});
  layout.legend = {y: 1 - MODEBAR / height};
  layout.hovermode = width < 600 ? "closest" : "x unified";
  layout.dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom";  // so that a finger scrolls the page
  layout.uirevision = choices.get("unit") + choices.get("axis");
  const away = hidden();
  for (const trace of data) trace.visible = away.has(trace.legendgroup) ? "legendonly" : true;
  return {data, layout};
}

function scaled(letter, axis, panel, traces) {
  const {switchable, rate, log, range} = panel.axes[letter];
  if (axis.type === "category" || axis.type === "date") return;
  const factor = rate && choices.get("unit") === "kfps" ? panel.kfps : 1;
  const converted = factor !== 1;
  if (converted) axis.title.text = axis.title.text.replace("[Mbit/s, L1]", "[thousand frames/s]");
  for (const trace of traces) {
    const exact = letter === "y" && converted ? trace.meta?.kfps : undefined;
    const of = number => exact?.[number] != null && trace.y[number] ? exact[number] / trace.y[number] : factor;
    if (!converted) continue;
    if (letter === "y" && trace.error_y)
      for (const end of ["array", "arrayminus"])
        trace.error_y[end] = trace.error_y[end].map((value, number) => value === null ? null : value * of(number));
    trace[letter] = trace[letter].map((value, number) => value === null ? null : value * of(number));
  }
  const [low, high] = range.map(end => end * factor);
  const scale = choices.get("axis");
  axis.range = [low, high];
  if (!(switchable && scale ? scale === "log" : log)) return;
  const positive = traces.flatMap(trace => trace[letter]).filter(value => value > 0);
  let least = low > 0 ? low : Math.max(0.7 * positive.reduce((a, b) => Math.min(a, b), high), high / DECADES);
  if (traces.some(trace => trace.type === "bar")) least = 10 ** Math.floor(Math.log10(least));
  axis.type = "log";
  axis.range = [Math.log10(least), Math.log10(high * 1.05)];
  axis.nticks = axis.range[1] - axis.range[0] < 1.3 ? 3 : 4;  // plotly labels nine values a decade otherwise
  for (const trace of traces) trace[letter] = trace[letter].map(value => value === null ? null : Math.max(value, least));
}

function csv({columns, rows}) {
  const cell = value => value === null ? "" : /[",\n]/.test(value) ? `"${String(value).replaceAll('"', '""')}"` : value;
  return [columns, ...rows].map(row => row.map(cell).join(",")).join("\n") + "\n";
}
function download(text, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type: "text/csv"}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
async function save(chart, format) {
  const figure = chart.closest(".figure");
  const [filename, content] = [figure.id.replace("figure-", ""), await contentOf(figure)];
  if (format === "csv") return download(csv(content), `${filename}.csv`);
  const {data, layout} = arranged(coloured(content.figure, true), chart.clientWidth);
  const {width, height} = layout;
  await globalThis.Plotly.downloadImage({data, layout}, {format, filename, width, height, scale: format === "png" ? 2 : 1});
}
const button = (format, icon, title) => ({name: format, title, icon, click: chart => save(chart, format)});
const configuration = ({Icons}) => ({
  displaylogo: false,
  showSendToCloud: false,  // nothing leaves this machine
  displayModeBar: true,
  modeBarButtonsToRemove: ["toImage", "lasso2d", "autoScale2d"],
  modeBarButtonsToAdd: [
    button("png", Icons.camera, "Download as PNG"),
    button("svg", Icons["camera-retro"], "Download as SVG"),
    button("csv", Icons.disk, "Download the numbers as CSV"),
  ],
});

const dark = matchMedia("(prefers-color-scheme: dark)");
const stateOf = chart => ["unit", "axis", "hide"].map(name => choices.get(name)).concat(chart.clientWidth, dark.matches).join();
const drawn = new Map();  // the content of each figure that has been drawn
async function draw(figure) {
  const chart = figure.querySelector(":scope > .chart");
  const [content, library] = [await contentOf(figure), await plotly()];
  if (!chart.clientWidth || chart.state === stateOf(chart)) return;
  chart.state = stateOf(chart);
  await show(chart, content, library, chart.clientWidth, false);
  if (!drawn.has(figure)) chart.on("plotly_restyle", () => hide(chart));
  drawn.set(figure, content);
}
function show(chart, content, library, width, onPaper) {
  const {data, layout} = arranged(coloured(content.figure, onPaper), width);
  return library.react(chart, data, layout, configuration(library));
}
// A click in the legend of one chart hides or shows the series of that name in all charts.
function hide(chart) {
  const away = hidden();
  for (const trace of chart.data) away[trace.visible === "legendonly" ? "add" : "delete"](trace.legendgroup);
  choices.set("hide", [...away].sort().map(encodeURIComponent).join(","));
  chart.state = stateOf(chart);
  drawCharts();
}

// One chart after the other, so that the page stays responsive; a later call takes over.
let call = 0;
const pause = () => new Promise(done => setTimeout(done));
async function drawCharts() {
  const mine = ++call;
  for (const figure of every(".figure").filter(figure => figure.checkVisibility())) {
    await draw(figure);
    await pause();
    if (mine !== call) return;
  }
}

function pressed() {
  for (const button of every("button[data-choice]"))
    button.setAttribute("aria-pressed", String(button.dataset.value === choices.get(button.dataset.choice)));
}
document.addEventListener("click", event => {
  const button = event.target.closest("button[data-choice]");
  if (!button) return;
  choices.set(button.dataset.choice, button.dataset.value);
  pressed();
  drawCharts();
});
addEventListener("hashchange", () => {
  if (choices.read()) {
    pressed();
    drawCharts();
  } else choices.write();
});
dark.addEventListener("change", drawCharts);
let waiting;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(drawCharts, 150);
});

// On paper: the width of a page, and the colours of a light one.
const PAPER = 700;
addEventListener("beforeprint", () => {
  for (const [figure, content] of drawn) {
    const chart = figure.querySelector(":scope > .chart");
    chart.state = "paper";
    show(chart, content, globalThis.Plotly, PAPER, true);
  }
});
addEventListener("afterprint", drawCharts);

// Long tables of numbers are written when they are opened.
document.addEventListener("toggle", async event => {
  const details = event.target;
  if (details.open) drawCharts();
  if (!details.open || !details.matches(".numbers") || details.querySelector("table")) return;
  const {columns, rows} = await contentOf(details.closest(".figure"));
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const column of columns) head.append(Object.assign(document.createElement("th"), {scope: "col", textContent: column}));
  const body = table.createTBody();
  for (const row of rows) {
    const line = body.insertRow();
    for (const value of row) line.insertCell().textContent = typeof value === "number" ? +value.toPrecision(6) : value ?? "";
  }
  const frame = Object.assign(document.createElement("div"), {className: "wide", tabIndex: 0});
  frame.append(table);
  details.append(frame);
}, true);

Object.assign(globalThis, {choices, unpacked, drawCharts});
pressed();
drawCharts();
})();
